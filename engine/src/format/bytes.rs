//! Checked little-endian reads, and the error of every decoder in this folder.
//!
//! Decoders call these on foreign bytes; the invariant is that no read leaves its slice.

use std::path::PathBuf;

use crate::error::Error;
use crate::memory::NoMemory;
use crate::proven;
use crate::types::Address;

/// A fault that a decoder finds in foreign bytes. The caller adds file and address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("{what} is cut short: {have} bytes of {need}")]
    Short {
        what: &'static str,
        have: usize,
        need: usize,
    },
    #[error("checksum of {what} does not match: stored {stored:08x}, computed {computed:08x}")]
    Checksum {
        what: &'static str,
        stored: u32,
        computed: u32,
    },
    #[error("{what} is invalid: {value}")]
    Invalid { what: &'static str, value: u64 },
    #[error("{} bytes of memory are refused", .0.bytes)]
    Memory(NoMemory),
}

impl From<NoMemory> for FormatError {
    fn from(refused: NoMemory) -> FormatError {
        FormatError::Memory(refused)
    }
}

impl FormatError {
    /// Adds the file and the address in the log to the fault.
    pub fn of(&self, path: PathBuf, address: Address) -> Error {
        match self {
            FormatError::Memory(refused) => refused.of(path),
            damage => Error::Corrupt {
                path,
                address,
                what: damage.to_string(),
            },
        }
    }
}

pub(super) fn invalid<T>(what: &'static str, value: u64) -> Result<T, FormatError> {
    Err(FormatError::Invalid { what, value })
}

/// Reads `N` bytes at `at`; `decode` has proven that they are there.
#[inline]
#[track_caller]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *proven::at(bytes, at..at + N)
        .first_chunk()
        .expect("the part has N bytes")
}

#[inline]
#[track_caller]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

#[inline]
#[track_caller]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

#[inline]
#[track_caller]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[inline]
#[track_caller]
pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(bytes, at))
}

/// Reads one LEB128 number at `*at` and moves past it.
pub(super) fn leb128_at(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

pub(super) fn put_leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A half byte with this value says that the number is at least 15; its excess is stored elsewhere.
const HALF_FULL: u64 = 15;

/// Appends pairs of numbers that are mostly small. Each pair takes a byte: the first number in the lower half, the second in the upper. The excess over 15 of
/// each full half follows as LEB128, in order.
pub(super) fn put_pairs(out: &mut Vec<u8>, pairs: impl Iterator<Item = [u64; 2]> + Clone) {
    let start = out.len();
    out.extend(pairs.clone().map(|pair| {
        let [first, second] = pair.map(|number| number.min(HALF_FULL));
        (first | second << 4) as u8
    }));
    let bytes = proven::at(out, start..).iter();
    if bytes.fold(false, |full, byte| {
        full | (byte & 15 == 15) | (byte >> 4 == 15)
    }) {
        for number in pairs.flatten().filter(|number| *number >= HALF_FULL) {
            put_leb128(out, number - HALF_FULL);
        }
    }
}

/// Reads the pairs that `put_pairs` appended.
#[derive(Debug, Clone)]
pub(super) struct Pairs<'a> {
    halves: std::slice::Iter<'a, u8>,
    excesses: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Reads `count` pairs, or none where the bytes are fewer.
    pub(super) fn new(bytes: &'a [u8], count: usize) -> Self {
        let (halves, excesses) = bytes.split_at_checked(count).unwrap_or((&[], &[]));
        Self {
            halves: halves.iter(),
            excesses,
        }
    }

    #[inline]
    fn number(&mut self, half: u8) -> Option<u64> {
        if u64::from(half) < HALF_FULL {
            return Some(half.into());
        }
        let mut at = 0;
        let excess = leb128_at(self.excesses, &mut at)?;
        self.excesses = self.excesses.get(at..)?;
        excess.checked_add(HALF_FULL)
    }
}

/// Ends early where a pair is cut off.
impl Iterator for Pairs<'_> {
    type Item = [u64; 2];

    #[inline]
    fn next(&mut self) -> Option<[u64; 2]> {
        let byte = *self.halves.next()?;
        Some([self.number(byte & 15)?, self.number(byte >> 4)?])
    }
}

/// Pads with zeroes to the next multiple of 8.
pub(super) fn pad8(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Returns the positions of a mask's ones, ascending.
pub(super) fn ones(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let child = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (child < 64).then_some(child as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[should_panic = "2..10 is out of bounds, there are 9"]
    fn a_number_that_was_proven_and_is_not_there_stops_with_the_place() {
        u64_at(&[0; 9], 2);
    }

    proptest! {
        #[test]
        fn pairs_are_read_back(pairs in prop::collection::vec(prop::array::uniform2(prop_oneof![0..20u64, any::<u64>()]), 0..40), cut in 0usize..30) {
            let mut bytes = vec![7];
            put_pairs(&mut bytes, pairs.iter().copied());
            let read: Vec<_> = Pairs::new(&bytes[1..], pairs.len()).collect();
            prop_assert_eq!(&read, &pairs);
            let less = &bytes[1..bytes.len().saturating_sub(cut).max(1)];
            let read: Vec<_> = Pairs::new(less, pairs.len()).collect();
            prop_assert!(pairs.starts_with(&read));
            prop_assert!(read.len() == pairs.len() || less.len() < bytes.len() - 1);
        }
    }
}
