//! Retention: whole segments are removed, the three logs begin at one point, and all other records stay sound and exact.

use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::ingest::{Limits, Shortfall, Writer};
use crate::log::Durability;
use crate::query::{Ask, Poll, Predicate, Scan, Snapshot};
use crate::schema::SourceDef;
use crate::testkit::asked::{numbers, scan_of};
use crate::testkit::scene::{BLOCK, SEGMENT};
use crate::testkit::{Scene, wait_until};
use crate::types::{LogKind, SourceId, Timestamp};

/// With its header it takes 32 bytes, so a chunk of 4 KiB holds 127 records.
const PAYLOAD_BYTES: usize = 24;

const SOON: Durability = Durability::Interval(Duration::from_millis(20));

/// A directory with one source, and its writer.
fn begin(durability: Durability) -> (Scene, Writer, SourceId) {
    let mut scene = Scene::new();
    scene.options.log.segment_bytes = [SEGMENT, BLOCK, BLOCK].into();
    scene.options.log.durability = durability;
    let mut writer = scene.writer();
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
    (scene, writer, source)
}

/// Pushes numbered records from `from` to `to`, and evicts now and then as a daemon would.
fn push(writer: &mut Writer, source: SourceId, from: u64, to: u64, limits: &Limits) -> u64 {
    let mut segments = 0;
    for number in from..to {
        // These bytes behind the number do not shrink as columns.
        let mixed = [3, 7].map(|seed: u64| (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed));
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        payload[8..16].copy_from_slice(&mixed[0].to_le_bytes());
        payload[16..].copy_from_slice(&mixed[1].to_le_bytes());
        writer.push(source, &payload).unwrap();
        if number % 500 == 0 {
            writer.publish().unwrap();
            segments += writer.evict(limits).unwrap().segments;
        }
    }
    writer.publish().unwrap();
    segments
}

/// The bytes of the existing segments.
fn disk_bytes(scene: &Scene) -> u64 {
    let files = LogKind::ALL.map(|log| scene.segments(log)).concat();
    let lengths = files.iter().flat_map(std::fs::metadata);
    lengths.map(|found| found.len()).sum()
}

/// Checks that the newest records are there without a hole, in a directory that `check` finds sound.
fn assert_sound(scene: &Scene, source: SourceId, written: u64) -> u64 {
    let left = numbers(&scene.snapshot(), source).unwrap();
    let oldest = left[0];
    assert!(left.iter().copied().eq(oldest..written));
    let totals = scene.snapshot().source_totals(source).unwrap();
    assert_eq!(totals.records, written - oldest);
    let report = scene.report();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.gap_chunks, 0);
    assert_eq!(scene.losses(), []);
    oldest
}

// G13
#[test]
fn bytes_stay_within_the_limit_and_what_is_left_is_whole_live_killed_stopped_and_rebuilt() {
    let limits = Limits {
        bytes_max: Some(10 * SEGMENT),
        ..Limits::default()
    };
    let (scene, mut writer, source) = begin(SOON);
    let rare = writer.define_source(&SourceDef::new("rare")).unwrap();
    writer.push(rare, &7u64.to_le_bytes()).unwrap();
    let mut written = 0;
    for round in 0..4u64 {
        // In all, more than 8192 chunks complete roll-ups of the second level whose first children were removed before a restart.
        let to = written + 270_000;
        assert!(push(&mut writer, source, written, to, &limits) > 0);
        written = to;
        wait_until("evicted segments go", || {
            writer.evict(&limits).unwrap();
            disk_bytes(&scene) <= 10 * SEGMENT
        });
        let oldest = assert_sound(&scene, source, written);
        assert!(oldest > written - 20 * SEGMENT / 32 && oldest < written - 2 * SEGMENT / 32);
        assert!(numbers(&scene.snapshot(), rare).unwrap().is_empty());
        match round {
            0 => drop(writer),
            1 => writer.close().unwrap(),
            2 => {
                drop(writer);
                scene.rebuild();
            }
            _ => {
                writer.close().unwrap();
                break;
            }
        }
        assert_eq!(assert_sound(&scene, source, written), oldest);
        writer = scene.writer();
        // The chain of a source begins again once all of its records are removed.
        writer.push(rare, &round.to_le_bytes()).unwrap();
        writer.publish().unwrap();
        assert_eq!(numbers(&scene.snapshot(), rare).unwrap(), [round]);
    }
}

// case Concurrency: retention under a long scan
#[test]
fn a_scan_gets_an_error_when_its_segments_are_removed_and_pins_no_disk() {
    let (scene, mut writer, source) = begin(SOON);
    push(&mut writer, source, 0, 60_000, &Limits::default());
    writer.sync_durable().unwrap();
    let snapshot = scene.snapshot();
    let mut seen = 0;
    let mut free_before = None;
    let scan = Scan::new(&snapshot, scan_of(source, Predicate::All)).unwrap();
    let mut reader = scan.reader(Ask::all());
    let error = loop {
        let Some(chunk) = scan.next(&Poll::never()).unwrap() else {
            panic!("the scan never met an evicted segment");
        };
        match reader.read(chunk) {
            Ok(rows) => seen += rows.count(),
            Err(error) => break error,
        }
        if free_before.is_none() {
            free_before = Some(open_bytes(&scene.dir()));
            let full = Limits {
                disk_is_full: true,
                ..Limits::default()
            };
            for segments in 1..4 {
                wait_until("a segment goes", || {
                    writer.evict(&full).unwrap().segments == 1
                });
                wait_until("its file is gone", || {
                    let gone = segments * SEGMENT - SEGMENT;
                    !scene.segment(LogKind::Records, gone).exists()
                });
            }
        }
    };
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    let message = error.to_string();
    let named = scene.dir().display().to_string();
    assert!(
        message.starts_with(&named) && message.contains("evicted"),
        "{message}"
    );
    assert!(message.contains("max_bytes"), "{message}");
    assert!(seen > 0 && seen < 3 * SEGMENT as usize / 32);

    // Asked again, it answers without them.
    let count = |snapshot: &Snapshot| -> Result<usize, Error> {
        let scan = Scan::new(snapshot, scan_of(source, Predicate::All))?;
        let mut reader = scan.reader(Ask::all());
        let mut rows = 0;
        while let Some(chunk) = scan.next(&Poll::never())? {
            rows += reader.read(chunk)?.count();
        }
        Ok(rows)
    };
    let mut kept = snapshot.clone();
    let rows = kept.ask_retained(count).unwrap();
    assert!(rows > 0 && rows < 60_000, "{rows}");
    assert_eq!(kept.position(), snapshot.position());
    assert!(kept.begin() > snapshot.begin());
    let mut asked = 0;
    let always = snapshot.clone().ask_retained(|_| -> Result<(), Error> {
        asked += 1;
        count(&snapshot).map(drop)
    });
    assert!(
        matches!(always, Err(Error::Evicted { .. })) && asked == 3,
        "{asked}"
    );
    // The scan still has the first segment's file open, but the file holds no bytes any more.
    assert!(free_before.unwrap() >= SEGMENT / 4);
    assert_eq!(open_bytes(&scene.dir()), 0);
}

/// Bytes on the disk of the record segments of the first megabyte that this process has open.
fn open_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let below: Vec<String> = (0..3)
        .map(|at| format!("/{:020}.0", at * SEGMENT))
        .collect();
    let prefix = dir.join("records").display().to_string();
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| {
                let target = target.display().to_string();
                target.starts_with(&prefix) && below.iter().any(|name| target.contains(name))
            })
        })
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .map(|found| found.blocks() * 512)
        .max()
        .unwrap_or(0)
}

#[test]
fn segments_go_when_their_last_record_is_too_old_and_the_one_under_way_stays() {
    let (scene, mut writer, source) = begin(Durability::None);
    push(&mut writer, source, 0, 30_000, &Limits::default());
    writer.sync_durable().unwrap();
    let of_age = |age| Limits {
        age_max: Some(age),
        ..Limits::default()
    };
    let evicted = writer.evict(&of_age(Duration::from_secs(3600))).unwrap();
    assert_eq!(evicted.segments, 0);
    let turn = writer.now();
    push(&mut writer, source, 30_000, 60_000, &Limits::default());
    writer.sync_durable().unwrap();
    let age = Duration::from_nanos((writer.now().0 - turn.0) as u64);
    assert!(writer.evict(&of_age(age)).unwrap().segments >= 3);
    let left = scene.snapshot().source_totals(source).unwrap();
    // No younger record is removed, and at most a segment of older ones is left.
    let younger = numbers(&scene.snapshot(), source).unwrap();
    assert!(younger.contains(&30_000) && younger.contains(&59_999));
    assert!(younger[0] >= 30_000 - 2 * SEGMENT / 32);
    assert!(left.first_ts.unwrap() > Timestamp(0));
    // Even with an age of zero, the last segment stays.
    writer.evict(&of_age(Duration::ZERO)).unwrap();
    let left = numbers(&scene.snapshot(), source).unwrap();
    assert!(left.contains(&59_999));
    writer.close().unwrap();
    assert!(scene.is_sound());
}

#[test]
fn retention_reports_that_it_falls_short_of_its_limit() {
    let (scene, mut writer, source) = begin(Durability::None);
    push(&mut writer, source, 0, 100, &Limits::default());
    let limits = Limits {
        bytes_max: Some(1),
        disk_is_full: true,
        ..Limits::default()
    };
    let eviction = writer.evict(&limits).unwrap();
    assert_eq!(
        (eviction.segments, eviction.shortfall),
        (0, Some(Shortfall::Current))
    );
    assert_eq!(numbers(&scene.snapshot(), source).unwrap().len(), 100);
}

// G13
#[test]
fn a_gap_takes_no_bytes_and_costs_no_records() {
    const ROUNDS: u64 = 8;
    let (scene, mut writer, source) = begin(Durability::None);
    for round in 0..ROUNDS {
        push(&mut writer, source, round, round + 1, &Limits::default());
        writer.sync_durable().unwrap();
        drop(writer);
        scene.lose_staging();
        writer = scene.writer();
    }
    assert!(writer.position().0 >= ROUNDS * SEGMENT);
    wait_until("what is counted is there", || {
        writer.segment_bytes() == disk_bytes(&scene)
    });
    let limits = Limits {
        bytes_max: Some(writer.segment_bytes() + 2 * SEGMENT),
        ..Limits::default()
    };
    assert_eq!(writer.evict(&limits).unwrap().segments, 0);
    let found = numbers(&scene.snapshot(), source).unwrap();
    assert!(found.into_iter().eq(0..ROUNDS));
}

// case Concurrency: retention under a long scan
#[test]
fn a_check_beside_retention_finds_no_damage() {
    let (scene, mut writer, source) = begin(SOON);
    let rare = writer.define_source(&SourceDef::new("rare")).unwrap();
    let limits = Limits {
        bytes_max: Some(8 * SEGMENT),
        ..Limits::default()
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut checks = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let report = scene.report();
                assert!(report.is_sound(), "{report:?}");
                checks += 1;
            }
            checks
        });
        for round in 0..40 {
            writer.push(rare, &[1]).unwrap();
            let from = round * 20_000;
            push(&mut writer, source, from, from + 20_000, &limits);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(checks.join().unwrap() > 1);
    });
}

// case Corruption: damaged index logs at a start
#[test]
fn a_damaged_time_entry_stops_no_eviction() {
    // The damaged entry is that of the first chunk of the second segment, alone and with all earlier ones.
    for damaged in [65..66, 0..66] {
        let (scene, mut writer, source) = begin(Durability::None);
        push(&mut writer, source, 0, 60_000, &Limits::default());
        writer.close().unwrap();
        scene.change(&scene.segment(LogKind::Times, 0), |times| {
            damaged
                .clone()
                .for_each(|entry| times[48 * entry + 20] ^= 1);
        });
        let mut writer = scene.writer();
        let limits = Limits {
            bytes_max: Some(writer.bytes_min() + 2 * SEGMENT),
            ..Limits::default()
        };
        let evicted = push(&mut writer, source, 60_000, 70_000, &limits);
        assert!(evicted >= 2, "{damaged:?}: {evicted} segments");
        assert!(!writer.is_larger_than(limits.bytes_max), "{damaged:?}");
        assert_sound(&scene, source, 70_000);
    }
}
