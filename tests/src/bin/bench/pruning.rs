//! The ablation: the same questions without any index, with times alone, with values alone, and with both, at several lookbacks; and an
//! exact match through an index of one bin.

use anyhow::{Result, ensure};

use super::dataset::{Dataset, FAILED_INDEX, Span};
use super::figures::rounded;
use super::options::Sizes;
use super::payloads::{FAILED, INDEX, SOURCE};
use super::peer::System;
use super::table::{Line, Times};

const VARIANTS: [&str; 4] = ["no index", "time index", "chunk index", "both indexes"];
/// The begins of windows that are a tenth of the log, in thousandths from its end.
const LOOKBACKS: [i64; 3] = [150, 500, 950];

/// A condition on values, as a parameter of `loom_scan` and in SQL.
struct Match {
    what: &'static str,
    parameters: String,
    condition: String,
}

pub fn ablate(data: &Dataset, sizes: &Sizes) -> Result<Vec<Line>> {
    let least = data.expected.exceeded_by_one_in(20_000) + 1;
    let matches = [
        Match {
            what: "values above a threshold that 1 in 20,000 passes",
            parameters: format!("index := '{INDEX}', v_min := {least}"),
            condition: format!("latency_ns >= {least}"),
        },
        Match {
            what: "an exact match that 1 in 20,000 is, by an index of one bin",
            parameters: format!("index := '{FAILED_INDEX}'"),
            condition: format!("status = {FAILED}"),
        },
    ];
    let mut loom = data.open(System::Loom)?;
    // Conditions in WHERE use no index; only parameters do.
    loom.query("SET loom_pushdown = false")?;
    let mut duckdb = data.open(System::DuckDb)?;
    let mut lines = Vec::new();
    for wanted in &matches {
        for lookback in LOOKBACKS {
            let span = data.part(1000 - lookback, 1100 - lookback);
            let asked = variants(data, wanted, span);
            let peer_sql = format!(
                "{} FROM t WHERE {} AND {}",
                select(),
                span.condition(),
                wanted.condition
            );
            let expected = duckdb.query(&peer_sql)?.rows;
            for sql in &asked {
                let found = loom.query(sql)?.rows;
                ensure!(found == expected, "{sql}: {found:?}, not {expected:?}");
            }
            let mut times: [Times; 4] = Default::default();
            let mut peer = Times::default();
            for _ in 0..sizes.runs {
                for (sql, times) in asked.iter().zip(&mut times) {
                    times.push(&loom.query(sql)?);
                }
                peer.push(&duckdb.query(&peer_sql)?);
            }
            for (variant, times) in VARIANTS.iter().zip(&times) {
                let line = Line {
                    measure: format!("{}, {variant}", wanted.what),
                    how: format!(
                        "a tenth of {} records, {} s back; warm; all threads",
                        data.records,
                        rounded(lookback as f64 / 1e12 * (data.last_ns - data.first_ns) as f64)
                    ),
                    ..Line::default()
                };
                lines.push(line.with_times(times, Some((System::DuckDb.name(), &peer))));
            }
        }
    }
    Ok(lines)
}

fn select() -> &'static str {
    "SELECT count(*), sum(latency_ns), min(addr), max(addr)"
}

fn variants(data: &Dataset, wanted: &Match, span: Span) -> [String; 4] {
    let dir = data.loom_dir();
    let from = |parameters: &[&str]| {
        let given: String = parameters.iter().map(|one| format!(", {one}")).collect();
        format!(
            "{} FROM loom_scan('{}', '{SOURCE}'{given})",
            select(),
            dir.display()
        )
    };
    let (times, values) = (span.parameters(), wanted.parameters.as_str());
    let (in_time, in_value) = (span.condition(), wanted.condition.as_str());
    [
        format!("{} WHERE {in_time} AND {in_value}", from(&[])),
        format!("{} WHERE {in_value}", from(&[&times])),
        format!("{} WHERE {in_time}", from(&[values])),
        from(&[&times, values]),
    ]
}
