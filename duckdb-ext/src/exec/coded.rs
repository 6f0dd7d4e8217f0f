//! The texts of one vector while they are few. Each is kept once, and a row has its code, so that DuckDB may get the vector as a dictionary: it hashes and
//! compares the texts of a dictionary once a vector, not once a row.

use std::borrow::Cow;

use ahash::RandomState;
use hashbrown::HashTable;
use loom_engine::proven;

/// The keys of rows whose texts are kept in codes lie below.
const KEYS: usize = 1 << 10;

/// Different texts of one vector, at most 256, as Arrow lays them out. One of them may be NULL.
#[derive(Default)]
pub struct Texts {
    pub bytes: Vec<u8>,
    /// The end of each text in `bytes`.
    pub ends: Vec<u32>,
    /// The code of NULL, which is empty in `bytes`.
    pub null: Option<u8>,
}

impl Texts {
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a text; none of NULL.
    pub fn text(&self, code: u8) -> &[u8] {
        let code = usize::from(code);
        let start = match code.checked_sub(1) {
            Some(before) => *proven::at(&self.ends, before),
            None => 0,
        };
        let end = *proven::at(&self.ends, code);
        proven::at(&self.bytes, start as usize..end as usize)
    }

    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(start, end)| proven::at(&self.bytes, *start as usize..*end as usize))
    }

    /// Adds a text; returns `None` if there are too many.
    fn add(&mut self, text: &[u8]) -> Option<u8> {
        let code = u8::try_from(self.count()).ok()?;
        let end = u32::try_from(self.bytes.len() + text.len()).ok()?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        Some(code)
    }
}

/// The first rows of a vector.
pub struct Coded {
    pub texts: Texts,
    /// The text of each row.
    pub codes: Vec<u8>,
    /// The codes of the texts, by their hashes.
    table: HashTable<u8>,
    hasher: RandomState,
}

impl Coded {
    /// `capacity` is the number of rows of a vector.
    pub fn new(capacity: usize) -> Coded {
        Coded {
            texts: Texts::default(),
            codes: Vec::with_capacity(capacity),
            table: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    fn code(&mut self, text: &[u8]) -> Option<u8> {
        let Coded { texts, table, hasher, .. } = self;
        let hash = hasher.hash_one(text);
        let same = |code: &u8| Some(*code) != texts.null && texts.text(*code) == text;
        if let Some(code) = table.find(hash, same) {
            return Some(*code);
        }
        let code = texts.add(text)?;
        table.insert_unique(hash, code, |code| hasher.hash_one(texts.text(*code)));
        Some(code)
    }

    /// Adds rows with one text. Returns false, and adds none, if there are too many texts.
    pub fn repeat(&mut self, text: &[u8], rows: usize) -> bool {
        let last = self.codes.last().copied();
        let last = last.filter(|last| Some(*last) != self.texts.null && self.texts.text(*last) == text);
        let Some(code) = last.or_else(|| self.code(text)) else {
            return false;
        };
        self.codes.resize(self.codes.len() + rows, code);
        true
    }

    /// Adds a row for each key, with the text of the key. Returns false, and adds none, if there are too many texts or a key is too great.
    pub fn extend<'t>(&mut self, keys: &[u64], text: impl Fn(u64) -> Cow<'t, [u8]>) -> bool {
        const UNKNOWN: u16 = u16::MAX;
        let mut known = [UNKNOWN; KEYS];
        let before = self.codes.len();
        self.codes.resize(before + keys.len(), 0);
        let mut rows = std::mem::take(&mut self.codes);
        // A key that is too great takes the place of another one: the loop has one test for each row, and its codes do not count then.
        let mut bits = 0;
        let of_keys = proven::at_mut(&mut rows, before..);
        let is_known = of_keys.iter_mut().zip(keys).all(|(row, key)| {
            bits |= key;
            let known = proven::at_mut(&mut known, *key as usize % KEYS);
            if *known == UNKNOWN {
                match self.code(&text(*key)) {
                    Some(code) => *known = u16::from(code),
                    None => return false,
                }
            }
            *row = *known as u8;
            true
        });
        let is_whole = is_known && bits < KEYS as u64;
        if !is_whole {
            rows.truncate(before);
        }
        self.codes = rows;
        is_whole
    }

    /// Makes those of the `rows` rows from `from` on NULL that `is_null` selects. Returns false, and does nothing, if there are too many texts.
    pub fn nulls(&mut self, from: usize, rows: usize, is_null: impl Fn(usize) -> bool) -> bool {
        let of_rows = proven::at_mut(&mut self.codes, from..from + rows);
        for (row, code) in of_rows.iter_mut().enumerate() {
            if !is_null(row) {
                continue;
            }
            let Some(null) = self.texts.null.or_else(|| self.texts.add(b"")) else {
                return false;
            };
            self.texts.null = Some(null);
            *code = null;
        }
        true
    }

    /// The text of all rows, if it is one.
    pub fn only(&self) -> Option<&[u8]> {
        let is_one = self.texts.count() == 1 && self.texts.null.is_none();
        is_one.then(|| self.texts.text(0))
    }

    /// Whether a dictionary of the texts is so small that DuckDB uses it.
    pub fn are_few(&self) -> bool {
        4 * self.texts.count() <= self.codes.len()
    }

    /// The rows that are NULL.
    pub fn null_rows(&self) -> impl Iterator<Item = usize> {
        let null = self.texts.null.map(u16::from);
        let rows = self.codes.iter().enumerate();
        rows.filter(move |(_, code)| Some(u16::from(**code)) == null)
            .map(|(row, _)| row)
    }
}
