//! A `WHERE` clause, as far as the extension understands it. Other parts become [`Clause::Opaque`], which prunes nothing. DuckDB checks
//! every row again, so this may be weaker than the clause and must never be stronger.

use std::sync::{Mutex, PoisonError};

use loom_engine::schema::{Case, Op};

use super::datum::{Datum, Interval};

#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    Compare {
        term: Term,
        op: Op,
        value: Datum,
    },
    In {
        term: Term,
        values: Vec<Datum>,
    },
    /// None of the values is NULL.
    NotIn {
        term: Term,
        values: Vec<Datum>,
    },
    /// The term is NULL, or is not.
    Null {
        term: Term,
        is_null: bool,
    },
    /// The term is a text that begins with this one.
    Prefix {
        term: Term,
        text: String,
    },
    /// The term is a text that contains this one.
    Contains {
        term: Term,
        part: String,
        case: Case,
    },
    Opaque,
}

/// A column, or a monotone function of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The declared number of the column.
    pub column: usize,
    /// The functions around the column, the innermost first.
    pub steps: Vec<Step>,
}

/// A monotone function: as its argument grows, its result never decreases, or never grows. It is NULL where its argument is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A cast to an integer type of any width, which rounds floats.
    Integer,
    Float,
    Double,
    Decimal {
        scale: u8,
    },
    /// The argument and this number together.
    Add {
        number: f64,
        rounded: Rounded,
    },
    /// The argument times this number, which is not 0.
    Multiply {
        number: f64,
        rounded: Rounded,
    },
    /// A number no farther than this from the argument, such as the whole one below it.
    Near {
        distance: f64,
        rounded: Rounded,
    },
    /// A cast to TIMESTAMP, TIMESTAMP_NS or a similar type, which may apply the session's time zone.
    Timestamp,
    TimestampTz,
    Date,
    /// The start of the bucket of this width that holds the argument; the session's clock sets days and months.
    Bucket {
        width: Interval,
    },
    /// The start of a calendar unit by the session's clock; `width` is the longest duration of the unit.
    Truncate {
        width: Interval,
    },
    /// A time and an interval together; the session's clock sets days and months.
    Shift {
        by: Interval,
    },
    /// A time as the number of such units of nanoseconds since the epoch, perhaps rounded to a whole one.
    Epoch {
        unit_ns: i64,
    },
    /// The Gregorian year of a time by the session's clock.
    Year,
}

/// The floats in which DuckDB computes. Integers and decimals are exact, which is within either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounded {
    Single,
    Double,
}

/// The latest `WHERE` clause that DuckDB offered; each offer replaces the earlier ones.
pub struct Offered(Mutex<Clause>);

impl Offered {
    pub fn none() -> Offered {
        Offered(Mutex::new(Clause::Opaque))
    }

    pub fn set(&self, clause: Clause) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = clause;
    }

    pub fn get(&self) -> Clause {
        let clause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clause.clone()
    }
}

impl Clause {
    /// A comparison; one with NULL matches no row, as in SQL.
    pub fn compare(term: Term, op: Op, value: Datum) -> Clause {
        if value.is_null() {
            Clause::Or(Vec::new())
        } else {
            Clause::Compare { term, op, value }
        }
    }

    /// A negated list; one with a NULL matches no row, as in SQL.
    pub fn not_in(term: Term, values: Vec<Datum>) -> Clause {
        if values.iter().any(Datum::is_null) {
            Clause::Or(Vec::new())
        } else {
            Clause::NotIn { term, values }
        }
    }
}
