//! P9: queries of another process while records are pushed, and while none are.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use loom_engine::query::Directory;

use super::dataset::{Span, pool};
use super::figures::rounded;
use super::ingest::{check_source, place_in};
use super::options::Sizes;
use super::payloads::{INDEX, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;
use super::table::{Line, Times};

/// The questions about a window, in their order.
pub const QUESTIONS: [&str; 4] = [
    "count, sum, min, max, avg",
    "exact quantile 0.9999",
    "rows above a threshold that 1 in 20,000 passes",
    "dump, all columns, rows discarded",
];

/// `least` is the threshold of the third question.
pub fn questions(dir: &Path, source: &str, least: u64, span: Span) -> [String; 4] {
    let (dir, window) = (dir.display(), span.parameters());
    let aggregate = format!("loom_aggregate('{dir}', '{source}', '{INDEX}', {window}");
    let scan = format!("loom_scan('{dir}', '{source}', {window})");
    [
        format!("SELECT count, sum, min, max, avg FROM {aggregate})"),
        format!("SELECT p99_99 FROM {aggregate}, quantiles := [0.9999])"),
        format!("SELECT ts_ns, latency_ns FROM {scan} WHERE latency_ns > {least}"),
        format!("EXPLAIN ANALYZE SELECT * FROM {scan}"),
    ]
}

/// The arrival of the newest published record, in µs.
pub fn newest_us(dir: &Path) -> Result<i64> {
    let newest = Directory::open(dir)?.snapshot()?.newest_ts()?;
    Ok(newest.map_or(0, |ts| ts.0 / 1000))
}

/// P9: the same window while records are pushed and while none are, in turn.
pub fn live_against_idle(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    const SETTLE: Duration = Duration::from_millis(300);
    let place = place_in(folder)?;
    let dir = place.path().join("bench.loom");
    let payloads = pool();
    let least = payloads.expected(payloads.len()).exceeded_by_one_in(20_000);
    let rate = sizes.live_rate;
    let producer = Producer::start(
        &dir,
        &sources_toml(1, 1, RECORD_BYTES),
        payloads,
        rate,
        u64::MAX,
    )?;
    // Waits for the window, and for the half second after it.
    while producer.is_running() && producer.pushed() < 3 * rate {
        std::thread::sleep(SETTLE);
    }
    let to_us = newest_us(&dir)? - 500_000;
    let window = Span {
        from_us: to_us - 2_000_000,
        to_us,
    };
    let asked = questions(&dir, SOURCE, least, window);
    let mut loom = Peer::start(System::Loom, &dir)?;
    let mut live: [Times; 4] = Default::default();
    let mut idle: [Times; 4] = Default::default();
    for _ in 0..sizes.runs {
        for (times, paused) in [(&mut live, false), (&mut idle, true)] {
            producer.pause(paused);
            std::thread::sleep(SETTLE);
            for (sql, times) in asked.iter().zip(times) {
                times.push(&loom.query(sql)?);
            }
        }
    }
    let produced = producer.stop()?;
    check_source(&dir, produced.records)?;
    Ok(QUESTIONS
        .iter()
        .zip(live.iter().zip(&idle))
        .map(|(question, (live, idle))| Line {
            target: "P9",
            measure: format!("{question}, live against idle"),
            loom: format!("{} ms live, {} ms idle", live.wall_ms, idle.wall_ms),
            loom_cpu: format!(
                "{} ms live, {} ms idle",
                rounded(live.cpu_ms.median()),
                rounded(idle.cpu_ms.median())
            ),
            peer: "itself, idle".to_owned(),
            ratio: format!(
                "{} × the time",
                rounded(live.wall_ms.median() / idle.wall_ms.median())
            ),
            owed: "≤ 1.5 × the time".to_owned(),
            how: format!(
                "a window of 2 s, {} M records/s come in; the newest half second before it excepted; all threads",
                rounded(rate as f64 / 1e6)
            ),
            ..Line::default()
        })
        .collect())
}
