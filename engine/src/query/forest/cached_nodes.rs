//! The nodes for one walk on one thread. They come from the cache that all threads share, or are read and verified.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::TimeEntry;
use crate::nodes::{NodeId, NodeReader, OpenNode};
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{LogKind, TimeRange};

pub(crate) struct CachedNodes {
    logs: Arc<SnapshotLogs>,
    reader: NodeReader<Arc<SnapshotLogs>>,
    keeps_summaries: bool,
}

impl CachedNodes {
    pub fn new(logs: Arc<SnapshotLogs>) -> Self {
        CachedNodes {
            reader: NodeReader::new(Arc::clone(&logs)),
            logs,
            keeps_summaries: true,
        }
    }

    /// For a walk that begins where the previous one ended. No other walk needs its summaries, so they are not kept.
    pub fn passing(logs: Arc<SnapshotLogs>) -> Self {
        CachedNodes {
            keeps_summaries: false,
            ..CachedNodes::new(logs)
        }
    }

    /// Fetches roll-ups that are opened soon. They are far apart, so no read of one reaches the next. If the first is cached, an earlier walk read the others, too.
    pub fn expect(&mut self, ids: impl Iterator<Item = NodeId>, arrivals: TimeRange) {
        let mut ids = ids.filter(|id| id.level > 0).peekable();
        if ids
            .peek()
            .is_none_or(|id| self.logs.cache().get(*id).is_some())
        {
            return;
        }
        for id in ids {
            // The read of the node reports an error.
            if let Ok(entry) = self.entry(id)
                && entry.node_bytes > 0
                && arrivals.overlaps(entry.arrivals())
            {
                let bytes = u64::from(entry.node_bytes);
                self.logs.will_read(LogKind::Chunks, entry.node, bytes);
            }
        }
    }

    /// The time entry of a node.
    pub fn entry(&mut self, id: NodeId) -> Result<TimeEntry> {
        self.reader.entry(id)
    }

    /// The node, or `None` in a gap.
    pub fn open(&mut self, id: NodeId) -> Result<Option<OpenNode>> {
        if let Some(open) = self.logs.cache().get(id) {
            self.logs.counters().node_opened();
            return Ok(Some(open));
        }
        let entry = self.entry(id)?;
        self.open_at(&entry)
    }

    /// The node of an entry that was just read.
    pub fn open_at(&mut self, entry: &TimeEntry) -> Result<Option<OpenNode>> {
        if entry.node_bytes == 0 {
            return Ok(None);
        }
        let (logs, id) = (&self.logs, NodeId::at(entry.level, entry.first_chunk));
        logs.counters().node_opened();
        if id.level == 0 && !self.keeps_summaries {
            return self.reader.open_at(entry);
        }
        if let Some(open) = logs.cache().get(id) {
            return Ok(Some(open));
        }
        let open = self.reader.open_at(entry)?;
        if let Some(open) = &open {
            logs.cache().insert(id, open.clone());
        }
        Ok(open)
    }
}

/// The error for bytes of a log that contradict the records themselves.
pub(crate) fn contradiction(logs: &SnapshotLogs, what: &str) -> Error {
    logs.corrupt(
        LogKind::Chunks,
        logs.begin(LogKind::Chunks),
        format!("the chunk index contradicts the records: {what}"),
    )
}
