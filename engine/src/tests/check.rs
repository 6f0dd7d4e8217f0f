//! `check` finds and names damage, and finds none in a sound directory.

use std::fs;
use std::path::Path;

use crate::check::{Damage, Report, check_with};
use crate::error::Error;
use crate::format::checksum;
use crate::schema::BinsDef;
use crate::testkit::requests::{define, push, push_to};
use crate::testkit::scene::CHUNK;
use crate::testkit::{Scene, copy_dir};
use crate::types::{Address, Key, LogKind, ValueKind};

/// A directory that was closed, with enough chunks for a roll-up.
fn left_in_order(records: u64) -> Scene {
    let scene = Scene::new();
    let mut writer = scene.writer();
    push(&mut writer, 0, records);
    writer.close().unwrap();
    scene
}

/// A directory whose writer was killed.
fn killed(records: u64) -> Scene {
    let scene = Scene::new();
    let mut writer = scene.writer();
    push(&mut writer, 0, records);
    writer.publish().unwrap();
    scene
}

fn sound(scene: &Scene) -> Report {
    let report = scene.report();
    assert!(report.is_sound(), "{:#?}", report.damage);
    report
}

#[test]
fn a_directory_left_in_order_is_sound_however_often_it_was_opened() {
    let scene = Scene::new();
    let mut pushed = 0;
    for records in [0, 1, 500, 30_000, 7] {
        let mut writer = scene.writer();
        push(&mut writer, pushed, pushed + records);
        pushed += records;
        writer.close().unwrap();
        let report = sound(&scene);
        assert_eq!(report.records, pushed);
        assert_eq!(
            (report.staged_chunks, report.open_chunks, report.gap_chunks),
            (0, 0, 0)
        );
        assert!(report.nodes >= report.chunks);
    }
}

#[test]
fn a_live_directory_is_sound_and_its_open_chunk_is_counted() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    push(&mut writer, 0, 40_000);
    writer.publish().unwrap();
    let report = sound(&scene);
    assert_eq!(report.records, 40_000);
    assert_eq!(report.open_chunks, 1);
    assert!(report.staged_chunks > 0 && report.staged_chunks < report.chunks);
    writer.close().unwrap();
}

#[test]
fn indexes_that_come_and_go_and_closures_are_sound() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let ids = define(&mut writer);
    push_to(&mut writer, &ids, 0, 20_000);
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
    push_to(&mut writer, &ids, 20_000, 40_000);
    let source = writer.catalog().find("request").unwrap();
    let latency = source.index("latency").unwrap().id;
    writer.close_index(latency).unwrap();
    push_to(&mut writer, &ids, 40_000, 60_000);
    writer.close_index(closure).unwrap();
    push_to(&mut writer, &ids, 60_000, 70_000);
    writer.close_source(ids[1]).unwrap();
    writer.close().unwrap();
    sound(&scene);
}

// G7
// case Corruption: a flipped byte
#[test]
fn every_flipped_byte_is_found_in_its_log() {
    let scene = left_in_order(12_000);
    sound(&scene);
    for log in LogKind::ALL {
        for path in scene.segments(log) {
            let whole = fs::read(&path).unwrap();
            let step = (whole.len() / 97).max(1) | 1;
            for at in (0..whole.len()).step_by(step) {
                scene.change(&path, |bytes| bytes[at] ^= 0x10);
                let report = scene.report();
                let damage = report.damage;
                let is_it = |damage: &Damage| damage.log == log && damage.path == path;
                // The directory of a segment's units is reported like a file of its own.
                let is_file = report.files.iter().any(|file| file.path == path);
                let named = is_file || damage.iter().any(is_it);
                assert!(named, "byte {at} of {}: {damage:?}", path.display());
                fs::write(&path, &whole).unwrap();
            }
        }
    }
    sound(&scene);
}

// case Corruption: truncation
#[test]
fn a_file_cut_short_is_found() {
    let scene = left_in_order(12_000);
    for log in LogKind::ALL {
        // The last file of the record log may have no unit yet.
        let path = scene.segments(log).remove(0);
        let whole = fs::read(&path).unwrap();
        for keep in [0, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..keep]).unwrap();
            let found = match crate::check::check(&scene.dir()) {
                Ok(report) => !report.is_sound(),
                Err(error) => matches!(error, Error::Damaged { .. } | Error::Corrupt { .. }),
            };
            assert!(found, "{} cut to {keep} bytes", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
    sound(&scene);
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
// case Corruption: durable lost or of no use
#[test]
fn losses_in_the_files_beside_the_logs_are_found() {
    let scene = left_in_order(3_000);
    let named = |name: &str, content: Option<&[u8]>| {
        let path = scene.dir().join(name);
        let whole = fs::read(&path).unwrap();
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let report = scene.report();
        fs::write(&path, whole).unwrap();
        sound(&scene);
        assert!(!report.is_sound());
        assert_eq!(report.files.len(), 1, "{:?}", report.files);
        assert_eq!(report.files[0].path, path);
    };
    named("durable", None);
    named("durable", Some(&[0; 8192]));
    named("durable", Some(&[]));
    let durable = fs::read(scene.dir().join("durable")).unwrap();
    for slot in [0, 4096] {
        let mut flipped = durable.clone();
        flipped[slot + 20] ^= 1;
        named("durable", Some(&flipped));
    }
    named("durable", Some(&durable[..4096]));
    let catalog = fs::read(scene.dir().join("catalog")).unwrap();
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
    let scene = Scene::new();
    let push_many = || {
        let mut writer = scene.writer();
        let ids = define(&mut writer);
        for ordinal in 0..9_000u64 {
            // A chunk has too few events for bins and enough for statistics.
            let (source, payload) = match ordinal % 10 {
                0 => (1, [1i64.to_le_bytes(), 2.5f64.to_le_bytes()].concat()),
                _ => (0, [&ordinal.to_le_bytes()[..], &[1]].concat()),
            };
            writer.push(ids[source], &payload).unwrap();
        }
        writer.close().unwrap();
    };
    push_many();
    let path = scene.segment(LogKind::Records, 0);
    scene.flip_unit(&path, 0);
    push_many();
    let report = scene.report();
    let damaged: Vec<_> = report.damage.iter().map(|damage| damage.log).collect();
    assert_eq!(damaged, [LogKind::Records; 16], "{:#?}", report.damage);
    assert!(report.chunks > 64);
}

/// Where damage of the record log is reported.
fn damaged_records(scene: &Scene) -> Vec<Address> {
    let damage = scene.report().damage.into_iter();
    let records = damage.filter(|damage| damage.log == LogKind::Records);
    records.map(|damage| damage.address).collect()
}

// case Corruption: a tail of zeroes
#[test]
fn a_damaged_chunk_of_the_tail_is_reported_after_every_start_and_hides_no_other() {
    for (is_closed, nth) in [(true, 1), (true, 3), (false, 3)] {
        let scene = Scene::new();
        let mut writer = scene.writer();
        push(&mut writer, 0, 600);
        if is_closed {
            writer.close().unwrap();
        } else {
            writer.sync_durable().unwrap();
            drop(writer);
            scene.lose_staging();
        }
        assert_eq!(sound(&scene).chunks, 4);
        let address = Address(nth * CHUNK);
        scene.change(&scene.dir().join("tail"), |bytes| {
            let is_its_piece = |place: &usize| {
                bytes[*place..].starts_with(b"TAIL")
                    && bytes[place + 16..][..8] == address.0.to_le_bytes()
            };
            let place = (0..bytes.len()).step_by(8).find(is_its_piece).unwrap();
            bytes[place + 24 + 100] ^= 1;
        });
        assert_eq!(damaged_records(&scene), [address]);
        let mut pushed = 600;
        for records in [0, 100, 3_000, 1] {
            let mut writer = scene.writer();
            push(&mut writer, pushed, pushed + records);
            pushed += records;
            assert_eq!(damaged_records(&scene), [address], "{records} more");
            writer.close().unwrap();
            assert_eq!(damaged_records(&scene), [address], "{records} more, closed");
            // The summary of a chunk shows which records it had.
            let losses = scene.losses();
            let damaged = losses.iter().filter(|loss| loss.stage == "log").count();
            assert_eq!(damaged, usize::from(!is_closed), "{losses:?}");
        }
    }
}

/// The report of `check` about the files beside the logs: name and damage.
fn reported(scene: &Scene) -> Vec<(String, String)> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let files = scene.report().files.into_iter();
    files.map(|file| (name(&file.path), file.what)).collect()
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_killed_writer_without_its_slots_goes_on_from_staging_and_nothing_is_lost() {
    let scene = killed(3_000);
    fs::remove_file(scene.dir().join("durable")).unwrap();
    let [(name, what)] = reported(&scene).try_into().unwrap();
    assert_eq!(name, "durable");
    assert!(what.contains("staging") && !what.contains("gap"), "{what}");
    scene.restart();
    assert_eq!(sound(&scene).records, 3_000);
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_note_that_a_killed_writer_left_is_missed() {
    let scene = killed(3_000);
    assert_eq!(reported(&scene), []);
    let [path, copy_path] = ["staging", "staging.copy"].map(|name| scene.dir().join(name));
    let note = fs::read(&path).unwrap();
    for path in [&path, &copy_path] {
        fs::remove_file(path).unwrap();
        let [(name, what)] = reported(&scene).try_into().unwrap();
        assert_eq!(scene.dir().join(name), *path);
        assert!(what.contains("it is missing; its copy"), "{what}");
        fs::write(path, &note).unwrap();
    }
    for path in [&path, &copy_path] {
        fs::remove_file(path).unwrap();
    }
    let [(name, what)] = reported(&scene).try_into().unwrap();
    assert_eq!(name, "staging");
    assert!(what.contains("restore one of them"), "{what}");
}

/// Changes a node and gives it a checksum that verifies.
fn forge(scene: &Scene, at: Address, change: impl FnOnce(&mut [u8])) {
    let uuid = scene.reader().meta().uuid;
    scene.change(&scene.segment(LogKind::Chunks, 0), |bytes| {
        let node = &mut bytes[at.0 as usize..];
        let length = u32::from_le_bytes(node[8..12].try_into().unwrap()) as usize;
        let node = &mut node[..length];
        change(node);
        let sum = checksum(&uuid, LogKind::Chunks, at, &node[8..]);
        node[4..8].copy_from_slice(&sum.to_le_bytes());
    });
}

#[test]
fn a_summary_that_verifies_and_lies_is_found() {
    let scene = left_in_order(3_000);
    // The first source's count of records is 8 bytes into the source table.
    forge(&scene, Address(0), |node| node[56 + 8] += 1);
    let report = scene.report();
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
    let scene = left_in_order(30_000);
    let before = sound(&scene);
    forge(&scene, Address(0), |node| node[56 + 8] += 1);
    let times = scene.segment(LogKind::Times, 0);
    scene.change(&times, |bytes| bytes[100] ^= 1);
    assert_eq!(scene.report().damage.len(), 2);
    scene.rebuild();
    let after = sound(&scene);
    assert_eq!((after.records, after.nodes), (before.records, before.nodes));
    for log in [LogKind::Chunks, LogKind::Times] {
        for path in scene.segments(log) {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(!scene.report().is_sound());
    scene.rebuild();
    assert_eq!(sound(&scene).nodes, before.nodes);
}

// case Corruption: damaged index logs at a start
#[test]
fn a_start_rebuilds_the_parts_that_it_needs_of_damaged_index_logs() {
    let scene = left_in_order(12_000);
    let (dir, whole) = (scene.dir(), scene.root.path().join("whole"));
    copy_dir(&dir, &whole);
    let mut mended = 0;
    for log in [LogKind::Chunks, LogKind::Times] {
        for path in scene.segments(log) {
            let bytes = fs::metadata(&path).unwrap().len() as usize;
            for at in (0..bytes).step_by((bytes / 61).max(1) | 1) {
                scene.change(&path, |bytes| bytes[at] ^= 0x10);
                let mut writer = scene.writer();
                push(&mut writer, 12_000, 12_100);
                writer.close().unwrap();
                let report = scene.report();
                assert_eq!(report.records, 12_100, "byte {at} of {}", path.display());
                assert!(report.files.is_empty(), "{:?}", report.files);
                let of_index = |damage: &Damage| damage.log != LogKind::Records;
                assert!(report.damage.iter().all(of_index), "{:?}", report.damage);
                mended += u64::from(report.is_sound());
                fs::remove_dir_all(&dir).unwrap();
                copy_dir(&whole, &dir);
            }
        }
    }
    assert!(mended > 10, "{mended}");
}

/// A thread reads 64 of these chunks at once, ahead of the comparison.
// case Corruption: a flipped byte
#[test]
fn damaged_chunks_are_found_at_any_place_of_a_read() {
    let scene = left_in_order(60_000);
    let whole = sound(&scene);
    let flip = |unit: u64| {
        let path = &scene.segments(LogKind::Records)[unit as usize / 4];
        scene.flip_unit(path, unit as usize % 4);
    };
    for units in [
        vec![0],
        vec![3],
        vec![4, 5],
        vec![0, 3, 4, 7, whole.chunks / 16 - 1],
        (5..whole.chunks / 16).step_by(8).collect(),
    ] {
        units.iter().for_each(|unit| flip(*unit));
        let damaged: Vec<u64> = units
            .iter()
            .flat_map(|unit| 16 * unit..16 * unit + 16)
            .collect();
        let report = scene.report();
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
        units.iter().for_each(|unit| flip(*unit));
    }
    let again = sound(&scene);
    assert_eq!(again.records, whole.records);
}

#[test]
fn progress_grows_with_each_chunk_up_to_all_of_the_record_log() {
    let scene = left_in_order(12_000);
    let mut shown = Vec::new();
    let report = check_with(&scene.dir(), &mut |progress| shown.push(progress)).unwrap();
    let chunks: Vec<u64> = shown.iter().map(|progress| progress.bytes / 4096).collect();
    let expected: Vec<u64> = (1..=report.chunks).collect();
    assert_eq!(chunks, expected);
    let all = report.chunks * 4096;
    assert!(shown.iter().all(|progress| progress.bytes_in_all == all));
}
