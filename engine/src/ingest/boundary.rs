//! The new begins of the index logs when the oldest segments of the record log are removed.

use crate::error::{Error, Result};
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, complete_chunks};
use crate::log::Opening;
use crate::nodes::{NodeId, NodeReader};
use crate::types::{Address, ChunkNo, LogKind, PerLog, Timestamp};

/// If the entry of a chunk is damaged, this many chunks on either side are tried. Their entries take more than a page of the file.
const NEIGHBOURS_MAX: u64 = 128;

/// The begins of the index logs when the records begin at a given chunk.
pub(super) struct Boundary {
    /// The place of the chunk's entry in the timestamp index.
    pub entry: Address,
    /// At or below the chunk's node in the chunk index.
    pub node: Address,
    /// Every record below the chunk arrived at or before it.
    pub arrival: Timestamp,
    /// The damage of the chunk's own entry, if `node` and `arrival` come from its neighbours.
    damage: Option<Error>,
}

impl Boundary {
    /// Reads the entry of `chunk`; entries are complete below `end`. A damaged entry must not stop retention, or the disk fills up. So the
    /// nearest sound entry before it gives the node; without one, the chunk index keeps its begin. The nearest sound entry after it gives
    /// the arrival; without one, age alone removes nothing.
    pub fn find(
        chunk: ChunkNo,
        end: ChunkNo,
        begins: PerLog<Address>,
        mut read: impl FnMut(NodeId) -> Result<TimeEntry>,
    ) -> Boundary {
        let own = NodeId::summary(chunk);
        let (node, arrival, damage) = match read(own) {
            Ok(found) => (found.node, found.first_arrival, None),
            Err(damage) => {
                let summary = |chunk| NodeId::summary(ChunkNo(chunk));
                let before = (chunk.0.saturating_sub(NEIGHBOURS_MAX)..chunk.0)
                    .rev()
                    .map(summary)
                    .take_while(|id| id.entry() >= begins.times)
                    .find_map(|id| read(id).ok());
                let after = (chunk.0 + 1..end.0.min(chunk.0 + NEIGHBOURS_MAX))
                    .map(summary)
                    .find_map(|id| read(id).ok());
                let node = before.map_or(begins.chunks, |before| before.node);
                let arrival = after.map_or(Timestamp::MAX, |after| after.first_arrival);
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
            tracing::warn!("{damage}; eviction uses the nearest sound entries");
        }
    }
}

/// Removes the oldest segment of records of a directory that has no writer. Returns false if it is the last segment, if the index logs do
/// not reach past it, or if it reaches past `kept_from`.
pub(super) fn evict_oldest(opening: Opening, kept_from: Option<Address>) -> Result<bool> {
    let segment_bytes = opening.meta().segment_bytes.records;
    let begins = PerLog::new(|log| opening.begin(log));
    let next = begins.records.align_down(segment_bytes) + segment_bytes;
    let chunk = next.chunk(opening.meta().chunk_bytes).0;
    let entries = opening.end(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
    let end = complete_chunks(entries);
    let is_kept = kept_from.is_some_and(|kept| kept < next);
    if is_kept || next >= opening.end(LogKind::Records) || chunk >= end {
        return Ok(false);
    }
    let mut nodes = NodeReader::new(&opening);
    let boundary = Boundary::find(ChunkNo(chunk), ChunkNo(end), begins, |id| nodes.entry(id));
    boundary.warn_of_damage();
    opening.evict(boundary.begins(next))?;
    Ok(true)
}
