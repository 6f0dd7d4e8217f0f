//! A disk that fails at any operation of a run, once or from then on, and a disk that lies, whose broken promises the judge must find.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{Client, options, options_of_two, payload};
use super::crashes::{
    a_run_of_everything, owed_after_kill, owed_after_power_loss, run, seconds, seed,
};
use super::judge::{Broken, Owed, read, recover};
use crate::ingest::Batch;
use crate::log::Durability;
use crate::log::storage::read_file;
use crate::log::tests::simulated::{Disk, EIO, ENOSPC, Fault, Kind, Luck, Op, Rule, loom};
use crate::testkit::Random;

const FAULTS: [Fault; 5] = [
    Fault::Fails(EIO),
    Fault::Fails(ENOSPC),
    Fault::Tears(EIO),
    Fault::Shortens(700),
    Fault::Takes(Duration::from_millis(20)),
];

/// Runs with a fault, then crashes at the end and at some operations.
fn run_with(fault: Fault, times: u64, after: u64, random: &mut Random) -> Result<(), (Op, Broken)> {
    let disk = Disk::new();
    let fits = move |op: &Op| {
        let is_write = matches!(fault, Fault::Tears(_) | Fault::Shortens(_));
        op.is_on_disk() && op.changes() && (!is_write || op.kind == Kind::Write)
    };
    disk.rule(Rule {
        times,
        ..Rule::always(fault, fits).after(after)
    });
    let options = [options, options_of_two][random.below(2) as usize](Durability::Batch);
    let Some(run) = run(&disk, &options, a_run_of_everything) else {
        return Ok(());
    };
    let sent = &run.client.sent;
    // A line of the catalog is written again before its file is synced again. The catalog's copy acknowledges nothing; a start syncs it
    // without knowing that an earlier sync failed, and restores each line that it lost.
    let again = disk.synced_again();
    let is_catalog = |path: &Path| path.ends_with("catalog") || path.ends_with("catalog.copy");
    if let Some(path) = again.iter().find(|path| !is_catalog(path)) {
        let (kind, path) = (Kind::Sync, path.clone());
        let broken = Broken {
            promise: "G10",
            what: "it was synced again after a sync had failed".to_owned(),
        };
        return Err((Op { kind, path }, broken));
    }
    let last = run.past.len() - 1;
    let mut places = vec![last];
    places.extend((0..4).map(|_| random.below(last as u64) as usize));
    for at in places.into_iter().map(|at| &run.past[at]) {
        let blame = |broken| (at.op.clone(), broken);
        recover(&at.kill(), sent, &owed_after_kill(at)).map_err(blame)?;
        let luck = Luck::Some(random.below(101));
        let lost = at.lose_power(luck, random);
        recover(&lost, sent, &owed_after_power_loss(at)).map_err(blame)?;
    }
    Ok(())
}

// G10
// case Disk: EIO on write
#[test]
fn a_disk_that_fails_anywhere_loses_nothing_that_was_acknowledged() {
    let mut random = Random(seed("failures"));
    let since = Instant::now();
    let mut runs = 0;
    while since.elapsed() < seconds(8) || runs < 20 {
        let fault = FAULTS[random.below(5) as usize];
        let times = [1, 1, 2, u64::MAX][random.below(4) as usize];
        let times = if matches!(fault, Fault::Takes(_)) {
            times.min(4)
        } else {
            times
        };
        let after = random.below(400);
        if let Err((op, broken)) = run_with(fault, times, after, &mut random) {
            panic!(
                "{fault:?}, {times} times after {after} operations, then a crash before {op:?}: {broken:?}"
            );
        }
        runs += 1;
    }
    println!("{runs} runs");
}

/// The first broken promise if the disk lies about some operations and a power loss takes everything that is not synced.
fn broken_by(lie: impl Fn(&Op) -> bool + Send + 'static) -> Option<Broken> {
    let disk = Disk::new();
    disk.rule(Rule::always(Fault::Lies, lie));
    let run = run(&disk, &options(Durability::Batch), a_run_of_everything)?;
    run.past.iter().find_map(|at| {
        let lost = at.lose_power(Luck::Nothing, &mut Random(1));
        read(&lost, &run.client.sent, &owed_after_power_loss(at)).err()
    })
}

// G10
#[test]
fn a_disk_that_lies_about_its_syncs_breaks_what_batch_durability_promises() {
    let of_files = broken_by(|op| op.kind == Kind::Sync && op.is_in("records")).unwrap();
    assert!(["G3", "G11"].contains(&of_files.promise), "{of_files:?}");
    // Units and the tail are found even without slots.
    let of_tail = broken_by(|op| op.kind == Kind::Sync && op.path.ends_with("tail")).unwrap();
    assert!(["G3", "G11"].contains(&of_tail.promise), "{of_tail:?}");
    let of_folders = broken_by(|op| op.kind == Kind::SyncFolder).unwrap();
    assert_eq!(of_folders.promise, "G3");
    assert_eq!(broken_by(|_| false), None);
}

#[test]
fn a_disk_that_lies_about_its_writes_breaks_what_a_kill_leaves() {
    let disk = Disk::new();
    disk.rule(Rule::always(Fault::Lies, |op| {
        op.kind == Kind::Write && op.is_in("records")
    }));
    let run = run(&disk, &options(Durability::None), a_run_of_everything).unwrap();
    let broken = run
        .past
        .iter()
        .find_map(|at| read(&at.kill(), &run.client.sent, &owed_after_kill(at)).err());
    assert!(broken.is_some());
}

// case Overload: a flusher slower than ingest for a minute
#[test]
fn a_disk_slower_than_its_clients_takes_what_it_can_and_every_record_is_accounted_for() {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &options(Durability::None), Vec::new()).unwrap();
    let time = Duration::from_millis(3);
    disk.rule(Rule::always(Fault::Takes(time), |op| {
        op.kind == Kind::Write && op.is_in("records")
    }));
    let (mut offered, mut taken, mut stored) = (0, 0, Vec::<u64>::new());
    let number = client.writer().catalog().find("number").unwrap().id;
    let since = Instant::now();
    // Like an input with the policy `drop_new`, it drops and counts the records that find the log full.
    while since.elapsed() < Duration::from_secs(1) {
        // The first ordinals are of another source.
        let ordinals: Vec<u64> = (offered + 1..=offered + 50).collect();
        let mut bytes = Vec::new();
        for ordinal in &ordinals {
            let payload = payload(61 * ordinal);
            bytes.extend((payload.len() as u16).to_le_bytes());
            bytes.extend(payload);
        }
        let batch = Batch::Framed { bytes: &bytes };
        let pushed = client.writer().try_push_batch(number, &batch).unwrap();
        assert_eq!(pushed.refused_count, 0);
        stored.extend(&ordinals[..pushed.stored as usize]);
        taken += pushed.stored;
        offered += 50;
        client.writer().publish().unwrap();
    }
    let dropped = offered - taken;
    assert!(dropped > 0 && taken > 0, "{taken} of {offered}");
    assert!(client.writer().stats().log.stalls > 0);
    assert_eq!(client.writer().stats().records, taken);
    client.marks.published.store(taken, Ordering::Release);
    client.writer.take().unwrap().close().unwrap();
    assert_eq!(ordinals_of(&disk), stored);
    println!("{taken} of {offered} records were taken");
}

/// The ordinals of all numbers, in the order of the log, as they were offered.
fn ordinals_of(disk: &Disk) -> Vec<u64> {
    use crate::log::LogReader;
    use crate::log::tests::simulated::loom;
    use crate::query::{Directory, Poll, raw_scan};
    use crate::types::TimeRange;
    use std::ops::ControlFlow;
    let reader = LogReader::open_with(disk.storage(), &loom()).unwrap();
    let snapshot = Directory::of(reader).snapshot().unwrap();
    let number = snapshot.source("number").unwrap().id;
    let mut ordinals = Vec::new();
    raw_scan(
        &snapshot,
        number,
        TimeRange::ALL,
        &Poll::never(),
        |record| {
            ordinals.push(u64::from_le_bytes(*record.payload.first_chunk().unwrap()) / 61);
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    ordinals.reverse();
    ordinals
}

#[test]
fn a_definition_that_the_disk_refuses_is_not_made_and_can_be_made_again() {
    let of_catalog = |kind| move |op: &Op| op.kind == kind && op.path.ends_with("catalog");
    for (kind, fault) in [
        (Kind::Write, Fault::Fails(ENOSPC)),
        (Kind::Write, Fault::Tears(EIO)),
        (Kind::Sync, Fault::Fails(EIO)),
    ] {
        for is_taken_back in [true, false] {
            let disk = Disk::new();
            let mut client = Client::start(&disk, &options(Durability::None), Vec::new()).unwrap();
            client.push(100).and_then(|()| client.sync()).unwrap();
            disk.rule(Rule::once(fault, of_catalog(kind)));
            if !is_taken_back {
                let fault = Fault::Fails(EIO);
                disk.rule(Rule::once(fault, of_catalog(Kind::Truncate)));
            }
            assert!(client.define_index("large_and_with_a_long_name").is_err());
            client.push(50).unwrap();
            client.define_index("large").unwrap();
            client.push(300).and_then(|()| client.sync()).unwrap();
            let at = disk.now();
            let owed = Owed {
                promise: "G1",
                records: client.sent.len() as u64,
                begin_most: 0,
                seen: 0,
                lost: client.sent.len() as u64,
            };
            let found = recover(&at.kill(), &client.sent, &owed).unwrap();
            assert_eq!(found.end, owed.records, "{kind:?} {fault:?}");
        }
    }
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_disk_that_takes_no_copy_of_the_catalog_fails_nothing_else() {
    for kind in [Kind::Open, Kind::Write, Kind::Sync, Kind::Rename] {
        let disk = Disk::new();
        // The copies of the files that a start writes must be there, because it cannot start without them.
        let of_copy =
            move |op: &Op| op.kind == kind && op.path.to_string_lossy().contains("catalog.copy");
        disk.rule(Rule::always(Fault::Fails(ENOSPC), of_copy));
        let mut client = Client::start(&disk, &options(Durability::Batch), Vec::new()).unwrap();
        a_run_of_everything(&mut client).unwrap();
        disk.obey();
        client.open().unwrap();
        client.define_index("late").unwrap();
        client.close().unwrap();
        let content =
            |name: &str| read_file(&*disk.storage(), &loom().join(name), 1 << 20).unwrap();
        for name in ["catalog", "loom.json"] {
            let copy = content(&format!("{name}.copy"));
            assert!(copy.is_some() && copy == content(name), "{kind:?}: {name}");
        }
    }
}
