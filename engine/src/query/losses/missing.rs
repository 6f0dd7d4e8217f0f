//! Chunks without a summary: the timestamp index marks them as lost or damaged.
//!
//! Roll-ups count such chunks, so the descent opens only nodes that have some below them: if nothing is missing, it reads only the roots of
//! the forest. A node or an entry that does not verify costs time but no answer, as in a scan: the nodes below it are opened one by one,
//! and at the bottom the chunk itself.

use std::sync::Arc;

use crate::error::Result;
use crate::format::FANOUT;
use crate::nodes::{NodeId, roots};
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::poll::Poll;
use crate::query::scan::chunk_cursor::ChunkCursor;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{ChunkNo, Timestamp};

/// Neighbouring chunks that are missing for the same reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct MissingRun {
    pub first: ChunkNo,
    pub chunks: u64,
    /// Their bytes do not verify. If false, they were lost with staging, or their addresses never held any.
    pub damaged: bool,
    /// Arrival of the last record before them, `MIN` if there is none.
    pub from: Timestamp,
    /// Arrival of the first record after them, `MAX` while there is none.
    pub to: Timestamp,
}

/// All missing runs of a snapshot, ascending.
///
/// # Errors
/// A chunk about which neither its entry nor its own bytes say anything, eviction meanwhile, [`crate::Error::Interrupted`].
pub(crate) fn missing_runs(logs: &Arc<SnapshotLogs>, poll: &Poll<'_>) -> Result<Vec<MissingRun>> {
    let mut search = Search {
        reader: CachedNodes::new(Arc::clone(logs)),
        cursor: ChunkCursor::new(Arc::clone(logs)),
        runs: Vec::new(),
    };
    let summarised = logs.summarised_chunks().0;
    for root in roots(logs.first_chunk().0..summarised) {
        search.descend(root, poll)?;
    }
    let mut runs = std::mem::take(&mut search.runs);
    // Goes backward, because a run that ends where another begins ends at the same time as that one.
    let mut after = (u64::MAX, Timestamp::MAX);
    for run in runs.iter_mut().rev() {
        let next = run.first.0 + run.chunks;
        run.to = if next == after.0 {
            after.1
        } else if next < summarised {
            match search.reader.entry(NodeId::summary(ChunkNo(next))) {
                Ok(entry) => entry.first_arrival,
                Err(error) if error.is_damage() => search.first_arrival(ChunkNo(next))?,
                Err(error) => return Err(error),
            }
        } else if next < logs.end_chunk().0 {
            search.first_arrival(ChunkNo(next))?
        } else {
            Timestamp::MAX
        };
        after = (run.first.0, run.to);
    }
    Ok(runs)
}

struct Search {
    reader: CachedNodes,
    cursor: ChunkCursor,
    runs: Vec<MissingRun>,
}

impl Search {
    fn descend(&mut self, id: NodeId, poll: &Poll<'_>) -> Result<()> {
        poll.check()?;
        match self.some_missing_below(id) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) if !error.is_damage() => return Err(error),
            // A chunk that verifies is not missing. For any other it is unknown, and a scan of it fails too.
            Err(_) if id.level == 0 => return self.cursor.load(ChunkNo(id.ordinal)),
            Err(_) => {}
        }
        (0..FANOUT as u32)
            .filter_map(|child| id.child(child))
            .try_for_each(|child| self.descend(child, poll))
    }

    /// Whether the node's children must be read. Notes a chunk that is missing.
    fn some_missing_below(&mut self, id: NodeId) -> Result<bool> {
        let entry = self.reader.entry(id)?;
        if id.level == 0 {
            if entry.node_bytes == 0 {
                self.add(ChunkNo(id.ordinal), entry.damaged, entry.last_arrival);
            }
            return Ok(false);
        }
        let opened = self.reader.open_at(&entry)?;
        Ok(opened.is_none_or(|open| open.node().missing_chunks() != 0))
    }

    fn first_arrival(&mut self, chunk: ChunkNo) -> Result<Timestamp> {
        self.cursor.load(chunk)?;
        let first = self.cursor.first_arrival()?;
        Ok(first.unwrap_or(Timestamp::MAX))
    }

    fn add(&mut self, chunk: ChunkNo, damaged: bool, from: Timestamp) {
        match self.runs.last_mut() {
            Some(run) if run.first.0 + run.chunks == chunk.0 && run.damaged == damaged => {
                run.chunks += 1;
            }
            _ => self.runs.push(MissingRun {
                first: chunk,
                chunks: 1,
                damaged,
                from,
                to: Timestamp::MAX,
            }),
        }
    }
}
