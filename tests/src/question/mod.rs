//! Random questions about a table, each in a form for Loom and one for plain DuckDB.
//!
//! The two forms differ only in the source of their rows: a named parameter of Loom is a predicate for DuckDB. So the answers must be
//! equal, whatever the question.

mod aggregate;
mod given;
mod predicate;
mod why;

use self::given::Given;
use self::predicate::predicate;
use crate::seed::Seed;
use crate::table::{Column, Kind, Table};

/// One question, in both forms.
pub struct Question {
    pub loom: String,
    pub plain: String,
    /// The columns of a sum and an average, if the answer has them. The plain answer then ends with two more columns, their tolerances,
    /// because floats add up differently in another order; NULL allows no difference.
    pub inexact: Option<[usize; 2]>,
}

/// The depth to which conditions are nested.
const DEPTH: u32 = 3;

impl Question {
    /// The next question about the table.
    pub fn draw(seed: &mut Seed, table: &Table) -> Question {
        match seed.between(0, 23) {
            0..4 if !table.valued().is_empty() => aggregate::draw(seed, table),
            18 => aggregate::rate(seed, table),
            19 | 20 => aggregate::top(seed, table).unwrap_or_else(|| counts(seed, table)),
            21 | 22 => why::draw(seed, table).unwrap_or_else(|| counts(seed, table)),
            4..8 => digest(seed, table),
            8 => rows_in_order(seed, table),
            9 => buckets(seed, table),
            10 => quantiles(seed, table),
            11 => totals(seed, table),
            12 | 13 => two_scans(seed, table),
            14 => windows(seed, table),
            15 => latest(seed, table),
            16 if !table.indexes.is_empty() => histogram(seed, table),
            _ => counts(seed, table),
        }
    }
}

/// The rows of a question: `loom_scan` with parameters, or the table with the same conditions.
struct Rows {
    loom: String,
    plain: String,
}

fn rows(seed: &mut Seed, table: &Table) -> Rows {
    let mut given = Given::default();
    match seed.between(0, 10) {
        0..4 => given.times(seed, table),
        4 => given.windows(seed, table),
        _ => {}
    }
    if seed.chance(30) && !table.indexes.is_empty() {
        let index = seed.pick(&table.indexes.iter().collect::<Vec<_>>());
        given.index(index);
        if let Some(column) = index
            .value
            .as_ref()
            .filter(|column| column.kind.is_number())
        {
            given.values(seed, column);
        }
    }
    given.matching(seed, table);
    let filter = if seed.chance(75) {
        format!(" WHERE {}", predicate(seed, table, DEPTH))
    } else {
        String::new()
    };
    Rows {
        loom: format!(
            "(FROM loom_scan('{}', '{}'{}){filter})",
            table.dir,
            table.source,
            given.arguments()
        ),
        plain: format!("(FROM (FROM plain WHERE {}){filter})", given.condition()),
    }
}

/// Rows whose order both forms keep. DuckDB promises no order if a subquery or a list becomes a join.
fn rows_kept(seed: &mut Seed, table: &Table) -> Rows {
    loop {
        let rows = rows(seed, table);
        if !rows.loom.contains("(SELECT") && !rows.loom.contains(" IN (") {
            return rows;
        }
    }
}

fn both(rows: &Rows, ask: impl Fn(&str) -> String) -> Question {
    Question {
        loom: ask(&rows.loom),
        plain: ask(&rows.plain),
        inexact: None,
    }
}

fn some_columns(seed: &mut Seed, table: &Table) -> String {
    let names = ["ts", "ts_ns"]
        .into_iter()
        .chain(table.columns.iter().map(|column| column.name.as_str()));
    let mut chosen: Vec<&str> = names.filter(|_| seed.chance(40)).collect();
    chosen.push("ts_ns");
    chosen.join(", ")
}

/// The name of a column that both forms order in the same way.
fn ordered(seed: &mut Seed, table: &Table) -> String {
    let names: Vec<&str> = table
        .columns
        .iter()
        .filter(|column| column.kind.is_number())
        .map(|column| column.name.as_str())
        .chain(["ts_ns"])
        .collect();
    seed.pick(&names).to_owned()
}

/// A column of numbers with only one kind of zero. Of equal values, DuckDB's extremes and quantiles take the one that they meet first, and
/// its sort may print the other.
fn with_one_zero(table: &Table, name: String) -> String {
    let is_float = |column: &&Column| column.name == name && column.kind == Kind::Float;
    match table.columns.iter().find(is_float) {
        Some(_) => format!("({name} + 0.0)"),
        None => name,
    }
}

/// The name of any column.
fn any(seed: &mut Seed, table: &Table) -> String {
    let names: Vec<&str> = table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    seed.pick(&names).to_owned()
}

/// A digest of all rows: their number, and sums over a hash of each.
fn digest(seed: &mut Seed, table: &Table) -> Question {
    let columns = some_columns(seed, table);
    both(&rows(seed, table), |from| {
        format!(
            "SELECT count(*), sum(hash({columns})::HUGEINT), bit_xor(hash({columns})) FROM {from}"
        )
    })
}

/// Counts only, which summaries may answer.
fn counts(seed: &mut Seed, table: &Table) -> Question {
    both(&rows(seed, table), |from| {
        format!("SELECT count(*) FROM {from}")
    })
}

/// The first rows in the order in which they were written.
fn rows_in_order(seed: &mut Seed, table: &Table) -> Question {
    let columns = some_columns(seed, table);
    let limit = seed.between(1, 300);
    let offset = seed.pick(&[0, 0, 1, 100, 2048]);
    both(&rows_kept(seed, table), |from| {
        format!("SELECT {columns} FROM {from} LIMIT {limit} OFFSET {offset}")
    })
}

fn buckets(seed: &mut Seed, table: &Table) -> Question {
    let width = (table.times.span_ns / 1000 / seed.between(1, 100)).max(1);
    let column = with_one_zero(table, ordered(seed, table));
    both(&rows(seed, table), |from| {
        format!(
            "SELECT time_bucket(to_microseconds({width}), ts) AS bucket, count(*), count({column}), min({column}), max({column})
             FROM {from} GROUP BY bucket ORDER BY bucket"
        )
    })
}

fn quantiles(seed: &mut Seed, table: &Table) -> Question {
    let column = with_one_zero(table, ordered(seed, table));
    both(&rows(seed, table), |from| {
        format!("SELECT quantile_disc({column}, [0.0, 0.01, 0.5, 0.99, 0.9999, 1.0]) FROM {from}")
    })
}

fn totals(seed: &mut Seed, table: &Table) -> Question {
    let integers: Vec<&str> = table
        .columns
        .iter()
        .filter(|column| matches!(column.kind, Kind::Integer { .. }))
        .map(|column| column.name.as_str())
        .chain(["ts_ns"])
        .collect();
    let (sum, group, distinct) = (seed.pick(&integers), any(seed, table), any(seed, table));
    both(&rows(seed, table), |from| {
        format!(
            "SELECT least(hash({group}) % 5, 3) AS part, count(*), sum({sum}::HUGEINT), min(ts), max(ts_ns), count(DISTINCT {distinct})
             FROM {from} GROUP BY part ORDER BY part"
        )
    })
}

/// Two scans of one source in one query, each with its own conditions.
fn two_scans(seed: &mut Seed, table: &Table) -> Question {
    let (first, second) = (rows(seed, table), rows(seed, table));
    let (one, other) = (any(seed, table), any(seed, table));
    let join = seed.pick(&["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"]);
    let shape = seed.between(0, 6);
    let ask = |a: &str, b: &str| match shape {
        0 => format!(
            "SELECT count(*), bit_xor(hash(ts_ns, {one})) FROM (SELECT ts_ns, {one} FROM {a} UNION ALL SELECT ts_ns, {one} FROM {b})"
        ),
        1 => format!(
            "SELECT (SELECT count({one}) FROM {a}), (SELECT count({other}) FROM {b}), (SELECT count(*) FROM {a})"
        ),
        2 => format!(
            "SELECT count(*) FROM (SELECT DISTINCT ts_ns, {one} FROM {a}) AS x {join} (SELECT DISTINCT ts_ns, {other} FROM {b}) AS y USING (ts_ns)"
        ),
        3 => format!(
            "WITH x AS {a}, y AS {b} SELECT count(*), (SELECT bit_xor(hash({one})) FROM y WHERE ts_ns >= (SELECT min(ts_ns) FROM x)) FROM x WHERE ts_ns <= (SELECT max(ts_ns) FROM y)"
        ),
        4 => format!(
            "SELECT count(*) FROM ((SELECT ts_ns, {one} FROM {a}) EXCEPT ALL (SELECT ts_ns, {one} FROM {b}))"
        ),
        _ => format!(
            "SELECT count(*) FROM {a} AS x WHERE EXISTS (SELECT 1 FROM {b} AS y WHERE y.ts_ns = x.ts_ns AND y.{one} IS NOT DISTINCT FROM x.{one})"
        ),
    };
    Question {
        loom: ask(&first.loom, &second.loom),
        plain: ask(&first.plain, &second.plain),
        inexact: None,
    }
}

/// Windows over the rows in their order, top rows, and conditions on the results of windows.
fn windows(seed: &mut Seed, table: &Table) -> Question {
    let (column, shown) = (ordered(seed, table), any(seed, table));
    let least = seed.between(1, 50);
    let shape = seed.between(0, 3);
    both(&rows_kept(seed, table), |from| match shape {
        0 => format!(
            "SELECT {} AS shown, ts_ns FROM {from} ORDER BY {column} DESC NULLS LAST, ts_ns LIMIT {least}",
            with_one_zero(table, column.clone())
        ),
        1 => format!(
            "SELECT count(*), bit_xor(hash(n, ts_ns)) FROM (SELECT ts_ns, row_number() OVER () AS n FROM {from}) WHERE n % {least} = 0"
        ),
        _ => format!(
            "SELECT count(*), count({shown}) FROM (FROM {from} QUALIFY rank() OVER (ORDER BY {column}) <= {least})"
        ),
    })
}

/// The latest records, the newest first.
fn latest(seed: &mut Seed, table: &Table) -> Question {
    let columns = some_columns(seed, table);
    let count = seed.pick(&[0, 1, 5, 100, 3000]);
    let mut given = Given::default();
    given.matching(seed, table);
    Question {
        loom: format!(
            "SELECT {columns} FROM loom_tail('{}', '{}', {count}{})",
            table.dir,
            table.source,
            given.arguments()
        ),
        plain: format!(
            "SELECT {columns} FROM (SELECT *, row_number() OVER () AS place FROM plain) WHERE {} ORDER BY place DESC LIMIT {count}",
            given.condition()
        ),
        inexact: None,
    }
}

/// The bins of an index hold each of its values once.
fn histogram(seed: &mut Seed, table: &Table) -> Question {
    let index = seed.pick(&table.indexes.iter().collect::<Vec<_>>());
    let mut given = Given::default();
    if seed.chance(60) {
        given.times(seed, table);
    }
    given.filter(index);
    given.matching(seed, table);
    let value = index
        .value
        .as_ref()
        .map_or("*", |column| column.name.as_str());
    Question {
        loom: format!(
            "SELECT coalesce(sum(count), 0)::BIGINT FROM loom_histogram('{}', '{}', '{}'{})",
            table.dir,
            table.source,
            index.name,
            given.arguments()
        ),
        plain: format!(
            "SELECT count({value}) FROM plain WHERE {}",
            given.condition()
        ),
        inexact: None,
    }
}
