//! The bytes of a unit that were read, and its sections that were read and verified.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};

use super::bits::SLACK_BYTES;
use super::groups::{Section, section_checksum};
use crate::format::bytes::FormatError;
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::Address;

pub(super) const UNREAD: &str = "a part of a unit is read before it is decoded";

/// The bytes of a unit that were read, and the context of their checksums.
#[derive(Debug)]
pub struct Bytes {
    pub uuid: [u8; 16],
    pub first: Address,
    bytes: Vec<u8>,
    /// Ranges of the unit. Overlapping ranges agree, because the bytes of a segment do not change.
    stretches: Vec<Stretch>,
    read: Sections,
    /// The sections that were verified since they were read.
    verified: RefCell<Sections>,
    is_damaged: Cell<bool>,
}

#[derive(Clone, Debug)]
struct Stretch {
    in_unit: Range<usize>,
    /// Offset of its first byte in the read bytes.
    start: usize,
}

/// A set of sections of a unit, a bit for each place.
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
    /// Holds all bytes of the unit at `first`, or none yet.
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

    /// Memory in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the bytes of a range of the unit, followed by up to [`SLACK_BYTES`] if the unit has them.
    ///
    /// # Panics
    /// Panics if they were not read.
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

    /// Drops all bytes and returns the buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.stretches.clear();
        self.read = Sections::default();
        self.verified.take();
        std::mem::take(&mut self.bytes)
    }

    /// Calls `read` for ranges of the unit, which has `unit_bytes` bytes, with the offset of each. If a larger buffer is needed, it swaps with `spare`.
    ///
    /// # Errors
    /// Returns errors of `read`, and the error that `refused` makes of refused memory.
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
            // A much larger buffer would take the room of others.
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

    /// Notes that all bytes from one section to another were read, so they are verified again.
    pub fn note_read(&mut self, first: &Section, last: &Section) {
        let ordinals = first.ordinal..=last.ordinal;
        self.read.set(ordinals.clone(), true);
        self.verified.get_mut().set(ordinals, false);
    }

    /// Reports whether a section failed to verify.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.get()
    }

    /// Returns the verified bytes of a section and a few unverified ones behind them, because unpacking reads a little past the end.
    ///
    /// # Errors
    /// Fails if the checksum differs.
    ///
    /// # Panics
    /// Panics if they were not read.
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
