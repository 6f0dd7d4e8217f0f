//! `make bench`: what ingest costs, beside a raw direct-I/O writer of as many bytes on the same disk.
//!
//! One thread pushes 48-byte records with one `auto` index into a directory on disk. Loom's runs and the raw writer's alternate;
//! a figure is their median. A run's time counts only once a query over its result has given the right answer.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use loom_engine::SourceId;
use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::schema::parse_sources;
use loom_tests::duckdb::{Session, Version};
use loom_tests::seed::Seed;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::write;
use rustix::time::{ClockId, clock_gettime};

/// Measures ingest and prints a Markdown table.
#[derive(Parser)]
struct Options {
    /// Records of each run, rounded up to whole turns of the payloads
    #[arg(long, default_value_t = 40_000_000)]
    records: u64,
    /// Runs of each writer; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// A folder on the disk to measure
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

const PAYLOAD_BYTES: usize = 48;
const BATCH_RECORDS: usize = 1024;
const SOURCE: &str = "[[source]]
name = \"bench\"
[[source.field]]
name = \"latency_ns\"
type = \"u64\"
[[source.field]]
name = \"rest\"
type = \"bytes[40]\"
[[source.index]]
name = \"latency\"
value = \"latency_ns\"
";

fn main() -> Result<()> {
    let options = Options::parse();
    let work = Work::new(options.records);
    let mut runs: [Vec<Run>; 3] = Default::default();
    for _ in 0..options.runs.max(1) {
        let [push, batch, raw] = &mut runs;
        push.push(ingest(&options.folder, &work, push_each)?);
        let run = ingest(&options.folder, &work, push_batches)?;
        raw.push(write_raw(&options.folder, run.disk_bytes, work.records)?);
        batch.push(run);
    }
    print_table(&options, &work, &runs);
    Ok(())
}

/// The payloads of a run, which are pushed in turns, and what a query over them must say.
struct Work {
    payloads: Vec<u8>,
    turns: u64,
    records: u64,
    bins: usize,
    expected: [u128; 5],
}

impl Work {
    /// Values whose logarithms are even over 14 octaves: some 450 `auto` bins.
    fn new(records: u64) -> Work {
        const VALUES: u64 = 65_536;
        let mut seed = Seed::of(1);
        let draw = |_| {
            let octave = seed.draw() % 14;
            (1000 << octave) + seed.draw() % (1000 << octave)
        };
        let mut values: Vec<u64> = (0..VALUES).map(draw).collect();
        let mut payloads = Vec::new();
        for value in &values {
            payloads.extend_from_slice(&value.to_le_bytes());
            payloads.resize(payloads.len() + PAYLOAD_BYTES - 8, value.to_le_bytes()[0]);
        }
        values.sort_unstable();
        let turns = records.div_ceil(VALUES).max(1);
        let records = turns * VALUES;
        let rank = (u128::from(records) * 9999).div_ceil(10_000);
        let at = |rank: u128| {
            values
                .get(((rank - 1) / u128::from(turns)) as usize)
                .copied()
                .unwrap_or_default()
        };
        let sum: u128 = values.iter().copied().map(u128::from).sum();
        let expected = [
            u128::from(records),
            sum * u128::from(turns),
            u128::from(at(1)),
            u128::from(at(u128::from(records))),
            u128::from(at(rank)),
        ];
        values.dedup_by_key(|value| *value >> (value.ilog2() - 5));
        Work {
            payloads,
            turns,
            records,
            bins: values.len(),
            expected,
        }
    }

    /// Fails unless DuckDB gets from the directory what was pushed into it.
    fn check(&self, dir: &Path) -> Result<()> {
        let mut session = Session::open(Version::V2)?;
        let rows = session.query(&format!(
            "SELECT count, sum, min, max, p99_99 FROM loom_aggregate('{}', 'bench', 'latency', quantiles := [0.9999])",
            dir.display()
        ))?;
        let expected: Vec<_> = self
            .expected
            .iter()
            .map(|number| Some(number.to_string()))
            .collect();
        ensure!(
            rows == [expected.as_slice()],
            "the directory says {rows:?}, not {expected:?}"
        );
        Ok(())
    }
}

/// What one run took. The wall time ends when everything is on disk, synced.
struct Run {
    wall: Duration,
    /// Of the pushing thread.
    cpu: Duration,
    /// Of all threads.
    cpu_all: Duration,
    disk_bytes: u64,
}

type Push = fn(&mut Writer, SourceId, &[u8]) -> Result<()>;

fn push_each(writer: &mut Writer, source: SourceId, payloads: &[u8]) -> Result<()> {
    for payload in payloads.chunks_exact(PAYLOAD_BYTES) {
        writer.push(source, payload)?;
    }
    Ok(())
}

fn push_batches(writer: &mut Writer, source: SourceId, payloads: &[u8]) -> Result<()> {
    for bytes in payloads.chunks(PAYLOAD_BYTES * BATCH_RECORDS) {
        writer.push_batch(
            source,
            &Batch::Fixed {
                bytes,
                record_bytes: PAYLOAD_BYTES,
            },
        )?;
    }
    Ok(())
}

fn ingest(folder: &Path, work: &Work, push: Push) -> Result<Run> {
    let place = tempfile::Builder::new()
        .prefix("loom-bench-")
        .tempdir_in(folder)?;
    let dir = place.path().join("bench.loom");
    let mut writer = Writer::open(&dir, WriterOptions::default())?;
    let source = writer.define_source(parse_sources(SOURCE)?.first().context("no source")?)?;
    let [start, cpu, cpu_all] = [
        None,
        Some(ClockId::ThreadCPUTime),
        Some(ClockId::ProcessCPUTime),
    ]
    .map(Stopwatch::start);
    for _ in 0..work.turns {
        push(&mut writer, source, &work.payloads)?;
        writer.tick()?;
    }
    let cpu = cpu.elapsed();
    writer.close()?;
    let (wall, cpu_all) = (start.elapsed(), cpu_all.elapsed());
    work.check(&dir)?;
    let disk_bytes = ["records", "chunks", "times"]
        .iter()
        .map(|log| folder_bytes(&dir.join(log)))
        .sum::<Result<u64>>()?;
    Ok(Run {
        wall,
        cpu,
        cpu_all,
        disk_bytes,
    })
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let entries = std::fs::read_dir(folder)?;
    entries
        .map(|entry| Ok(entry?.metadata()?.blocks() * 512))
        .sum()
}

/// Writes as many bytes to a new file as fast as the disk takes them, in the size in which Loom evicts.
fn write_raw(folder: &Path, bytes: u64, records: u64) -> Result<Run> {
    const BLOCK_BYTES: usize = 64 << 20;
    const ALIGNMENT: usize = 4096;
    let buffer = vec![0xA5_u8; BLOCK_BYTES + ALIGNMENT];
    let skipped = buffer.as_ptr().align_offset(ALIGNMENT);
    let block = buffer
        .get(skipped..skipped + BLOCK_BYTES)
        .context("no aligned block")?;
    let place = tempfile::Builder::new()
        .prefix("loom-bench-")
        .tempdir_in(folder)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT;
    let file = rustix::fs::open(place.path().join("raw"), flags, Mode::RUSR | Mode::WUSR)
        .context("opening with O_DIRECT")?;
    let [start, cpu] = [None, Some(ClockId::ThreadCPUTime)].map(Stopwatch::start);
    let whole = bytes.next_multiple_of(ALIGNMENT as u64);
    fallocate(&file, FallocateFlags::empty(), 0, whole)?;
    let mut left = usize::try_from(whole)?;
    while left > 0 {
        left -= write(&file, block.get(..left.min(BLOCK_BYTES)).unwrap_or(block))?;
    }
    let file = File::from(file);
    file.sync_all()?;
    let (wall, cpu) = (start.elapsed(), cpu.elapsed());
    ensure!(
        file.metadata()?.len() >= bytes,
        "{records} records are not on disk"
    );
    Ok(Run {
        wall,
        cpu,
        cpu_all: cpu,
        disk_bytes: bytes,
    })
}

/// Wall time, or the time of a CPU clock.
struct Stopwatch {
    clock: Option<ClockId>,
    started: Duration,
    wall: Instant,
}

impl Stopwatch {
    fn start(clock: Option<ClockId>) -> Stopwatch {
        Stopwatch {
            clock,
            started: clock.map(read_clock).unwrap_or_default(),
            wall: Instant::now(),
        }
    }

    fn elapsed(&self) -> Duration {
        match self.clock {
            Some(clock) => read_clock(clock).saturating_sub(self.started),
            None => self.wall.elapsed(),
        }
    }
}

fn read_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

fn print_table(options: &Options, work: &Work, runs: &[Vec<Run>; 3]) {
    println!(
        "{} records of {PAYLOAD_BYTES} bytes a run, values in {} bins of one `auto` index; {} runs each, alternating; median (least to most)",
        work.records, work.bins, options.runs
    );
    println!(
        "\n| one thread | M records/s, wall | M records/s of its CPU | M records/s of all CPU | MB/s, wall | bytes on disk a record |"
    );
    println!("|---|---|---|---|---|---|");
    let names = [
        "`push`, a timestamp a record",
        "`push_batch` of 1024, a timestamp a batch",
        "raw `O_DIRECT` writer",
    ];
    for (name, runs) in names.iter().zip(runs) {
        let rate = |time: fn(&Run) -> Duration| {
            spread(runs, |run| {
                work.records as f64 / 1e6 / time(run).as_secs_f64()
            })
        };
        let disk = spread(runs, |run| {
            run.disk_bytes as f64 / 1e6 / run.wall.as_secs_f64()
        });
        let each = runs
            .first()
            .map_or(0.0, |run| run.disk_bytes as f64 / work.records as f64);
        println!(
            "| {name} | {} | {} | {} | {disk} | {each:.2} |",
            rate(|run| run.wall),
            rate(|run| run.cpu),
            rate(|run| run.cpu_all)
        );
    }
    let [push, batch, raw] = runs;
    let wall = |runs: &[Run]| median(runs, |run| run.wall.as_secs_f64());
    println!(
        "\nOf the raw writer's rate: `push` {:.2}, `push_batch` {:.2}. Wall time includes the last flush and its sync.",
        wall(raw) / wall(push),
        wall(raw) / wall(batch)
    );
}

fn spread(runs: &[Run], figure: impl Fn(&Run) -> f64) -> String {
    let least = runs.iter().map(&figure).fold(f64::INFINITY, f64::min);
    let most = runs.iter().map(&figure).fold(0.0, f64::max);
    format!("{:.1} ({least:.1} to {most:.1})", median(runs, figure))
}

fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
