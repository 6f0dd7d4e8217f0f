//! The bytes of a unit, as far as they were read, and which of its sections were read and verified.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};

use super::head::{Section, section_checksum};
use crate::format::bytes::FormatError;
use crate::proven::{at, at_mut};
use crate::types::Address;

/// The bytes of a unit that were read, and what their checksums depend on.
#[derive(Debug)]
pub struct Bytes {
    pub uuid: [u8; 16],
    pub first: Address,
    /// Where in the unit the first of the bytes stands.
    start: usize,
    bytes: Vec<u8>,
    /// Those whose bytes were read.
    read: Sections,
    /// Those that were verified since their bytes were read.
    verified: RefCell<Sections>,
    is_damaged: Cell<bool>,
}

/// Some sections of a unit: a bit for each, by its place.
#[derive(Debug, Default)]
struct Sections(Vec<u64>);

impl Sections {
    fn has(&self, section: &Section) -> bool {
        let (word, bit) = (section.ordinal as usize / 64, section.ordinal % 64);
        self.0.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn set(&mut self, ordinals: RangeInclusive<u64>, is_one: bool) {
        for ordinal in ordinals {
            let (word, bit) = (ordinal as usize / 64, 1 << (ordinal % 64));
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            let word = at_mut(&mut self.0, word);
            *word = *word & !bit | if is_one { bit } else { 0 };
        }
    }
}

impl Bytes {
    /// Of the unit at `first`, of which these are read: all of them, or none.
    pub fn of(uuid: &[u8; 16], first: Address, bytes: Vec<u8>) -> Bytes {
        Bytes {
            uuid: *uuid,
            first,
            start: 0,
            bytes,
            read: Sections::default(),
            verified: RefCell::default(),
            is_damaged: Cell::new(false),
        }
    }

    /// What they take in memory.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Those from a place in the unit on.
    ///
    /// # Panics
    /// They were not read.
    pub fn behind(&self, start: usize) -> &[u8] {
        at(&self.bytes, start - self.start..)
    }

    /// Holds none any more. Returns the buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.start = 0;
        self.read = Sections::default();
        self.verified.take();
        std::mem::take(&mut self.bytes)
    }

    /// Room for the bytes of a range, beside those that are held. A larger buffer is taken from `spare`, in whose place the smaller one stays.
    pub fn room(&mut self, range: Range<usize>, spare: &mut Vec<u8>) -> &mut [u8] {
        let held = self.start..self.start + self.bytes.len();
        let all = match held.is_empty() {
            true => range.clone(),
            false => held.start.min(range.start)..held.end.max(range.end),
        };
        if all != held {
            let mut bytes = std::mem::take(spare);
            if bytes.capacity() < all.len() {
                // Pages that are not written stay untouched.
                bytes = vec![0; all.len()];
            } else {
                bytes.resize(all.len(), 0);
            }
            let own = held.start.saturating_sub(all.start);
            at_mut(&mut bytes, own..own + held.len()).copy_from_slice(&self.bytes);
            *spare = std::mem::replace(&mut self.bytes, bytes);
            self.start = all.start;
        }
        at_mut(
            &mut self.bytes,
            range.start - all.start..range.end - all.start,
        )
    }

    pub fn is_read(&self, section: &Section) -> bool {
        self.read.has(section)
    }

    /// The bytes from the start of one section to the end of another were read, or only some of them: all in between are verified again.
    pub fn note_read(&mut self, first: &Section, last: &Section, is_all: bool) {
        let ordinals = first.ordinal..=last.ordinal;
        self.read.set(ordinals.clone(), is_all);
        self.verified.get_mut().set(ordinals, false);
    }

    /// All bytes were read.
    pub fn forget_verified(&mut self) {
        self.verified.take();
    }

    /// Whether a section did not verify.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.get()
    }

    /// The bytes of a section, verified.
    ///
    /// # Panics
    /// They were not read.
    pub fn section(&self, section: &Section) -> Result<&[u8], FormatError> {
        let start = section.start - self.start;
        let bytes = at(&self.bytes, start..start + section.bytes);
        let mut verified = self.verified.borrow_mut();
        if verified.has(section) {
            return Ok(bytes);
        }
        let computed = section_checksum(&self.uuid, self.first, section.ordinal, bytes);
        if computed != section.checksum {
            self.is_damaged.set(true);
            return Err(FormatError::Checksum {
                what: "a part of a unit",
                stored: section.checksum,
                computed,
            });
        }
        verified.set(section.ordinal..=section.ordinal, true);
        Ok(bytes)
    }
}
