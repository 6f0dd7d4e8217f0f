//! Data points in any order, as the workers of a Collector send them: each is stored once, and readers see the same as with points in
//! order.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use loom_tests::duckdb::{Session, Version};
use loom_tests::seed::Seed;
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::sender::{Receiving, gauge, metrics_of, now_ns, text};

const MS_NS: u64 = 1_000_000;
const SERIES: [&str; 3] = ["a", "b", "c"];
/// The default of `out_of_order`.
const WINDOW_MS: u64 = 300_000;

/// A point: its time in milliseconds, its series, and its value.
type Point = (u64, &'static str, f64);

fn request(instance: &str, points: &[Point]) -> Vec<u8> {
    let resource = Resource {
        attributes: vec![
            text("service.name", "shop"),
            text("service.instance.id", instance),
        ],
        ..Resource::default()
    };
    let points = points.iter();
    let points = points.map(|(ms, of, value)| (ms * MS_NS, (*of).to_owned(), *value));
    metrics_of(vec![(resource, vec![gauge("sold", points)])])
}

/// Counters over ten minutes, each with its own times and reset now and then, in order.
fn draw(seed: &mut Seed, begin_ms: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for of in SERIES {
        let (mut ms, mut value) = (begin_ms, 0.0);
        while ms < begin_ms + 2 * WINDOW_MS {
            ms += seed.between(1, 3000) as u64;
            value = match seed.between(0, 20) {
                0 => 0.0,
                _ => value + seed.between(0, 100) as f64,
            };
            points.push((ms, of, value));
        }
    }
    points.sort_by_key(|(ms, ..)| *ms);
    points
}

/// Batches as workers send them: a point comes up to half a window late, and one batch in four comes twice.
fn shuffled(seed: &mut Seed, points: &[Point]) -> Vec<Vec<Point>> {
    let late = |point: &Point| {
        (
            point.0 + seed.between(0, WINDOW_MS as i64 / 2) as u64,
            *point,
        )
    };
    let mut points: Vec<(u64, Point)> = points.iter().map(late).collect();
    points.sort_by_key(|(arrival_ms, _)| *arrival_ms);
    let mut rest = points.into_iter().map(|(_, point)| point).peekable();
    let mut batches: Vec<Vec<Point>> = Vec::new();
    while rest.peek().is_some() {
        let batch: Vec<Point> = rest.by_ref().take(seed.between(1, 40) as usize).collect();
        batches.push(batch);
        if seed.chance(25) {
            let again = seed
                .between(0, batches.len() as i64)
                .max(batches.len() as i64 - 3);
            batches.extend(batches.get(again as usize).cloned());
        }
    }
    batches
}

/// The rows of a statement about one instance.
fn rows(session: &mut Session, dir: &Path, instance: &str, sql: &str) -> Result<Vec<String>> {
    let labels = format!("labels := MAP {{'instance': '{instance}'}}");
    let sql = format!("{sql} ORDER BY ALL")
        .replace("DIR", &format!("'{}'", dir.display()))
        .replace("LABELS", &labels);
    let rows = session.query(&sql)?;
    Ok(rows.into_iter().map(|row| format!("{row:?}")).collect())
}

// case Metrics: points out of order, sent again, after a restart
#[test]
fn points_in_any_order_are_stored_once_and_read_as_points_in_order() -> Result<()> {
    let test = "points_in_any_order_are_stored_once_and_read_as_points_in_order";
    let mut seed = Seed::announced(test);
    let mut receiving = Receiving::new("")?;
    let points = draw(&mut seed, now_ns() / MS_NS - 2 * WINDOW_MS);
    receiving.takes_all("/v1/metrics", &request("ordered", &points))?;
    let batches = shuffled(&mut seed, &points);
    let restarts: Vec<usize> = (0..4)
        .map(|_| seed.between(0, batches.len() as i64) as usize)
        .collect();
    for (nth, batch) in batches.iter().enumerate() {
        if restarts.contains(&nth) {
            receiving = receiving.killed_and_started("")?;
        }
        let reply = receiving.post("/v1/metrics", &request("shuffled", batch))?;
        ensure!(
            reply.refused()? == (0, String::new()),
            "batch {nth}: {reply:?}"
        );
    }
    receiving.asks("SELECT count(*) FROM loom_losses(DIR)", "0")?;
    for version in Version::ALL {
        let mut session = Session::open(version)?.with_macros()?;
        let minute = "INTERVAL 1 MINUTE, LABELS, every := INTERVAL 10 SECONDS";
        let half = "INTERVAL 30 SECONDS, LABELS, every := INTERVAL '7s'";
        let last = "loom_series_aggregate(DIR, 'sold', LABELS";
        for sql in [
            "labels['of'], ts_ns, value FROM loom_series(DIR, 'sold', LABELS)",
            &format!("labels['of'], ts, value FROM loom_increase(DIR, 'sold', {minute})"),
            &format!("labels['of'], ts, value FROM loom_counter_rate(DIR, 'sold', {half})"),
            &format!("labels['of'], count, sum, min, max, last FROM {last})"),
            &format!(
                "bucket, labels['of'], count, last FROM {last}, bucket := INTERVAL 20 SECONDS)"
            ),
        ] {
            let sql = &format!("SELECT {sql}");
            let ordered = rows(&mut session, receiving.dir(), "ordered", sql)?;
            let found = rows(&mut session, receiving.dir(), "shuffled", sql)?;
            let other = ordered.iter().zip(&found).find(|(one, other)| one != other);
            ensure!(
                ordered == found && ordered.len() >= SERIES.len(),
                "{sql}: {} and {} rows, {other:?}",
                ordered.len(),
                found.len()
            );
        }
        // The expected rows, made from the sent points.
        let last = "SELECT labels['of'], last FROM loom_series_aggregate(DIR, 'sold', LABELS)";
        let naive: BTreeMap<&str, f64> =
            points.iter().map(|(_, of, value)| (*of, *value)).collect();
        let naive: Vec<String> = naive
            .iter()
            .map(|(of, value)| format!("{:?}", [Some(of.to_string()), Some(format!("{value:?}"))]))
            .collect();
        let found = rows(&mut session, receiving.dir(), "shuffled", last)?;
        ensure!(found == naive, "{found:?}, not {naive:?}");
    }
    receiving.stop()
}

// case Metrics: points out of order, sent again, after a restart
#[test]
fn a_point_beyond_the_window_is_refused_counted_and_named() -> Result<()> {
    let now_ms = now_ns() / MS_NS;
    for (window_ms, more, word) in [
        (WINDOW_MS, "", "out_of_order"),
        (20_000, "out_of_order = '20s'", "out_of_order"),
        (0, "out_of_order = '0s'", "older than the one before"),
    ] {
        let mut receiving = Receiving::new(more)?;
        let sent = |receiving: &Receiving, ms: u64, value: f64| {
            let point = (ms, SERIES[0], value);
            receiving
                .post("/v1/metrics", &request("one", &[point]))?
                .refused()
        };
        ensure!(sent(&receiving, now_ms, 1.0)?.0 == 0);
        for _ in 0..2 {
            let (refused, why) = sent(&receiving, now_ms - window_ms - 1, 2.0)?;
            ensure!(refused == 1 && why.contains(word), "{why}");
            let (refused, why) = sent(&receiving, now_ms - window_ms, 1.0)?;
            ensure!(refused == 0, "{why}");
            let (refused, why) = sent(&receiving, now_ms - window_ms, 3.0)?;
            ensure!(
                refused == 1 && why.contains("within a millisecond"),
                "{why}"
            );
            receiving = receiving.killed_and_started(more)?;
        }
        let kept = "SELECT count(*) || '|' || max(value) FROM loom_series(DIR, 'sold')";
        receiving.asks(kept, if window_ms == 0 { "1|1.0" } else { "2|1.0" })?;
        let lost = "SELECT sum(records) FROM loom_losses(DIR)";
        receiving.asks_until(lost, "4")?;
        receiving.stop()?;
    }
    Ok(())
}

// case Metrics: points out of order, sent again, after a restart
#[test]
fn a_series_that_comes_later_after_a_restart_is_known_too() -> Result<()> {
    let receiving = Receiving::new("")?;
    let now_ms = now_ns() / MS_NS;
    let all = SERIES.map(|of| (now_ms, of, 1.0));
    receiving.takes("/v1/metrics", &request("one", &all))?;
    let receiving = receiving.stopped_and_started("")?;
    // The first request has another time and only one series. The next ones have points that are already stored.
    for (ms, of) in [
        (now_ms + 1000, "a"),
        (now_ms, "a"),
        (now_ms, "b"),
        (now_ms, "c"),
    ] {
        receiving.takes("/v1/metrics", &request("one", &[(ms, of, 1.0)]))?;
    }
    let other = request("one", &[(now_ms, "c", 2.0)]);
    receiving.refuses("/v1/metrics", &other, 1, "several values")?;
    let kept = "SELECT string_agg(series || n, ' ' ORDER BY series) \
                FROM (SELECT labels['of'] AS series, count(*) AS n FROM loom_series(DIR, 'sold') GROUP BY ALL)";
    receiving.asks(kept, "a2 b1 c1")?;
    receiving.stop()
}
