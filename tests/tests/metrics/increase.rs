//! `loom_increase` and `loom_counter_rate` compared with the loop that Prometheus 2.42 runs over each range.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use loom_engine::Timestamp;
use loom_engine::schema::{FieldValue, PayloadEncoder, parse_sources};
use loom_tests::daemon::Daemon;
use loom_tests::duckdb::Version;
use loom_tests::seed::Seed;

use crate::targets::{session, shown};

const MS_NS: i64 = 1_000_000;
const SERIES: usize = 4;

/// A sample: milliseconds, and the value.
type Sample = (i64, f64);

/// The growth within `over_ms` up to a time: `increase()` of Prometheus.
fn increase(samples: &[Sample], at_ms: i64, over_ms: i64) -> Option<f64> {
    let from_ms = at_ms - over_ms;
    let within: Vec<Sample> = samples
        .iter()
        .copied()
        .filter(|(time, _)| (from_ms..=at_ms).contains(time))
        .collect();
    let (first, last) = (within.first()?, within.last()?);
    if within.len() < 2 {
        return None;
    }
    let mut growth = last.1 - first.1;
    for pair in within.windows(2) {
        if let [(_, before), (_, after)] = pair
            && after < before
        {
            growth += before;
        }
    }
    let mut to_start = (first.0 - from_ms) as f64 / 1000.0;
    let to_end = (at_ms - last.0) as f64 / 1000.0;
    let sampled = (last.0 - first.0) as f64 / 1000.0;
    let apart = sampled / (within.len() - 1) as f64;
    if growth > 0.0 && first.1 >= 0.0 {
        // A counter is never negative, so its range is not extended to before zero.
        to_start = to_start.min(sampled * (first.1 / growth));
    }
    let near = apart * 1.1;
    let mut extrapolated = sampled;
    extrapolated += if to_start < near {
        to_start
    } else {
        apart / 2.0
    };
    extrapolated += if to_end < near { to_end } else { apart / 2.0 };
    Some(growth * (extrapolated / sampled))
}

/// Counters that grow, stand still, are reset or are missing, each independently.
fn draw(seed: &mut Seed, begin_ms: i64) -> Vec<(i64, [Option<f64>; SERIES])> {
    let mut values = [0.0; SERIES];
    let mut time_ms = begin_ms;
    let scrapes = seed.between(2, 80);
    (0..scrapes)
        .map(|_| {
            time_ms += seed.between(1, 2000);
            let row = std::array::from_fn(|nth| {
                let value = values.get_mut(nth).expect("one for each series");
                match seed.between(0, 20) {
                    0 => *value = 0.0,
                    1 => *value /= 2.0,
                    2..6 => {}
                    _ => *value += seed.between(0, 1000) as f64 / 8.0,
                }
                // The last one is mostly missing.
                let missing = if nth + 1 == SERIES { 80 } else { 10 };
                (!seed.chance(missing)).then_some(*value)
            });
            (time_ms, row)
        })
        .collect()
}

fn group(nth: usize) -> String {
    let mut toml = format!("[[source]]\nname = 'metrics/random/{nth}'\ntime = 'own'\n");
    for n in 0..SERIES {
        write!(
            toml,
            "[[source.field]]\nname = 'c{n}'\ntype = 'f64'\nnullable = true\n\
             series = {{ __name__ = 'c', n = '{n}', group = '{nth}' }}\n"
        )
        .expect("a text takes all");
    }
    toml
}

// case Metrics: the same target in Prometheus
#[test]
fn growth_is_what_prometheus_says_of_the_same_samples() -> Result<()> {
    let mut seed = Seed::announced("growth_is_what_prometheus_says_of_the_same_samples");
    let place = tempfile::tempdir()?;
    let dir = place.path().join("m.loom");
    let daemon = Daemon::start(&dir, "")?;
    let client = Client::connect(&dir)?;
    let begin_ms = 1_795_000_000_000;
    let mut groups = Vec::new();
    for nth in 0..12 {
        let toml = group(nth);
        let source = client.define_one(&toml)?;
        let def = parse_sources(&toml)?.pop().context("one source")?;
        let mut encoder = PayloadEncoder::new(def.time, &def.fields)?;
        let rows = draw(&mut seed, begin_ms + seed_offset(nth));
        for (time_ms, row) in &rows {
            let values = row.map(|value| value.map_or(FieldValue::Null, FieldValue::F64));
            let mut payload = Vec::new();
            encoder.encode(Some(Timestamp(time_ms * MS_NS)), &values, &mut payload)?;
            client.push(source, &payload)?;
        }
        groups.push(rows);
    }
    client.sync()?;

    for version in Version::ALL {
        let mut session = session(version)?;
        for (nth, rows) in groups.iter().enumerate() {
            let over_ms = seed.between(500, 20_000);
            let every_ms = seed.between(200, 9_000);
            let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else {
                continue;
            };
            let from_ms = first - seed.between(0, 3000);
            let to_ms = last + seed.between(-500, 3000);
            let sql = format!(
                "SELECT labels['n'], epoch_ms(ts), value FROM loom_increase({}, 'c', INTERVAL '{over_ms} milliseconds', \
                 labels := MAP {{'group': '{nth}'}}, every := INTERVAL '{every_ms} milliseconds', \
                 t_from := make_timestamptz({from_ms}000), t_to := make_timestamptz({to_ms}000))",
                shown(&dir)
            );
            let mut found = BTreeMap::new();
            for row in session.query(&sql)? {
                let [Some(n), Some(at), Some(value)] = row.as_slice() else {
                    anyhow::bail!("{row:?}");
                };
                let before = found.insert(
                    (n.parse::<usize>()?, at.parse::<i64>()?),
                    value.parse::<f64>()?,
                );
                ensure!(before.is_none(), "{n} at {at} stands twice");
            }
            for n in 0..SERIES {
                let samples = rows
                    .iter()
                    .filter_map(|(time, row)| Some((*time, (*row.get(n)?)?)));
                let samples: Vec<Sample> = samples.collect();
                let mut at_ms = from_ms;
                while at_ms <= to_ms {
                    let wanted = increase(&samples, at_ms, over_ms);
                    let found = found.remove(&(n, at_ms));
                    let is_same = match (wanted, found) {
                        (Some(wanted), Some(found)) => {
                            (wanted - found).abs() <= 1e-9 * wanted.abs().max(1.0)
                        }
                        (wanted, found) => wanted == found,
                    };
                    ensure!(
                        is_same,
                        "series {n} at {at_ms}: {found:?}, not {wanted:?}\n{sql}\n{samples:?}"
                    );
                    at_ms += every_ms;
                }
            }
            ensure!(found.is_empty(), "{found:?}\n{sql}");
            let per_second = sql.replace("loom_increase", "loom_counter_rate").replace(
                "SELECT labels['n'], epoch_ms(ts), value",
                &format!("SELECT sum(value) * {over_ms} / 1000"),
            );
            let [rates, growth] = [
                per_second,
                sql.replace(
                    "SELECT labels['n'], epoch_ms(ts), value",
                    "SELECT sum(value)",
                ),
            ]
            .map(|sql| session.query(&sql));
            let number = |rows: Vec<Vec<Option<String>>>| -> Option<f64> {
                rows.into_iter().flatten().flatten().next()?.parse().ok()
            };
            let (rates, growth) = (
                number(rates?).unwrap_or(0.0),
                number(growth?).unwrap_or(0.0),
            );
            ensure!(
                (rates - growth).abs() <= 1e-9 * growth.max(1.0),
                "{rates} {growth}"
            );
        }
        let error = session.query(&format!(
            "FROM loom_increase({}, 'c', INTERVAL 0 SECOND)",
            shown(&dir)
        ));
        ensure!(error.is_err_and(|error| error.0.contains("must be positive")));
    }
    daemon.stop()
}

/// The offset between the begins of two groups.
fn seed_offset(nth: usize) -> i64 {
    nth as i64 * 777
}

#[test]
fn the_loop_itself_extrapolates_as_documented() {
    // Every 15 s it grows by one for each second, so a whole range grows by its length.
    let steady: Vec<Sample> = (0..100).map(|n| (n * 15_000, n as f64 * 15.0)).collect();
    assert_eq!(increase(&steady, 605_000, 300_000), Some(300.0));
    // It begins at zero within the range, and is not extended further back.
    assert_eq!(increase(&steady, 60_000, 300_000), Some(60.0));
    assert_eq!(increase(&steady[..1], 60_000, 300_000), None);
}
