//! Encoding 4: few different numbers, ascending, and the place of each row's number among them.

use super::cursor::Cursor;
use super::encoding::{Decode, Encode, Encoding, Put, Within};
use super::look::Look;
use crate::format::bytes::{FormatError, invalid, put_leb128, u64_at};
use crate::format::columns::bits::{self, pack_by, packed_bytes, width_of};
use crate::format::columns::number_range::NumberRange;
use crate::memory;
use crate::proven::{at, at_mut};

/// A place in a dictionary takes at most so many bits.
const PLACE_BITS_MOST: usize = 8;
/// What a dictionary takes besides its values and places, about.
const BESIDES_BYTES: usize = 10;
/// Of so many rows, to see whether a dictionary is worth a closer look.
const SAMPLE_ROWS: usize = 96;
const SAMPLE_VALUES_MOST: usize = 72;
/// Numbers that lie so close together are counted by what they are.
const CLOSE_MOST: u64 = 1 << 16;

const SLOTS: usize = 1024;
/// Of a slot that no value has.
const EMPTY: u16 = u16::MAX;

/// Finds the different numbers of a column. Keeps its memory.
#[derive(Default)]
pub struct Finder {
    values: Vec<u64>,
    /// Of numbers that lie close together, by how far each exceeds the least: whether it occurs, and then its place.
    close: Vec<u8>,
    /// The place of each row's number, where they do not.
    places: Vec<u64>,
    slots: Vec<u16>,
}

/// A column with few different numbers.
pub struct ToPlace<'a> {
    numbers: &'a [u64],
    look: &'a Look,
    found: &'a Finder,
    is_close: bool,
}

impl Finder {
    /// `bytes_most`: what the dictionary must not take.
    pub fn find<'a>(
        &'a mut self,
        numbers: &'a [u64],
        look: &'a Look,
        bytes_most: usize,
    ) -> Option<ToPlace<'a>> {
        // With more values their places alone would take as much.
        let room = bytes_most.saturating_sub(BESIDES_BYTES) * 8;
        let bits_most = (room.saturating_sub(1) / look.count).min(PLACE_BITS_MOST);
        let values_most = 1 << bits_most;
        let is_close = look.span() < CLOSE_MOST;
        let are_few = match is_close {
            true => self.find_close(numbers, look, values_most),
            false => self.find_any(numbers, values_most),
        };
        are_few.then_some(ToPlace {
            numbers,
            look,
            found: self,
            is_close,
        })
    }

    fn find_close(&mut self, numbers: &[u64], look: &Look, values_most: usize) -> bool {
        let least = look.least as u64;
        self.close.clear();
        // Whole words.
        let room = (look.span() as usize + 1).next_multiple_of(8);
        self.close.resize(room, 0);
        let close = self.close.as_mut_slice();
        let mut values = 0;
        for (nth, numbers) in numbers.chunks(SAMPLE_ROWS).enumerate() {
            for number in numbers {
                let held = at_mut(close, number.wrapping_sub(least) as usize);
                values += usize::from(1 - *held);
                *held = 1;
            }
            if values > values_most || nth == 0 && values > SAMPLE_VALUES_MOST {
                return false;
            }
        }
        self.values.clear();
        for (nth, word) in (0..).zip(close.chunks_exact_mut(8)) {
            if u64_at(word, 0) == 0 {
                continue;
            }
            for (bit, place) in (0..).zip(word) {
                if *place > 0 {
                    *place = self.values.len() as u8;
                    self.values.push(least.wrapping_add(nth * 8 + bit));
                }
            }
        }
        true
    }

    fn find_any(&mut self, numbers: &[u64], values_most: usize) -> bool {
        self.slots.clear();
        self.slots.resize(SLOTS, EMPTY);
        let slots = at_mut(&mut self.slots, ..SLOTS);
        // In the order in which they come, and so their places at first.
        let values = &mut self.values;
        values.clear();
        self.places.resize(numbers.len(), 0);
        let mut latest = None;
        for (row, (&number, to)) in numbers.iter().zip(&mut self.places).enumerate() {
            if let Some((held, place)) = latest
                && held == number
            {
                *to = place;
                continue;
            }
            let mut slot = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
            let place = loop {
                let held = at_mut(slots, slot % SLOTS);
                if *held == EMPTY {
                    *held = values.len() as u16;
                    values.push(number);
                }
                if *at(values.as_slice(), usize::from(*held)) == number {
                    break u64::from(*held);
                }
                slot += 1;
            };
            *to = place;
            latest = Some((number, place));
            let too_many = row < SAMPLE_ROWS && values.len() > SAMPLE_VALUES_MOST;
            if too_many || values.len() > values_most {
                return false;
            }
        }
        let mut ascending: Vec<(u64, usize)> = values.drain(..).zip(0..).collect();
        ascending.sort_unstable_by_key(|(value, _)| *value as i64);
        let mut moved = vec![0; ascending.len()];
        for (place, (value, before)) in (0..).zip(ascending) {
            *at_mut(&mut moved, before) = place;
            values.push(value);
        }
        for place in &mut self.places {
            *place = *at(moved.as_slice(), *place as usize);
        }
        true
    }
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
        let values = self.found.values.as_slice();
        put_leb128(out, values.len() as u64);
        put(Within::Inner, values, out);
        let width = self.width();
        out.push(width);
        if self.is_close {
            let (least, close) = (self.look.least as u64, self.found.close.as_slice());
            pack_by(self.numbers, width, out, |number| {
                u64::from(*at(close, number.wrapping_sub(least) as usize))
            });
        } else {
            pack_by(&self.found.places, width, out, |place| place);
        }
    }
}

/// `V`: the block of the different numbers.
pub struct Dictionary<'a, V> {
    values: V,
    places: bits::Packed<'a>,
}

impl<'a, V: Decode> Dictionary<'a, V> {
    /// `values` opens a block of so many numbers.
    pub fn open(
        cursor: &mut Cursor<'a>,
        rows: usize,
        values: impl FnOnce(&mut Cursor<'a>, usize) -> Result<V, FormatError>,
    ) -> Result<Dictionary<'a, V>, FormatError> {
        let count = cursor.count(rows)?;
        let values = values(cursor, count)?;
        let places = cursor.packed(rows)?;
        Ok(Dictionary { values, places })
    }
}

fn value_at(values: &[u64], place: u64) -> Result<u64, FormatError> {
    match values.get(place as usize) {
        Some(value) => Ok(*value),
        None => invalid("a place in a column's dictionary", place),
    }
}

impl<V: Decode> Decode for Dictionary<'_, V> {
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
            // They do not lie in a row.
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
