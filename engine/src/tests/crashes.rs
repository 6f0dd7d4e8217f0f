//! A process that is killed, and a host that loses its power, at every operation of a run and of the recovery from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Client, options, options_of_two};
use super::judge::{Broken, Found, Owed, chunks, read, recover, tells_no_gap};
use crate::error::Result;
use crate::ingest::{Writer, WriterOptions};
use crate::log::storage::OpenMode;
use crate::log::tests::simulated::{Boundary, Disk, Luck, Marks, Op, loom};
use crate::log::{Durability, Opening, Recovered};
use crate::testkit::Random;

/// The client of a run, and the boundaries of its operations.
pub struct Run {
    pub client: Client,
    pub past: Vec<Boundary>,
}

const INTERVAL: Durability = Durability::Interval(Duration::from_millis(1));

/// The options of the runs that crash.
fn cases() -> [WriterOptions; 5] {
    [
        options(Durability::None),
        options(INTERVAL),
        options(Durability::Batch),
        options_of_two(INTERVAL),
        options_of_two(Durability::Batch),
    ]
}

/// Blocks and segments change several times, a roll-up completes, an index is defined, the oldest segments are evicted, the catalog is
/// rewritten without a source, and the writer stops and starts again in the middle.
pub fn a_run_of_everything(client: &mut Client) -> Result<()> {
    for step in 0..12 {
        client.push(97)?;
        client.sync()?;
        if step % 3 == 1 {
            client.sync_durable()?;
        }
        if step == 4 {
            client.define_index("large")?;
        }
        if step == 6 || step == 9 {
            client.sync_durable()?;
            client.evict()?;
            client.sync_durable()?;
        }
        if step == 3 || step == 6 || step == 9 {
            client.forget()?;
        }
        if step == 7 {
            client.close()?;
            client.open()?;
        }
    }
    client.push(5)?;
    client.close()
}

/// Runs the script as far as the disk lets it; `None` if it does not even begin.
pub fn run(
    disk: &Disk,
    options: &WriterOptions,
    script: impl FnOnce(&mut Client) -> Result<()>,
) -> Option<Run> {
    let mut client = Client::remembered(disk, options).ok()?;
    let _ended = script(&mut client);
    let past = disk.past();
    client.writer = None;
    Some(Run { client, past })
}

pub fn owed_after_kill(at: &Boundary) -> Owed {
    Owed {
        promise: "G1",
        records: at.acknowledged.published,
        begin_most: at.acknowledged.begin,
        seen: at.acknowledged.published,
        lost: at.acknowledged.lost,
    }
}

pub fn owed_after_power_loss(at: &Boundary) -> Owed {
    Owed {
        promise: "G3",
        records: at.acknowledged.durable,
        // Pending losses in staging are lost with it.
        lost: 0,
        ..owed_after_kill(at)
    }
}

const LUCKS: [Luck; 5] = [
    Luck::Nothing,
    Luck::Some(10),
    Luck::Some(50),
    Luck::Some(90),
    Luck::Everything,
];

/// The boundaries of a recovery, and the records that it keeps.
fn recovery(disk: &Disk, run: &Run, owed: &Owed) -> Result<(Vec<Boundary>, Found), Broken> {
    disk.remember(&Arc::new(Marks::default()));
    let opened = Writer::open_with(disk.storage(), &loom(), options(Durability::None));
    let past = disk.past();
    if let Err(error) = opened {
        return Err(Broken {
            promise: "recovery",
            what: error.to_string(),
        });
    }
    Ok((past, read(disk, &run.client.sent, owed)?))
}

/// Kills a recovery, or takes its power, at one in `every` of its operations.
fn crash_in_recovery(
    disk: &Disk,
    run: &Run,
    at: &Boundary,
    owed: &Owed,
    every: u64,
    random: &mut Random,
) -> Result<u64, Broken> {
    let (past, kept) = recovery(disk, run, owed)?;
    let mut crashes = 0;
    for boundary in &past {
        if random.below(every) != 0 {
            continue;
        }
        crashes += 1;
        let killed = boundary.kill();
        let when = format!("killed in recovery, before {:?}", boundary.op);
        let again =
            recover(&killed, &run.client.sent, owed).map_err(|broken| broken.when(&when))?;
        if owed.promise == "G1" {
            tells_no_gap(&killed).map_err(|broken| broken.when(&when))?;
        }
        if again != kept {
            return Err(Broken {
                promise: "recovery is idempotent",
                what: format!(
                    "{kept:?}, and {again:?} after a kill before {:?}",
                    boundary.op
                ),
            });
        }
        let luck = LUCKS[random.below(5) as usize];
        recover(
            &boundary.lose_power(luck, random),
            &run.client.sent,
            &owed_after_power_loss(at),
        )
        .map_err(|broken| {
            broken.when(&format!(
                "without power in recovery, before {:?}, {luck:?}",
                boundary.op
            ))
        })?;
    }
    Ok(crashes)
}

/// Crashes a run at each of its operations, in every way, and its recovery at one in `every` of its own. Returns the number of crashes.
pub fn crash_everywhere(run: &Run, every: u64, random: &mut Random) -> Result<u64, (Op, Broken)> {
    let mut crashes = 0;
    for at in &run.past {
        crashes += crash_at(run, at, every, random).map_err(|broken| (at.op.clone(), broken))?;
    }
    Ok(crashes)
}

fn crash_at(run: &Run, at: &Boundary, every: u64, random: &mut Random) -> Result<u64, Broken> {
    let sent = &run.client.sent;
    let killed = at.kill();
    recover(&killed, sent, &owed_after_kill(at))
        .and_then(|_| tells_no_gap(&killed))
        .map_err(|broken| broken.when("killed"))?;
    let luck = LUCKS[random.below(5) as usize];
    recover(
        &at.lose_power(luck, random),
        sent,
        &owed_after_power_loss(at),
    )
    .map_err(|broken| broken.when("without power"))?;
    let mut crashes = 2;
    if random.below(every) == 0 {
        crashes += crash_in_recovery(&at.kill(), run, at, &owed_after_kill(at), every, random)?;
        let lost = at.lose_power(luck, random);
        crashes += crash_in_recovery(&lost, run, at, &owed_after_power_loss(at), every, random)?;
    }
    Ok(crashes)
}

pub fn seed(test: &str) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let given = std::env::var("LOOM_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(test) >> 32);
    println!("{test}: LOOM_SEED={seed}");
    seed
}

pub fn seconds(default: u64) -> Duration {
    let given = std::env::var("LOOM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(default))
}

// G1, G2, G3, G9
// case Crash: in mid-payload
// case Crash: published, not answered
// case Crash: at a block switch
// case Crash: in recovery, again and again
// case Crash: in a start, or in a stop, at any operation
// case Crash: while a segment is created
// case Network and input: a catalog that is rewritten
#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_promised() {
    let mut random = Random(seed("crashes"));
    for options in cases() {
        let disk = Disk::new();
        let run = run(&disk, &options, a_run_of_everything).unwrap();
        let case = (options.log.durability, options.log.encoders);
        assert!(run.client.sent.len() == 12 * 97 + 5 && chunks(&disk) > 128);
        let since = Instant::now();
        match crash_everywhere(&run, 16, &mut random) {
            Ok(crashes) => println!(
                "{case:?}: {} operations, {crashes} crashes, {:?}",
                run.past.len(),
                since.elapsed()
            ),
            Err((op, broken)) => panic!("{case:?}, before {op:?}: {broken:?}"),
        }
    }
}

/// The content of the record log's files.
fn record_files(disk: &Disk) -> BTreeMap<String, Vec<u8>> {
    let (storage, folder) = (disk.storage(), loom().join("records"));
    let names = storage.list(&folder).unwrap_or_default();
    let read = |name: String| {
        let file = storage.open(&folder.join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        assert_eq!(file.pread(&mut bytes, 0).unwrap(), bytes.len());
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// The units of a segment, one behind the other.
fn units(file: &[u8]) -> Vec<&[u8]> {
    let (mut units, mut rest) = (Vec::new(), file);
    while rest.starts_with(b"LOMU") {
        let length = u32::from_le_bytes(*rest[8..].first_chunk().unwrap());
        let Some((unit, later)) = rest.split_at_checked(length as usize) else {
            break;
        };
        units.push(unit);
        rest = later;
    }
    units
}

/// A writer that begins makes columns of each unit that is of columns in `whole`. Returns how many were raw before.
fn start_makes_columns(disk: &Disk, whole: &BTreeMap<String, Vec<u8>>) -> usize {
    let before = record_files(disk);
    let writer = Writer::open_with(disk.storage(), &loom(), options(Durability::None)).unwrap();
    drop(writer);
    let mut mended = 0;
    for (name, file) in record_files(disk) {
        let file_before = before.get(&name).map_or(&[][..], Vec::as_slice);
        let units_before = units(file_before);
        for (nth, (unit, wanted)) in units(&file)
            .into_iter()
            .zip(units(&whole[&name]))
            .enumerate()
        {
            let is_raw = wanted[16] == 0;
            assert!(is_raw || unit == wanted, "{name}, unit {nth}");
            mended += usize::from(units_before.get(nth).is_some_and(|unit| *unit != wanted));
        }
    }
    mended
}

// case Crash: in recovery, again and again
#[test]
fn units_of_columns_outlive_a_kill_as_they_are_and_a_start_makes_those_that_are_missing() {
    let disk = Disk::new();
    let several_units = |client: &mut Client| {
        for _ in 0..12 {
            client.push(97)?;
            client.sync()?;
            client.sync_durable()?;
        }
        Ok(())
    };
    let run = run(&disk, &options(Durability::None), several_units).unwrap();
    let whole = record_files(&disk);
    let (mut columns, mut salvaged, mut mended) = (0, 0, 0);
    for at in &run.past {
        let killed = at.kill();
        let before = record_files(&killed);
        let salvage = || {
            let options = options(Durability::None).log;
            let opening = Opening::open_with(killed.storage(), &loom(), &options).unwrap();
            (opening.how(), record_files(&killed))
        };
        let (how, after) = salvage();
        assert_eq!(salvage(), (how, after.clone()), "before {:?}", at.op);
        salvaged += usize::from(how == Recovered::Salvaged);
        for (name, file) in before {
            let stay = units(&file).into_iter().zip(units(&after[&name]));
            for (nth, (unit, after)) in stay.enumerate() {
                let is_raw = unit[16] == 0;
                assert!(
                    is_raw || unit == after,
                    "{name}, unit {nth}, before {:?}",
                    at.op
                );
                columns += usize::from(!is_raw);
            }
        }
        killed.remember(&Arc::default());
        let were_raw = start_makes_columns(&killed, &whole);
        mended += were_raw;
        // A start that is killed on its way leaves it to the next one.
        let on_its_way = killed.past().into_iter().step_by(7);
        for again in on_its_way.filter(|_| were_raw > 0) {
            start_makes_columns(&again.kill(), &whole);
        }
    }
    let enough = columns > 100 && salvaged > 20 && mended > 2;
    assert!(enough, "{columns}, {salvaged}, {mended}");
}

/// Random operations in a random order.
fn a_random_run(client: &mut Client, random: &mut Random) -> Result<()> {
    for step in 0..3 + random.below(20) {
        match random.below(12) {
            0 => client.sync_durable()?,
            1 => client.define_index(&format!("large {step}"))?,
            2 => {
                client.sync_durable()?;
                client.evict()?;
                client.sync_durable()?;
            }
            3 => {
                client.close()?;
                client.open()?;
            }
            4 => client.push(random.below(900))?,
            5 | 6 => client.forget()?,
            _ => client.push(random.below(100))?,
        }
        if random.below(3) > 0 {
            client.sync()?;
        }
    }
    Ok(())
}

#[test]
fn crashes_of_any_run_lose_nothing_that_was_promised() {
    let mut random = Random(seed("random_crashes"));
    let (since, mut runs, mut crashes) = (Instant::now(), 0, 0);
    while since.elapsed() < seconds(6) || runs < 3 {
        let options = &cases()[random.below(5) as usize];
        let case = (options.log.durability, options.log.encoders);
        let disk = Disk::new();
        let script = |client: &mut Client| a_random_run(client, &mut random);
        let run = run(&disk, options, script).unwrap();
        for at in &run.past {
            if random.below(8) > 0 {
                continue;
            }
            match crash_at(&run, at, 6, &mut random) {
                Ok(tried) => crashes += tried,
                Err(broken) => panic!("run {runs}, {case:?}, before {:?}: {broken:?}", at.op),
            }
        }
        runs += 1;
    }
    println!("{runs} runs, {crashes} crashes");
}
