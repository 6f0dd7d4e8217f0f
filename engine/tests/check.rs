//! `check` finds what is damaged, names it, and finds nothing where nothing is.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

use loom_engine::check::{Damage, Report, check, check_with};
use loom_engine::format::checksum;
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::{LogOptions, LogReader};
use loom_engine::schema::{BinsDef, parse_sources};
use loom_engine::{Address, Error, Key, LogKind, SourceId, ValueKind};

const SOURCES: &str = r#"
[[source]]
name = "request"
[[source.field]]
name = "latency"
type = "u64"
[[source.field]]
name = "op"
type = "u8"
[[source.index]]
name = "latency"
value = "latency"
[[source.index]]
name = "slow"
value = "latency"
where = "op = 1"
bins = { from = 10, factor = 2, count = 8 }

[[source]]
name = "event"
time = "own"
[[source.field]]
name = "level"
type = "f64"
[[source.index]]
name = "level"
value = "level"
"#;

fn options() -> WriterOptions {
    let log = LogOptions {
        chunk_bytes: 4 << 10,
        block_bytes: 64 << 10,
        segment_bytes: [256 << 10; 3].into(),
        ..LogOptions::default()
    };
    WriterOptions {
        log,
        ..WriterOptions::default()
    }
}

fn open(dir: &Path) -> (Writer, Vec<SourceId>) {
    let mut writer = Writer::open(dir, options()).unwrap();
    let sources = parse_sources(SOURCES).unwrap();
    let ids = sources
        .iter()
        .map(|source| writer.define_source(source).unwrap())
        .collect();
    (writer, ids)
}

fn push(writer: &mut Writer, ids: &[SourceId], from: u64, to: u64) {
    for ordinal in from..to {
        if ordinal % 50 == 7 {
            let level = if ordinal % 3 == 0 {
                f64::NAN
            } else {
                ordinal as f64 / 7.0
            };
            let payload = [(1_000 - ordinal as i64).to_le_bytes(), level.to_le_bytes()].concat();
            writer.push(ids[1], &payload).unwrap();
        } else {
            let latency = ordinal.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
            let payload = [&latency.to_le_bytes()[..], &[(ordinal % 3) as u8]].concat();
            writer.push(ids[0], &payload).unwrap();
        }
    }
}

/// A directory that was left in order, with enough chunks for a roll-up.
fn left_in_order(dir: &Path, records: u64) {
    let (mut writer, ids) = open(dir);
    push(&mut writer, &ids, 0, records);
    writer.close().unwrap();
}

fn sound(dir: &Path) -> Report {
    let report = check(dir).unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
    report
}

fn segments(dir: &Path, log: LogKind) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join(log.dir_name())).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_directory_left_in_order_is_sound_however_often_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(sound_empty(dir.path()).records, 0);
    let mut pushed = 0;
    for records in [1, 500, 30_000, 7] {
        let (mut writer, ids) = open(dir.path());
        push(&mut writer, &ids, pushed, pushed + records);
        pushed += records;
        writer.close().unwrap();
        let report = sound(dir.path());
        assert_eq!(report.records, pushed);
        assert_eq!(
            (report.staged_chunks, report.open_chunks, report.gap_chunks),
            (0, 0, 0)
        );
        assert!(report.nodes >= report.chunks);
    }
}

fn sound_empty(dir: &Path) -> Report {
    open(dir).0.close().unwrap();
    sound(dir)
}

#[test]
fn a_live_directory_is_sound_and_its_open_chunk_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, ids) = open(dir.path());
    push(&mut writer, &ids, 0, 40_000);
    writer.publish().unwrap();
    let report = sound(dir.path());
    assert_eq!(report.records, 40_000);
    assert_eq!(report.open_chunks, 1);
    assert!(report.staged_chunks > 0 && report.staged_chunks < report.chunks);
    writer.close().unwrap();
}

#[test]
fn indexes_that_come_and_go_and_closures_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, ids) = open(dir.path());
    push(&mut writer, &ids, 0, 20_000);
    let closure = |payload: &[u8]| payload.first().map(|byte| Key::from_u64(u64::from(*byte)));
    let closure = writer
        .define_index_fn(
            ids[0],
            "first byte",
            ValueKind::Unsigned,
            &BinsDef::Auto,
            Box::new(closure),
        )
        .unwrap();
    push(&mut writer, &ids, 20_000, 40_000);
    let latency = writer
        .catalog()
        .find("request")
        .unwrap()
        .index("latency")
        .unwrap()
        .id;
    writer.close_index(latency).unwrap();
    push(&mut writer, &ids, 40_000, 60_000);
    writer.close_index(closure).unwrap();
    push(&mut writer, &ids, 60_000, 70_000);
    writer.close_source(ids[1]).unwrap();
    writer.close().unwrap();
    sound(dir.path());
}

// G7
// case Corruption: a flipped byte
#[test]
fn every_flipped_byte_is_found_in_its_log() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 12_000);
    sound(dir.path());
    for log in LogKind::ALL {
        for path in segments(dir.path(), log) {
            let whole = fs::read(&path).unwrap();
            let step = (whole.len() / 97).max(1) | 1;
            for at in (0..whole.len()).step_by(step) {
                let mut flipped = whole.clone();
                flipped[at] ^= 0x10;
                fs::write(&path, &flipped).unwrap();
                let report = check(dir.path()).unwrap();
                let found = report
                    .damage
                    .iter()
                    .any(|damage| damage.log == log && damage.path == path);
                assert!(
                    found,
                    "byte {at} of {}: {:?}",
                    path.display(),
                    report.damage
                );
            }
            fs::write(&path, &whole).unwrap();
        }
    }
    sound(dir.path());
}

// case Corruption: truncation
#[test]
fn a_file_cut_short_is_found() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 12_000);
    for log in LogKind::ALL {
        let path = segments(dir.path(), log).pop().unwrap();
        let whole = fs::read(&path).unwrap();
        for keep in [0, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..keep]).unwrap();
            let found = match check(dir.path()) {
                Ok(report) => !report.is_sound(),
                Err(error) => matches!(error, Error::Damaged { .. } | Error::Corrupt { .. }),
            };
            assert!(found, "{} cut to {keep} bytes", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
    sound(dir.path());
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
// case Corruption: durable lost or of no use
#[test]
fn what_is_lost_of_the_files_beside_the_logs_is_found() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 3_000);
    let named = |name: &str, content: Option<&[u8]>| {
        let path = dir.path().join(name);
        let whole = fs::read(&path).unwrap();
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let report = check(dir.path()).unwrap();
        fs::write(&path, whole).unwrap();
        sound(dir.path());
        assert!(!report.is_sound());
        assert_eq!(report.files.len(), 1, "{:?}", report.files);
        assert_eq!(report.files[0].path, path);
    };
    named("durable", None);
    named("durable", Some(&[0; 8192]));
    named("durable", Some(&[]));
    let durable = fs::read(dir.path().join("durable")).unwrap();
    for slot in [0, 4096] {
        let mut flipped = durable.clone();
        flipped[slot + 20] ^= 1;
        named("durable", Some(&flipped));
    }
    named("durable", Some(&durable[..4096]));
    let catalog = fs::read(dir.path().join("catalog")).unwrap();
    let line = catalog.iter().position(|byte| *byte == b'\n').unwrap();
    for keep in [line + 1, catalog.len() - 1] {
        named("catalog", Some(&catalog[..keep]));
    }
    let mut flipped = catalog.clone();
    flipped[line / 2] ^= 1;
    for name in ["catalog", "catalog.copy", "loom.json", "loom.json.copy"] {
        named(name, Some(&flipped));
    }
    for name in ["catalog", "catalog.copy", "loom.json", "loom.json.copy"] {
        named(name, None);
        named(name, Some(&[]));
    }
    named("catalog.copy", Some(&catalog[..line / 2]));
    named("catalog.copy", Some(&vec![0; catalog.len()]));
    named("catalog.copy", Some(&[&catalog[..], b"x\n"].concat()));
}

// G7
#[test]
fn a_summary_that_stands_in_for_a_damaged_chunk_leaves_a_sound_rollup() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("loom");
    let push_many = |writer: &mut Writer, ids: &[SourceId]| {
        for ordinal in 0..9_000u64 {
            // Of events, a chunk has too few for bins and enough for statistics.
            let (source, payload) = match ordinal % 10 {
                0 => (1, [1i64.to_le_bytes(), 2.5f64.to_le_bytes()].concat()),
                _ => (0, [&ordinal.to_le_bytes()[..], &[1]].concat()),
            };
            writer.push(ids[source], &payload).unwrap();
        }
    };
    let (mut writer, ids) = open(&dir);
    push_many(&mut writer, &ids);
    writer.close().unwrap();
    let path = segments(&dir, LogKind::Records).remove(0);
    let mut records = fs::read(&path).unwrap();
    records[3 * 4096 + 20] ^= 1;
    fs::write(&path, records).unwrap();
    let (mut writer, ids) = open(&dir);
    push_many(&mut writer, &ids);
    writer.close().unwrap();
    let report = check(&dir).unwrap();
    let damaged: Vec<_> = report.damage.iter().map(|damage| damage.log).collect();
    assert_eq!(damaged, [LogKind::Records], "{:#?}", report.damage);
    assert!(report.chunks > 64);
}

/// What `check` reports of the files beside the logs: name and what is wrong.
fn reported(dir: &Path) -> Vec<(String, String)> {
    let report = check(dir).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    (report.files.iter())
        .map(|file| (name(&file.path), file.what.clone()))
        .collect()
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_killed_writer_without_its_slots_goes_on_from_staging_and_nothing_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("loom");
    let (mut writer, ids) = open(&dir);
    push(&mut writer, &ids, 0, 3_000);
    writer.publish().unwrap();
    drop(writer);
    fs::remove_file(dir.join("durable")).unwrap();
    let [(name, what)] = reported(&dir).try_into().unwrap();
    assert_eq!(name, "durable");
    assert!(what.contains("staging") && !what.contains("gap"), "{what}");
    let (writer, _) = open(&dir);
    writer.close().unwrap();
    assert_eq!(sound(&dir).records, 3_000);
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_note_that_a_killed_writer_left_is_missed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("loom");
    let (mut writer, ids) = open(&dir);
    push(&mut writer, &ids, 0, 3_000);
    writer.publish().unwrap();
    assert_eq!(reported(&dir), []);
    drop(writer);
    assert_eq!(reported(&dir), []);
    let [path, copy_path] = ["staging", "staging.copy"].map(|name| dir.join(name));
    let note = fs::read(&path).unwrap();
    for path in [&path, &copy_path] {
        fs::remove_file(path).unwrap();
        let [(name, what)] = reported(&dir).try_into().unwrap();
        assert_eq!(dir.join(name), *path);
        assert!(what.contains("it is missing; its copy"), "{what}");
        fs::write(path, &note).unwrap();
    }
    for path in [&path, &copy_path] {
        fs::remove_file(path).unwrap();
    }
    let [(name, what)] = reported(&dir).try_into().unwrap();
    assert_eq!(name, "staging");
    assert!(what.contains("restore one of them"), "{what}");
}

/// Lets a node say something else, with a checksum that verifies.
fn forge(dir: &Path, at: Address, change: impl FnOnce(&mut [u8])) {
    let uuid = LogReader::open(dir).unwrap().meta().uuid;
    let path = segments(dir, LogKind::Chunks).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let start = at.0 as usize;
    let length = u32::from_le_bytes(bytes[start + 8..start + 12].try_into().unwrap()) as usize;
    let node = &mut bytes[start..start + length];
    change(node);
    let sum = checksum(&uuid, LogKind::Chunks, at, &node[8..]);
    node[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
}

#[test]
fn a_summary_that_verifies_and_lies_is_found() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 3_000);
    // The first source's count of records stands 8 bytes into the source table.
    forge(dir.path(), Address(0), |node| node[56 + 8] += 1);
    let report = check(dir.path()).unwrap();
    let [damage] = &report.damage[..] else {
        panic!("{:?}", report.damage);
    };
    assert_eq!((damage.log, damage.address), (LogKind::Chunks, Address(0)));
    assert_eq!(
        damage.what,
        "its statistics of source 1 differ from its records"
    );
}

// G11
#[test]
fn rebuilding_mends_the_index_logs() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 30_000);
    let before = sound(dir.path());
    forge(dir.path(), Address(0), |node| node[56 + 8] += 1);
    let times = segments(dir.path(), LogKind::Times).remove(0);
    let mut bytes = fs::read(&times).unwrap();
    bytes[100] ^= 1;
    fs::write(&times, &bytes).unwrap();
    assert_eq!(check(dir.path()).unwrap().damage.len(), 2);
    Writer::rebuild(dir.path(), options())
        .unwrap()
        .close()
        .unwrap();
    let after = sound(dir.path());
    assert_eq!((after.records, after.nodes), (before.records, before.nodes));
    for log in [LogKind::Chunks, LogKind::Times] {
        for path in segments(dir.path(), log) {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(!check(dir.path()).unwrap().is_sound());
    Writer::rebuild(dir.path(), options())
        .unwrap()
        .close()
        .unwrap();
    assert_eq!(sound(dir.path()).nodes, before.nodes);
}

/// Copies a directory that nobody writes.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

// case Corruption: damaged index logs at a start
#[test]
fn a_start_makes_anew_what_it_needs_of_damaged_index_logs() {
    let root = tempfile::tempdir().unwrap();
    let (whole, dir) = (root.path().join("whole"), root.path().join("damaged"));
    left_in_order(&whole, 12_000);
    let mut mended = 0;
    for log in [LogKind::Chunks, LogKind::Times] {
        for path in segments(&whole, log) {
            let bytes = fs::read(&path).unwrap();
            let step = (bytes.len() / 61).max(1) | 1;
            for at in (0..bytes.len()).step_by(step) {
                copy(&whole, &dir);
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                fs::write(dir.join(path.strip_prefix(&whole).unwrap()), flipped).unwrap();
                let (mut writer, ids) = open(&dir);
                push(&mut writer, &ids, 12_000, 12_100);
                writer.close().unwrap();
                let report = check(&dir).unwrap();
                assert_eq!(report.records, 12_100, "byte {at} of {}", path.display());
                assert!(report.files.is_empty(), "{:?}", report.files);
                let of_index = |damage: &Damage| damage.log != LogKind::Records;
                assert!(report.damage.iter().all(of_index), "{:?}", report.damage);
                mended += u64::from(report.is_sound());
                fs::remove_dir_all(&dir).unwrap();
            }
        }
    }
    assert!(mended > 10, "{mended}");
}

#[test]
fn a_damaged_chunk_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 30_000);
    let chunks = sound(dir.path()).chunks;
    let records = segments(dir.path(), LogKind::Records).remove(0);
    let mut bytes = fs::read(&records).unwrap();
    bytes[3 * 4096 + 77] ^= 1;
    bytes[5 * 4096 + 77] ^= 1;
    fs::write(&records, &bytes).unwrap();
    let report = check(dir.path()).unwrap();
    let addresses: Vec<u64> = report
        .damage
        .iter()
        .map(|damage| damage.address.0)
        .collect();
    assert_eq!(addresses, [3 * 4096, 5 * 4096], "{:?}", report.damage);
    assert_eq!(report.chunks, chunks);
}

/// A thread reads 64 of these chunks at once, ahead of what is compared.
// case Corruption: a flipped byte
#[test]
fn damaged_chunks_are_found_wherever_they_stand_in_what_is_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 60_000);
    let whole = sound(dir.path());
    let flip = |chunk: u64| {
        let path = &segments(dir.path(), LogKind::Records)[chunk as usize / 64];
        let mut bytes = fs::read(path).unwrap();
        bytes[chunk as usize % 64 * 4096 + 77] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    for damaged in [
        vec![0],
        vec![63],
        vec![64, 65],
        vec![0, 1, 63, 64, 127, 128, 200, whole.chunks - 1],
        (100..300).step_by(7).collect(),
    ] {
        damaged.iter().for_each(|chunk| flip(*chunk));
        let report = check(dir.path()).unwrap();
        let found: Vec<u64> = report
            .damage
            .iter()
            .map(|damage| damage.address.0 / 4096)
            .collect();
        assert_eq!(found, damaged, "{:?}", report.damage);
        assert_eq!(
            (report.chunks, report.nodes),
            (whole.chunks, whole.nodes),
            "{damaged:?}"
        );
        assert!(report.records < whole.records, "{damaged:?}");
        damaged.iter().for_each(|chunk| flip(*chunk));
    }
    let again = sound(dir.path());
    assert_eq!(again.records, whole.records);
}

#[test]
fn progress_grows_with_each_chunk_up_to_all_of_the_record_log() {
    let dir = tempfile::tempdir().unwrap();
    left_in_order(dir.path(), 12_000);
    let mut shown = Vec::new();
    let report = check_with(dir.path(), &mut |progress| shown.push(progress)).unwrap();
    let chunks: Vec<u64> = shown.iter().map(|progress| progress.bytes / 4096).collect();
    let expected: Vec<u64> = (1..=report.chunks).collect();
    assert_eq!(chunks, expected);
    let all = report.chunks * 4096;
    assert!(shown.iter().all(|progress| progress.bytes_in_all == all));
}
