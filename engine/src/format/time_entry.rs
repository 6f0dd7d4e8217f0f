//! Entries of the timestamp index, and the arithmetic that finds the entry of each node.
//!
//! Entries are in post-order, so the number of published entries alone gives every root of the forest.

use super::bytes::{FormatError, array, i64_at, invalid, u32_at, u64_at};
use super::checksum::checksum;
use crate::types::{Address, ChunkNo, LogKind, TimeRange, Timestamp};

/// The number of nodes of one level in a node of the next.
pub const FANOUT: u64 = 64;
pub const TIME_ENTRY_BYTES: usize = 48;
/// 64^10 chunks of 4 KiB are more bytes than an address can name.
const LEVEL_MAX: u8 = 10;

/// The place of a node and the arrival times that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    pub level: u8,
    pub first_chunk: ChunkNo,
    pub node: Address,
    /// 0 means that there is no node.
    pub node_bytes: u32,
    /// The node is missing because the chunk's bytes do not verify. Without this mark they were lost or never existed.
    pub damaged: bool,
    pub first_arrival: Timestamp,
    pub last_arrival: Timestamp,
}

impl TimeEntry {
    /// The arrival of the first and the last record below the node.
    pub fn arrivals(&self) -> TimeRange {
        TimeRange {
            first: self.first_arrival,
            last: self.last_arrival,
        }
    }

    /// `address` is the entry's own place in the timestamp index.
    pub fn encode(&self, uuid: &[u8; 16], address: Address) -> [u8; TIME_ENTRY_BYTES] {
        let fields = [
            u64::from(self.level),
            self.first_chunk.0,
            self.node.0,
            u64::from(self.node_bytes) | u64::from(self.damaged) << 32,
            self.first_arrival.0 as u64,
            self.last_arrival.0 as u64,
        ];
        let mut bytes = [0; TIME_ENTRY_BYTES];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        // The level moves behind the checksum, which takes the first four bytes.
        bytes.copy_within(0..4, 4);
        let (head, covered) = bytes.split_at_mut(4);
        head.copy_from_slice(&checksum(uuid, LogKind::Times, address, covered).to_le_bytes());
        bytes
    }

    pub fn decode(uuid: &[u8; 16], address: Address, bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "a time entry";
        let Some(entry) = bytes.first_chunk::<TIME_ENTRY_BYTES>() else {
            return Err(FormatError::Short {
                what,
                have: bytes.len(),
                need: TIME_ENTRY_BYTES,
            });
        };
        let (stored, covered) = entry.split_at(4);
        let stored = u32_at(stored, 0);
        let computed = checksum(uuid, LogKind::Times, address, covered);
        if stored != computed {
            return Err(FormatError::Checksum {
                what,
                stored,
                computed,
            });
        }
        let [level] = array::<1>(entry, 4);
        if level > LEVEL_MAX {
            return invalid("the level of a time entry", level.into());
        }
        Ok(Self {
            level,
            first_chunk: ChunkNo(u64_at(entry, 8)),
            node: Address(u64_at(entry, 16)),
            node_bytes: u32_at(entry, 24),
            damaged: u32_at(entry, 28) != 0,
            first_arrival: Timestamp(i64_at(entry, 32)),
            last_arrival: Timestamp(i64_at(entry, 40)),
        })
    }
}

/// Returns B(m): the number of entries before the one of chunk `m`.
pub fn entries_before(chunk: u64) -> u64 {
    let mut nodes = chunk;
    let mut entries = 0u64;
    while nodes > 0 {
        entries = entries.saturating_add(nodes);
        nodes /= FANOUT;
    }
    entries
}

/// The ordinal of the entry of node `ordinal` of `level`.
pub fn entry_of(level: u8, ordinal: u64) -> u64 {
    let span = FANOUT.saturating_pow(u32::from(level));
    let last_chunk = ordinal.saturating_add(1).saturating_mul(span) - 1;
    entries_before(last_chunk).saturating_add(u64::from(level))
}

/// Returns the greatest number of chunks whose entries, and completed roll-ups, are all among the first `entries`.
pub fn complete_chunks(entries: u64) -> u64 {
    // Entries are chunks plus roll-ups; there is less than one roll-up for 63 chunks.
    let (mut low, mut high) = (entries - entries / (FANOUT - 1), entries);
    low = low.saturating_sub(1).min(high);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if entries_before(middle) <= entries {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn positions_are_those_of_a_forest_built_one_chunk_at_a_time() {
        let mut entries = 0u64;
        for chunk in 0..300_000u64 {
            assert_eq!(complete_chunks(entries), chunk);
            assert_eq!(entries_before(chunk), entries);
            let (mut level, mut ordinal) = (0u8, chunk);
            loop {
                assert_eq!(entry_of(level, ordinal), entries);
                entries += 1;
                if ordinal % FANOUT != FANOUT - 1 {
                    break;
                }
                assert_eq!(complete_chunks(entries), chunk);
                (level, ordinal) = (level + 1, ordinal / FANOUT);
            }
        }
    }

    proptest! {
        #[test]
        fn an_entry_is_read_back_and_only_in_its_place(level in 0u8..10, chunk: u64, node: u64, node_bytes: u32, damaged: bool, first: i64, last: i64) {
            let entry = TimeEntry {
                level,
                first_chunk: ChunkNo(chunk),
                node: Address(node),
                node_bytes,
                damaged,
                first_arrival: Timestamp(first),
                last_arrival: Timestamp(last),
            };
            let bytes = entry.encode(&[3; 16], Address(96));
            prop_assert_eq!(TimeEntry::decode(&[3; 16], Address(96), &bytes), Ok(entry));
            prop_assert!(TimeEntry::decode(&[3; 16], Address(48), &bytes).is_err());
            for at in 0..TIME_ENTRY_BYTES {
                let mut flipped = bytes;
                flipped[at] ^= 4;
                prop_assert!(TimeEntry::decode(&[3; 16], Address(96), &flipped).is_err());
            }
        }

        #[test]
        fn huge_numbers_do_not_overflow(entries: u64, chunk: u64, level in 0u8..=LEVEL_MAX) {
            prop_assert!(entries_before(complete_chunks(entries)) <= entries);
            entry_of(level, chunk);
        }
    }
}
