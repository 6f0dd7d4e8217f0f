//! Conditions as people type them, over times and fields, nested. None of them can fail: DuckDB may test the sides of an AND in any order,
//! so an error would not be repeatable.

use crate::seed::Seed;
use crate::table::{Column, Kind, Table, instant};

const COMPARISONS: [&str; 6] = ["<", "<=", ">", ">=", "=", "<>"];

pub fn predicate(seed: &mut Seed, table: &Table, depth: u32) -> String {
    let deeper = depth.saturating_sub(1);
    let side = |seed: &mut Seed| predicate(seed, table, deeper);
    match seed.between(0, if depth == 0 { 10 } else { 17 }) {
        0..3 => about_time(seed, table),
        3..10 => about_field(seed, table),
        10 => format!("NOT ({})", side(seed)),
        11 => format!("({} IS NOT TRUE)", parenthesised(side(seed))),
        12 => format!(
            "(CASE WHEN {} THEN {} ELSE {} END)",
            side(seed),
            side(seed),
            side(seed)
        ),
        13 | 14 => format!("({} OR {})", side(seed), side(seed)),
        _ => format!("({} AND {})", side(seed), side(seed)),
    }
}

fn parenthesised(condition: String) -> String {
    format!("({condition})")
}

/// Compares a term with a constant, which is on either side.
fn compared(seed: &mut Seed, term: &str, operator: &str, constant: &str) -> String {
    if seed.chance(25) {
        let flipped = match operator {
            "<" => ">",
            "<=" => ">=",
            ">" => "<",
            ">=" => "<=",
            same => same,
        };
        format!("{constant} {flipped} {term}")
    } else {
        format!("{term} {operator} {constant}")
    }
}

fn about_time(seed: &mut Seed, table: &Table) -> String {
    let operator = seed.pick(&COMPARISONS);
    let at = table.times.near(seed);
    match seed.between(0, 17) {
        0 | 1 => {
            let (from, to) = table.times.window(seed);
            format!("ts >= {} AND ts < {}", instant(from), instant(to))
        }
        2 => {
            let (from, to) = table.times.window(seed);
            format!(
                "ts_ns BETWEEN {} AND {to}",
                from.saturating_add(seed.between(0, 1000))
            )
        }
        3 => {
            let (from, to) = table.times.window(seed);
            let not = seed.pick(&["", "NOT "]);
            format!("ts {not}BETWEEN {} AND {}", instant(from), instant(to))
        }
        4 => compared(seed, "ts", operator, &instant(at)),
        5 => {
            let near = at.saturating_add(seed.between(-2000, 2000));
            compared(seed, "ts_ns", operator, &near.to_string())
        }
        6 => {
            let wider = seed.pick(&["DOUBLE", "HUGEINT", "DECIMAL(38, 3)", "FLOAT"]);
            let half = seed.pick(&["", ".5"]);
            compared(
                seed,
                &format!("ts_ns::{wider}"),
                operator,
                &format!("{at}{half}"),
            )
        }
        7 => {
            let width = an_interval(seed);
            compared(
                seed,
                &format!("time_bucket({width}, ts)"),
                operator,
                &instant(at),
            )
        }
        8 => {
            let unit = seed.pick(&[
                "microsecond",
                "millisecond",
                "second",
                "minute",
                "hour",
                "day",
                "week",
                "month",
                "quarter",
                "year",
                "decade",
            ]);
            let start = if seed.chance(60) {
                format!("date_trunc('{unit}', {})", instant(at))
            } else {
                instant(at)
            };
            compared(seed, &format!("date_trunc('{unit}', ts)"), operator, &start)
        }
        9 => compared(
            seed,
            "ts::DATE",
            operator,
            &format!("{}::DATE", instant(at)),
        ),
        10 => {
            let width = an_interval(seed);
            format!("ts {operator} {} - {width}", instant(at))
        }
        11 => {
            let width = an_interval(seed);
            let sign = seed.pick(&["+", "-"]);
            compared(seed, &format!("ts {sign} {width}"), operator, &instant(at))
        }
        12 => {
            let part = seed.pick(&[
                "epoch(ts)",
                "epoch_ms(ts)",
                "epoch_us(ts) / 1000",
                "extract(epoch FROM ts) * 1000",
                "round(epoch(ts), 1)",
                "epoch_ms(ts + INTERVAL 1 DAY) - 5",
            ]);
            let constant = part.replace("ts", &instant(at));
            compared(seed, part, operator, &constant)
        }
        13 => {
            let part = seed.pick(&[
                "year(ts)",
                "extract(year FROM ts)",
                "year(ts::DATE + 1) - 1",
            ]);
            let constant = part.replace("ts", &instant(at));
            compared(seed, part, operator, &constant)
        }
        14 => {
            let format = seed.pick(&[
                "%Y",
                "%Y-%m-%d",
                "%Y%m",
                "%Y-%m-%d %H:%M:%S",
                "%Y-%m-%d %H",
                "%d.%m.%Y",
            ]);
            let constant = format!("strftime({}, '{format}')", instant(at));
            compared(
                seed,
                &format!("strftime(ts, '{format}')"),
                operator,
                &constant,
            )
        }
        15 => {
            let width = an_interval(seed);
            let third = seed.pick(&[
                "'2000-01-01 00:30:00+00'::TIMESTAMPTZ",
                "INTERVAL 90 SECOND",
                "'Asia/Kathmandu'",
            ]);
            compared(
                seed,
                &format!("time_bucket({width}, ts, {third})"),
                operator,
                &instant(at),
            )
        }
        _ => {
            let ty = seed.pick(&["TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_S"]);
            compared(
                seed,
                &format!("ts::TIMESTAMP::{ty}"),
                operator,
                &format!("make_timestamp({})::{ty}", at / 1000),
            )
        }
    }
}

fn an_interval(seed: &mut Seed) -> String {
    let unit = seed.pick(&[
        "MICROSECOND",
        "MILLISECOND",
        "SECOND",
        "MINUTE",
        "HOUR",
        "DAY",
        "MONTH",
    ]);
    format!("INTERVAL {} {unit}", seed.between(1, 400))
}

fn list(seed: &mut Seed, column: &Column, longest: i64) -> String {
    let values: Vec<String> = (0..seed.between(1, longest))
        .map(|_| (column.value)(seed))
        .collect();
    values.join(", ")
}

fn about_field(seed: &mut Seed, table: &Table) -> String {
    let column = seed.pick(&table.columns.iter().collect::<Vec<_>>());
    let name = &column.name;
    let operator = seed.pick(&COMPARISONS);
    let value = |seed: &mut Seed| (column.value)(seed);
    match seed.between(0, 17) {
        0 => format!("{name} IS {}NULL", seed.pick(&["", "NOT "])),
        1 | 2 => format!(
            "{name} {}IN ({})",
            seed.pick(&["", "", "NOT "]),
            list(seed, column, 6)
        ),
        3 => format!("{name} IN (NULL, {})", list(seed, column, 300)),
        4 => format!(
            "{name} IS {}DISTINCT FROM {}",
            seed.pick(&["", "NOT "]),
            value(seed)
        ),
        5 => format!(
            "coalesce({name}, {}) {operator} {}",
            value(seed),
            value(seed)
        ),
        6 => {
            let not = seed.pick(&["", "NOT "]);
            format!("{name} {not}BETWEEN {} AND {}", value(seed), value(seed))
        }
        7 => {
            let other = seed.pick(
                &table
                    .columns
                    .iter()
                    .filter(|other| other.kind == column.kind)
                    .collect::<Vec<_>>(),
            );
            format!("{name} {operator} {}", other.name)
        }
        8 => format!(
            "{name} {operator} (SELECT min({name}) FROM plain WHERE {name} >= {})",
            value(seed)
        ),
        9..12 => changed(seed, column).unwrap_or_else(|| format!("{name} IS NOT NULL")),
        _ => {
            let constant = value(seed);
            compared(seed, name, operator, &constant)
        }
    }
}

/// Compares arithmetic over floats, which cannot fail, with the same over a value near it.
fn arithmetic(seed: &mut Seed, term: &str, operator: &str, value: &str) -> String {
    let by = seed.pick(&["3", "0.001", "1e6", "-7", "-2.5e-3", "1e20"]);
    let form = seed.pick(&[
        "x / by",
        "x * by",
        "x + by",
        "x - by",
        "by - x",
        "-x",
        "round(x / by, 2)",
        "floor(x * by)",
        "ceil(x / by) + by",
        "round(-x)",
        "trunc(by - x * by)",
    ]);
    let of = |x: &str| form.replace("by", by).replace('x', &format!("({x})"));
    let (term, constant) = (of(term), of(value));
    compared(seed, &term, operator, &constant)
}

/// Compares a function of a column.
fn changed(seed: &mut Seed, column: &Column) -> Option<String> {
    let name = &column.name;
    let operator = seed.pick(&COMPARISONS);
    let value = (column.value)(seed);
    Some(match column.kind {
        Kind::Integer { bits } => match seed.between(0, 9) {
            0 => {
                let ty = seed.pick(&["DOUBLE", "FLOAT", "HUGEINT", "DECIMAL(38, 2)"]);
                compared(
                    seed,
                    &format!("{name}::{ty}"),
                    operator,
                    &format!("{value}::{ty}"),
                )
            }
            1 => {
                let half = seed.pick(&[".5", ".0", ".25", "e0"]);
                compared(seed, name, operator, &format!("{value}{half}"))
            }
            2 => {
                let ty = seed.pick(&[
                    "TINYINT",
                    "SMALLINT",
                    "INTEGER",
                    "BIGINT",
                    "UTINYINT",
                    "USMALLINT",
                    "UINTEGER",
                    "UBIGINT",
                ]);
                let small = seed.between(-130, 70_000);
                compared(
                    seed,
                    &format!("TRY_CAST({name} AS {ty})"),
                    operator,
                    &small.to_string(),
                )
            }
            3 if bits < 64 => format!(
                "{name}::HUGEINT + {} {operator} {value}",
                seed.between(-300, 300)
            ),
            4 => format!(
                "{name} % {} {operator} {}",
                seed.between(2, 9),
                seed.between(-3, 9)
            ),
            // Arithmetic over whole constants may overflow.
            5..8 => {
                let [term, constant] = [name, &value].map(|x| format!("{x}::DOUBLE"));
                arithmetic(seed, &term, operator, &constant)
            }
            _ => format!("-({name}::HUGEINT) {operator} {value}"),
        },
        Kind::Float => match seed.between(0, 7) {
            0 => compared(seed, &format!("{name}::DOUBLE"), operator, &value),
            1 => {
                let ty = seed.pick(&["INTEGER", "HUGEINT", "DECIMAL(18, 3)", "FLOAT"]);
                let near = seed.between(-10_000, 10_000);
                compared(
                    seed,
                    &format!("TRY_CAST({name} AS {ty})"),
                    operator,
                    &near.to_string(),
                )
            }
            2 => {
                let decimal = format!("{}.{}", seed.between(-100, 100), seed.between(0, 100));
                compared(seed, name, operator, &decimal)
            }
            3..6 => arithmetic(seed, name, operator, &value),
            _ => format!("abs({name}) {operator} {value}"),
        },
        Kind::Bool => seed
            .pick(&[
                "{}",
                "NOT {}",
                "{} = true",
                "{} <> false",
                "{}::INTEGER > 0",
            ])
            .replace("{}", name),
        Kind::Time => match seed.between(0, 4) {
            0 => format!("TRY_CAST({name} AS DATE) {operator} TRY_CAST({value} AS DATE)"),
            1 => format!("TRY_CAST({name} AS TIMESTAMP) {operator} TRY_CAST({value} AS TIMESTAMP)"),
            2 => format!(
                "TRY_CAST({name} AS TIMESTAMPTZ) {operator} TRY_CAST({value} AS TIMESTAMPTZ)"
            ),
            _ => format!("{name} {operator} TIMESTAMP '2023-11-14 22:13:20'"),
        },
        Kind::Label | Kind::Text => match seed.between(0, 9) {
            0 => format!("{name} LIKE '{}%'", seed.pick(&["t", "te", "G", "1", ""])),
            3 => format!(
                "{name} {}LIKE '{}'",
                seed.pick(&["", "NOT "]),
                seed.pick(&["text 1_", "te%t%", "_e%", "GET"])
            ),
            4 => format!("starts_with({name}, left({value}, {}))", seed.between(0, 7)),
            5 => format!("{name} GLOB '{}'", seed.pick(&["text [1-3]*", "G*", "?E*"])),
            1 => format!("lower({name}) {operator} {value}"),
            6 => {
                let (from, length) = (seed.between(0, 7), seed.between(0, 7));
                format!("contains({name}, substr({value}, {from}, {length}))")
            }
            7 => format!(
                "{name} {}ILIKE '%{}%'",
                seed.pick(&["", "", "NOT "]),
                seed.pick(&["TEXT 1", "xt_1", "get", "ſet", "text%9"])
            ),
            8 => format!(
                "regexp_matches({name}, '{}')",
                seed.pick(&["text [0-9]{3}", "(?i)TEXT", "GET|SET", "t+ex?t 1.*9"])
            ),
            _ => format!("{name} || 'x' {operator} {value}"),
        },
        Kind::Blob => return None,
    })
}
