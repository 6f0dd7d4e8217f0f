//! The charts of a dashboard, live: each with Loom's functions beside the same chart on a plain view, and the chunks that both read.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loom_engine::query::Directory;

use super::dataset::{Span, pool};
use super::figures::rounded;
use super::ingest::{check_source, place_in};
use super::options::Sizes;
use super::payloads::{INDEX, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;
use super::table::{Line, Times};

/// Records pushed a second meanwhile.
const RATE: u64 = 1_000_000;
/// The distance of the window from the newest record, for records that are published after the window is chosen.
const MARGIN_US: i64 = 500_000;

/// One chart in both forms. Each form returns the number of points, the number of records in them, and the exact ones of its values.
pub struct Chart {
    name: &'static str,
    pub loom: String,
    view: String,
}

pub fn charts(dir: &Path, window: Span) -> Vec<Chart> {
    let source = format!("'{}', '{SOURCE}'", dir.display());
    let seconds = format!("{}, bucket := INTERVAL 1 SECOND", window.parameters());
    let within = format!(
        "ts >= make_timestamptz({}::BIGINT) AND ts < make_timestamptz({}::BIGINT)",
        window.from_us, window.to_us
    );
    let aggregate = |points: &str, more: &str| {
        format!("SELECT {points} FROM loom_aggregate({source}, '{INDEX}', {seconds}{more})")
    };
    let grouped = |points: &str, values: &str, by: &str| {
        format!(
            "SELECT {points} FROM (SELECT count(*) AS count, {values} FROM live.{SOURCE} WHERE {within} GROUP BY {by})"
        )
    };
    let second = "time_bucket(INTERVAL 1 SECOND, ts)";
    let counted = "count(*), sum(count)::BIGINT";
    let with_max = "count(*), sum(count)::BIGINT, max(max)";
    vec![
        Chart {
            name: "records per second",
            loom: format!("SELECT {counted} FROM loom_rate({source}, {seconds})"),
            view: grouped(counted, "1", second),
        },
        Chart {
            name: "mean and maximum per second",
            loom: aggregate(&format!("{with_max}, count(avg)"), ""),
            view: grouped(
                &format!("{with_max}, count(avg)"),
                "max(latency_ns) AS max, avg(latency_ns) AS avg",
                second,
            ),
        },
        Chart {
            name: "p50, p99, p99.9 per second, approximate",
            loom: aggregate(
                &format!("{counted}, count(p50), count(p99), count(p99_9)"),
                ", quantiles := [0.5, 0.99, 0.999], approx := true",
            ),
            view: grouped(
                &format!("{counted}, count(q[1]), count(q[2]), count(q[3])"),
                "approx_quantile(latency_ns, [0.5, 0.99, 0.999]) AS q",
                second,
            ),
        },
        Chart {
            name: "p99.99 per second, exact",
            loom: aggregate(
                &format!("{counted}, max(p99_99), min(p99_99)"),
                ", quantiles := [0.9999]",
            ),
            view: grouped(
                &format!("{counted}, max(q), min(q)"),
                "quantile_disc(latency_ns, 0.9999) AS q",
                second,
            ),
        },
        Chart {
            name: "heat map, eight bands an octave",
            loom: format!(
                "SELECT sum(count)::BIGINT FROM loom_heat({source}, '{INDEX}', {seconds})"
            ),
            view: grouped(
                "sum(count)::BIGINT",
                "1",
                &format!("{second}, floor(8 * log2(latency_ns))"),
            ),
        },
        Chart {
            name: "the ten slowest",
            loom: format!(
                "SELECT count(*), min(latency_ns), max(latency_ns) FROM loom_top({source}, '{INDEX}', 10, {})",
                window.parameters()
            ),
            view: format!(
                "SELECT count(*), min(latency_ns), max(latency_ns) FROM (SELECT latency_ns FROM live.{SOURCE} WHERE {within} ORDER BY latency_ns DESC LIMIT 10)"
            ),
        },
    ]
}

/// All charts in turn with their peers over one window, while records are pushed.
pub fn live_beside_a_view(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let dir = place.path().join("live.loom");
    let toml = sources_toml(1, 1, RECORD_BYTES);
    let producer = Producer::start(&dir, &toml, pool(), RATE, u64::MAX)?;
    let seconds = sizes.chart_seconds;
    // Waits a few seconds longer than the window, so that the directory begins before it.
    while producer.is_running() && producer.pushed() < RATE * (seconds + 3) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let newest = Directory::open(&dir)?.snapshot()?.newest_ts()?;
    let newest_us = newest.context("no records")?.0 / 1000;
    let to_us = (newest_us - MARGIN_US) / 1_000_000 * 1_000_000;
    let window = Span {
        from_us: to_us - i64::try_from(seconds)? * 1_000_000,
        to_us,
    };
    let mut duckdb = Peer::start(System::Loom, &dir)?;
    duckdb.query(&format!("PRAGMA loom_attach('{}')", dir.display()))?;
    let mut lines = Vec::new();
    for chart in charts(&dir, window) {
        lines.push(measure(&mut duckdb, &chart, sizes)?);
    }
    check_source(&dir, producer.stop()?.records)?;
    Ok(lines)
}

fn measure(duckdb: &mut Peer, chart: &Chart, sizes: &Sizes) -> Result<Line> {
    let mut times: [Times; 2] = Default::default();
    let mut chunks = [String::new(), String::new()];
    for _ in 0..sizes.runs {
        let mut answers = Vec::new();
        for ((sql, times), chunks) in [&chart.loom, &chart.view]
            .into_iter()
            .zip(&mut times)
            .zip(&mut chunks)
        {
            let answer = duckdb.query(sql)?;
            times.push(&answer);
            answers.push(answer.rows);
            *chunks = chunks_read(duckdb)?;
        }
        let agree = answers.first() == answers.last();
        ensure!(agree, "{}: {answers:?}", chart.name);
    }
    let [loom, view] = &times;
    let [loom_chunks, view_chunks] = &chunks;
    let line = Line {
        measure: format!("chart of {} s, live: {}", sizes.chart_seconds, chart.name),
        how: format!(
            "{} M records/s come in; chunks read: {loom_chunks}, and {view_chunks} by the view; warm; all threads",
            rounded(RATE as f64 / 1e6)
        ),
        ..Line::default()
    };
    Ok(line.with_times(loom, Some(("the same on a view of `loom_attach`", view))))
}

/// The chunks that the latest scan read.
fn chunks_read(duckdb: &mut Peer) -> Result<String> {
    let stats = duckdb.query(
        "SELECT chunks_read || ' of ' || chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
    )?;
    let read = stats.rows.into_iter().flatten().next();
    read.context("no scan was counted")
}
