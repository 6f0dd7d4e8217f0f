//! The vectors of one output chunk as typed slices. The two adapters provide raw pointers through [`RawVectors`]. All code that fills a
//! vector goes through [`Output`], which checks type and bounds, so no filler contains `unsafe`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use loom_engine::proven;

use super::coded::{Coded, Texts};
use crate::error::{Problem, Result};
use crate::plan::types::SqlType;

/// The most rows of a vector: DuckDB's STANDARD_VECTOR_SIZE.
pub const CAPACITY: usize = 2048;

/// The vectors of an output chunk, as DuckDB lends them for one call.
///
/// # Safety
///
/// For a vector that has not been made constant or a dictionary, `data` points to [`CAPACITY`] writable entries of the width of the vector's
/// type, aligned for it, and `validity` to a bit for each, all set at first. What `heap` returns is writable for `bytes`
/// bytes and lives as long as the vector. All of them stay valid until the call ends.
pub unsafe trait RawVectors {
    fn data(&mut self, position: usize) -> Result<NonNull<u8>>;
    fn validity(&mut self, position: usize) -> Result<NonNull<u64>>;
    /// Returns memory for long strings. It may overwrite the entry of `row`, which the caller writes afterwards.
    fn heap(&mut self, position: usize, row: usize, bytes: usize) -> Result<NonNull<u8>>;
    /// Makes all `rows` rows of a VARCHAR vector this one text.
    fn constant(&mut self, position: usize, text: &str, rows: usize) -> Result<()>;
    /// Makes a VARCHAR vector of these codes of texts, at least one; returns false if the API has no such vectors.
    fn dictionary(&mut self, _position: usize, _texts: &Texts, _codes: &[u8]) -> Result<bool> {
        Ok(false)
    }
    /// Makes room for `entries` entries of a MAP vector of texts. Returns the positions of the vectors of keys and of values, which then
    /// have as many writable entries. Called once for each vector.
    fn map(&mut self, position: usize, entries: usize) -> Result<[usize; 2]>;
    /// Sets the number of rows. Called once, last.
    fn set_rows(&mut self, rows: usize) -> Result<()>;
}

/// A value in the form that a flat vector stores.
///
/// # Safety
///
/// Every bit pattern that a filler can make of it is a valid value of the SQL types of its width.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($ty:ty),*) => {
        // SAFETY: integers and floats of the vector's width; BOOLEAN is written as a u8 of 0 or 1 by `fixed`.
        $(unsafe impl Plain for $ty {})*
    };
}

plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// HUGEINT: the lower half, then the upper, independent of the machine's alignment of `i128`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Huge {
    pub lower: u64,
    pub upper: i64,
}

const _: () = assert!(size_of::<Huge>() == 16 && align_of::<Huge>() == 8);

// SAFETY: HUGEINT takes every bit pattern.
unsafe impl Plain for Huge {}

impl From<i128> for Huge {
    fn from(value: i128) -> Huge {
        Huge {
            lower: value as u64,
            upper: (value >> 64) as i64,
        }
    }
}

/// DuckDB's `string_t`: a length, then up to 12 bytes, or 4 bytes of prefix and a pointer.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct StringEntry {
    length: u32,
    prefix: [u8; 4],
    rest: [u8; 8],
}

const _: () = assert!(size_of::<StringEntry>() == 16);

/// The longest string that is stored in its entry.
pub const INLINE_BYTES: usize = 12;

impl StringEntry {
    /// Creates the entry of a string of at most [`INLINE_BYTES`] bytes.
    #[inline]
    pub fn inline(bytes: &[u8]) -> StringEntry {
        debug_assert!(bytes.len() <= INLINE_BYTES);
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = short(bytes).to_le_bytes();
        StringEntry {
            length: bytes.len() as u32,
            prefix: [a, b, c, d],
            rest: [e, f, g, h, i, j, k, l],
        }
    }

    /// Creates the entry of a string of at most [`INLINE_BYTES`] bytes, which are the lowest of two words; the other bytes are zero.
    #[inline]
    pub fn of_words(length: usize, first: u64, second: u64) -> StringEntry {
        debug_assert!(length <= INLINE_BYTES);
        StringEntry {
            length: length as u32,
            prefix: (first as u32).to_le_bytes(),
            rest: (first >> 32 | second << 32).to_le_bytes(),
        }
    }

    /// Creates the entry of a longer string, whose bytes lie in the vector's heap.
    #[inline]
    fn long(bytes: &[u8], address: NonNull<u8>) -> StringEntry {
        let mut prefix = [0u8; 4];
        for (to, from) in prefix.iter_mut().zip(bytes) {
            *to = *from;
        }
        let address = address.as_ptr() as usize as u64;
        StringEntry {
            length: bytes.len() as u32,
            prefix,
            rest: address.to_ne_bytes(),
        }
    }

    /// The bytes of a string.
    ///
    /// # Safety
    ///
    /// The entry is one of a vector, and the vector with the bytes of its long strings outlives the result.
    pub unsafe fn bytes(&self) -> &[u8] {
        let length = self.length as usize;
        let start = if length <= INLINE_BYTES {
            // The prefix and the rest are adjacent.
            std::ptr::from_ref(self)
                .cast::<u8>()
                .wrapping_add(size_of::<u32>())
        } else {
            self.address().cast_const()
        };
        // SAFETY: a short string lies in the entry behind its length; a long one where the entry points, as promised by the caller.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// The address of a long string's bytes.
    pub fn address(self) -> *mut u8 {
        u64::from_ne_bytes(self.rest) as usize as *mut u8
    }
}

/// Reads up to 16 bytes as a number, by two loads that may overlap.
#[inline]
fn short(bytes: &[u8]) -> u128 {
    let behind = |width: usize| 8 * (bytes.len() - width) as u32;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        u128::from(u64::from_le_bytes(*first)) | u128::from(u64::from_le_bytes(*last)) << behind(8)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        u128::from(u32::from_le_bytes(*first)) | u128::from(u32::from_le_bytes(*last)) << behind(4)
    } else {
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u128::from(*byte))
    }
}

/// The range of a row's map in the vector's entries.
#[derive(Clone, Copy)]
#[repr(C)]
struct MapEntry {
    offset: u64,
    length: u64,
}

const _: () = assert!(size_of::<MapEntry>() == 16 && align_of::<MapEntry>() == 8);

/// The output of one call, filled column by column.
pub struct Output<'a> {
    vectors: &'a mut dyn RawVectors,
    types: &'a [SqlType],
    /// The first rows of some vectors of texts, as codes. They are written once the vector gets rows without codes.
    coded: Vec<(usize, Coded)>,
    /// The vectors that have a NULL without a code, whose rows never get codes.
    with_nulls: Vec<usize>,
}

impl<'a> Output<'a> {
    /// `types` are the types of the vectors, in order.
    pub fn new(vectors: &'a mut dyn RawVectors, types: &'a [SqlType]) -> Output<'a> {
        Output {
            vectors,
            types,
            coded: Vec::new(),
            with_nulls: Vec::new(),
        }
    }

    pub fn types(&self) -> &'a [SqlType] {
        self.types
    }

    /// The entries of `rows` rows of a vector, from row `from` on.
    pub fn column<T: Plain>(
        &mut self,
        position: usize,
        from: usize,
        rows: usize,
    ) -> Result<&mut [MaybeUninit<T>]> {
        self.check(position, size_of::<T>(), from, rows)?;
        let data = self.vectors.data(position)?.cast::<MaybeUninit<T>>();
        // SAFETY: the vector has CAPACITY entries of this width, of which the check has bounded the range; the mutable borrow of
        // the output keeps other slices of it away.
        Ok(unsafe { std::slice::from_raw_parts_mut(data.as_ptr().add(from), rows) })
    }

    /// Writes strings of a VARCHAR or BLOB vector, from row `from` on. The caller ensures that those of a VARCHAR are UTF-8.
    pub fn strings<S: AsRef<[u8]>>(
        &mut self,
        position: usize,
        from: usize,
        strings: impl ExactSizeIterator<Item = S> + Clone,
    ) -> Result<()> {
        let rows = strings.len();
        self.check_strings(position, from, rows)?;
        self.write_strings(position, from, strings.take(rows))
    }

    /// Writes a string into each row of a VARCHAR or BLOB vector, from row `from` on: the one that belongs to the row's key. Returns false, and writes nothing, if
    /// the strings are too many for codes or a key is too great. The caller ensures that those of a VARCHAR are UTF-8, and that a key always means the same string.
    pub fn keyed<'t>(
        &mut self,
        position: usize,
        from: usize,
        keys: &[u64],
        text: impl Fn(u64) -> Cow<'t, [u8]>,
    ) -> Result<bool> {
        self.check_type(position, from, keys.len())?;
        let coded = self.coded(position, from);
        Ok(coded.is_some_and(|coded| coded.extend(keys, text)))
    }

    /// The codes of the first `from` rows of a vector, if all of these have codes.
    fn coded(&mut self, position: usize, from: usize) -> Option<&mut Coded> {
        let known = self.coded.iter().position(|(of, _)| *of == position);
        let nth = known.or_else(|| {
            let is_new = from == 0 && !self.with_nulls.contains(&position);
            is_new.then(|| {
                self.coded.push((position, Coded::default()));
                self.coded.len() - 1
            })
        })?;
        let (_, coded) = proven::at_mut(&mut self.coded, nth);
        (coded.rows() == from).then_some(coded)
    }

    /// Writes a string of `strings` into each row of a VARCHAR or BLOB vector, from row `from` on: the one whose number is the row's code. The caller ensures
    /// that those of a VARCHAR are UTF-8. Rows share the bytes of a string.
    pub fn shared<S: AsRef<[u8]>>(
        &mut self,
        position: usize,
        from: usize,
        strings: &[S],
        codes: &[u64],
    ) -> Result<()> {
        self.check_strings(position, from, codes.len())?;
        self.write_shared(
            position,
            from,
            strings,
            codes.iter().map(|code| *code as usize),
        )
    }

    /// Requires that the vector has enough entries from `from` on.
    fn write_shared<S: AsRef<[u8]>>(
        &mut self,
        position: usize,
        from: usize,
        strings: &[S],
        codes: impl Iterator<Item = usize>,
    ) -> Result<()> {
        let mut entries = Vec::with_capacity(strings.len());
        self.entries(position, from, strings.iter(), |entry| entries.push(entry))?;
        let column = self.vectors.data(position)?.cast::<StringEntry>();
        for (row, code) in codes.enumerate() {
            let entry = *proven::at(&entries, code);
            // SAFETY: the caller has bounded `from + row` by the vector's capacity.
            unsafe { column.add(from + row).write(entry) };
        }
        Ok(())
    }

    /// Requires that the vector has enough entries from `from` on.
    fn write_strings<S: AsRef<[u8]>>(
        &mut self,
        position: usize,
        from: usize,
        strings: impl Iterator<Item = S> + Clone,
    ) -> Result<()> {
        let mut place = self.vectors.data(position)?.cast::<StringEntry>();
        // SAFETY: the caller has bounded all rows by the vector's capacity, so each place lies in the vector or behind its end.
        unsafe {
            place = place.add(from);
            self.entries(position, from, strings, |entry| {
                place.write(entry);
                place = place.add(1);
            })
        }
    }

    /// Passes the entry of each string to `each`, and copies the long ones into the vector's heap.
    #[inline]
    fn entries<S: AsRef<[u8]>>(
        &mut self,
        position: usize,
        from: usize,
        strings: impl Iterator<Item = S> + Clone,
        mut each: impl FnMut(StringEntry),
    ) -> Result<()> {
        let lengths = strings.clone().map(|text| text.as_ref().len());
        let long_bytes: usize = lengths.filter(|length| *length > INLINE_BYTES).sum();
        let mut free = match long_bytes {
            0 => NonNull::dangling(),
            bytes => self.vectors.heap(position, from, bytes)?,
        };
        let mut left = long_bytes;
        for text in strings {
            let bytes = text.as_ref();
            each(if bytes.len() <= INLINE_BYTES {
                StringEntry::inline(bytes)
            } else {
                let place = free;
                left = (left.checked_sub(bytes.len())).expect("strings stay as long as they are");
                // SAFETY: the heap block has room for all long strings together, and as much of it is left.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len());
                    free = place.add(bytes.len());
                }
                StringEntry::long(bytes, place)
            });
        }
        Ok(())
    }

    /// Writes entries of strings that are all short.
    pub fn short_strings(
        &mut self,
        position: usize,
        from: usize,
        rows: usize,
    ) -> Result<&mut [MaybeUninit<StringEntry>]> {
        self.check_strings(position, from, rows)?;
        let data = self
            .vectors
            .data(position)?
            .cast::<MaybeUninit<StringEntry>>();
        // SAFETY: as for `column`; an entry that is made outside this file stands for itself.
        Ok(unsafe { std::slice::from_raw_parts_mut(data.as_ptr().add(from), rows) })
    }

    /// Writes one string into many rows, which share its bytes. A VARCHAR vector that gets no other string becomes constant.
    pub fn repeated(
        &mut self,
        position: usize,
        from: usize,
        rows: usize,
        text: &[u8],
    ) -> Result<()> {
        self.check_type(position, from, rows)?;
        let coded = self.coded(position, from);
        if rows == 0 || coded.is_some_and(|coded| coded.repeat(text, rows)) {
            return Ok(());
        }
        self.settle(position)?;
        self.write_shared(position, from, &[text], std::iter::repeat_n(0, rows))
    }

    /// Writes the first rows of a vector that have codes, if they are not written yet.
    fn settle(&mut self, position: usize) -> Result<()> {
        let mut coded = self.coded.iter();
        let Some(nth) = coded.position(|(of, _)| *of == position) else {
            return Ok(());
        };
        let (_, coded) = self.coded.swap_remove(nth);
        match coded.rows() {
            0 => Ok(()),
            _ => self.write_coded(position, coded),
        }
    }

    /// Writes rows that have codes.
    fn write_coded(&mut self, position: usize, mut coded: Coded) -> Result<()> {
        let (texts, codes) = coded.written();
        self.write_shared(position, 0, &texts, codes)?;
        self.write_nulls(position, 0, coded.null_rows())
    }

    /// Writes texts from the first row on, each into several rows.
    pub fn texts<'t>(
        &mut self,
        position: usize,
        runs: impl Iterator<Item = (usize, &'t str)>,
    ) -> Result<()> {
        let mut from = 0;
        for (rows, text) in runs {
            self.repeated(position, from, rows, text.as_bytes())?;
            from += rows;
        }
        Ok(())
    }

    /// Writes maps of texts from the first row on, each into several rows, which share its entries.
    pub fn maps(
        &mut self,
        position: usize,
        runs: &[(usize, &BTreeMap<String, String>)],
    ) -> Result<()> {
        let rows = runs.iter().map(|(rows, _)| rows).sum();
        self.check(position, size_of::<MapEntry>(), 0, rows)?;
        if self.types.get(position) != Some(&SqlType::TextMap) {
            return Err(mistaken(position));
        }
        let maps = || runs.iter().flat_map(|(_, map)| *map);
        let (keys, values): (Vec<&str>, Vec<&str>) = maps()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .unzip();
        let [of_keys, of_values] = self.vectors.map(position, keys.len())?;
        self.write_strings(of_keys, 0, keys.iter())?;
        self.write_strings(of_values, 0, values.iter())?;
        let entries = self.vectors.data(position)?.cast::<MapEntry>();
        let (mut row, mut offset) = (0, 0);
        for (rows, map) in runs {
            let length = map.len() as u64;
            for _ in 0..*rows {
                // SAFETY: the check has bounded the rows of all runs by the vector's capacity.
                unsafe { entries.add(row).write(MapEntry { offset, length }) };
                row += 1;
            }
            offset += length;
        }
        Ok(())
    }

    /// Sets NULL in those of the `rows` rows from `from` on that `is_null` selects.
    pub fn nulls(
        &mut self,
        position: usize,
        from: usize,
        rows: usize,
        is_null: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let known = self.coded.iter_mut().find(|(of, _)| *of == position);
        if let Some((_, coded)) = known
            && coded.rows() >= from.saturating_add(rows)
            && coded.nulls(from, rows, &is_null)
        {
            return Ok(());
        }
        let mut nulls = (0..rows).filter(|row| is_null(*row)).peekable();
        if nulls.peek().is_some() {
            self.check(position, 0, from, rows)?;
            self.write_nulls(position, from, nulls)?;
        }
        Ok(())
    }

    /// Requires that the rows, counted from `from` on, lie in the vector.
    fn write_nulls(
        &mut self,
        position: usize,
        from: usize,
        rows: impl Iterator<Item = usize>,
    ) -> Result<()> {
        for (nth, row) in rows.enumerate() {
            if nth == 0 {
                self.with_nulls.push(position);
            }
            let words = self.vectors.validity(position)?;
            let at = from + row;
            // SAFETY: the mask has a bit for each of CAPACITY rows, by which the caller has bounded these.
            unsafe {
                let word = words.add(at / 64);
                word.write(word.read() & !(1 << (at % 64)));
            }
        }
        Ok(())
    }

    pub fn finish(mut self, rows: usize) -> Result<()> {
        assert!(rows <= CAPACITY, "{rows} rows in a vector of {CAPACITY}");
        while let Some((position, mut coded)) = self.coded.pop() {
            let is_whole = coded.rows() == rows;
            let is_text = self.types.get(position) == Some(&SqlType::Text);
            if !(is_whole && is_text && self.finish_texts(position, &mut coded)?) {
                self.write_coded(position, coded)?;
            }
        }
        self.vectors.set_rows(rows)
    }

    /// Makes a VARCHAR vector constant or a dictionary; returns false if its rows must be written.
    fn finish_texts(&mut self, position: usize, coded: &mut Coded) -> Result<bool> {
        if let Some(text) = coded.only().and_then(|text| str::from_utf8(text).ok()) {
            self.vectors.constant(position, text, coded.rows())?;
            return Ok(true);
        }
        match coded.dictionary() {
            Some((texts, codes)) => self.vectors.dictionary(position, texts, codes),
            None => Ok(false),
        }
    }

    fn check_strings(&mut self, position: usize, from: usize, rows: usize) -> Result<()> {
        self.check_type(position, from, rows)?;
        self.settle(position)
    }

    fn check_type(&self, position: usize, from: usize, rows: usize) -> Result<()> {
        self.check_room(position, size_of::<StringEntry>(), from, rows)?;
        if self.types.get(position).is_some_and(|ty| ty.is_string()) {
            Ok(())
        } else {
            Err(mistaken(position))
        }
    }

    fn check(&mut self, position: usize, width: usize, from: usize, rows: usize) -> Result<()> {
        self.check_room(position, width, from, rows)?;
        self.settle(position)
    }

    fn check_room(&self, position: usize, width: usize, from: usize, rows: usize) -> Result<()> {
        let fits = self
            .types
            .get(position)
            .is_some_and(|ty| width == 0 || ty.width() == width);
        let bounded = from.checked_add(rows).is_some_and(|end| end <= CAPACITY);
        if fits && bounded {
            Ok(())
        } else {
            Err(mistaken(position))
        }
    }
}

fn mistaken(position: usize) -> Problem {
    Problem::input(format!(
        "cannot fill column {position} of the output: another type or too many rows; please report it"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::memory::MemoryVectors;

    #[test]
    fn short_strings_stand_in_their_entry() {
        let text = b"abcdefghijkl";
        for length in 0..=INLINE_BYTES {
            let bytes = &text[..length];
            let entry = StringEntry::inline(bytes);
            let held: Vec<u8> = entry.prefix.iter().chain(&entry.rest).copied().collect();
            assert_eq!((entry.length as usize, &held[..length]), (length, bytes));
            assert!(
                held[length..].iter().all(|&byte| byte == 0),
                "the rest of an entry is zero"
            );
        }
    }

    #[test]
    fn strings_of_all_lengths_come_out_as_they_went_in() {
        let strings: Vec<Vec<u8>> = (0..200)
            .map(|length| (0..length).map(|at| b'a' + (at % 26) as u8).collect())
            .collect();
        let types = [SqlType::Text];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        out.strings(0, 5, strings.iter()).unwrap();
        out.repeated(0, 300, 3, &strings[100]).unwrap();
        for (at, text) in strings.iter().enumerate() {
            assert_eq!(&memory.string(0, 5 + at), text);
        }
        assert_eq!(memory.string(0, 302), strings[100]);
    }

    #[test]
    fn a_text_that_all_rows_share_becomes_a_constant_vector() {
        let text = SqlType::Text;
        let types = [text, text, text, SqlType::Blob, text];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        let long = b"longer than an entry holds".as_slice();
        for (from, rows) in [(0, 3), (3, 4)] {
            out.repeated(0, from, rows, long).unwrap();
            out.repeated(1, from, rows, if from == 0 { b"a" } else { b"b" })
                .unwrap();
            out.repeated(2, from, rows, long).unwrap();
            out.repeated(3, from, rows, b"\xFF").unwrap();
        }
        out.nulls(4, 0, 7, |_| true).unwrap();
        out.repeated(4, 0, 7, b"").unwrap();
        out.nulls(0, 0, 7, |_| false).unwrap();
        out.nulls(2, 3, 4, |row| row == 2).unwrap();
        out.finish(7).unwrap();
        assert_eq!(memory.constants.iter().flatten().count(), 1);
        assert_eq!(
            memory.constants[0].as_deref().map(str::as_bytes),
            Some(long)
        );
        assert_eq!(
            (memory.string(1, 2), memory.string(1, 3)),
            (b"a".to_vec(), b"b".to_vec())
        );
        assert_eq!(memory.string(2, 6), long);
        assert!(memory.valid(2, 4) && !memory.valid(2, 5));
        assert_eq!(memory.string(3, 6), b"\xFF");
        assert!((0..7).all(|row| !memory.valid(4, row)));
    }

    /// Some rows of a vector: how they are written, and each row's text.
    #[derive(Debug, Clone)]
    enum Piece {
        Repeated(u64),
        Keyed,
        Shared,
        Strings,
    }

    /// A text for each key, some of them equal and some long.
    fn text_of(key: u64) -> Vec<u8> {
        let key = key % 700;
        match key % 3 {
            0 => format!("{key}").into_bytes(),
            1 => format!("the text with the number {key}").into_bytes(),
            _ => vec![b'x'; key as usize % 40],
        }
    }

    fn pieces() -> impl Strategy<Value = Vec<(Piece, Vec<(u64, bool)>)>> {
        let piece = prop_oneof![
            any::<u64>().prop_map(Piece::Repeated),
            Just(Piece::Keyed),
            Just(Piece::Keyed),
            Just(Piece::Shared),
            Just(Piece::Strings),
        ];
        let keys = prop_oneof![4 => 0..8u64, 2 => 0..900u64, 1 => 0..1100u64];
        let rows = keys.prop_flat_map(|most| {
            let null = prop::bool::weighted(if most % 2 == 0 { 0.0 } else { 0.1 });
            prop::collection::vec((0..=most, null), 0..300)
        });
        prop::collection::vec((piece, rows), 1..6)
    }

    proptest! {
        #[test]
        fn texts_come_out_as_they_went_in_whatever_becomes_of_the_vector(pieces in pieces()) {
            let types = [SqlType::Text];
            let mut memory = MemoryVectors::new(&types);
            let mut out = Output::new(&mut memory, &types);
            let mut wanted = Vec::new();
            for (piece, rows) in &pieces {
                let from = wanted.len();
                let mut texts: Vec<_> = rows.iter().map(|(key, _)| text_of(*key)).collect();
                let keys: Vec<u64> = rows.iter().map(|(key, _)| *key).collect();
                match piece {
                    Piece::Repeated(key) => {
                        texts.fill(text_of(*key));
                        out.repeated(0, from, rows.len(), &text_of(*key)).unwrap();
                    }
                    Piece::Keyed => {
                        if !out.keyed(0, from, &keys, |key| Cow::Owned(text_of(key))).unwrap() {
                            out.strings(0, from, texts.iter()).unwrap();
                        }
                    }
                    Piece::Shared => {
                        let codes: Vec<u64> = (0..rows.len() as u64).collect();
                        out.shared(0, from, &texts, &codes).unwrap();
                    }
                    Piece::Strings => out.strings(0, from, texts.iter()).unwrap(),
                }
                out.nulls(0, from, rows.len(), |row| rows[row].1).unwrap();
                let of_rows = texts.into_iter().zip(rows);
                wanted.extend(of_rows.map(|(text, (_, is_null))| (!is_null).then_some(text)));
            }
            out.finish(wanted.len()).unwrap();
            let found: Vec<_> = (0..wanted.len()).map(|row| memory.text(0, row)).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_vector_of_few_texts_becomes_a_dictionary() {
        let types = [SqlType::Text, SqlType::Text, SqlType::Blob];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        let keys: Vec<u64> = (0..400).map(|row| row % 200).collect();
        let text = |key: u64| Cow::Owned(text_of(key % 100));
        for position in 0..3 {
            assert!(out.keyed(position, 0, &keys[..100], text).unwrap());
            out.repeated(position, 100, 4, b"").unwrap();
            out.nulls(position, 90, 14, |row| row > 12).unwrap();
        }
        assert!(out.keyed(0, 104, &keys, text).unwrap());
        assert!(!out.keyed(1, 104, &[1, 1024], text).unwrap());
        out.strings(1, 104, std::iter::repeat_n("a", 400)).unwrap();
        assert!(out.keyed(2, 104, &keys, text).unwrap());
        out.finish(504).unwrap();
        let is_one: Vec<bool> = memory.dictionaries.iter().map(Option::is_some).collect();
        assert_eq!(is_one, [true, false, false]);
        for position in 0..3 {
            assert_eq!(memory.text(position, 103), None);
            assert_eq!(memory.text(position, 102).as_deref(), Some(b"".as_slice()));
            assert_eq!(memory.text(position, 31), Some(text_of(31)));
        }
        assert_eq!(memory.text(0, 104 + 301), Some(text_of(1)));
        assert_eq!(memory.text(2, 104 + 399), Some(text_of(99)));
    }

    #[test]
    fn rows_of_one_run_share_the_entries_of_their_map() {
        let map = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
            let texts = texts.iter();
            texts
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let long = "a text that is longer than an entry";
        let maps = [
            map(&[("a", long), (long, "b")]),
            map(&[]),
            map(&[("c", "")]),
        ];
        let types = [SqlType::U8, SqlType::TextMap];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        let rows = [3, 1, 2000];
        let runs: Vec<_> = rows.into_iter().zip(&maps).collect();
        out.maps(1, &runs).unwrap();
        let written = |row| -> BTreeMap<String, String> {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            let entries = memory.map(1, types.len(), row).into_iter();
            entries
                .map(|(key, value)| (text(key), text(value)))
                .collect()
        };
        for (row, wanted) in [(0, 0), (2, 0), (3, 1), (4, 2), (2003, 2)] {
            assert_eq!(written(row), maps[wanted]);
        }
        let mut out = Output::new(&mut memory, &types);
        assert!(out.maps(0, &runs).is_err());
        assert!(out.maps(1, &[(CAPACITY + 1, &maps[0])]).is_err());
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let types = [SqlType::U8, SqlType::Text];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        assert!(out.column::<u8>(0, CAPACITY - 1, 2).is_err());
        assert!(out.column::<u16>(0, 0, 1).is_err());
        assert!(out.column::<u8>(2, 0, 1).is_err());
        assert!(out.strings(0, 0, [b"x"].iter()).is_err());
        assert!(out.nulls(0, usize::MAX, 1, |_| true).is_err());
        assert!(out.repeated(0, 0, 1, b"x").is_err());
        assert!(out.repeated(1, CAPACITY, 1, b"x").is_err());
    }
}
