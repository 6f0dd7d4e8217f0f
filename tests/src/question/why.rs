//! `loom_why` against counts by value of both groups.

use super::Question;
use super::given::Given;
use crate::seed::Seed;
use crate::table::{Kind, Table, instant};

/// Integers with more different values are shown by bins.
const VALUES_MOST: usize = 64;
/// Longer texts are not shown one by one.
const TEXT_BYTES_MOST: usize = 256;

/// The values of one field; `None` if no field has values that both forms show as the same text.
pub fn draw(seed: &mut Seed, table: &Table) -> Option<Question> {
    let mut given = Given::default();
    let index = (seed.chance(70) && !table.indexes.is_empty())
        .then(|| seed.pick(&table.indexes.iter().collect::<Vec<_>>()));
    let mut of_values = Given::default();
    let mut by = None;
    if let Some(index) = index {
        given.filter(index);
        let column = index.value.as_ref();
        if let Some(column) = column.filter(|column| column.kind.is_number()) {
            of_values.values(seed, column);
            by = Some(&column.name);
        }
    }
    let is_shown = |kind: Kind| {
        matches!(
            kind,
            Kind::Integer { .. } | Kind::Bool | Kind::Label | Kind::Text
        )
    };
    let columns = table.columns.iter();
    let columns = columns.filter(|column| is_shown(column.kind) && Some(&column.name) != by);
    let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    if columns.is_empty() {
        return None;
    }
    let name = seed.pick(&columns);

    let (from, to) = table.times.window(seed);
    let [has_from, has_to] = [seed.chance(60), seed.chance(60)];
    let mut now = vec!["true".to_owned()];
    now.extend(has_from.then(|| format!("ts_ns >= {from}")));
    now.extend(has_to.then(|| format!("ts_ns < {to}")));
    let time = |is_bound: bool, at: i64| match is_bound {
        true => instant(at),
        false => "NULL".to_owned(),
    };
    let [t_from, t_to] = [time(has_from, from), time(has_to, to)];
    let selected = format!("{} AND {}", now.join(" AND "), of_values.condition());
    let has_before = has_from && has_to && from < to;
    let against = match has_before {
        true => seed.pick(&["rest", "window", "before"]),
        false => seed.pick(&["rest", "window"]),
    };
    let all = match against {
        "before" => {
            let first = i128::from(from) * 2 - i128::from(to);
            format!("(({selected}) OR (ts_ns >= {first} AND ts_ns < {from}))")
        }
        _ => now.join(" AND "),
    };
    given.matching(seed, table);
    let index = index.map_or("NULL".to_owned(), |index| format!("'{}'", index.name));
    let [v_min, v_max] = ["v_min", "v_max"].map(|bound| of_values.value(bound));
    let others = match against {
        "window" => "true",
        _ => "NOT is_selected",
    };
    Some(Question {
        loom: format!(
            "WITH why AS (
                SELECT * FROM loom_why('{}', '{}', {index}, {t_from}, {t_to}, {v_min}, {v_max}, against := '{against}', top_values := 1024{})
                WHERE field = '{name}')
             SELECT value, selected, other FROM why
             WHERE (SELECT count(*) <= {VALUES_MOST} FROM why WHERE kind = 'value')
               AND NOT EXISTS (FROM why WHERE kind NOT IN ('value', 'null'))
             ORDER BY ALL",
            table.dir,
            table.source,
            given.arguments(),
        ),
        plain: format!(
            "WITH records AS (
                SELECT {name}::VARCHAR AS value, coalesce({selected}, false) AS is_selected
                FROM plain WHERE coalesce({all}, false) AND {}),
             why AS (
                SELECT value, count(*) FILTER (is_selected) AS selected, count(*) FILTER ({others}) AS other
                FROM records GROUP BY value)
             FROM why WHERE (SELECT count(value) <= {VALUES_MOST} AND coalesce(max(strlen(value)), 0) <= {TEXT_BYTES_MOST} FROM why)
             ORDER BY ALL",
            given.condition()
        ),
        inexact: None,
    })
}
