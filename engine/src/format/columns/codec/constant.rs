//! Encoding 0: a column of one number.

use std::ops::Range;

use super::cursor::Cursor;
use super::encoding::{Decode, put_signed};
use super::look::Look;
use crate::format::bytes::FormatError;
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use crate::memory;

/// Appends the block without its encoding byte.
pub fn encode(look: &Look, out: &mut Vec<u8>) {
    put_signed(out, look.first as i64);
}

pub struct Constant {
    number: u64,
    rows: usize,
}

impl Constant {
    pub fn open(cursor: &mut Cursor<'_>, rows: usize) -> Result<Constant, FormatError> {
        let number = cursor.signed()?;
        Ok(Constant { number, rows })
    }
}

impl Decode for Constant {
    fn rows(&self) -> usize {
        self.rows
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        out.fill(self.number);
        Ok(())
    }

    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        memory::reserve(out, rows.len())?;
        out.extend(std::iter::repeat_n(self.number, rows.len()));
        Ok(())
    }

    fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
        if wanted.contains(self.number) {
            memory::reserve(found, self.rows)?;
            found.extend(0..self.rows as u32);
        }
        Ok(())
    }

    fn totals(&self, rows: Range<usize>, wanted: NumberRange) -> Result<RangeTotals, FormatError> {
        Ok(RangeTotals::of(rows.map(|_| self.number), wanted))
    }
}
