//! A start, a recovery or a stop that ends at any of its steps, on a simulated disk.

use std::sync::Arc;

use super::machine::Machine;
use super::simulated::{Luck, loom};
use super::*;
use crate::format::UNIT_HEADER_BYTES;
use crate::log::storage::OpenMode;

#[test]
fn what_a_killed_writer_wrote_and_never_synced_is_durable_after_the_next_start() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [7 * BLOCK as usize + 808, 168, 48]);
    logs.publish();
    let disk = machine.disk.now().kill();
    let machine = Machine { disk };
    drop(resume(machine.open()));
    let disk = machine.disk.now().lose_power(Luck::Nothing, &mut Random(1));
    let machine = Machine { disk };
    let reader = machine.reader();
    let tail = reader.tails().unwrap().tail.records;
    assert_eq!(tail, Address(7 * BLOCK + CHUNK));
    check_range(
        &reader,
        LogKind::Records,
        Address(0),
        Address(7 * BLOCK + 808),
    );
}

#[test]
fn what_stands_above_a_lost_piece_of_the_log_stays_lost_however_often_recovery_is_cut_off() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    let known = 2 * CHUNK + 808;
    append_each(&mut logs, [known as usize, 168, 48]);
    logs.sync().unwrap();
    append(&mut logs, LogKind::Records, 5 * BLOCK as usize);
    logs.publish();
    wait_until("blocks are flushed", || {
        logs.flushed(LogKind::Records).0 >= 4 * BLOCK
    });
    let lucky = machine
        .disk
        .now()
        .lose_power(Luck::Everything, &mut Random(1));
    let machine = Machine { disk: lucky };
    // Of all that was not synced, one piece did not reach the medium.
    let place = UNIT_HEADER_BYTES as u64 + known;
    let zeroes = [0; (CHUNK - 808) as usize];
    machine.disk.rot(&machine.segment(0), place, &zeroes);
    machine.disk.remember(&Arc::default());
    let opening = machine.open();
    assert_eq!(opening.end(LogKind::Records), Address(known));
    drop(resume(opening));
    let past = machine.disk.past();
    assert!(past.len() > 20);
    for boundary in past {
        for disk in [
            boundary.kill(),
            boundary.lose_power(Luck::Nothing, &mut Random(1)),
            boundary.lose_power(Luck::Everything, &mut Random(1)),
        ] {
            let machine = Machine { disk };
            let end = |opening: &Opening| opening.end(LogKind::Records).align_up(CHUNK);
            let opening = machine.open();
            assert_eq!(end(&opening), Address(3 * CHUNK), "{:?}", boundary.op);
            assert!(opening.resume().0 >= 2 * SEGMENT);
            drop(resume(opening));
            assert_eq!(
                end(&machine.open()),
                Address(3 * CHUNK),
                "{:?}",
                boundary.op
            );
        }
    }
}

// G4
#[test]
fn a_stop_that_is_cut_off_after_its_mark_was_a_clean_one() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [7 * CHUNK as usize + 808, 168, 48]);
    machine.disk.remember(&Arc::default());
    logs.close().unwrap();
    let mut marked = 0;
    for boundary in machine.disk.past() {
        for luck in [Luck::Nothing, Luck::Some(50), Luck::Everything] {
            let disk = boundary.lose_power(luck, &mut Random(1));
            let machine = Machine { disk };
            let uuid = machine.reader().meta().uuid;
            let slot =
                crate::log::files::durable::read(&*machine.disk.storage(), &loom(), &uuid).unwrap();
            let is_marked = slot.is_some_and(|slot| slot.clean);
            let opening = machine.open();
            assert_eq!(
                opening.how() == Recovered::Clean,
                is_marked,
                "{:?}",
                boundary.op
            );
            marked += u64::from(is_marked);
        }
    }
    assert!(marked > 0);
}

// case Crash: stale staging
#[test]
fn a_kill_leaves_staging_or_what_it_held_at_any_step_of_a_start_and_of_a_stop() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [7 * CHUNK as usize + 808, 168, 48]);
    logs.publish();
    let disk = machine.disk.now().kill();
    let machine = Machine { disk };
    // What a crash left of a segment that was being written again.
    let draft = loom().join("records/00000000000000000000.1.new");
    drop(
        machine
            .disk
            .storage()
            .open(&draft, OpenMode::Create)
            .unwrap(),
    );
    machine.disk.remember(&Arc::default());
    resume(machine.open()).close().unwrap();
    let past = machine.disk.past();
    assert!(past.len() > 20 && !machine.disk.exists(&draft));
    for boundary in past {
        let disk = boundary.kill();
        let opening = Machine { disk }.open();
        assert_ne!(opening.how(), Recovered::StagingLost, "{:?}", boundary.op);
        let end = opening.end(LogKind::Records).align_up(CHUNK);
        assert_eq!(end, Address(8 * CHUNK), "{:?}", boundary.op);
    }
}
