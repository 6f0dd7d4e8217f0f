//! An entry of the timestamp index.
//!
//! Input: flags, then the entry's bytes; with room for them, an address's worth more says at which chunk arithmetic is tried.

use loom_engine::format::{
    TIME_ENTRY_BYTES, TimeEntry, checksum, complete_chunks, entries_before, entry_of,
};
use loom_engine::{Address, LogKind};

use crate::{SOUND, UNREPAIRED, UUID, flagged, label};

/// Where the entry stands.
const AT: Address = Address(9 * TIME_ENTRY_BYTES as u64);

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let mut bytes = given.to_vec();
    if flags & UNREPAIRED == 0 {
        repair(&UUID, AT, &mut bytes);
    }
    match TimeEntry::decode(&UUID, AT, &bytes) {
        Ok(entry) => {
            let again = entry.encode(&UUID, AT);
            assert_eq!(TimeEntry::decode(&UUID, AT, &again), Ok(entry));
            let chunk = entry.first_chunk.0;
            assert!(entries_before(complete_chunks(chunk)) <= chunk);
            std::hint::black_box(entry_of(entry.level, chunk));
            SOUND.to_owned()
        }
        Err(error) => label(&error),
    }
}

/// Makes the checksum of an entry right, if it is whole.
pub fn repair(uuid: &[u8; 16], at: Address, bytes: &mut [u8]) {
    let Some(covered) = bytes.get(4..TIME_ENTRY_BYTES) else {
        return;
    };
    let sum = checksum(uuid, LogKind::Times, at, covered).to_le_bytes();
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = sum;
    }
}
