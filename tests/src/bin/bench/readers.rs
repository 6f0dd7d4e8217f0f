//! Several DuckDB processes that each show a dashboard, refreshed every two seconds, while the daemon takes records from a ring that drops
//! what does not fit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ingestd::client::{RingClient, RingOptions};
use ingestd::protocol::Counts;
use loom_client::ring::layout::CAPACITY_BYTES_MAX;
use loom_tests::daemon::Daemon;

use super::charts::charts;
use super::dataset::Span;
use super::figures::{Figures, rounded};
use super::ingest::place_in;
use super::options::Sizes;
use super::payloads::{Payloads, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::socket::cpu;
use super::table::{Line, Times};

const READERS: [usize; 3] = [1, 4, 16];
/// Records pushed a second meanwhile.
const RATE: u64 = 2_000_000;
/// The interval at which a dashboard is refreshed.
const PERIOD: Duration = Duration::from_secs(2);
/// The interval at which due records are pushed.
const STEP: Duration = Duration::from_millis(1);
const POOL_RECORDS: usize = 1 << 16;

/// The pushed records.
struct Pushed {
    records: u64,
    counts: Counts,
    wall: Duration,
}

/// The queries of some readers.
struct Shown {
    readers: usize,
    wall_ms: Figures,
    cpu_ms: Figures,
    /// The share of a core that the daemon used.
    daemon: f64,
}

pub fn beside_ingest(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let daemon = Daemon::start(&place.path().join("read.loom"), "")?;
    let ended = AtomicBool::new(false);
    let (pushed, shown) = thread::scope(|scope| {
        let producer = scope.spawn(|| push(daemon.dir(), &ended));
        // Fills the window before the readers begin.
        thread::sleep(Duration::from_secs(sizes.chart_seconds) + PERIOD);
        let shown: Result<Vec<Shown>> = (READERS.iter())
            .map(|readers| show_all(&daemon, *readers, sizes))
            .collect();
        ended.store(true, Ordering::Relaxed);
        (joined(producer.join()), shown)
    });
    let (pushed, shown) = (pushed?, shown?);
    daemon.stop()?;
    let Pushed {
        records,
        counts,
        wall,
    } = &pushed;
    ensure!(
        counts.dropped == 0 && counts.stored == *records,
        "{counts:?} of {records} records"
    );
    let rate = rounded(*records as f64 / 1e6 / wall.as_secs_f64());
    Ok(shown
        .iter()
        .map(|shown| Line {
            measure: format!("{} DuckDB processes, a dashboard each", shown.readers),
            loom: format!(
                "a query {} ms, {} ms at the 99th percentile; nothing dropped of {rate} M records/s",
                rounded(shown.wall_ms.median()),
                rounded(shown.wall_ms.percentile(99))
            ),
            loom_cpu: format!(
                "{} ms a query; {} % of a core for the daemon",
                rounded(shown.cpu_ms.mean()),
                rounded(shown.daemon * 100.0)
            ),
            owed: "nothing dropped; CPU a query as with 1".to_owned(),
            how: format!(
                "six charts of the last {} s, every {} s, for {} s: {} queries; a ring of 64 MiB that drops what it has no room for",
                sizes.chart_seconds,
                PERIOD.as_secs(),
                sizes.reader_seconds,
                shown.wall_ms.len()
            ),
            ..Line::default()
        })
        .collect())
}

fn show_all(daemon: &Daemon, readers: usize, sizes: &Sizes) -> Result<Shown> {
    let peers: Vec<Peer> = (0..readers)
        .map(|_| Peer::start(System::Loom, daemon.dir()))
        .collect::<Result<_>>()?;
    let (from, before) = (Instant::now(), cpu(daemon.id())?);
    let until = from + Duration::from_secs(sizes.reader_seconds);
    let dashboards: Vec<Times> = thread::scope(|scope| {
        let threads: Vec<_> = (0u32..)
            .zip(peers)
            .map(|(number, peer)| {
                // No two dashboards are refreshed at the same moment.
                let begin = from + PERIOD * number / readers as u32;
                let seconds = sizes.chart_seconds;
                scope.spawn(move || show(peer, daemon.dir(), seconds, begin, until))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| joined(thread.join()))
            .collect::<Result<_>>()
    })?;
    let spent = cpu(daemon.id())?.saturating_sub(before);
    let all = |of: fn(&Times) -> &Figures| {
        dashboards
            .iter()
            .flat_map(|times| of(times).iter())
            .collect()
    };
    Ok(Shown {
        readers,
        wall_ms: all(|times| &times.wall_ms),
        cpu_ms: all(|times| &times.cpu_ms),
        daemon: spent.as_secs_f64() / from.elapsed().as_secs_f64(),
    })
}

/// Refreshes all charts of one dashboard again and again.
fn show(
    mut duckdb: Peer,
    dir: &Path,
    seconds: u64,
    begin: Instant,
    until: Instant,
) -> Result<Times> {
    let window_us = i64::try_from(seconds * 1_000_000)?;
    let mut times = Times::default();
    let mut due = begin;
    while due < until {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let to_us = jiff::Timestamp::now().as_microsecond();
        let window = Span {
            from_us: to_us - window_us,
            to_us,
        };
        for chart in charts(dir, window) {
            times.push(&duckdb.query(&chart.loom)?);
        }
        due += PERIOD;
    }
    Ok(times)
}

/// Keeps the rate until it is stopped.
fn push(dir: &Path, ended: &AtomicBool) -> Result<Pushed> {
    let payloads = Payloads::draw(RECORD_BYTES, POOL_RECORDS);
    let named = format!("name = \"{SOURCE}\"\n");
    let toml = sources_toml(1, 1, RECORD_BYTES);
    let toml = toml.replacen(&named, &format!("{named}on_overload = \"drop_new\"\n"), 1);
    let options = RingOptions {
        capacity_bytes: CAPACITY_BYTES_MAX,
        ..RingOptions::default()
    };
    let mut client = RingClient::connect_with(dir, options)?;
    let source = client.define_one(&toml)?;
    let mut all = payloads.bytes.chunks_exact(RECORD_BYTES).cycle();
    let (began, mut records) = (Instant::now(), 0);
    while !ended.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_nanos() * u128::from(RATE) / 1_000_000_000) as u64;
        for _ in records..due {
            client.push(source, all.next().context("no payloads")?)?;
        }
        records = records.max(due);
        thread::sleep(STEP);
    }
    let wall = began.elapsed();
    let counts = client.close()?.counts;
    Ok(Pushed {
        records,
        counts,
        wall,
    })
}

fn joined<T>(result: thread::Result<Result<T>>) -> Result<T> {
    result.map_err(|_| anyhow!("a thread panicked"))?
}
