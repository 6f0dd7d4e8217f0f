//! Too little disk space, memory for staging or file descriptors.

use super::machine::{Machine, on_disk};
use super::simulated::{EMFILE, ENOSPC, Fault, Kind, Luck, Op, Rule, loom, shared_memory};
use super::*;
use crate::error::Error;

/// Appends and publishes chunks until the log is full and reports the reason. A slow flusher also gives `Full`. Returns the accepted bytes.
fn fill(logs: &mut Logs, says_why: impl Fn(&Logs) -> bool) -> u64 {
    let mut taken = 0;
    wait_until("the log is full and says why", || {
        let at = logs.end(LogKind::Records);
        let chunk = expected(LogKind::Records, at, CHUNK as usize);
        match logs.try_append(LogKind::Records, &chunk) {
            Ok(_) => taken += CHUNK,
            Err(error) => {
                assert!(matches!(error, Error::Full), "{error}");
                return says_why(logs);
            }
        }
        logs.publish();
        false
    });
    taken
}

// case Disk: full in mid-flush
#[test]
fn a_full_disk_makes_the_writer_wait_and_goes_on_when_it_is_freed() {
    for encoders in [1, 2] {
        let machine = Machine::new();
        let options = machine.options_of(Durability::None, encoders);
        let mut logs = machine.start_with(&options);
        machine.fails(ENOSPC, Kind::Write);
        let taken = fill(&mut logs, |logs| {
            logs.trouble().is_some_and(|why| why.contains("space"))
        });
        let staged = 2 * options.block_bytes;
        assert!((staged..=SEGMENT).contains(&taken), "{taken}");
        assert!(logs.stats().stalls > 0);
        assert_eq!(check_all(&machine.reader()).tail.records, Address(taken));
        assert!(matches!(logs.sync(), Err(Error::Waiting(_))));

        machine.disk.obey();
        append(&mut logs, LogKind::Records, 20 * BLOCK as usize);
        logs.sync().unwrap();
        check_all(&machine.reader());
        logs.close().unwrap();
        check_all(&machine.reader());
    }
}

// case Disk: full in mid-flush
#[test]
fn a_disk_that_fills_within_a_unit_loses_nothing_whether_it_is_freed_or_the_writer_ends() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Interval(Duration::from_millis(1)));
    append_each(&mut logs, [BLOCK as usize + 808, 168, 48]);
    logs.sync().unwrap();
    let synced = logs.end(LogKind::Records);
    let of_records = |op: &Op| op.kind == Kind::Write && op.is_in("records");
    let torn = Rule::always(Fault::Tears(ENOSPC), of_records);
    machine.disk.rule(torn);
    append(&mut logs, LogKind::Records, BLOCK as usize);
    logs.publish();
    wait_until("space is missing", || logs.waits_for_space());
    let published = logs.end(LogKind::Records);
    assert_eq!(check_all(&machine.reader()).tail.records, published);
    let now = machine.disk.now();
    let ends = [
        (now.kill(), published),
        (now.lose_power(Luck::Nothing, &mut Random(1)), synced),
        (now.lose_power(Luck::Everything, &mut Random(1)), synced),
    ];
    for (disk, least) in ends {
        let machine = Machine { disk };
        let opening = machine.open();
        assert!(opening.end(LogKind::Records) >= least, "{opening:?}");
        drop(resume(opening));
        let reader = machine.reader();
        reader.tails().unwrap();
        check_range(&reader, LogKind::Records, Address(0), least);
    }
    machine.disk.obey();
    append(&mut logs, LogKind::Records, 5 * BLOCK as usize);
    logs.sync().unwrap();
    logs.close().unwrap();
    check_all(&machine.reader());
}

#[test]
fn a_directory_that_does_not_fit_is_not_made() {
    let machine = Machine::new();
    let options = machine.options(Durability::None);
    let needed: u64 = options.segment_bytes.iter().sum();
    machine.disk.set_capacity(needed - 1);
    let storage = machine.disk.storage();
    let refused = Opening::open_with(storage, &loom(), &options);
    let error = refused.err().unwrap();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(!error.is_for_space(), "no older segment makes room");
    assert!(machine.disk.storage().file_id(&loom()).is_err());
    machine.disk.set_capacity(2 * needed);
    machine.start(Durability::None).close().unwrap();
}

// case Disk: full in mid-flush
#[test]
fn a_wait_for_room_ends_soon_on_a_full_disk_and_finds_room_once_it_is_freed() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    machine.fails(ENOSPC, Kind::Write);
    fill(&mut logs, Logs::waits_for_space);
    let room = [CHUNK, 0, 0].into();
    assert!(!logs.wait_for_room(room).unwrap());
    assert!(logs.waits_for_space());
    machine.disk.obey();
    wait_until("there is room again", || logs.wait_for_room(room).unwrap());
    append(&mut logs, LogKind::Records, CHUNK as usize);
    logs.close().unwrap();
    check_all(&machine.reader());
}

#[test]
fn a_flusher_without_space_tries_at_leisure_however_often_it_is_asked() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::Interval(Duration::from_millis(1)));
    machine.fails(ENOSPC, Kind::Write);
    let chunk = expected(LogKind::Records, Address(0), CHUNK as usize);
    wait_until("the blocks are full because space is missing", || {
        let full = logs.try_append(LogKind::Records, &chunk).is_err();
        logs.publish();
        full && logs.waits_for_space()
    });
    let tries = || machine.count(on_disk(Kind::Write));
    let (before, since) = (tries(), Instant::now());
    while tries() < before + 5 {
        assert!(logs.try_append(LogKind::Records, &chunk).is_err());
        std::thread::yield_now();
    }
    let took = since.elapsed();
    assert!(took > Duration::from_millis(100), "5 tries in {took:?}");
    machine.disk.obey();
    wait_until("there is room again", || {
        logs.try_append(LogKind::Records, &chunk).is_ok()
    });
}

#[test]
fn a_stop_on_a_full_disk_keeps_everything_for_the_next_start() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [BLOCK as usize + 808, 168, 48]);
    machine.fails(ENOSPC, Kind::Write);
    assert!(matches!(logs.close(), Err(Error::Waiting(_))));
    machine.disk.obey();
    let opening = machine.open();
    assert_eq!(
        (opening.how(), opening.end(LogKind::Records)),
        (Recovered::Salvaged, Address(BLOCK + 808))
    );
    drop(resume(opening));
    let end = Address(BLOCK + 808);
    check_range(&machine.reader(), LogKind::Records, Address(0), end);
}

#[test]
fn blocks_shrink_where_shared_memory_is_small() {
    const MIB: u64 = 1 << 20;
    // The sizes suffice for blocks of 4, 2 and 1 MiB with their index logs and a tenth to spare, and for none of them.
    for (free, staged, in_directory) in [
        (11 * MIB, 4, false),
        (6 * MIB, 2, false),
        (3 * MIB, 1, false),
        (2 * MIB, 4, true),
    ] {
        let machine = Machine::new();
        machine.disk.set_memory(free);
        let options = LogOptions {
            block_bytes: 4 * MIB,
            segment_bytes: [8 * MIB; 3].into(),
            ..machine.options(Durability::None)
        };
        let opening = Opening::open_with(machine.disk.storage(), &loom(), &options).unwrap();
        let mut logs = opening
            .begin_at(Address(0), Address(0), Address(0), b"")
            .unwrap();
        let blocks = staged * MIB + (staged * MIB / 8).max(BLOCK) + (staged * MIB / 64).max(BLOCK);
        assert_eq!(logs.staging_bytes(), 3 * 4096 + 2 * blocks);
        assert_eq!(machine.names(&shared_memory()).is_empty(), in_directory);
        append_each(&mut logs, [3 * MIB as usize, 1 << 20, 48]);
        logs.publish();
        check_all(&machine.reader());
        logs.close().unwrap();
        check_all(&machine.reader());
    }
}

// case Disk: full at the start
#[test]
fn a_full_disk_at_the_start_is_refused_clearly() {
    let machine = Machine::new();
    let opening = machine.open();
    machine.fails(ENOSPC, Kind::Allocate);
    let error = opening
        .begin_at(Address(0), Address(0), Address(0), b"")
        .unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    machine.disk.obey();
    let mut logs = resume(machine.open());
    append_each(&mut logs, [808, 168, 48]);
    logs.close().unwrap();
    check_all(&machine.reader());
}

#[test]
fn a_process_without_files_to_open_waits_for_them() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    let at_a_segment = |op: &Op| op.kind == Kind::Open && op.is_in("records");
    machine
        .disk
        .rule(Rule::always(Fault::Fails(EMFILE), at_a_segment));
    let taken = fill(&mut logs, |logs| {
        let why = logs.trouble().unwrap_or_default();
        why.contains("Too many open files") && !logs.waits_for_space()
    });
    assert!((2 * BLOCK..=SEGMENT).contains(&taken), "{taken}");
    machine.disk.obey();
    append(&mut logs, LogKind::Records, 10 * BLOCK as usize);
    logs.sync().unwrap();
    assert_eq!(logs.trouble(), None);
    assert_eq!(
        check_all(&machine.reader()).tail.records,
        Address(taken + 10 * BLOCK)
    );
    logs.close().unwrap();
    check_all(&machine.reader());
}
