//! The encodings of a block, and what each of them can do: `Encode` for the writer, `Decode` for readers.
//!
//! What an encoding does not do in a way of its own, it does by decoding all of the block: these naive forms are what tests hold the others against.

use std::ops::Range;

use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use crate::memory;
use crate::proven::at;

/// How deep blocks stand within blocks.
pub const LEVELS: u8 = 2;

/// The first byte of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// All the same: it.
    Constant = 0,
    /// The least; width; how far each exceeds it, packed.
    Packed = 1,
    /// The first; the least difference; width; how far each difference from the number before exceeds it, packed.
    Differences = 2,
    /// How many runs of equal numbers; a block of their numbers; a block of their lengths.
    Runs = 3,
    /// How many numbers there are; a block of them; width; the place of each row's number among them, packed.
    Dictionary = 4,
    /// The bits that all share; a mask of the others; those, packed.
    Masked = 5,
    /// Floats that are whole numbers over a power of ten: its exponent; a block of the whole numbers.
    Scaled = 6,
    /// Of a row group that some members share: a block of the first number of each; the least difference; width; how far each difference from the number
    /// before in the same member exceeds it, packed.
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

/// A column that is about to become a block of one encoding.
pub trait Encode {
    fn encoding(&self) -> Encoding;

    /// How many bytes the block takes, about.
    fn estimate(&self) -> usize;

    /// Appends what follows the encoding; `put` appends a block within.
    fn encode(&self, put: &mut Put<'_>, out: &mut Vec<u8>);
}

/// Appends a block within a block.
pub type Put<'a> = dyn FnMut(Within, &[u64], &mut Vec<u8>) + 'a;

/// What a block within a block may have in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Within {
    /// A block, where its own place allows it.
    Inner,
    /// None.
    Flat,
}

/// A block of any encoding.
pub type Block<'a> = Box<dyn Decode + 'a>;

/// A block that was opened: its parts were found, and none was decoded.
pub trait Decode {
    /// How many numbers it has.
    fn rows(&self) -> usize;

    /// Fills all of `out`, which has a place for each number.
    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError>;

    /// All of its numbers.
    fn decoded(&self) -> Result<Vec<u64>, FormatError> {
        let mut numbers = memory::zeroed(self.rows())?;
        self.decode(&mut numbers)?;
        Ok(numbers)
    }

    /// Appends the numbers of some rows.
    ///
    /// # Panics
    /// A row is not one of the block.
    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        let numbers = self.decoded()?;
        let picked = rows.iter().map(|row| *at(&numbers, *row as usize));
        memory::reserve(out, rows.len())?;
        out.extend(picked);
        Ok(())
    }

    /// Appends which rows hold wanted numbers.
    fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
        memory::reserve(found, self.rows())?;
        let numbers = self.decoded()?;
        let numbered = (0..).zip(&numbers);
        found.extend(numbered.filter_map(|(row, number)| wanted.contains(*number).then_some(row)));
        Ok(())
    }

    /// What the wanted numbers of some rows are together.
    ///
    /// # Panics
    /// A row is not one of the block.
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

/// A number and how many rows in a row have it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub number: u64,
    pub rows: usize,
}

pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_leb128(out, ((value << 1) ^ (value >> 63)) as u64);
}
