//! A scan reads no more bytes than it reports, by what the system counts for this process. The test is alone in its process, so nothing else
//! reads meanwhile.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;

use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::log::LogOptions;
use loom_engine::query::{Ask, Directory, Poll, Predicate, Scan, ScanSpec, ScanStats};
use loom_engine::schema::parse_sources;
use loom_engine::{Key, ValueRange};

const SOURCE: &str = "
[[source]]
name = 'requests'
[[source.field]]
name = 'latency'
type = 'u64'
[[source.index]]
name = 'latency'
value = 'latency'
";

/// The bytes that this process has read from files, and the bytes that asking takes.
fn read_so_far() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

fn scanned(directory: &std::sync::Arc<Directory>, least: u64) -> (u64, ScanStats, u64) {
    let snapshot = directory.snapshot().unwrap();
    let source = snapshot.source("requests").unwrap();
    let spec = ScanSpec {
        source: source.id,
        after: loom_engine::Address::ZERO,
        exact: Predicate::value(
            source.indexes[0].id,
            ValueRange {
                min: Key(least),
                max: Key::MAX,
            },
        ),
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let before = read_so_far();
    let asking = read_so_far() - before;
    let scan = Scan::new(&snapshot, spec).unwrap();
    let mut reader = scan.reader(Ask::all());
    let mut rows = 0;
    while let Some(chunk) = scan.next(&Poll::never()).unwrap() {
        rows += reader.read(chunk).unwrap().count() as u64;
    }
    let read = read_so_far() - before - 2 * asking;
    (rows, scan.stats(), read)
}

#[test]
fn a_scan_reads_no_more_bytes_than_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let loom = dir.path().join("loom");
    let options = WriterOptions {
        log: LogOptions {
            block_bytes: 1 << 20,
            segment_bytes: [16 << 20; 3].into(),
            staging: Some(dir.path().to_path_buf()),
            ..LogOptions::default()
        },
        accept_clock: true,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&loom, options).unwrap();
    let id = writer
        .define_source(&parse_sources(SOURCE).unwrap()[0])
        .unwrap();
    let records = 400_000u64;
    let bytes: Vec<u8> = (1..=records).flat_map(u64::to_le_bytes).collect();
    for part in bytes.chunks(8 * 1000) {
        let batch = Batch::Fixed {
            bytes: part,
            record_bytes: 8,
        };
        writer.push_batch(id, &batch).unwrap();
    }
    writer.close().unwrap();

    let directory = Directory::open(&loom).unwrap();
    let (rows, all, read) = scanned(&directory, 0);
    assert_eq!(rows, records);
    assert_eq!(all.chunks_read, all.chunks_total, "{all:?}");
    assert!(all.bytes_read >= records * 16, "{all:?}");
    assert!(read <= all.bytes_read, "{read} of {all:?}");

    // A few records from the last chunk alone; its greatest values give their places.
    let (rows, few, read) = scanned(&directory, records - 2);
    assert_eq!(rows, 3);
    assert!(read <= few.bytes_read, "{read} of {few:?}");
    assert_eq!(
        few.chunks_pruned + few.chunks_read,
        few.chunks_total,
        "{few:?}"
    );
    assert_eq!(few.chunks_read, 1, "{few:?}");
    assert!(few.bytes_read < 16 << 10, "{few:?}");
}
