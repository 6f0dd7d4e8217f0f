//! P8 and P9: queries of another process while records come in.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loom_engine::query::Directory;

use super::dataset::{Span, pool};
use super::figures::{Figures, rounded};
use super::ingest::{check_source, place_in};
use super::options::{LiveSizes, Sizes};
use super::payloads::{INDEX, RECORD_BYTES, SOURCE, sources_toml};
use super::peer::{Peer, System};
use super::producer::Producer;
use super::table::{Line, Times};

/// What is asked about a window, in the order in which it is asked.
const QUESTIONS: [&str; 4] = [
    "count, sum, min, max, avg",
    "exact quantile 0.9999",
    "rows above a threshold that 1 in 20,000 passes",
    "dump, all columns, rows discarded",
];

fn questions(dir: &Path, least: u64, span: Span) -> [String; 4] {
    let (dir, window) = (dir.display(), span.parameters());
    let aggregate = format!("loom_aggregate('{dir}', '{SOURCE}', '{INDEX}', {window}");
    let scan = format!("loom_scan('{dir}', '{SOURCE}', {window})");
    [
        format!("SELECT count, sum, min, max, avg FROM {aggregate})"),
        format!("SELECT p99_99 FROM {aggregate}, quantiles := [0.9999])"),
        format!("SELECT ts_ns, latency_ns, request FROM {scan} WHERE latency_ns > {least}"),
        format!("EXPLAIN ANALYZE SELECT * FROM {scan}"),
    ]
}

/// The arrival of the newest record that is published, in µs.
fn newest_us(dir: &Path) -> Result<i64> {
    let newest = Directory::open(dir)?.snapshot()?.newest_ts()?;
    Ok(newest.map_or(0, |ts| ts.0 / 1000))
}

/// P9: the same window while records come in and while none do, in turns.
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
    // The window, and the half second after it.
    while producer.is_running() && producer.pushed() < 3 * rate {
        std::thread::sleep(SETTLE);
    }
    let to_us = newest_us(&dir)? - 500_000;
    let window = Span {
        from_us: to_us - 2_000_000,
        to_us,
    };
    let asked = questions(&dir, least, window);
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

/// P8: a steady rate for a while, and windows at several distances back from now.
pub fn lookbacks(folder: &Path, sizes: &LiveSizes) -> Result<Vec<Line>> {
    /// Before the first question, and between rounds.
    const PERIOD: Duration = Duration::from_millis(1000);
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
    let began = Instant::now();
    let mut loom = Peer::start(System::Loom, &dir)?;
    let mut times: Vec<[Times; 4]> = sizes.lookbacks.iter().map(|_| Default::default()).collect();
    std::thread::sleep(PERIOD);
    while producer.is_running() && producer.pushed() < limit {
        let round = Instant::now();
        let newest_us = newest_us(&dir)?;
        for (seconds, times) in sizes.lookbacks.iter().zip(&mut times) {
            if began.elapsed() < Duration::from_secs(seconds + 1) {
                continue;
            }
            let from_us = newest_us - i64::try_from(seconds * 1_000_000)?;
            let window = Span {
                from_us,
                to_us: from_us + 1_000_000,
            };
            for (sql, times) in questions(&dir, least, window).iter().zip(times) {
                times.push(&loom.query(sql)?);
            }
        }
        std::thread::sleep(PERIOD.saturating_sub(round.elapsed()));
    }
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
    for (number, question) in QUESTIONS.iter().enumerate() {
        let of = |times: &[Times; 4]| -> Figures {
            times
                .get(number)
                .map(|times| times.wall_ms.clone())
                .unwrap_or_default()
        };
        let by_lookback: Vec<Figures> = times.iter().map(of).collect();
        let figures: Vec<String> = sizes
            .lookbacks
            .iter()
            .zip(&by_lookback)
            .map(|(seconds, figures)| format!("{seconds} s back: {figures} ms"))
            .collect();
        let far = by_lookback.last().map_or(f64::NAN, Figures::median);
        let near = by_lookback.first().map_or(f64::NAN, Figures::median);
        lines.push(Line {
            target: "P8",
            measure: format!("{question} of 1 s meanwhile, by lookback"),
            loom: figures.join("; "),
            peer: "itself, near".to_owned(),
            ratio: format!("{} × the time", rounded(far / near)),
            owed: "≤ 1.1 × the time".to_owned(),
            how: "live; all threads".to_owned(),
            ..Line::default()
        });
    }
    Ok(lines)
}
