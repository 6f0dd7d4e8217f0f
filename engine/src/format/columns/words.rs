//! The pieces of some payloads as words of 8 bytes. Records are loaded and stored word by word, whether or not pieces share a word.

use std::ops::Range;

use super::bits::wide;
use super::template::{Piece, PieceKind, Template};
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};

/// Records that are split or put together at a time, so that memory is touched once for each.
pub const TILE_ROWS: usize = 64;
/// [`Words::store`] needs one byte less than this behind the last place and its pieces.
pub const WORD_BYTES: usize = 8;
/// Words of a record that are moved after one bounds check.
const TOGETHER: usize = 4;

/// The same word of each record.
type Word = [u64; TILE_ROWS];

/// The words with the pieces of at most [`TILE_ROWS`] records. Keeps its memory.
#[derive(Debug, Default)]
pub struct Words {
    words: Vec<Word>,
}

/// The place of a piece in the words.
#[derive(Copy, Clone)]
struct Place {
    word: usize,
    shift: u32,
    /// As wide as the piece.
    mask: u64,
    /// The highest bit of a number that may be negative; 0 for others.
    sign: u64,
}

impl Place {
    fn of(piece: Piece, offset: usize) -> Place {
        let mask = u64::MAX >> (64 - 8 * u32::from(piece.bytes));
        Place {
            word: offset / WORD_BYTES,
            shift: (offset % WORD_BYTES) as u32 * 8,
            mask,
            sign: match piece.kind {
                PieceKind::Signed => mask ^ mask >> 1,
                _ => 0,
            },
        }
    }

    /// Reports whether it continues in the next word.
    fn is_in_two(self) -> bool {
        self.mask << self.shift >> self.shift != self.mask
    }

    #[inline(always)]
    fn take(self, words: &[Word], column: &mut [u64]) {
        let low = at(words, self.word).iter();
        if self.is_in_two() {
            let words = low.zip(at(words, self.word + 1));
            for (number, (low, high)) in column.iter_mut().zip(words) {
                *number = (low >> self.shift | high << (64 - self.shift)) & self.mask;
            }
        } else {
            for (number, word) in column.iter_mut().zip(low) {
                *number = word >> self.shift & self.mask;
            }
        }
        if self.sign != 0 {
            for number in column {
                *number = (*number ^ self.sign).wrapping_sub(self.sign);
            }
        }
    }

    /// Puts a number in each row. The first piece of a word replaces its old content.
    #[inline(always)]
    fn put(self, numbers: impl Iterator<Item = u64> + Clone, words: &mut [Word]) {
        let words = at_mut(words, self.word..);
        let bits = numbers.map(|number| number & self.mask);
        if let [word, ..] = words {
            let low = bits.clone().map(|bits| bits << self.shift);
            match self.shift {
                0 => word.iter_mut().zip(low).for_each(|(to, low)| *to = low),
                _ => word.iter_mut().zip(low).for_each(|(to, low)| *to |= low),
            }
        }
        if self.is_in_two()
            && let [_, word, ..] = words
        {
            let high = bits.map(|bits| bits >> (64 - self.shift));
            word.iter_mut().zip(high).for_each(|(to, high)| *to = high);
        }
    }
}

/// Returns the places of a template's pieces.
fn places(template: &Template) -> impl Iterator<Item = Place> {
    let mut end = 0;
    template.pieces.iter().map(move |piece| {
        let start = end;
        end += usize::from(piece.bytes);
        Place::of(*piece, start)
    })
}

impl Words {
    /// Loads the words of records whose payloads begin `offset` bytes behind some places.
    pub fn load(&mut self, template: &Template, bytes: &[u8], places: &[u32], offset: usize) {
        self.words.resize(words_of(template), [0; TILE_ROWS]);
        for (nth, words) in self.words.chunks_mut(TOGETHER).enumerate() {
            let bytes = at(bytes, offset + nth * TOGETHER * WORD_BYTES..);
            match words {
                [a, b, c, d] => load([a, b, c, d], bytes, places),
                [a, b, c] => load([a, b, c], bytes, places),
                [a, b] => load([a, b], bytes, places),
                [a] => load([a], bytes, places),
                _ => unreachable!("no more than {TOGETHER} are together"),
            }
        }
    }

    /// Copies the pieces of the records into rows of columns.
    pub fn take(&self, template: &Template, columns: &mut [Vec<u64>], rows: Range<usize>) {
        wide(|| {
            for (place, column) in places(template).zip(columns) {
                place.take(&self.words, at_mut(column, rows.clone()));
            }
        });
    }

    /// Reserves memory for a template's words.
    ///
    /// # Errors
    /// Fails if memory is refused.
    pub fn reserve(&mut self, template: &Template) -> Result<(), NoMemory> {
        let more = words_of(template).saturating_sub(self.words.len());
        memory::reserve(&mut self.words, more)
    }

    /// Replaces all words by the pieces of some rows, a column each.
    pub fn put<'a>(&mut self, template: &Template, columns: impl Iterator<Item = &'a [u64]>) {
        self.words.resize(words_of(template), [0; TILE_ROWS]);
        wide(|| {
            for (place, column) in places(template).zip(columns) {
                place.put(column.iter().copied(), &mut self.words);
            }
        });
    }

    /// Stores the pieces that were put: each record's payload begins at a place, and the places ascend. The bytes behind the last piece in its word become 0,
    /// unless the next payload overwrites them.
    pub fn store(&self, places: &[u32], out: &mut [u8]) {
        // The first words come last: they overwrite the zeroes behind the payload before.
        for (nth, words) in self.words.chunks(TOGETHER).enumerate().rev() {
            let out = at_mut(out, nth * TOGETHER * WORD_BYTES..);
            match words {
                [a, b, c, d] => store([a, b, c, d], places, out),
                [a, b, c] => store([a, b, c], places, out),
                [a, b] => store([a, b], places, out),
                [a] => store([a], places, out),
                _ => unreachable!("no more than {TOGETHER} are together"),
            }
        }
    }
}

/// The number of words that hold the pieces of a payload.
fn words_of(template: &Template) -> usize {
    template.fixed_bytes().div_ceil(WORD_BYTES)
}

fn load<const WORDS: usize>(mut words: [&mut Word; WORDS], bytes: &[u8], places: &[u32]) {
    for (row, place) in (0..TILE_ROWS).zip(places) {
        let start = *place as usize;
        let (held, _) = at(bytes, start..start + WORDS * WORD_BYTES).as_chunks::<WORD_BYTES>();
        let held = held.first_chunk::<WORDS>().expect("as many were taken");
        for (word, bytes) in words.iter_mut().zip(held) {
            *at_mut(word.as_mut_slice(), row) = u64::from_le_bytes(*bytes);
        }
    }
}

fn store<const WORDS: usize>(words: [&Word; WORDS], places: &[u32], out: &mut [u8]) {
    for (row, place) in (0..TILE_ROWS).zip(places) {
        let start = *place as usize;
        let held = at_mut(out, start..start + WORDS * WORD_BYTES);
        let (held, _) = held.as_chunks_mut::<WORD_BYTES>();
        let held = held.first_chunk_mut::<WORDS>().expect("as many were taken");
        for (word, held) in words.into_iter().zip(held) {
            *held = at(word.as_slice(), row).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SourceId;
    use proptest::prelude::*;

    fn piece() -> impl Strategy<Value = Piece> {
        let of = |bytes, kind| Piece { bytes, kind };
        let kind = prop_oneof![Just(PieceKind::Number), Just(PieceKind::Signed)];
        (1..=8u8, kind).prop_map(move |(bytes, kind)| of(bytes, kind))
    }

    /// The naive form reads byte by byte.
    fn number(piece: Piece, bytes: &[u8]) -> u64 {
        let ones = piece.kind == PieceKind::Signed && bytes[bytes.len() - 1] >= 0x80;
        let mut number = [if ones { 0xFF } else { 0 }; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    }

    proptest! {
        #[test]
        fn pieces_are_taken_and_put_as_byte_by_byte(
            pieces in prop::collection::vec(piece(), 1..12),
            held in prop::collection::vec(any::<u8>(), 120..4000),
        ) {
            let template = Template { source: SourceId(1), pieces, has_rest: false, fields: [].into() };
            let (fixed, stride) = (template.fixed_bytes(), 8 * words_of(&template) + 16);
            let count = (held.len() / stride).min(TILE_ROWS);
            let places: Vec<u32> = (0..count).map(|nth| (nth * stride) as u32).collect();
            let mut columns = vec![vec![7; count]; template.pieces.len()];
            let mut words = Words::default();
            words.load(&template, &held, &places, 8);
            words.take(&template, &mut columns, 0..count);
            let mut expected = vec![9; held.len()];
            let mut start = 8;
            for (piece, column) in template.pieces.iter().zip(&columns) {
                let bytes = usize::from(piece.bytes);
                for (row, place) in places.iter().enumerate() {
                    let here = *place as usize + start..*place as usize + start + bytes;
                    prop_assert_eq!(column[row], number(*piece, &held[here.clone()]));
                    expected[here.clone()].copy_from_slice(&held[here]);
                }
                start += bytes;
            }
            for place in &places {
                let end = *place as usize + 8 + fixed;
                expected[end..end.next_multiple_of(8)].fill(0);
            }
            let mut found = vec![9; held.len()];
            let payloads: Vec<u32> = places.iter().map(|place| place + 8).collect();
            words.put(&template, columns.iter().map(Vec::as_slice));
            words.store(&payloads, &mut found);
            prop_assert_eq!(found, expected);
            // The payloads are adjacent, without room between them.
            let dense: Vec<u32> = (0..count).map(|nth| (nth * fixed) as u32).collect();
            let mut found = vec![9; count * fixed + WORD_BYTES];
            words.store(&dense, &mut found);
            let expected = payloads.iter().map(|place| &held[*place as usize..][..fixed]);
            prop_assert_eq!(&found[..count * fixed], expected.collect::<Vec<_>>().concat());
        }
    }
}
