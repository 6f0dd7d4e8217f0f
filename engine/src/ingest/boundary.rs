//! Where the index logs begin when the oldest segments of the record log go.

use super::recovery::read_entry;
use crate::error::{Error, Result};
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, complete_chunks, entries_before};
use crate::log::Opening;
use crate::types::{Address, LogKind, PerLog, Timestamp};

/// How many entries before a damaged one are looked at.
const NEIGHBOURS_MAX: u64 = 64;

/// Where the index logs begin when the records begin at some chunk.
pub(super) struct Boundary {
    /// The place of the chunk's entry in the timestamp index.
    pub entry: Address,
    /// At or below the chunk's node in the chunk index.
    pub node: Address,
    /// Every record below the chunk arrived at or before it.
    pub arrival: Timestamp,
    /// Why the chunk's own entry does not say so.
    damage: Option<Error>,
}

impl Boundary {
    /// What the entry of `chunk` says. A damaged entry must not stop retention, or the disk fills up: the nearest sound one before it serves, and
    /// without one the chunk index keeps its begin, and age alone gives up nothing.
    pub fn find(
        chunk: u64,
        begins: PerLog<Address>,
        read: impl Fn(u64) -> Result<TimeEntry>,
    ) -> Boundary {
        let ordinal = entries_before(chunk);
        let entry = entry_address(ordinal);
        let (node, arrival, damage) = match read(ordinal) {
            Ok(found) => (found.node, found.first_arrival, None),
            Err(damage) => {
                let first = begins.times.0.div_ceil(TIME_ENTRY_BYTES as u64);
                let before = (first.max(ordinal.saturating_sub(NEIGHBOURS_MAX))..ordinal)
                    .rev()
                    .find_map(|ordinal| read(ordinal).ok());
                let (node, arrival) = before.map_or((begins.chunks, Timestamp::MAX), |before| {
                    (before.node, before.last_arrival)
                });
                (node, arrival, Some(damage))
            }
        };
        Boundary {
            entry,
            node,
            arrival,
            damage,
        }
    }

    /// The begins of the logs when the records begin at `records`.
    pub fn begins(&self, records: Address) -> PerLog<Address> {
        PerLog {
            records,
            chunks: self.node,
            times: self.entry,
        }
    }

    pub fn warn_of_damage(&self) {
        if let Some(damage) = &self.damage {
            tracing::warn!("{damage}; the oldest segment is evicted by the entries before it");
        }
    }
}

/// The place of an entry in the timestamp index.
pub(super) fn entry_address(ordinal: u64) -> Address {
    Address(ordinal.saturating_mul(TIME_ENTRY_BYTES as u64))
}

/// Gives up the oldest segment of records of a directory that has no writer. False where only the one that the log ends in is left, or
/// where the index logs do not reach past the oldest.
pub(super) fn evict_oldest(opening: Opening) -> Result<bool> {
    let segment_bytes = opening.meta().segment_bytes.records;
    let begins = PerLog::new(|log| opening.begin(log));
    let next = begins.records.align_down(segment_bytes) + segment_bytes;
    let chunk = next.chunk(opening.meta().chunk_bytes).0;
    let entries = opening.end(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
    if next >= opening.end(LogKind::Records) || chunk >= complete_chunks(entries) {
        return Ok(false);
    }
    let boundary = Boundary::find(chunk, begins, |ordinal| read_entry(&opening, ordinal));
    boundary.warn_of_damage();
    opening.evict(boundary.begins(next))?;
    Ok(true)
}
