//! P8 and C8: a steady rate for a while, and windows of a second at several distances from now, of one source and of the demo.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::daemon::DaemonStatus;
use loom_tests::daemon::wait_until;

use super::dataset::{Span, pool};
use super::figures::{Figures, rounded};
use super::ingest::{check_source, place_in};
use super::live::{QUESTIONS, newest_us, questions};
use super::options::LiveSizes;
use super::payloads::{RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;
use super::rules::{demo, end};
use super::table::{Line, Times};

/// The time before the first question, and between rounds.
const PERIOD: Duration = Duration::from_millis(1000);

/// P8: with the engine alone.
pub fn of_rows(folder: &Path, sizes: &LiveSizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let dir = place.path().join("bench.loom");
    let payloads = pool();
    let least = payloads.expected(payloads.len()).exceeded_by_one_in(20_000);
    let limit = sizes.rate * sizes.seconds;
    let producer = Producer::start(
        &dir,
        &sources_toml(1, 1, RECORD_BYTES),
        payloads,
        sizes.rate,
        limit,
    )?;
    let goes_on = || producer.is_running() && producer.pushed() < limit;
    let times = ask(&dir, SOURCE, least, &sizes.lookbacks, &goes_on)?;
    let produced = producer.finish()?;
    ensure!(
        produced.records == limit,
        "{} records were pushed, not {limit}",
        produced.records
    );
    check_source(&dir, limit)?;
    let mut lines = vec![Line {
        target: "P8",
        measure: format!(
            "ingest of {} M records/s for {} s while queries run",
            rounded(sizes.rate as f64 / 1e6),
            sizes.seconds
        ),
        loom: format!("{limit} records stored, none dropped"),
        loom_cpu: format!(
            "{} % of a core",
            rounded(produced.cpu.as_secs_f64() / produced.wall.as_secs_f64() * 100.0)
        ),
        owed: "nothing dropped, ≤ 35 % of a core".to_owned(),
        how: format!(
            "`push`, a timestamp a record, {RECORD_BYTES} B, one `auto` index; durable within 500 ms; {} stalls, {} s in all; at most {} ms behind",
            produced.stalls,
            rounded(produced.stall.as_secs_f64()),
            produced.lag_most.as_millis()
        ),
        ..Line::default()
    }];
    let line = Line {
        target: "P8",
        owed: "≤ 1.1 × the time".to_owned(),
        how: "live; all threads".to_owned(),
        ..Line::default()
    };
    lines.extend(by_lookback(&line, &sizes.lookbacks, &times));
    Ok(lines)
}

/// C8: with a daemon that records the demo.
pub fn of_columns(folder: &Path, sizes: &LiveSizes) -> Result<Vec<Line>> {
    /// One of the demo's sources.
    const SYSCALLS: &str = "syscall";
    /// Enough to keep all of it.
    const KEEP: &str = "48GiB";
    let place = place_in(folder)?;
    let dir = place.path().join("demo.loom");
    let daemon = demo(&dir, sizes.rate, KEEP)?;
    let least = threshold(&dir, SYSCALLS)?;
    let began = Instant::now();
    let length = Duration::from_secs(sizes.seconds);
    let goes_on = || began.elapsed() < length;
    let times = ask(&dir, SYSCALLS, least, &sizes.lookbacks, &goes_on)?;
    let status: DaemonStatus = serde_json::from_str(&Client::connect(&dir)?.status()?)?;
    end(daemon)?;
    let of_all = |count: fn(&ingestd::daemon::SourceStatus) -> u64| -> u64 {
        status.sources.iter().map(count).sum()
    };
    let (stored, lost) = (
        of_all(|source| source.stored),
        of_all(|source| source.refused + source.dropped),
    );
    ensure!(lost == 0, "{lost} records were refused or dropped");
    let mut lines = vec![Line {
        target: "C8",
        measure: format!(
            "ingest of {} M records/s for {} s while queries run",
            rounded(sizes.rate as f64 / 1e6),
            sizes.seconds
        ),
        loom: format!("{stored} records stored, none dropped"),
        owed: "nothing dropped".to_owned(),
        how: format!(
            "`ingestd demo`; at the end {} GB of records in {} GB, of {} GB in all; {} stalls, {} s in all",
            rounded(status.records_encoded_bytes as f64 / 1e9),
            rounded(status.records_disk_bytes as f64 / 1e9),
            rounded(status.segment_bytes as f64 / 1e9),
            status.log_stalls,
            rounded(status.log_stall_ns as f64 / 1e9)
        ),
        ..Line::default()
    }];
    let line = Line {
        target: "C8",
        owed: "≤ 2 × the time".to_owned(),
        how: "live, one of the demo's three sources; all threads".to_owned(),
        ..Line::default()
    };
    lines.extend(by_lookback(&line, &sizes.lookbacks, &times));
    Ok(lines)
}

/// The value that one in 20,000 of a source's latencies exceeds.
fn threshold(dir: &Path, source: &str) -> Result<u64> {
    let mut loom = Peer::start(System::Loom, dir)?;
    let sql = format!(
        "SELECT p99_995, count FROM loom_aggregate('{}', '{source}', 'latency', quantiles := [0.99995])",
        dir.display()
    );
    let mut found = None;
    wait_until(|| {
        let rows = loom.query(&sql)?.rows;
        let row = rows.first().context("an aggregate without a row")?;
        let [value, count] = row.as_slice() else {
            anyhow::bail!("{row:?} are not two numbers");
        };
        let enough = count.parse::<u64>()? > 100_000;
        found = enough.then(|| value.parse()).transpose()?;
        Ok(enough)
    })?;
    found.context("the demo records too little")
}

/// Asks the questions in rounds, and returns the times of each, by distance.
fn ask(
    dir: &Path,
    source: &str,
    least: u64,
    lookbacks: &[u64],
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<[Times; 4]>> {
    let began = Instant::now();
    let mut loom = Peer::start(System::Loom, dir)?;
    let mut times: Vec<[Times; 4]> = lookbacks.iter().map(|_| Default::default()).collect();
    std::thread::sleep(PERIOD);
    while goes_on() {
        let round = Instant::now();
        let newest_us = newest_us(dir)?;
        for (seconds, times) in lookbacks.iter().zip(&mut times) {
            if began.elapsed() < Duration::from_secs(seconds + 1) {
                continue;
            }
            let from_us = newest_us - i64::try_from(seconds * 1_000_000)?;
            let window = Span {
                from_us,
                to_us: from_us + 1_000_000,
            };
            for (sql, times) in questions(dir, source, least, window).iter().zip(times) {
                times.push(&loom.query(sql)?);
            }
        }
        std::thread::sleep(PERIOD.saturating_sub(round.elapsed()));
    }
    Ok(times)
}

/// A line for each question.
fn by_lookback(line: &Line, lookbacks: &[u64], times: &[[Times; 4]]) -> Vec<Line> {
    let of = |(number, question): (usize, &&str)| {
        let of_number = |times: &[Times; 4]| -> Figures {
            times
                .get(number)
                .map(|times| times.wall_ms.clone())
                .unwrap_or_default()
        };
        let by_lookback: Vec<Figures> = times.iter().map(of_number).collect();
        let figures: Vec<String> = lookbacks
            .iter()
            .zip(&by_lookback)
            .map(|(seconds, figures)| format!("{seconds} s back: {figures} ms"))
            .collect();
        let far = by_lookback.last().map_or(f64::NAN, Figures::median);
        let near = by_lookback.first().map_or(f64::NAN, Figures::median);
        Line {
            measure: format!("{question} of 1 s meanwhile, by lookback"),
            loom: figures.join("; "),
            peer: "itself, near".to_owned(),
            ratio: format!("{} × the time", rounded(far / near)),
            ..line.clone()
        }
    };
    QUESTIONS.iter().enumerate().map(of).collect()
}
