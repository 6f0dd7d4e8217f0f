//! Encoding 4: few different numbers, ascending, and the place of each row's number among them.

use super::encoding::{Block, Decode, Encode, Encoding, Put, Within};
use super::look::Look;
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::columns::bits::{self, pack_by, packed_bytes, width_of};
use crate::format::columns::number_range::NumberRange;
use crate::memory;
use crate::proven::{at, at_mut};

/// A place in a dictionary has at most this many bits.
const PLACE_BITS_MOST: usize = 8;
/// The approximate bytes of a dictionary besides its values and places.
const BESIDES_BYTES: usize = 10;
/// Rows between two checks of the number of values; the first check expects fewer.
const SAMPLE_ROWS: usize = 96;
const SAMPLE_VALUES_MOST: usize = 72;
/// If the first rows have at most this many values, the column probably fits a dictionary.
const FEW_VALUES: usize = 24;

const SLOTS: usize = 1024;
/// Marks a slot without a value.
const EMPTY: u16 = u16::MAX;

/// Finds the different numbers of a column and keeps its memory.
#[derive(Default)]
pub struct Finder {
    /// Ascending.
    values: Vec<u64>,
    /// The place of each row's number among the values in order of arrival.
    places: Vec<u64>,
    /// Maps each of these places to one among the ascending values.
    moved: Vec<u64>,
}

/// A column with few different numbers.
pub struct ToPlace<'a> {
    look: &'a Look,
    found: &'a Finder,
}

impl Finder {
    /// The dictionary must take fewer bytes than `bytes_most`.
    pub fn find<'a>(
        &'a mut self,
        numbers: &[u64],
        look: &'a Look,
        bytes_most: usize,
    ) -> Option<ToPlace<'a>> {
        // With more values, the places alone would take as many bytes.
        let room = bytes_most.saturating_sub(BESIDES_BYTES) * 8;
        let bits_most = (room.saturating_sub(1) / look.count).min(PLACE_BITS_MOST);
        let most = 1 << bits_most;
        let are_few = !are_more(numbers, most) && self.fill(numbers, most);
        are_few.then_some(ToPlace { look, found: self })
    }

    /// Returns false if there are too many values.
    fn fill(&mut self, numbers: &[u64], most: usize) -> bool {
        let mut slots = [EMPTY; SLOTS];
        let values = &mut self.values;
        values.clear();
        self.places.resize(numbers.len(), 0);
        let mut places = self.places.iter_mut();
        for (numbers, most) in samples(numbers, most) {
            for (&number, to) in numbers.iter().zip(&mut places) {
                let mut slot = slot_of(number);
                *to = loop {
                    let held = at_mut(&mut slots, slot % SLOTS);
                    if *held == EMPTY {
                        if values.len() == most {
                            return false;
                        }
                        *held = values.len() as u16;
                        values.push(number);
                    }
                    if *at(values.as_slice(), usize::from(*held)) == number {
                        break u64::from(*held);
                    }
                    slot += 1;
                };
            }
        }
        let mut ascending: Vec<(u64, usize)> = values.drain(..).zip(0..).collect();
        ascending.sort_unstable_by_key(|(value, _)| *value as i64);
        self.moved.resize(ascending.len(), 0);
        for (place, (value, before)) in (0..).zip(ascending) {
            *at_mut(&mut self.moved, before) = place;
            values.push(value);
        }
        true
    }
}

/// Reports whether there are surely more values, because they hash to more slots. Most columns have many values, and this check finds out early.
fn are_more(numbers: &[u64], most: usize) -> bool {
    let mut taken = [0; SLOTS];
    for (numbers, most) in samples(numbers, most) {
        for number in numbers {
            *at_mut(&mut taken, slot_of(*number)) = 1;
        }
        // Each byte of a word counts an eighth of the slots, so none overflows.
        const { assert!(SLOTS / 8 <= u8::MAX as usize) };
        let (eights, _) = taken.as_chunks();
        let eights = eights.iter().map(|eight| u64::from_le_bytes(*eight));
        let sums = eights.sum::<u64>().to_le_bytes();
        match sums.into_iter().map(usize::from).sum::<usize>() {
            count if count > most => return true,
            ..=FEW_VALUES => return false,
            _ => {}
        }
    }
    false
}

fn slot_of(number: u64) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % SLOTS
}

/// Returns parts of a column, each with the number of different values allowed up to its end.
fn samples(numbers: &[u64], most: usize) -> impl Iterator<Item = (&[u64], usize)> {
    let parts = numbers.chunks(SAMPLE_ROWS).enumerate();
    parts.map(move |(nth, numbers)| match nth {
        0 => (numbers, most.min(SAMPLE_VALUES_MOST)),
        _ => (numbers, most),
    })
}

impl ToPlace<'_> {
    fn width(&self) -> u8 {
        width_of(self.found.values.len() as u64 - 1)
    }
}

impl Encode for ToPlace<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Dictionary
    }

    fn estimate(&self) -> usize {
        packed_bytes(self.look.count, self.width())
            + packed_bytes(self.found.values.len(), self.look.width())
            + BESIDES_BYTES
    }

    fn encode(&self, put: &mut Put<'_>, out: &mut Vec<u8>) {
        let Finder {
            values,
            places,
            moved,
        } = self.found;
        put_leb128(out, values.len() as u64);
        put(Within::Inner, values, out);
        let width = self.width();
        out.push(width);
        pack_by(places, width, out, |place| *at(moved, place as usize));
    }
}

pub struct Dictionary<'a> {
    pub values: Block<'a>,
    pub places: bits::Packed<'a>,
}

fn value_at(values: &[u64], place: u64) -> Result<u64, FormatError> {
    match values.get(place as usize) {
        Some(value) => Ok(*value),
        None => invalid("a place in a column's dictionary", place),
    }
}

impl Decode for Dictionary<'_> {
    fn rows(&self) -> usize {
        self.places.count()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let values = self.values.decoded()?;
        self.places.unpack(out, |place| place);
        for out in out {
            *out = value_at(&values, *out)?;
        }
        Ok(())
    }

    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        memory::reserve(out, rows.len())?;
        let values = self.values.decoded()?;
        for row in rows {
            out.push(value_at(&values, self.places.get(*row as usize))?);
        }
        Ok(())
    }

    fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
        memory::reserve(found, self.rows())?;
        let values = self.values.decoded()?;
        match wanted.places_in(&values) {
            Some(Some(places)) => self.places.find(places, found),
            Some(None) => {}
            // The wanted places are not contiguous.
            None => {
                for row in 0..self.rows() {
                    if wanted.contains(value_at(&values, self.places.get(row))?) {
                        found.push(row as u32);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn different(numbers: &[u64]) -> Vec<u64> {
        let mut values = numbers.to_vec();
        values.sort_unstable_by_key(|value| *value as i64);
        values.dedup();
        values
    }

    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        (1..500u64, any::<u64>()).prop_flat_map(|(most, factor)| {
            let number = (0..most).prop_map(move |nth| nth.wrapping_mul(factor | 1));
            prop::collection::vec(number, 1..900)
        })
    }

    proptest! {
        #[test]
        fn few_values_are_found_as_by_sorting(numbers in numbers(), most in 1..=256usize) {
            let values = different(&numbers);
            let sample = different(at(&numbers, ..numbers.len().min(SAMPLE_ROWS)));
            let are_few = values.len() <= most && sample.len() <= SAMPLE_VALUES_MOST;
            let mut finder = Finder::default();
            let found = !are_more(&numbers, most) && finder.fill(&numbers, most);
            prop_assert_eq!(found, are_few);
            if found {
                let place = |place: &u64| values[finder.moved[*place as usize] as usize];
                let given_back: Vec<u64> = finder.places.iter().map(place).collect();
                prop_assert_eq!(given_back, numbers);
                prop_assert_eq!(finder.values, values);
            }
        }
    }
}
