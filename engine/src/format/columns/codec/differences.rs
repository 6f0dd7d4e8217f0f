//! Encoding 2: the excess of each difference from the number before over the least difference.

use super::cursor::Cursor;
use super::encoding::{Decode, Encode, Encoding, Put, put_signed};
use super::look::Look;
use crate::format::bytes::FormatError;
use crate::format::columns::bits::{self, accumulate, pack_steps, packed_bytes};

pub struct ToDiffer<'a> {
    pub numbers: &'a [u64],
    pub look: &'a Look,
}

impl Encode for ToDiffer<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Differences
    }

    fn estimate(&self) -> usize {
        packed_bytes(self.look.count - 1, self.look.step_width()) + 12
    }

    fn encode(&self, _: &mut Put<'_>, out: &mut Vec<u8>) {
        let (look, width) = (self.look, self.look.step_width());
        put_signed(out, look.first as i64);
        put_signed(out, look.least_step);
        out.push(width);
        pack_steps(self.numbers, look.least_step as u64, width, out);
    }
}

pub struct Differences<'a> {
    rows: usize,
    first: u64,
    least: u64,
    steps: bits::Packed<'a>,
}

impl<'a> Differences<'a> {
    pub fn open(cursor: &mut Cursor<'a>, rows: usize) -> Result<Differences<'a>, FormatError> {
        let (first, least) = (cursor.signed()?, cursor.signed()?);
        let steps = cursor.packed(rows.saturating_sub(1))?;
        Ok(Differences {
            rows,
            first,
            least,
            steps,
        })
    }
}

impl Decode for Differences<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let least = self.least;
        if let Some((start, rest)) = out.split_first_mut() {
            *start = self.first;
            self.steps.unpack(rest, |step| step.wrapping_add(least));
            accumulate(self.first, rest);
        }
        Ok(())
    }
}
