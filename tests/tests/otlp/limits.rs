//! Limits on new senders and series, which the catalog does not have yet, from any sender.

use anyhow::{Result, ensure};
use loom_tests::daemon::{ingestd, wait_until};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::sender::{
    Receiving, Reply, gauge, gauges, logs, metrics, metrics_of, now_ns, said, text,
};

/// Checks that nothing of a request was stored because of a limit, and that the answer names the limit and a time to wait.
fn limited(reply: &Reply, why: &str) -> Result<()> {
    ensure!(reply.status == 429, "{reply:?} {}", reply.why());
    ensure!(reply.head.contains("retry-after: 60"), "{reply:?}");
    ensure!(reply.why().contains(why), "{}", reply.why());
    Ok(())
}

/// A request with one point of each instance.
fn instances(instances: impl Iterator<Item = String>) -> Vec<u8> {
    let sent = instances.map(|instance| {
        let attributes = vec![
            text("service.name", "s"),
            text("service.instance.id", &instance),
        ];
        let resource = Resource {
            attributes,
            ..Resource::default()
        };
        let point = (now_ns(), String::new(), 1.0);
        (resource, vec![gauge("g", [point])])
    });
    metrics_of(sent.collect())
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn a_known_sender_is_not_new_after_a_restart_whoever_else_is() -> Result<()> {
    let known = || "known".to_owned();
    let receiving = Receiving::new("")?;
    receiving.takes("/v1/metrics", &instances([known()].into_iter()))?;
    let receiving = receiving.stopped_and_started("")?;
    let strangers = instances((0..1000).map(|n| n.to_string()));
    receiving.takes("/v1/metrics", &strangers)?;
    let stranger = || "stranger".to_owned();
    let reply = receiving.post("/v1/metrics", &instances([stranger()].into_iter()))?;
    limited(&reply, "more than 1000 senders")?;
    // A request is not to be repeated if a part of it was stored.
    let both = instances([known(), stranger()].into_iter());
    receiving.refuses("/v1/metrics", &both, 1, "1000 senders")?;
    let kept = "SELECT count(*) FROM loom_series(DIR, 'g', labels := MAP {'instance': 'known'})";
    receiving.asks(kept, "2")?;
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    receiving.asks_until(lost, "2")?;
    receiving.stop()
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn strangers_cannot_fill_the_catalog_and_known_series_go_on() -> Result<()> {
    let receiving = Receiving::new("catalog_max = '256KiB'")?;
    let catalog = receiving.dir().join("catalog");
    let catalog_bytes = || Ok::<_, std::io::Error>(catalog.metadata()?.len());
    let known = gauges(["known".to_owned()].into_iter());
    receiving.takes("/v1/metrics", &known)?;
    let before = catalog_bytes()?;
    let long = "x".repeat(3000);
    let send = |n: usize| {
        let series = (0..10).map(|m| format!("{n} {m} {long}"));
        receiving.post("/v1/metrics", &gauges(series))
    };
    let mut taken = 0;
    let last = loop {
        let reply = send(taken)?;
        if reply.status != 200 {
            break reply;
        }
        taken += 1;
        ensure!(taken < 20, "the catalog has no limit");
    };
    limited(&last, "catalog_max")?;
    ensure!(taken > 1, "{taken}");
    // An address may use half of it in a day, and each line takes a little more than its series.
    let grown = catalog_bytes()? - before;
    ensure!(grown < (140 << 10), "{grown}");
    let known = gauges(["known".to_owned()].into_iter());
    receiving.takes("/v1/metrics", &known)?;
    receiving.stop()
}

/// A request with one point of each series of an instance.
fn gauges_of(instance: &str, series: impl Iterator<Item = String>) -> Vec<u8> {
    let attributes = vec![
        text("service.name", "s"),
        text("service.instance.id", instance),
    ];
    let resource = Resource {
        attributes,
        ..Resource::default()
    };
    let points = series.map(|of| (now_ns(), of, 1.0));
    metrics_of(vec![(resource, vec![gauge("g", points)])])
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn what_strangers_filled_is_free_again_once_their_records_are_gone() -> Result<()> {
    const SMALL: &str = "catalog_max = '1MiB'\n[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n[retention]\nmax_bytes = '7424KiB'";
    let receiving = Receiving::new(SMALL)?;
    let catalog = receiving.dir().join("catalog");
    let catalog_bytes = || Ok::<_, std::io::Error>(catalog.metadata()?.len());
    let known = || gauges_of("known", ["a", "b"].into_iter().map(str::to_owned));
    receiving.takes("/v1/metrics", &known())?;
    let before = catalog_bytes()?;
    let long = "x".repeat(3000);
    let stranger = |n: usize| {
        let series = (0..20).map(|m| format!("{m} {long}"));
        gauges_of(&format!("stranger {n}"), series)
    };
    let mut strangers = 0;
    while receiving.post("/v1/metrics", &stranger(strangers))?.status == 200 {
        strangers += 1;
        ensure!(strangers < 40, "the catalog has no limit");
    }
    ensure!(catalog_bytes()? > before + (400 << 10), "{strangers}");
    let series_of = |receiving: &Receiving, instance: &str| {
        let labels = format!("MAP {{'instance': '{instance}'}}");
        let distinct = "SELECT count(DISTINCT labels)";
        receiving.ask(&format!(
            "{distinct} FROM loom_series(DIR, 'g', labels := {labels})"
        ))
    };
    let both = |receiving: &Receiving, of_stranger: &str| -> Result<()> {
        let of_known = series_of(receiving, "known")?;
        ensure!(of_known == "2" && series_of(receiving, "stranger 0")? == of_stranger);
        Ok(())
    };
    both(&receiving, "20")?;

    // Other records are pushed, and retention removes those of the strangers.
    let other = logs((0..300).map(|_| said(&long)).collect());
    let is_small = wait_until(|| {
        receiving.post("/v1/logs", &other)?;
        receiving.takes("/v1/metrics", &known())?;
        Ok(catalog_bytes()? < before + (100 << 10))
    })?;
    ensure!(is_small, "{} bytes", catalog_bytes()?);
    both(&receiving, "0")?;
    let listed = ingestd([
        "source".as_ref(),
        "list".as_ref(),
        receiving.dir().as_os_str(),
    ])?;
    ensure!(
        !listed.contains("stranger 0") && listed.contains("known"),
        "{listed}"
    );
    let small = catalog_bytes()?;
    let receiving = receiving.stopped_and_started(SMALL)?;
    receiving.takes("/v1/metrics", &known())?;
    ensure!(catalog_bytes()? == small, "known series are not new");
    // A sender that was forgotten begins again under its old name.
    receiving.takes_all("/v1/metrics", &stranger(0))?;
    both(&receiving, "20")?;
    let receiving = receiving.killed_and_started(SMALL)?;
    both(&receiving, "20")?;
    receiving.stop_sound()
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn series_that_are_always_new_are_limited_counted_and_named() -> Result<()> {
    let receiving = Receiving::new("series_max = 20")?;
    let mut all_refused = 0;
    for n in 0..10 {
        let points = (0..10).map(|m| format!("{}", n * 10 + m));
        let reply = receiving.post("/v1/metrics", &gauges(points))?;
        // Ten from the first request, and twenty from the rest of the day.
        if n < 3 {
            ensure!(reply.refused()? == (0, String::new()), "{n}: {reply:?}");
            continue;
        }
        limited(&reply, "series_max")?;
        ensure!(reply.why().contains("g{of="), "{}", reply.why());
        all_refused += 10;
    }
    receiving.refuses(
        "/v1/metrics",
        &gauges((0..3).map(|n| (29 + n).to_string())),
        2,
        "within a day",
    )?;
    all_refused += 2;
    receiving.refuses(
        "/v1/metrics",
        &gauges((0..25).map(|n| n.to_string())),
        5,
        "in one request",
    )?;
    let (refused, _) = receiving
        .post("/v1/metrics", &gauges((0..10).map(|n| n.to_string())))?
        .refused()?;
    ensure!(refused == 0, "known series go on");
    receiving.asks(
        "SELECT count(DISTINCT labels) FROM loom_series(DIR, 'g')",
        "30",
    )?;
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    let wanted = (all_refused + 5).to_string();
    receiving.asks_until(lost, wanted)?;
    receiving.stop()
}

#[test]
fn series_of_a_request_are_counted_and_not_their_points() -> Result<()> {
    let receiving = Receiving::new("series_max = 3")?;
    let now = now_ns();
    for (series, wanted) in [(3, 0), (4, 20)] {
        // Twenty points of each series.
        let points = (0..20 * series).map(|n| {
            let time_ns = now + series * 1_000_000_000 + n * 1_000_000;
            (time_ns, (n % series).to_string(), 1.0)
        });
        let sent = metrics(vec![gauge("g", points)]);
        let (refused, why) = receiving.post("/v1/metrics", &sent)?.refused()?;
        ensure!(refused == wanted, "{series}: {refused} {why}");
        ensure!(
            refused == 0 || (why.contains("in one request") && why.contains("g{of=\"3\"")),
            "{why}"
        );
    }
    let kept = "SELECT count(*) || '|' || count(DISTINCT labels) FROM loom_series(DIR, 'g')";
    receiving.asks(kept, "120|3")?;
    receiving.stop()
}
