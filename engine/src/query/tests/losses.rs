//! The reports of missing records: the ledger's own, gaps after lost staging, and chunks that were found damaged.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::nodes::NodeId;
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::losses::missing::missing_runs;
use crate::query::{Loss, Poll, Snapshot, pending_since};
use crate::schema::{LossEncoder, LossReason, LossRecord, losses_source, parse_sources};
use crate::testkit::Scene;
use crate::testkit::world::{Op, Spread, World};
use crate::types::{ChunkNo, LogKind, SourceId, TimeRange, Timestamp};

fn batch(seed: u64) -> Op {
    Op::batch(0, 500, Spread::Few, seed)
}

fn losses(snapshot: &Snapshot) -> Vec<Loss> {
    snapshot.losses(&Poll::never()).unwrap()
}

fn sources(snapshot: &Snapshot) -> [SourceId; 2] {
    ["metric", "event"].map(|name| snapshot.source(name).unwrap().id)
}

fn record_losses(world: &mut World, losses: &[LossRecord<'_>]) {
    let writer = world.writer();
    let id = writer.define_builtin_source(&losses_source()).unwrap();
    let mut encoder = LossEncoder::new().unwrap();
    for loss in losses {
        let mut payload = Vec::new();
        encoder.encode(loss, &mut payload).unwrap();
        writer.push(id, &payload).unwrap();
    }
    writer.publish().unwrap();
}

/// Whether a source has all its records of a time.
fn complete(snapshot: &Snapshot, source: SourceId, first: i64, last: i64) -> Result<()> {
    let [first, last] = [first, last].map(Timestamp);
    snapshot.require_complete(source, TimeRange { first, last }, &Poll::never())
}

/// Every chunk without a summary, found by reading one entry after the other.
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
    // One root of level 2, six of level 1, and below those only entries.
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
    let now = world.writer().now();
    let lost = [
        (Some("metric"), now.0 - 100, Some(7)),
        (None, now.0 - 5000, None),
        (Some("raw"), now.0 - 10, Some(1)),
    ];
    let lost = lost.map(|(source, from, records)| LossRecord {
        from: Timestamp(from),
        to: Timestamp(from + 5),
        source,
        reason: LossReason::Overload,
        records,
        bytes: records.map(|records| records * 8),
        detail: Some("full"),
    });
    record_losses(&mut world, &lost);
    let mut expected = lost.map(|loss| Loss {
        from: loss.from,
        to: loss.to,
        source: loss.source.map(str::to_owned),
        stage: "log".to_owned(),
        reason: "overload".to_owned(),
        records: loss.records,
        bytes: loss.bytes,
    });
    expected.sort_by_key(|loss| loss.from);
    let snapshot = world.snapshot();
    assert_eq!(losses(&snapshot), expected);

    let [metric, event] = sources(&snapshot);
    let complete = |source, first, last| complete(&snapshot, source, first, last);
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
    // An own time says nothing about arrival, so any loss of its source counts.
    complete(event, 5, 6).unwrap_err();
    complete(event, 6, 5).unwrap();
}

#[test]
fn what_the_kernel_lost_makes_a_source_with_own_time_incomplete_in_those_times_alone() {
    let mut world = World::of(&[batch(1)]);
    let loss = LossRecord {
        from: Timestamp(1000),
        to: Timestamp(2000),
        source: Some("event"),
        reason: LossReason::BufferFull,
        records: Some(7),
        bytes: None,
        detail: None,
    };
    record_losses(&mut world, &[loss]);
    let snapshot = world.snapshot();
    let [_, event] = sources(&snapshot);
    let complete = |first, last| complete(&snapshot, event, first, last);
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
    world.lose_staging();
    // A reader reports the gap before the next writer skips it.
    let foretold = world.scene.losses();
    world.reopen();
    let snapshot = world.snapshot();
    assert_eq!(losses(&snapshot), foretold);
    let [gap] = losses(&snapshot).try_into().unwrap();
    // Losses that were pending are lost with staging, so the gap stands for them too.
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
    let complete = |first, last| complete(&snapshot, id, first, last);
    complete(i64::MIN, pending.0 - 1).unwrap();
    complete(pending.0, pending.0).unwrap_err();
    complete(gap.to.0 + 1, i64::MAX).unwrap();
    complete(before.0, before.0).unwrap_err();
    let error = complete(gap.to.0, gap.to.0).unwrap_err().to_string();
    assert!(error.contains("lost with staging"), "{error}");
}

// case Crash: while a segment is created
#[test]
fn a_directory_that_lost_staging_before_its_first_source_holds_a_gap_and_is_sound() {
    let scene = Scene::new();
    drop(scene.writer());
    scene.lose_staging();
    let writer = scene.writer();
    assert_eq!(scene.losses().len(), 1);
    writer.close().unwrap();
    assert_eq!(scene.losses().len(), 1);
    assert!(scene.is_sound());
}

// G7
#[test]
fn gaps_of_several_crashes_and_damaged_chunks_are_each_told() {
    let mut world = World::of(&[Op::Fill(100)]);
    for fill in [300, 5, 1200] {
        world.writer().sync_durable().unwrap();
        world.lose_staging();
        world.reopen();
        world.apply(&Op::Fill(fill));
    }
    world.close();
    let path = world.scene.segment(LogKind::Records, 0);
    for unit in [1, 3] {
        world.scene.flip_unit(&path, unit);
    }
    world.scene.rebuild();

    let snapshot = world.scene.snapshot();
    assert_eq!(found_missing(&snapshot), naive_missing(&snapshot));
    let listed = losses(&snapshot);
    let damaged: Vec<&str> = listed
        .iter()
        .filter(|loss| loss.stage == "log")
        .map(|loss| loss.reason.as_str())
        .collect();
    assert_eq!(
        damaged,
        [
            "damaged from address 65536 to 131072",
            "damaged from address 196608 to 262144"
        ]
    );
    assert_eq!(
        listed.iter().filter(|loss| loss.stage == "crash").count(),
        3
    );
    assert!(listed.iter().all(|loss| loss.from <= loss.to));
    let report = world.scene.report();
    assert_eq!((report.is_sound(), report.gap_chunks > 0), (false, true));
}

/// Removes, cuts and blanks each index segment in turn, calls `ask` with a reader that opens the directory then, and restores the segment.
fn with_each_index_damage(scene: &Scene, mut ask: impl FnMut(LogKind, &Path, Snapshot)) {
    for log in [LogKind::Chunks, LogKind::Times] {
        for file in scene.segments(log) {
            let sound = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            ask(log, &file, scene.snapshot());
            for eighths in 0..8 {
                let kept = sound.len() * eighths / 8;
                fs::write(&file, &sound[..kept]).unwrap();
                ask(log, &file, scene.snapshot());
                let mut blanked = sound.clone();
                blanked[kept..].fill(0);
                fs::write(&file, &blanked).unwrap();
                ask(log, &file, scene.snapshot());
            }
            fs::write(&file, &sound).unwrap();
        }
    }
}

/// This many records of `metric` are lost now.
fn overload(world: &mut World, records: u64) {
    let now = world.writer().now();
    let loss = LossRecord {
        from: now,
        to: now,
        source: Some("metric"),
        reason: LossReason::Overload,
        records: Some(records),
        bytes: None,
        detail: None,
    };
    record_losses(world, &[loss]);
}

// G7
#[test]
fn damaged_index_segments_change_no_loss_and_no_completeness() {
    let mut world = World::of(&[Op::Fill(150)]);
    for records in [7, 8] {
        overload(&mut world, records);
        world.apply(&Op::Fill(70));
        world.apply(&batch(records));
    }
    world.close();
    let before = world.scene.losses();
    assert_eq!(before.len(), 2);
    let mut asked = 0;
    with_each_index_damage(&world.scene, |_, file, snapshot| {
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
    overload(&mut world, 9);
    for fill in [300, 5] {
        world.writer().sync_durable().unwrap();
        world.lose_staging();
        world.reopen();
        world.apply(&Op::Fill(fill));
    }
    world.close();
    let before = world.scene.losses();
    assert_eq!(before.len(), 3);
    let (mut listed, mut unlisted) = (0, 0);
    with_each_index_damage(&world.scene, |log, file, snapshot| {
        match snapshot.losses(&Poll::never()) {
            Ok(losses) => {
                assert_eq!(losses, before, "{}", file.display());
                listed += 1;
            }
            // Nothing is left that could report a gap whose entry is lost.
            Err(error) => {
                assert!(log == LogKind::Times && error.is_damage(), "{error}");
                assert!(error.to_string().contains("records"), "{error}");
                unlisted += 1;
            }
        }
    });
    assert!(listed >= 17 && unlisted > 0, "{listed} {unlisted}");
}

#[test]
fn folders_in_place_of_segments_cost_their_records_and_no_start() {
    let mut world = World::of(&[Op::Fill(700)]);
    world.close();
    let scene = &world.scene;
    let displaced = [
        (LogKind::Records, 1 << 20),
        (LogKind::Chunks, 0),
        (LogKind::Times, 0),
    ]
    .map(|(log, first)| scene.segment(log, first));
    for segment in &displaced {
        fs::remove_file(segment).unwrap();
        fs::create_dir(segment).unwrap();
    }
    for start in [Scene::restart, Scene::rebuild] {
        start(scene);
        let snapshot = scene.snapshot();
        let damaged: Vec<(u64, bool)> = (256..512).map(|chunk| (chunk, true)).collect();
        assert_eq!(found_missing(&snapshot), damaged);
        assert_eq!(naive_missing(&snapshot), damaged);
        // Each chunk counts by its bytes and by its entry.
        assert_eq!(scene.report().damage_count, 2 * 256);
    }
    assert!(displaced.iter().all(|segment| segment.is_dir()));
}
