//! A value from SQL: an argument, or a constant in a filter. The adapters make these values; the code behind them knows nothing of DuckDB.

use loom_engine::schema::Number;

/// DuckDB's value for infinity in its microsecond and nanosecond timestamps.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// DuckDB's value for infinity in dates, in days.
pub const DATE_INFINITY: i32 = i32::MAX;

#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    Null,
    Bool(bool),
    /// Any integer, apart from the upper half of UHUGEINT, which arrives as `Other`.
    Int(i128),
    Float(f64),
    /// `value / 10^scale`.
    Decimal {
        value: i128,
        scale: u8,
    },
    Text(String),
    Blob(Vec<u8>),
    /// Microseconds without a time zone: TIMESTAMP, TIMESTAMP_S and TIMESTAMP_MS.
    Timestamp(i64),
    /// Microseconds since the epoch, UTC.
    TimestampTz(i64),
    /// Nanoseconds without a time zone.
    TimestampNs(i64),
    /// Nanoseconds since the epoch, UTC.
    TimestampTzNs(i64),
    /// Days since the epoch.
    Date(i32),
    Interval(Interval),
    List(Vec<Datum>),
    /// Keys with their values.
    Map(Vec<(Datum, Datum)>),
    /// Fields with their names.
    Struct(Vec<(String, Datum)>),
    /// The name of a type that no argument takes.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

impl Datum {
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Datum::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Microseconds since the epoch.
    pub fn timestamp_tz(&self) -> Option<i64> {
        match self {
            Datum::TimestampTz(micros) => Some(*micros),
            _ => None,
        }
    }

    /// The number; `None` for values of other types.
    pub fn number(&self) -> Option<Number> {
        match *self {
            Datum::Bool(value) => Some(Number::Int(value.into())),
            Datum::Int(value) => Some(Number::Int(value)),
            Datum::Float(value) => Some(Number::Float(value)),
            Datum::Decimal { value, scale } => Some(Number::Decimal { value, scale }),
            _ => None,
        }
    }

    /// The SQL type's name, for error messages.
    pub fn type_name(&self) -> &str {
        match self {
            Datum::Null => "NULL",
            Datum::Bool(_) => "BOOLEAN",
            Datum::Int(_) => "an integer",
            Datum::Float(_) => "DOUBLE",
            Datum::Decimal { .. } => "DECIMAL",
            Datum::Text(_) => "VARCHAR",
            Datum::Blob(_) => "BLOB",
            Datum::Timestamp(_) => "TIMESTAMP",
            Datum::TimestampTz(_) => "TIMESTAMPTZ",
            Datum::TimestampNs(_) => "TIMESTAMP_NS",
            Datum::TimestampTzNs(_) => "TIMESTAMPTZ_NS",
            Datum::Date(_) => "DATE",
            Datum::Interval(_) => "INTERVAL",
            Datum::List(_) => "a list",
            Datum::Map(_) => "MAP",
            Datum::Struct(_) => "STRUCT",
            Datum::Other(name) => name,
        }
    }
}

/// Seconds or milliseconds as microseconds; infinities stay.
pub fn to_micros(value: i64, factor: i64) -> i64 {
    if value == TIMESTAMP_INFINITY || value == -TIMESTAMP_INFINITY {
        value
    } else {
        value.saturating_mul(factor)
    }
}
