//! What is reported of missing records: the ledger's own, gaps after lost staging, chunks that were found damaged.

use std::fs;
use std::path::Path;

use super::world::{Op, Spread, World, options};
use crate::error::Error;
use crate::format::PendingLoss;
use crate::ingest::Writer;
use crate::nodes::NodeId;
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::losses::missing::missing_runs;
use crate::query::{Directory, Loss, Poll, Snapshot, pending_since};
use crate::schema::{LossEncoder, LossReason, LossRecord, losses_source, parse_sources};
use crate::types::{ChunkNo, SourceId, TimeRange, Timestamp};

const CHUNK_BYTES: u64 = 4 << 10;

fn batch(seed: u64) -> Op {
    Op::Batch {
        source: 0,
        records: 500,
        spread: Spread::Few,
        seed,
    }
}

fn losses(snapshot: &Snapshot) -> Vec<Loss> {
    snapshot.losses(&Poll::never()).unwrap()
}

/// What a crash of the host leaves: all that is durable, and no staging.
fn lose_staging(world: &mut World) {
    world.writer = None;
    for entry in fs::read_dir(world.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
}

fn reopen(world: &mut World) {
    let dir = world.dir.path().join("loom");
    world.writer = Some(Writer::open(&dir, options(&world.dir)).unwrap());
}

fn sources(snapshot: &Snapshot) -> [SourceId; 2] {
    ["metric", "event"].map(|name| snapshot.source(name).unwrap().id)
}

/// Every chunk without a summary, one entry after the other.
fn naive_missing(snapshot: &Snapshot) -> Vec<(u64, bool)> {
    let logs = snapshot.logs();
    let mut reader = CachedNodes::new(logs.clone());
    (logs.first_chunk().0..logs.summarised_chunks().0)
        .filter_map(|chunk| {
            let entry = reader.entry(NodeId::summary(ChunkNo(chunk))).unwrap();
            (entry.node_bytes == 0).then_some((chunk, entry.damaged))
        })
        .collect()
}

fn found_missing(snapshot: &Snapshot) -> Vec<(u64, bool)> {
    missing_runs(snapshot.logs(), &Poll::never())
        .unwrap()
        .iter()
        .flat_map(|run| (0..run.chunks).map(|chunk| (run.first.0 + chunk, run.damaged)))
        .collect()
}

#[test]
fn where_nothing_is_missing_only_the_roots_are_looked_at() {
    let world = World::of(&[Op::Fill(64 * 70), batch(1)]);
    let snapshot = world.snapshot();
    assert_eq!(losses(&snapshot), []);
    let stats = snapshot.stats();
    // One root of level 2, six of level 1, and entries alone below those.
    assert!(stats.nodes_opened < 20, "{stats:?}");
    let [metric, event] = sources(&snapshot);
    for source in [metric, event] {
        snapshot
            .require_complete(source, TimeRange::ALL, &Poll::never())
            .unwrap();
    }
}

#[test]
fn recorded_losses_are_told_and_make_their_source_incomplete_in_their_time_alone() {
    let mut world = World::of(&[batch(1)]);
    let writer = world.writer();
    let id = writer.define_builtin_source(&losses_source()).unwrap();
    let mut encoder = LossEncoder::new().unwrap();
    let now = writer.now();
    let mut expected = Vec::new();
    for (source, from, records) in [
        (Some("metric"), now.0 - 100, Some(7)),
        (None, now.0 - 5000, None),
        (Some("raw"), now.0 - 10, Some(1)),
    ] {
        let mut payload = Vec::new();
        let loss = LossRecord {
            from: Timestamp(from),
            to: Timestamp(from + 5),
            source,
            reason: LossReason::Overload,
            records,
            bytes: records.map(|records| records * 8),
            detail: Some("full"),
        };
        encoder.encode(&loss, &mut payload).unwrap();
        writer.push(id, &payload).unwrap();
        expected.push(Loss {
            from: loss.from,
            to: loss.to,
            source: source.map(str::to_owned),
            stage: "log".to_owned(),
            reason: "overload".to_owned(),
            records,
            bytes: loss.bytes,
        });
    }
    writer.publish().unwrap();
    expected.sort_by_key(|loss| loss.from);
    let snapshot = world.snapshot();
    assert_eq!(losses(&snapshot), expected);

    let [metric, event] = sources(&snapshot);
    let complete = |source, first, last| {
        let range = TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        snapshot.require_complete(source, range, &Poll::never())
    };
    complete(metric, now.0 - 4994, now.0 - 101).unwrap();
    complete(metric, now.0 - 94, i64::MAX).unwrap();
    let error = complete(metric, now.0 - 95, i64::MAX).unwrap_err();
    assert!(matches!(error, Error::Incomplete { .. }));
    let text = error.to_string();
    assert!(
        text.contains("'metric'") && text.contains("7 records"),
        "{text}"
    );
    let error = complete(metric, i64::MIN, now.0 - 5000)
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown number"), "{error}");
    // An own time says nothing about arrival: whatever its source lost counts.
    complete(event, 5, 6).unwrap_err();
    complete(event, 6, 5).unwrap();
}

#[test]
fn what_the_kernel_lost_makes_a_source_with_own_time_incomplete_in_those_times_alone() {
    let mut world = World::of(&[batch(1)]);
    let writer = world.writer();
    let id = writer.define_builtin_source(&losses_source()).unwrap();
    let loss = LossRecord {
        from: Timestamp(1000),
        to: Timestamp(2000),
        source: Some("event"),
        reason: LossReason::BufferFull,
        records: Some(7),
        bytes: None,
        detail: None,
    };
    let mut payload = Vec::new();
    LossEncoder::new()
        .unwrap()
        .encode(&loss, &mut payload)
        .unwrap();
    writer.push(id, &payload).unwrap();
    writer.publish().unwrap();
    let snapshot = world.snapshot();
    let [_, event] = sources(&snapshot);
    let complete = |first, last| {
        let range = TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        snapshot.require_complete(event, range, &Poll::never())
    };
    complete(i64::MIN, 999).unwrap();
    complete(2001, i64::MAX).unwrap();
    for (first, last) in [(i64::MIN, 1000), (1500, 1500), (2000, i64::MAX)] {
        let error = complete(first, last).unwrap_err().to_string();
        assert!(error.contains("stage kernel"), "{error}");
    }
}

// G9
#[test]
fn a_pending_loss_has_the_name_of_a_source_that_is_defined_while_it_is_asked_for() {
    let mut world = World::of(&[batch(1)]);
    let early = world.snapshot();
    let [def] = parse_sources("[[source]]\nname = 'late'")
        .unwrap()
        .try_into()
        .unwrap();
    let late = world.writer().define_source(&def).unwrap();
    let pending = PendingLoss {
        source: Some(late),
        ..PendingLoss::UNKNOWN
    };
    world.writer().set_pending_losses(vec![pending]);
    assert!(early.catalog().source(late).is_none());
    let ledger = early.ledger().unwrap();
    assert_eq!(ledger.pending, [pending]);
    assert_eq!(ledger.catalog.source(late).unwrap().name, "late");
}

// G9
// case Crash: in a start, or in a stop, at any operation
#[test]
fn what_was_lost_with_staging_is_a_gap_between_the_records_around_it() {
    let mut world = World::of(&[Op::Fill(130), batch(1)]);
    world.writer().sync_durable().unwrap();
    let before = world.snapshot().newest_ts().unwrap().unwrap();
    lose_staging(&mut world);
    // A reader reports it before the next writer leaves it out.
    let dir = world.dir.path().join("loom");
    let foretold = losses(&Directory::open(&dir).unwrap().snapshot().unwrap());
    reopen(&mut world);
    let snapshot = world.snapshot();
    assert_eq!(losses(&snapshot), foretold);
    let [gap] = losses(&snapshot).try_into().unwrap();
    // Losses that were pending are gone with staging: the gap stands for them too.
    let pending = pending_since(Some(before));
    assert!(pending < before);
    assert_eq!((gap.from, gap.to), (pending, Timestamp::MAX));
    assert_eq!((&gap.source, gap.records, gap.bytes), (&None, None, None));
    assert_eq!(gap.stage, "crash");

    let id = world.sources[0];
    let after = world.writer().now();
    for seed in 0..40 {
        world.apply(&batch(seed));
    }
    world.apply(&Op::Publish);
    let snapshot = world.snapshot();
    let [gap] = losses(&snapshot).try_into().unwrap();
    assert_eq!(gap.from, pending);
    assert!(gap.to >= after && gap.to < snapshot.newest_ts().unwrap().unwrap());
    assert_eq!(found_missing(&snapshot), naive_missing(&snapshot));
    assert!(!naive_missing(&snapshot).is_empty());
    let complete = |first, last| {
        let range = TimeRange { first, last };
        snapshot.require_complete(id, range, &Poll::never())
    };
    complete(Timestamp::MIN, Timestamp(pending.0 - 1)).unwrap();
    complete(pending, pending).unwrap_err();
    complete(Timestamp(gap.to.0 + 1), Timestamp::MAX).unwrap();
    complete(before, before).unwrap_err();
    let error = complete(gap.to, gap.to).unwrap_err().to_string();
    assert!(error.contains("lost with staging"), "{error}");
}

// case Crash: while a segment is created
#[test]
fn a_directory_that_lost_staging_before_its_first_source_holds_a_gap_and_is_sound() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("loom");
    drop(Writer::open(&dir, options(&place)).unwrap());
    for entry in fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    let writer = Writer::open(&dir, options(&place)).unwrap();
    let told = |dir: &Path| losses(&Directory::open(dir).unwrap().snapshot().unwrap());
    assert_eq!(told(&dir).len(), 1);
    writer.close().unwrap();
    assert_eq!(told(&dir).len(), 1);
    assert!(crate::check::check(&dir).unwrap().is_sound());
}

// G7
#[test]
fn gaps_of_several_crashes_and_damaged_chunks_are_each_told() {
    let mut world = World::of(&[Op::Fill(100)]);
    for fill in [300, 5, 1200] {
        world.writer().sync_durable().unwrap();
        lose_staging(&mut world);
        reopen(&mut world);
        world.apply(&Op::Fill(fill));
    }
    world.close();
    let dir = world.dir.path().join("loom");
    let path = dir.join("records").join("00000000000000000000.0");
    let mut bytes = fs::read(&path).unwrap();
    for chunk in [3, 4, 77] {
        bytes[chunk * CHUNK_BYTES as usize + 20] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    Writer::rebuild(&dir, options(&world.dir))
        .unwrap()
        .close()
        .unwrap();

    let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
    assert_eq!(found_missing(&snapshot), naive_missing(&snapshot));
    let told = losses(&snapshot);
    let damaged: Vec<&str> = told
        .iter()
        .filter(|loss| loss.stage == "log")
        .map(|loss| loss.reason.as_str())
        .collect();
    assert_eq!(
        damaged,
        [
            "damaged from address 12288 to 20480",
            "damaged from address 315392 to 319488"
        ]
    );
    assert_eq!(told.iter().filter(|loss| loss.stage == "crash").count(), 3);
    assert!(told.iter().all(|loss| loss.from <= loss.to));
    let report = crate::check::check(&dir).unwrap();
    assert_eq!((report.is_sound(), report.gap_chunks > 0), (false, true));
}

/// Has each index segment removed, cut and blanked in turn, asks, and puts it back.
fn with_each_index_damage(dir: &Path, mut ask: impl FnMut(&str, &Path)) {
    for log in ["chunks", "times"] {
        for entry in fs::read_dir(dir.join(log)).unwrap() {
            let file = entry.unwrap().path();
            let sound = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            ask(log, &file);
            for eighths in 0..8 {
                let kept = sound.len() * eighths / 8;
                fs::write(&file, &sound[..kept]).unwrap();
                ask(log, &file);
                let mut blanked = sound.clone();
                blanked[kept..].fill(0);
                fs::write(&file, &blanked).unwrap();
                ask(log, &file);
            }
            fs::write(&file, &sound).unwrap();
        }
    }
}

fn record_loss(world: &mut World, records: u64) {
    let writer = world.writer();
    let id = writer.define_builtin_source(&losses_source()).unwrap();
    let (now, mut payload) = (writer.now(), Vec::new());
    let loss = LossRecord {
        from: now,
        to: now,
        source: Some("metric"),
        reason: LossReason::Overload,
        records: Some(records),
        bytes: None,
        detail: None,
    };
    LossEncoder::new()
        .unwrap()
        .encode(&loss, &mut payload)
        .unwrap();
    writer.push(id, &payload).unwrap();
}

// G7
#[test]
fn damaged_index_segments_change_no_loss_and_no_completeness() {
    let mut world = World::of(&[Op::Fill(150)]);
    for records in [7, 8] {
        record_loss(&mut world, records);
        world.apply(&Op::Fill(70));
        world.apply(&batch(records));
    }
    world.close();
    let dir = world.dir.path().join("loom");
    let before = losses(&Directory::open(&dir).unwrap().snapshot().unwrap());
    assert_eq!(before.len(), 2);
    let mut asked = 0;
    with_each_index_damage(&dir, |_, file| {
        let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
        assert_eq!(losses(&snapshot), before, "{}", file.display());
        let [metric, event] = sources(&snapshot);
        let complete = |source| snapshot.require_complete(source, TimeRange::ALL, &Poll::never());
        assert!(matches!(complete(metric), Err(Error::Incomplete { .. })));
        complete(event).unwrap();
        asked += 1;
    });
    assert!(asked >= 34, "{asked}");
}

#[test]
fn where_gaps_are_a_damaged_index_tells_them_or_names_what_it_cannot_tell() {
    let mut world = World::of(&[Op::Fill(100)]);
    record_loss(&mut world, 9);
    for fill in [300, 5] {
        world.writer().sync_durable().unwrap();
        lose_staging(&mut world);
        reopen(&mut world);
        world.apply(&Op::Fill(fill));
    }
    world.close();
    let dir = world.dir.path().join("loom");
    let before = losses(&Directory::open(&dir).unwrap().snapshot().unwrap());
    assert_eq!(before.len(), 3);
    let (mut told, mut untold) = (0, 0);
    with_each_index_damage(&dir, |log, file| {
        let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
        match snapshot.losses(&Poll::never()) {
            Ok(losses) => {
                assert_eq!(losses, before, "{}", file.display());
                told += 1;
            }
            // Of a gap whose entry is gone nothing is left that could say so.
            Err(error) => {
                assert!(log == "times" && error.is_damage(), "{error}");
                assert!(error.to_string().contains("records"), "{error}");
                untold += 1;
            }
        }
    });
    assert!(told >= 17 && untold > 0, "{told} {untold}");
}

#[test]
fn folders_in_place_of_segments_cost_their_records_and_no_start() {
    let mut world = World::of(&[Op::Fill(700)]);
    world.close();
    let dir = world.dir.path().join("loom");
    let displaced = [("records", 1 << 20), ("chunks", 0), ("times", 0)]
        .map(|(log, first)| dir.join(log).join(format!("{first:020}.0")));
    for segment in &displaced {
        fs::remove_file(segment).unwrap();
        fs::create_dir(segment).unwrap();
    }
    for start in [Writer::open, Writer::rebuild] {
        start(&dir, options(&world.dir)).unwrap().close().unwrap();
        let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
        let damaged: Vec<(u64, bool)> = (256..512).map(|chunk| (chunk, true)).collect();
        assert_eq!(found_missing(&snapshot), damaged);
        assert_eq!(naive_missing(&snapshot), damaged);
        let report = crate::check::check(&dir).unwrap();
        // Each by its bytes and by its entry.
        assert_eq!(report.damage_count, 2 * 256);
    }
    assert!(displaced.iter().all(|segment| segment.is_dir()));
}
