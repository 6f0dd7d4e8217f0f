//! Random rows of mixed types: every type that Parquet and Loom share, with NULLs, NaN, infinities and extreme values, at times that are
//! nearly in order. `question` asks about them.

use std::sync::Arc;

use crate::seed::Seed;
use crate::table::{Column, Index, Kind, Table, Times};

/// A column, and how to draw one of its values.
struct Made {
    name: &'static str,
    kind: Kind,
    indexed: bool,
    value: fn(&mut Seed) -> String,
}

const fn integer(bits: u8) -> Kind {
    Kind::Integer { bits }
}

pub const SPAN_NS: i64 = 500_000_000_000;
pub const FIRST_NS: i64 = 1_700_000_000_000_000_000;

const COLUMNS: [Made; 13] = [
    indexed("latency", integer(64), |s| tail(s, 1000, 22).to_string()),
    plain("op", integer(8), |s| s.between(0, 7).to_string()),
    indexed("port", integer(16), |s| s.between(0, 70_000).to_string()),
    indexed("id", integer(64), |s| s.draw().to_string()),
    plain("tiny", integer(8), |s| s.between(-130, 130).to_string()),
    plain("short", integer(16), |s| {
        s.between(-33_000, 33_000).to_string()
    }),
    indexed("level", integer(32), |s| {
        s.between(-11_000, 11_000).to_string()
    }),
    indexed("wide", integer(64), |s| s.draw().cast_signed().to_string()),
    indexed("ratio", Kind::Float, |s| float(s.between(-10, 8200), 64)),
    indexed("load", Kind::Float, |s| {
        float(s.between(-1_100_000, 1_100_000), 16)
    }),
    plain("flag", Kind::Bool, |s| s.chance(50).to_string()),
    plain("word", Kind::Text, |s| {
        format!("'text {}'", s.between(0, 1000))
    }),
    plain("raw", Kind::Blob, |s| {
        format!("'b{}'::BLOB", s.between(0, 120))
    }),
];

const FILTERS: [&str; 8] = [
    "latency > 1500 AND op IN (1, 3)",
    "NOT (port BETWEEN 1000 AND 40000) OR flag",
    "level < 0",
    "ratio >= 12.5 OR ratio IS NULL",
    "word >= 'text 5' AND word <> 'text 77'",
    "word IS NULL OR NOT tiny > 3",
    "id IS NOT NULL AND short NOT IN (1, 2, 3)",
    "load < -0.5 AND wide > 0",
];

const fn indexed(name: &'static str, kind: Kind, value: fn(&mut Seed) -> String) -> Made {
    Made {
        name,
        kind,
        indexed: true,
        value,
    }
}

const fn plain(name: &'static str, kind: Kind, value: fn(&mut Seed) -> String) -> Made {
    Made {
        name,
        kind,
        indexed: false,
        value,
    }
}

/// The rows as the source `mixed` of the directory `dir`.
pub fn table(dir: &str) -> Table {
    let column = |made: &Made| Column {
        name: made.name.to_owned(),
        kind: made.kind,
        value: Arc::new(made.value),
    };
    let indexes = COLUMNS.iter().filter(|made| made.indexed);
    Table {
        dir: dir.to_owned(),
        source: "mixed".to_owned(),
        columns: COLUMNS.iter().map(column).collect(),
        indexes: indexes
            .map(|made| Index {
                name: made.name.to_owned(),
                value: Some(column(made)),
                filter: None,
            })
            .collect(),
        filters: FILTERS.map(str::to_owned).into(),
        times: Times {
            first_ns: FIRST_NS,
            span_ns: SPAN_NS,
            wild: false,
        },
    }
}

/// A number whose logarithm is uniform: most are near `least`, a few 2^`octaves` above.
fn tail(seed: &mut Seed, least: i64, octaves: i64) -> i64 {
    let octave = seed.between(0, octaves);
    (least << octave) + seed.between(0, least << octave)
}

/// A float that decimal text represents exactly.
fn float(numerator: i64, divisor: u32) -> String {
    format!("{:?}::DOUBLE", numerator as f64 / f64::from(divisor))
}

/// The `SELECT` that generates `rows` rows. The same `seed` gives the same rows.
pub fn rows_sql(rows: u64, seed: u64) -> String {
    let step_ns = SPAN_NS / i64::try_from(rows.max(1)).unwrap_or(i64::MAX);
    let offset = seed % 1_000_000_007;
    format!(
        "SELECT {FIRST_NS} + n * {step_ns} + (hash(i, 20) % 50_000_000)::BIGINT AS t,
            ((1000 + hash(i, 1) % 1000) << (hash(i, 2) % 22 * (hash(i, 3) % 50 = 0)::UTINYINT)::INTEGER)::UBIGINT AS latency,
            (hash(i, 4) % 6)::UTINYINT AS op,
            (hash(i, 5) % 65_536)::USMALLINT AS port,
            hash(i, 6)::UBIGINT AS id,
            ((hash(i, 7) % 256)::INTEGER - 128)::TINYINT AS tiny,
            ((hash(i, 8) % 65_536)::INTEGER - 32_768)::SMALLINT AS short,
            CASE WHEN i % 11 = 0 THEN NULL ELSE (hash(i, 9) % 20_001)::INTEGER - 10_000 END AS level,
            (hash(i, 10) >> 1)::BIGINT * CASE WHEN i % 2 = 0 THEN 1 ELSE -1 END AS wide,
            ((hash(i, 11) % 8192) / 64)::FLOAT AS ratio,
            CASE i % 100_000 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE WHEN 3 THEN NULL
                WHEN 4 THEN -0.0::DOUBLE ELSE ((hash(i, 12) % 2_000_001)::BIGINT - 1_000_000) / 16 END AS load,
            i % 3 = 0 AS flag,
            CASE WHEN i % 7 = 0 THEN NULL WHEN i % 7 = 1 THEN '' ELSE 'text ' || (hash(i, 13) % 1000) END AS word,
            encode('b' || (hash(i, 14) % 100)) AS raw
        FROM (SELECT range AS n, range + {offset} AS i FROM range({rows}))"
    )
}

/// The columns that `load` indexes.
pub fn indexes() -> impl Iterator<Item = &'static str> {
    COLUMNS
        .iter()
        .filter(|made| made.indexed)
        .map(|made| made.name)
}

/// A view of the Parquet file with Loom's columns: `ts`, `ts_ns` and the fields.
pub fn view_sql(parquet: &str) -> String {
    format!(
        "CREATE VIEW plain AS SELECT make_timestamp(t // 1000)::TIMESTAMPTZ AS ts, t AS ts_ns, * EXCLUDE t
         FROM read_parquet('{parquet}')"
    )
}
