//! The writer as a user of the library sees it: pushed records are found in the logs, however the previous writer ended.
//!
//! Every scenario ends in `sound`, which reads the directory as another process would and compares each node of the index logs with
//! the records below it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::Error;
use crate::format::{
    FANOUT, Node, NodeSummary, RECORD_HEADER_BYTES, RecordIter, TIME_ENTRY_BYTES, TimeEntry,
    complete_chunks, entry_of,
};
use crate::ingest::{Batch, LatestChunks, Summariser, Writer};
use crate::log::LogReader;
use crate::schema::{BinsDef, SourceDef, decode_catalog, parse_sources};
use crate::testkit::Scene;
use crate::testkit::asked::numbers;
use crate::testkit::requests::{SOURCES, push, request, sources};
use crate::testkit::scene::BLOCK;
use crate::types::{Address, ChunkNo, Key, LogKind, ValueKind};

/// Reads everything back, compares the index logs with the records, and returns the payloads in log order.
fn sound(scene: &Scene) -> Vec<Vec<u8>> {
    let reader = scene.reader();
    let tails = reader.tails().unwrap();
    let meta = reader.meta();
    let (catalog, ..) = decode_catalog(&meta.uuid, &reader.catalog_bytes().unwrap()).unwrap();
    let entries = tails.tail.times.0 / TIME_ENTRY_BYTES as u64;
    let chunks = complete_chunks(entries);
    let read = |log, at: Address, bytes: usize| {
        let mut buffer = vec![0; bytes];
        reader.read(log, at, &mut buffer).unwrap();
        buffer
    };
    let entry_at = |ordinal: u64| {
        let at = Address(ordinal * TIME_ENTRY_BYTES as u64);
        TimeEntry::decode(&meta.uuid, at, &read(LogKind::Times, at, TIME_ENTRY_BYTES)).unwrap()
    };
    let (mut payloads, mut summariser, mut latest) =
        (Vec::new(), Summariser::default(), LatestChunks::default());
    let chunk_bytes = u64::from(meta.chunk_bytes);
    for chunk in 0..tails.tail.records.0.div_ceil(chunk_bytes) {
        let start = chunk * chunk_bytes;
        let bytes = read(
            LogKind::Records,
            Address(start),
            (tails.tail.records.0 - start).min(chunk_bytes) as usize,
        );
        let records: Vec<_> = RecordIter::new(&bytes, meta.chunk_bytes)
            .map(Result::unwrap)
            .collect();
        payloads.extend(records.iter().map(|record| record.payload.to_vec()));
        if chunk >= chunks {
            continue;
        }
        let mut expected = NodeSummary::new(0);
        summariser
            .summarise(
                &catalog,
                &Default::default(),
                &mut latest,
                ChunkNo(chunk),
                &bytes,
                &mut expected,
            )
            .unwrap();
        let (mut level, mut ordinal) = (0u8, chunk);
        loop {
            let entry = entry_at(entry_of(level, ordinal));
            assert_eq!(
                (entry.level, entry.first_chunk.0),
                (level, ordinal * FANOUT.pow(level.into()))
            );
            let stored = read(LogKind::Chunks, entry.node, entry.node_bytes as usize);
            let node = Node::decode(&meta.uuid, entry.node, &stored).unwrap();
            for source in node.sources() {
                assert_eq!(
                    source.children().map(|child| child.records).sum::<u64>(),
                    if level == 0 { 0 } else { source.records }
                );
            }
            if level == 0 {
                assert_eq!(node.records(), records.len() as u64);
                let bytes: u64 = records
                    .iter()
                    .map(|record| 8 + record.payload.len().next_multiple_of(8) as u64)
                    .sum();
                assert_eq!(
                    node.sources().map(|source| source.bytes).sum::<u64>(),
                    bytes
                );
                for source in expected.sources.iter() {
                    let stats = node.source(source.source).unwrap();
                    assert_eq!(
                        (stats.records, stats.bytes, stats.previous_chunk),
                        (source.records, source.bytes, source.previous_chunk)
                    );
                    assert_eq!(
                        (stats.first_ts, stats.last_ts),
                        (source.first_ts, source.last_ts)
                    );
                    for index in source.indexes.iter().filter(|_| source.records >= 4) {
                        let block = node.index(source.source, index.index).unwrap();
                        assert_eq!((block.count, block.range), (index.count, index.range));
                        assert_eq!(block.tops().collect::<Vec<_>>(), index.tops);
                    }
                }
            }
            if ordinal % FANOUT != FANOUT - 1 {
                break;
            }
            (level, ordinal) = (level + 1, ordinal / FANOUT);
        }
    }
    payloads
}

#[test]
fn what_is_pushed_is_read_back_across_blocks_segments_and_clean_restarts() {
    let scene = Scene::new();
    let mut expected = Vec::new();
    for round in 0..4u64 {
        let mut writer = scene.writer();
        expected.extend(push(&mut writer, round * 20_000, (round + 1) * 20_000));
        writer.publish().unwrap();
        assert_eq!(sound(&scene).len(), expected.len());
        writer.close().unwrap();
        assert_eq!(sound(&scene), expected);
    }
}

// G11
// case Crash: between the index logs
#[test]
fn the_index_logs_are_rebuilt_from_the_records() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let expected = push(&mut writer, 0, 30_000);
    writer.close().unwrap();
    for log in [LogKind::Chunks, LogKind::Times] {
        for path in scene.segments(log) {
            scene.change(&path, |bytes| bytes.fill(0xA5));
        }
        scene.restart();
        assert_eq!(sound(&scene), expected);
    }
}

/// Checks that a writer refuses the directory with an error that names the catalog and contains `what`.
fn assert_catalog_refused(scene: &Scene, what: &str) {
    let refused = Writer::open(&scene.dir(), scene.options.clone()).err();
    let message = refused.unwrap().to_string();
    let named = message.contains("catalog") && message.contains("from a backup");
    assert!(named && message.contains(what), "{message}, not {what}");
}

// case Corruption: a catalog that lost lines, or all of it, and its copy too
#[test]
fn a_catalog_that_lost_lines_is_refused_at_a_start_and_a_whole_one_goes_on() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let expected = push(&mut writer, 0, 5_000);
    writer.close().unwrap();
    let [path, copy] = ["catalog", "catalog.copy"].map(|name| scene.dir().join(name));
    let whole = fs::read(&path).unwrap();
    let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let cuts: Vec<usize> = ends.map(|(at, _)| at).collect();
    assert!(cuts.len() > 1);
    for cut in cuts.iter().flat_map(|at| [*at, at + 1]).chain([0, 5]) {
        if cut < whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            fs::write(&copy, &whole[..cut]).unwrap();
            assert_catalog_refused(&scene, "were durable");
        }
    }
    fs::remove_file(&path).unwrap();
    fs::remove_file(&copy).unwrap();
    assert_catalog_refused(&scene, "were durable");
    fs::write(&path, &whole).unwrap();
    scene.restart();
    assert_eq!(sound(&scene), expected);
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_start_restores_losses_of_one_of_two_copies() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let expected = push(&mut writer, 0, 500);
    writer.close().unwrap();
    for (name, copy) in [("catalog", "catalog.copy"), ("loom.json", "loom.json.copy")] {
        let [path, copy] = [name, copy].map(|name| scene.dir().join(name));
        let whole = fs::read(&path).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), whole);
        for (hit, other) in [(&path, &copy), (&copy, &path)] {
            for step in 0..6 {
                let at = step * whole.len() / 6;
                let mut flipped = whole.clone();
                flipped[at] ^= 4;
                // If the first line of this copy is damaged, the other copy may have only that line.
                if name == "catalog" && step == 0 {
                    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
                    fs::write(other, &whole[..first_line]).unwrap();
                }
                fs::write(hit, if step < 4 { &flipped } else { &whole[..at] }).unwrap();
                scene.restart();
                assert_eq!(fs::read(hit).unwrap(), whole, "{} {at}", hit.display());
                assert_eq!(fs::read(other).unwrap(), whole);
            }
            fs::remove_file(hit).unwrap();
            scene.restart();
            assert_eq!(fs::read(hit).unwrap(), whole);
        }
    }
    assert_eq!(sound(&scene), expected);
}

/// The staging file that the note names.
fn staging(scene: &Scene) -> PathBuf {
    let [file] = scene.staging_files().try_into().unwrap();
    file
}

/// Flips a bit in staging, `before` bytes before a payload.
fn flip_in_staging(scene: &Scene, payload: &[u8], before: usize) {
    scene.change(&staging(scene), |staging| {
        let mut windows = staging.windows(payload.len());
        let at = windows.position(|bytes| bytes == payload).unwrap();
        staging[at - before] ^= 2;
    });
}

/// A directory whose writer did not close it, with a flipped bit `before` bytes before the payload of the n-th record.
fn flipped_in_staging(nth: usize, before: usize) -> Scene {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let pushed = push(&mut writer, 0, 1_500);
    writer.publish().unwrap();
    drop(writer);
    flip_in_staging(&scene, &pushed[nth], before);
    scene
}

// G7
#[test]
fn a_flipped_source_id_in_staging_costs_its_chunk_and_no_start() {
    // The record is in the last chunk, which has no summary.
    let scene = flipped_in_staging(1_490, RECORD_HEADER_BYTES - 1);
    for _ in 0..2 {
        scene.restart();
        let [loss] = scene.losses().try_into().unwrap();
        assert!(loss.reason.starts_with("damaged from address"), "{loss:?}");
    }
}

// case Corruption: a flipped byte
#[test]
fn a_flipped_bit_of_a_full_chunk_in_staging_is_damage() {
    let scene = flipped_in_staging(500, 0);
    scene.restart();
    assert_eq!(scene.report().damage.len(), 1);
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_directory_that_was_given_the_description_of_another_is_refused_until_it_has_its_own() {
    let [scene, other] = [(); 2].map(|()| Scene::new());
    let mut writer = scene.writer();
    let expected = push(&mut writer, 0, 500);
    writer.close().unwrap();
    other.restart();
    let own = fs::read(scene.dir().join("loom.json")).unwrap();
    for name in ["loom.json", "loom.json.copy"] {
        fs::copy(other.dir().join(name), scene.dir().join(name)).unwrap();
        let refusals = [
            Writer::open(&scene.dir(), scene.options.clone()).err(),
            LogReader::open(&scene.dir()).err(),
        ];
        for error in refusals {
            let error = error.unwrap().to_string();
            assert!(error.contains("it and its copy differ"), "{error}");
        }
        fs::write(scene.dir().join(name), &own).unwrap();
        assert_eq!(sound(&scene), expected);
    }
    scene.restart();
    assert_eq!(sound(&scene), expected);
}

// case Corruption: a catalog that lost lines, or all of it, and its copy too
#[test]
fn a_catalog_without_a_source_of_records_is_refused_though_no_slot_has_its_length() {
    // Events are in a chunk that a roll-up covers, or only in the last chunk, where only the records show them.
    for rounds in [60, 1] {
        let scene = Scene::new();
        let mut writer = scene.writer();
        let mut expected = push(&mut writer, 0, 97);
        for _ in 1..rounds {
            expected.extend(push(&mut writer, 1, 97));
        }
        writer.publish().unwrap();
        drop(writer);
        let path = scene.dir().join("catalog");
        fs::remove_file(scene.dir().join("catalog.copy")).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert_catalog_refused(&scene, "were durable");
        // As if the writer had stored no length of the catalog.
        let file = File::options().write(true).open(staging(&scene)).unwrap();
        file.write_all_at(&[0; 16], 2880).unwrap();
        let name = b"\"name\":\"event\"";
        let kept = whole
            .split_inclusive(|byte| *byte == b'\n')
            .take_while(|line| !line.windows(name.len()).any(|part| part == name));
        fs::write(&path, kept.collect::<Vec<_>>().concat()).unwrap();
        assert_catalog_refused(&scene, "source 2 is missing, and there are records of it");
        fs::write(&path, "").unwrap();
        assert_catalog_refused(&scene, "there are records of it");
        fs::write(&path, &whole).unwrap();
        scene.restart();
        assert_eq!(sound(&scene), expected);
    }
}

#[test]
fn a_batch_stores_the_records_that_fit_its_layout_and_reports_the_others() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let id = writer.define_source(&sources()[0]).unwrap();
    let mut framed = Vec::new();
    for payload in [request(1), vec![1, 2, 3], request(2)] {
        framed.extend((payload.len() as u16).to_le_bytes());
        framed.extend(payload);
    }
    framed.extend([200, 0, 1]);
    let pushed = writer
        .push_batch(id, &Batch::Framed { bytes: &framed })
        .unwrap();
    assert_eq!(pushed.stored, 2);
    let refused = pushed.refused.iter().map(|refused| refused.ordinal);
    assert!(refused.eq([1, 3]));
    let fixed = [request(3), request(4)].concat();
    let batch = Batch::Fixed {
        bytes: &fixed,
        record_bytes: 9,
    };
    assert_eq!(writer.push_batch(id, &batch).unwrap().stored, 2);
    writer.close().unwrap();
    assert_eq!(sound(&scene), [1, 2, 3, 4].map(request));
}

// case Network and input: a record longer than a chunk
#[test]
fn a_record_that_no_chunk_can_hold_is_refused_with_the_limit() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let raw = parse_sources("[[source]]\nname = \"raw\"").unwrap();
    let id = writer.define_source(&raw[0]).unwrap();
    let longest = vec![7; 4096 - 24];
    writer.push(id, &longest).unwrap();
    let refused = writer.push(id, &vec![7; 4096 - 23]);
    assert!(
        matches!(
            refused,
            Err(Error::TooLong {
                bytes: 4073,
                limit: 4072
            })
        ),
        "{refused:?}"
    );
    writer.close().unwrap();
    assert_eq!(sound(&scene), [longest]);
}

#[test]
fn indexes_and_fields_begin_at_a_chunk_boundary_and_sources_reopen_under_their_id() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let mut expected = push(&mut writer, 0, 500);
    let id = writer.catalog().find("request").unwrap().id;
    let wider = SOURCES.replace(
        "type = \"u8\"\n",
        "type = \"u8\"\n[[source.field]]\nname = \"extra\"\ntype = \"i32\"\n",
    );
    let wider = parse_sources(&wider).unwrap();
    assert_eq!(writer.define_source(&wider[0]).unwrap(), id);
    assert!(
        writer.push(id, &request(1)).is_err(),
        "the layout has grown"
    );
    let payload = [request(1), vec![1, 2, 3, 4]].concat();
    let at = writer.push(id, &payload).unwrap();
    assert_eq!(at.0 % 4096, 8);
    expected.push(payload);
    writer.close_source(id).unwrap();
    assert!(matches!(
        writer.push(id, &request(1)),
        Err(Error::SourceClosed { .. })
    ));
    assert_eq!(writer.define_source(&wider[0]).unwrap(), id);
    writer.close().unwrap();
    let writer = scene.writer();
    assert_eq!(writer.catalog().find("request").unwrap().fields.len(), 3);
    writer.close().unwrap();
    assert_eq!(sound(&scene), expected);
}

#[test]
fn an_index_by_closure_ends_with_its_writer_and_leaves_the_others_whole() {
    let scene = Scene::new();
    let mut expected = Vec::new();
    for round in 0..3u64 {
        let mut writer = scene.writer();
        let id = writer.define_source(&sources()[0]).unwrap();
        let first_byte = |payload: &[u8]| payload.first().map(|byte| Key::from_u64((*byte).into()));
        let name = format!("byte{round}");
        writer
            .define_index_fn(
                id,
                &name,
                ValueKind::Unsigned,
                &BinsDef::Auto,
                Box::new(first_byte),
            )
            .unwrap();
        expected.extend(push(&mut writer, round * 9_000, (round + 1) * 9_000));
        writer.publish().unwrap();
        drop(writer);
    }
    let writer = scene.writer();
    let source = writer.catalog().find("request").unwrap().clone();
    assert!(
        source
            .indexes
            .iter()
            .filter(|index| index.is_native())
            .all(|index| !index.is_open())
    );
    writer.close().unwrap();
    assert_eq!(sound(&scene), expected);
}

// case Concurrency: snapshots around a block switch
#[test]
fn snapshots_before_at_and_after_a_change_of_blocks_hold_what_was_published() {
    const NEAR: u64 = 48;
    let scene = Scene::new();
    let mut writer = scene.writer();
    let source = writer.define_source(&SourceDef::new("x")).unwrap();
    let directory = scene.directory();
    let (mut before, mut after) = (0, 0);
    for number in 0..20_000u64 {
        writer.push(source, &number.to_le_bytes()).unwrap();
        writer.publish().unwrap();
        let in_block = writer.position().0 % BLOCK;
        if (NEAR..BLOCK - NEAR).contains(&in_block) {
            continue;
        }
        if in_block < NEAR {
            after += 1;
        } else {
            before += 1;
        }
        let snapshot = directory.snapshot().unwrap();
        let found = numbers(&snapshot, source).unwrap();
        assert!(found.into_iter().eq(0..=number), "at {}", writer.position());
    }
    assert!(before >= 4 && after >= 4, "{before} before, {after} after");
    writer.close().unwrap();
}

/// CPU time of this thread. The kernel updates it when the thread yields.
fn cpu_ns() -> u64 {
    std::thread::yield_now();
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Runs on tmpfs, so that it measures the writer's own work without a disk.
// case Network and input: very many sources
#[test]
fn a_definition_costs_no_more_among_twenty_thousand_than_among_few() {
    let scene = Scene::at(tempfile::tempdir_in("/dev/shm").unwrap());
    let mut writer = scene.writer();
    let mut defined = 0;
    let mut define = |writer: &mut Writer, count: u64| {
        let began = cpu_ns();
        for _ in 0..count {
            let mut def = sources().remove(0);
            def.name = format!("request_{defined}");
            writer.define_source(&def).unwrap();
            defined += 1;
        }
        (cpu_ns() - began) / count
    };
    define(&mut writer, 100);
    let among_few = define(&mut writer, 300);
    define(&mut writer, 19_300);
    let among_many = define(&mut writer, 300);
    assert!(
        among_many < 4 * among_few,
        "{among_few} ns among few, {among_many} ns among many"
    );
    println!("{among_few} ns among few, {among_many} ns among many");
    writer.close().unwrap();
}
