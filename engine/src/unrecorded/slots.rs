//! The bytes of `unrecorded`: two slots, written alternately, each with a sequence number and a checksum, so that one torn by a kill
//! leaves the other.
//!
//! Whatever they say, decoding them ends in entries or in none.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::error::Result;
use crate::format::checksum_for;
use crate::log::storage::{OsStorage, Storage};

pub const SLOT_BYTES: usize = 64 << 10;
/// Of both slots.
pub const FILE_BYTES: usize = 2 * SLOT_BYTES;
/// Checksum, length, sequence.
const HEADER_BYTES: usize = 16;
/// What the checksum covers in place of a log's number: none has this one.
const SLOT_LOG: u8 = 4;

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
        let boot_id = OsStorage.boot_id()?;
        Ok(Slots { uuid, boot_id })
    }

    /// Where the slot with this sequence stands in the file.
    pub fn offset(sequence: u64) -> u64 {
        sequence % 2 * SLOT_BYTES as u64
    }

    /// A slot. Reasons are left out where they do not fit.
    pub fn encode(&self, sequence: u64, entries: &[Entry]) -> io::Result<Vec<u8>> {
        let mut json = self.json(entries)?;
        if json.len() > SLOT_BYTES - HEADER_BYTES {
            let bare: Vec<Entry> = entries.iter().map(Entry::without_detail).collect();
            json = self.json(&bare)?;
        }
        if json.len() > SLOT_BYTES - HEADER_BYTES {
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

    /// The sequence of the newest slot that verifies, 0 if none does, and its entries, if they are of this boot.
    pub fn decode(&self, file: &[u8]) -> (u64, Vec<Entry>) {
        let slots = file.chunks(SLOT_BYTES).zip(0..2);
        let newest = slots
            .filter_map(|(slot, number)| self.verified(slot, number))
            .max_by_key(|(sequence, _)| *sequence);
        let Some((sequence, json)) = newest else {
            return (0, Vec::new());
        };
        match serde_json::from_slice::<Content<'_, Vec<Entry>>>(json) {
            Ok(content) if content.boot_id == self.boot_id.as_str() => (sequence, content.entries),
            _ => (sequence, Vec::new()),
        }
    }

    /// How many slots do not verify that once did: every slot is written before the one of the next sequence but one.
    pub fn damaged(&self, file: &[u8]) -> usize {
        let slots = file.chunks(SLOT_BYTES).zip(0..2);
        let verified = slots.filter_map(|(slot, number)| self.verified(slot, number));
        let (count, newest) = verified.fold((0, 0), |(count, newest), (sequence, _)| {
            (count + 1, sequence.max(newest))
        });
        if newest == 1 { 0 } else { 2 - count }
    }

    fn json(&self, entries: &[Entry]) -> io::Result<Vec<u8>> {
        let content = Content {
            boot_id: self.boot_id.as_str().into(),
            entries,
        };
        Ok(serde_json::to_vec(&content)?)
    }

    /// The sequence and the content of a slot that verifies.
    fn verified<'a>(&self, slot: &'a [u8], number: u64) -> Option<(u64, &'a [u8])> {
        let (header, rest) = slot.split_first_chunk::<HEADER_BYTES>()?;
        let (sum, header) = header.split_first_chunk::<4>()?;
        let (length, sequence) = header.split_first_chunk::<4>()?;
        let sequence = u64::from_le_bytes(*sequence.first_chunk()?);
        let json = rest.get(..u32::from_le_bytes(*length) as usize)?;
        let verifies = checksum_for(&self.uuid, SLOT_LOG, sequence, json)
            == u32::from_le_bytes(*sum)
            && sequence % 2 == number;
        verifies.then_some((sequence, json))
    }
}
