//! The bytes of `unrecorded`: two slots, written alternately, each with a sequence number and a checksum, so that one torn by a kill
//! leaves the other.
//!
//! Each ends in a mark: the sequence of the other when that was last written whole. Of a slot that does not verify, it tells
//! whether a kill tore it, so that nobody was told of what it would have said, or whether it said something that is lost.
//! Whatever the bytes say, decoding them ends in entries or in none.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::kept::{Condition, Kept};
use crate::error::Result;
use crate::format::checksum_for;
use crate::log::storage::{OsStorage, Storage};

pub const SLOT_BYTES: usize = 64 << 10;
/// Of both slots.
pub const FILE_BYTES: usize = 2 * SLOT_BYTES;
/// Checksum, length, sequence.
const HEADER_BYTES: usize = 16;
/// Sequence, checksum.
pub const MARK_BYTES: usize = 12;
/// So much JSON has room in a slot.
const CONTENT_BYTES_MAX: usize = SLOT_BYTES - HEADER_BYTES - MARK_BYTES;
/// What the checksum covers in place of a log's number: none has this one.
const SLOT_LOG: u8 = 4;
const MARK_LOG: u8 = 5;

/// The directory and the boot of the machine that slots are of.
pub struct Slots {
    pub uuid: [u8; 16],
    pub boot_id: String,
}

#[derive(Serialize, Deserialize)]
struct Content<'a, L> {
    boot_id: Cow<'a, str>,
    entries: L,
}

impl Slots {
    /// Of a directory, on this machine as it runs now.
    ///
    /// # Errors
    /// The system does not tell which boot this is.
    pub fn of_this_boot(uuid: [u8; 16]) -> Result<Slots> {
        let boot_id = OsStorage::default().boot_id()?;
        Ok(Slots { uuid, boot_id })
    }

    /// Where the slot with this sequence stands in the file.
    pub fn offset(sequence: u64) -> u64 {
        sequence % 2 * SLOT_BYTES as u64
    }

    /// A slot. Reasons are left out where they do not fit.
    pub fn encode(&self, sequence: u64, entries: &[Entry]) -> io::Result<Vec<u8>> {
        let mut json = self.json(entries)?;
        if json.len() > CONTENT_BYTES_MAX {
            let bare: Vec<Entry> = entries.iter().map(Entry::without_detail).collect();
            json = self.json(&bare)?;
        }
        if json.len() > CONTENT_BYTES_MAX {
            let what = format!("{} causes of loss at a time are too many", entries.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        Ok(self.sealed(sequence, &json))
    }

    /// A slot of any content.
    pub fn sealed(&self, sequence: u64, json: &[u8]) -> Vec<u8> {
        let mut slot = Vec::with_capacity(HEADER_BYTES + json.len());
        let sum = checksum_for(&self.uuid, SLOT_LOG, sequence, json);
        slot.extend_from_slice(&sum.to_le_bytes());
        slot.extend_from_slice(&(json.len() as u32).to_le_bytes());
        slot.extend_from_slice(&sequence.to_le_bytes());
        slot.extend_from_slice(json);
        slot
    }

    /// The mark to be written once the slot of this sequence is whole, and where in the file: in the slot that it did not replace.
    pub fn mark(&self, sequence: u64) -> ([u8; MARK_BYTES], u64) {
        let mut mark = [0; MARK_BYTES];
        let sum = checksum_for(&self.uuid, MARK_LOG, sequence, &[]);
        let bytes = sequence.to_le_bytes().into_iter().chain(sum.to_le_bytes());
        mark.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        let slot = Self::offset(sequence.wrapping_add(1));
        (mark, slot + (SLOT_BYTES - MARK_BYTES) as u64)
    }

    /// What the newest slot that verifies says. Its entries count if they are of this boot.
    pub fn decode(&self, file: &[u8]) -> Kept {
        let verified = [0, 1].map(|number| self.verified(slot_of(file, number), number));
        let newest = verified
            .iter()
            .flatten()
            .max_by_key(|(sequence, _)| *sequence);
        let Some(&(sequence, json)) = newest else {
            return Kept::default();
        };
        let entries = match serde_json::from_slice::<Content<'_, Vec<Entry>>>(json) {
            Ok(content) if content.boot_id == self.boot_id.as_str() => content.entries,
            _ => Vec::new(),
        };
        let is_other_sound = verified.iter().flatten().count() == 2;
        Kept {
            sequence,
            entries,
            condition: self.condition(file, sequence, is_other_sound),
        }
    }

    /// Whether the newest slot that verifies is the newest that was written.
    fn condition(&self, file: &[u8], sequence: u64, is_other_sound: bool) -> Condition {
        let slot = slot_of(file, sequence % 2);
        let mark = slot.get(SLOT_BYTES - MARK_BYTES..).unwrap_or_default();
        let other = slot_of(file, sequence.wrapping_add(1) % 2);
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let is_newest = match [sequence.checked_sub(1), sequence.checked_add(1)]
            .map(|of| of.is_some_and(|of| self.mark(of).0 == mark))
        {
            [true, _] => true,
            [_, true] => false,
            // A writer that knows of no marks wrote them, or the mark itself is damaged.
            _ => is_other_sound || sequence == 1 && is_blank(mark) && is_blank(other),
        };
        match is_newest {
            true => Condition::Sound,
            false => Condition::Half,
        }
    }

    fn json(&self, entries: &[Entry]) -> io::Result<Vec<u8>> {
        let content = Content {
            boot_id: self.boot_id.as_str().into(),
            entries,
        };
        Ok(serde_json::to_vec(&content)?)
    }

    /// The sequence and the content of a slot that verifies. The first that is written is 1.
    fn verified<'a>(&self, slot: &'a [u8], number: u64) -> Option<(u64, &'a [u8])> {
        let (header, rest) = slot.split_first_chunk::<HEADER_BYTES>()?;
        let (sum, header) = header.split_first_chunk::<4>()?;
        let (length, sequence) = header.split_first_chunk::<4>()?;
        let sequence = u64::from_le_bytes(*sequence.first_chunk()?);
        let json = rest.get(..u32::from_le_bytes(*length) as usize)?;
        let verifies = checksum_for(&self.uuid, SLOT_LOG, sequence, json)
            == u32::from_le_bytes(*sum)
            && sequence % 2 == number
            && sequence > 0;
        verifies.then_some((sequence, json))
    }
}

fn slot_of(file: &[u8], number: u64) -> &[u8] {
    file.chunks(SLOT_BYTES)
        .nth(number as usize)
        .unwrap_or_default()
}
