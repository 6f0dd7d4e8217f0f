//! Tens of thousands of sources with one record a second each: the cost of a definition, the cost for the daemon, and the time that a
//! start, `ingestd status` and `ingestd check` take afterwards.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ingestd::client::Client;
use loom_engine::SourceId;
use loom_tests::daemon::{Daemon, ingestd};
use loom_tests::seed::Seed;

use super::clock::Stopwatch;
use super::figures::{Figures, rounded};
use super::ingest::{log_bytes, place_in};
use super::options::Sizes;
use super::socket::{cpu, most_memory_bytes};
use super::table::Line;

/// Definitions that are timed at the beginning and at the end.
const TIMED: usize = 1000;
const ORDER_SEED: u64 = 1;

pub fn many_sources(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let daemon = Daemon::start(
        &place.path().join("bench.loom"),
        "[log]\nchunk = \"1MiB\"\n",
    )?;
    let client = Client::connect(daemon.dir())?;
    let (sources, defined) = define(&client, sizes.sources)?;
    let before = cpu(daemon.id())?;
    let lag = push(&client, sources, sizes.source_seconds)?;
    let spent = cpu(daemon.id())?.saturating_sub(before);
    let memory_bytes = most_memory_bytes(daemon.id())?;
    let dir = daemon.dir().to_owned();
    daemon.stop()?;
    let records = (sizes.sources * sizes.source_seconds) as u64;
    let disk_bytes = log_bytes(&dir)?;
    let began = Instant::now();
    let daemon = Daemon::start(&dir, "")?;
    let started = began.elapsed();
    daemon.stop()?;
    let commands = ["status", "check"].map(|command| timed_command(command, &dir, records));
    let [status, check] = commands;
    let seconds = |time: Duration| rounded(time.as_secs_f64());
    let line = |measure: &str, loom: String, owed: &str, how: String| Line {
        measure: format!("{} sources: {measure}", sizes.sources),
        loom,
        owed: owed.to_owned(),
        how,
        ..Line::default()
    };
    let [first, last] = defined;
    Ok(vec![
        line(
            "a definition, the last thousand",
            format!("{last} ms"),
            "as the first",
            format!("the first thousand {first} ms; each is durable when it is answered"),
        ),
        line(
            "a record a second each, in random order",
            format!(
                "{} s of CPU a second",
                seconds(spent / sizes.source_seconds as u32)
            ),
            "nothing dropped",
            format!(
                "{records} records of 8 B in {} s; the slowest second's were visible after {} s; the daemon held at most {} MiB, staging included; {} B on disk a \
                 record; chunks of 1 MiB",
                sizes.source_seconds,
                seconds(lag),
                memory_bytes >> 20,
                rounded(disk_bytes as f64 / records as f64)
            ),
        ),
        line(
            "a start after a clean stop",
            format!("{} s", seconds(started)),
            "",
            String::new(),
        ),
        line(
            "`ingestd status` without a daemon",
            format!("{} s", seconds(status?)),
            "",
            String::new(),
        ),
        line(
            "`ingestd check`",
            format!("{} s", seconds(check?)),
            "",
            String::new(),
        ),
    ])
}

/// Defines sources one by one. Returns them, and the times of the first and the last definitions in ms.
fn define(client: &Client, count: usize) -> Result<(Vec<SourceId>, [Figures; 2])> {
    let mut sources = Vec::new();
    let mut defined: [Figures; 2] = Default::default();
    for number in 0..count {
        let toml = format!(
            "[[source]]\nname = \"s{number}\"\n[[source.field]]\nname = \"v\"\ntype = \"u64\"\n[[source.index]]\nname = \"v\"\nvalue = \"v\"\nbins = \"auto\"\n"
        );
        let began = Instant::now();
        sources.push(client.define_one(&toml)?);
        let spent_ms = began.elapsed().as_secs_f64() * 1e3;
        let [first, last] = &mut defined;
        if number < TIMED {
            first.push(spent_ms);
        }
        if number + TIMED >= count {
            last.push(spent_ms);
        }
    }
    Ok((sources, defined))
}

/// Pushes a record of each source a second, each time in another order. Returns the longest time until a second's records were visible.
fn push(client: &Client, mut sources: Vec<SourceId>, seconds: usize) -> Result<Duration> {
    let mut seed = Seed::of(ORDER_SEED);
    let mut lag_most = Duration::ZERO;
    for second in 0..seconds {
        for at in 0..sources.len() {
            let other = seed.between(0, sources.len() as i64 - 1) as usize;
            sources.swap(at, other);
        }
        let watch = Stopwatch::start();
        for source in &sources {
            client.push(*source, &(second as u64).to_le_bytes())?;
        }
        let synced = client.sync()?;
        let pushed = ((second + 1) * sources.len()) as u64;
        ensure!(
            synced.counts.stored == pushed,
            "{synced:?} of {pushed} records"
        );
        let spent = watch.cost().wall;
        lag_most = lag_most.max(spent);
        std::thread::sleep(Duration::from_secs(1).saturating_sub(spent));
    }
    Ok(lag_most)
}

fn timed_command(command: &str, dir: &Path, records: u64) -> Result<Duration> {
    let began = Instant::now();
    let printed = ingestd([command.as_ref(), dir.as_os_str()])?;
    let spent = began.elapsed();
    ensure!(
        !printed.is_empty(),
        "{command} of {records} records prints nothing"
    );
    Ok(spent)
}
