//! The same target scraped by Loom and by Prometheus at the same time: the same samples, the same rates.
//!
//! The target is Debian's `prometheus-node-exporter` behind a server that reads its metrics once a second and adds their time, so that both
//! have every sample at the same time.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loom_tests::command::Running;
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use serde::Deserialize;

use crate::targets::{Answer, Server, get, session, shown};

/// The labels of a series and a time in milliseconds.
type Place = (BTreeMap<String, String>, i64);

/// An address on which nothing listens.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The latest metrics of the exporter, and the time at which they were read.
#[derive(Default)]
struct Latest {
    text: String,
    taken: Option<Instant>,
}

/// Serves the exporter's metrics of this second, each with its time.
fn relay(exporter: String) -> Result<Server> {
    let latest: Arc<Mutex<Latest>> = Arc::default();
    Server::start(move |_, _| {
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest
            .taken
            .is_none_or(|taken| taken.elapsed() > Duration::from_secs(1))
            && let Ok(text) = get(&exporter, "/metrics")
        {
            let now_ms = ingestd::wall_clock().0 / 1_000_000;
            let stamped = text.lines().map(|line| match line.starts_with('#') {
                true => format!("{line}\n"),
                false => format!("{line} {now_ms}\n"),
            });
            latest.text = stamped.collect();
            latest.taken = Some(Instant::now());
        }
        Answer::Text(latest.text.clone())
    })
}

/// An answer of Prometheus' API.
#[derive(Deserialize)]
struct Reply {
    data: Found,
}

#[derive(Deserialize)]
struct Found {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    /// Seconds, and the value as text.
    values: Vec<(f64, String)>,
}

/// Asks Prometheus' API for values by series and time.
fn ask(prometheus: &str, query: &str) -> Result<BTreeMap<Place, f64>> {
    let encoded: String = query
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'_' | b'=' | b'&' | b'?' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let reply: Reply = serde_json::from_str(&get(prometheus, &format!("/api/v1/{encoded}"))?)?;
    let mut found = BTreeMap::new();
    for Series { metric, values } in reply.data.result {
        for (seconds, value) in values {
            let time_ms = (seconds * 1000.0).round() as i64;
            found.insert((metric.clone(), time_ms), value.parse()?);
        }
    }
    Ok(found)
}

fn of_loom(session: &mut Session, from: &str) -> Result<BTreeMap<Place, f64>> {
    let rows = session.query(&format!(
        "SELECT to_json(labels), epoch_ms(ts), value FROM {from}"
    ))?;
    let mut found = BTreeMap::new();
    for row in rows {
        let [Some(labels), Some(at), Some(value)] = row.as_slice() else {
            anyhow::bail!("{row:?}");
        };
        let place = (serde_json::from_str(labels)?, at.parse()?);
        ensure!(
            found.insert(place, value.parse()?).is_none(),
            "{row:?} stands twice"
        );
    }
    Ok(found)
}

/// Fails if a value differs, or is in one of the two only.
fn same(loom: &BTreeMap<Place, f64>, other: &BTreeMap<Place, f64>, tolerance: f64) -> Result<()> {
    for (place, wanted) in other {
        let found = loom
            .get(place)
            .with_context(|| format!("{place:?} is missing"))?;
        let is_same = found.to_bits() == wanted.to_bits()
            || found.is_nan() && wanted.is_nan()
            || (found - wanted).abs() <= tolerance * wanted.abs();
        ensure!(is_same, "{place:?}: {found}, not {wanted}");
    }
    ensure!(
        loom.len() == other.len(),
        "{} and {}",
        loom.len(),
        other.len()
    );
    Ok(())
}

// case Metrics: the same target in Prometheus
#[test]
fn samples_and_rates_are_those_of_prometheus() -> Result<()> {
    let test = "samples_and_rates_are_those_of_prometheus";
    if !machine::has(test, &["prometheus", "prometheus-node-exporter"])? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let exporter = free_address()?;
    let mut command = Command::new("prometheus-node-exporter");
    let _exporter = Running::start(command.arg(format!("--web.listen-address={exporter}")));
    ensure!(wait_until(|| Ok(get(&exporter, "/metrics").is_ok()))?);
    let target = relay(exporter)?;
    let prometheus = free_address()?;
    let config = place.path().join("prometheus.yml");
    std::fs::write(
        &config,
        format!(
            "scrape_configs:\n- job_name: node\n  scrape_interval: 300ms\n  scrape_timeout: 300ms\n  static_configs:\n  - targets: ['{}']\n    labels: {{ env: test }}\n",
            target.address
        ),
    )?;
    let tsdb = place.path().join("tsdb");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", tsdb.display()));
    let _prometheus = Running::start(command.arg(format!("--web.listen-address={prometheus}")));
    let dir = place.path().join("m.loom");
    let job = format!(
        "[[scrape]]\njob = 'node'\ntargets = ['{}']\nevery = '300ms'\nlabels = {{ env = 'test' }}\n",
        target.address
    );
    let daemon = Daemon::start(&dir, &job)?;
    let at = shown(&dir);
    let mut sessions = Version::ALL.map(session);
    // Waits for ten seconds that both have seen, and some more.
    let [Ok(loom), _] = &mut sessions else {
        anyhow::bail!("no session")
    };
    let loom_times = format!(
        "SELECT list_sort(list(DISTINCT epoch_ms(ts))) FROM loom_series({at}, 'node_load1')"
    );
    let mut times: Vec<i64> = Vec::new();
    ensure!(wait_until(|| {
        let theirs = ask(&prometheus, "query?query=node_load1[5m]").unwrap_or_default();
        let ours = loom
            .query(&loom_times)?
            .into_iter()
            .flatten()
            .flatten()
            .next();
        let ours: Vec<i64> = ours.map_or(Ok(Vec::new()), |times| serde_json::from_str(&times))?;
        times = ours
            .into_iter()
            .filter(|time| theirs.keys().any(|(_, at)| at == time))
            .collect();
        Ok(times.len() > 12)
    })?);
    let (first, last) = (times[1], times[times.len() - 2]);
    // Ranges of the API are closed at both ends.
    let span = last - first;
    let wanted = ask(
        &prometheus,
        &format!(
            "query?query={{job=\"node\",__name__=~\"node_.*\"}}[{span}ms]&time={}",
            last as f64 / 1000.0
        ),
    )?;
    ensure!(wanted.len() > 1000, "{} samples", wanted.len());
    let names = BTreeMap::from_iter(
        wanted
            .keys()
            .map(|(labels, _)| (labels["__name__"].clone(), ())),
    );
    ensure!(names.len() > 100, "{names:?}");
    let window =
        format!("t_from := make_timestamptz({first}000), t_to := make_timestamptz({last}001)");
    let (start, end) = (first + 2500, last);
    let growth = |function: &str| {
        let (start, end) = (start as f64 / 1000.0, end as f64 / 1000.0);
        let query = format!("{function}(node_cpu_seconds_total[3700ms])");
        ask(
            &prometheus,
            &format!("query_range?query={query}&start={start}&end={end}&step=0.7"),
        )
    };
    let (increases, rates) = (growth("increase")?, growth("rate")?);
    ensure!(increases.len() > 50, "{} increases", increases.len());
    for session in &mut sessions {
        let session = session
            .as_mut()
            .map_err(|error| anyhow::anyhow!("{error:#}"))?;
        let found = of_loom(
            session,
            &format!(
                "loom_series({at}, NULL, labels := MAP {{'job': 'node', '__name__': 'node_.*'}}, {window})"
            ),
        )?;
        same(&found, &wanted, 0.0)?;
        let arguments = format!(
            "({at}, 'node_cpu_seconds_total', INTERVAL '3700 milliseconds', every := INTERVAL '700 milliseconds', \
             t_from := make_timestamptz({start}000), t_to := make_timestamptz({end}000))"
        );
        same(
            &of_loom(session, &format!("loom_increase{arguments}"))?,
            &increases,
            1e-9,
        )?;
        same(
            &of_loom(session, &format!("loom_counter_rate{arguments}"))?,
            &rates,
            1e-9,
        )?;
    }
    println!(
        "{} samples of {} metrics, {} increases: equal",
        wanted.len(),
        names.len(),
        increases.len()
    );
    daemon.stop()
}
