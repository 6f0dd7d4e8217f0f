//! The queries of TSBS' use case "devops" to Loom in both versions of DuckDB, to Prometheus through its API, and to DuckDB over Parquet,
//! once all give the same answer.
//!
//! The systems take turns. In its turn a system is asked the same question for a while, each time as soon as it has answered, like TSBS,
//! which asks one system alone. Each answer is reduced to the number of its rows, their sum, and their sum weighted by time, so that a
//! value in a wrong place is found.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::devops::{Devops, METRICS, Shape};
use super::figures::rounded;
use super::ingest::place_in;
use super::options::Sizes;
use super::peer::{Peer, System};
use super::table::{Line, Times};

/// How long a question is repeated; the median counts.
const STREAM_S: f64 = 0.05;

/// A query of some hosts' metrics over a span.
struct Query {
    name: &'static str,
    metrics: &'static [&'static str],
    hosts: Hosts,
    from_s: i64,
    to_s: i64,
    asks: Asks,
}

enum Hosts {
    All,
    These(Vec<usize>),
}

enum Asks {
    /// The greatest value of all hosts together, by metric, in steps of `every_s` seconds.
    Greatest { every_s: i64 },
    /// The mean of each host, by metric, every hour.
    Means,
    /// The readings above a threshold of the first metric.
    Above(i64),
    /// The latest reading of each host, of all metrics.
    Latest,
}

/// The queries over data of some sizes.
pub fn ask(folder: &Path, hosts: &[usize], sizes: &Sizes) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for hosts in hosts {
        let place = place_in(folder)?;
        let now = jiff::Timestamp::now().as_second();
        let shape = Shape {
            hosts: *hosts,
            hours: 12,
            first_s: (now / 3600 - 12) * 3600,
        };
        let devops = Devops::make(place.path(), shape)?;
        lines.extend(bytes(&devops));
        lines.extend(times(&devops, sizes)?);
    }
    Ok(lines)
}

fn bytes(devops: &Devops) -> Vec<Line> {
    let samples = devops.shape.samples();
    let of = |bytes: u64| bytes as f64 / samples as f64;
    let loom = of(devops.loom_bytes);
    let peers = [
        ("Prometheus", devops.prometheus_bytes),
        ("Parquet with zstd", devops.parquet_bytes),
    ];
    peers
        .map(|(peer, bytes)| Line {
            measure: format!("bytes a sample, {} hosts × 10 metrics", devops.shape.hosts),
            loom: format!("{} B", rounded(loom)),
            peer: peer.to_owned(),
            peer_figure: format!("{} B", rounded(of(bytes))),
            ratio: rounded(of(bytes) / loom),
            how: format!("12 h at 10 s, {samples} samples; all logs, in columns"),
            ..Line::default()
        })
        .into()
}

fn times(devops: &Devops, sizes: &Sizes) -> Result<Vec<Line>> {
    let memory = Path::new(":memory:");
    let mut peers = [
        Peer::start(System::Loom, &devops.loom)?,
        Peer::start(System::LoomInV1, &devops.loom)?,
        Peer::start(System::Prometheus, Path::new(&devops.prometheus.address))?,
        Peer::start(System::DuckDb, memory)?,
    ];
    let mut lines = Vec::new();
    for query in queries(devops.shape) {
        let summed = |sql: String| json!({"do": "sums", "sql": sql, "origin": query.from_s, "seconds": STREAM_S});
        let of_loom = summed(query.of_loom(&devops.loom));
        let asked = [
            of_loom.clone(),
            of_loom,
            json!({"do": "query", "sql": query.of_prometheus(), "seconds": STREAM_S}),
            summed(query.of_parquet(&devops.parquet)),
        ];
        let mut times: [Times; 4] = Default::default();
        let mut first = None;
        for _ in 0..=sizes.runs {
            let mut answers = Vec::new();
            for ((peer, question), times) in peers.iter_mut().zip(&asked).zip(&mut times) {
                let answer = peer.ask(question).with_context(|| question.to_string())?;
                // The first time is a warm-up.
                if first.is_some() {
                    times.push(&answer);
                }
                answers.push(numbers(&answer.rows)?);
            }
            for other in answers.iter().skip(1) {
                let own = answers.first().context("an answer")?;
                ensure!(same(own, other), "{}: {answers:?}", query.name);
            }
            first = Some(answers);
        }
        let rows = first.and_then(|answers| answers.first()?.first().copied());
        let [own, own_in_v1, of_prometheus, of_parquet] = &times;
        let owed = "> 1";
        for (duckdb, own, peer, times, owed) in [
            ("", own, "Prometheus", of_prometheus, owed),
            (", DuckDB 1", own_in_v1, "Prometheus", of_prometheus, owed),
            ("", own, "DuckDB over Parquet", of_parquet, ""),
        ] {
            let line = Line {
                measure: format!("TSBS {}, {} hosts{duckdb}", query.name, devops.shape.hosts),
                owed: owed.to_owned(),
                how: format!("{} rows; warm; all threads", rows.unwrap_or_default()),
                ..Line::default()
            };
            let mut line = line.with_times(own, Some((peer, times)));
            if peer == "Prometheus" {
                // Its server runs in another process than the client, whose CPU time is measured.
                line.peer_cpu.clear();
            }
            lines.push(line);
        }
    }
    Ok(lines)
}

/// The three numbers of an answer.
fn numbers(rows: &[Vec<String>]) -> Result<Vec<f64>> {
    let row = rows.first().context("an answer without a row")?;
    row.iter()
        .map(|text| text.parse().with_context(|| text.clone()))
        .collect()
}

fn same(one: &[f64], other: &[f64]) -> bool {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 0.002;
    one.len() == other.len() && one.iter().zip(other).all(near)
}

fn queries(shape: Shape) -> Vec<Query> {
    let hosts = |count: usize| {
        let step = (shape.hosts / count).max(1);
        Hosts::These((0..count).map(|nth| nth * step).collect())
    };
    let hour = |nth: i64| shape.first_s + nth * 3600;
    let one = METRICS.get(..1).unwrap_or_default();
    let five = METRICS.get(..5).unwrap_or_default();
    let greatest = |name, metrics, count, every_s, hours: i64| Query {
        name,
        metrics,
        hosts: hosts(count),
        from_s: hour(2),
        to_s: hour(2 + hours),
        asks: Asks::Greatest { every_s },
    };
    let of_all = |name, metrics, asks| Query {
        name,
        metrics,
        hosts: Hosts::All,
        from_s: shape.first_s,
        to_s: shape.end_s(),
        asks,
    };
    vec![
        greatest("single-groupby-1-1-1", one, 1, 60, 1),
        greatest("single-groupby-1-8-1", one, 8, 60, 1),
        greatest("single-groupby-5-8-1", five, 8, 60, 1),
        greatest("cpu-max-all-1", &METRICS, 1, 3600, 8),
        greatest("cpu-max-all-8", &METRICS, 8, 3600, 8),
        of_all("double-groupby-1", one, Asks::Means),
        of_all("double-groupby-5", five, Asks::Means),
        of_all("double-groupby-all", &METRICS, Asks::Means),
        Query {
            hosts: hosts(1),
            ..of_all("high-cpu-1", one, Asks::Above(90))
        },
        of_all("high-cpu-all", one, Asks::Above(90)),
        Query {
            // Prometheus looks back this far.
            from_s: shape.end_s() - 300,
            ..of_all("lastpoint", &METRICS, Asks::Latest)
        },
        Query {
            from_s: hour(9) - 300,
            to_s: hour(9),
            ..of_all("groupby-orderby-limit", one, Asks::Greatest { every_s: 60 })
        },
    ]
}

impl Query {
    /// The hosts as a regular expression; `None` for all.
    fn pattern(&self) -> Option<String> {
        match &self.hosts {
            Hosts::All => None,
            Hosts::These(hosts) => {
                let names: Vec<String> = hosts.iter().map(|host| format!("host_{host}")).collect();
                Some(names.join("|"))
            }
        }
    }

    fn of_loom(&self, dir: &Path) -> String {
        let mut labels = Vec::new();
        let metric = match self.metrics {
            [one] => format!("'{one}'"),
            metrics => {
                labels.push(format!("'__name__': '{}'", metrics.join("|")));
                "NULL".to_owned()
            }
        };
        labels.extend(self.pattern().map(|hosts| format!("'hostname': '{hosts}'")));
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!(", labels := {{{}}}", labels.join(", ")),
        };
        // The times are texts, as a dashboard writes them. A function call in DuckDB would take longer than the answer.
        let [from, to] = [self.from_s, self.to_s]
            .map(|second| jiff::Timestamp::from_second(second).expect("a time of this century"));
        let dir = dir.display();
        let of = |function: &str| {
            format!("{function}('{dir}', {metric}{labels}, t_from := '{from}', t_to := '{to}'")
        };
        let aggregate = of("loom_series_aggregate");
        let (host, metric) = ("labels['hostname']", "labels['__name__']");
        match self.asks {
            Asks::Greatest { every_s } => {
                // The name is known if there is only one metric.
                let (shown, by) = match self.metrics {
                    [_] => (String::new(), ""),
                    _ => (format!(", {metric} AS m"), "'__name__'"),
                };
                format!(
                    "SELECT bucket AS t{shown}, max AS v FROM {aggregate}, by := [{by}], bucket := '{every_s} s')"
                )
            }
            Asks::Means => format!(
                "SELECT bucket AS t, {metric} AS m, {host} AS h, avg AS v FROM {aggregate}, bucket := '1 h')"
            ),
            Asks::Above(least) => {
                format!(
                    "SELECT ts AS t, value AS v FROM {}) WHERE value > {least}",
                    of("loom_series")
                )
            }
            Asks::Latest => {
                let latest = self.latest();
                format!(
                    "SELECT {metric} AS m, {host} AS h, {latest} AS t, last AS v FROM {aggregate})"
                )
            }
        }
    }

    fn of_parquet(&self, parquet: &Path) -> String {
        let hosts = match &self.hosts {
            Hosts::All => String::new(),
            Hosts::These(hosts) => {
                let names: Vec<String> =
                    hosts.iter().map(|host| format!("'host_{host}'")).collect();
                format!(" AND hostname IN ({})", names.join(", "))
            }
        };
        let rows = format!(
            "FROM '{}' WHERE ts >= to_timestamp({}) AND ts < to_timestamp({}){hosts}",
            parquet.display(),
            self.from_s,
            self.to_s
        );
        let every = self.every();
        let of_each = |function: &str, of: &str| {
            let columns = self
                .metrics
                .iter()
                .map(|metric| format!("{function}({metric}{of}) AS {metric}"));
            columns.collect::<Vec<_>>().join(", ")
        };
        let wide = match self.asks {
            Asks::Greatest { .. } => {
                format!(
                    "SELECT {every} AS t, {} {rows} GROUP BY t",
                    of_each("max", "")
                )
            }
            Asks::Means => {
                format!(
                    "SELECT {every} AS t, hostname, {} {rows} GROUP BY t, hostname",
                    of_each("avg", "")
                )
            }
            Asks::Above(least) => {
                format!("SELECT ts AS t, usage_user {rows} AND usage_user > {least}")
            }
            Asks::Latest => {
                format!(
                    "SELECT hostname, {} AS t, {} {rows} GROUP BY hostname",
                    self.latest(),
                    of_each("arg_max", ", ts")
                )
            }
        };
        let metrics = self.metrics.join(", ");
        format!("SELECT t, m, v FROM ({wide}) UNPIVOT (v FOR m IN ({metrics}))")
    }

    /// The time of all latest readings, because Prometheus does not return their own times.
    fn latest(&self) -> String {
        format!("to_timestamp({})", self.from_s)
    }

    fn every(&self) -> String {
        let every_s = match self.asks {
            Asks::Greatest { every_s } => every_s,
            _ => 3600,
        };
        format!("time_bucket(INTERVAL {every_s} SECOND, ts)")
    }

    /// The requests in the form that `bench_peer.py` takes.
    fn of_prometheus(&self) -> String {
        let of = |metric: &str| match self.pattern() {
            None => metric.to_owned(),
            Some(hosts) => format!("{metric}{{hostname=~\"{hosts}\"}}"),
        };
        // A range of the API ends where one of ours begins its next bucket.
        let range = |query: String, step_s: i64| json!({"query": query, "start": self.from_s + step_s, "end": self.to_s, "step": step_s, "origin": self.from_s + step_s});
        let requests: Vec<Value> = match self.asks {
            Asks::Greatest { every_s } => self
                .metrics
                .iter()
                .map(|metric| {
                    range(
                        format!("max(max_over_time({}[{every_s}s]))", of(metric)),
                        every_s,
                    )
                })
                .collect(),
            Asks::Means => self
                .metrics
                .iter()
                .map(|metric| range(format!("avg_over_time({}[1h])", of(metric)), 3600))
                .collect(),
            // Samples come back for a range, which is asked for at its end.
            Asks::Above(least) => vec![json!({
                "query": format!("{}[{}s]", of("usage_user"), self.to_s - self.from_s),
                "time": self.to_s,
                "above": least,
                "origin": self.from_s
            })],
            Asks::Latest => vec![json!({
                "query": "{__name__=~\"usage_.*\"}",
                "time": self.to_s,
                "origin": self.to_s
            })],
        };
        Value::from(requests).to_string()
    }
}
