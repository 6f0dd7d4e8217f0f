//! Where the index logs begin when the oldest segments of the record log go.

use crate::error::{Error, Result};
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, complete_chunks};
use crate::log::Opening;
use crate::nodes::{NodeId, NodeReader};
use crate::types::{Address, ChunkNo, LogKind, PerLog, Timestamp};

/// How many chunks before one with a damaged entry are asked.
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
    /// What the entry of `chunk` says. A damaged entry must not stop retention, or the disk fills up: the entry of the nearest chunk before it
    /// that is sound serves, and without one the chunk index keeps its begin, and age alone gives up nothing.
    pub fn find(
        chunk: ChunkNo,
        begins: PerLog<Address>,
        mut read: impl FnMut(NodeId) -> Result<TimeEntry>,
    ) -> Boundary {
        let own = NodeId::summary(chunk);
        let (node, arrival, damage) = match read(own) {
            Ok(found) => (found.node, found.first_arrival, None),
            Err(damage) => {
                let before = (chunk.0.saturating_sub(NEIGHBOURS_MAX)..chunk.0)
                    .rev()
                    .map(|chunk| NodeId::summary(ChunkNo(chunk)))
                    .take_while(|id| id.entry() >= begins.times)
                    .find_map(|id| read(id).ok());
                let (node, arrival) = before.map_or((begins.chunks, Timestamp::MAX), |before| {
                    (before.node, before.last_arrival)
                });
                (node, arrival, Some(damage))
            }
        };
        Boundary {
            entry: own.entry(),
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
    let mut nodes = NodeReader::new(&opening);
    let boundary = Boundary::find(ChunkNo(chunk), begins, |id| nodes.entry(id));
    boundary.warn_of_damage();
    opening.evict(boundary.begins(next))?;
    Ok(true)
}
