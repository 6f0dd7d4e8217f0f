//! Rows of one chunk that are written together, and the columns that every source has: times, addresses, and the payloads of raw sources.

use loom_engine::query::{Row, Rows};
use loom_engine::schema::Layout;
use loom_engine::{Address, proven};

use super::vectors::Output;
use crate::error::Result;
use crate::plan::time::micros;

/// Some rows of one chunk.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    pub base: Address,
    /// The chunk.
    pub bytes: &'a [u8],
    pub layout: &'a Layout,
    pub rows: &'a [Row],
    /// Whether no record is shorter than its layout, so every field of fixed place exists in each.
    pub is_whole: bool,
    /// The distance between payloads, if it is the same for all rows.
    pub stride: Option<usize>,
}

impl<'a> Group<'a> {
    /// `rows` are consecutive rows of the chunk.
    pub fn new(chunk: Rows<'a>, rows: &'a [Row]) -> Group<'a> {
        let least_bytes = chunk.layout.fixed_bytes();
        // With a stride, all records have the same length.
        let lengths = match chunk.stride {
            Some(_) => proven::at(rows, ..rows.len().min(1)),
            None => rows,
        };
        Group {
            base: chunk.base,
            bytes: chunk.bytes,
            layout: chunk.layout,
            rows,
            is_whole: lengths
                .iter()
                .all(|row| usize::from(row.length) >= least_bytes),
            stride: chunk.stride,
        }
    }

    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.rows.iter().map(move |row| row.payload(bytes))
    }
}

/// The place of a group: this vector, from this row on.
#[derive(Clone, Copy)]
pub struct At {
    pub position: usize,
    pub from: usize,
}

pub fn ts(out: &mut Output<'_>, at: At, group: Group<'_>) -> Result<()> {
    let column = out.column::<i64>(at.position, at.from, group.rows.len())?;
    for (entry, row) in column.iter_mut().zip(group.rows) {
        entry.write(micros(row.ts.0));
    }
    Ok(())
}

pub fn ts_ns(out: &mut Output<'_>, at: At, group: Group<'_>) -> Result<()> {
    let column = out.column::<i64>(at.position, at.from, group.rows.len())?;
    for (entry, row) in column.iter_mut().zip(group.rows) {
        entry.write(row.ts.0);
    }
    Ok(())
}

pub fn addr(out: &mut Output<'_>, at: At, group: Group<'_>) -> Result<()> {
    let column = out.column::<u64>(at.position, at.from, group.rows.len())?;
    for (entry, row) in column.iter_mut().zip(group.rows) {
        entry.write(row.address(group.base).0);
    }
    Ok(())
}

/// The payload after the own time, if there is one.
pub fn payload(out: &mut Output<'_>, at: At, group: Group<'_>) -> Result<()> {
    let bodies: Vec<&[u8]> = group
        .payloads()
        .map(|payload| group.layout.body(payload))
        .collect();
    out.strings(at.position, at.from, &bodies)
}

/// Fills a field that the records are too old to have.
pub fn nulls(out: &mut Output<'_>, at: At, rows: usize) -> Result<()> {
    out.nulls(at.position, at.from, rows, |_| true)?;
    // DuckDB reads the entries of NULL strings in some places.
    if proven::at(out.types(), at.position).is_string() {
        out.repeated(at.position, at.from, rows, b"")?;
    }
    Ok(())
}
