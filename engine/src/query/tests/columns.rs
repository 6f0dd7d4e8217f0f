//! Segments of units: a reader reads the same bytes as from staging, and damaged files are named.

use std::fs;
use std::path::{Path, PathBuf};

use super::aggregates::check_part;
use super::question::Question;
use super::rows::{read, row_of};
use crate::check::check;
use crate::log::RecordSegments;
use crate::query::{Ask, Directory, Poll, Predicate, Scan};
use crate::schema::RangeSet;
use crate::testkit::asked::{chunks_of, scan_of};
use crate::testkit::oracle::Record;
use crate::testkit::world::{Op, Spread, World};
use crate::types::{Address, Key, LogKind};

/// Some segments of 1 MiB with all sources.
fn world() -> World {
    world_of(150, 600)
}

/// Batches of the sources in turn. Now and then a sync waits for the encoder, so that no unit is written raw because others wait.
fn world_of(batches: u64, records: u16) -> World {
    let op = |nth: u64| {
        Op::batch(
            nth as usize % 3,
            records,
            [Spread::Few, Spread::Skewed, Spread::Any][nth as usize / 3 % 3],
            nth,
        )
    };
    let ops = (0..batches).flat_map(|nth| match nth % 8 {
        0 => vec![Op::Sync, op(nth)],
        _ => vec![op(nth)],
    });
    World::of(&ops.collect::<Vec<_>>())
}

/// All published bytes of the record log without seals, which chunks in staging do not have.
fn record_bytes(world: &World) -> Vec<u8> {
    let reader = world.scene.reader();
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

/// The bytes that the record log takes on the disk.
fn file_bytes(world: &World) -> u64 {
    bytes_of(&world.files())
}

fn bytes_of(files: &[PathBuf]) -> u64 {
    let lengths = files.iter().map(|path| fs::metadata(path).unwrap().len());
    lengths.sum()
}

#[test]
fn units_give_back_every_byte_in_a_fraction_of_the_space() {
    let mut world = world();
    let before = record_bytes(&world);
    let open = world.scene.reader();
    let mut first = [0; 4096];
    open.read(LogKind::Records, Address(8192), &mut first)
        .unwrap();
    world.close();
    let (segments, bytes) = (world.finished(), file_bytes(&world));
    assert!(segments.len() >= 3, "{segments:?}");
    assert!(
        bytes * 2 < before.len() as u64,
        "{bytes} of {}",
        before.len()
    );
    assert!(record_bytes(&world).starts_with(&before));
    let mut again = [0; 4096];
    open.read(LogKind::Records, Address(8192), &mut again)
        .unwrap();
    assert_eq!(first, again);
    let report = world.scene.report();
    assert!(report.is_sound(), "{:?}", report.damage);
    // Another writer begins and goes on.
    world.apply(&Op::Reopen);
    world.apply(&Op::Fill(600));
    world.close();
    assert!(world.finished().len() > segments.len());
    assert!(record_bytes(&world).starts_with(&before[..before.len() / 4096 * 4096]));
    assert!(world.scene.is_sound());
}

/// The end of a unit is unknown if its head is damaged; units are appended all the same.
#[test]
fn a_damaged_last_segment_keeps_its_other_chunks_when_a_writer_goes_on_in_it() {
    for damaged_unit in [0, 1, usize::MAX] {
        let mut world = world();
        world.close();
        let before = record_bytes(&world);
        let path = world.files().pop().unwrap();
        let places: Vec<usize> = {
            let bytes = fs::read(&path).unwrap();
            let is_head = |place: &usize| bytes[*place..].starts_with(b"LOMU");
            (0..bytes.len()).step_by(8).filter(is_head).collect()
        };
        let place = places[damaged_unit.min(places.len() - 1)];
        // This byte is in the length of the unit.
        world.scene.change(&path, |bytes| bytes[place + 9] ^= 0x10);
        let loom = world.dir();
        let damaged = |loom: &Path| -> Vec<u64> {
            let damage = check(loom).unwrap().damage.into_iter();
            let mut chunks: Vec<u64> = damage.map(|damage| damage.address.0 / 4096).collect();
            chunks.dedup();
            chunks
        };
        let chunks = damaged(&loom);
        assert!(!chunks.is_empty() && chunks.len() <= 16, "{chunks:?}");
        world.apply(&Op::Reopen);
        world.apply(&Op::Fill(100));
        world.close();
        assert_eq!(damaged(&loom), chunks);
        let reader = world.scene.reader();
        for (nth, expected) in before.chunks_exact(4096).enumerate() {
            let mut chunk = [0; 4096];
            if !chunks.contains(&(nth as u64)) {
                let address = Address(4096 * nth as u64);
                reader.read(LogKind::Records, address, &mut chunk).unwrap();
                assert!(chunk[..4088] == expected[..4088], "chunk {nth}");
            }
        }
    }
}

/// A start counts the files again.
#[test]
fn the_size_of_a_directory_is_what_its_files_take() {
    let mut world = world();
    world.sync();
    let found = world.writer().record_segments();
    assert_eq!(found.disk_bytes, file_bytes(&world));
    let tail = world.snapshot().position();
    assert_eq!(found.encoded_bytes, tail / (64 << 10) * (64 << 10));
    assert_eq!(world.directory.status().unwrap().record_segments, found);
    let of_indexes = world.writer().segment_bytes() - found.disk_bytes;
    assert!(of_indexes > 0 && of_indexes.is_multiple_of(1 << 20));
    let before: RecordSegments = found;
    world.apply(&Op::Reopen);
    assert_eq!(world.writer().record_segments(), before);
    assert_eq!(world.directory.status().unwrap().record_segments, before);
}

/// With columns, the same limit keeps several times as many records.
#[test]
fn retention_goes_by_what_is_on_the_disk() {
    let mut world = world();
    world.sync();
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
fn retention_removes_whole_segments() {
    let mut world = world();
    world.sync();
    let segments = world.finished().len();
    let begin = Address(2 << 20);
    let limits = crate::ingest::Limits {
        bytes_max: Some(0),
        kept_from: Some(begin),
        ..Default::default()
    };
    world.writer().evict(&limits).unwrap();
    world.writer().sync_durable().unwrap();
    let firsts = |nth: usize| format!("{:020}.0", nth << 20);
    let names: Vec<PathBuf> = world.files();
    for nth in 0..segments {
        let is_there = names.iter().any(|path| path.ends_with(firsts(nth)));
        assert_eq!(is_there, nth >= 2, "{nth}");
    }
    let reader = world.scene.reader();
    assert_eq!(reader.tails().unwrap().begin[LogKind::Records], begin);
    assert!(world.scene.is_sound());
}

#[test]
fn a_segment_that_was_removed_is_named() {
    let mut world = world();
    world.close();
    let loom = world.dir();
    fs::remove_file(loom.join("records/00000000000000000000.0")).unwrap();
    let reader = world.scene.reader();
    let error = reader
        .read(LogKind::Records, Address(4096), &mut [0; 4096])
        .unwrap_err();
    let message = error.to_string();
    let named = "records/00000000000000000000.0: damaged at address 4096: the segment file is gone";
    assert!(message.contains(named), "{message}");
    let report = check(&loom).unwrap();
    let damage = report.damage.iter().map(ToString::to_string);
    assert!(
        damage
            .clone()
            .any(|damage| damage.contains("00000000000000000000.0")),
        "{:?}",
        report.damage
    );
    reader
        .read(LogKind::Records, Address(1 << 20), &mut [0; 4096])
        .unwrap();
}

/// A changed byte of a segment is reported as damage at its chunks or changes nothing, because the directory of units can be found again.
// G7
#[test]
fn damage_is_named_and_confined_to_its_unit() {
    let mut world = world();
    let before = record_bytes(&world);
    world.close();
    let path = world.finished().remove(0);
    let sound = fs::read(&path).unwrap();
    let unit_bytes = 16 * 4096;
    for place in (0..sound.len()).step_by(sound.len() / 61) {
        let mut changed = sound.clone();
        changed[place] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        let reader = world.scene.reader();
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
                        error.is_damage() && error.to_string().contains("/records/"),
                        "{error}"
                    );
                    damaged.push(address / unit_bytes);
                }
            }
        }
        damaged.dedup();
        assert!(damaged.len() <= 1, "byte {place}: units {damaged:?}");
        let report = world.scene.report();
        assert_eq!(
            report.damage.is_empty(),
            damaged.is_empty(),
            "byte {place}: {:?}",
            report.damage
        );
        assert!(!report.is_sound(), "byte {place}");
    }
}

/// A second read could hide the damage.
#[test]
fn damage_in_columns_is_the_answer_of_the_read_that_meets_it() {
    let mut world = world();
    world.close();
    let loom = world.dir();
    let path = world.finished().remove(0);
    let sound = fs::read(&path).unwrap();
    let poll = Poll::never();
    let mut met = 0;
    for place in (0..sound.len()).step_by(sound.len() / 31) {
        let mut changed = sound.clone();
        changed[place] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        let snapshot = Directory::open(&loom).unwrap().snapshot().unwrap();
        for source in snapshot.catalog().sources() {
            let every_field: Vec<usize> = (0..source.fields.len()).collect();
            let fields = Ask {
                fields: every_field,
                times: true,
                addresses: true,
                ..Ask::default()
            };
            for ask in [fields, Ask::all()] {
                let spec = scan_of(source.id, Predicate::All);
                let scan = Scan::new(&snapshot, spec).unwrap();
                let chunks = chunks_of(&scan);
                let mut reader = scan.reader(ask);
                reader.take(chunks.into_iter(), &poll).unwrap();
                let damage = loop {
                    let before = scan.stats().chunks_read;
                    match reader.read_next() {
                        Ok(true) => {}
                        Ok(false) => break None,
                        Err(error) => break Some((error, scan.stats().chunks_read - before)),
                    }
                };
                if let Some((error, more)) = damage {
                    let is_named = error.to_string().contains("/records/");
                    assert!(error.is_damage() && is_named, "{error}");
                    assert_eq!(more, 0, "byte {place}: {error}");
                    met += 1;
                }
            }
        }
    }
    assert!(met > 0, "no damage was met");
}

#[test]
fn a_damaged_directory_of_units_is_reported_and_mended() {
    let mut world = world();
    world.close();
    let loom = world.dir();
    let path = world.finished().remove(0);
    let sound = fs::read(&path).unwrap();
    let end = sound.len();
    for changed in [
        [&sound[..end - 30], &[7], &sound[end - 29..]].concat(),
        sound[..end - 5].to_vec(),
        [&sound[..], &[0; 100]].concat(),
    ] {
        fs::write(&path, &changed).unwrap();
        let report = check(&loom).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        let named = report.files.iter().map(ToString::to_string);
        let named: Vec<String> = named.collect();
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(
            named[0].contains(".0: ") && named[0].contains("--repair"),
            "{named:?}"
        );
        let writer = world.scene.writer();
        writer.mend().unwrap();
        writer.close().unwrap();
        assert!(check(&loom).unwrap().is_sound());
        assert!(fs::read(&path).unwrap() == sound);
    }
}

/// An aggregate may begin at any record, even in the middle of a chunk that is columns and holds other sources.
#[test]
fn an_aggregate_begins_at_any_record_of_columns() {
    let mut world = world_of(9_000, 7);
    world.sync();
    assert!(!world.finished().is_empty());
    let snapshot = world.snapshot();
    let records = world.records();
    let source = snapshot.source("metric").unwrap();
    let index = source.index("ratio").unwrap().id;
    let question = Question::plain(&snapshot, &records, source.id);
    let end = Address(snapshot.position());
    for nth in (0..20_000).step_by(977) {
        check_part(&question, index, false, 1, &records[nth..], Some(end));
    }
}

/// Rows with other keys may be left out, but none with these keys. The other rows are read as they are without keys.
#[test]
fn no_row_with_a_wanted_key_is_left_out() {
    let mut world = world();
    world.sync();
    let snapshot = world.snapshot();
    let records = world.records();
    let mut left_out = 0;
    for source in snapshot.catalog().sources() {
        let own = (records.iter()).filter(|record| record.source == source.id);
        let own: Vec<&Record> = own.collect();
        let is_number = |field: &usize| source.fields[*field].ty.kind().is_some();
        for field in (0..source.fields.len()).filter(is_number) {
            let key = |record: &Record| record.layout.key(field, &record.payload);
            let mut every: Vec<Key> = own.iter().filter_map(|record| key(record)).collect();
            every.sort();
            let last = every.len() - 1;
            for round in 0..4 {
                // A few keys, keys in two places, or none at all.
                let wanted = match round {
                    0 | 1 => RangeSet::new([(every[last / 3], every[last / 3 + last / 50])]),
                    2 => RangeSet::new([(every[0], every[0]), (every[last / 2], every[last])]),
                    _ => RangeSet::none(),
                };
                let ask = Ask {
                    fields: match round {
                        0 => vec![field],
                        _ => (0..source.fields.len()).collect(),
                    },
                    times: true,
                    addresses: round % 2 == 1,
                    keys: vec![(field, wanted.clone())],
                    ..Ask::default()
                };
                let scan = Scan::new(&snapshot, scan_of(source.id, Predicate::All)).unwrap();
                let found = read(&scan, &ask, usize::MAX).rows;
                left_out += own.len() - found.len();
                // The found rows are in the order of all rows, and each wanted row is among them.
                let mut found = found.into_iter().peekable();
                for record in &own {
                    let row = row_of(record, &ask);
                    let is_found = found.next_if(|next| *next == row).is_some();
                    let is_wanted = key(record).is_some_and(|key| wanted.contains(key));
                    let at = record.address;
                    assert!(
                        is_found || !is_wanted,
                        "{}, field {field}, {at}",
                        source.name
                    );
                }
                assert_eq!(found.next(), None);
            }
        }
    }
    assert!(left_out > 100_000, "{left_out}");
}
