//! A process that is killed, and a host that loses its power, at every operation of a run, and of the recovery from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Client, options};
use super::judge::{Broken, Found, Owed, chunks, read, recover, tells_no_gap};
use crate::error::Result;
use crate::ingest::Writer;
use crate::log::Durability;
use crate::log::tests::simulated::{Boundary, Disk, Luck, Marks, Op, loom};
use crate::testkit::Random;

/// What a run of the machine came to.
pub struct Run {
    pub client: Client,
    pub past: Vec<Boundary>,
}

const DURABILITIES: [Durability; 3] = [
    Durability::None,
    Durability::Interval(Duration::from_millis(1)),
    Durability::Batch,
];

/// Blocks and segments change several times, a roll-up completes, an index comes, the oldest segments go, the catalog is rewritten without a source, and the
/// writer stops and begins again in the middle.
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

/// Runs the script as far as the disk lets it; `None` where it does not let it begin.
pub fn run(
    disk: &Disk,
    durability: Durability,
    script: impl FnOnce(&mut Client) -> Result<()>,
) -> Option<Run> {
    let mut client = Client::remembered(disk, &options(durability)).ok()?;
    let _ended = script(&mut client);
    let past = disk.past();
    client.writer = None;
    Some(Run { client, past })
}

pub fn owed_after_kill(at: &Boundary) -> Owed {
    Owed {
        promise: "G1",
        records: at.told.published,
        begin_most: at.told.begin,
        seen: at.told.published,
        lost: at.told.lost,
    }
}

pub fn owed_after_power_loss(at: &Boundary) -> Owed {
    Owed {
        promise: "G3",
        records: at.told.durable,
        // What staging held is gone with it.
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

/// The boundaries of a recovery, and what it keeps.
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

/// Kills a recovery, or takes its power, at some of its operations; `every` says how many are passed over for one that is tried.
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

/// Crashes a run at each of its operations, in every way, and its recovery at one in `every` of its own. Returns how many crashes that were.
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
    for durability in DURABILITIES {
        let disk = Disk::new();
        let run = run(&disk, durability, a_run_of_everything).unwrap();
        assert!(run.client.sent.len() == 12 * 97 + 5 && chunks(&disk) > 128);
        let since = Instant::now();
        match crash_everywhere(&run, 16, &mut random) {
            Ok(crashes) => println!(
                "{durability:?}: {} operations, {crashes} crashes, {:?}",
                run.past.len(),
                since.elapsed()
            ),
            Err((op, broken)) => panic!("{durability:?}, before {op:?}: {broken:?}"),
        }
    }
}

/// Anything, in any order.
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
        let durability = DURABILITIES[random.below(3) as usize];
        let disk = Disk::new();
        let script = |client: &mut Client| a_random_run(client, &mut random);
        let run = run(&disk, durability, script).unwrap();
        for at in &run.past {
            if random.below(8) > 0 {
                continue;
            }
            match crash_at(&run, at, 6, &mut random) {
                Ok(tried) => crashes += tried,
                Err(broken) => panic!("run {runs}, {durability:?}, before {:?}: {broken:?}", at.op),
            }
        }
        runs += 1;
    }
    println!("{runs} runs, {crashes} crashes");
}
