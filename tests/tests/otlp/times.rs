//! Data points of one sender at many times in one request: all are stored, unless their records would take too much space.

use anyhow::{Result, ensure};

use crate::sender::{Receiving, gauge, metrics, now_ns};

const MS_NS: u64 = 1_000_000;

/// A request with a point of one series for each millisecond until now.
fn each_millisecond(name: &str, times: u64) -> Vec<u8> {
    let first = now_ns() - times * MS_NS;
    let points = (0..times).map(|n| (first + n * MS_NS, "one".to_owned(), n as f64));
    metrics(vec![gauge(name, points)])
}

/// A request with a point of each series at one time.
fn wide(series: u64) -> Vec<u8> {
    let now = now_ns();
    metrics(vec![gauge(
        "wide",
        (0..series).map(|n| (now, n.to_string(), 1.0)),
    )])
}

#[test]
fn a_sender_may_gather_points_of_seconds() -> Result<()> {
    let receiving = Receiving::new("series_max = 1200")?;
    receiving.takes("/v1/metrics", &wide(1200))?;
    // There are more points than `series_max`, of one series, in the second of two groups, whose records have room for two hundred others.
    receiving.takes_all("/v1/metrics", &each_millisecond("load", 5000))?;
    receiving.asks("SELECT count(*) || '|' || count(DISTINCT ts) || '|' || sum(value) FROM loom_series(DIR, 'load')", "5000|5000|12497500.0")?;
    receiving.asks("SELECT count(*) FROM loom_losses(DIR)", "0")?;
    receiving.stop_sound()
}

#[test]
fn a_small_request_whose_records_are_long_is_cut_where_its_room_ends() -> Result<()> {
    let receiving = Receiving::new("body_max = '1MiB'")?;
    receiving.takes("/v1/metrics", &wide(900))?;
    let sent = 10_000;
    let body = each_millisecond("wide", sent as u64);
    ensure!(body.len() < 1 << 20, "{} bytes", body.len());
    let (refused, why) = receiving.post("/v1/metrics", &body)?.refused()?;
    ensure!(
        why.contains("4 times body_max") && why.contains("wide{of="),
        "{refused} {why}"
    );
    // A record has 900 places of a little more than 8 bytes each.
    let kept: i64 = receiving
        .ask("SELECT count(*) FROM loom_series(DIR, 'wide', labels := MAP {'of': 'one'})")?
        .parse()?;
    ensure!(
        kept + refused == sent && (500..=582).contains(&kept),
        "{kept} {refused}"
    );
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    let wanted = refused.to_string();
    receiving.asks_until(lost, wanted)?;
    // Refused points are not known as stored, so fewer points at once are stored.
    receiving.takes("/v1/metrics", &each_millisecond("wide", 100))?;
    receiving.stop()
}

#[test]
fn a_request_with_more_records_than_the_log_buffers_is_stored_whole() -> Result<()> {
    let receiving = Receiving::new("body_max = '64MiB'")?;
    receiving.takes("/v1/metrics", &wide(900))?;
    let sent = 34_000;
    // A quarter of a gigabyte of records.
    let body = each_millisecond("wide", sent);
    receiving.takes("/v1/metrics", &body)?;
    let kept = "SELECT count(*) FROM loom_series(DIR, 'wide', labels := MAP {'of': 'one'})";
    receiving.asks(kept, sent.to_string())?;
    receiving.asks("SELECT count(*) FROM loom_losses(DIR)", "0")?;
    receiving.stop()
}

#[test]
fn points_of_a_new_sender_whose_clock_is_wrong_are_counted() -> Result<()> {
    let receiving = Receiving::new("")?;
    let year_ago = now_ns() - 365 * 86_400_000 * MS_NS;
    let points = (0..10).map(|n| (year_ago, n.to_string(), 1.0));
    let reply = receiving.post("/v1/metrics", &metrics(vec![gauge("old", points)]))?;
    let (refused, why) = reply.refused()?;
    ensure!(
        refused == 10 && why.contains("set the clock of its sender"),
        "{refused} {why}"
    );
    // Each sample counts, with that of `target_info`.
    let lost = "SELECT sum(records) FROM loom_losses(DIR) WHERE source IS NULL";
    receiving.asks(lost, "11")?;
    let detail = receiving.ask("SELECT any_value(detail) FROM loom_scan(DIR, 'loom_losses')")?;
    ensure!(detail.contains("of metrics/shop/i1"), "{detail}");
    receiving.stop()
}
