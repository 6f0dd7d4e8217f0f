//! Limits for what is new: senders and series that the catalog does not have yet, whoever sends them.

use anyhow::{Result, ensure};
use loom_tests::daemon::{ingestd, wait_until};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::sender::{
    Receiving, Reply, ask, gauge, gauges, logs, metrics, metrics_of, now_ns, said, text,
};

/// Nothing of a request is taken because of a limit, which the sender can read and wait for.
fn limited(reply: &Reply, why: &str) -> Result<()> {
    ensure!(reply.status == 429, "{reply:?} {}", reply.why());
    ensure!(reply.head.contains("retry-after: 60"), "{reply:?}");
    ensure!(reply.why().contains(why), "{}", reply.why());
    Ok(())
}

/// A request of one point of each instance.
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
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    let known = || "known".to_owned();
    let receiving = Receiving::start(&dir, "")?;
    let first = receiving.post("/v1/metrics", &instances([known()].into_iter()))?;
    ensure!(first.refused()?.0 == 0, "{first:?}");
    receiving.daemon.stop()?;

    let receiving = Receiving::start(&dir, "")?;
    let strangers = instances((0..1000).map(|n| n.to_string()));
    let reply = receiving.post("/v1/metrics", &strangers)?;
    ensure!(reply.refused()?.0 == 0, "{reply:?}");
    let stranger = || "stranger".to_owned();
    let reply = receiving.post("/v1/metrics", &instances([stranger()].into_iter()))?;
    limited(&reply, "more than 1000 senders")?;
    // What is stored of a request is not to come again.
    let both = instances([known(), stranger()].into_iter());
    let (refused, why) = receiving.post("/v1/metrics", &both)?.refused()?;
    ensure!(refused == 1 && why.contains("1000 senders"), "{why}");
    let kept = "SELECT count(*) FROM loom_series(DIR, 'g', labels := MAP {'instance': 'known'})";
    ensure!(ask(&dir, kept)? == "2", "{}", ask(&dir, kept)?);
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    ensure!(
        wait_until(|| Ok(ask(&dir, lost)? == "2"))?,
        "{}",
        ask(&dir, lost)?
    );
    receiving.daemon.stop()
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn strangers_cannot_fill_the_catalog_and_known_series_go_on() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    let receiving = Receiving::start(&dir, "catalog_max = '256KiB'")?;
    let catalog_bytes = || Ok::<_, std::io::Error>(dir.join("catalog").metadata()?.len());
    let known = gauges(["known".to_owned()].into_iter());
    ensure!(receiving.post("/v1/metrics", &known)?.refused()?.0 == 0);
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
    // An address has half of it a day, and a line a little around its series.
    let grown = catalog_bytes()? - before;
    ensure!(grown < (140 << 10), "{grown}");
    let known = gauges(["known".to_owned()].into_iter());
    ensure!(receiving.post("/v1/metrics", &known)?.refused()?.0 == 0);
    receiving.daemon.stop()
}

/// A request of one point of each series of an instance.
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
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    let receiving = Receiving::start(&dir, SMALL)?;
    let catalog_bytes = || Ok::<_, std::io::Error>(dir.join("catalog").metadata()?.len());
    let known = || gauges_of("known", ["a", "b"].into_iter().map(str::to_owned));
    ensure!(receiving.post("/v1/metrics", &known())?.refused()?.0 == 0);
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
    let series_of = |instance: &str| {
        let labels = format!("MAP {{'instance': '{instance}'}}");
        let sql =
            format!("SELECT count(DISTINCT labels) FROM loom_series(DIR, 'g', labels := {labels})");
        ask(&dir, &sql)
    };
    ensure!(series_of("stranger 0")? == "20" && series_of("known")? == "2");

    // Other records come, and retention removes those of the strangers.
    let other = logs((0..300).map(|_| said(&long)).collect());
    let is_small = wait_until(|| {
        receiving.post("/v1/logs", &other)?;
        ensure!(receiving.post("/v1/metrics", &known())?.refused()?.0 == 0);
        Ok(catalog_bytes()? < before + (100 << 10))
    })?;
    ensure!(is_small, "{} bytes", catalog_bytes()?);
    ensure!(series_of("stranger 0")? == "0" && series_of("known")? == "2");
    let listed = ingestd(["source".as_ref(), "list".as_ref(), dir.as_os_str()])?;
    ensure!(
        !listed.contains("stranger 0") && listed.contains("known"),
        "{listed}"
    );
    receiving.daemon.stop()?;

    let small = catalog_bytes()?;
    let receiving = Receiving::start(&dir, SMALL)?;
    ensure!(receiving.post("/v1/metrics", &known())?.refused()?.0 == 0);
    ensure!(catalog_bytes()? == small, "known series are not new");
    // A sender that is forgotten begins again under its old name.
    let reply = receiving.post("/v1/metrics", &stranger(0))?;
    ensure!(reply.refused()? == (0, String::new()), "{reply:?}");
    ensure!(series_of("stranger 0")? == "20" && series_of("known")? == "2");
    receiving.daemon.kill()?;
    let receiving = Receiving::start(&dir, SMALL)?;
    ensure!(series_of("stranger 0")? == "20" && series_of("known")? == "2");
    receiving.daemon.stop()?;
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn series_that_are_always_new_are_limited_counted_and_named() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    let receiving = Receiving::start(&dir, "series_max = 20")?;
    let mut all_refused = 0;
    for n in 0..10 {
        let points = (0..10).map(|m| format!("{}", n * 10 + m));
        let reply = receiving.post("/v1/metrics", &gauges(points))?;
        // Ten of the first request, and twenty of the day.
        if n < 3 {
            ensure!(reply.refused()? == (0, String::new()), "{n}: {reply:?}");
            continue;
        }
        limited(&reply, "series_max")?;
        ensure!(reply.why().contains("g{of="), "{}", reply.why());
        all_refused += 10;
    }
    let (refused, why) = receiving
        .post("/v1/metrics", &gauges((0..3).map(|n| (29 + n).to_string())))?
        .refused()?;
    ensure!(refused == 2 && why.contains("within a day"), "{why}");
    all_refused += refused;
    let (refused, why) = receiving
        .post("/v1/metrics", &gauges((0..25).map(|n| n.to_string())))?
        .refused()?;
    ensure!(refused == 5 && why.contains("in one request"), "{why}");
    let (refused, _) = receiving
        .post("/v1/metrics", &gauges((0..10).map(|n| n.to_string())))?
        .refused()?;
    ensure!(refused == 0, "known series go on");
    let kept = ask(
        &dir,
        "SELECT count(DISTINCT labels) FROM loom_series(DIR, 'g')",
    )?;
    ensure!(kept == "30", "{kept}");
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    let wanted = (all_refused + 5).to_string();
    ensure!(
        wait_until(|| Ok(ask(&dir, lost)? == wanted))?,
        "{}",
        ask(&dir, lost)?
    );
    receiving.daemon.stop()
}

#[test]
fn series_of_a_request_are_counted_and_not_their_points() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    let receiving = Receiving::start(&dir, "series_max = 3")?;
    let now = now_ns();
    for (series, wanted) in [(3, 0), (4, 20)] {
        // Twenty points of each.
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
    ensure!(ask(&dir, kept)? == "120|3", "{}", ask(&dir, kept)?);
    receiving.daemon.stop()
}
