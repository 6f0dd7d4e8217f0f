//! The encodings of a block and their operations: `Encode` for the writer, `Decode` for readers.
//!
//! The default operations decode the whole block; tests compare the faster ones against these naive forms.

use std::ops::Range;

use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use crate::memory;
use crate::proven::at;

/// The greatest depth of nested blocks.
pub const LEVELS: u8 = 2;

/// The first byte of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// One number that all rows share.
    Constant = 0,
    /// The least; width; the excess of each over it, packed.
    Packed = 1,
    /// The first; the least difference; width; the excess of each difference from the number before over it, packed.
    Differences = 2,
    /// The number of runs of equal numbers; a block of their numbers; a block of their lengths.
    Runs = 3,
    /// The number of values; a block of them; width; the place of each row's number among them, packed.
    Dictionary = 4,
    /// The bits that all share; a mask of the others; those, packed.
    Masked = 5,
    /// Floats that are whole numbers over a power of ten: its exponent; a block of the whole numbers.
    Scaled = 6,
    /// A row group of several members: a block of each member's first number; the least difference; width; the excess of each difference from the number before
    /// in the same member over it, packed.
    Members = 7,
}

impl Encoding {
    pub fn of(byte: u8) -> Result<Encoding, FormatError> {
        const ALL: [Encoding; 8] = [
            Encoding::Constant,
            Encoding::Packed,
            Encoding::Differences,
            Encoding::Runs,
            Encoding::Dictionary,
            Encoding::Masked,
            Encoding::Scaled,
            Encoding::Members,
        ];
        match ALL.get(usize::from(byte)) {
            Some(encoding) => Ok(*encoding),
            None => invalid("the encoding of a column", byte.into()),
        }
    }
}

/// A column that can become a block of one encoding.
pub trait Encode {
    fn encoding(&self) -> Encoding;

    /// The approximate bytes of the block.
    fn estimate(&self) -> usize;

    /// Appends the block without its encoding byte; `put` appends a nested block.
    fn encode(&self, put: &mut Put<'_>, out: &mut Vec<u8>);
}

/// Appends a nested block.
pub type Put<'a> = dyn FnMut(Within, &[u64], &mut Vec<u8>) + 'a;

/// The blocks that a nested block may contain.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Within {
    /// Further blocks, if its own level allows it.
    Inner,
    /// None.
    Flat,
}

/// A block of any encoding.
pub type Block<'a> = Box<dyn Decode + 'a>;

/// An opened block: its parts were found but not decoded.
pub trait Decode {
    fn rows(&self) -> usize;

    /// Fills all of `out`, which has a place for each number.
    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError>;

    fn decoded(&self) -> Result<Vec<u64>, FormatError> {
        let mut numbers = memory::zeroed(self.rows())?;
        self.decode(&mut numbers)?;
        Ok(numbers)
    }

    /// Appends the numbers of some rows.
    ///
    /// # Panics
    /// Panics if a row is not in the block.
    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        let numbers = self.decoded()?;
        let picked = rows.iter().map(|row| *at(&numbers, *row as usize));
        memory::reserve(out, rows.len())?;
        out.extend(picked);
        Ok(())
    }

    /// Appends the rows that hold wanted numbers.
    fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
        memory::reserve(found, self.rows())?;
        let numbers = self.decoded()?;
        let numbered = (0..).zip(&numbers);
        found.extend(numbered.filter_map(|(row, number)| wanted.contains(*number).then_some(row)));
        Ok(())
    }

    /// Sums up the wanted numbers of some rows.
    ///
    /// # Panics
    /// Panics if a row is not in the block.
    fn totals(&self, rows: Range<usize>, wanted: NumberRange) -> Result<RangeTotals, FormatError> {
        let numbers = self.decoded()?;
        Ok(RangeTotals::of(at(&numbers, rows).iter().copied(), wanted))
    }

    /// Appends its runs of equal numbers.
    fn runs(&self, out: &mut Vec<Run>) -> Result<(), FormatError> {
        let numbers = self.decoded()?;
        let runs = numbers.chunk_by(|a, b| a == b);
        out.extend(runs.map(|run| Run {
            number: *at(run, 0),
            rows: run.len(),
        }));
        Ok(())
    }
}

/// A number and the count of consecutive rows that hold it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub number: u64,
    pub rows: usize,
}

pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_leb128(out, ((value << 1) ^ (value >> 63)) as u64);
}
