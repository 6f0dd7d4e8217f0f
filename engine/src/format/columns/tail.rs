//! The strings behind the pieces of a row group's rows.

use std::cell::RefCell;
use std::ops::Range;

use zstd::zstd_safe::DCtx;

use super::bits::accumulate;
use super::codec::{Cursor, open_block};
use super::groups::TailForm;
use crate::format::bytes::{FormatError, invalid};
use crate::memory::{self, NoMemory};
use crate::proven::at;

/// A tail with more bytes returns its memory, because a thread has one for each string of each stream.
const KEPT_BYTES_MOST: usize = 64 << 10;
/// The approximate memory of a zstd decompression.
const CONTEXT_BYTES: usize = 160 << 10;

thread_local! {
    /// Making a context takes as long as decompressing the strings of a row group.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Strings of bytes: string `i` ends at `ends[i]` and begins at the end of the one before.
#[derive(Debug, Default)]
pub struct Tail {
    ends: Vec<u64>,
    bytes: Vec<u8>,
    /// The string of each row, if rows share them; empty if each row has the string of its own number.
    codes: Vec<u64>,
    /// The bytes of all rows' strings, once their ends are known to fit.
    all_bytes: usize,
}

impl Tail {
    #[inline]
    pub fn string(&self, row: usize) -> &[u8] {
        at(&self.bytes, self.place(row))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the strings of some rows lie.
    pub fn places(&self, rows: Range<usize>) -> Vec<Range<u32>> {
        if !self.codes.is_empty() {
            let place = |row| self.place(row);
            let places = rows.map(place);
            return places
                .map(|place| place.start as u32..place.end as u32)
                .collect();
        }
        let mut start = rows
            .start
            .checked_sub(1)
            .map_or(0, |row| *at(&self.ends, row)) as u32;
        let ends = at(&self.ends, rows).iter();
        let place = |end: &u64| std::mem::replace(&mut start, *end as u32)..*end as u32;
        ends.map(place).collect()
    }

    pub fn length(&self, row: usize) -> usize {
        self.place(row).len()
    }

    pub fn all_bytes(&self) -> usize {
        self.all_bytes
    }

    /// The number of each row's string, if rows share strings.
    pub fn codes(&self) -> Option<&[u64]> {
        (!self.codes.is_empty()).then_some(&self.codes)
    }

    /// The strings, each of which some rows share.
    pub fn shared(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|nth| at(&self.bytes, self.place_of(nth)))
    }

    #[inline]
    fn place(&self, row: usize) -> Range<usize> {
        match self.codes.is_empty() {
            true => self.place_of(row),
            false => self.place_of(*at(&self.codes, row) as usize),
        }
    }

    #[inline]
    fn place_of(&self, nth: usize) -> Range<usize> {
        let start = match nth {
            0 => 0,
            _ => *at(&self.ends, nth - 1),
        };
        start as usize..*at(&self.ends, nth) as usize
    }

    /// The strings of some rows of another tail.
    pub fn picked(
        from: &Tail,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Tail, NoMemory> {
        if from.codes.is_empty() {
            return Tail::of(rows.map(|row| from.string(row)));
        }
        let mut codes = Vec::new();
        memory::reserve(&mut codes, rows.len())?;
        codes.extend(rows.map(|row| *at(&from.codes, row)));
        if codes.is_empty() {
            return Ok(Tail::default());
        }
        Ok(Tail {
            ends: memory::copied(&from.ends)?,
            bytes: memory::copied(&from.bytes)?,
            codes,
            all_bytes: from.all_bytes,
        })
    }

    pub fn of<'a>(
        strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<Tail, NoMemory> {
        let mut tail = Tail::default();
        memory::reserve(&mut tail.ends, strings.len())?;
        memory::reserve(&mut tail.bytes, strings.clone().map(<[u8]>::len).sum())?;
        for string in strings {
            tail.bytes.extend_from_slice(string);
            tail.ends.push(tail.bytes.len() as u64);
        }
        tail.all_bytes = tail.bytes.len();
        Ok(tail)
    }

    /// Begins again with other strings, of which only the lengths are known.
    pub fn begin(&mut self, lengths: &[u64]) -> Result<(), NoMemory> {
        self.ends.clear();
        memory::reserve(&mut self.ends, lengths.len())?;
        self.ends.extend_from_slice(lengths);
        self.bytes.clear();
        self.codes.clear();
        self.all_bytes = 0;
        Ok(())
    }

    /// Whether its memory may be kept for other strings.
    pub fn is_small(&self) -> bool {
        self.bytes.capacity() + 8 * (self.ends.capacity() + self.codes.capacity())
            <= KEPT_BYTES_MOST
    }

    /// Turns lengths into ends, the last at most `room`, and subtracts it from `room`.
    pub fn find_ends(&mut self, room: &mut usize) -> Result<(), FormatError> {
        self.all_bytes = to_ends(&mut self.ends, *room)?;
        *room -= self.all_bytes;
        Ok(())
    }

    /// Decodes the bytes of all strings, or passes over them.
    pub fn decode(&mut self, is_wanted: bool, strings: &mut Cursor<'_>) -> Result<(), FormatError> {
        let form = strings.byte()?;
        if form != TailForm::Shared as u8 {
            return decode_bytes(form, self.all_bytes, is_wanted, strings, &mut self.bytes);
        }
        let rows = self.ends.len();
        let count = strings.count(rows)?;
        let lengths = open_block(strings, count, None, &[])?.decoded()?;
        let mut ends = memory::copied(&lengths)?;
        let bytes = to_ends(&mut ends, self.all_bytes)?;
        let form = strings.byte()?;
        decode_bytes(form, bytes, is_wanted, strings, &mut self.bytes)?;
        let codes = open_block(strings, rows, None, &[])?;
        if !is_wanted {
            return Ok(());
        }
        let codes = codes.decoded()?;
        // The lengths stand beside the rows too; both must agree.
        let mut start = 0;
        for (code, end) in codes.iter().zip(&self.ends) {
            match lengths.get(*code as usize) {
                Some(length) if *length == end - start => start = *end,
                Some(length) => return invalid("the length of a shared field", *length),
                None => return invalid("the number of a shared field", *code),
            }
        }
        (self.ends, self.codes) = (ends, codes);
        Ok(())
    }
}

/// Turns lengths into ends and returns the last, which is at most `most`.
fn to_ends(lengths: &mut [u64], most: usize) -> Result<usize, FormatError> {
    let most = most as u64;
    if let Some(length) = lengths.iter().find(|length| **length > most) {
        return invalid("the length of a field", *length);
    }
    accumulate(0, lengths);
    match lengths.last().copied().unwrap_or(0) {
        all if all <= most => Ok(all as usize),
        all => invalid("the length of the fields of a row group", all),
    }
}

/// Decodes `bytes` bytes of one form into an empty buffer, or passes over them.
fn decode_bytes(
    form: u8,
    bytes: usize,
    is_wanted: bool,
    strings: &mut Cursor<'_>,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let is_plain = form == TailForm::Plain as u8;
    let length = match form {
        _ if is_plain => bytes,
        _ if form == TailForm::Zstd as u8 => {
            usize::try_from(strings.number()?).unwrap_or(usize::MAX)
        }
        _ => return invalid("the form of the fields of a row group", form.into()),
    };
    let stored = strings.bytes(length)?;
    if !is_wanted {
        return Ok(());
    }
    if is_plain {
        memory::reserve(out, bytes)?;
        out.extend_from_slice(stored);
        return Ok(());
    }
    memory::resize(out, bytes)?;
    match decompress(stored, out)? {
        Some(length) if length == bytes => Ok(()),
        _ => invalid("the compressed fields of a row group", bytes as u64),
    }
}

/// Decompresses a frame into `plain` and returns its length; `None` if it is not such a frame.
fn decompress(frame: &[u8], plain: &mut [u8]) -> Result<Option<usize>, NoMemory> {
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            // The plain constructor panics if memory for the context is refused.
            *context = DCtx::try_create();
        }
        let context = context.as_mut().ok_or(NoMemory {
            bytes: CONTEXT_BYTES,
        })?;
        Ok(context.decompress(plain, frame).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::bytes::put_leb128;
    use crate::format::columns::codec::{ColumnEncoder, TAIL};
    use crate::format::columns::tail_writer::TailWriter;

    const STRINGS: [&str; 3] = ["cart", "", "a longer one, so that sharing pays off"];

    fn of_rows(rows: &[usize]) -> (Vec<u8>, Vec<u64>) {
        let strings = rows.iter().map(|row| STRINGS[*row].as_bytes());
        let lengths = strings.clone().map(|string| string.len() as u64);
        (
            strings.clone().flatten().copied().collect(),
            lengths.collect(),
        )
    }

    fn decoded(
        form: &[u8],
        lengths: &[u64],
        is_wanted: bool,
    ) -> Result<(Tail, usize), FormatError> {
        let mut tail = Tail::default();
        tail.begin(lengths)?;
        let mut room = 1 << 20;
        tail.find_ends(&mut room)?;
        let mut cursor = Cursor::new(form);
        tail.decode(is_wanted, &mut cursor)?;
        Ok((tail, cursor.rest().len()))
    }

    #[test]
    fn shared_strings_come_back_whether_all_rows_are_taken_or_some() {
        let rows: Vec<usize> = (0..200).map(|row| row * row % 7 % 3).collect();
        let (bytes, lengths) = of_rows(&rows);
        let mut out = Vec::new();
        TailWriter::new(true).put(&bytes, &lengths, &mut ColumnEncoder::default(), &mut out);
        assert_eq!(out[0], TailForm::Shared as u8);
        out.extend_from_slice(&TAIL);
        let (tail, left) = decoded(&out, &lengths, true).unwrap();
        assert_eq!(left, TAIL.len());
        assert_eq!(tail.codes().unwrap().len(), rows.len());
        let picked = Tail::picked(&tail, (0..rows.len()).rev().step_by(3)).unwrap();
        for (nth, row) in rows.iter().enumerate() {
            assert_eq!(tail.string(nth), STRINGS[*row].as_bytes());
        }
        for (nth, row) in rows.iter().rev().step_by(3).enumerate() {
            assert_eq!(picked.string(nth), STRINGS[*row].as_bytes());
        }
        let (passed, left) = decoded(&out, &lengths, false).unwrap();
        assert_eq!((left, passed.length(2)), (TAIL.len(), lengths[2] as usize));
    }

    #[test]
    fn a_format_without_shared_strings_gets_none() {
        let (bytes, lengths) = of_rows(&[0; 100]);
        let mut out = Vec::new();
        TailWriter::new(false).put(&bytes, &lengths, &mut ColumnEncoder::default(), &mut out);
        assert_eq!(out[0], TailForm::Zstd as u8);
    }

    // G8
    #[test]
    fn false_claims_about_shared_strings_are_errors() {
        let put = |count: u64, lengths: &[u64], bytes: &[u8], codes: &[u64]| {
            let (mut numbers, mut form) = (ColumnEncoder::default(), vec![TailForm::Shared as u8]);
            put_leb128(&mut form, count);
            numbers.put(lengths, None, &[], &mut form);
            form.push(TailForm::Plain as u8);
            form.extend_from_slice(bytes);
            numbers.put(codes, None, &[], &mut form);
            form.extend_from_slice(&TAIL);
            form
        };
        let of_rows = [3, 2, 3];
        for (form, error) in [
            (
                put(2, &[3, 2], b"onetw", &[0, 1, 2]),
                "the number of a shared field is invalid: 2",
            ),
            (
                put(2, &[3, 2], b"onetw", &[0, 0, 0]),
                "the length of a shared field is invalid: 3",
            ),
            (
                put(2, &[3, 7], b"onetwotwotw", &[0, 1, 0]),
                "the length of the fields of a row group is invalid: 10",
            ),
            (
                put(2, &[9, 2], b"oneoneonetw", &[0, 1, 0]),
                "the length of a field is invalid: 9",
            ),
            (
                put(4, &[3, 2, 2, 1], b"onetwtwo", &[0, 1, 0]),
                "the length of a block in a column is invalid: 4",
            ),
            (
                put(0, &[3], b"one", &[0, 0, 0]),
                "the length of a block in a column is invalid: 0",
            ),
        ] {
            assert_eq!(
                decoded(&form, &of_rows, true).unwrap_err().to_string(),
                error
            );
        }
        let sound = put(2, &[3, 2], b"onetw", &[0, 1, 0]);
        assert_eq!(decoded(&sound, &of_rows, true).unwrap().0.string(1), b"tw");
    }
}
