//! Writes columns as blocks: each takes the encoding that a look at it says is the shortest.

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

/// Numbers that take no more bits have no shorter dictionary.
const NARROW: u8 = 2;

/// Keeps its memory from column to column.
#[derive(Default)]
pub struct ColumnEncoder {
    finder: Finder,
    /// Of floats.
    whole: Vec<u64>,
    /// The block of members.
    other: Vec<u8>,
}

impl ColumnEncoder {
    /// Appends the block of a column, which has at least one number. `floats`: the numbers are bits of an f64 (8 bytes) or an f32 (4). `members`: how many of
    /// the numbers each member has of those that share the column, at least one; empty where none do.
    pub fn put(
        &mut self,
        numbers: &[u64],
        floats: Option<u8>,
        members: &[usize],
        out: &mut Vec<u8>,
    ) {
        let mut whole = std::mem::take(&mut self.whole);
        let exponent = floats.and_then(|bytes| scaled(numbers, bytes, &mut whole));
        let is_scaled = exponent
            .is_some_and(|exponent| self.put_scaled(numbers, exponent, &whole, members, out));
        self.whole = whole;
        if !is_scaled {
            self.put_rows(numbers, 0, members, out);
        }
    }

    /// False, and nothing is appended: the floats take no more.
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

    /// A block of all rows, as one column or member by member.
    fn put_rows(&mut self, numbers: &[u64], level: u8, members: &[usize], out: &mut Vec<u8>) {
        let start = out.len();
        self.put_at(numbers, level, out);
        if members.len() < 2 || *at(out.as_slice(), start) == Encoding::Constant as u8 {
            return;
        }
        let mut other = std::mem::take(&mut self.other);
        other.clear();
        other.push(Encoding::Members as u8);
        let put = |firsts: &[u64], out: &mut Vec<u8>| self.put_at(firsts, 1, out);
        members::encode(numbers, members, put, &mut other);
        if other.len() < out.len() - start {
            out.truncate(start);
            out.extend_from_slice(&other);
        }
        self.other = other;
    }

    fn put_at(&mut self, numbers: &[u64], level: u8, out: &mut Vec<u8>) {
        let look = &Look::at(numbers);
        if look.varying == 0 {
            out.push(Encoding::Constant as u8);
            constant::encode(look, out);
            return;
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
    }
}

/// Of equals the first.
fn shorter<'a>(held: &'a dyn Encode, other: &'a dyn Encode) -> &'a dyn Encode {
    match other.estimate() < held.estimate() {
        true => other,
        false => held,
    }
}
