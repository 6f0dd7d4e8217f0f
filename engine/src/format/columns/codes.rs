//! Blocks that are looked into without decoding them: which rows hold wanted numbers, what these are together, and the numbers of a few rows.
//!
//! Packed numbers are compared as they are packed. To find rows, a constant is looked at once and a dictionary number by number. The naive form is to decode
//! all of a block.

use std::ops::Range;

use super::bits::{runs_of, scatter_bits, width_of_bits};
use super::floats::unscaled;
use super::number_range::{NumberRange, RangeTotals};
use super::numbers::{Blocks, Encoding};
use crate::format::bytes::{FormatError, invalid};
use crate::memory;
use crate::proven::{at, at_mut};

impl Blocks<'_> {
    /// What the wanted numbers of some rows of the next block, which has `count`, are together.
    ///
    /// # Panics
    /// A row is not one of the block.
    pub fn totals(
        &mut self,
        count: usize,
        rows: Range<usize>,
        wanted: NumberRange,
    ) -> Result<RangeTotals, FormatError> {
        assert!(rows.end <= count, "{rows:?} of {count}");
        let mut block = self.clone();
        let totals = match Encoding::of(block.byte()?)? {
            Encoding::Constant => {
                let number = block.signed()?;
                RangeTotals::of(rows.map(|_| number), wanted)
            }
            Encoding::Packed => {
                let wanted = wanted.above(block.signed()?);
                block.packed(count)?.totals(rows, wanted)
            }
            _ => {
                let mut numbers = memory::zeroed(count)?;
                self.decode(None, &mut numbers)?;
                let numbers = at(numbers.as_slice(), rows);
                return Ok(RangeTotals::of(numbers.iter().copied(), wanted));
            }
        };
        *self = block;
        Ok(totals)
    }

    /// Appends which rows of the next block, of so many, hold wanted numbers.
    pub fn find(
        &mut self,
        rows: usize,
        wanted: NumberRange,
        found: &mut Vec<u32>,
    ) -> Result<(), FormatError> {
        memory::reserve(found, rows)?;
        let mut block = self.clone();
        match Encoding::of(block.byte()?)? {
            Encoding::Constant => {
                if wanted.contains(block.signed()?) {
                    found.extend(0..rows as u32);
                }
            }
            Encoding::Packed => {
                let wanted = wanted.above(block.signed()?);
                block.packed(rows)?.find(wanted, found);
            }
            Encoding::Dictionary => {
                let dictionary = block.dictionary(0, rows)?;
                let places = wanted.places_in(&dictionary);
                let packed = block.packed(rows)?;
                match places {
                    Some(Some(places)) => packed.find(places, found),
                    Some(None) => {}
                    None => return self.find_decoded(rows, wanted, found),
                }
            }
            _ => return self.find_decoded(rows, wanted, found),
        }
        *self = block;
        Ok(())
    }

    fn find_decoded(
        &mut self,
        rows: usize,
        wanted: NumberRange,
        found: &mut Vec<u32>,
    ) -> Result<(), FormatError> {
        let mut numbers = memory::zeroed(rows)?;
        self.decode(None, &mut numbers)?;
        let numbered = (0..).zip(&numbers);
        found.extend(numbered.filter_map(|(row, number)| wanted.contains(*number).then_some(row)));
        Ok(())
    }

    /// Appends `rows` of the next block, which has `count`. `float_bytes`: as for `encode`.
    ///
    /// # Panics
    /// A row is not one of the block.
    pub fn pick(
        &mut self,
        float_bytes: Option<u8>,
        count: usize,
        rows: &[u32],
        out: &mut Vec<u64>,
    ) -> Result<(), FormatError> {
        memory::reserve(out, rows.len())?;
        let before = out.len();
        let mut block = self.clone();
        let encoding = Encoding::of(block.byte()?)?;
        let (exponent, level, encoding) = match (encoding, float_bytes) {
            (Encoding::Scaled, Some(bytes)) => {
                let exponent = block.byte()?;
                (Some((exponent, bytes)), 1, Encoding::of(block.byte()?)?)
            }
            _ => (None, 0, encoding),
        };
        let places = rows.iter().map(|row| *row as usize);
        match encoding {
            Encoding::Constant => {
                let number = block.signed()?;
                out.extend(places.map(|_| number));
            }
            Encoding::Packed => {
                let least = block.signed()?;
                let packed = block.packed(count)?;
                out.extend(places.map(|row| packed.get(row).wrapping_add(least)));
            }
            Encoding::Bits => {
                let (shared, varying) = (block.fixed()?, block.fixed()?);
                let packed = block.packed_of(count, width_of_bits(varying.count_ones()))?;
                let mut runs = Vec::new();
                runs_of(varying, &mut runs);
                out.extend(places.map(|row| shared | scatter_bits(packed.get(row), &runs)));
            }
            Encoding::Dictionary => {
                let dictionary = block.dictionary(level, count)?;
                let packed = block.packed(count)?;
                for row in places {
                    let place = packed.get(row);
                    match dictionary.get(place as usize) {
                        Some(number) => out.push(*number),
                        None => return invalid("a place in a column's dictionary", place),
                    }
                }
            }
            Encoding::Differences | Encoding::Runs | Encoding::Scaled | Encoding::Members => {
                let mut numbers = memory::zeroed(count)?;
                self.decode(float_bytes, &mut numbers)?;
                out.extend(places.map(|row| *at(numbers.as_slice(), row)));
                return Ok(());
            }
        }
        *self = block;
        match exponent {
            Some((exponent, bytes)) => unscaled(exponent, bytes, at_mut(out, before..)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::columns::number_range::tests::ranges;
    use crate::format::columns::numbers::tests::shapes;
    use crate::format::columns::numbers::{TAIL, encode};
    use proptest::prelude::*;

    /// What decoding all and looking at each number finds.
    fn decoded(numbers: &[u64], wanted: NumberRange) -> Vec<u32> {
        let numbered = numbers.iter().zip(0..);
        let wanted = numbered.filter(|(number, _)| wanted.contains(**number));
        wanted.map(|(_, row)| row).collect()
    }

    proptest! {
        #[test]
        fn rows_are_found_and_picked_as_decoding_says(
            numbers in shapes(),
            any_range in ranges(),
            from in any::<prop::sample::Index>(),
            more in prop_oneof![Just(0u64), 0..200u64, any::<u64>()],
            is_any: bool,
            floats in prop_oneof![Just(None), Just(Some(8))],
        ) {
            let wanted = match is_any {
                true => any_range,
                false => NumberRange { first: numbers[from.index(numbers.len())], more },
            };
            let mut bytes = Vec::new();
            encode(&numbers, None, &[], &mut bytes);
            bytes.extend_from_slice(&TAIL);
            let mut blocks = Blocks::new(&bytes);
            let mut found = vec![77];
            blocks.find(numbers.len(), wanted, &mut found).unwrap();
            prop_assert_eq!(blocks.bytes(TAIL.len()).unwrap(), TAIL);
            prop_assert_eq!(found.remove(0), 77);
            prop_assert_eq!(&found, &decoded(&numbers, wanted));
            let mut blocks = Blocks::new(&bytes);
            let some = from.index(numbers.len())..numbers.len();
            let totals = blocks.totals(numbers.len(), some.clone(), wanted).unwrap();
            prop_assert_eq!(totals, RangeTotals::of(numbers[some].iter().copied(), wanted));
            prop_assert_eq!(blocks.bytes(TAIL.len()).unwrap(), TAIL);

            let mut bytes = Vec::new();
            encode(&numbers, floats, &[], &mut bytes);
            bytes.extend_from_slice(&TAIL);
            let mut blocks = Blocks::new(&bytes);
            let mut picked = vec![77];
            blocks.pick(floats, numbers.len(), &found, &mut picked).unwrap();
            prop_assert_eq!(blocks.bytes(TAIL.len()).unwrap(), TAIL);
            prop_assert_eq!(picked.remove(0), 77);
            let expected: Vec<u64> = found.iter().map(|row| numbers[*row as usize]).collect();
            prop_assert_eq!(picked, expected);
        }

        #[test]
        fn any_bytes_are_looked_into_or_an_error(bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..200), rows in 1..50u32, wanted in ranges()) {
            let mut found = Vec::new();
            let _ = Blocks::new(&bytes).find(rows as usize, wanted, &mut found);
            prop_assert!(found.iter().all(|row| *row < rows) && found.is_sorted());
            let _ = Blocks::new(&bytes).totals(rows as usize, 1..rows as usize, wanted);
            let every: Vec<u32> = (0..rows).collect();
            for floats in [None, Some(4), Some(8)] {
                let _ = Blocks::new(&bytes).pick(floats, rows as usize, &every, &mut Vec::new());
            }
        }
    }
}
