//! P1 to P3: the cost of ingest, beside a raw writer of as many bytes and beside other stores.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::clock::{Cost, Stopwatch};
use super::figures::{Figures, rounded};
use super::ingest::{
    BATCH_RECORDS, LOGS, Load, Run, Way, check, files_in, ingest, open_writer, place_in, push,
};
use super::options::Sizes;
use super::payloads::{Payloads, RECORD_BYTES, sources_toml};
use super::peer::{Peer, System};
use super::raw::write_raw;
use super::rocksdb;
use super::table::Line;

/// Payloads that stay in the processor's cache.
const POOL_BYTES: usize = 3 << 20;
const GRANULARITY: [(&str, &str); 2] = [
    ("`push`", "a timestamp a record"),
    ("`push_batch`", "a timestamp for 1024"),
];
const SYNCED: &str = "durable within 500 ms, synced at the end";
const _: () = assert!(BATCH_RECORDS == 1024, "the table says it");

const FLOORS: [&str; 2] = [
    "a clock reading, and 56 bytes written to two blocks of 64 MiB in turns",
    "56 bytes written to two blocks of 64 MiB in turns",
];
const STAGED_BYTES: usize = 128 << 20;
const SLOT_BYTES: usize = RECORD_BYTES + 8;
const FLOOR_TURNS: usize = 8;

/// Payloads that the runs of ingest push again and again.
pub fn pool(record_bytes: usize) -> Payloads {
    Payloads::draw(record_bytes, POOL_BYTES / record_bytes)
}

/// P1, P2 and the wall time of both, in turn with the raw writer.
pub fn one_source(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let payloads = pool(RECORD_BYTES);
    let load = |way| Load {
        way,
        sources: 1,
        indexes: 1,
        records: sizes.ingest_records,
    };
    let mut runs: [Vec<Run>; 2] = Default::default();
    let mut floors: [Figures; 2] = Default::default();
    let mut raw = Vec::new();
    for _ in 0..sizes.runs {
        let [each, batches] = &mut runs;
        each.push(ingest(folder, &payloads, load(Way::Each))?);
        let run = ingest(folder, &payloads, load(Way::Batches))?;
        raw.push(write_raw(folder, run.disk_bytes, u64::MAX)?);
        batches.push(run);
        for (floor, with_clock) in floors.iter_mut().zip([true, false]) {
            floor.push(floor_ns(&payloads, with_clock));
        }
    }
    let owed = [
        ("P1", "≥ 45 M/s of its CPU"),
        ("P2", "≥ 100 M/s of its CPU"),
    ];
    let mut lines = Vec::new();
    for (((target, owed), (call, granularity)), runs) in
        owed.into_iter().zip(GRANULARITY).zip(&runs)
    {
        let Some(first) = runs.first() else { continue };
        lines.push(Line {
            target,
            measure: format!("ingest of 48 B records, one thread, one `auto` index, {call}"),
            loom: format!("{} M/s of the thread's CPU", rates(runs, |cost| cost.thread_cpu)),
            loom_cpu: format!(
                "{} M/s of all threads' CPU",
                rates(runs, |cost| cost.process_cpu)
            ),
            peer: "raw `O_DIRECT` writer of as many bytes, wall".to_owned(),
            peer_figure: format!("{} MB/s", megabytes(&raw, first.disk_bytes)),
            peer_cpu: String::new(),
            ratio: format!(
                "{} of its wall time's rate",
                rounded(median_wall(&raw) / median(runs, |run| run.cost.wall.as_secs_f64()))
            ),
            owed: owed.to_owned(),
            how: format!(
                "{} records; wall {} M/s; {granularity}; {SYNCED}; {} B on disk a record; {} stalls",
                first.records,
                rates(runs, |cost| cost.wall),
                rounded(first.bytes_a_record()),
                median(runs, |run| run.stalls as f64)
            ),
        });
    }
    for ((((target, _), (call, _)), runs), (floor, what)) in owed
        .into_iter()
        .zip(GRANULARITY)
        .zip(&runs)
        .zip(floors.iter().zip(FLOORS))
    {
        let spent = runs
            .iter()
            .map(|run| run.cost.as_nanos_a_record(run.records));
        let spent: Figures = spent.collect();
        lines.push(Line {
            target,
            measure: format!("{call} beside its floor"),
            loom: format!("{spent} ns of the thread's CPU"),
            peer: what.to_owned(),
            peer_figure: format!("{floor} ns"),
            ratio: format!("{} × the floor", rounded(spent.median() / floor.median())),
            owed: "≤ 1.3 × the floor".to_owned(),
            how: "the runs above".to_owned(),
            ..Line::default()
        });
    }
    Ok(lines)
}

/// The least cost of a push: reading the clock, if each record has a time, and writing its bytes to memory that is larger than any cache.
fn floor_ns(payloads: &Payloads, with_clock: bool) -> f64 {
    let clock = quanta::Clock::new();
    let mut blocks = vec![1_u8; STAGED_BYTES];
    let mut records = 0;
    let watch = Stopwatch::start();
    for _ in 0..FLOOR_TURNS {
        let pushed = payloads.bytes.chunks_exact(RECORD_BYTES).cycle();
        for (slot, payload) in blocks.chunks_exact_mut(SLOT_BYTES).zip(pushed) {
            let (header, place) = slot.split_at_mut(SLOT_BYTES - RECORD_BYTES);
            let time = if with_clock { clock.raw() } else { records };
            header.copy_from_slice(&time.to_le_bytes());
            place.copy_from_slice(payload);
            records += 1;
        }
        black_box(&mut blocks);
    }
    watch.cost().as_nanos_a_record(records)
}

fn rates(runs: &[Run], time: fn(&Cost) -> Duration) -> Figures {
    runs.iter()
        .map(|run| run.millions_a_second(time(&run.cost)))
        .collect()
}

fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(figure).collect::<Figures>().median()
}

fn median_wall(costs: &[Cost]) -> f64 {
    costs
        .iter()
        .map(|cost| cost.wall.as_secs_f64())
        .collect::<Figures>()
        .median()
}

fn megabytes(costs: &[Cost], bytes: u64) -> Figures {
    costs
        .iter()
        .map(|cost| bytes as f64 / 1e6 / cost.wall.as_secs_f64())
        .collect()
}

/// P3 and F2: records for a while, with one encoder and with two, beside a raw writer of the payloads.
pub fn sustained(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    [
        (Way::Each, 1, "P3", "≥ 0.9"),
        (Way::Batches, 1, "F2", ""),
        (Way::Batches, 2, "F2", "≥ 25 M records/s, ≥ 1.0"),
    ]
    .into_iter()
    .map(|(way, encoders, target, owed)| {
        let line = Line {
            target,
            owed: owed.to_owned(),
            ..Line::default()
        };
        push_for_a_while(folder, sizes, way, encoders, line)
    })
    .collect()
}

/// Both writers with the oldest files removed; the raw writer runs before and after.
fn push_for_a_while(
    folder: &Path,
    sizes: &Sizes,
    way: Way,
    encoders: usize,
    line: Line,
) -> Result<Line> {
    let [each, batches] = GRANULARITY;
    let (call, granularity) = match way {
        Way::Each => each,
        Way::Batches => batches,
    };
    let payloads = pool(RECORD_BYTES);
    let place = place_in(folder)?;
    let dir = place.path().join("bench.loom");
    let toml = format!(
        "[log]\nencoders = {encoders}\n{}",
        sources_toml(1, 1, RECORD_BYTES)
    );
    let (mut writer, sources) = open_writer(&dir, &toml)?;
    let raw_bytes = sizes.raw_bytes;
    let mut raw = vec![write_raw(folder, raw_bytes, sizes.kept_bytes)?];
    let ended = AtomicBool::new(false);
    let watch = Stopwatch::start();
    let mut turns = 0;
    let run = std::thread::scope(|scope| -> Result<Cost> {
        let rotation = scope.spawn(|| rotate(&dir, sizes.kept_bytes, &ended));
        let pushed = (|| -> Result<Cost> {
            while watch.cost().wall < sizes.sustained {
                push(&mut writer, &sources, &payloads, way)?;
                writer.tick()?;
                turns += 1;
            }
            let thread_cpu = watch.cost().thread_cpu;
            writer.sync_durable()?;
            Ok(Cost {
                thread_cpu,
                ..watch.cost()
            })
        })();
        ended.store(true, Ordering::Relaxed);
        rotation
            .join()
            .map_err(|_| anyhow::anyhow!("the rotation panicked"))??;
        pushed
    })?;
    let stats = writer.stats();
    let records = turns * payloads.len();
    writer.close()?;
    check(&dir, &payloads.expected(records))?;
    drop(place);
    raw.push(write_raw(folder, raw_bytes, sizes.kept_bytes)?);
    let rate = records as f64 / 1e6 / run.wall.as_secs_f64();
    let raw_rate = megabytes(&raw, raw_bytes);
    Ok(Line {
        measure: format!(
            "sustained ingest for {} s to disk, indexed, {call}",
            rounded(run.wall.as_secs_f64())
        ),
        loom: format!("{} M records/s", rounded(rate)),
        loom_cpu: format!("{} s", rounded(run.process_cpu.as_secs_f64())),
        peer: "raw `O_DIRECT` writer of the payloads, before and after".to_owned(),
        peer_figure: format!("{raw_rate} MB/s"),
        peer_cpu: format!(
            "{} s",
            rounded(raw.iter().map(|cost| cost.process_cpu.as_secs_f64()).sum())
        ),
        ratio: rounded(rate * RECORD_BYTES as f64 / raw_rate.median()),
        how: format!(
            "{encoders} encoders; {records} records of {RECORD_BYTES} B; {granularity}; {SYNCED}; {} B written a record; files beyond {} GiB removed by both; {} stalls, {} s in all",
            rounded(stats.log.written_bytes as f64 / records as f64),
            sizes.kept_bytes >> 30,
            stats.log.stalls,
            rounded(stats.log.stall.as_secs_f64())
        ),
        ..line
    })
}

/// Removes the oldest segments of the record log until `ended`. Only the check at the end reads them.
fn rotate(dir: &Path, kept_bytes: u64, ended: &AtomicBool) -> Result<()> {
    let records = dir.join(LOGS[0]);
    while !ended.load(Ordering::Relaxed) {
        let files = files_in(&records)?;
        let mut bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        for (path, file_bytes) in files {
            if bytes <= kept_bytes {
                break;
            }
            fs::remove_file(&path)?;
            bytes -= file_bytes;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The cost of indexes and sources, and their size on the disk.
pub fn shapes(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    const SHAPES: [(usize, usize); 8] = [
        (1, 0),
        (1, 1),
        (1, 4),
        (1, 16),
        (4, 4),
        (16, 1),
        (1000, 0),
        (1000, 1),
    ];
    let payloads = pool(RECORD_BYTES);
    let mut lines = Vec::new();
    for (sources, indexes) in SHAPES {
        let load = Load {
            way: Way::Each,
            sources,
            indexes,
            records: sizes.shape_records,
        };
        let runs = (0..sizes.shape_runs)
            .map(|_| ingest(folder, &payloads, load))
            .collect::<Result<Vec<_>>>()?;
        let Some(first) = runs.first() else { continue };
        lines.push(Line {
            target: "",
            measure: format!("the same, {sources} sources in turns with {indexes} indexes each"),
            loom: format!(
                "{} M/s of the thread's CPU",
                rates(&runs, |cost| cost.thread_cpu)
            ),
            loom_cpu: format!(
                "{} M/s of all threads' CPU",
                rates(&runs, |cost| cost.process_cpu)
            ),
            owed: if (sources, indexes) == (1, 1) {
                "≤ 57 B on disk a record".to_owned()
            } else {
                String::new()
            },
            how: format!(
                "{} records; a timestamp a record; {:.2} B on disk a record",
                first.records,
                first.bytes_a_record()
            ),
            ..Line::default()
        });
    }
    Ok(lines)
}

/// The same rows into other stores, in wall time, all of them in turn.
pub fn stores(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let payloads = pool(RECORD_BYTES);
    let file = place.path().join("payloads");
    fs::write(&file, &payloads.bytes)?;
    let all = [
        (
            System::DuckDb,
            sizes.store_records,
            "Arrow batches of 122,880 rows, one thread; committed and checkpointed",
        ),
        (
            System::ClickHouse,
            sizes.store_records,
            "from Arrow in memory, one thread; MergeTree, not synced",
        ),
        (
            System::Lmdb,
            sizes.store_records / 4,
            "APPEND, write map, transactions of 200,000 by Python's `putmulti`; synced at the end",
        ),
        (
            System::Sqlite,
            sizes.store_records / 8,
            "one transaction by Python's `executemany`, no journal; synced at the end",
        ),
    ];
    let mut peers = Vec::new();
    for (system, records, how) in all {
        let path = place.path().join(format!("{system:?}"));
        let peer = Peer::start(system, &path)?;
        peers.push((peer, records, how, Figures::default(), Figures::default()));
    }
    let mut runs = Vec::new();
    let mut rocks = Figures::default();
    for _ in 0..sizes.runs {
        let load = Load {
            way: Way::Each,
            sources: 1,
            indexes: 1,
            records: sizes.store_records,
        };
        runs.push(ingest(folder, &payloads, load)?);
        for (peer, records, _, walls, cpus) in &mut peers {
            let request = json!({"do": "ingest", "payloads": file, "records": records});
            let answer = peer.ask(&request)?;
            walls.push(*records as f64 / 1e6 / answer.wall);
            cpus.push(*records as f64 / 1e6 / answer.cpu);
        }
        if let Some(rate) = rocksdb::fill(place.path(), sizes.store_records / 4, RECORD_BYTES)? {
            rocks.push(rate);
        }
    }
    let loom = rates(&runs, |cost| cost.wall);
    let line = |name: &str, figure: &Figures, cpu: String, records: u64, how: &str| Line {
        measure: "ingest of 48 B records beside another store, wall".to_owned(),
        loom: format!("{loom} M/s"),
        loom_cpu: format!("{} M/s", rates(&runs, |cost| cost.process_cpu)),
        peer: name.to_owned(),
        peer_figure: format!("{figure} M/s"),
        peer_cpu: cpu,
        ratio: rounded(loom.median() / figure.median()),
        how: format!(
            "{} and {records} records; Loom: a timestamp a record, {SYNCED}; peer: {how}",
            sizes.store_records
        ),
        ..Line::default()
    };
    let mut lines: Vec<Line> = peers
        .iter()
        .map(|(peer, records, how, walls, cpus)| {
            let cpu = format!("{} M/s", rounded(cpus.median()));
            line(peer.system().name(), walls, cpu, *records, how)
        })
        .collect();
    if rocks.median().is_finite() {
        lines.push(line(
            "RocksDB (`db_bench fillseq`)",
            &rocks,
            String::new(),
            sizes.store_records / 4,
            rocksdb::HOW,
        ));
    }
    Ok(lines)
}

/// Payloads of other lengths, beside the raw writer and the stores that take plain bytes.
pub fn lengths(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for record_bytes in [8, 64, 256, 1024] {
        let payloads = pool(record_bytes);
        let records = sizes.length_bytes / record_bytes as u64;
        let (mut runs, mut raw, mut rocks) = (Vec::new(), Vec::new(), Figures::default());
        for _ in 0..sizes.runs {
            let load = Load {
                way: Way::Each,
                sources: 1,
                indexes: 1,
                records,
            };
            let run = ingest(folder, &payloads, load)?;
            raw.push(write_raw(folder, run.disk_bytes, u64::MAX)?);
            runs.push(run);
            if let Some(rate) = rocksdb::fill(folder, records / 8, record_bytes)? {
                rocks.push(rate);
            }
        }
        let Some(first) = runs.first() else { continue };
        let loom = rates(&runs, |cost| cost.wall);
        lines.push(Line {
            measure: format!("ingest of {record_bytes} B records, wall"),
            loom: format!("{loom} M/s"),
            loom_cpu: format!("{} M/s", rates(&runs, |cost| cost.process_cpu)),
            peer: "raw `O_DIRECT` writer of as many bytes".to_owned(),
            peer_figure: format!(
                "{} M/s",
                raw.iter()
                    .map(|cost| first.records as f64 / 1e6 / cost.wall.as_secs_f64())
                    .collect::<Figures>()
            ),
            ratio: rounded(median_wall(&raw) / median(&runs, |run| run.cost.wall.as_secs_f64())),
            how: format!(
                "{} records; a timestamp a record; {SYNCED}; {} B on disk a record{}",
                first.records,
                rounded(first.bytes_a_record()),
                if rocks.median().is_finite() {
                    format!(
                        "; RocksDB (`db_bench fillseq`, {}) {rocks} M/s",
                        rocksdb::HOW
                    )
                } else {
                    String::new()
                }
            ),
            ..Line::default()
        });
    }
    Ok(lines)
}
