//! The bytes of a unit, as far as they were read, and which of its sections were read and verified.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};

use super::bits::SLACK_BYTES;
use super::groups::{Section, section_checksum};
use crate::format::bytes::FormatError;
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::Address;

pub(super) const UNREAD: &str = "a part of a unit is read before it is decoded";

/// The bytes of a unit that were read, and what their checksums depend on.
#[derive(Debug)]
pub struct Bytes {
    pub uuid: [u8; 16],
    pub first: Address,
    bytes: Vec<u8>,
    /// Which bytes of the unit they are. Where two overlap they agree: what stands in a segment does not change.
    stretches: Vec<Stretch>,
    /// Those whose bytes were read.
    read: Sections,
    /// Those that were verified since their bytes were read.
    verified: RefCell<Sections>,
    is_damaged: Cell<bool>,
}

/// Bytes of a unit that lie side by side.
#[derive(Clone, Debug)]
struct Stretch {
    in_unit: Range<usize>,
    /// Where the first of them stands among those that were read.
    start: usize,
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
    /// All bytes of the unit at `first`, or none of them yet.
    pub fn of(uuid: &[u8; 16], first: Address, bytes: Vec<u8>) -> Bytes {
        Bytes {
            uuid: *uuid,
            first,
            stretches: vec![Stretch {
                in_unit: 0..bytes.len(),
                start: 0,
            }],
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

    /// Those in a range of the unit, and behind them as many of [`SLACK_BYTES`] as the unit has.
    ///
    /// # Panics
    /// They were not read.
    pub fn range(&self, range: Range<usize>) -> &[u8] {
        let has = |stretch: &&Stretch| {
            stretch.in_unit.start <= range.start && range.end <= stretch.in_unit.end
        };
        let stretch = self.stretches.iter().rev().find(has);
        let Stretch { in_unit, start } = stretch.expect(UNREAD);
        let end = (range.end + SLACK_BYTES).min(in_unit.end);
        at(
            &self.bytes,
            start + range.start - in_unit.start..start + end - in_unit.start,
        )
    }

    /// Holds none any more. Returns the buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.stretches.clear();
        self.read = Sections::default();
        self.verified.take();
        std::mem::take(&mut self.bytes)
    }

    /// Has `read` read ranges of the unit, which is so long: it is given where each begins. A larger buffer is taken from `spare`, in whose place the smaller
    /// one stays.
    ///
    /// # Errors
    /// Those of `read`, and what `refused` makes of memory that is refused.
    pub fn read<E>(
        &mut self,
        ranges: impl Iterator<Item = Range<usize>> + Clone,
        unit_bytes: usize,
        spare: &mut Vec<u8>,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        refused: impl FnOnce(NoMemory) -> E,
    ) -> Result<(), E> {
        let ranges = ranges.map(|range| range.start..(range.end + SLACK_BYTES).min(unit_bytes));
        let held = self.bytes.len();
        let all = held + ranges.clone().map(|range| range.len()).sum::<usize>();
        if self.bytes.capacity() < all {
            let mut bytes = std::mem::take(spare);
            // A much larger one would take the room of others.
            if bytes.capacity() < all || bytes.capacity() / 2 > all {
                bytes = match memory::zeroed(all) {
                    Ok(bytes) => bytes,
                    Err(error) => return Err(refused(error)),
                };
            }
            bytes.resize(all, 0);
            at_mut(&mut bytes, ..held).copy_from_slice(&self.bytes);
            *spare = std::mem::replace(&mut self.bytes, bytes);
        }
        self.bytes.resize(all, 0);
        let mut start = held;
        for range in ranges {
            let end = start + range.len();
            read(range.start, at_mut(&mut self.bytes, start..end))?;
            self.stretches.push(Stretch {
                in_unit: range,
                start,
            });
            start = end;
        }
        Ok(())
    }

    pub fn is_read(&self, section: &Section) -> bool {
        self.read.has(section)
    }

    /// The bytes from the start of one section to the end of another were read: all in between are verified again.
    pub fn note_read(&mut self, first: &Section, last: &Section) {
        let ordinals = first.ordinal..=last.ordinal;
        self.read.set(ordinals.clone(), true);
        self.verified.get_mut().set(ordinals, false);
    }

    /// Whether a section did not verify.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.get()
    }

    /// The bytes of a section, verified, and a few behind them that are not: numbers are unpacked with a look a little further.
    ///
    /// # Errors
    /// Its checksum is another.
    ///
    /// # Panics
    /// They were not read.
    pub fn section(&self, section: &Section) -> Result<&[u8], FormatError> {
        let bytes = self.range(section.start..section.start + section.bytes);
        let mut verified = self.verified.borrow_mut();
        if verified.has(section) {
            return Ok(bytes);
        }
        let own = at(bytes, ..section.bytes);
        let computed = section_checksum(&self.uuid, self.first, section.ordinal, own);
        if computed != section.checksum {
            self.is_damaged.set(true);
            return Err(FormatError::Checksum {
                what: "a section of a unit",
                stored: section.checksum,
                computed,
            });
        }
        verified.set(section.ordinal..=section.ordinal, true);
        Ok(bytes)
    }
}
