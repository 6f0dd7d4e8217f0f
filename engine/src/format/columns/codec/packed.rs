//! Encoding 1: the excess of each number over the least. Packed numbers are compared without unpacking.

use std::ops::Range;

use super::cursor::Cursor;
use super::encoding::{Decode, Encode, Encoding, Put, put_signed};
use super::look::Look;
use crate::format::bytes::FormatError;
use crate::format::columns::bits::{self, pack_by, packed_bytes};
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use crate::memory;

pub struct ToPack<'a> {
    pub numbers: &'a [u64],
    pub look: &'a Look,
}

impl Encode for ToPack<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Packed
    }

    fn estimate(&self) -> usize {
        packed_bytes(self.look.count, self.look.width()) + 4
    }

    fn encode(&self, _: &mut Put<'_>, out: &mut Vec<u8>) {
        put_signed(out, self.look.least);
        let (least, width) = (self.look.least as u64, self.look.width());
        out.push(width);
        pack_by(self.numbers, width, out, |number| {
            number.wrapping_sub(least)
        });
    }
}

pub struct Packed<'a> {
    least: u64,
    excess: bits::Packed<'a>,
}

impl<'a> Packed<'a> {
    pub fn open(cursor: &mut Cursor<'a>, rows: usize) -> Result<Packed<'a>, FormatError> {
        let least = cursor.signed()?;
        let excess = cursor.packed(rows)?;
        Ok(Packed { least, excess })
    }
}

impl Decode for Packed<'_> {
    fn rows(&self) -> usize {
        self.excess.count()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let least = self.least;
        self.excess.unpack(out, |number| number.wrapping_add(least));
        Ok(())
    }

    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        memory::reserve(out, rows.len())?;
        let excess = rows.iter().map(|row| self.excess.get(*row as usize));
        out.extend(excess.map(|number| number.wrapping_add(self.least)));
        Ok(())
    }

    fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
        memory::reserve(found, self.rows())?;
        self.excess.find(wanted.above(self.least), found);
        Ok(())
    }

    fn totals(&self, rows: Range<usize>, wanted: NumberRange) -> Result<RangeTotals, FormatError> {
        Ok(self.excess.totals(rows, wanted.above(self.least)))
    }
}
