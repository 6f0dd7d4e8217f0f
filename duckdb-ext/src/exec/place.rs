//! Where rows go in a vector, and NULL in all of them.

use loom_engine::proven;

use super::vectors::Output;
use crate::error::Result;

/// Where rows go: this vector, from this row on.
#[derive(Clone, Copy)]
pub struct At {
    pub position: usize,
    pub from: usize,
}

/// A field that the records are too old to have.
pub fn nulls(out: &mut Output<'_>, at: At, rows: usize) -> Result<()> {
    // DuckDB looks at the entries of NULL strings in places.
    if proven::at(out.types(), at.position).is_string() {
        out.repeated(at.position, at.from, rows, b"")?;
    }
    out.nulls(at.position, at.from, rows, |_| true)
}
