//! Finds and verifies nodes of the chunk index: time entry by arithmetic, node by the entry's address, cached.
//!
//! The one place where pointers of the index logs are followed. A node must say the level and first chunk that its place says.

use std::sync::Arc;

use super::node_cache::NodeBytes;
use super::node_id::NodeId;
use super::read_ahead::Window;
use crate::error::{Error, Result};
use crate::format::{FormatError, NODE_BYTES_MAX, Node, TIME_ENTRY_BYTES, TimeEntry};
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{Address, LogKind};

/// A verified node in memory.
pub(crate) struct OpenNode {
    bytes: NodeBytes,
}

impl OpenNode {
    pub fn node(&self) -> Node<'_> {
        Node::assume_decoded(&self.bytes)
    }
}

/// Reads nodes for one walk on one thread.
pub(crate) struct NodeReader {
    logs: Arc<SnapshotLogs>,
    entries: Window,
    nodes: Window,
}

impl NodeReader {
    pub fn new(logs: Arc<SnapshotLogs>) -> Self {
        NodeReader {
            logs,
            entries: Window::new(LogKind::Times),
            nodes: Window::new(LogKind::Chunks),
        }
    }

    /// The time entry of a node.
    pub fn entry(&mut self, id: NodeId) -> Result<TimeEntry> {
        let address = id.entry();
        let logs = &self.logs;
        let mut bytes = self.entries.read(logs, address, TIME_ENTRY_BYTES)?;
        if TimeEntry::decode(logs.uuid(), address, bytes).is_err() {
            logs.relist();
            self.entries.forget();
            bytes = self.entries.read(logs, address, TIME_ENTRY_BYTES)?;
        }
        let entry = TimeEntry::decode(logs.uuid(), address, bytes)
            .map_err(|error| logs.corrupt(LogKind::Times, address, error))?;
        if (entry.level, entry.first_chunk.0) != (id.level, id.first_chunk()) {
            let what = format!(
                "the entry names level {} and chunk {}, its place is that of level {} and chunk {}",
                entry.level,
                entry.first_chunk,
                id.level,
                id.first_chunk()
            );
            return Err(logs.corrupt(LogKind::Times, address, what));
        }
        Ok(entry)
    }

    /// The node, or `None` in a gap.
    pub fn open(&mut self, id: NodeId) -> Result<Option<OpenNode>> {
        if let Some(bytes) = self.logs.cache().get(id) {
            self.logs.counters().node_opened();
            return Ok(Some(OpenNode { bytes }));
        }
        let entry = self.entry(id)?;
        self.open_at(id, &entry)
    }

    /// The node that an entry, which was just read, names.
    pub fn open_at(&mut self, id: NodeId, entry: &TimeEntry) -> Result<Option<OpenNode>> {
        if entry.node_bytes == 0 {
            return Ok(None);
        }
        self.logs.counters().node_opened();
        if let Some(bytes) = self.logs.cache().get(id) {
            return Ok(Some(OpenNode { bytes }));
        }
        let bytes = self.verified(id, entry)?;
        self.logs.cache().insert(id, Arc::clone(&bytes));
        Ok(Some(OpenNode { bytes }))
    }

    fn verified(&mut self, id: NodeId, entry: &TimeEntry) -> Result<NodeBytes> {
        let (logs, address) = (&self.logs, entry.node);
        let end = address.0.checked_add(u64::from(entry.node_bytes));
        let below_tail = end.is_some_and(|end| Address(end) <= logs.tail(LogKind::Chunks));
        if !below_tail || entry.node_bytes > NODE_BYTES_MAX {
            let what = format!(
                "the entry names a node of {} bytes at {address}, past the chunk index's end {}",
                entry.node_bytes,
                logs.tail(LogKind::Chunks)
            );
            return Err(logs.corrupt(LogKind::Times, id.entry(), what));
        }
        let mut found = self.attempt(entry)?;
        if found.is_err() {
            self.logs.relist();
            self.nodes.forget();
            found = self.attempt(entry)?;
        }
        let logs = &self.logs;
        let bytes = found.map_err(|error| logs.corrupt(LogKind::Chunks, address, error))?;
        let node = Node::assume_decoded(&bytes);
        if (node.level(), node.first_chunk().0) != (id.level, id.first_chunk()) {
            let what = format!(
                "the node is of level {} and chunk {}, its entry says level {} and chunk {}",
                node.level(),
                node.first_chunk(),
                id.level,
                id.first_chunk()
            );
            return Err(logs.corrupt(LogKind::Chunks, address, what));
        }
        Ok(bytes)
    }

    fn attempt(&mut self, entry: &TimeEntry) -> Result<Result<NodeBytes, FormatError>> {
        let length = entry.node_bytes as usize;
        let bytes = self.nodes.read(&self.logs, entry.node, length)?;
        let node = Node::decode(self.logs.uuid(), entry.node, bytes);
        Ok(node.map(|node| bytes.get(..node.node_bytes()).unwrap_or_default().into()))
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
