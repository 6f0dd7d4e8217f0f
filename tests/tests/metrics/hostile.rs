//! Targets that are hostile or out of order: each is an error or a counted refusal, and the daemon goes on.

use anyhow::{Result, ensure};
use loom_tests::command::says;
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::Version;

use crate::targets::{Answer, Samples, Server, session, shown};

fn job(name: &str, server: &Server, every: &str, more: &str) -> String {
    format!(
        "[[scrape]]\njob = '{name}'\ntargets = ['{}']\nevery = '{every}'\n{more}\n",
        server.address
    )
}

// case Metrics: targets that answer nothing, half a line, without end, or something else
#[test]
fn each_bad_answer_is_a_failed_scrape_that_the_log_names() -> Result<()> {
    let raw =
        |head: &str, body: &str| Answer::Raw(format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes());
    let endless = Server::start(|_, _| Answer::Endless)?;
    let silent = Server::start(|_, _| Answer::Silent)?;
    let half = Server::start(|_, _| Answer::Text("whole 1\nhal".to_owned()))?;
    let cut = Server::start(|_, _| Answer::OpenMetrics("whole 1\n".to_owned()))?;
    let short = Server::start(move |_, _| raw("200 OK\r\nContent-Length: 100", "whole 1\n"))?;
    let error = Server::start(move |_, _| raw("500 No\r\nContent-Length: 0", ""))?;
    let elsewhere = "302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0";
    let moved = Server::start(move |_, _| raw(elsewhere, ""))?;
    let gzip = "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4";
    let packed = Server::start(move |_, _| raw(gzip, "what"))?;
    let html = Server::start(|_, _| Answer::Text("<html>whole</html>\n".to_owned()))?;
    let nothing = Server::start(|_, _| Answer::Raw(Vec::new()))?;
    let noise = Server::start(|_, _| Answer::Raw(vec![0xFF; 100_000]))?;
    let many = Server::start(|_, _| {
        Answer::Text((0..11).map(|n| format!("whole{{n=\"{n}\"}} 1\n")).collect())
    })?;
    let well = Server::start(|_, _| Answer::Text("well 1\n".to_owned()))?;
    let cut_off = "body_max = '64KiB'\ntimeout = '900ms'";
    let no_answer = "it did not answer within 100ms";
    let no_metric = "line 1: it does not begin with a metric's name";
    let bad = [
        ("endless", &endless, cut_off, "longer than 65536 bytes"),
        ("silent", &silent, "timeout = '100ms'", no_answer),
        ("half", &half, "", "ends within a line"),
        ("cut", &cut, "", "without # EOF"),
        ("short", &short, "", "it closed the connection"),
        ("error", &error, "", "it answered 500"),
        ("moved", &moved, "", "it answered 302"),
        ("html", &html, "", no_metric),
        ("nothing", &nothing, "", "it closed the connection"),
        ("packed", &packed, "", "is compressed (gzip)"),
        ("noise", &noise, "", "is not HTTP"),
        (
            "many",
            &many,
            "series_max = 10",
            "more than series_max = 10",
        ),
    ];
    let mut config = job("well", &well, "1s", "");
    for (name, server, more, _) in &bad {
        config += &job(name, server, "1s", more);
    }
    config += "[[scrape]]\njob = 'closed'\ntargets = ['127.0.0.1:1', 'no-host.invalid:1']\nevery = '1s'\n";
    let place = tempfile::tempdir()?;
    let dir = place.path().join("m.loom");
    let daemon = Daemon::start(&dir, &config)?;
    let at = shown(&dir);
    let mut session = session(Version::V2)?;
    let mut value = |sql: &str| session.value(&sql.replace("DIR", &at));
    // Each target was tried twice, the good one more often.
    let tried = "SELECT count(*) FROM (SELECT labels['job'] FROM loom_series(DIR, 'up') GROUP BY ALL HAVING count(*) > 1)";
    let wanted = (bad.len() + 2).to_string();
    let all = wait_until(|| Ok(value(tried)? == wanted))?;
    ensure!(all, "{}", value(tried)?);
    let up =
        value("SELECT list(DISTINCT labels['job']) FROM loom_series(DIR, 'up') WHERE value = 1")?;
    ensure!(up == "[well]", "{up}");
    ensure!(value("SELECT count(*) FROM loom_labels(DIR, 'whole')")? == "0");
    ensure!(value("SELECT count(*) >= 2 FROM loom_series(DIR, 'well')")? == "true");
    let log = std::fs::read_to_string(dir.with_extension("log"))?;
    for (name, server, _, word) in &bad {
        let address = server.address.to_string();
        let lines = log.lines().filter(|line| line.contains(&address));
        let lines: Vec<&str> = lines.collect();
        // A reason is logged once, not at each scrape. A busy machine may have other reasons in between.
        let reasons = lines
            .iter()
            .map(|line| line.split_once(' ').map(|(_, said)| said));
        let reasons: Vec<_> = reasons.collect();
        let is_once = reasons.windows(2).all(|two| two.first() != two.last());
        ensure!(is_once, "{name}: {lines:?}");
        let mut failed = lines.iter().filter(|line| line.contains("cannot scrape"));
        ensure!(failed.any(|line| line.contains(word)), "{name}: {lines:?}");
    }
    ensure!(log.contains("127.0.0.1:1/metrics: it refused the connection"));
    ensure!(log.contains("no-host.invalid:1/metrics: no host has its name"));
    // Samples that arrived and were not stored are in the ledger.
    let lost = "SELECT list_sort(list(DISTINCT split_part(source, '/', 2))) FROM loom_losses(DIR) WHERE records > 0";
    let all = wait_until(|| Ok(value(lost)? == "[cut, endless, half, html, many]"))?;
    ensure!(all, "{}", value(lost)?);
    daemon.stop()?;
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

#[test]
fn what_the_daemon_reports_of_a_target_cannot_be_forged() -> Result<()> {
    let server = Server::start(|_, _| Answer::Text("up 7\ntwice 1\ntwice 2\n".to_owned()))?;
    let samples = Samples::recorded(&job("app", &server, "200ms", ""), 3)?;
    let value = |sql: &str| samples.value(Version::V2, sql);
    // On a busy machine a scrape may time out, and then `up` is 0.
    for (metric, values) in [("up", "0, 1"), ("twice", "1")] {
        let others = format!(
            "SELECT count(*) FROM loom_series(DIR, '{metric}') WHERE value NOT IN ({values})"
        );
        ensure!(value(&others)? == "0", "{metric}");
    }
    let refused = value("SELECT any_value(detail) FROM loom_scan(DIR, 'loom_losses')")?;
    ensure!(refused.contains("daemon's own, such as up"), "{refused}");
    Ok(())
}

// case Metrics: series that are always new
#[test]
fn churn_is_limited_counted_and_named_while_known_series_go_on() -> Result<()> {
    let server = Server::start(|nth, _| {
        let requests = (0..5).map(|n| format!("request{{id=\"{}\"}} 1\n", nth * 5 + n));
        Answer::Text("steady 1\n".to_owned() + &requests.collect::<String>())
    })?;
    let config = job("app", &server, "200ms", "series_max = 20");
    let samples = Samples::recorded(&config, 8)?;
    let value = |sql: &str| samples.value(Version::V1, sql);
    // Five from the first scrape, and twenty from the rest of the day.
    let kept = value("SELECT count(*) FROM loom_labels(DIR, 'request') WHERE label = 'id'")?;
    ensure!(kept == "25", "{kept}");
    let steady: u64 = value("SELECT count(*) FROM loom_series(DIR, 'steady')")?.parse()?;
    ensure!(steady >= 7, "{steady}");
    let scraped = value("SELECT sum(value) FROM loom_series(DIR, 'scrape_samples_scraped')")?;
    let scraped = scraped.parse::<f64>()? as u64;
    let stored: u64 = value("SELECT count(*) FROM loom_series(DIR, 'request')")?.parse()?;
    let refused: u64 = value("SELECT sum(records) FROM loom_losses(DIR)")?.parse()?;
    ensure!(
        scraped == steady + stored + refused,
        "{scraped} {steady} {stored} {refused}"
    );
    // The refused samples are missing, and each macro reports that if asked.
    for call in [
        "loom_series(DIR, 'steady', complete := true)",
        "loom_increase(DIR, 'steady', INTERVAL 1 SECOND, complete := true)",
        "loom_counter_rate(DIR, 'steady', INTERVAL 1 SECOND, complete := true)",
    ] {
        let answer = value(&format!("SELECT count(*) FROM {call}"));
        says(&format!("{answer:?}"), "is not complete");
    }
    let why = value("SELECT any_value(detail) FROM loom_scan(DIR, 'loom_losses')")?;
    says(&why, "series_max");
    says(&why, "request{id=");
    Ok(())
}

// case Metrics: clocks of targets
#[test]
fn times_of_targets_are_kept_within_reason() -> Result<()> {
    let now_ms = ingestd::wall_clock().0 / 1_000_000;
    let server = Server::start(move |nth, _| {
        let nth = nth as i64;
        // As in a federation, each series has a time of its own.
        let many: String = (0..200)
            .map(|n| format!("many{{n=\"{n}\"}} 1 {}\n", now_ms - n))
            .collect();
        Answer::Text(format!(
            "{many}own {nth} {}\nstill 1 {now_ms}\nback 1 {}\nyears 1 4102444800000\nold 1 1000\nsame 1\nsame 2\nplain {nth}\n",
            now_ms + nth,
            now_ms - nth,
        ))
    })?;
    let samples = Samples::recorded(&job("app", &server, "200ms", ""), 4)?;
    let value = |sql: &str| samples.value(Version::V2, sql);
    let own = value(&format!(
        "SELECT bool_and(ts_ns // 1_000_000 - {now_ms} = value) FROM loom_series(DIR, 'own')"
    ))?;
    ensure!(own == "true");
    for (metric, wanted) in [
        ("many", "200"),
        ("still", "1"),
        ("back", "1"),
        ("years", "0"),
        ("old", "0"),
    ] {
        let found = value(&format!(
            "SELECT count(*) FROM loom_series(DIR, '{metric}')"
        ))?;
        ensure!(found == wanted, "{metric}: {found}");
    }
    ensure!(value("SELECT max(value) FROM loom_series(DIR, 'same')")? == "1.0");
    let refused = value("SELECT string_agg(detail, '; ') FROM loom_scan(DIR, 'loom_losses')")?;
    for why in [
        "10 minutes ahead or a day behind",
        "older than the one before",
        "stands twice",
    ] {
        says(&refused, why);
    }
    Ok(())
}

#[test]
fn a_sample_with_a_time_of_its_own_is_stored_once_across_restarts() -> Result<()> {
    let now_ms = ingestd::wall_clock().0 / 1_000_000;
    let server = Server::start(move |nth, _| {
        Answer::Text(format!(
            "still 1 {now_ms}\nmoves {nth} {}\nplain 1\n",
            now_ms + nth as i64
        ))
    })?;
    let samples = Samples::new()?;
    let value = |sql: &str| samples.value(Version::V2, sql);
    for run in 1..=3 {
        samples.record(&job("app", &server, "200ms", ""), 3 * run)?;
        let still = value("SELECT count(*) FROM loom_series(DIR, 'still')")?;
        ensure!(still == "1", "{still} after {run} runs");
        let moves =
            value("SELECT count(*) - count(DISTINCT ts_ns) FROM loom_series(DIR, 'moves')")?;
        ensure!(moves == "0", "{moves} twice after {run} runs");
    }
    Ok(())
}
