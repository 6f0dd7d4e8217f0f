//! What is read of the records of a source.

use crate::schema::RangeSet;
use crate::types::Key;

/// What is read; the rest may be anything, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub fields: Vec<usize>,
    /// Whole payloads, and with them all fields.
    pub payloads: bool,
    /// The source's own times where it has them, else arrivals.
    pub times: bool,
    /// Arrivals, of a source with own times too.
    pub arrivals: bool,
    pub addresses: bool,
    /// Rows where one of these fields, which are numbers, has another key, or is NULL, may be left out.
    pub keys: Vec<(usize, RangeSet<Key>)>,
}

impl Ask {
    /// All there is.
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
