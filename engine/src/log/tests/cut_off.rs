//! Starts, recoveries and stops that end at any of their steps, on a simulated disk.

use std::sync::Arc;

use super::machine::Machine;
use super::simulated::{EIO, Fault, Kind, Luck, Op, Rule, loom};
use super::*;
use crate::format::UNIT_HEADER_BYTES;
use crate::log::storage::OpenMode;

#[test]
fn bytes_that_a_killed_writer_wrote_and_never_synced_are_durable_after_the_next_start() {
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
fn bytes_above_a_lost_piece_of_the_log_stay_lost_however_often_recovery_is_cut_off() {
    // The second address puts the recovered chunk last in its segment: the bytes that verify behind it are in another file, which no recovery truncates.
    for known in [2 * CHUNK + 808, SEGMENT - CHUNK + 808] {
        a_lost_piece_ends_the_log(known);
    }
}

fn a_lost_piece_ends_the_log(known: u64) {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [known as usize, 168, 48]);
    logs.sync().unwrap();
    append(&mut logs, LogKind::Records, 5 * BLOCK as usize);
    logs.publish();
    let end = logs.end(LogKind::Records).align_down(BLOCK);
    wait_until("blocks are flushed", || {
        logs.flushed(LogKind::Records) == end
    });
    let lucky = machine
        .disk
        .now()
        .lose_power(Luck::Everything, &mut Random(1));
    let machine = Machine { disk: lucky };
    // One unsynced piece did not reach the medium.
    let unit = known / BLOCK;
    let place = (unit + 1) * UNIT_HEADER_BYTES as u64 + known;
    let lost = known.next_multiple_of(CHUNK);
    let zeroes = vec![0; (lost - known) as usize];
    machine.disk.rot(&machine.segment(0), place, &zeroes);
    machine.disk.remember(&Arc::default());
    let opening = machine.open();
    assert_eq!(opening.end(LogKind::Records), Address(known));
    let resume_least = opening.resume();
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
            assert_eq!(end(&opening), Address(lost), "{:?}", boundary.op);
            assert!(opening.resume() >= resume_least);
            drop(resume(opening));
            assert_eq!(end(&machine.open()), Address(lost), "{:?}", boundary.op);
        }
    }
}

/// A complete unit is written whether or not it is published. If its records are not published, others take their addresses.
#[test]
fn units_that_a_killed_writer_never_published_take_the_place_of_no_later_records() {
    for (published, unpublished) in [
        (808, BLOCK),
        (808, 2 * BLOCK),
        (808, 6 * BLOCK),
        (SEGMENT + 808, BLOCK),
    ] {
        let machine = Machine::new();
        let mut logs = machine.start(Durability::None);
        append(&mut logs, LogKind::Records, published as usize);
        logs.publish();
        append(&mut logs, LogKind::Records, unpublished as usize);
        let begun = logs.end(LogKind::Records).align_down(BLOCK);
        wait_until("what is not published is flushed", || {
            logs.flushed(LogKind::Records) == begun
        });
        let disk = machine.disk.now().kill();
        let machine = Machine { disk };
        let opening = machine.open();
        assert_eq!(opening.end(LogKind::Records), Address(published));
        let mut logs = resume(opening);
        let chunk = Address(published).align_down(CHUNK);
        let reader = machine.reader();
        reader.tails().unwrap();
        assert!(verifies(&reader, chunk));
        let from = logs.end(LogKind::Records);
        append(&mut logs, LogKind::Records, 88);
        logs.sync().unwrap();
        let to = logs.end(LogKind::Records);
        let disk = machine
            .disk
            .now()
            .lose_power(Luck::Everything, &mut Random(1));
        let machine = Machine { disk };
        let reader = machine.reader();
        assert_eq!(reader.tails().unwrap().tail.records, to);
        check_range(&reader, LogKind::Records, from, to);
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
            let meta = *machine.reader().meta();
            let slot =
                crate::log::files::durable::read(&*machine.disk.storage(), &loom(), &meta).unwrap();
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
fn a_kill_keeps_staging_or_its_content_at_any_step_of_a_start_and_of_a_stop() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [7 * CHUNK as usize + 808, 168, 48]);
    logs.publish();
    let disk = machine.disk.now().kill();
    let machine = Machine { disk };
    // A crash left this of a segment that was being written again.
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

// G10
#[test]
fn a_start_whose_sync_of_the_tail_fails_loses_nothing_of_it_wherever_it_ends() {
    for (records, is_clean) in [
        (808, true),
        (808, false),
        (BLOCK - 808, true),
        (BLOCK - 808, false),
    ] {
        let machine = Machine::new();
        let mut logs = machine.start(Durability::None);
        append_each(&mut logs, [records as usize, 168, 48]);
        let machine = match is_clean {
            true => {
                logs.close().unwrap();
                machine
            }
            false => {
                logs.sync().unwrap();
                let disk = machine.disk.now().lose_power(Luck::Nothing, &mut Random(1));
                Machine { disk }
            }
        };
        let of_tail = |op: &Op| op.kind == Kind::Sync && op.path.ends_with("tail");
        machine.disk.rule(Rule::once(Fault::Fails(EIO), of_tail));
        machine.disk.remember(&Arc::default());
        drop(resume(machine.open()));
        let past = machine.disk.past();
        assert!(past.len() > 20);
        for boundary in past {
            for disk in [
                boundary.kill(),
                boundary.lose_power(Luck::Nothing, &mut Random(1)),
                boundary.lose_power(Luck::Everything, &mut Random(1)),
            ] {
                let machine = Machine { disk };
                let reader = machine.reader();
                let tail = reader.tails().unwrap().tail.records;
                assert!(tail >= Address(records), "{:?}: {tail}", boundary.op);
                check_range(&reader, LogKind::Records, Address(0), Address(records));
                drop(resume(machine.open()));
                let reader = machine.reader();
                reader.tails().unwrap();
                check_range(&reader, LogKind::Records, Address(0), Address(records));
            }
        }
    }
}
