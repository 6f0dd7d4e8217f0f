//! The daemon's path: the records of one producer through the socket into the log.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ingestd::client::Client;
use ingestd::protocol::Shape;
use loom_tests::daemon::Daemon;

use super::clock::Stopwatch;
use super::figures::{Figures, rounded};
use super::ingest::{BATCH_RECORDS, check_source, place_in};
use super::options::Sizes;
use super::payloads::{RECORD_BYTES, sources_toml};
use super::speed::pool;
use super::table::Line;

/// The kernel counts a process's CPU time in hundredths of a second.
const TICKS_A_SECOND: f64 = 100.0;

/// The runs of one way to push.
#[derive(Default)]
struct Runs {
    wall: Figures,
    cpu: Figures,
}

/// Pushes one by one and in batches, in turn, until everything is visible to queries.
pub fn through_the_socket(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let payloads = pool(RECORD_BYTES);
    let place = place_in(folder)?;
    let daemon = Daemon::start(&place.path().join("bench.loom"), "")?;
    let client = Client::connect(daemon.dir())?;
    let source = client.define_one(&sources_toml(1, 1, RECORD_BYTES))?;
    let shape = Shape::Fixed {
        record_bytes: u16::try_from(RECORD_BYTES)?,
    };
    let records = payloads.whole_turns(sizes.ingest_records);
    let mut ways: [Runs; 2] = Default::default();
    for _ in 0..sizes.runs {
        for (runs, batch_records) in ways.iter_mut().zip([1, BATCH_RECORDS]) {
            let (watch, before) = (Stopwatch::start(), cpu(daemon.id())?);
            for _ in 0..records / payloads.len() {
                for bytes in payloads.bytes.chunks(RECORD_BYTES * batch_records) {
                    if batch_records == 1 {
                        client.push(source, bytes)?;
                    } else {
                        client.push_batch(source, shape, bytes)?;
                    }
                }
            }
            client.sync()?;
            let cost = watch.cost();
            let spent = cost.process_cpu + cpu(daemon.id())?.saturating_sub(before);
            let rate = |time: Duration| records as f64 / 1e6 / time.as_secs_f64();
            runs.wall.push(rate(cost.wall));
            runs.cpu.push(rate(spent));
        }
    }
    let memory_bytes = most_memory_bytes(daemon.id())?;
    let dir = daemon.dir().to_owned();
    daemon.stop()?;
    check_source(&dir, records * 2 * sizes.runs as u64)?;
    let calls = ["one by one", "in batches of 1024"];
    Ok(ways
        .iter()
        .zip(calls)
        .map(|(runs, call)| Line {
            measure: format!("socket to log, one producer, {call}, one `auto` index, wall"),
            loom: format!("{} M/s", runs.wall),
            loom_cpu: format!("{} M/s of both processes' CPU", runs.cpu),
            owed: "≥ 10 M/s".to_owned(),
            how: format!(
                "{records} records of 48 B; a timestamp for each frame that the client sends; visible to queries at the end, durable within 500 ms; the daemon held at most {} MiB, staging included",
                rounded(memory_bytes as f64 / f64::from(1 << 20))
            ),
            ..Line::default()
        })
        .collect())
}

/// The CPU time of a process and its threads.
pub fn cpu(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).context(path)?;
    // The name, in parentheses, may contain blanks. User and system time are the twelfth and thirteenth word after it.
    let words = text.rsplit_once(')').map_or("", |(_, words)| words);
    let ticks: u64 = words
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|word| word.parse::<u64>())
        .sum::<Result<u64, _>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / TICKS_A_SECOND))
}

/// The most memory that a process has used.
pub fn most_memory_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).context(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no VmHWM")?.parse::<u64>()? * 1024)
}
