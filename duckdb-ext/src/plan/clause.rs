//! A `WHERE` clause in terms of our own, as far as it can be read. What cannot be read is [`Clause::Opaque`] and prunes nothing:
//! DuckDB checks every row again, so this may be weaker than the clause and never stronger.

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
    /// The column's number among those that bind declared.
    pub column: usize,
    /// What is done with it, the innermost first.
    pub steps: Vec<Step>,
}

/// A function that never decreases where its argument grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A cast to an integer type of any width; floats are rounded.
    Integer,
    Float,
    Double,
    Decimal {
        scale: u8,
    },
    /// A cast to TIMESTAMP, TIMESTAMP_NS or their kin, between which the session's time zone may lie.
    Timestamp,
    TimestampTz,
    Date,
    /// The start of a bucket of this width, which holds the argument; days and months by the session's clock.
    Bucket {
        width: Interval,
    },
    /// The start of a unit, which lasts at most so long, by the session's clock.
    Truncate {
        width: Interval,
    },
}

impl Clause {
    /// A comparison, with NULL as SQL has it: no row matches.
    pub fn compare(term: Term, op: Op, value: Datum) -> Clause {
        if value.is_null() {
            Clause::Or(Vec::new())
        } else {
            Clause::Compare { term, op, value }
        }
    }
}
