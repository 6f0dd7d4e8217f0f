//! Units and the tail on a simulated disk: what was synced is there after any loss of power, and a sync of little writes little.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::machine::Machine;
use super::simulated::{Luck, Marks, loom};
use super::*;
use crate::log::storage::OpenMode;

const LUCKS: [Luck; 3] = [Luck::Nothing, Luck::Some(50), Luck::Everything];

/// Appends and syncs random amounts, some of less than a unit, some of several, and begins again now and then.
fn write(machine: &Machine, mut logs: Logs, marks: &Marks, random: &mut Random) {
    while logs.end(LogKind::Records).0 < 6 * BLOCK {
        let bytes = match random.below(6) {
            0 => 8 * random.below(3 * BLOCK / 8),
            _ => 8 * random.below(200) + 8,
        };
        append_each(&mut logs, [bytes as usize, 8, 48]);
        match random.below(8) {
            0 => {
                logs.close().unwrap();
                logs = resume(machine.open());
            }
            1 => logs.publish(),
            _ => {
                logs.sync().unwrap();
                let durable = logs.durable(LogKind::Records);
                marks.durable.store(durable.0, Ordering::Release);
            }
        }
    }
}

/// Reads everything up to the end; chunks that a start ended have other bytes from there on.
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

// G2, G3
#[test]
fn what_was_synced_is_there_after_a_loss_of_power_at_any_operation() {
    for (seed, durability) in [
        Durability::None,
        Durability::Interval(Duration::from_millis(1)),
        Durability::Batch,
    ]
    .into_iter()
    .enumerate()
    {
        let mut random = Random(seed as u64 + 11);
        let machine = Machine::new();
        let logs = machine.start(durability);
        let marks: Arc<Marks> = Arc::default();
        machine.disk.remember(&marks);
        write(&machine, logs, &marks, &mut random);
        let past = machine.disk.past();
        assert!(past.len() > 100, "{}", past.len());
        for boundary in past {
            let luck = LUCKS[random.below(3) as usize];
            let disk = boundary.lose_power(luck, &mut random);
            let machine = Machine { disk };
            let found = read_all(&machine.reader());
            let op = &boundary.op;
            assert!(
                found.0 >= boundary.told.durable,
                "{durability:?}, {luck:?}, before {op:?}: {found} of {}",
                boundary.told.durable
            );
            drop(resume(machine.open()));
            let again = read_all(&machine.reader());
            assert!(again >= found, "{op:?}: {again} of {found}");
        }
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
    // A record takes a header more, and another where a chunk ends in it.
    assert!(bytes <= 200 * (64 + 24) + 24 * 4, "{bytes}");
    logs.close().unwrap();
    check_all(&machine.reader());
}
