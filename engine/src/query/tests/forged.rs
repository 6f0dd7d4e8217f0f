//! Nodes and entries that verify and lie: a query over them ends, with an answer or an error, and never panics.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::world::{Op, Random, Spread, World};
use crate::error::Result;
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, checksum};
use crate::query::{
    AggregateSpec, Bucket, Directory, Poll, Predicate, Quantile, Scan, ScanSpec, aggregate,
    raw_scan,
};
use crate::types::{Address, Key, LogKind, TimeRange, Timestamp, ValueRange};

/// Asks everything that follows pointers.
fn ask(dir: &Path, random: &mut Random) -> Result<()> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    for name in ["metric", "event", "raw"] {
        let source = snapshot.source(name)?;
        // Each failure ends one question; the others are asked all the same.
        let _ = snapshot.source_totals(source.id);
        let newest = snapshot.newest_ts();
        let time = TimeRange {
            first: Timestamp(newest.ok().flatten().map_or(0, |ts| ts.0) - 1_000_000),
            last: Timestamp::MAX,
        };
        for time in [TimeRange::ALL, time] {
            let _ = raw_scan(&snapshot, source.id, time, &Poll::never(), |_| {
                ControlFlow::Continue(())
            });
            for index in &source.indexes {
                let min = Key(random.next() >> (random.next() % 64));
                let value = ValueRange { min, max: Key::MAX };
                for (value, bucket) in [
                    (ValueRange::ALL, None),
                    (value, Some(Bucket::nanos(50_000))),
                ] {
                    let spec = AggregateSpec {
                        source: source.id,
                        index: index.id,
                        time,
                        value,
                        filter: Predicate::All,
                        bucket,
                        quantiles: vec![Quantile::new(0.5)?, Quantile::new(0.999)?],
                        approx: false,
                        threads: 2,
                    };
                    let _ = aggregate(&snapshot, &spec, &Poll::never());
                    let _ = scan(&snapshot, source.id, Predicate::value(index.id, value));
                }
            }
        }
    }
    Ok(())
}

fn scan(
    snapshot: &crate::query::Snapshot,
    source: crate::types::SourceId,
    exact: Predicate,
) -> Result<()> {
    let spec = ScanSpec {
        source,
        after: Address::ZERO,
        exact,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let _ = scan.count(&Poll::never());
    let mut reader = scan.reader();
    while let Some(chunk) = scan.next(&Poll::never())? {
        let _ = reader.read(chunk);
    }
    Ok(())
}

/// A file of a log, read whole: each log of the world fits one segment.
struct File {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl File {
    fn of(dir: &Path, log: LogKind) -> File {
        let mut entries = fs::read_dir(dir.join(log.dir_name())).unwrap();
        let path = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none(), "one segment of the {log}");
        let bytes = fs::read(&path).unwrap();
        File { path, bytes }
    }
}

/// Changes a byte, mostly to a telling value.
fn change(bytes: &mut [u8], random: &mut Random) {
    let at = (random.next() % bytes.len() as u64) as usize;
    bytes[at] = match random.next() % 4 {
        0 => 0,
        1 => 0xFF,
        2 => bytes[at].wrapping_add(1),
        _ => random.next() as u8,
    };
}

fn world() -> World {
    let ops: Vec<Op> = (0..24)
        .map(|round| Op::Batch {
            source: [0, 1, 0, 2][round as usize % 4],
            records: 300,
            spread: Spread::Skewed,
            seed: round * 7 + 1,
        })
        .collect();
    let mut world = World::of(&ops);
    world.close();
    world
}

/// The chunk index of a world, and where its nodes stand.
struct Nodes {
    _world: World,
    dir: PathBuf,
    uuid: [u8; 16],
    nodes: File,
    entries: Vec<TimeEntry>,
}

impl Nodes {
    fn of(world: World) -> Nodes {
        let dir = world.dir.path().join("loom");
        let uuid = *world.snapshot().logs().uuid();
        let times = File::of(&dir, LogKind::Times);
        let entries = times
            .bytes
            .chunks_exact(TIME_ENTRY_BYTES)
            .zip((0..).step_by(TIME_ENTRY_BYTES))
            .map(|(bytes, at)| TimeEntry::decode(&uuid, Address(at), bytes).unwrap())
            .collect();
        Nodes {
            nodes: File::of(&dir, LogKind::Chunks),
            _world: world,
            dir,
            uuid,
            entries,
        }
    }
}

// G8
// case Corruption: lengths of 0 and 2^64-1
// case Corruption: chain links astray
#[test]
fn a_forged_node_does_no_harm() {
    let Nodes {
        _world,
        dir,
        uuid,
        nodes,
        entries,
    } = Nodes::of(world());
    assert!(
        entries.iter().any(|entry| entry.level == 1),
        "there is a roll-up"
    );
    let mut random = Random::new(77);
    for _ in 0..400 {
        let mut forged = nodes.bytes.clone();
        for _ in 0..1 + random.next() % 3 {
            // Roll-ups, of which there are few, half of the time.
            let level = (random.next() % 2) as u8;
            let of_level: Vec<&TimeEntry> = entries
                .iter()
                .filter(|entry| entry.level == level)
                .collect();
            let entry = of_level[(random.next() % of_level.len() as u64) as usize];
            let start = entry.node.0 as usize;
            let node = &mut forged[start..start + entry.node_bytes as usize];
            (0..1 + random.next() % 4).for_each(|_| change(&mut node[12..], &mut random));
            let sum = checksum(&uuid, LogKind::Chunks, entry.node, &node[8..]);
            node[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&nodes.path, &forged).unwrap();
        ask(&dir, &mut random).unwrap();
    }
}

/// Each word of the header and of the source table says nothing, everything, its own chunk, the one after it, and one far ahead: lengths
/// of 0 and 2^64-1, and chains that lead forward, to themselves and into another source's chunks.
// G8
// case Corruption: lengths of 0 and 2^64-1
// case Corruption: chain links astray
#[test]
fn lengths_and_links_that_lead_astray_do_no_harm() {
    let Nodes {
        _world,
        dir,
        uuid,
        nodes,
        entries,
    } = Nodes::of(world());
    let rollup = entries.iter().find(|entry| entry.level == 1).unwrap();
    // The chain of the latest summary leads to every chunk before it.
    let latest = entries.iter().rfind(|entry| entry.level == 0).unwrap();
    let mut random = Random::new(79);
    for entry in [rollup, latest] {
        let start = entry.node.0 as usize;
        let bytes = entry.node_bytes as usize;
        let table = 56
            + 88 * usize::from(u16::from_le_bytes([
                nodes.bytes[start + 14],
                nodes.bytes[start + 15],
            ]));
        let chunk = u64::from_le_bytes(nodes.bytes[start + 16..start + 24].try_into().unwrap());
        for word in (8..table.min(bytes)).step_by(8) {
            for value in [0, u64::MAX, chunk, chunk + 1, 1 << 40] {
                let mut forged = nodes.bytes.clone();
                let node = &mut forged[start..start + bytes];
                node[word..word + 8].copy_from_slice(&value.to_le_bytes());
                let sum = checksum(&uuid, LogKind::Chunks, entry.node, &node[8..]);
                node[4..8].copy_from_slice(&sum.to_le_bytes());
                fs::write(&nodes.path, &forged).unwrap();
                ask(&dir, &mut random).unwrap();
            }
        }
    }
}

#[test]
fn a_forged_time_entry_does_no_harm() {
    let world = world();
    let dir = world.dir.path().join("loom");
    let uuid = *world.snapshot().logs().uuid();
    let times = File::of(&dir, LogKind::Times);
    let mut random = Random::new(78);
    for _ in 0..300 {
        let mut forged = times.bytes.clone();
        let count = forged.len() / TIME_ENTRY_BYTES;
        let at = (random.next() % count as u64) as usize * TIME_ENTRY_BYTES;
        let entry = &mut forged[at..at + TIME_ENTRY_BYTES];
        (0..1 + random.next() % 4).for_each(|_| change(&mut entry[4..], &mut random));
        let sum = checksum(&uuid, LogKind::Times, Address(at as u64), &entry[4..]);
        entry[..4].copy_from_slice(&sum.to_le_bytes());
        fs::write(&times.path, &forged).unwrap();
        ask(&dir, &mut random).unwrap();
    }
}
