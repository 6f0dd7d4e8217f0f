//! One run of Loom's writer: one thread pushes payloads into a directory on the measured disk, until all of it is synced.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ingestd::config::Config;
use loom_engine::SourceId;
use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::query::{AggregateSpec, Directory, Poll, Predicate, Quantile, aggregate};
use loom_engine::types::{TimeRange, ValueRange};
use tempfile::TempDir;

use super::clock::{Cost, Stopwatch};
use super::payloads::{Expected, INDEX, Payloads, SOURCE, sources_toml};

/// Records that share a timestamp if they are pushed in batches.
pub const BATCH_RECORDS: usize = 1024;
pub const LOGS: [&str; 3] = ["records", "chunks", "times"];

/// The way in which records are pushed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// `push`: a timestamp a record.
    Each,
    /// `push_batch`: a timestamp a batch.
    Batches,
}

/// The records to push, and the number of sources and indexes.
#[derive(Copy, Clone, Debug)]
pub struct Load {
    pub way: Way,
    pub sources: usize,
    pub indexes: usize,
    pub records: u64,
}

/// The cost of a run. Its wall time ends when everything is synced to the disk; its thread's CPU time ends before the last flush.
pub struct Run {
    pub cost: Cost,
    pub records: u64,
    pub disk_bytes: u64,
    pub stalls: u64,
}

impl Run {
    pub fn millions_a_second(&self, time: Duration) -> f64 {
        self.records as f64 / 1e6 / time.as_secs_f64()
    }

    pub fn bytes_a_record(&self) -> f64 {
        self.disk_bytes as f64 / self.records as f64
    }
}

/// A folder that is removed with its content after a run.
pub fn place_in(folder: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("loom-bench-")
        .tempdir_in(folder)
        .with_context(|| format!("making a folder in {}", folder.display()))
}

/// A writer over a new directory with the daemon's options, and the ids of its sources.
pub fn open_writer(dir: &Path, toml: &str) -> Result<(Writer, Vec<SourceId>)> {
    let config = Config::parse(toml).map_err(anyhow::Error::msg)?;
    let options = WriterOptions {
        log: config.log_options(),
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(dir, options).with_context(|| dir.display().to_string())?;
    let sources = config
        .sources
        .iter()
        .map(|def| writer.define_source(def))
        .collect::<Result<_, _>>()?;
    Ok((writer, sources))
}

/// Runs a load in a new directory, and fails unless a query finds all of it there.
pub fn ingest(folder: &Path, payloads: &Payloads, load: Load) -> Result<Run> {
    let place = place_in(folder)?;
    let dir = place.path().join("bench.loom");
    let toml = sources_toml(load.sources, load.indexes, payloads.record_bytes);
    let (mut writer, sources) = open_writer(&dir, &toml)?;
    let records = payloads.whole_turns(load.records);
    let watch = Stopwatch::start();
    for _ in 0..records / payloads.len() {
        push(&mut writer, &sources, payloads, load.way)?;
        writer.tick()?;
    }
    let thread_cpu = watch.cost().thread_cpu;
    let stalls = writer.stats().log.stalls;
    writer.close().context("closing the directory")?;
    let cost = Cost {
        thread_cpu,
        ..watch.cost()
    };
    if load.sources == 1 && load.indexes > 0 {
        check(&dir, &payloads.expected(records))?;
    } else {
        check_count(&dir, load.sources, records)?;
    }
    Ok(Run {
        cost,
        records,
        disk_bytes: log_bytes(&dir)?,
        stalls,
    })
}

/// Pushes all payloads once.
pub fn push(
    writer: &mut Writer,
    sources: &[SourceId],
    payloads: &Payloads,
    way: Way,
) -> Result<()> {
    let record_bytes = payloads.record_bytes;
    match way {
        Way::Each => {
            let sources = sources.iter().cycle();
            for (payload, source) in payloads.bytes.chunks_exact(record_bytes).zip(sources) {
                writer.push(*source, payload)?;
            }
        }
        Way::Batches => {
            let sources = sources.iter().cycle();
            let batches = payloads.bytes.chunks(record_bytes * BATCH_RECORDS);
            for (bytes, source) in batches.zip(sources) {
                let batch = Batch::Fixed {
                    bytes,
                    record_bytes,
                };
                writer.push_batch(*source, &batch)?;
            }
        }
    }
    Ok(())
}

/// Fails unless the engine's aggregate over the first source agrees with the pushed records.
pub fn check(dir: &Path, expected: &Expected) -> Result<()> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let source = snapshot.source(SOURCE)?;
    let index = source.index(INDEX).context("no index")?;
    let spec = AggregateSpec {
        source: source.id,
        index: index.id,
        time: TimeRange::ALL,
        value: ValueRange::ALL,
        filter: Predicate::All,
        bucket: None,
        quantiles: vec!["0.9999".parse::<Quantile>()?],
        approx: false,
        threads: 1,
    };
    let rows = aggregate(&snapshot, &spec, &Poll::never())?;
    let row = rows.first().context("an aggregate without a row")?;
    let quantile = row.quantiles.first().copied().flatten();
    let found = (
        row.count,
        row.min.map(|key| key.to_u64()),
        row.max.map(|key| key.to_u64()),
        quantile.map(|key| key.to_u64()),
    );
    let wanted = (
        expected.count,
        Some(expected.min),
        Some(expected.max),
        Some(expected.quantile(9999)),
    );
    ensure!(
        found == wanted,
        "{} says {found:?}, not {wanted:?}",
        dir.display()
    );
    Ok(())
}

/// Fails unless the first source holds `records` records.
pub fn check_source(dir: &Path, records: u64) -> Result<()> {
    check_count(dir, 1, records)
}

fn check_count(dir: &Path, sources: usize, records: u64) -> Result<()> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let mut found = 0;
    for id in 1..=sources {
        let id = SourceId(u16::try_from(id)?);
        found += snapshot.source_totals(id)?.records;
    }
    ensure!(
        found == records,
        "{} holds {found} records, not {records}",
        dir.display()
    );
    Ok(())
}

/// The bytes that the three logs take on the disk.
pub fn log_bytes(dir: &Path) -> Result<u64> {
    LOGS.iter()
        .map(|log| {
            Ok(files_in(&dir.join(log))?
                .iter()
                .map(|(_, bytes)| bytes)
                .sum::<u64>())
        })
        .sum()
}

/// The files of a folder, by name, with the bytes that they take on the disk.
pub fn files_in(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?
    {
        let entry = entry?;
        files.push((entry.path(), entry.metadata()?.blocks() * 512));
    }
    files.sort();
    Ok(files)
}
