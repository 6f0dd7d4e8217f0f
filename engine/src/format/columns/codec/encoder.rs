//! Writes columns as blocks, each in the encoding that a look at the column estimates as the shortest.

use super::constant;
use super::dictionary::Finder;
use super::differences::ToDiffer;
use super::encoding::{Encode, Encoding, LEVELS, Within};
use super::look::Look;
use super::masked::ToMask;
use super::members;
use super::packed::ToPack;
use super::runs::ToRun;
use super::scaled::scaled;
use crate::format::columns::bits::packed_bytes;
use crate::proven::at;

/// A dictionary is never shorter for numbers of at most this width.
const NARROW: u8 = 2;

/// Keeps its memory from column to column.
#[derive(Default)]
pub struct ColumnEncoder {
    finder: Finder,
    /// The whole numbers of floats.
    whole: Vec<u64>,
    /// The alternative block, member by member.
    other: Vec<u8>,
}

impl ColumnEncoder {
    /// Appends the block of a column, which has at least one number. With `floats` the numbers are bits of an f64 (8 bytes) or an f32 (4). `members` holds the
    /// numbers of each member, at least one, where several share the column; it is empty otherwise. Returns the least and the greatest number as signed ones,
    /// if they are not floats.
    pub fn put(
        &mut self,
        numbers: &[u64],
        floats: Option<u8>,
        members: &[usize],
        out: &mut Vec<u8>,
    ) -> Option<(i64, i64)> {
        if floats.is_none() {
            let look = self.put_rows(numbers, 0, members, out);
            return Some((look.least, look.greatest));
        }
        let mut whole = std::mem::take(&mut self.whole);
        let exponent = floats.and_then(|bytes| scaled(numbers, bytes, &mut whole));
        let is_scaled = exponent
            .is_some_and(|exponent| self.put_scaled(numbers, exponent, &whole, members, out));
        self.whole = whole;
        if !is_scaled {
            self.put_rows(numbers, 0, members, out);
        }
        None
    }

    /// Returns false and appends nothing if the floats themselves are as short.
    fn put_scaled(
        &mut self,
        floats: &[u64],
        exponent: u8,
        whole: &[u64],
        members: &[usize],
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        out.extend_from_slice(&[Encoding::Scaled as u8, exponent]);
        self.put_rows(whole, 1, members, out);
        let scaled_bytes = out.len() - start;
        let varying = Look::at(floats).varying.count_ones() as u8;
        if scaled_bytes < packed_bytes(floats.len(), varying) {
            return true;
        }
        out.truncate(start);
        false
    }

    /// Appends a block of all rows, as one column or member by member, and returns the look at them.
    fn put_rows(
        &mut self,
        numbers: &[u64],
        level: u8,
        members: &[usize],
        out: &mut Vec<u8>,
    ) -> Look {
        let start = out.len();
        let look = self.put_at(numbers, level, out);
        if members.len() < 2 || *at(out.as_slice(), start) == Encoding::Constant as u8 {
            return look;
        }
        let mut other = std::mem::take(&mut self.other);
        other.clear();
        other.push(Encoding::Members as u8);
        let put = |firsts: &[u64], out: &mut Vec<u8>| {
            self.put_at(firsts, 1, out);
        };
        members::encode(numbers, members, put, &mut other);
        if other.len() < out.len() - start {
            out.truncate(start);
            out.extend_from_slice(&other);
        }
        self.other = other;
        look
    }

    fn put_at(&mut self, numbers: &[u64], level: u8, out: &mut Vec<u8>) -> Look {
        let seen = Look::at(numbers);
        let look = &seen;
        if look.varying == 0 {
            out.push(Encoding::Constant as u8);
            constant::encode(look, out);
            return seen;
        }
        let (packed, differences) = (ToPack { numbers, look }, ToDiffer { numbers, look });
        let (masked, runs) = (ToMask { numbers, look }, ToRun { numbers, look });
        let mut finder = std::mem::take(&mut self.finder);
        let dictionary;
        let mut shortest = shorter(shorter(&packed, &differences), &masked);
        if level < LEVELS {
            shortest = shorter(shortest, &runs);
            let width = look.width().min(look.step_width()).min(look.mask_width());
            if width > NARROW {
                dictionary = finder.find(numbers, look, shortest.estimate());
                if let Some(dictionary) = &dictionary {
                    shortest = shorter(shortest, dictionary);
                }
            }
        }
        out.push(shortest.encoding() as u8);
        let mut put = |within, numbers: &[u64], out: &mut Vec<u8>| {
            let level = match within {
                Within::Inner => level + 1,
                Within::Flat => LEVELS,
            };
            self.put_at(numbers, level, out);
        };
        shortest.encode(&mut put, out);
        self.finder = finder;
        seen
    }
}

/// The first wins a tie.
fn shorter<'a>(held: &'a dyn Encode, other: &'a dyn Encode) -> &'a dyn Encode {
    match other.estimate() < held.estimate() {
        true => other,
        false => held,
    }
}
