//! Random questions about the rows of `mixed`, each in a form for Loom and one for plain DuckDB.
//!
//! The two forms differ only in where the rows come from: what Loom is told by a named parameter, DuckDB is told by a predicate.
//! So the answers must be equal, whatever was asked.

use crate::mixed::{COLUMNS, Column, FIRST_NS, Kind, SPAN_NS, indexes};
use crate::seed::Seed;

/// One question, in both forms.
pub struct Question {
    pub loom: String,
    pub plain: String,
    /// Where the answer holds a sum and an average, the columns they stand in. The plain answer then ends with two columns
    /// more: what the sum and the average may differ by, for floats add up differently in another order; NULL where they may not.
    pub inexact: Option<[usize; 2]>,
}

impl Question {
    /// The next question about the source `mixed` of the directory `dir`.
    pub fn draw(seed: &mut Seed, dir: &str) -> Question {
        match seed.between(0, 10) {
            0..4 => aggregate(seed, dir),
            4..6 => digest(seed, dir),
            6 => rows_in_order(seed, dir),
            7 => buckets(seed, dir),
            8 => quantiles(seed, dir),
            _ => totals(seed, dir),
        }
    }
}

/// Where the rows of a question come from: `loom_scan` with parameters, or the view with what they mean.
struct Rows {
    loom: String,
    plain: String,
}

/// What both kinds of named parameters say, and the same as predicates.
#[derive(Default)]
struct Given {
    parameters: Vec<String>,
    predicates: Vec<String>,
}

impl Given {
    fn say(&mut self, parameter: String, predicate: String) {
        self.parameters.push(parameter);
        self.predicates.push(predicate);
    }

    fn arguments(&self) -> String {
        self.parameters
            .iter()
            .map(|parameter| format!(", {parameter}"))
            .collect()
    }

    fn condition(&self) -> String {
        if self.predicates.is_empty() {
            "true".to_owned()
        } else {
            self.predicates.join(" AND ")
        }
    }
}

fn instant(ns: i64) -> String {
    format!("make_timestamp({})::TIMESTAMPTZ", ns / 1000)
}

/// A window within or around the data, from most of it down to microseconds.
fn window(seed: &mut Seed) -> (i64, i64) {
    let width = SPAN_NS >> seed.between(0, 24);
    let from = FIRST_NS + seed.between(-width / 4, SPAN_NS);
    (
        from - from % 1000,
        from - from % 1000 + width - width % 1000,
    )
}

fn give_time(seed: &mut Seed, given: &mut Given) {
    let (from, to) = window(seed);
    if seed.chance(60) {
        given.say(
            format!("t_from := {}", instant(from)),
            format!("ts_ns >= {from}"),
        );
    }
    if seed.chance(60) {
        given.say(format!("t_to := {}", instant(to)), format!("ts_ns < {to}"));
    }
}

fn give_around(seed: &mut Seed, given: &mut Given) {
    let width_us = 1 << seed.between(3, 22);
    let centres: Vec<i64> = (0..seed.between(1, 6)).map(|_| window(seed).0).collect();
    let list: Vec<String> = centres.iter().map(|at| instant(*at)).collect();
    let windows: Vec<String> = centres
        .iter()
        .map(|at| {
            format!(
                "ts_ns >= {} AND ts_ns < {}",
                at - width_us * 1000,
                at + width_us * 1000
            )
        })
        .collect();
    given.say(
        format!(
            "around := [{}], width := INTERVAL {width_us} MICROSECOND",
            list.join(", ")
        ),
        format!("(({}))", windows.join(") OR (")),
    );
}

fn an_index(seed: &mut Seed) -> Column {
    let indexed: Vec<Column> = indexes().copied().collect();
    seed.pick(&indexed)
}

/// Bounds on `column`, one or both.
fn give_values(seed: &mut Seed, column: &Column, given: &mut Given) {
    let [low, high] = [(column.value)(seed), (column.value)(seed)];
    let which = seed.between(0, 3);
    if which != 1 {
        given.say(
            format!("v_min := {low}"),
            format!("{} >= {low}", column.name),
        );
    }
    if which != 0 {
        given.say(
            format!("v_max := {high}"),
            format!("{} <= {high}", column.name),
        );
    }
}

fn rows(seed: &mut Seed, dir: &str) -> Rows {
    let mut given = Given::default();
    match seed.between(0, 8) {
        0..4 => give_time(seed, &mut given),
        4 => give_around(seed, &mut given),
        _ => {}
    }
    if seed.chance(35) {
        let column = an_index(seed);
        given.parameters.push(format!("index := '{}'", column.name));
        give_values(seed, &column, &mut given);
    }
    let filter = if seed.chance(60) {
        format!(" WHERE {}", predicate(seed, 2))
    } else {
        String::new()
    };
    Rows {
        loom: format!(
            "(FROM loom_scan('{dir}', 'mixed'{}){filter})",
            given.arguments()
        ),
        plain: format!("(FROM (FROM plain WHERE {}){filter})", given.condition()),
    }
}

/// A condition as people type it, over times and fields.
fn predicate(seed: &mut Seed, depth: u32) -> String {
    let deeper = depth.saturating_sub(1);
    match seed.between(0, if depth == 0 { 8 } else { 12 }) {
        0 => {
            let (from, to) = window(seed);
            format!("ts >= {} AND ts < {}", instant(from), instant(to))
        }
        1 => {
            let (from, to) = window(seed);
            format!("ts_ns BETWEEN {from} AND {to}")
        }
        2 => {
            let column = seed.pick(&COLUMNS);
            format!("{} IS {}NULL", column.name, seed.pick(&["", "NOT "]))
        }
        3 => {
            let column = seed.pick(&COLUMNS);
            let list: Vec<String> = (0..seed.between(1, 5))
                .map(|_| (column.value)(seed))
                .collect();
            format!("{} IN ({})", column.name, list.join(", "))
        }
        4 => {
            let column = an_index(seed);
            format!(
                "{} BETWEEN {} AND {}",
                column.name,
                (column.value)(seed),
                (column.value)(seed)
            )
        }
        5 => {
            let column = an_index(seed);
            let operator = seed.pick(&["<", "<=", ">", ">="]);
            format!("{} {operator} {}", (column.value)(seed), column.name)
        }
        6 | 7 => {
            let column = seed.pick(&COLUMNS);
            let operator = seed.pick(&["<", "<=", ">", ">=", "=", "<>"]);
            format!("{} {operator} {}", column.name, (column.value)(seed))
        }
        8 => format!("NOT ({})", predicate(seed, deeper)),
        9 => format!(
            "({} OR {})",
            predicate(seed, deeper),
            predicate(seed, deeper)
        ),
        _ => format!(
            "({} AND {})",
            predicate(seed, deeper),
            predicate(seed, deeper)
        ),
    }
}

fn both(rows: &Rows, ask: impl Fn(&str) -> String) -> Question {
    Question {
        loom: ask(&rows.loom),
        plain: ask(&rows.plain),
        inexact: None,
    }
}

fn some_columns(seed: &mut Seed) -> String {
    let names = ["ts", "ts_ns"]
        .into_iter()
        .chain(COLUMNS.iter().map(|column| column.name));
    let mut chosen: Vec<&str> = names.filter(|_| seed.chance(40)).collect();
    chosen.push("ts_ns");
    chosen.join(", ")
}

/// All rows at once: their number, and sums over a hash of each.
fn digest(seed: &mut Seed, dir: &str) -> Question {
    let columns = some_columns(seed);
    both(&rows(seed, dir), |from| {
        format!(
            "SELECT count(*), sum(hash({columns})::HUGEINT), bit_xor(hash({columns})) FROM {from}"
        )
    })
}

/// The first rows themselves, in the order in which they were written.
fn rows_in_order(seed: &mut Seed, dir: &str) -> Question {
    let columns = some_columns(seed);
    let limit = seed.between(1, 300);
    both(&rows(seed, dir), |from| {
        format!("SELECT {columns} FROM {from} LIMIT {limit}")
    })
}

fn buckets(seed: &mut Seed, dir: &str) -> Question {
    let seconds = seed.between(1, 90);
    let column = an_index(seed).name;
    both(&rows(seed, dir), |from| {
        format!(
            "SELECT time_bucket(INTERVAL {seconds} SECOND, ts) AS bucket, count(*), count({column}), min({column}), max({column})
             FROM {from} GROUP BY bucket ORDER BY bucket"
        )
    })
}

fn quantiles(seed: &mut Seed, dir: &str) -> Question {
    let column = an_index(seed).name;
    both(&rows(seed, dir), |from| {
        format!("SELECT quantile_disc({column}, [0.0, 0.01, 0.5, 0.99, 0.9999, 1.0]) FROM {from}")
    })
}

fn totals(seed: &mut Seed, dir: &str) -> Question {
    let integers: Vec<&str> = COLUMNS
        .iter()
        .filter(|column| column.kind == Kind::Integer)
        .map(|column| column.name)
        .collect();
    let column = seed.pick(&integers);
    both(&rows(seed, dir), |from| {
        format!(
            "SELECT op, count(*), sum({column}), min(ts), max(ts_ns), count(DISTINCT word) FROM {from} GROUP BY op ORDER BY op"
        )
    })
}

/// `loom_aggregate` against DuckDB's own aggregates.
fn aggregate(seed: &mut Seed, dir: &str) -> Question {
    let column = an_index(seed);
    let name = column.name;
    let mut given = Given::default();
    if seed.chance(70) {
        give_time(seed, &mut given);
    }
    if seed.chance(40) {
        give_values(seed, &column, &mut given);
    }
    let mut arguments = given.arguments();
    let (mut bucket, mut group) = (String::new(), String::new());
    if seed.chance(40) {
        let width = format!("INTERVAL {} MILLISECOND", seed.between(200, 100_000));
        arguments.push_str(&format!(", bucket := {width}"));
        bucket = format!("time_bucket({width}, ts) AS bucket, ");
        group = " GROUP BY bucket ORDER BY bucket".to_owned();
    }
    let (mut answers, mut names) = (Vec::new(), Vec::new());
    for (quantile, column) in [
        ("0.5", "p50"),
        ("0.9", "p90"),
        ("0.999", "p99_9"),
        ("0.9999", "p99_99"),
        ("1.0", "p100"),
    ] {
        if seed.chance(30) {
            answers.push(format!(", quantile_disc({name}, {quantile}) AS {column}"));
            names.push(quantile);
        }
    }
    if !names.is_empty() {
        arguments.push_str(&format!(", quantiles := [{}]", names.join(", ")));
    }
    let exact = if column.kind == Kind::Float {
        "false"
    } else {
        "true"
    };
    let magnitude = format!("abs({name}::DOUBLE)");
    Question {
        loom: format!(
            "SELECT * FROM loom_aggregate('{dir}', 'mixed', '{name}'{arguments}){}",
            if group.is_empty() {
                ""
            } else {
                " ORDER BY bucket"
            }
        ),
        plain: format!(
            "SELECT {bucket}count({name}), sum({name}), min({name}), max({name}), avg({name}){},
                CASE WHEN NOT {exact} THEN 1e-12 * sum({magnitude}) END, 1e-12 * avg({magnitude})
             FROM plain WHERE {name} IS NOT NULL AND {}{group}",
            answers.concat(),
            given.condition()
        ),
        inexact: Some(if bucket.is_empty() { [1, 4] } else { [2, 5] }),
    }
}
