//! One column of numbers as bytes: each column takes the encoding that a quick look at it says is the shortest.
//!
//! Numbers are 64 bits, compared as signed; differences wrap. A block says how it is encoded and not how many numbers it holds: its row group knows. Blocks
//! within blocks end after two levels, so foreign bytes cannot lead deeper.

use super::bits::{
    Packed, SLACK_BYTES, accumulate, gather_bits, pack, packed_bytes, runs_of, scatter_bits, wide,
    width_of, width_of_bits,
};
use super::floats::{scaled, unscaled};
use crate::format::bytes::{FormatError, invalid, leb128_at, put_leb128, u64_at};
use crate::memory;
use crate::proven::{at, at_mut};

/// The first byte of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// All the same: it.
    Constant = 0,
    /// The least; width; how far each exceeds it, packed.
    Packed = 1,
    /// The first; the least difference; width; how far each difference from the number before exceeds it, packed.
    Differences = 2,
    /// How many runs of equal numbers; a block of their numbers; a block of their lengths.
    Runs = 3,
    /// How many numbers there are; a block of them; width; the place of each row's number among them, packed.
    Dictionary = 4,
    /// The bits that all share; a mask of the others; those, packed.
    Bits = 5,
    /// Floats that are whole numbers over a power of ten: its exponent; a block of the whole numbers.
    Scaled = 6,
    /// Of a row group that some members share: a block of the first number of each; the least difference; width; how far each difference from the number
    /// before in the same member exceeds it, packed.
    Members = 7,
}

impl Encoding {
    pub fn of(byte: u8) -> Result<Encoding, FormatError> {
        const ALL: [Encoding; 8] = [
            Encoding::Constant,
            Encoding::Packed,
            Encoding::Differences,
            Encoding::Runs,
            Encoding::Dictionary,
            Encoding::Bits,
            Encoding::Scaled,
            Encoding::Members,
        ];
        match ALL.get(usize::from(byte)) {
            Some(encoding) => Ok(*encoding),
            None => invalid("the encoding of a column", byte.into()),
        }
    }
}

/// How deep blocks stand within blocks.
const LEVELS: u8 = 2;
/// A place in a dictionary takes at most so many bits.
const DICTIONARY_BITS_MOST: usize = 8;
/// What a dictionary takes besides its values and places, about.
const DICTIONARY_BYTES: usize = 10;
/// Of so many rows, to see whether a dictionary is worth a closer look.
const SAMPLE_ROWS: usize = 96;

/// What one look at a column says.
struct Look {
    least: i64,
    greatest: i64,
    least_step: i64,
    greatest_step: i64,
    runs: usize,
    /// Bits that differ from the first number's in any.
    varying: u64,
}

impl Look {
    fn at(numbers: &[u64]) -> Look {
        wide(|| Look::of(numbers))
    }

    #[inline(always)]
    fn of(numbers: &[u64]) -> Look {
        let first = *at(numbers, 0);
        let mut look = Look {
            least: first as i64,
            greatest: first as i64,
            least_step: i64::MAX,
            greatest_step: i64::MIN,
            runs: 1,
            varying: 0,
        };
        for (before, &number) in numbers.iter().zip(at(numbers, 1..)) {
            let step = number.wrapping_sub(*before) as i64;
            look.least = look.least.min(number as i64);
            look.greatest = look.greatest.max(number as i64);
            look.least_step = look.least_step.min(step);
            look.greatest_step = look.greatest_step.max(step);
            look.runs += usize::from(step != 0);
            look.varying |= number ^ first;
        }
        look
    }

    fn width(&self) -> u8 {
        width_of(self.greatest.wrapping_sub(self.least) as u64)
    }

    fn step_width(&self) -> u8 {
        if self.least_step > self.greatest_step {
            return 0;
        }
        width_of(self.greatest_step.wrapping_sub(self.least_step) as u64)
    }
}

/// Appends the block of a column, which has at least one number, in the shortest form. `floats`: the numbers are bits of an f64 (8 bytes) or an f32 (4).
/// `members`: how many of the numbers each member has of those that share the column, at least one; empty where none do.
pub fn encode(numbers: &[u64], floats: Option<u8>, members: &[usize], out: &mut Vec<u8>) {
    if let Some((exponent, whole)) = floats.and_then(|bytes| scaled(numbers, bytes)) {
        let start = out.len();
        out.push(Encoding::Scaled as u8);
        out.push(exponent);
        encode_whole(&whole, 1, members, out);
        let scaled_bytes = out.len() - start;
        let varying = Look::at(numbers).varying.count_ones() as u8;
        if scaled_bytes < packed_bytes(numbers.len(), varying) {
            return;
        }
        out.truncate(start);
    }
    encode_whole(numbers, 0, members, out);
}

/// A block of all rows, as one column or member by member.
fn encode_whole(numbers: &[u64], level: u8, members: &[usize], out: &mut Vec<u8>) {
    let start = out.len();
    encode_at(numbers, level, out);
    if members.len() < 2 || *at(out.as_slice(), start) == Encoding::Constant as u8 {
        return;
    }
    let mut other = Vec::new();
    encode_members(numbers, members, &mut other);
    if other.len() < out.len() - start {
        out.truncate(start);
        out.extend_from_slice(&other);
    }
}

fn encode_members(numbers: &[u64], members: &[usize], out: &mut Vec<u8>) {
    let mut firsts = Vec::with_capacity(members.len());
    let mut steps = Vec::with_capacity(numbers.len());
    let mut rest = numbers;
    for rows in members {
        let (own, after) = rest.split_at(*rows);
        firsts.extend(own.first());
        let pairs = own.iter().zip(own.iter().skip(1));
        steps.extend(pairs.map(|(before, after)| after.wrapping_sub(*before)));
        rest = after;
    }
    let least = steps.iter().map(|step| *step as i64).min().unwrap_or(0);
    let mut greatest = 0;
    for step in &mut steps {
        *step = step.wrapping_sub(least as u64);
        greatest = greatest.max(*step);
    }
    let width = width_of(greatest);
    out.push(Encoding::Members as u8);
    encode_at(&firsts, 1, out);
    put_signed(out, least);
    out.push(width);
    pack(&steps, width, out);
}

/// The form that takes the fewest bytes of those offered; of equals the first.
struct Shortest {
    bytes: usize,
    encoding: Encoding,
}

impl Shortest {
    fn offer(&mut self, bytes: usize, encoding: Encoding) {
        if bytes < self.bytes {
            *self = Shortest { bytes, encoding };
        }
    }
}

fn encode_at(numbers: &[u64], level: u8, out: &mut Vec<u8>) {
    let count = numbers.len();
    let first = *at(numbers, 0);
    if numbers.iter().all(|number| *number == first) {
        out.push(Encoding::Constant as u8);
        put_signed(out, first as i64);
        return;
    }
    let look = Look::at(numbers);
    let (width, step_width) = (look.width(), look.step_width());
    let bits_width = width_of_bits(look.varying.count_ones());
    let mut shortest = Shortest {
        bytes: packed_bytes(count, width) + 4,
        encoding: Encoding::Packed,
    };
    shortest.offer(
        packed_bytes(count - 1, step_width) + 12,
        Encoding::Differences,
    );
    shortest.offer(packed_bytes(count, bits_width) + 16, Encoding::Bits);
    let dictionary = if level < LEVELS {
        // A run's number and length, each a little narrower than the widest.
        shortest.offer(
            packed_bytes(look.runs, width.min(step_width.saturating_add(4)) + 6) + 16,
            Encoding::Runs,
        );
        let dictionary = if width.min(step_width).min(bits_width) > 2 {
            // With more values its places alone would take as much as the shortest form so far.
            let room = shortest.bytes.saturating_sub(DICTIONARY_BYTES) * 8;
            let bits_most = (room.saturating_sub(1) / count).min(DICTIONARY_BITS_MOST);
            Dictionary::of(numbers, 1 << bits_most)
        } else {
            None
        };
        if let Some(dictionary) = &dictionary {
            let values = dictionary.values.len();
            shortest.offer(
                packed_bytes(count, dictionary.width())
                    + packed_bytes(values, width)
                    + DICTIONARY_BYTES,
                Encoding::Dictionary,
            );
        }
        dictionary
    } else {
        None
    };
    out.push(shortest.encoding as u8);
    match (shortest.encoding, dictionary) {
        (Encoding::Differences, _) => {
            put_signed(out, first as i64);
            put_signed(out, look.least_step);
            out.push(step_width);
            let least = look.least_step as u64;
            let steps = numbers.iter().zip(numbers.iter().skip(1));
            let steps =
                steps.map(|(before, after)| after.wrapping_sub(*before).wrapping_sub(least));
            pack(&steps.collect::<Vec<u64>>(), step_width, out);
        }
        (Encoding::Runs, _) => encode_runs(numbers, level, out),
        (Encoding::Dictionary, Some(dictionary)) => {
            put_leb128(out, dictionary.values.len() as u64);
            encode_at(&dictionary.values, level + 1, out);
            let width = dictionary.width();
            out.push(width);
            pack(&dictionary.codes, width, out);
        }
        (Encoding::Bits, _) => {
            out.extend_from_slice(&(first & !look.varying).to_le_bytes());
            out.extend_from_slice(&look.varying.to_le_bytes());
            let mut runs = Vec::new();
            runs_of(look.varying, &mut runs);
            let gathered = numbers.iter().map(|number| gather_bits(*number, &runs));
            pack(&gathered.collect::<Vec<u64>>(), bits_width, out);
        }
        _ => {
            put_signed(out, look.least);
            out.push(width);
            let least = look.least as u64;
            let excess = numbers.iter().map(|number| number.wrapping_sub(least));
            pack(&excess.collect::<Vec<u64>>(), width, out);
        }
    }
}

fn encode_runs(numbers: &[u64], level: u8, out: &mut Vec<u8>) {
    let (mut values, mut lengths) = (Vec::new(), Vec::new());
    for run in numbers.chunk_by(|a, b| a == b) {
        values.extend(run.first());
        lengths.push(run.len() as u64);
    }
    put_leb128(out, values.len() as u64);
    encode_at(&values, level + 1, out);
    encode_at(&lengths, LEVELS, out);
}

/// The different numbers of a column where they are few, ascending, and the place of each row's among them.
struct Dictionary {
    values: Vec<u64>,
    codes: Vec<u64>,
}

impl Dictionary {
    fn of(numbers: &[u64], values_most: usize) -> Option<Dictionary> {
        const SLOTS: usize = 1024;
        /// Of a slot that no value has.
        const EMPTY: u16 = u16::MAX;
        let mut slots = [EMPTY; SLOTS];
        // In the order in which they come, and so the codes at first.
        let mut values: Vec<u64> = Vec::new();
        let mut codes = Vec::with_capacity(numbers.len());
        let mut latest = None;
        for (row, &number) in numbers.iter().enumerate() {
            if let Some((held, code)) = latest
                && held == number
            {
                codes.push(code);
                continue;
            }
            let mut place = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
            let code = loop {
                let slot = at_mut(&mut slots, place % SLOTS);
                if *slot == EMPTY {
                    *slot = values.len() as u16;
                    values.push(number);
                }
                if *at(values.as_slice(), usize::from(*slot)) == number {
                    break u64::from(*slot);
                }
                place += 1;
            };
            codes.push(code);
            latest = Some((number, code));
            let too_many = row < SAMPLE_ROWS && values.len() > SAMPLE_ROWS * 3 / 4;
            if too_many || values.len() > values_most {
                return None;
            }
        }
        let mut ascending: Vec<(u64, usize)> = values.into_iter().zip(0..).collect();
        ascending.sort_unstable_by_key(|(value, _)| *value as i64);
        let mut places = vec![0; ascending.len()];
        for (place, (_, code)) in (0..).zip(&ascending) {
            *at_mut(&mut places, *code) = place;
        }
        for code in &mut codes {
            *code = *at(places.as_slice(), *code as usize);
        }
        let values = ascending.into_iter().map(|(value, _)| value).collect();
        Some(Dictionary { values, codes })
    }

    fn width(&self) -> u8 {
        width_of(self.values.len() as u64 - 1)
    }
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_leb128(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// A number and how many rows in a row have it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub number: u64,
    pub rows: usize,
}

/// What is left of foreign bytes: blocks are taken from its front.
#[derive(Clone)]
pub struct Blocks<'a> {
    rest: &'a [u8],
    /// How many of the rows each member has of those that share them; empty: none do.
    members: &'a [usize],
}

impl<'a> Blocks<'a> {
    pub fn new(bytes: &'a [u8]) -> Blocks<'a> {
        Blocks {
            rest: bytes,
            members: &[],
        }
    }

    /// Blocks whose rows some members share: how many each has, at least one.
    pub fn of_members(bytes: &'a [u8], members: &'a [usize]) -> Blocks<'a> {
        Blocks {
            rest: bytes,
            members,
        }
    }

    fn is_next(&self, encoding: Encoding) -> bool {
        self.rest.first() == Some(&(encoding as u8))
    }

    /// Decodes the next block into `out`, all of whose places it fills. `float_bytes`: as for `encode`.
    pub fn decode(&mut self, float_bytes: Option<u8>, out: &mut [u64]) -> Result<(), FormatError> {
        if self.is_next(Encoding::Scaled) {
            let Some(float_bytes) = float_bytes else {
                return invalid("the encoding of a column", Encoding::Scaled as u64);
            };
            self.byte()?;
            let exponent = self.byte()?;
            self.decode_whole(1, out)?;
            return unscaled(exponent, float_bytes, out);
        }
        self.decode_whole(0, out)
    }

    fn decode_whole(&mut self, level: u8, out: &mut [u64]) -> Result<(), FormatError> {
        if !self.is_next(Encoding::Members) || self.members.is_empty() {
            return self.decode_at(level, out);
        }
        self.byte()?;
        let members = self.members;
        assert_eq!(out.len(), members.iter().sum::<usize>());
        let mut firsts = memory::zeroed(members.len())?;
        self.decode_at(1, &mut firsts)?;
        let least = self.signed()?;
        // Each has a row at least: its steps lie further on than its numbers until these take their place.
        let mut step_at = members.len();
        let steps = at_mut(out, step_at..);
        let packed = self.packed(steps.len())?;
        packed.unpack(steps, |step| step.wrapping_add(least));
        let mut next = 0;
        for (rows, first) in members.iter().zip(firsts) {
            let mut number = first;
            *at_mut(out, next) = number;
            for row in next + 1..next + rows {
                number = number.wrapping_add(*at(out, step_at));
                *at_mut(out, row) = number;
                step_at += 1;
            }
            next += rows;
        }
        Ok(())
    }

    /// Decodes the next block, of so many numbers, as its runs of equal numbers, in place of what `out` has.
    pub fn decode_runs(&mut self, rows: usize, out: &mut Vec<Run>) -> Result<(), FormatError> {
        out.clear();
        if self.is_next(Encoding::Runs) {
            self.byte()?;
            let count = self.count(rows)?;
            memory::reserve(out, count)?;
            self.runs(0, count, rows, &mut |run| out.push(run))?;
            return Ok(());
        }
        let mut numbers = memory::zeroed(rows)?;
        self.decode(None, &mut numbers)?;
        let runs = numbers.chunk_by(|a, b| a == b);
        out.extend(runs.map(|run| Run {
            number: *at(run, 0),
            rows: run.len(),
        }));
        Ok(())
    }

    /// Gives `each` the runs, `count`, of a block of so many rows, of which all together cover these.
    fn runs(
        &mut self,
        level: u8,
        count: usize,
        rows: usize,
        each: &mut impl FnMut(Run),
    ) -> Result<(), FormatError> {
        let mut runs = memory::zeroed(count * 2)?;
        let (values, lengths) = runs.split_at_mut(count);
        self.decode_at(level + 1, values)?;
        self.decode_at(LEVELS, lengths)?;
        let mut left = rows;
        for (value, length) in values.iter().zip(lengths.iter()) {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let Some(after) = left.checked_sub(length) else {
                return invalid("the length of a run in a column", length as u64);
            };
            each(Run {
                number: *value,
                rows: length,
            });
            left = after;
        }
        match left {
            0 => Ok(()),
            _ => invalid("the rows that no run of a column covers", left as u64),
        }
    }

    /// Passes over the next block, of so many numbers.
    pub fn skip(&mut self, rows: usize) -> Result<(), FormatError> {
        let mut level = 0;
        if self.is_next(Encoding::Scaled) {
            self.bytes(2)?;
            level = 1;
        }
        if self.is_next(Encoding::Members) && !self.members.is_empty() {
            self.byte()?;
            self.skip_at(1, self.members.len())?;
            self.number()?;
            self.packed(rows.saturating_sub(self.members.len()))?;
            return Ok(());
        }
        self.skip_at(level, rows)
    }

    fn skip_at(&mut self, level: u8, rows: usize) -> Result<(), FormatError> {
        let encoding = Encoding::of(self.byte()?)?;
        match encoding {
            Encoding::Constant => {
                self.number()?;
            }
            Encoding::Packed => {
                self.number()?;
                self.packed(rows)?;
            }
            Encoding::Differences => {
                self.number()?;
                self.number()?;
                self.packed(rows.saturating_sub(1))?;
            }
            Encoding::Bits => {
                let (_, varying) = (self.fixed()?, self.fixed()?);
                self.packed_of(rows, width_of_bits(varying.count_ones()))?;
            }
            Encoding::Runs if level < LEVELS => {
                let count = self.count(rows)?;
                self.skip_at(level + 1, count)?;
                self.skip_at(LEVELS, count)?;
            }
            Encoding::Dictionary if level < LEVELS => {
                let count = self.count(rows)?;
                self.skip_at(level + 1, count)?;
                self.packed(rows)?;
            }
            Encoding::Runs | Encoding::Dictionary | Encoding::Scaled | Encoding::Members => {
                return invalid("the encoding of a block in a column", encoding as u64);
            }
        }
        Ok(())
    }

    /// The next `count` bytes.
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

    /// As many numbers as `out` has places.
    pub fn numbers(&mut self, out: &mut [usize]) -> Result<(), FormatError> {
        // Nearly all of one byte each.
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

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn signed(&mut self) -> Result<u64, FormatError> {
        let number = self.number()?;
        Ok((number >> 1) ^ (number & 1).wrapping_neg())
    }

    pub fn fixed(&mut self) -> Result<u64, FormatError> {
        let bytes = self.bytes(8)?;
        Ok(u64_at(bytes, 0))
    }

    pub fn packed(&mut self, count: usize) -> Result<Packed<'a>, FormatError> {
        let width = self.byte()?;
        self.packed_of(count, width)
    }

    pub fn packed_of(&mut self, count: usize, width: u8) -> Result<Packed<'a>, FormatError> {
        let (packed, rest) = Packed::split(self.rest, count, width)?;
        self.rest = rest;
        Ok(packed)
    }

    /// How many numbers a block within has: at least one, and no more than there are rows.
    fn count(&mut self, rows: usize) -> Result<usize, FormatError> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if (1..=rows).contains(&count) => Ok(count),
            _ => invalid("the length of a block in a column", count),
        }
    }

    /// The numbers that a dictionary of so many rows begins with.
    pub fn dictionary(&mut self, level: u8, rows: usize) -> Result<Vec<u64>, FormatError> {
        let mut values = memory::zeroed(self.count(rows)?)?;
        self.decode_at(level + 1, &mut values)?;
        Ok(values)
    }

    fn decode_at(&mut self, level: u8, out: &mut [u64]) -> Result<(), FormatError> {
        let encoding = Encoding::of(self.byte()?)?;
        match encoding {
            Encoding::Constant => out.fill(self.signed()?),
            Encoding::Packed => {
                let least = self.signed()?;
                self.packed(out.len())?
                    .unpack(out, |number| number.wrapping_add(least));
            }
            Encoding::Differences => {
                let (first, least) = (self.signed()?, self.signed()?);
                let steps = self.packed(out.len().saturating_sub(1))?;
                if let Some((start, rest)) = out.split_first_mut() {
                    *start = first;
                    steps.unpack(rest, |step| step.wrapping_add(least));
                    accumulate(first, rest);
                }
            }
            Encoding::Bits => {
                let (shared, varying) = (self.fixed()?, self.fixed()?);
                let packed = self.packed_of(out.len(), width_of_bits(varying.count_ones()))?;
                let mut runs = Vec::new();
                runs_of(varying, &mut runs);
                packed.unpack(out, |number| shared | scatter_bits(number, &runs));
            }
            Encoding::Runs if level < LEVELS => {
                let count = self.count(out.len())?;
                let (rows, mut done) = (out.len(), 0);
                self.runs(level, count, rows, &mut |run| {
                    at_mut(out, done..done + run.rows).fill(run.number);
                    done += run.rows;
                })?;
            }
            Encoding::Dictionary if level < LEVELS => {
                let values = self.dictionary(level, out.len())?;
                let packed = self.packed(out.len())?;
                packed.unpack(out, |code| code);
                for out in out {
                    match values.get(*out as usize) {
                        Some(value) => *out = *value,
                        None => return invalid("a place in a column's dictionary", *out),
                    }
                }
            }
            Encoding::Runs | Encoding::Dictionary | Encoding::Scaled | Encoding::Members => {
                return invalid("the encoding of a block in a column", encoding as u64);
            }
        }
        Ok(())
    }
}

/// Bytes that stand behind the last block of a row group.
pub const TAIL: [u8; SLACK_BYTES] = [0; SLACK_BYTES];

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(numbers: &[u64], floats: Option<u8>) -> usize {
        round_trip_of(numbers, floats, &[])
    }

    fn round_trip_of(numbers: &[u64], floats: Option<u8>, members: &[usize]) -> usize {
        let mut bytes = Vec::new();
        encode(numbers, floats, members, &mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(&TAIL);
        let mut blocks = Blocks::of_members(&bytes, members);
        let mut decoded = vec![0xDEAD; numbers.len()];
        blocks.decode(floats, &mut decoded).unwrap();
        assert_eq!(decoded, numbers);
        assert_eq!(blocks.rest.len(), SLACK_BYTES);
        let mut passed = Blocks::of_members(&bytes, members);
        passed.skip(numbers.len()).unwrap();
        assert_eq!(passed.rest, blocks.rest);
        length
    }

    /// Some numbers split into members of one number at least.
    pub fn members_of(rows: usize, cuts: &[prop::sample::Index]) -> Vec<usize> {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(rows)).collect();
        ends.extend([0, rows]);
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn counters_of_many_members_take_few_bytes() {
        let counter = |member: u64| (0..10).map(move |row| member * 1_000_003 + row * 10);
        let numbers: Vec<u64> = (0..100).flat_map(counter).collect();
        let length = round_trip_of(&numbers, None, &[10; 100]);
        assert!(length < 100, "{length}");
        let floats: Vec<u64> = numbers
            .iter()
            .map(|number| (*number as f64 / 4.0).to_bits())
            .collect();
        let length = round_trip_of(&floats, Some(8), &[10; 100]);
        assert!(length < 500, "{length}");
    }

    #[test]
    fn each_shape_takes_few_bytes() {
        let rows = 1024u64;
        let shapes: [(&str, Vec<u64>, usize); 8] = [
            ("a constant", vec![77; 1024], 4),
            (
                "small numbers",
                (0..rows).map(|i| 1_000_000 + i * 7 % 16).collect(),
                520,
            ),
            (
                "times",
                (0..rows).map(|i| (1 << 60) + i * 1000 + i % 8).collect(),
                530,
            ),
            (
                "times of batches",
                (0..rows).map(|i| (1 << 60) + i / 64 * 65_536).collect(),
                40,
            ),
            (
                "few different numbers",
                (0..rows)
                    .map(|i| [1 << 40, 99, 1 << 61, 5][(i * i % 7 % 4) as usize])
                    .collect(),
                320,
            ),
            (
                "multiples of a power of two with a set bit",
                (0..rows)
                    .map(|i| 1 << 62 | (i * 37 % 256) << 20 | 1)
                    .collect(),
                1060,
            ),
            (
                "prices",
                (0..rows)
                    .map(|i| ((i * 31 % 1000) as f64 / 100.0).to_bits())
                    .collect(),
                1300,
            ),
            (
                "negative numbers",
                (0..rows).map(|i| (-3i64 - (i % 4) as i64) as u64).collect(),
                270,
            ),
        ];
        for (what, numbers, most) in shapes {
            let floats = (what == "prices").then_some(8);
            let length = round_trip(&numbers, floats);
            assert!(length <= most, "{what}: {length} bytes, {most} at most");
        }
    }

    pub fn shapes() -> impl Strategy<Value = Vec<u64>> {
        let number = prop_oneof![
            any::<u64>(),
            0..10u64,
            Just(u64::MAX),
            Just(1 << 63),
            any::<u32>().prop_map(u64::from),
            any::<i16>().prop_map(|number| i64::from(number) as u64),
            (0..1000u32).prop_map(|number| (f64::from(number) / 10.0).to_bits()),
        ];
        let some = prop::collection::vec((number, 1..20usize), 1..60);
        (some, any::<bool>()).prop_map(|(runs, sums)| {
            let mut numbers: Vec<u64> = runs
                .into_iter()
                .flat_map(|(number, length)| std::iter::repeat_n(number, length))
                .collect();
            if sums {
                accumulate(7, &mut numbers);
            }
            numbers
        })
    }

    proptest! {
        #[test]
        fn numbers_of_members_are_read_back(numbers in shapes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
            let members = members_of(numbers.len(), &cuts);
            round_trip_of(&numbers, None, &members);
            round_trip_of(&numbers, Some(8), &members);
        }

        #[test]
        fn numbers_of_any_shape_are_read_back(numbers in shapes()) {
            round_trip(&numbers, None);
            round_trip(&numbers, Some(8));
            let mut bytes = Vec::new();
            encode(&numbers, None, &[], &mut bytes);
            bytes.extend_from_slice(&TAIL);
            same_runs(&bytes, numbers.len())?;
            let narrow: Vec<u64> = numbers.iter().map(|number| u64::from(*number as u32)).collect();
            round_trip(&narrow, Some(4));
        }

        #[test]
        fn numbers_are_read_as_one_by_one(bytes in prop::collection::vec(prop_oneof![3 => 0..0x80u8, 1 => any::<u8>()], 0..40), count in 0..20usize) {
            let mut one_by_one = Blocks::new(&bytes);
            let numbers: Result<Vec<u64>, FormatError> = (0..count).map(|_| one_by_one.number()).collect();
            let mut at_once = Blocks::new(&bytes);
            let mut found = vec![0; count];
            match (at_once.numbers(&mut found), numbers) {
                (Ok(()), Ok(numbers)) => {
                    prop_assert!(found.iter().map(|number| *number as u64).eq(numbers));
                    prop_assert_eq!(at_once.rest(), one_by_one.rest());
                }
                (found, numbers) => prop_assert!(found.is_err() && numbers.is_err()),
            }
        }

        #[test]
        fn any_bytes_are_numbers_or_an_error(bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..200), rows in 0..50usize) {
            let _ = Blocks::new(&bytes).decode(Some(8), &mut vec![0; rows]);
            let _ = Blocks::new(&bytes).decode(None, &mut vec![0; rows]);
            let _ = Blocks::new(&bytes).skip(rows);
            same_runs(&bytes, rows)?;
            let members = vec![1; rows];
            let _ = Blocks::of_members(&bytes, &members).decode(Some(8), &mut vec![0; rows]);
            let _ = Blocks::of_members(&bytes, &members).skip(rows);
        }

        #[test]
        fn changed_bytes_are_numbers_or_an_error(numbers in shapes(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = Vec::new();
            encode(&numbers, Some(8), &[], &mut bytes);
            *place.get_mut(&mut bytes[..]) = byte;
            bytes.extend_from_slice(&TAIL);
            let _ = Blocks::new(&bytes).decode(Some(8), &mut vec![0; numbers.len()]);
            same_runs(&bytes, numbers.len())?;
        }
    }

    /// The runs of a block are its numbers, or both are an error.
    fn same_runs(bytes: &[u8], rows: usize) -> Result<(), TestCaseError> {
        let mut numbers = vec![0; rows];
        let decoded = Blocks::new(bytes).decode(None, &mut numbers);
        let mut runs = Vec::new();
        let found = Blocks::new(bytes).decode_runs(rows, &mut runs);
        prop_assert_eq!(found.is_ok(), decoded.is_ok());
        if decoded.is_ok() {
            let all = runs.iter();
            let all = all.flat_map(|run| std::iter::repeat_n(run.number, run.rows));
            prop_assert_eq!(all.collect::<Vec<u64>>(), numbers);
        }
        Ok(())
    }
}
