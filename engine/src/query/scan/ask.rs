//! The parts of a source's records that a reader asks for.

use crate::schema::{Expr, RangeSet};
use crate::types::Key;

/// The parts to read; the others may have any value or be missing.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub fields: Vec<usize>,
    /// Whole payloads, which include all fields.
    pub payloads: bool,
    /// The source's own times if it has them, else arrivals.
    pub times: bool,
    /// Arrivals, also for a source with own times.
    pub arrivals: bool,
    pub addresses: bool,
    /// Rows may be omitted if one of these numeric fields has another key or is NULL.
    pub keys: Vec<(usize, RangeSet<Key>)>,
    /// Rows may be omitted that do not pass all of these tests.
    pub tests: Vec<Expr>,
}

impl Ask {
    pub fn all() -> Ask {
        Ask {
            payloads: true,
            times: true,
            arrivals: true,
            addresses: true,
            ..Ask::default()
        }
    }
}
