//! Directories with as many chunks and segments as far larger ones have by default: how long starts, commands and queries take, and how
//! much each of them reads.
//!
//! Chunks of 4 KiB and segments of 1 MiB make 16 times as many chunks, and 1024 times as many segments, for each byte. The cost of a start
//! or of a process's first query depends on those numbers, not on bytes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use loom_engine::query::Directory;
use loom_tests::daemon::{Daemon, configuration, ingestd};
use loom_tests::strace::{Tracer, reads_in, reads_of, run};
use tempfile::TempDir;

use super::cache::drop_cached;
use super::dataset::{Span, pool};
use super::figures::{Figures, rounded};
use super::ingest::{LOGS, files_in, log_bytes, place_in};
use super::options::Sizes;
use super::payloads::{INDEX, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;
use super::table::Line;

const LOG: &str = "[log]\nchunk = \"4KiB\"\nblock = \"1MiB\"\nsegment = \"1MiB\"\n";
/// The default sizes, relative to those above.
const CHUNKS_AS_BY_DEFAULT: f64 = 16.0;
const SEGMENT_BYTES_BY_DEFAULT: f64 = (1u64 << 30) as f64;
/// As fast as possible.
const RATE: u64 = 20_000_000;
/// Records that a killed daemon leaves in staging.
const STAGED_RECORDS: u64 = 10_000;
/// The measurements, in their order.
const MEASURED: [&str; 9] = [
    "`ingestd run` until it is ready, after a clean stop",
    "`ingestd status`",
    "`ingestd run` until it is ready, after `kill -9`",
    "`ingestd status` without a daemon",
    "`loom_sources`, the first query of a process",
    "`count(*)`, the first query of a process",
    "count, sum and maximum of the last 10 s, the first query of a process",
    "`loom_top` of the greatest value, the first query of a process",
    "`ingestd check`",
];

/// One directory, and its measurements.
struct Large {
    place: TempDir,
    records: u64,
    greatest: u64,
    /// The last 10 s of its recording.
    last: Span,
    times: [Figures; MEASURED.len()],
    reads: [String; MEASURED.len()],
}

pub fn directories(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut all = Vec::new();
    for records in sizes.large_records {
        all.push(Large::make(folder, *records)?);
    }
    for _ in 0..sizes.cold_runs {
        for large in &mut all {
            large.measure()?;
        }
    }
    for large in &mut all {
        large.trace()?;
    }
    let sizes: Vec<String> = all.iter().map(Large::size).collect::<Result<_>>()?;
    let mut lines = vec![Line {
        measure: "large directories: chunks of 4 KiB, segments of 1 MiB".to_owned(),
        loom: sizes.join("; "),
        how: "the lines below are of these; cold: nothing of the directory is cached".to_owned(),
        ..Line::default()
    }];
    lines.extend((0..MEASURED.len()).filter_map(|number| line(&all, number)));
    Ok(lines)
}

fn line(all: &[Large], number: usize) -> Option<Line> {
    let of = |large: &Large| large.times.get(number).cloned();
    let times: Vec<Figures> = all.iter().filter_map(of).collect();
    let shown: Vec<String> = times.iter().map(|times| format!("{times} ms")).collect();
    let reads: Vec<&str> = (all.iter())
        .filter_map(|large| large.reads.get(number))
        .map(String::as_str)
        .collect();
    let (least, most) = times.first().zip(times.last())?;
    Some(Line {
        measure: format!("large directory: {}", MEASURED.get(number)?),
        loom: shown.join("; "),
        peer: "itself, the least".to_owned(),
        ratio: format!("{} × the time", rounded(most.median() / least.median())),
        owed: if number + 1 < MEASURED.len() {
            "≤ 1 s".to_owned()
        } else {
            String::new()
        },
        how: reads.join("; "),
        ..Line::default()
    })
}

impl Large {
    fn make(folder: &Path, records: u64) -> Result<Large> {
        let place = place_in(folder)?;
        let payloads = pool();
        let records = payloads.whole_turns(records);
        let greatest = payloads.expected(records).max;
        let toml = format!("{LOG}{}", sources_toml(1, 1, RECORD_BYTES));
        let dir = place.path().join("large.loom");
        Producer::start(&dir, &toml, payloads, RATE, records)?.finish()?;
        let newest = Directory::open(&dir)?.snapshot()?.newest_ts()?;
        let to_us = newest.context("no records")?.0 / 1000;
        let last = Span {
            from_us: to_us - 10_000_000,
            to_us,
        };
        Ok(Large {
            place,
            records,
            greatest,
            last,
            times: Default::default(),
            reads: Default::default(),
        })
    }

    fn dir(&self) -> PathBuf {
        self.place.path().join("large.loom")
    }

    /// The size of the directory, and the size of one with the default settings that has as many chunks, or as many segments of records.
    fn size(&self) -> Result<String> {
        let dir = self.dir();
        let bytes = log_bytes(&dir)?;
        let status = Directory::open(&dir)?.status()?;
        let counts: Vec<usize> = (LOGS.iter())
            .map(|log| Ok(files_in(&dir.join(log))?.len()))
            .collect::<Result<_>>()?;
        let segments = counts.first().copied().unwrap_or_default();
        Ok(format!(
            "{} GB with {} chunks (as many as {} GB has) and {counts:?} segments ({} TB)",
            rounded(bytes as f64 / 1e9),
            status.chunks,
            rounded(status.position.0 as f64 * CHUNKS_AS_BY_DEFAULT / 1e9),
            rounded(segments as f64 * SEGMENT_BYTES_BY_DEFAULT / 1e12),
        ))
    }

    fn questions(&self) -> [(String, Option<u64>); 4] {
        let dir = self.dir();
        let source = format!("'{}', '{SOURCE}'", dir.display());
        let records = Some(self.records);
        [
            (
                format!("SELECT records FROM loom_sources('{}')", dir.display()),
                records,
            ),
            (format!("SELECT count(*) FROM loom_scan({source})"), records),
            (
                format!(
                    "SELECT count, sum, max FROM loom_aggregate({source}, '{INDEX}', {})",
                    self.last.parameters()
                ),
                None,
            ),
            (
                format!("SELECT latency_ns FROM loom_top({source}, '{INDEX}', 1)"),
                Some(self.greatest),
            ),
        ]
    }

    /// Measures each once, with nothing of the directory in the page cache.
    fn measure(&mut self) -> Result<()> {
        let dir = self.dir();
        let (daemon, after_stop) = started_cold(&dir)?;
        let beside_daemon = timed(|| status(&dir))?;
        self.records += kill_with_staged(daemon)?;
        let (daemon, after_kill) = started_cold(&dir)?;
        daemon.stop()?;
        drop_cached(&dir)?;
        let without_daemon = timed(|| status(&dir))?;
        let mut took = vec![after_stop, beside_daemon, after_kill, without_daemon];
        for (sql, expected) in self.questions() {
            drop_cached(&dir)?;
            took.push(first_query(&dir, &sql, expected)?);
        }
        drop_cached(&dir)?;
        took.push(timed(|| {
            ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
        })?);
        for (times, took) in self.times.iter_mut().zip(took) {
            times.push(took.as_secs_f64() * 1e3);
        }
        Ok(())
    }

    /// Repeats the measurements under `strace`, which takes time of its own, to count the files that each opens and the bytes that it
    /// reads.
    fn trace(&mut self) -> Result<()> {
        let dir = self.dir();
        let started = || -> Result<(Daemon, String)> {
            let traced = self.place.path().join("trace");
            let options = Tracer::READS.map(str::to_owned);
            let command = run(&dir, &configuration(&dir, "")?, &options, &traced)?;
            let daemon = Daemon::spawn(command, &dir)?;
            let reads = reads_in(&std::fs::read_to_string(&traced)?, &dir);
            Ok((daemon, reads.to_string()))
        };
        let command = |name: &str| -> Result<String> {
            let arguments = [name.as_ref(), dir.as_os_str()];
            Ok(reads_of(&arguments, &dir)?.to_string())
        };
        let (daemon, clean) = started()?;
        let status = command("status")?;
        self.records += kill_with_staged(daemon)?;
        let (daemon, killed) = started()?;
        daemon.stop()?;
        let mut reads = vec![clean, status, killed, command("status")?];
        for (sql, _) in self.questions() {
            let mut duckdb = Peer::start(System::Loom, &dir)?;
            let options = Tracer::READS.map(str::to_owned);
            let tracer = Tracer::attach(duckdb.pid(), &options)?;
            duckdb.query(&sql)?;
            reads.push(reads_in(&tracer.trace()?, &dir).to_string());
        }
        reads.push(format!("{} of log", bytes_of_log(&dir)?));
        for (place, reads) in self.reads.iter_mut().zip(reads) {
            *place = reads;
        }
        Ok(())
    }
}

/// Times a query in a process that has run none yet, without the start of the process.
fn first_query(dir: &Path, sql: &str, expected: Option<u64>) -> Result<Duration> {
    let answer = Peer::start(System::Loom, dir)?.query(sql)?;
    let is_right = expected.is_none_or(|value| answer.rows == [[value.to_string()]]);
    ensure!(is_right, "{sql}: {:?}", answer.rows);
    Ok(Duration::from_secs_f64(answer.wall))
}

fn started_cold(dir: &Path) -> Result<(Daemon, Duration)> {
    drop_cached(dir)?;
    let began = Instant::now();
    let daemon = Daemon::start(dir, "")?;
    Ok((daemon, began.elapsed()))
}

fn status(dir: &Path) -> Result<()> {
    ingestd(["status".as_ref(), dir.as_os_str()]).map(drop)
}

fn bytes_of_log(dir: &Path) -> Result<String> {
    Ok(format!("{} GB", rounded(log_bytes(dir)? as f64 / 1e9)))
}

fn timed(what: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}

/// Kills a daemon that has just received records, and returns their number.
fn kill_with_staged(daemon: Daemon) -> Result<u64> {
    let client = Client::connect(daemon.dir())?;
    let source = client.define_one(&sources_toml(1, 1, RECORD_BYTES))?;
    for _ in 0..STAGED_RECORDS {
        client.push(source, &[0; RECORD_BYTES])?;
    }
    let counts = client.sync()?.counts;
    ensure!(counts.stored == STAGED_RECORDS, "{counts:?}");
    daemon.kill()?;
    Ok(STAGED_RECORDS)
}
