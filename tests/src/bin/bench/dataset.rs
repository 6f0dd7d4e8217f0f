//! The directory for the queries: records that arrived at a steady rate, in two indexes, and the same rows in the peers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use loom_engine::query::Directory;
use tempfile::TempDir;

use super::ingest::{check, place_in};
use super::options::Sizes;
use super::payloads::{Expected, Payloads, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;

/// The number of payloads before they repeat; they are larger than the processor's cache.
const POOL_RECORDS: usize = 1 << 20;
/// The index of the few failed records: one bin for a match.
pub const FAILED_INDEX: &str = "failed";

const CLICKHOUSE_COLUMNS: &str = "source String, ts_ns Int64, latency_ns UInt64, request UInt64, key_hash UInt64, client UInt64, bytes UInt32, thread UInt32, op UInt32, status UInt32, addr UInt64";

pub struct Dataset {
    place: Place,
    pub records: u64,
    pub expected: Expected,
    /// Arrivals of the first and the last record.
    pub first_ns: i64,
    pub last_ns: i64,
}

/// The folder of the directory and of the peers' copies.
enum Place {
    Removed(TempDir),
    Kept(PathBuf),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Place::Removed(folder) => folder.path(),
            Place::Kept(folder) => folder,
        }
    }
}

/// A half-open range of times, in µs since the epoch.
#[derive(Copy, Clone, Debug)]
pub struct Span {
    pub from_us: i64,
    pub to_us: i64,
}

pub fn pool() -> Arc<Payloads> {
    Arc::new(Payloads::draw(RECORD_BYTES, POOL_RECORDS))
}

pub fn toml() -> String {
    format!(
        "{}[[source.index]]\nname = \"{FAILED_INDEX}\"\nwhere = \"status = 500\"\n",
        sources_toml(1, 1, RECORD_BYTES)
    )
}

/// The columns of a scan that the peers have too: all except the directory, which is equal in every row.
pub fn shared_columns(scan: &str) -> String {
    format!("(SELECT * EXCLUDE (dir) FROM {scan})")
}

impl Dataset {
    /// Records the directory and stops cleanly. A directory that an earlier run kept at `kept` is used as it is.
    pub fn make(folder: &Path, kept: Option<&Path>, sizes: &Sizes) -> Result<Dataset> {
        let place = match kept {
            Some(kept) => {
                std::fs::create_dir_all(kept).with_context(|| kept.display().to_string())?;
                Place::Kept(kept.canonicalize()?)
            }
            None => Place::Removed(place_in(folder)?),
        };
        let payloads = pool();
        let records = payloads.whole_turns(sizes.query_records);
        let dir = place.path().join("bench.loom");
        let rate = sizes.query_rate;
        if !dir.exists() {
            let producer = Producer::start(&dir, &toml(), Arc::clone(&payloads), rate, records)?;
            producer.finish()?;
        }
        let expected = payloads.expected(records);
        check(&dir, &expected)?;
        let snapshot = Directory::open(&dir)?.snapshot()?;
        let totals = snapshot.source_totals(snapshot.source(SOURCE)?.id)?;
        let (first, last) = totals.first_ts.zip(totals.last_ts).context("no times")?;
        Ok(Dataset {
            place,
            records,
            expected,
            first_ns: first.0,
            last_ns: last.0,
        })
    }

    pub fn loom_dir(&self) -> PathBuf {
        self.place.path().join("bench.loom")
    }

    /// The path of a system's data.
    pub fn path(&self, system: System) -> PathBuf {
        match system {
            System::Loom => self.loom_dir(),
            other => self.place.path().join(format!("{other:?}")),
        }
    }

    /// Starts a system that has the rows.
    pub fn open(&self, system: System) -> Result<Peer> {
        Peer::start(system, &self.path(system))
    }

    /// Copies the rows of `loom_scan`, with all columns, to the peers.
    pub fn share(&self) -> Result<()> {
        if self.path(System::ClickHouse).exists() {
            return Ok(());
        }
        let scan = format!("loom_scan('{}', '{SOURCE}')", self.loom_dir().display());
        let scan = shared_columns(&scan);
        let parquet = self.place.path().join("rows.parquet");
        let mut duckdb = self.open(System::DuckDb)?;
        duckdb.query(&format!("CREATE TABLE t AS FROM {scan}"))?;
        duckdb.query("CHECKPOINT")?;
        duckdb.query(&format!(
            "COPY (SELECT * EXCLUDE (ts) FROM {scan}) TO '{}' (FORMAT parquet)",
            parquet.display()
        ))?;
        drop(duckdb);
        let mut clickhouse = self.open(System::ClickHouse)?;
        clickhouse.query(&format!(
            "CREATE TABLE bench.t ENGINE = MergeTree ORDER BY ts_ns AS SELECT * FROM file('{}', 'Parquet', '{CLICKHOUSE_COLUMNS}')",
            parquet.display()
        ))?;
        std::fs::remove_file(&parquet)?;
        let rows = clickhouse.query("SELECT count() FROM bench.t")?.rows;
        ensure!(
            rows == [[self.records.to_string()]],
            "ClickHouse holds {rows:?} rows, not {}",
            self.records
        );
        Ok(())
    }

    /// A part of the time of the records, in thousandths. It begins and ends within chunks.
    pub fn part(&self, from: i64, to: i64) -> Span {
        let at = |thousandths: i64| {
            let span_ns = i128::from(self.last_ns - self.first_ns);
            let into_ns = span_ns * i128::from(thousandths) / 1000;
            (i128::from(self.first_ns) + into_ns) as i64 / 1000
        };
        Span {
            from_us: at(from),
            to_us: at(to),
        }
    }

    /// One second in the middle.
    pub fn second(&self) -> Span {
        let from_us = self.part(500, 501).from_us;
        Span {
            from_us,
            to_us: from_us + 1_000_000,
        }
    }
}

impl Span {
    /// The range as parameters of Loom's functions.
    pub fn parameters(self) -> String {
        format!(
            "t_from := make_timestamptz({}::BIGINT), t_to := make_timestamptz({}::BIGINT)",
            self.from_us, self.to_us
        )
    }

    /// The range as a condition on `ts_ns`.
    pub fn condition(self) -> String {
        format!("ts_ns >= {}000 AND ts_ns < {}000", self.from_us, self.to_us)
    }
}
