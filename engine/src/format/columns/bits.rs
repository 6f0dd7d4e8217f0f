//! Packs numbers into as few bits each as the widest needs. Number `i` starts at bit `i · width`, counted from the lowest bit of the first byte.
//!
//! A width is 0 to 57, or 64, so a number lies in 8 bytes that begin at a byte. Unpacking works on eight numbers, because they take exactly `width` bytes.

#[cfg(target_arch = "x86_64")]
mod avx2;

use std::ops::Range;

use super::number_range::{NumberRange, RangeTotals};
use crate::format::bytes::{FormatError, u64_at};
use crate::proven::{at, at_mut};

/// These bytes follow packed numbers, so that the last number may be loaded as 8 bytes.
pub const SLACK_BYTES: usize = 8;
const WIDTH_ODD_MOST: u8 = 57;
/// A search compares this many numbers before it records any.
const WORD_ROWS: usize = 64;
/// This many numbers are mapped before they are packed; they take whole bytes at any width.
const MAPPED_ROWS: usize = 128;
/// A word with at most this many ones is searched one by one.
const FEW_ONES: u32 = 6;

/// Returns the width that holds numbers up to `greatest`.
pub fn width_of(greatest: u64) -> u8 {
    width_of_bits(64 - greatest.leading_zeros())
}

/// Returns the least valid width of at least `bits`, which is at most 64.
pub fn width_of_bits(bits: u32) -> u8 {
    match bits as u8 {
        width @ 0..=WIDTH_ODD_MOST => width,
        _ => 64,
    }
}

/// Returns the bytes of `count` packed numbers.
pub fn packed_bytes(count: usize, width: u8) -> usize {
    (count * usize::from(width)).div_ceil(8)
}

/// Runs `work`, as far as it is inlined, with the widest instructions of the processor.
#[inline]
pub fn wide<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::run(work) };
    }
    work()
}

/// Evaluates an expression with the width as a constant: 1 to 57, or 64. Width 0 has an expression of its own.
macro_rules! by_width {
    ($width:expr, $none:expr, $WIDTH:ident => $some:expr) => {
        by_width!(@ $width, $none, $WIDTH => $some, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57)
    };
    (@ $width:expr, $none:expr, $WIDTH:ident => $some:expr, $($each:literal)*) => {
        match $width {
            0 => $none,
            $($each => { const $WIDTH: usize = $each; $some })*
            _ => { const $WIDTH: usize = 64; $some }
        }
    };
}

/// Appends numbers, each below `2^width`.
pub fn pack(numbers: &[u64], width: u8, out: &mut Vec<u8>) {
    by_width!(width, (), WIDTH => pack_of::<WIDTH>(numbers, out));
}

/// Packs the results of `map` over the numbers.
pub fn pack_by(numbers: &[u64], width: u8, out: &mut Vec<u8>, map: impl Fn(u64) -> u64) {
    pack_mapped(numbers, width, out, |numbers, mapped| {
        for (mapped, number) in mapped.iter_mut().zip(numbers) {
            *mapped = map(*number);
        }
    });
}

/// Packs numbers after gathering the bits that the runs of a mask cover.
pub fn pack_gathered(numbers: &[u64], runs: &[(u32, u64)], width: u8, out: &mut Vec<u8>) {
    pack_mapped(numbers, width, out, |numbers, mapped| {
        mapped.fill(0);
        for (shift, bits) in runs {
            for (mapped, number) in mapped.iter_mut().zip(numbers) {
                *mapped |= (number >> shift) & bits;
            }
        }
    });
}

/// `map` fills as many places as there are numbers.
fn pack_mapped(numbers: &[u64], width: u8, out: &mut Vec<u8>, map: impl Fn(&[u64], &mut [u64])) {
    let mut mapped = [0; MAPPED_ROWS];
    for numbers in numbers.chunks(MAPPED_ROWS) {
        let mapped = at_mut(&mut mapped, ..numbers.len());
        wide(|| map(numbers, mapped));
        pack(mapped, width, out);
    }
}

/// Packs the excess over `least` of each difference from the number before.
pub fn pack_steps(numbers: &[u64], least: u64, width: u8, out: &mut Vec<u8>) {
    let mut mapped = [0; MAPPED_ROWS];
    let mut rest = numbers;
    while let [_, after @ ..] = rest
        && !after.is_empty()
    {
        let mapped = at_mut(&mut mapped, ..after.len().min(MAPPED_ROWS));
        wide(|| {
            for ((mapped, before), after) in mapped.iter_mut().zip(rest).zip(after) {
                *mapped = after.wrapping_sub(*before).wrapping_sub(least);
            }
        });
        pack(mapped, width, out);
        rest = at(rest, mapped.len()..);
    }
}

fn pack_of<const WIDTH: usize>(numbers: &[u64], out: &mut Vec<u8>) {
    let start = out.len();
    let length = packed_bytes(numbers.len(), WIDTH as u8);
    out.resize(start + length, 0);
    let packed = at_mut(out, start..);
    let mut blocks = numbers.chunks_exact(8);
    for (block, packed) in (&mut blocks).zip(packed.chunks_exact_mut(WIDTH)) {
        // Eight numbers fill WIDTH bytes; bits beyond a word's end begin the next one.
        let (mut word, mut bits, mut done) = (0, 0, 0);
        for &number in block {
            debug_assert!(WIDTH == 64 || number >> WIDTH == 0, "{number}");
            word |= number << bits;
            bits += WIDTH;
            if bits >= 64 {
                at_mut(packed, done..done + 8).copy_from_slice(&word.to_le_bytes());
                done += 8;
                bits -= 64;
                word = if bits > 0 {
                    number >> (WIDTH - bits)
                } else {
                    0
                };
            }
        }
        at_mut(packed, done..).copy_from_slice(at(&word.to_le_bytes(), ..WIDTH - done));
    }
    let rest = at_mut(packed, numbers.len() / 8 * WIDTH..);
    let mut bit = 0;
    for &number in blocks.remainder() {
        let bytes = (u128::from(number) << (bit % 8)).to_le_bytes();
        for (byte, more) in at_mut(rest, bit / 8..).iter_mut().zip(bytes) {
            *byte |= more;
        }
        bit += WIDTH;
    }
}

/// Packed numbers in foreign bytes. Their room is checked once, at `split`.
#[derive(Copy, Clone, Debug)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    count: usize,
    width: u8,
}

impl<'a> Packed<'a> {
    /// Splits `count` packed numbers from the start of `bytes`. Any `SLACK_BYTES` must follow them.
    pub fn split(
        bytes: &'a [u8],
        count: usize,
        width: u8,
    ) -> Result<(Packed<'a>, &'a [u8]), FormatError> {
        if width > WIDTH_ODD_MOST && width != 64 {
            return Err(FormatError::Invalid {
                what: "the width of packed numbers",
                value: width.into(),
            });
        }
        let length = packed_bytes(count, width);
        let Some(held) = bytes.get(..length + SLACK_BYTES) else {
            return Err(FormatError::Short {
                what: "a column",
                have: bytes.len(),
                need: length + SLACK_BYTES,
            });
        };
        let packed = Packed {
            bytes: held,
            count,
            width,
        };
        Ok((packed, at(bytes, length..)))
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns number `nth`, counted from 0.
    pub fn get(&self, nth: usize) -> u64 {
        assert!(nth < self.count, "number {nth} of {}", self.count);
        let bit = nth * usize::from(self.width);
        let shifted = u64_at(self.bytes, bit / 8) >> (bit % 8);
        match self.width {
            64 => shifted,
            width => shifted & ((1 << width) - 1),
        }
    }

    /// Returns the greatest number that fits the width.
    pub fn greatest(&self) -> u64 {
        match self.width {
            0 => 0,
            width => u64::MAX >> (64 - width),
        }
    }

    /// Sums up the wanted numbers among some rows.
    pub fn totals(&self, rows: Range<usize>, wanted: NumberRange) -> RangeTotals {
        let greatest = self.greatest();
        let within = match wanted.all_or_none(greatest) {
            Some(false) => return RangeTotals::NONE,
            // A range of all numbers does not say which number is the greatest.
            Some(true) if wanted.more == u64::MAX => return self.totals_one_by_one(rows, wanted),
            Some(true) => NumberRange {
                first: 0,
                more: greatest,
            },
            None => wanted.up_to(greatest),
        };
        // A range that wraps around has its greatest numbers at the start.
        if within.more > greatest - within.first {
            return self.totals_one_by_one(rows, wanted);
        }
        let totals = by_width!(self.width, self.totals_one_by_one(rows, within), WIDTH => self.totals_of::<WIDTH>(rows, within));
        totals.behind(within.first.wrapping_sub(wanted.first))
    }

    fn totals_of<const WIDTH: usize>(
        &self,
        rows: Range<usize>,
        wanted: NumberRange,
    ) -> RangeTotals {
        #[cfg(target_arch = "x86_64")]
        if WIDTH <= avx2::WIDTH_MOST && is_x86_feature_detected!("avx2") {
            let (first, end) = (rows.start.div_ceil(8), rows.end / 8);
            if first < end {
                // SAFETY: the processor has AVX2.
                let mut totals = unsafe { avx2::totals::<WIDTH>(self, first..end, wanted) };
                totals.add(self.totals_one_by_one(rows.start..8 * first, wanted));
                totals.add(self.totals_one_by_one(8 * end..rows.end, wanted));
                return totals;
            }
        }
        self.totals_one_by_one(rows, wanted)
    }

    fn totals_one_by_one(&self, rows: Range<usize>, wanted: NumberRange) -> RangeTotals {
        RangeTotals::of(rows.map(|nth| self.get(nth)), wanted)
    }

    /// Appends the rows of the wanted numbers.
    pub fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) {
        let greatest = self.greatest();
        match wanted.all_or_none(greatest) {
            Some(true) => found.extend(0..self.count as u32),
            Some(false) => {}
            None => {
                let wanted = wanted.up_to(greatest);
                by_width!(self.width, (), WIDTH => self.find_of::<WIDTH>(wanted, found));
            }
        }
    }

    fn find_of<const WIDTH: usize>(&self, wanted: NumberRange, found: &mut Vec<u32>) {
        #[cfg(target_arch = "x86_64")]
        if WIDTH <= avx2::WIDTH_MOST && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { avx2::find::<WIDTH>(self, wanted, found) };
            return;
        }
        self.find_portable::<WIDTH>(wanted, found);
    }

    fn find_portable<const WIDTH: usize>(&self, wanted: NumberRange, found: &mut Vec<u32>) {
        self.find_by::<WIDTH>(wanted, found, |bytes| of_eight::<WIDTH>(bytes, wanted));
    }

    /// `of_eight` returns the wanted ones of the eight numbers at the start of some bytes.
    #[inline(always)]
    fn find_by<const WIDTH: usize>(
        &self,
        wanted: NumberRange,
        found: &mut Vec<u32>,
        of_eight: impl Fn(&[u8]) -> u64,
    ) {
        for first in (0..self.count).step_by(WORD_ROWS) {
            let hits = self.hits::<WIDTH>(first, wanted, &of_eight);
            put_ones(hits, first as u32, found);
        }
    }

    /// Compares up to 64 numbers from `first` on and returns a bit for each wanted one.
    #[inline(always)]
    fn hits<const WIDTH: usize>(
        &self,
        first: usize,
        wanted: NumberRange,
        of_eight: impl Fn(&[u8]) -> u64,
    ) -> u64 {
        let count = WORD_ROWS.min(self.count - first);
        let mut start = first / 8 * WIDTH;
        let mut hits = 0;
        for block in 0..count / 8 {
            let bytes = at(self.bytes, start..start + WIDTH + SLACK_BYTES);
            hits |= of_eight(bytes) << (8 * block);
            start += WIDTH;
        }
        for nth in count - count % 8..count {
            hits |= u64::from(is_wanted::<WIDTH>(self.get(first + nth), wanted)) << nth;
        }
        hits
    }

    /// Fills `out`, which has `count` places, with `map` of each number.
    #[inline(always)]
    pub fn unpack(&self, out: &mut [u64], map: impl Fn(u64) -> u64 + Copy) {
        assert_eq!(out.len(), self.count);
        by_width!(self.width, out.fill(map(0)), WIDTH => self.unpack_of::<WIDTH>(out, map));
    }

    #[inline(always)]
    fn unpack_of<const WIDTH: usize>(&self, out: &mut [u64], map: impl Fn(u64) -> u64 + Copy) {
        #[cfg(target_arch = "x86_64")]
        if WIDTH <= avx2::WIDTH_MOST && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { avx2::unpack::<WIDTH>(self, out, map) };
            return;
        }
        self.unpack_portable::<WIDTH>(out, map);
    }

    #[inline(always)]
    fn unpack_portable<const WIDTH: usize>(&self, out: &mut [u64], map: impl Fn(u64) -> u64) {
        let mask = u64::MAX >> (64 - WIDTH);
        let map = &map;
        self.unpack_by::<WIDTH>(out, map, |bytes, out| {
            for (nth, out) in out.iter_mut().enumerate() {
                let bit = nth * WIDTH;
                *out = map(u64_at(bytes, bit / 8) >> (bit % 8) & mask);
            }
        });
    }

    /// `eight` fills eight places from the numbers at the start of some bytes.
    #[inline(always)]
    fn unpack_by<const WIDTH: usize>(
        &self,
        out: &mut [u64],
        map: impl Fn(u64) -> u64,
        eight: impl Fn(&[u8], &mut [u64]),
    ) {
        let mut blocks = out.chunks_exact_mut(8);
        let mut start = 0;
        for block in &mut blocks {
            eight(at(self.bytes, start..start + WIDTH + SLACK_BYTES), block);
            start += WIDTH;
        }
        let done = self.count - self.count % 8;
        for (nth, out) in blocks.into_remainder().iter_mut().enumerate() {
            *out = map(self.get(done + nth));
        }
    }
}

/// Reports whether a number of `WIDTH` bits is wanted. The range wraps around at the width.
#[inline(always)]
fn is_wanted<const WIDTH: usize>(number: u64, wanted: NumberRange) -> bool {
    number.wrapping_sub(wanted.first) & (u64::MAX >> (64 - WIDTH)) <= wanted.more
}

/// Returns a bit for each wanted one of the eight numbers at the start of some bytes.
#[inline(always)]
fn of_eight<const WIDTH: usize>(bytes: &[u8], wanted: NumberRange) -> u64 {
    let number = |nth: usize| u64_at(bytes, nth * WIDTH / 8) >> (nth * WIDTH % 8);
    match WIDTH {
        5..=16 => {
            let low = four_within::<WIDTH>(number(0), wanted);
            low | four_within::<WIDTH>(number(4), wanted) << 4
        }
        _ => {
            let numbers = (0..8).rev().map(number);
            numbers.fold(0, |hits, number| {
                hits << 1 | u64::from(is_wanted::<WIDTH>(number, wanted))
            })
        }
    }
}

/// Compares the four lowest numbers of `WIDTH` bits in a word, 5 to 16, all at once, and returns a bit for each wanted one.
#[inline(always)]
fn four_within<const WIDTH: usize>(word: u64, wanted: NumberRange) -> u64 {
    let step = WIDTH - 1;
    let ones = 1 | 1 << WIDTH | 1 << (2 * WIDTH) | 1 << (3 * WIDTH);
    let tops: u64 = ones << step;
    let (first, more) = (
        wanted.first.wrapping_mul(ones),
        wanted.more.wrapping_mul(ones),
    );
    // The top bit of each minuend is set, so that no number borrows from the next; the last terms restore it.
    let behind = (word | tops).wrapping_sub(first & !tops) ^ ((word ^ !first) & tops);
    let not_less = (more | tops).wrapping_sub(behind & !tops);
    let within = (more & !behind | !(more ^ behind) & not_less) & tops;
    // The multiplication moves the four bits side by side; no other product of these bits lands there.
    let gather = 1 | 1 << step | 1 << (2 * step) | 1 << (3 * step);
    (within >> step).wrapping_mul(gather) >> (3 * step) & 15
}

/// Appends the places of the ones of a word, counted from `first`.
fn put_ones(word: u64, first: u32, places: &mut Vec<u32>) {
    let mut rest = word;
    if word.count_ones() <= FEW_ONES {
        while rest != 0 {
            places.push(first + rest.trailing_zeros());
            rest &= rest - 1;
        }
        return;
    }
    // Branches here cannot be predicted, so there is none for each number.
    let start = places.len();
    places.resize(start + WORD_ROWS, 0);
    let (room, mut kept) = (at_mut(places, start..), 0);
    let room = room.first_chunk_mut::<WORD_ROWS>();
    let room = room.expect("room for a word of rows was made");
    for nth in 0..WORD_ROWS {
        // This index never exceeds `nth`.
        *at_mut(room, kept % WORD_ROWS) = first + nth as u32;
        kept += (word >> nth) as usize & 1;
    }
    places.truncate(start + kept);
}

/// Replaces each number by `first` plus all numbers up to it. The sums wrap.
pub fn accumulate(first: u64, numbers: &mut [u64]) {
    let mut sum = first;
    for number in numbers {
        sum = sum.wrapping_add(*number);
        *number = sum;
    }
}

/// Scatters the gathered bits of numbers and adds the bits that all share.
pub fn scatter_all(numbers: &mut [u64], shared: u64, runs: &[(u32, u64)]) {
    let mut gathered = [0; MAPPED_ROWS];
    for numbers in numbers.chunks_mut(MAPPED_ROWS) {
        let gathered = at_mut(&mut gathered, ..numbers.len());
        gathered.copy_from_slice(numbers);
        wide(|| {
            numbers.fill(shared);
            for (shift, bits) in runs {
                for (number, gathered) in numbers.iter_mut().zip(gathered.iter()) {
                    *number |= (gathered & bits) << shift;
                }
            }
        });
    }
}

/// Finds the runs of ones of a mask. A run is the distance that it moves down when bits are gathered in the lowest places, and its mask there.
pub fn runs_of(mask: u64, runs: &mut Vec<(u32, u64)>) {
    runs.clear();
    let (mut place, mut rest) = (0, mask);
    while rest != 0 {
        let low = rest.trailing_zeros();
        let length = (rest >> low).trailing_ones();
        runs.push((low - place, (u64::MAX >> (64 - length)) << place));
        place += length;
        rest &= (u64::MAX << low) << (length - 1) << 1;
    }
}

/// Moves gathered bits from the lowest places back to the places of a mask with these runs.
#[inline]
pub fn scatter_bits(gathered: u64, runs: &[(u32, u64)]) -> u64 {
    runs.iter().fold(0, |number, (shift, bits)| {
        number | (gathered & bits) << shift
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The naive form reads bit by bit.
    fn bit_by_bit(bytes: &[u8], nth: usize, width: u8) -> u64 {
        (0..usize::from(width)).fold(0, |number, bit| {
            let place = nth * usize::from(width) + bit;
            number | u64::from(bytes[place / 8] >> (place % 8) & 1) << bit
        })
    }

    proptest! {
        #[test]
        fn numbers_are_unpacked_as_they_were_packed(numbers in prop::collection::vec(any::<u64>(), 0..70), shift in 0u32..64) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> shift).collect();
            let width = width_of(numbers.iter().copied().max().unwrap_or(0));
            let mut bytes = Vec::new();
            pack(&numbers, width, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_bytes(numbers.len(), width));
            bytes.resize(bytes.len() + SLACK_BYTES, 0xFF);
            let (packed, rest) = Packed::split(&bytes, numbers.len(), width).unwrap();
            prop_assert_eq!(rest.len(), SLACK_BYTES);
            let mut unpacked = vec![7; numbers.len()];
            packed.unpack(&mut unpacked, |number| number);
            prop_assert_eq!(&unpacked, &numbers);
            by_width!(width, (), WIDTH => packed.unpack_portable::<WIDTH>(&mut unpacked, |number| !number));
            if width > 0 {
                prop_assert!(unpacked.iter().zip(&numbers).all(|(found, number)| *found == !number));
            }
            for (nth, number) in numbers.iter().enumerate() {
                prop_assert_eq!(packed.get(nth), *number);
                prop_assert_eq!(bit_by_bit(&bytes, nth, width), *number);
            }
        }

        #[test]
        fn wanted_numbers_are_found_as_one_by_one(numbers in prop::collection::vec(any::<u64>(), 1..200), width in 1..=57u8, first in any::<u64>(), more in any::<u64>(), narrow in 0u32..64, to in any::<prop::sample::Index>()) {
            let mask = u64::MAX >> (64 - width);
            let numbers: Vec<u64> = numbers.iter().map(|number| number & mask).collect();
            let mut bytes = Vec::new();
            pack(&numbers, width, &mut bytes);
            bytes.resize(bytes.len() + SLACK_BYTES, 0xFF);
            let (packed, _) = Packed::split(&bytes, numbers.len(), width).unwrap();
            // Starts anywhere, or at a number that exists.
            let first = if first % 2 == 0 { first } else { numbers[to.index(numbers.len())] };
            let wanted = NumberRange { first, more: more >> narrow };
            let one_by_one = (0..).zip(&numbers);
            let one_by_one: Vec<u32> = one_by_one.filter_map(|(nth, number)| wanted.contains(*number).then_some(nth)).collect();
            let mut found = Vec::new();
            packed.find(wanted, &mut found);
            prop_assert_eq!(&found, &one_by_one);
            let from = to.index(numbers.len());
            let some = from..(from + narrow as usize * 3).min(numbers.len());
            let totals = RangeTotals::of(numbers[some.clone()].iter().copied(), wanted);
            prop_assert_eq!(packed.totals(some, wanted), totals);
            if wanted.all_or_none(mask).is_none() {
                found.clear();
                let wanted = wanted.up_to(mask);
                by_width!(width, (), WIDTH => packed.find_portable::<WIDTH>(wanted, &mut found));
                prop_assert_eq!(&found, &one_by_one);
            }
        }

        #[test]
        fn gathered_bits_are_scattered_to_their_places(number in any::<u64>(), mask in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), Just(1 << 63)]) {
            let mut runs = Vec::new();
            runs_of(mask, &mut runs);
            let width = width_of_bits(mask.count_ones());
            let mut bytes = Vec::new();
            pack_gathered(&[number; 3], &runs, width, &mut bytes);
            bytes.extend_from_slice(&[0; SLACK_BYTES]);
            let (packed, _) = Packed::split(&bytes, 3, width).unwrap();
            prop_assert_eq!(scatter_bits(packed.get(2), &runs), number & mask);
            let mut numbers = [packed.get(0); MAPPED_ROWS + 3];
            scatter_all(&mut numbers, !mask & 5, &runs);
            prop_assert_eq!(numbers, [number & mask | !mask & 5; MAPPED_ROWS + 3]);
        }
    }

    #[test]
    fn a_width_or_a_room_that_cannot_be_is_an_error() {
        assert!(Packed::split(&[0; 100], 1, 58).is_err());
        assert!(Packed::split(&[0; 15], 8, 8).is_err());
        assert!(Packed::split(&[0; 16], 8, 8).is_ok());
    }
}
