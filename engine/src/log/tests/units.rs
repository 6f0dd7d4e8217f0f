//! Units and the tail on a simulated disk: what was published is there after any kill, what was synced after any loss of power, and a sync of little
//! writes little.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::machine::Machine;
use super::simulated::{EIO, ENOSPC, Fault, Kind, Luck, Marks, Op, Rule, loom};
use super::*;
use crate::format::UNIT_HEADER_BYTES;
use crate::log::storage::OpenMode;

const LUCKS: [Luck; 3] = [Luck::Nothing, Luck::Some(50), Luck::Everything];

/// Appends and syncs random amounts, some of less than a unit, some of several, and begins again now and then, until the disk refuses something for good.
fn write(
    machine: &Machine,
    options: &LogOptions,
    mut logs: Logs,
    marks: &Marks,
    random: &mut Random,
) -> crate::Result<()> {
    while logs.end(LogKind::Records).0 < 6 * BLOCK {
        let bytes = match random.below(6) {
            0 => 8 * random.below(3 * BLOCK / 8),
            _ => 8 * random.below(200) + 8,
        };
        for (log, bytes) in LogKind::ALL.into_iter().zip([bytes, 8, 48]) {
            try_append(&mut logs, log, bytes as usize)?;
        }
        match random.below(8) {
            0 => {
                logs.close()?;
                logs = try_resume(machine.try_open_with(options)?)?;
            }
            1 => logs.publish(),
            _ => sync(&mut logs, marks)?,
        }
        let published = logs.tail(LogKind::Records);
        marks.published.store(published.0, Ordering::Release);
    }
    Ok(())
}

fn sync(logs: &mut Logs, marks: &Marks) -> crate::Result<()> {
    logs.sync()?;
    let durable = logs.durable(LogKind::Records);
    marks.durable.store(durable.0, Ordering::Release);
    Ok(())
}

/// Which step of what becomes durable comes next, if the operation is one.
fn step(op: &Op) -> Option<&'static str> {
    let is_in_records = op.is_in("records");
    Some(match op.kind {
        Kind::Write if is_in_records => "the bytes of a unit",
        Kind::WriteBack if is_in_records => "the mark over a unit",
        Kind::Sync if is_in_records => "the sync of a unit",
        Kind::Write if op.path.ends_with("tail") => "pieces of the tail",
        Kind::Sync if op.path.ends_with("tail") => "the sync of the tail",
        Kind::Write if op.path.ends_with("durable") => "a slot",
        Kind::Sync if op.path.ends_with("durable") => "the sync of a slot",
        _ => return None,
    })
}

/// Checks that a reader and a start find the log after a crash, at least up to `least`, and that the start loses nothing of it.
fn found_again(machine: &Machine, least: u64, when: &str) {
    let found = read_all(&machine.reader());
    assert!(found.0 >= least, "{when}: {found} of {least}");
    drop(resume(machine.open()));
    let again = read_all(&machine.reader());
    assert!(again >= found, "{when}, after a start: {again} of {found}");
}

/// Reads everything up to the end. Chunks that a start sealed have other bytes from there on.
fn read_all(reader: &LogReader) -> Address {
    let tail = reader.tails().unwrap().tail.records;
    for chunk in (0..tail.0).step_by(CHUNK as usize) {
        let mut bytes = vec![0; CHUNK.min(tail.0 - chunk) as usize];
        reader
            .read(LogKind::Records, Address(chunk), &mut bytes)
            .unwrap();
        let words = bytes.chunks_exact(8).zip((chunk..).step_by(8));
        let ended = |(found, at): &(&[u8], u64)| {
            *found == [0; 8] || *found == word(LogKind::Records, *at).to_le_bytes()
        };
        let body = bytes.len().min(CHUNK as usize - 8) / 8;
        assert!(words.take(body).all(|word| ended(&word)), "chunk {chunk}");
        assert_ne!(bytes[..8], [0; 8], "chunk {chunk} is not there");
    }
    tail
}

// G1, G2, G3
#[test]
fn what_was_promised_is_there_after_a_kill_and_a_loss_of_power_at_any_operation() {
    let interval = Durability::Interval(Duration::from_millis(1));
    let cases = [Durability::None, interval, Durability::Batch].map(|each| (each, 1));
    let helped = [Durability::None, Durability::Batch].map(|each| (each, 2));
    for (seed, (durability, encoders)) in cases.into_iter().chain(helped).enumerate() {
        let mut random = Random(seed as u64 + 11);
        let machine = Machine::new();
        let options = machine.options_of(durability, encoders);
        let marks: Arc<Marks> = Arc::default();
        let logs = machine.start_with(&options);
        machine.disk.remember(&marks);
        write(&machine, &options, logs, &marks, &mut random).unwrap();
        let past = machine.disk.past();
        assert!(past.len() > 100, "{}", past.len());
        let mut steps = BTreeMap::new();
        for boundary in past {
            let (op, acknowledged) = (&boundary.op, boundary.acknowledged);
            if let Some(step) = step(op) {
                *steps.entry(step).or_insert(0) += 1;
            }
            let killed = Machine {
                disk: boundary.kill(),
            };
            let when = format!("{durability:?}, killed before {op:?}");
            found_again(&killed, acknowledged.published, &when);
            let luck = LUCKS[random.below(3) as usize];
            let lost = Machine {
                disk: boundary.lose_power(luck, &mut random),
            };
            let when = format!("{durability:?}, {encoders}, {luck:?}, before {op:?}");
            found_again(&lost, acknowledged.durable, &when);
        }
        let is_whole = steps.len() == 7 && steps.values().all(|times| *times > 3);
        assert!(is_whole, "{durability:?}: {steps:?}");
    }
}

/// The disk refuses one operation, and later the process is killed or the power fails.
// G10
#[test]
fn a_refusal_and_a_crash_after_it_lose_nothing_that_was_promised() {
    let faults = [
        Fault::Fails(EIO),
        Fault::Fails(ENOSPC),
        Fault::Tears(EIO),
        Fault::Tears(ENOSPC),
    ];
    let kinds = [
        Kind::Write,
        Kind::Sync,
        Kind::Sync,
        Kind::Open,
        Kind::Rename,
        Kind::SyncFolder,
        Kind::Truncate,
    ];
    for seed in 0..60 {
        let mut random = Random(seed + 101);
        let machine = Machine::new();
        let options = machine.options([Durability::None, Durability::Batch][seed as usize % 2]);
        let logs = machine.start_with(&options);
        let (fault, kind) = (*random.pick(&faults), *random.pick(&kinds));
        let file = *random.pick(&["", "records", "tail", "durable"]);
        let fits = move |op: &Op| {
            let concerns = op.path.to_string_lossy().contains(file);
            op.kind == kind && op.is_on_disk() && concerns
        };
        machine
            .disk
            .rule(Rule::once(fault, fits).after(random.below(40)));
        let marks: Arc<Marks> = Arc::default();
        machine.disk.remember(&marks);
        let ended = write(&machine, &options, logs, &marks, &mut random);
        for boundary in machine.disk.past() {
            if random.below(6) > 0 {
                continue;
            }
            let acknowledged = boundary.acknowledged;
            let what = format!("seed {seed}, {fault:?} of {kind:?} of '{file}', {ended:?}");
            let killed = Machine {
                disk: boundary.kill(),
            };
            let when = format!("{what}, killed before {:?}", boundary.op);
            found_again(&killed, acknowledged.published, &when);
            let luck = LUCKS[random.below(3) as usize];
            let lost = Machine {
                disk: boundary.lose_power(luck, &mut random),
            };
            let when = format!("{what}, {luck:?}, before {:?}", boundary.op);
            found_again(&lost, acknowledged.durable, &when);
        }
    }
}

/// An area of the tail takes 4096 pieces of a word, and the other one then the whole of the unit so far.
// G3
#[test]
fn where_small_pieces_fill_an_area_of_the_tail_no_loss_of_power_loses_what_was_synced() {
    let mut random = Random(5);
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Batch);
    let marks: Arc<Marks> = Arc::default();
    for nth in 0..4110 {
        if nth == 4080 {
            machine.disk.remember(&marks);
        }
        append(&mut logs, LogKind::Records, 8);
        sync(&mut logs, &marks).unwrap();
    }
    for boundary in machine.disk.past() {
        for luck in LUCKS {
            let disk = boundary.lose_power(luck, &mut random);
            let when = format!("{luck:?}, before {:?}", boundary.op);
            found_again(&Machine { disk }, boundary.acknowledged.durable, &when);
        }
    }
}

// G4
#[test]
fn a_clean_stop_at_the_end_of_a_unit_needs_no_tail() {
    for units in [0, 1, SEGMENT / BLOCK, SEGMENT / BLOCK + 1] {
        let machine = Machine::new();
        let mut logs = machine.start(Durability::None);
        append_each(&mut logs, [808, 168, 48]);
        logs.sync().unwrap();
        append(
            &mut logs,
            LogKind::Records,
            (units * BLOCK + BLOCK - 808) as usize,
        );
        logs.close().unwrap();
        let tail = loom().join("tail");
        machine.disk.delete(&tail);
        let end = Address((units + 1) * BLOCK);
        assert_eq!(check_all(&machine.reader()).tail.records, end);
        let opening = machine.open();
        assert_eq!(
            (
                opening.how(),
                opening.end(LogKind::Records),
                opening.resume()
            ),
            (Recovered::Clean, end, end)
        );
        let mut logs = resume(opening);
        append(&mut logs, LogKind::Records, 88);
        logs.close().unwrap();
        assert_eq!(check_all(&machine.reader()).tail.records, end + 88);
    }
}

#[test]
fn a_sync_of_one_record_writes_little() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Batch);
    for _ in 0..200 {
        append(&mut logs, LogKind::Records, 64);
        logs.sync().unwrap();
    }
    let storage = machine.disk.storage();
    let tail = storage.open(&loom().join("tail"), OpenMode::Read).unwrap();
    let bytes = tail.bytes().unwrap();
    // A record takes a header more, and another one if a chunk ends in it.
    assert!(bytes <= 200 * (64 + 24) + 24 * 4, "{bytes}");
    logs.close().unwrap();
    check_all(&machine.reader());
}

// G2
#[test]
fn where_units_follow_each_other_fast_they_become_durable_without_the_tail() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Interval(Duration::from_secs(1)));
    let (mut durable, mut syncs) = (logs.durable(LogKind::Records), 0);
    let began = Instant::now();
    while syncs < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "{syncs} syncs");
        append(&mut logs, LogKind::Records, BLOCK as usize + 64);
        logs.publish();
        std::thread::sleep(Duration::from_millis(2));
        if logs.durable(LogKind::Records) > durable {
            (durable, syncs) = (logs.durable(LogKind::Records), syncs + 1);
        }
    }
    let storage = machine.disk.storage();
    let tail = storage.open(&loom().join("tail"), OpenMode::Read).unwrap();
    assert_eq!(tail.bytes().unwrap(), 0);
    logs.close().unwrap();
    check_all(&machine.reader());
}

/// A head that verifies stands where it should, however short its unit was cut: it does not prove that the damaged one before it is elsewhere.
#[test]
fn behind_a_damaged_head_a_unit_that_is_cut_short_ends_the_walk() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append(&mut logs, LogKind::Records, 3 * BLOCK as usize);
    logs.close().unwrap();
    let path = scene.segment(LogKind::Records, 0);
    scene.flip_unit(&path, 0);
    let unit = UNIT_HEADER_BYTES + BLOCK as usize;
    scene.change(&path, |bytes| bytes.truncate(2 * unit - 8));
    let reader = scene.reader();
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        reader.tails().unwrap();
        let read = |at| reader.read(LogKind::Records, Address(at), &mut [0; 8]);
        let reads = [0, BLOCK, 2 * BLOCK].map(|at| read(at).unwrap_err().is_damage());
        sender.send(reads).unwrap();
    });
    let reads = answer.recv_timeout(Duration::from_secs(20));
    assert_eq!(reads, Ok([true; 3]), "the walk did not end");
}

#[test]
fn false_heads_are_not_read_again_and_again() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append(&mut logs, LogKind::Records, 3 * BLOCK as usize);
    logs.close().unwrap();
    let path = scene.segment(LogKind::Records, 0);
    scene.change(&path, |bytes| {
        let mut head = bytes[..UNIT_HEADER_BYTES].to_vec();
        // The head claims columns of the greatest length, nearly that of the unit's chunks.
        head[16] = 5;
        let length = (BLOCK as u32 - 8).to_le_bytes();
        head[8..12].copy_from_slice(&length);
        head[12..16].copy_from_slice(&length);
        for place in bytes.chunks_exact_mut(UNIT_HEADER_BYTES) {
            place.copy_from_slice(&head);
        }
    });
    let reader = scene.reader();
    reader.tails().unwrap();
    let before = reader.bytes_read();
    for at in (0..3 * BLOCK).step_by(CHUNK as usize) {
        let read = reader.read(LogKind::Records, Address(at), &mut [0; 8]);
        assert!(read.unwrap_err().is_damage());
    }
    let read = reader.bytes_read() - before;
    assert!(read < 200 * BLOCK, "{read}");
}

#[test]
fn a_scan_of_what_is_not_cached_waits_once_for_several_units_and_one_unit_fetches_no_other() {
    const UNITS: u64 = 64;
    let machine = Machine::new();
    let options = LogOptions {
        segment_bytes: [UNITS * BLOCK; 3].into(),
        ..machine.options(Durability::None)
    };
    let mut logs = machine.start_with(&options);
    for _ in 0..UNITS {
        append(&mut logs, LogKind::Records, BLOCK as usize);
    }
    logs.close().unwrap();
    let read = |wanted, units: &[u64]| {
        machine.disk.drop_cached();
        let reader = machine.reader();
        assert_eq!(reader.tails().unwrap().tail.records, Address(UNITS * BLOCK));
        let cache = UnitCache::of(Keeper::unique(), Arc::new(SharedUnits::of_bytes(0)));
        let mut held = HeldUnit::of(Arc::new(cache));
        machine.disk.take_waits();
        for unit in units {
            let at = Address(unit * BLOCK);
            let found = reader.column_unit(at, wanted, &mut held).unwrap();
            let (unit, _) = found.expect("a unit holds the chunk");
            if wanted == UnitWanted::All {
                let mut chunk = vec![0; CHUNK as usize];
                unit.chunk(0, &mut chunk).unwrap();
                assert_whole(LogKind::Records, at, &chunk);
            }
        }
        machine.disk.take_waits()
    };
    let all: Vec<u64> = (0..UNITS).collect();
    let distant: Vec<u64> = (0..UNITS).step_by(8).collect();
    for wanted in [UnitWanted::Head, UnitWanted::All] {
        // Two units show that it is a scan. Each may wait for its head and for the rest, and the first for the places of the units.
        let waits = read(wanted, &all);
        assert!((1..=6).contains(&waits), "{wanted:?}: {waits}");
        let waits = read(wanted, &distant);
        assert!(waits >= distant.len(), "{wanted:?}: {waits}");
    }
}
