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

/// The most texts that are searched for one after the other.
const SEARCHED: usize = 8;

/// The first rows of a vector.
#[derive(Default)]
pub struct Coded {
    texts: Texts,
    rows: usize,
    /// The code of each row; empty while all rows have the first text.
    codes: Vec<u8>,
    /// The codes of the texts by their hashes, once these are more than [`SEARCHED`].
    table: Option<(HashTable<u8>, RandomState)>,
}

impl Coded {
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn code(&mut self, text: &[u8]) -> Option<u8> {
        let Coded { texts, table, .. } = self;
        let same = |code: &u8| Some(*code) != texts.null && texts.text(*code) == text;
        let Some((table, hasher)) = table else {
            let mut known = 0..texts.count() as u8;
            if let Some(code) = known.find(same) {
                return Some(code);
            }
            let code = texts.add(text)?;
            if texts.count() > SEARCHED {
                let hasher = RandomState::new();
                let mut of_texts = HashTable::with_capacity(2 * SEARCHED);
                for code in 0..=code {
                    let hash = |code: &u8| hasher.hash_one(texts.text(*code));
                    of_texts.insert_unique(hash(&code), code, hash);
                }
                *table = Some((of_texts, hasher));
            }
            return Some(code);
        };
        let hash = hasher.hash_one(text);
        if let Some(code) = table.find(hash, same) {
            return Some(*code);
        }
        let code = texts.add(text)?;
        table.insert_unique(hash, code, |code| hasher.hash_one(texts.text(*code)));
        Some(code)
    }

    /// The code of each row, as many as there are rows.
    fn codes(&mut self) -> &mut Vec<u8> {
        self.codes.resize(self.rows, 0);
        &mut self.codes
    }

    /// Adds rows with one text. Returns false, and adds none, if there are too many texts.
    pub fn repeat(&mut self, text: &[u8], rows: usize) -> bool {
        let Some(code) = self.code(text) else {
            return false;
        };
        if code > 0 || !self.codes.is_empty() {
            let all = self.rows + rows;
            self.codes().resize(all, code);
        }
        self.rows += rows;
        true
    }

    /// Adds a row for each key, with the text of the key. Returns false, and adds none, if there are too many texts or a key is too great.
    pub fn extend<'t>(&mut self, keys: &[u64], text: impl Fn(u64) -> Cow<'t, [u8]>) -> bool {
        const UNKNOWN: u16 = u16::MAX;
        let mut known = [UNKNOWN; KEYS];
        let mut codes = std::mem::take(self.codes());
        codes.resize(self.rows + keys.len(), 0);
        // A key that is too great takes the place of another one: the loop has one test for each row, and its codes do not count then.
        let mut bits = 0;
        let of_keys = proven::at_mut(&mut codes, self.rows..);
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
        if is_whole {
            self.rows += keys.len();
        }
        codes.truncate(self.rows);
        self.codes = codes;
        is_whole
    }

    /// Makes those of the `rows` rows from `from` on NULL that `is_null` selects. Returns false, and does nothing, if there are too many texts.
    pub fn nulls(&mut self, from: usize, rows: usize, is_null: impl Fn(usize) -> bool) -> bool {
        for row in (0..rows).filter(|row| is_null(*row)) {
            let Some(null) = self.texts.null.or_else(|| self.texts.add(b"")) else {
                return false;
            };
            self.texts.null = Some(null);
            *proven::at_mut(self.codes(), from + row) = null;
        }
        true
    }

    /// The text of all rows, if it is one.
    pub fn only(&self) -> Option<&[u8]> {
        let is_one = self.rows > 0 && self.texts.count() == 1 && self.texts.null.is_none();
        is_one.then(|| self.texts.text(0))
    }

    /// The texts and the code of each row, if the texts are so few that DuckDB uses a dictionary.
    pub fn dictionary(&mut self) -> Option<(&Texts, &[u8])> {
        let are_few = 4 * self.texts.count().max(1) <= self.rows;
        self.codes();
        are_few.then_some((&self.texts, &self.codes))
    }

    /// Each text, and its code in each row.
    pub fn written(&mut self) -> (Vec<&[u8]>, impl Iterator<Item = usize>) {
        self.codes();
        let codes = self.codes.iter().map(|code| usize::from(*code));
        (self.texts.all().collect(), codes)
    }

    /// The rows that are NULL.
    pub fn null_rows(&self) -> impl Iterator<Item = usize> {
        let null = self.texts.null;
        let rows = self.codes.iter().enumerate();
        rows.filter(move |(_, code)| Some(**code) == null)
            .map(|(row, _)| row)
    }
}
