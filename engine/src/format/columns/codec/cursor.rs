//! A cursor over foreign bytes, which takes numbers and blocks from the front.

use crate::format::bytes::{FormatError, invalid, leb128_at, u64_at};
use crate::format::columns::bits::{Packed, SLACK_BYTES};
use crate::proven::at;

/// These bytes follow the last block of a row group.
pub const TAIL: [u8; SLACK_BYTES] = [0; SLACK_BYTES];

#[derive(Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return Err(FormatError::Short {
                what: "a column",
                have: self.rest.len(),
                need: count,
            });
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub fn byte(&mut self) -> Result<u8, FormatError> {
        Ok(*at(self.bytes(1)?, 0))
    }

    pub fn number(&mut self) -> Result<u64, FormatError> {
        let mut read = 0;
        let Some(number) = leb128_at(self.rest, &mut read) else {
            return invalid("a number in a column's block", self.rest.len() as u64);
        };
        self.rest = at(self.rest, read..);
        Ok(number)
    }

    /// Fills all places of `out`.
    pub fn numbers(&mut self, out: &mut [usize]) -> Result<(), FormatError> {
        // Nearly all numbers take one byte.
        if let Some((bytes, rest)) = self.rest.split_at_checked(out.len())
            && bytes.iter().fold(0, |all, byte| all | byte) < 0x80
        {
            for (number, byte) in out.iter_mut().zip(bytes) {
                *number = usize::from(*byte);
            }
            self.rest = rest;
            return Ok(());
        }
        for number in out {
            *number = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    pub fn signed(&mut self) -> Result<u64, FormatError> {
        let number = self.number()?;
        Ok((number >> 1) ^ (number & 1).wrapping_neg())
    }

    /// Takes a number of 8 bytes.
    pub fn fixed(&mut self) -> Result<u64, FormatError> {
        let bytes = self.bytes(8)?;
        Ok(u64_at(bytes, 0))
    }

    /// Takes a width and the numbers packed at it.
    pub fn packed(&mut self, count: usize) -> Result<Packed<'a>, FormatError> {
        let width = self.byte()?;
        self.packed_of(count, width)
    }

    pub fn packed_of(&mut self, count: usize, width: u8) -> Result<Packed<'a>, FormatError> {
        let (packed, rest) = Packed::split(self.rest, count, width)?;
        self.rest = rest;
        Ok(packed)
    }

    /// Takes the number of values of a nested block: at least one, at most the number of rows.
    pub fn count(&mut self, rows: usize) -> Result<usize, FormatError> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if (1..=rows).contains(&count) => Ok(count),
            _ => invalid("the length of a block in a column", count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_one_by_one(bytes in prop::collection::vec(prop_oneof![3 => 0..0x80u8, 1 => any::<u8>()], 0..40), count in 0..20usize) {
            let mut one_by_one = Cursor::new(&bytes);
            let numbers: Result<Vec<u64>, FormatError> = (0..count).map(|_| one_by_one.number()).collect();
            let mut at_once = Cursor::new(&bytes);
            let mut found = vec![0; count];
            match (at_once.numbers(&mut found), numbers) {
                (Ok(()), Ok(numbers)) => {
                    prop_assert!(found.iter().map(|number| *number as u64).eq(numbers));
                    prop_assert_eq!(at_once.rest(), one_by_one.rest());
                }
                (found, numbers) => prop_assert!(found.is_err() && numbers.is_err()),
            }
        }
    }
}
