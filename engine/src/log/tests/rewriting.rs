//! Rewrites of the catalog on a simulated disk: at any interruption one of the two texts is whole, and lines that are appended later are in the valid one.

use std::sync::Arc;

use super::machine::Machine;
use super::simulated::{Boundary, Disk, EIO, ENOSPC, Fault, Kind, Luck, Op, Rule, loom};
use super::*;
use crate::format::{Rewritten, encode_line};
use crate::log::files::catalog_file::FILE;
use crate::log::files::storage::read_file;

const LUCKS: [Luck; 3] = [Luck::Nothing, Luck::Some(50), Luck::Everything];

fn line(logs: &Logs, number: u64) -> String {
    encode_line(&logs.meta().uuid, number, &format!("line {number}"))
}

/// Starts logs whose catalog has these lines.
fn with_lines(machine: &Machine, lines: u64) -> Logs {
    let mut logs = machine.start(Durability::None);
    for number in 0..lines {
        let line = line(&logs, number);
        logs.append_catalog(&line).unwrap();
    }
    logs
}

/// Returns the catalog in two lines, the first of them with number `lines`.
fn short(logs: &mut Logs, lines: u64) -> Vec<u8> {
    let first = Rewritten {
        lines,
        bytes: logs.catalog_bytes_ever().unwrap(),
        forgotten_below: Address(0),
    };
    let text = first.encode(&logs.meta().uuid) + &line(logs, lines + 1);
    text.into_bytes()
}

/// Returns the catalog that a start finds, after checking that both files hold it.
fn found(disk: Disk, op: &Op) -> Vec<u8> {
    let machine = Machine { disk };
    let opening = machine.open();
    let uuid = opening.meta().uuid;
    let mut text = opening.catalog_bytes().unwrap();
    // An unfinished line is torn.
    text.truncate(text.iter().rposition(|byte| *byte == b'\n').unwrap() + 1);
    let least = opening.catalog_bytes_least().unwrap();
    let ever = Rewritten::of(&uuid, &text).bytes + text.len() as u64;
    assert!(ever >= least, "{ever} of {least}, {op:?}");
    let ends = [LogKind::Chunks, LogKind::Times].map(|log| opening.end(log));
    let resumed = opening.resume();
    let mut logs = opening.begin_at(resumed, ends[0], ends[1], &text).unwrap();
    let number = Rewritten::of(&uuid, &text).lines
        + text.iter().filter(|byte| **byte == b'\n').count() as u64;
    let next = line(&logs, number);
    logs.append_catalog(&next).unwrap();
    let reader = machine.reader();
    let whole = [&text[..], next.as_bytes()].concat();
    assert_eq!(reader.catalog_bytes().unwrap(), whole, "{op:?}");
    assert_eq!(reader.catalog_len().unwrap(), ever + next.len() as u64);
    drop(logs);
    for name in [FILE.name, FILE.copy_name] {
        let held = read_file(&*machine.disk.storage(), &loom().join(name), 1 << 20).unwrap();
        assert_eq!(held.unwrap(), whole, "{name}, {op:?}");
    }
    text
}

fn each_end(past: &[Boundary], mut judge: impl FnMut(&Op, Vec<u8>)) {
    for boundary in past {
        judge(&boundary.op, found(boundary.kill(), &boundary.op));
        for luck in LUCKS {
            let disk = boundary.lose_power(luck, &mut Random(1));
            judge(&boundary.op, found(disk, &boundary.op));
        }
    }
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_catalog_is_the_one_before_or_the_one_after_wherever_its_rewriting_ends() {
    let machine = Machine::new();
    let mut logs = with_lines(&machine, 5);
    let before = machine.reader().catalog_bytes().unwrap();
    let after = short(&mut logs, 5);
    machine.disk.remember(&Arc::default());
    logs.rewrite_catalog(after.clone()).unwrap();
    assert_eq!(machine.reader().catalog_bytes().unwrap(), after);
    let rewriting = machine.disk.past();
    assert!(rewriting.len() >= 8, "{}", rewriting.len());
    let mut seen = [0; 2];
    each_end(&rewriting, |op, text| {
        let which = [&before, &after].into_iter().position(|one| *one == text);
        seen[which.unwrap_or_else(|| panic!("{op:?}: {:?}", String::from_utf8_lossy(&text)))] += 1;
    });
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");

    // From here on the appended line exists, and one that is being appended may.
    machine.disk.remember(&Arc::default());
    let next = line(&logs, 7);
    logs.append_catalog(&next).unwrap();
    let longer = [&after[..], next.as_bytes()].concat();
    each_end(&machine.disk.past(), |op, text| {
        assert!(text == after || text == longer, "{op:?}");
    });
    let disk = machine.disk.now().lose_power(Luck::Nothing, &mut Random(1));
    assert_eq!(found(disk, &machine.disk.now().op), longer);
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_reader_sees_that_a_catalog_was_rewritten_by_the_length_of_all_that_it_held() {
    let machine = Machine::new();
    let mut logs = with_lines(&machine, 5);
    let reader = machine.reader();
    let (length, least) = (reader.catalog_len().unwrap(), logs.catalog_bytes());
    assert_eq!(
        (length, reader.catalog_bytes_least().unwrap()),
        (least, least)
    );
    let after = short(&mut logs, 5);
    logs.rewrite_catalog(after.clone()).unwrap();
    let length = length + after.len() as u64;
    assert_eq!(reader.catalog_len().unwrap(), length);
    assert_eq!(reader.catalog_bytes_least().unwrap(), length);
    assert_eq!(logs.catalog_bytes(), after.len() as u64);
    logs.close().unwrap();
    assert_eq!(machine.reader().catalog_bytes_least().unwrap(), length);
    let again = resume(machine.open());
    assert_eq!(again.catalog_bytes(), after.len() as u64);
}

/// Lines that are appended after any refusal of the disk are in the valid text.
// case Network and input: a catalog that is rewritten
#[test]
fn a_rewriting_that_the_disk_fails_leaves_the_file_or_is_finished_before_the_next_line() {
    let faults = [
        (Kind::Open, Fault::Fails(ENOSPC)),
        (Kind::Write, Fault::Fails(ENOSPC)),
        (Kind::Write, Fault::Tears(EIO)),
        (Kind::Sync, Fault::Fails(EIO)),
        (Kind::Rename, Fault::Fails(EIO)),
        (Kind::SyncFolder, Fault::Fails(EIO)),
    ];
    for (kind, fault) in faults {
        let machine = Machine::new();
        let mut logs = with_lines(&machine, 5);
        let before = machine.reader().catalog_bytes().unwrap();
        let after = short(&mut logs, 5);
        let of_catalog = move |op: &Op| {
            let is_its = op.path.to_string_lossy().contains("catalog") || op.path == loom();
            op.kind == kind && is_its
        };
        machine.disk.rule(Rule::once(fault, of_catalog));
        machine.disk.remember(&Arc::default());
        let (base, number) = match logs.rewrite_catalog(after.clone()) {
            Ok(()) => (after, 7),
            Err(error) => {
                assert_ne!(kind, Kind::SyncFolder, "{error}");
                (before, 5)
            }
        };
        let next = line(&logs, number);
        logs.append_catalog(&next).unwrap();
        let whole = [&base[..], next.as_bytes()].concat();
        assert_eq!(machine.reader().catalog_bytes().unwrap(), whole, "{kind:?}");
        let now = machine.disk.now();
        for luck in LUCKS {
            let disk = now.lose_power(luck, &mut Random(1));
            assert_eq!(found(disk, &now.op), whole, "{kind:?} {luck:?}");
        }
    }
}
