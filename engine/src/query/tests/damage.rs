//! Damaged files give an error that names them, or the right answer, but never a panic, a wrong answer or an endless loop.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format::TIME_ENTRY_BYTES;
use crate::nodes::NodeId;
use crate::query::{
    AggregateRow, AggregateSpec, Ask, Poll, Predicate, Scan, SourceTotals, aggregate,
};
use crate::testkit::Scene;
use crate::testkit::asked::{records, scan_of, whole};
use crate::testkit::world::{Op, Spread, World, open};
use crate::types::{Key, LogKind, Timestamp, ValueRange};

/// The answers to all questions of this file.
#[derive(Clone, PartialEq, Debug)]
struct Answers {
    rows: Vec<AggregateRow>,
    scanned: Vec<u64>,
    events: Vec<u64>,
    newest_ts: Option<Timestamp>,
    totals: SourceTotals,
}

fn ask(dir: &Path) -> Result<Answers> {
    let snapshot = open(dir)?.snapshot()?;
    let source = snapshot.source("metric")?;
    let index = source.indexes[0].id;
    let spec = AggregateSpec {
        threads: 2,
        ..whole(source.id, index, &[0.5, 0.99])
    };
    let rows = aggregate(&snapshot, &spec, &Poll::never())?;
    let range = ValueRange {
        min: Key::from_u64(3),
        max: Key::MAX,
    };
    let spec = scan_of(source.id, Predicate::value(index, range));
    let scan = Scan::new(&snapshot, spec)?;
    let mut reader = scan.reader(Ask::all());
    let mut scanned = Vec::new();
    while let Some(chunk) = scan.next(&Poll::never())? {
        let found = reader.read(chunk)?;
        scanned.extend_from_slice(found.addresses());
    }
    let event = records(&snapshot, snapshot.source("event")?.id)?;
    Ok(Answers {
        rows,
        scanned,
        events: event.into_iter().map(|(address, _)| address.0).collect(),
        newest_ts: snapshot.newest_ts()?,
        totals: snapshot.source_totals(source.id)?,
    })
}

/// A directory of some 200 chunks.
fn world() -> World {
    let ops: Vec<Op> = (0..30)
        .map(|round| {
            Op::batch(
                [0, 1, 0, 2][round as usize % 4],
                400,
                Spread::Skewed,
                round * 7,
            )
        })
        .collect();
    World::of(&ops)
}

/// A closed directory and its answers.
fn sound() -> (Scene, PathBuf, Answers) {
    let mut world = world();
    world.close();
    let dir = world.dir();
    let answers = ask(&dir).unwrap();
    (world.scene, dir, answers)
}

// case Corruption: a flipped byte
#[test]
fn the_newest_arrival_is_the_same_whichever_entries_of_the_timestamp_index_are_damaged() {
    let (scene, dir, expected) = sound();
    let file = &scene.segment(LogKind::Times, 0);
    let bytes = fs::read(file).unwrap();
    let of = |level, ordinal| NodeId { level, ordinal }.entry().0 as usize;
    for summary in [0, 1, 62, 63] {
        let mut damaged = bytes.clone();
        for entry in [of(0, summary), of(1, 0)] {
            damaged[entry + TIME_ENTRY_BYTES / 2] ^= 1;
        }
        fs::write(file, &damaged).unwrap();
        let answers = ask(&dir).unwrap();
        assert_eq!(answers.newest_ts, expected.newest_ts, "summary {summary}");
        assert_eq!(answers, expected, "summary {summary}");
    }
}

// G7
#[test]
fn where_the_records_since_a_time_begin_is_right_or_in_doubt_beside_damage() {
    let mut world = world();
    let all = world.records();
    world.close();
    let dir = world.dir();
    let file = &world.scene.segment(LogKind::Records, 0);
    let bytes = fs::read(file).unwrap();
    let mut in_doubt = 0;
    for place in (0..bytes.len()).step_by(1 + bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 8;
        fs::write(file, &damaged).unwrap();
        let snapshot = open(&dir).unwrap().snapshot().unwrap();
        for time in all
            .iter()
            .step_by(1 + all.len() / 60)
            .map(|record| record.arrival)
        {
            let found = snapshot.first_arrived(time).unwrap();
            let mut since = all.iter().filter(|record| record.arrival >= time);
            assert!(
                since.all(|record| record.address >= found.from()),
                "{place} {time}"
            );
            match found.doubt {
                Some(_) => in_doubt += 1,
                None => {
                    let mut before = all.iter().filter(|record| record.arrival < time);
                    assert!(
                        before.all(|record| record.address < found.address),
                        "{place} {time}"
                    );
                }
            }
        }
    }
    assert!(in_doubt > 0, "no time lies in a damaged chunk");
}

// G7
#[test]
fn a_flipped_bit_in_the_last_chunk_is_named_when_staging_is_lost() {
    let mut world = world();
    world.writer().sync_durable().unwrap();
    let dir = world.dir();
    world.lose_staging();
    ask(&dir).unwrap();
    let reader = world.scene.reader();
    let tail = reader.tails().unwrap().tail.records;
    let base = tail.align_down(reader.meta().chunk_bytes.into());
    assert!(base < tail, "the last chunk is not full");
    let file = reader.path_of(LogKind::Records, base);
    assert!(file.ends_with("tail"), "{}", file.display());
    let bytes = fs::read(&file).unwrap();
    let begins = |at: &usize| {
        let header = &bytes[*at..];
        header.starts_with(b"TAIL") && header[16..24] == base.0.to_le_bytes()
    };
    let piece = (0..bytes.len() - 24).step_by(8).find(begins).unwrap();
    for at in (piece..piece + 24 + 8).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged).unwrap();
        let error = ask(&dir).unwrap_err().to_string();
        let is_named = error.starts_with(file.to_str().unwrap());
        assert!(is_named, "byte {at}: {error}");
        assert!(!world.scene.is_sound(), "byte {at}");
    }
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_catalog_that_is_gone_or_damaged_with_its_copy_is_named() {
    let (_scene, dir, expected) = sound();
    let [file, copy] = ["catalog", "catalog.copy"].map(|name| dir.join(name));
    let bytes = fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    flipped[0] ^= 1;
    for damaged in [None, Some(&[][..]), Some(&flipped[..])] {
        let damage = |path: &Path| match damaged {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::remove_file(path).unwrap(),
        };
        damage(&file);
        assert_eq!(ask(&dir).unwrap(), expected);
        damage(&copy);
        let error = ask(&dir).unwrap_err();
        assert!(
            error.to_string().contains(&file.display().to_string()),
            "{error}"
        );
        fs::write(&file, &bytes).unwrap();
        assert_eq!(ask(&dir).unwrap(), expected);
        fs::write(&copy, &bytes).unwrap();
    }
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let fewer = lines[..lines.len() - 1].concat();
    for path in [&file, &copy] {
        fs::write(path, &fewer).unwrap();
    }
    let error = ask(&dir).unwrap_err().to_string();
    assert!(error.contains("that were durable"), "{error}");
    fs::write(&file, &bytes).unwrap();
    assert_eq!(ask(&dir).unwrap(), expected);
}
