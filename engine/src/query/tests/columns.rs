//! Segments in columns: every byte that a reader reads is the one that it read of rows, and files that are damaged are named.

use std::fs;
use std::path::{Path, PathBuf};

use super::world::{Op, Spread, World};
use crate::check::check;
use crate::log::{ColumnSegments, LogReader};
use crate::query::{Poll, Predicate, Reads, Scan, ScanSpec};
use crate::schema::Place;
use crate::types::{Address, LogKind, TimeRange, Timestamp};

/// Some segments of 1 MiB, of all sources.
fn world() -> World {
    let op = |nth: u64| Op::Batch {
        source: nth as usize % 3,
        records: 600,
        spread: [Spread::Few, Spread::Skewed, Spread::Any][nth as usize / 3 % 3],
        seed: nth,
    };
    World::of(&(0..150).map(op).collect::<Vec<_>>())
}

/// All published bytes of the record log, apart from seals, which chunks in staging do not have.
fn record_bytes(world: &World) -> Vec<u8> {
    let reader = LogReader::open(&world.dir.path().join("loom")).unwrap();
    let tail = reader.tails().unwrap().tail[LogKind::Records];
    let mut bytes = vec![0; tail.0 as usize];
    reader
        .read(LogKind::Records, Address::ZERO, &mut bytes)
        .unwrap();
    for chunk in bytes.chunks_exact_mut(4096) {
        chunk[4088..].fill(0);
    }
    bytes
}

fn files(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.dir.path().join("loom/records")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn is_columns(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "columns")
}

#[test]
fn columns_give_back_every_byte_in_a_fraction_of_the_space() {
    let mut world = world();
    let before = record_bytes(&world);
    let open = LogReader::open(&world.dir.path().join("loom")).unwrap();
    let mut first = [0; 4096];
    open.read(LogKind::Records, Address(8192), &mut first)
        .unwrap();
    let segments = world.compact();
    assert!(segments >= 3, "{segments}");
    let (columns, rows): (Vec<PathBuf>, Vec<PathBuf>) =
        files(&world).into_iter().partition(|path| is_columns(path));
    assert_eq!(columns.len() as u64, segments);
    assert!(rows.len() <= 2, "{rows:?}");
    let bytes: u64 = columns
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(
        bytes * 2 < segments << 20,
        "{bytes} bytes of {segments} segments"
    );
    assert!(record_bytes(&world) == before);
    let mut again = [0; 4096];
    open.read(LogKind::Records, Address(8192), &mut again)
        .unwrap();
    assert_eq!(first, again);
    let report = check(&world.dir.path().join("loom")).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    // A writer begins and goes on, and more becomes columns.
    world.apply(&Op::Reopen);
    world.apply(&Op::Fill(600));
    assert!(world.compact() > segments);
    assert!(record_bytes(&world).starts_with(&before));
    world.close();
    assert!(check(&world.dir.path().join("loom")).unwrap().is_sound());
}

#[test]
fn a_compaction_that_is_stopped_leaves_rows_and_no_draft() {
    let mut world = world();
    world.writer().sync_durable().unwrap();
    let before = files(&world);
    let mut compactor = world.writer().compactor().unwrap();
    let durable = compactor.durable().unwrap();
    let asked = std::cell::Cell::new(0);
    let stops = || {
        asked.set(asked.get() + 1);
        asked.get() < 5
    };
    compactor.step(durable, stops).unwrap();
    assert_eq!(files(&world), before);
}

/// Each segment of rows counts whole, each of columns with its file; a start counts them again.
#[test]
fn the_size_of_a_directory_is_what_its_columns_take() {
    let mut world = world();
    world.writer().sync_durable().unwrap();
    let rows = world.writer().segment_bytes();
    let segments = world.compact();
    let columns = files(&world).into_iter().filter(|path| is_columns(path));
    let bytes: u64 = columns.map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(
        world.writer().segment_bytes(),
        rows - (segments << 20) + bytes
    );
    let found = ColumnSegments {
        segments,
        bytes,
        rows_bytes: segments << 20,
    };
    assert_eq!(world.writer().columns(), found);
    world.apply(&Op::Reopen);
    assert_eq!(world.writer().columns(), found);
    assert_eq!(world.directory.status().unwrap().columns, found);
}

/// With columns, the same limit keeps several times as many records.
#[test]
fn retention_goes_by_what_is_on_the_disk() {
    let mut world = world();
    world.compact();
    let begin = world.snapshot().begin();
    let limits = crate::ingest::Limits {
        bytes_max: Some(world.writer().segment_bytes() + (4 << 20)),
        ..Default::default()
    };
    world.writer().evict(&limits).unwrap();
    assert_eq!(world.snapshot().begin(), begin);
    let limits = crate::ingest::Limits {
        bytes_max: Some(world.writer().segment_bytes() - 1),
        ..Default::default()
    };
    let eviction = world.writer().evict(&limits).unwrap();
    assert!(eviction.segments > 0, "{eviction:?}");
}

#[test]
fn retention_removes_columns_as_it_does_rows() {
    let mut world = world();
    let segments = world.compact();
    let begin = Address(2 << 20);
    let limits = crate::ingest::Limits {
        bytes_max: Some(0),
        kept_from: Some(begin),
        ..Default::default()
    };
    world.writer().evict(&limits).unwrap();
    world.writer().sync_durable().unwrap();
    let left = files(&world).iter().filter(|path| is_columns(path)).count() as u64;
    assert_eq!(left, segments - 2);
    let reader = LogReader::open(&world.dir.path().join("loom")).unwrap();
    assert_eq!(reader.tails().unwrap().begin[LogKind::Records], begin);
    assert!(check(&world.dir.path().join("loom")).unwrap().is_sound());
}

/// Nobody knows which of its names a file had that is not there.
#[test]
fn a_column_segment_that_was_removed_is_named_by_all_that_it_could_be_called() {
    let mut world = world();
    world.compact();
    world.close();
    let loom = world.dir.path().join("loom");
    fs::remove_file(loom.join("records/00000000000000000000.1.columns")).unwrap();
    let reader = LogReader::open(&loom).unwrap();
    let error = reader
        .read(LogKind::Records, Address(4096), &mut [0; 4096])
        .unwrap_err();
    let told = error.to_string();
    let named = "records/00000000000000000000.*: damaged at address 4096: the segment file is gone";
    assert!(told.contains(named), "{told}");
    let report = check(&loom).unwrap();
    let damage = report.damage.iter().map(ToString::to_string);
    assert!(
        damage
            .clone()
            .any(|damage| damage.contains("00000000000000000000.*")),
        "{:?}",
        report.damage
    );
    reader
        .read(LogKind::Records, Address(1 << 20), &mut [0; 4096])
        .unwrap();
}

/// A changed byte of a column segment is damage at its chunks, which is named, or changes nothing: the directory is found again.
#[test]
fn damage_is_named_and_confined_to_its_unit() {
    let mut world = world();
    world.compact();
    let before = record_bytes(&world);
    world.close();
    let path = files(&world)
        .into_iter()
        .find(|path| is_columns(path))
        .unwrap();
    let sound = fs::read(&path).unwrap();
    let unit_bytes = 16 * 4096;
    for place in (0..sound.len()).step_by(sound.len() / 61) {
        let mut changed = sound.clone();
        changed[place] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        let reader = LogReader::open(&world.dir.path().join("loom")).unwrap();
        let mut damaged = Vec::new();
        for address in (0..1 << 20).step_by(4096) {
            let mut chunk = [0; 4096];
            match reader.read(LogKind::Records, Address(address), &mut chunk) {
                Ok(_) => assert!(
                    chunk[..4088] == before[address as usize..][..4088],
                    "byte {place}, chunk {address}"
                ),
                Err(error) => {
                    assert!(
                        error.is_damage() && error.to_string().contains(".columns"),
                        "{error}"
                    );
                    damaged.push(address / unit_bytes);
                }
            }
        }
        damaged.dedup();
        assert!(damaged.len() <= 1, "byte {place}: units {damaged:?}");
        let report = check(&world.dir.path().join("loom")).unwrap();
        assert_eq!(
            report.is_sound(),
            damaged.is_empty(),
            "byte {place}: {:?}",
            report.damage
        );
    }
}

/// Every field as a number column by column, in the payload, or not at all; with addresses or without: what is read is what a whole row holds.
#[test]
fn rows_are_the_same_however_little_is_read_of_them() {
    let mut world = world();
    world.compact();
    let snapshot = world.snapshot();
    let poll = Poll::never();
    let mut column_by_column = 0;
    for source in snapshot.catalog().sources() {
        let span = snapshot.source_totals(source.id).unwrap();
        let (Some(first), Some(last)) = (span.first_ts, span.last_ts) else {
            continue;
        };
        let middle = TimeRange {
            first: Timestamp(first.0 / 3 * 2 + last.0 / 3),
            last: Timestamp(first.0 / 3 + last.0 / 3 * 2),
        };
        let spec = |time| ScanSpec {
            source: source.id,
            after: Address(5000),
            exact: Predicate::time(time),
            prune: Predicate::All,
            index_filters: Vec::new(),
        };
        let is_number = |field: &usize| source.fields[*field].ty.kind().is_some();
        let (numbers, others): (Vec<usize>, Vec<usize>) =
            (0..source.fields.len()).partition(is_number);
        for (time, round) in [TimeRange::ALL, middle]
            .into_iter()
            .zip(0..)
            .cycle()
            .take(8)
        {
            let addresses = round % 2 == 0;
            let all = Scan::new(&snapshot, spec(time)).unwrap();
            let few = Scan::new(&snapshot, spec(time)).unwrap();
            let (mut whole, mut reader) = (all.reader(), few.reader());
            reader.read_only(Reads {
                payloads: Some(others.clone()),
                numbers: numbers.clone(),
                addresses,
            });
            while let Some(chunk) = all.next(&poll).unwrap() {
                assert_eq!(few.next(&poll).unwrap(), Some(chunk));
                let (whole, found) = (whole.read(chunk).unwrap(), reader.read(chunk).unwrap());
                assert_eq!(found.rows.len(), whole.rows.len());
                column_by_column += usize::from(found.numbers.is_some());
                for (nth, (row, expected)) in found.rows.iter().zip(whole.rows).enumerate() {
                    assert_eq!((row.ts, row.length), (expected.ts, expected.length));
                    if addresses {
                        assert_eq!(row.address(found.base), expected.address(whole.base));
                    }
                    let payload = row.payload(found.bytes);
                    let expected = expected.payload(whole.bytes);
                    for field in &others {
                        let layout = found.layout;
                        assert_eq!(
                            layout.bytes(*field, payload),
                            layout.bytes(*field, expected)
                        );
                    }
                    for field in &numbers {
                        let Some(slot) = found.layout.slot(*field) else {
                            continue;
                        };
                        let Place::Fixed { offset } = slot.place else {
                            panic!("{field} is a number");
                        };
                        let bytes = offset..offset + slot.ty.fixed_bytes().unwrap();
                        let column = found.numbers.and_then(|numbers| numbers.field(*field));
                        match column {
                            Some(column) => {
                                let number = column[nth].to_le_bytes();
                                assert_eq!(number[..bytes.len()], expected[bytes]);
                            }
                            None => assert_eq!(payload[bytes.clone()], expected[bytes]),
                        }
                    }
                }
            }
            assert_eq!(few.next(&poll).unwrap(), None);
        }
    }
    assert!(column_by_column > 100, "{column_by_column}");
}
