//! Chunks that have no summary: what the timestamp index tells of records that were lost or damaged.
//!
//! Roll-ups count such chunks, so the descent opens only nodes that have some below them: where nothing is missing it looks at the
//! roots of the forest alone.

use std::sync::Arc;

use super::cursor::ChunkCursor;
use super::forest::{NodeId, roots};
use super::interrupt::Poll;
use super::node_reader::NodeReader;
use super::snapshot_logs::SnapshotLogs;
use crate::error::Result;
use crate::format::FANOUT;
use crate::types::{ChunkNo, Timestamp};

/// Neighbouring chunks that are missing for the same reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct MissingRun {
    pub first: ChunkNo,
    pub chunks: u64,
    /// Their bytes do not verify; else they were lost with staging, or their addresses never held any.
    pub damaged: bool,
    /// Arrival of the last record before them, `MIN` where there is none.
    pub from: Timestamp,
    /// Arrival of the first record after them, `MAX` while there is none.
    pub to: Timestamp,
}

/// All of a snapshot, ascending.
///
/// # Errors
/// Damage in the index logs, eviction meanwhile, [`crate::Error::Interrupted`].
pub(crate) fn missing_runs(logs: &Arc<SnapshotLogs>, poll: &Poll<'_>) -> Result<Vec<MissingRun>> {
    let mut search = Search {
        reader: NodeReader::new(Arc::clone(logs)),
        runs: Vec::new(),
    };
    let summarised = logs.summarised_chunks().0;
    for root in roots(logs.first_chunk().0..summarised) {
        search.descend(root, poll)?;
    }
    let mut runs = search.runs;
    let mut cursor = ChunkCursor::new(Arc::clone(logs));
    // From the last one on: a run may end where another begins, and then they end at the same time.
    let mut after = (u64::MAX, Timestamp::MAX);
    for run in runs.iter_mut().rev() {
        let next = run.first.0 + run.chunks;
        run.to = if next == after.0 {
            after.1
        } else if next < summarised {
            search
                .reader
                .entry(NodeId::summary(ChunkNo(next)))?
                .first_arrival
        } else if next < logs.end_chunk().0 {
            cursor.load(ChunkNo(next))?;
            cursor.first_arrival()?.unwrap_or(Timestamp::MAX)
        } else {
            Timestamp::MAX
        };
        after = (run.first.0, run.to);
    }
    Ok(runs)
}

struct Search {
    reader: NodeReader,
    runs: Vec<MissingRun>,
}

impl Search {
    fn descend(&mut self, id: NodeId, poll: &Poll<'_>) -> Result<()> {
        poll.check()?;
        let entry = self.reader.entry(id)?;
        if id.level == 0 {
            if entry.node_bytes == 0 {
                self.add(ChunkNo(id.ordinal), entry.damaged, entry.last_arrival);
            }
            return Ok(());
        }
        if let Some(open) = self.reader.open_at(id, &entry)?
            && open.node().missing_chunks() == 0
        {
            return Ok(());
        }
        (0..FANOUT as u32)
            .filter_map(|child| id.child(child))
            .try_for_each(|child| self.descend(child, poll))
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
