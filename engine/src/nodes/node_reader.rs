//! Reads and verifies time entries, which arithmetic finds, and nodes, which their entries name.
//!
//! Pointers of the index logs are followed only here. A node and its entry must match their place.

use std::sync::Arc;

use super::node_id::NodeId;
use super::node_logs::NodeLogs;
use super::read_ahead::Window;
use crate::error::{Error, Result};
use crate::format::{FormatError, NODE_BYTES_MAX, Node, TIME_ENTRY_BYTES, TimeEntry};
use crate::memory::{self, NoMemory};
use crate::proven::at;
use crate::types::{Address, LogKind};

/// A verified node in memory.
#[derive(Clone)]
pub(crate) struct OpenNode {
    bytes: Arc<Vec<u8>>,
}

impl OpenNode {
    /// Copies verified bytes.
    pub fn of_bytes(bytes: &[u8]) -> Result<OpenNode, NoMemory> {
        Ok(OpenNode {
            bytes: Arc::new(memory::copied(bytes)?),
        })
    }

    pub fn node(&self) -> Node<'_> {
        Node::assume_decoded(&self.bytes)
    }

    /// The bytes of the chunk index.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads nodes on one thread, fastest in the order of their addresses.
pub(crate) struct NodeReader<L> {
    logs: L,
    entries: Window,
    nodes: Window,
}

impl<L: NodeLogs> NodeReader<L> {
    pub fn new(logs: L) -> Self {
        NodeReader {
            logs,
            entries: Window::new(LogKind::Times),
            nodes: Window::new(LogKind::Chunks),
        }
    }

    pub fn entry(&mut self, id: NodeId) -> Result<TimeEntry> {
        let (logs, address) = (&self.logs, id.entry());
        let decode = |uuid: &[u8; 16], bytes: &[u8]| TimeEntry::decode(uuid, address, bytes);
        let entry = verified(logs, &mut self.entries, address, TIME_ENTRY_BYTES, decode)?;
        if (entry.level, entry.first_chunk) != (id.level, id.first_chunk()) {
            let what = format!(
                "the entry names level {} and chunk {}, but it stands in the place of level {} and chunk {}",
                entry.level,
                entry.first_chunk,
                id.level,
                id.first_chunk()
            );
            return Err(corrupt(logs, LogKind::Times, address, what));
        }
        Ok(entry)
    }

    /// The node, or `None` in a gap.
    pub fn open(&mut self, id: NodeId) -> Result<Option<OpenNode>> {
        let entry = self.entry(id)?;
        self.open_at(&entry)
    }

    /// The node of an entry that was just read.
    pub fn open_at(&mut self, entry: &TimeEntry) -> Result<Option<OpenNode>> {
        if entry.node_bytes == 0 {
            return Ok(None);
        }
        let (logs, address) = (&self.logs, entry.node);
        let end = logs.end(LogKind::Chunks);
        let node_end = address.0.checked_add(entry.node_bytes.into());
        let is_stored = node_end.is_some_and(|node_end| node_end <= end.0);
        if !is_stored || entry.node_bytes > NODE_BYTES_MAX {
            let what = format!(
                "the entry names a node of {} bytes at {address}, past the end of the chunk index at {end} or longer than any node",
                entry.node_bytes
            );
            let id = NodeId::at(entry.level, entry.first_chunk);
            return Err(corrupt(logs, LogKind::Times, id.entry(), what));
        }
        let decode = |uuid: &[u8; 16], bytes: &[u8]| {
            let node = Node::decode(uuid, address, bytes)?;
            Ok(OpenNode::of_bytes(at(bytes, ..node.node_bytes()))?)
        };
        let length = entry.node_bytes as usize;
        let open = verified(logs, &mut self.nodes, address, length, decode)?;
        let node = open.node();
        let says = (
            node.level(),
            node.first_chunk(),
            node.first_arrival(),
            node.last_arrival(),
            node.node_bytes(),
        );
        let entry_says = (
            entry.level,
            entry.first_chunk,
            entry.first_arrival,
            entry.last_arrival,
            length,
        );
        if says != entry_says {
            let what = format!(
                "the node says {says:?} (level, first chunk, arrivals, bytes), its entry {entry_says:?}"
            );
            return Err(corrupt(logs, LogKind::Chunks, address, what));
        }
        Ok(Some(open))
    }
}

/// Reads until the bytes decode, or a second read does not help.
fn verified<T>(
    logs: &impl NodeLogs,
    window: &mut Window,
    address: Address,
    length: usize,
    decode: impl Fn(&[u8; 16], &[u8]) -> Result<T, FormatError>,
) -> Result<T> {
    let mut found = decode(logs.uuid(), window.read(logs, address, length)?);
    if found.is_err() && logs.refresh() {
        window.forget();
        found = decode(logs.uuid(), window.read(logs, address, length)?);
    }
    found.map_err(|error| error.of(logs.path_of(window.log(), address), address))
}

fn corrupt(logs: &impl NodeLogs, log: LogKind, address: Address, what: String) -> Error {
    Error::Corrupt {
        path: logs.path_of(log, address),
        address,
        what,
    }
}
