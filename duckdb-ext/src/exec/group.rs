//! Rows of one chunk that go into vectors together, and the parts of the output that every source has: times, addresses, and
//! what a raw source's records hold.

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
    /// No record is shorter than its layout: what has a fixed place stands in each.
    pub is_whole: bool,
    /// From one row's payload to the next, where that is the same for all.
    pub stride: Option<usize>,
}

impl<'a> Group<'a> {
    /// `rows` are some of the chunk's, in a row.
    pub fn new(chunk: Rows<'a>, rows: &'a [Row]) -> Group<'a> {
        let least_bytes = chunk.layout.fixed_bytes();
        // Where there is a stride, all are as long as one.
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

/// Where a group goes: this vector, from this row on.
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

/// All that follows the own time, if there is one.
pub fn payload(out: &mut Output<'_>, at: At, group: Group<'_>) -> Result<()> {
    let bodies: Vec<&[u8]> = group
        .payloads()
        .map(|payload| group.layout.body(payload))
        .collect();
    out.strings(at.position, at.from, &bodies)
}

/// A field that the records are too old to have.
pub fn nulls(out: &mut Output<'_>, at: At, rows: usize) -> Result<()> {
    out.nulls(at.position, at.from, rows, |_| true)?;
    // DuckDB looks at the entries of NULL strings in places.
    if proven::at(out.types(), at.position).is_string() {
        out.repeated(at.position, at.from, rows, b"")?;
    }
    Ok(())
}
