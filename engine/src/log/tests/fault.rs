//! A disk that refuses: the logs on a simulated disk that fails, shortens or delays operations.

use super::machine::{Machine, on_disk};
use super::simulated::{EIO, ENOSPC, EROFS, Fault, Kind, Op, Rule, loom};
use super::*;
use crate::error::Error;
use crate::format::UNIT_HEADER_BYTES;

// case Disk: EIO on write
#[test]
fn an_input_output_error_reaches_append_and_sync_and_loses_nothing_published() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [BLOCK as usize + 808, 168, 48]);
    logs.publish();
    machine.fails(EIO, Kind::Write);
    let error = logs.sync().unwrap_err();
    // The error names the record log, unless the flusher wrote that before the disk failed.
    assert!(
        matches!(&error, Error::Flusher(_)) && error.to_string().contains("/disk/loom/"),
        "{error}"
    );
    let error = loop {
        if let Err(error) = logs.append(LogKind::Records, &[0; 4096]) {
            break error;
        }
    };
    assert!(matches!(&error, Error::Flusher(_)), "{error}");
    assert!(matches!(
        logs.try_append(LogKind::Records, &[0; 4096]),
        Err(Error::Flusher(_))
    ));
    assert!(logs.close().is_err());
    let end = Address(BLOCK + 808);
    check_range(&machine.reader(), LogKind::Records, Address(0), end);
}

// G10
// case Disk: EIO on fsync
#[test]
fn a_failed_sync_acknowledges_nothing_and_is_never_repeated() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.sync().unwrap();
    append_each(&mut logs, [808, 168, 48]);
    // The new generations fail as well.
    machine.fails(EIO, Kind::Sync);
    assert!(matches!(logs.sync(), Err(Error::Flusher(_))));
    // A question about the state gets the error too, not only the next append.
    assert!(logs.trouble().is_some());
    machine.disk.obey();
    let syncs = machine.count(on_disk(Kind::Sync));
    assert!(matches!(logs.sync(), Err(Error::Flusher(_))));
    assert_eq!(machine.count(on_disk(Kind::Sync)), syncs);
    assert_eq!(logs.durable(LogKind::Records), Address(808));
    drop(logs);
    let opening = machine.open();
    assert_eq!(opening.end(LogKind::Records), Address(1616));
    drop(resume(opening));
    let left = machine.names(&loom().join("records"));
    assert!(left.iter().all(|name| !name.ends_with(".new")));
}

// G10
#[test]
fn a_segment_that_the_medium_refused_is_written_again() {
    let refusals = [
        (Kind::Write, Fault::Fails(EIO)),
        (Kind::Write, Fault::Tears(EIO)),
        (Kind::Sync, Fault::Fails(EIO)),
        (Kind::Sync, Fault::Fails(ENOSPC)),
    ];
    for (kind, fault) in refusals {
        let machine = Machine::new();
        let mut logs = machine.start(Durability::None);
        let reader = machine.reader();
        append_each(&mut logs, [3 * BLOCK as usize + 808, 168, 48]);
        logs.sync().unwrap();
        check_all(&reader);
        let of_records = move |op: &Op| op.kind == kind && op.is_in("records");
        machine.disk.rule(Rule::once(fault, of_records));
        append_each(&mut logs, [BLOCK as usize, 168, 48]);
        logs.sync().unwrap();
        let old = machine.segment(0);
        assert!(
            !machine.disk.exists(&old) && machine.disk.exists(&old.with_extension("1")),
            "{kind:?} {fault:?}"
        );
        assert_eq!(logs.durable(LogKind::Records), logs.tail(LogKind::Records));
        check_all(&reader);
        append_each(&mut logs, [5 * BLOCK as usize, 168, 48]);
        logs.publish();
        check_all(&reader);
        logs.close().unwrap();
        check_all(&reader);
        check_all(&machine.reader());
        drop(resume(machine.open()));
    }
}

// G10
#[test]
fn unreadable_bytes_stay_damaged_and_hide_nothing() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append(
        &mut logs,
        LogKind::Records,
        4 * BLOCK as usize - CHUNK as usize,
    );
    logs.sync().unwrap();
    // The first blocks are not staged any more, and a chunk of them is lost on the medium.
    let path = machine.segment(0);
    let place = UNIT_HEADER_BYTES as u64 + 2 * CHUNK + 64;
    machine.disk.rot(&path, place, &[7; 16]);
    append(&mut logs, LogKind::Records, CHUNK as usize);
    machine.fails_once(EIO, Kind::Sync);
    logs.sync().unwrap();
    assert!(!machine.disk.exists(&path));
    logs.close().unwrap();
    let reader = machine.reader();
    let tail = reader.tails().unwrap().tail.records;
    assert_eq!(tail, Address(4 * BLOCK));
    for n in 0..tail.0 / CHUNK {
        assert_eq!(verifies(&reader, Address(n * CHUNK)), n != 2, "chunk {n}");
    }
}

// case Disk: EIO on write
#[test]
fn a_segment_that_cannot_be_allocated_is_tried_as_another_file_and_then_again() {
    for times in [1, 5] {
        let machine = Machine::new();
        let mut logs = machine.start(Durability::None);
        machine.disk.rule(Rule {
            times,
            ..Rule::always(Fault::Fails(EIO), on_disk(Kind::Allocate))
        });
        append(&mut logs, LogKind::Chunks, 3 * SEGMENT as usize);
        logs.sync().unwrap();
        assert_eq!(logs.trouble(), None);
        check_all(&machine.reader());
        logs.close().unwrap();
        check_all(&machine.reader());
    }
}

// case Disk: short write
#[test]
fn short_writes_are_completed() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Interval(Duration::from_millis(1)));
    machine
        .disk
        .rule(Rule::always(Fault::Shortens(1000), on_disk(Kind::Write)));
    append_each(&mut logs, [6 * BLOCK as usize + 808, 168, 48]);
    logs.sync().unwrap();
    logs.close().unwrap();
    check_all(&machine.reader());
}

#[test]
fn a_disk_that_is_mounted_read_only_under_a_writer_ends_it_and_no_query() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [3 * BLOCK as usize + 808, 168, 48]);
    logs.publish();
    let reader = machine.reader();
    check_all(&reader);
    machine.disk.rule(Rule::always(Fault::Fails(EROFS), |op| {
        op.is_on_disk() && op.changes()
    }));
    let error = logs.sync().unwrap_err();
    assert!(
        matches!(&error, Error::Flusher(why) if why.contains("Read-only file system")),
        "{error}"
    );
    let tails = check_all(&reader);
    assert_eq!(tails.tail.records, Address(3 * BLOCK + 808));
    assert_eq!(check_all(&machine.reader()), tails);
    // It cannot be recovered before it may be written again, but it can be read.
    drop(logs);
    let refused = Opening::open_with(
        machine.disk.storage(),
        &loom(),
        &machine.options(Durability::None),
    );
    assert!(matches!(refused, Err(Error::Io { .. })));
    assert_eq!(check_all(&machine.reader()).tail, tails.tail);
    machine.disk.obey();
    let opening = machine.open();
    assert_eq!(PerLog::new(|log| opening.end(log)), tails.tail);
}

// case Disk: a segment deleted underneath
#[test]
fn a_segment_that_is_deleted_underneath_is_named_and_hides_no_other() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [5 * SEGMENT as usize, 168, 48]);
    logs.sync().unwrap();
    let gone = machine.segment(SEGMENT);
    machine.disk.delete(&gone);
    let reader = machine.reader();
    let tail = reader.tails().unwrap().tail.records;
    for live in [true, false] {
        check_range(&reader, LogKind::Records, Address(0), Address(SEGMENT));
        check_range(&reader, LogKind::Records, Address(2 * SEGMENT), tail);
        let error = reader
            .read(LogKind::Records, Address(SEGMENT + 64), &mut [0; 64])
            .unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { path, .. } if path.file_stem() == gone.file_stem())
                && error.to_string().contains("gone"),
            "{live}: {error}"
        );
        if live {
            append(&mut logs, LogKind::Records, CHUNK as usize);
            logs.sync().unwrap();
        }
    }
    logs.close().unwrap();
    drop(resume(machine.open()));
}

// G10
#[test]
fn staged_bytes_are_not_read_back_from_the_refused_tail() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [4 * CHUNK as usize, 168, 48]);
    logs.close().unwrap();
    let mut logs = resume(machine.open());
    append(&mut logs, LogKind::Records, 4 * CHUNK as usize);
    logs.sync().unwrap();
    let tail = loom().join("tail");
    machine.disk.rot(&tail, 64, &[7; 1 << 12]);
    append(&mut logs, LogKind::Records, 808);
    let of_tail = |op: &Op| op.kind == Kind::Sync && op.path.ends_with("tail");
    machine.disk.rule(Rule::once(Fault::Fails(EIO), of_tail));
    logs.sync().unwrap();
    assert!(machine.disk.synced_again().is_empty());
    logs.close().unwrap();
    check_all(&machine.reader());
}
