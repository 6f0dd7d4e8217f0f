//! Retention: whole segments go, the three logs begin at one point, and everything that is left stays sound and exact.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loom_engine::check::check;
use loom_engine::ingest::{Limits, Shortfall, Writer, WriterOptions};
use loom_engine::log::{Durability, LogOptions};
use loom_engine::query::{Directory, Poll, Snapshot, raw_scan};
use loom_engine::schema::SourceDef;
use loom_engine::{Error, SourceId, TimeRange, Timestamp};

const SEGMENT: u64 = 256 << 10;
/// With its header, 32 bytes: 127 records to a chunk of 4 KiB.
const PAYLOAD_BYTES: usize = 24;

struct Scene {
    root: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("loom")
    }

    fn options(&self, durability: Durability) -> WriterOptions {
        WriterOptions {
            log: LogOptions {
                chunk_bytes: 4096,
                block_bytes: 64 << 10,
                segment_bytes: [SEGMENT, 64 << 10, 64 << 10].into(),
                staging: Some(self.root.path().to_owned()),
                durability,
                group: None,
            },
            accept_clock: false,
            ..WriterOptions::default()
        }
    }

    fn open(&self, durability: Durability) -> Writer {
        Writer::open(&self.dir(), self.options(durability)).unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        Directory::open(&self.dir()).unwrap().snapshot().unwrap()
    }
}

/// Numbered records from `from` to `to`; evicts as a daemon would, now and then.
fn push(writer: &mut Writer, source: SourceId, from: u64, to: u64, limits: &Limits) -> u64 {
    let mut segments = 0;
    for number in from..to {
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        writer.push(source, &payload).unwrap();
        if number % 500 == 0 {
            writer.publish().unwrap();
            segments += writer.evict(limits).unwrap().segments;
        }
    }
    writer.publish().unwrap();
    segments
}

/// The numbers of a source's records, newest first.
fn numbers(snapshot: &Snapshot, source: SourceId) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    raw_scan(snapshot, source, TimeRange::ALL, &Poll::never(), |record| {
        numbers.push(u64::from_le_bytes(*record.payload.first_chunk().unwrap()));
        ControlFlow::Continue(())
    })?;
    Ok(numbers)
}

/// Bytes of the segments that there are.
fn disk_bytes(dir: &Path) -> u64 {
    ["records", "chunks", "times"]
        .iter()
        .flat_map(|log| std::fs::read_dir(dir.join(log)).unwrap())
        .map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len()))
        .sum()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is left: the newest records without a hole, in a directory that `check` finds sound.
fn assert_sound(scene: &Scene, source: SourceId, written: u64) -> u64 {
    let left = numbers(&scene.snapshot(), source).unwrap();
    let oldest = *left.last().unwrap();
    assert!(left.iter().copied().eq((oldest..written).rev()));
    let totals = scene.snapshot().source_totals(source).unwrap();
    assert_eq!(totals.records, written - oldest);
    let report = check(&scene.dir()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.gap_chunks, 0);
    assert_eq!(scene.snapshot().losses(&Poll::never()).unwrap(), []);
    oldest
}

// G13
#[test]
fn bytes_stay_within_the_limit_and_what_is_left_is_whole_live_killed_stopped_and_rebuilt() {
    let limits = Limits {
        bytes_max: Some(10 * SEGMENT),
        ..Limits::default()
    };
    let scene = Scene::new();
    let mut writer = scene.open(Durability::Interval(Duration::from_millis(20)));
    let rare = writer.define_source(&SourceDef::new("rare")).unwrap();
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
    writer.push(rare, &7u64.to_le_bytes()).unwrap();
    let mut written = 0;
    for round in 0..4u64 {
        // In all more than 8192 chunks: roll-ups of the second level are completed whose first children went before a restart.
        let to = written + 270_000;
        assert!(push(&mut writer, source, written, to, &limits) > 0);
        written = to;
        wait_until("evicted segments go", || {
            writer.evict(&limits).unwrap();
            disk_bytes(&scene.dir()) <= 10 * SEGMENT
        });
        let oldest = assert_sound(&scene, source, written);
        assert!(oldest > written - 10 * SEGMENT / 32 && oldest < written - 2 * SEGMENT / 32);
        assert!(numbers(&scene.snapshot(), rare).unwrap().is_empty());
        match round {
            0 => drop(writer),
            1 => writer.close().unwrap(),
            2 => {
                drop(writer);
                let options = scene.options(Durability::None);
                Writer::rebuild(&scene.dir(), options)
                    .unwrap()
                    .close()
                    .unwrap();
            }
            _ => {
                writer.close().unwrap();
                break;
            }
        }
        assert_eq!(assert_sound(&scene, source, written), oldest);
        writer = scene.open(Durability::None);
        // The chain of a source all of whose records went begins again.
        writer.push(rare, &round.to_le_bytes()).unwrap();
        writer.publish().unwrap();
        assert_eq!(numbers(&scene.snapshot(), rare).unwrap(), [round]);
    }
}

// case Concurrency: retention under a long scan
#[test]
fn a_scan_whose_segments_go_is_told_so_and_pins_no_disk() {
    let scene = Scene::new();
    let mut writer = scene.open(Durability::Interval(Duration::from_millis(20)));
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
    push(&mut writer, source, 0, 60_000, &Limits::default());
    writer.sync_durable().unwrap();
    let snapshot = scene.snapshot();
    let mut seen = 0;
    let mut free_before = None;
    let spec = loom_engine::query::ScanSpec {
        source,
        after: loom_engine::Address::ZERO,
        exact: loom_engine::query::Predicate::All,
        prune: loom_engine::query::Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = loom_engine::query::Scan::new(&snapshot, spec).unwrap();
    let mut reader = scan.reader();
    let error = loop {
        let Some(chunk) = scan.next(&Poll::never()).unwrap() else {
            panic!("the scan never met an evicted segment");
        };
        match reader.read(chunk) {
            Ok(rows) => seen += rows.rows.len(),
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
                    !scene
                        .dir()
                        .join("records")
                        .join(format!("{gone:020}.0"))
                        .exists()
                });
            }
        }
    };
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    let told = error.to_string();
    let named = scene.dir().display().to_string();
    assert!(
        told.starts_with(&named) && told.contains("evicted"),
        "{told}"
    );
    assert!(told.contains("max_bytes"), "{told}");
    assert!(seen > 0 && seen < 3 * SEGMENT as usize / 32);
    // The scan still has the first segment's file open, and it holds nothing any more.
    assert!(free_before.unwrap() >= SEGMENT);
    assert_eq!(open_bytes(&scene.dir()), 0);
}

/// Bytes on the disk of the segments of the record log that this process has open to read: those of its first megabyte.
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
    let scene = Scene::new();
    let mut writer = scene.open(Durability::None);
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
    push(&mut writer, source, 0, 30_000, &Limits::default());
    writer.sync_durable().unwrap();
    let of_age = |age| Limits {
        age_max: Some(age),
        ..Limits::default()
    };
    assert_eq!(
        writer
            .evict(&of_age(Duration::from_secs(3600)))
            .unwrap()
            .segments,
        0
    );
    let turn = writer.now();
    push(&mut writer, source, 30_000, 60_000, &Limits::default());
    writer.sync_durable().unwrap();
    let age = Duration::from_nanos((writer.now().0 - turn.0) as u64);
    assert!(writer.evict(&of_age(age)).unwrap().segments >= 3);
    let left = scene.snapshot().source_totals(source).unwrap();
    // Nothing younger is gone, and of what is older at most a segment is left.
    let younger = numbers(&scene.snapshot(), source).unwrap();
    assert!(younger.contains(&30_000) && younger.contains(&59_999));
    assert!(*younger.last().unwrap() >= 30_000 - 2 * SEGMENT / 32);
    assert!(left.first_ts.unwrap() > Timestamp(0));
    // All of it is older than nothing: the last segment stays all the same.
    writer.evict(&of_age(Duration::ZERO)).unwrap();
    assert!(
        numbers(&scene.snapshot(), source)
            .unwrap()
            .contains(&59_999)
    );
    writer.close().unwrap();
    let report = check(&scene.dir()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn what_cannot_go_is_told_to_fall_short() {
    let scene = Scene::new();
    let mut writer = scene.open(Durability::None);
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
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

/// As a loss of power: the process dies, and staging with it.
fn lose_staging(scene: &Scene, writer: Writer) {
    drop(writer);
    for entry in std::fs::read_dir(scene.root.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

// G13
#[test]
fn a_gap_takes_no_bytes_and_costs_no_records() {
    const ROUNDS: u64 = 8;
    let scene = Scene::new();
    for round in 0..ROUNDS {
        let mut writer = scene.open(Durability::None);
        let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
        push(&mut writer, source, round, round + 1, &Limits::default());
        writer.sync_durable().unwrap();
        lose_staging(&scene, writer);
    }
    let mut writer = scene.open(Durability::None);
    assert!(writer.position().0 >= ROUNDS * SEGMENT);
    wait_until("what is counted is there", || {
        writer.segment_bytes() == disk_bytes(&scene.dir())
    });
    let limits = Limits {
        bytes_max: Some(writer.segment_bytes() + 2 * SEGMENT),
        ..Limits::default()
    };
    assert_eq!(writer.evict(&limits).unwrap().segments, 0);
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
    let expected: Vec<u64> = (0..ROUNDS).rev().collect();
    assert_eq!(numbers(&scene.snapshot(), source).unwrap(), expected);
}

// case Concurrency: retention under a long scan
#[test]
fn a_check_beside_retention_finds_no_damage() {
    let scene = Scene::new();
    let mut writer = scene.open(Durability::Interval(Duration::from_millis(20)));
    let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
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
                let report = check(&scene.dir()).unwrap();
                assert!(report.is_sound(), "{report:?}");
                checks += 1;
            }
            checks
        });
        for round in 0..40 {
            writer.push(rare, &[1]).unwrap();
            push(
                &mut writer,
                source,
                round * 20_000,
                (round + 1) * 20_000,
                &limits,
            );
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(checks.join().unwrap() > 1);
    });
}

// case Corruption: damaged index logs at a start
#[test]
fn a_damaged_time_entry_stops_no_eviction() {
    // The entry of the chunk that begins the second segment, alone and with all that stand before it.
    for damaged in [65..66, 0..66] {
        let scene = Scene::new();
        let mut writer = scene.open(Durability::None);
        let source = writer.define_source(&SourceDef::new("numbers")).unwrap();
        push(&mut writer, source, 0, 60_000, &Limits::default());
        writer.close().unwrap();
        let path = scene.dir().join("times/00000000000000000000.0");
        let mut times = std::fs::read(&path).unwrap();
        for entry in damaged.clone() {
            times[48 * entry + 20] ^= 1;
        }
        std::fs::write(&path, times).unwrap();
        let mut writer = scene.open(Durability::None);
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
