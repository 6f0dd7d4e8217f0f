//! A `WHERE` clause, as far as the extension understands it. Other parts become [`Clause::Opaque`], which prunes nothing. DuckDB checks
//! every row again, so this may be weaker than the clause and must never be stronger.

use std::sync::{Mutex, PoisonError};

use loom_engine::schema::Op;

use super::datum::{Datum, Interval};

#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    Compare { term: Term, op: Op, value: Datum },
    In { term: Term, values: Vec<Datum> },
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

/// A monotone function: its result never decreases as its argument grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A cast to an integer type of any width, which rounds floats.
    Integer,
    Float,
    Double,
    Decimal {
        scale: u8,
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
}
