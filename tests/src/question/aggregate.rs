//! `loom_aggregate` against DuckDB's own aggregates.

use super::given::Given;
use super::{Question, with_one_zero};
use crate::seed::Seed;
use crate::table::{Kind, Table, instant};

const QUANTILES: [(&str, &str); 7] = [
    ("0.0", "p0"),
    ("0.01", "p1"),
    ("0.5", "p50"),
    ("0.9", "p90"),
    ("0.999", "p99_9"),
    ("0.9999", "p99_99"),
    ("1.0", "p100"),
];

pub fn draw(seed: &mut Seed, table: &Table) -> Question {
    let valued = table.valued();
    let (index, column) = seed.pick(&valued.iter().collect::<Vec<_>>()).clone();
    let name = &column.name;
    let mut given = Given::default();
    if seed.chance(60) {
        given.times(seed, table);
    }
    if column.kind.is_number() && seed.chance(40) {
        given.values(seed, &column);
    }
    given.filter(&index);
    given.matching(seed, table);
    let mut arguments = given.arguments();
    let (mut bucket, mut group) = (String::new(), "");
    if seed.chance(40) {
        let width = a_bucket(seed, table);
        arguments.push_str(&format!(", bucket := {width}"));
        bucket = format!("time_bucket({width}, ts) AS bucket, ");
        group = " GROUP BY bucket ORDER BY bucket";
    }
    // A comparison with the column reads less, and must not change the answer.
    let since = (!bucket.is_empty() && seed.chance(50)).then(|| a_time(seed, table));
    let having = since
        .as_ref()
        .map_or(String::new(), |time| format!(" HAVING bucket >= {time}"));
    let since = since.map_or(String::new(), |time| format!(" WHERE bucket >= {time}"));
    let group = group.replace(" ORDER BY", &format!("{having} ORDER BY"));
    let group = group.as_str();
    let (mut answers, mut names) = (Vec::new(), Vec::new());
    for (quantile, column) in QUANTILES {
        if seed.chance(30) {
            answers.push(format!(", quantile_disc({name}, {quantile}) AS {column}"));
            names.push(quantile);
        }
    }
    if !names.is_empty() {
        arguments.push_str(&format!(", quantiles := [{}]", names.join(", ")));
    }
    if !column.kind.is_number() {
        let order = match bucket.is_empty() {
            true => String::new(),
            false => format!("{since} ORDER BY bucket"),
        };
        let shown = if group.is_empty() { "" } else { "bucket, " };
        let columns: Vec<&str> = QUANTILES
            .iter()
            .filter(|(quantile, _)| names.contains(quantile))
            .map(|(_, column)| *column)
            .collect();
        let quantiles: String = columns.iter().map(|name| format!(", {name}")).collect();
        return Question {
            loom: format!(
                "SELECT {shown}count, min, max{quantiles} FROM loom_aggregate('{}', '{}', '{}'{arguments}){order}",
                table.dir, table.source, index.name,
            ),
            plain: format!(
                "SELECT {bucket}count({name}), min({name}), max({name}){} FROM plain WHERE {name} IS NOT NULL AND {}{group}",
                answers.concat(),
                given.condition()
            ),
            inexact: None,
        };
    }
    let is_exact = column.kind != Kind::Float;
    let magnitude = format!("abs({name}::DOUBLE)");
    Question {
        loom: format!(
            "SELECT * FROM loom_aggregate('{}', '{}', '{}'{arguments}){}",
            table.dir,
            table.source,
            index.name,
            if bucket.is_empty() {
                String::new()
            } else {
                format!("{since} ORDER BY bucket")
            }
        ),
        plain: format!(
            "SELECT {bucket}count({name}), sum({name}), min({name}), max({name}), avg({name}){},
                CASE WHEN NOT {is_exact} THEN 1e-12 * sum({magnitude}) END, 1e-12 * avg({magnitude})
             FROM plain WHERE {name} IS NOT NULL AND {}{group}",
            answers.concat(),
            given.condition()
        ),
        inexact: Some(if bucket.is_empty() { [1, 4] } else { [2, 5] }),
    }
}

/// `loom_rate`: records by bucket.
pub fn rate(seed: &mut Seed, table: &Table) -> Question {
    let mut given = Given::default();
    if seed.chance(60) {
        given.times(seed, table);
    }
    given.matching(seed, table);
    let width = a_bucket(seed, table);
    let (arguments, condition) = (given.arguments(), given.condition());
    Question {
        loom: format!(
            "SELECT bucket, count FROM loom_rate('{}', '{}', bucket := {width}{arguments}) ORDER BY bucket",
            table.dir, table.source
        ),
        plain: format!(
            "SELECT time_bucket({width}, ts) AS bucket, count(*) FROM plain WHERE {condition} GROUP BY bucket ORDER BY bucket"
        ),
        inexact: None,
    }
}

/// `loom_top`: the greatest or the least values; `None` if no index has numbers.
pub fn top(seed: &mut Seed, table: &Table) -> Option<Question> {
    let mut valued = table.valued();
    valued.retain(|(_, column)| column.kind.is_number());
    if valued.is_empty() {
        return None;
    }
    let (index, column) = seed.pick(&valued.iter().collect::<Vec<_>>()).clone();
    let mut given = Given::default();
    if seed.chance(60) {
        given.times(seed, table);
    }
    given.filter(&index);
    given.matching(seed, table);
    let arguments = given.arguments();
    let rows = seed.between(0, 3000);
    let (least, order) = match seed.chance(40) {
        true => (", least := true", ""),
        false => ("", " DESC"),
    };
    let name = &column.name;
    let shown = with_one_zero(table, name.clone());
    Some(Question {
        loom: format!(
            "SELECT {shown} FROM loom_top('{}', '{}', '{}', {rows}{least}{arguments})",
            table.dir, table.source, index.name
        ),
        plain: format!(
            "SELECT {shown} FROM plain WHERE {name} IS NOT NULL AND {} ORDER BY {name}{order} LIMIT {rows}",
            given.condition()
        ),
        inexact: None,
    })
}

/// A time of the table, or one near it.
fn a_time(seed: &mut Seed, table: &Table) -> String {
    instant(table.times.near(seed))
}

/// Buckets that divide the table into a few to a few thousand parts, or by the calendar.
fn a_bucket(seed: &mut Seed, table: &Table) -> String {
    match seed.between(0, 8) {
        0 => "INTERVAL 1 MONTH".to_owned(),
        1 => "INTERVAL 3 DAY".to_owned(),
        _ => {
            let parts = seed.between(1, 2000);
            let width = (table.times.span_ns / 1000 / parts).max(1);
            format!("to_microseconds({width})")
        }
    }
}
