//! The parameters of all functions, each declared once with its meaning.

use super::types::SqlType;

#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub ty: SqlType,
    /// The meaning, which `duckdb_functions()` shows.
    pub about: &'static str,
    /// The value that DuckDB 2, which passes every parameter, passes for an omitted one, so that NULL can be told from it. With `None`,
    /// NULL counts as omitted.
    pub omitted: Option<&'static str>,
}

const fn parameter(name: &'static str, ty: SqlType, about: &'static str) -> Parameter {
    Parameter {
        name,
        ty,
        about,
        omitted: None,
    }
}

pub const DIR: Parameter = parameter(
    "dir",
    SqlType::Any,
    "the path of a Loom directory, a glob, or a list of them, read as one; NULL: the setting loom_dir, or else the environment variable LOOM_DIR",
);
pub const SOURCE: Parameter = parameter(
    "source",
    SqlType::Text,
    "the name of a source; loom_sources(dir) lists them",
);
pub const INDEX: Parameter = parameter(
    "index",
    SqlType::Text,
    "the name of an index of the source; loom_indexes(dir) lists them",
);
/// This takes any type, so that a call without it gets an error from the function instead of a failed cast of another argument.
pub const N: Parameter = parameter("n", SqlType::Any, "the number of records");
pub const T_FROM: Parameter = parameter(
    "t_from",
    SqlType::TimestampTz,
    "the first time of the window, inclusive",
);
pub const T_TO: Parameter = parameter(
    "t_to",
    SqlType::TimestampTz,
    "the end of the window, exclusive",
);
pub const LAST: Parameter = parameter(
    "last",
    SqlType::Interval,
    "the length of the window that ends with the newest visible record, inclusive",
);
pub const AROUND: Parameter = parameter(
    "around",
    SqlType::TimestampTzList,
    "times t: only records in one of the windows [t - width, t + width)",
);
pub const WIDTH: Parameter = parameter(
    "width",
    SqlType::Interval,
    "half the length of each window of around",
);
pub const FILTER: Parameter = parameter(
    "filter",
    SqlType::Text,
    "only records that match it, such as 'number NOT IN (''futex'', ''poll'') AND size > 100': it has the grammar of the filters of indexes, over the fields of the source",
);
pub const V_MIN: Parameter = parameter(
    "v_min",
    SqlType::Any,
    "the least value of the index, inclusive",
);
pub const V_MAX: Parameter = parameter(
    "v_max",
    SqlType::Any,
    "the greatest value of the index, inclusive",
);
pub const BUCKET: Parameter = parameter(
    "bucket",
    SqlType::Interval,
    "one row for each span of this length, aligned as time_bucket does",
);
pub const POINTS: Parameter = parameter(
    "points",
    SqlType::I64,
    "instead of bucket: the narrowest round bucket that gives at most this many rows for the window",
);
pub const PARTIAL: Parameter = parameter(
    "partial",
    SqlType::Bool,
    "false: omit buckets that the window or retention cuts, and the newest one",
);
pub const BANDS: Parameter = parameter(
    "bands",
    SqlType::I64,
    "the most ranges of values; 40 by default",
);
pub const AGAINST: Parameter = parameter(
    "against",
    SqlType::Text,
    "what the selected records are compared with: 'rest', the other records of the window (the default); 'window', all of its records; 'before', all records of the window of the same length that ends at t_from",
);
pub const TOP_VALUES: Parameter = parameter(
    "top_values",
    SqlType::I64,
    "the most values or bins of a field that have a row; 16 by default",
);
pub const LEAST: Parameter = parameter(
    "least",
    SqlType::Bool,
    "true: the records with the least values, the least first",
);
pub const QUANTILES: Parameter = parameter(
    "quantiles",
    SqlType::F64List,
    "fractions from 0 to 1, one column each: p50 for 0.5, p99_99 for 0.9999",
);
pub const APPROX: Parameter = parameter(
    "approx",
    SqlType::Bool,
    "true: quantiles from the bins alone, with an error of at most the width of a bin",
);
pub const AT: Parameter = parameter(
    "at",
    SqlType::Any,
    "a position from loom_snapshot(dir), or a list of the rows of loom_snapshot over several directories: read what was published then",
);
pub const AFTER: Parameter = parameter(
    "after",
    SqlType::Any,
    "an address of the log: only records whose addr is this or greater",
);
pub const METRIC: Parameter = parameter(
    "metric",
    SqlType::Text,
    "the name of a metric; NULL: all metrics",
);
pub const LABEL_NAMES: Parameter = parameter(
    "label_names",
    SqlType::TextList,
    "labels that the series must have, one for each of label_patterns",
);
pub const LABEL_PATTERNS: Parameter = parameter(
    "label_patterns",
    SqlType::TextList,
    "regular expressions, each of which must match the whole value of its label; a series without the label has the value ''",
);
pub const SERIES_LABELS: Parameter = parameter(
    "labels",
    SqlType::TextMap,
    "a regular expression for each label, which must match its whole value; a series without the label has the value ''",
);
/// This takes any type, so that a text in place of the list gets an error that says what to write.
pub const BY: Parameter = parameter(
    "by",
    SqlType::Any,
    "a list of labels: one row for all series with the same values of these labels, across all directories; an empty list gives one row for all series",
);
pub const LABELS: Parameter = parameter(
    "labels",
    SqlType::Bool,
    "false: fields with labels show as numbers",
);
pub const COMPLETE: Parameter = parameter(
    "complete",
    SqlType::Bool,
    "true: fail if records of the window are known to be missing; loom_losses(dir) lists them",
);
