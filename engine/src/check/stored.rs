//! Nodes as they stand in the chunk index, found through their entries in the timestamp index.

use super::expected::Expected;
use super::report::Report;
use crate::error::{Error, Result};
use crate::format::{FANOUT, NODE_BYTES_MAX, Node, TIME_ENTRY_BYTES, TimeEntry, entry_of};
use crate::log::LogReader;
use crate::types::{Address, ChunkNo, LogKind};

/// Reads nodes in the order in which they were written.
pub(super) struct Stored<'a> {
    reader: &'a LogReader,
    /// The chunk index's published end.
    chunks: Address,
    /// Where the next node must stand; `None` where that is not known.
    next: Option<Address>,
}

/// What the index logs hold in a node's place.
pub(super) enum StoredNode {
    /// A node that verifies.
    Node { address: Address, bytes: Vec<u8> },
    /// No node, as its records were lost.
    Gap,
    /// Something that was found damaged, and reported.
    Damaged,
}

impl<'a> Stored<'a> {
    pub(super) fn new(reader: &'a LogReader, chunks: Address) -> Stored<'a> {
        Stored {
            reader,
            chunks,
            next: None,
        }
    }

    /// Reads and verifies a node and its entry.
    pub(super) fn node(
        &mut self,
        level: u8,
        ordinal: u64,
        report: &mut Report,
    ) -> Result<StoredNode> {
        let address = Address(entry_of(level, ordinal).saturating_mul(TIME_ENTRY_BYTES as u64));
        let entry = match self.entry(address)? {
            Ok(entry) => entry,
            Err(what) => {
                report.damage(self.reader, LogKind::Times, address, what);
                self.next = None;
                return Ok(StoredNode::Damaged);
            }
        };
        let first_chunk = ChunkNo(ordinal.saturating_mul(FANOUT.saturating_pow(level.into())));
        if (entry.level, entry.first_chunk) != (level, first_chunk) {
            let what = format!(
                "the entry of level {level}, chunk {first_chunk} is of level {}, chunk {}",
                entry.level, entry.first_chunk
            );
            report.damage(self.reader, LogKind::Times, address, what);
        }
        let end = entry.node.0.saturating_add(entry.node_bytes.into());
        let expected = self.next.replace(Address(end));
        if let Some(expected) = expected.filter(|expected| *expected != entry.node) {
            let what = format!(
                "the entry points to address {} of the chunk index; the node before it ends at {expected}",
                entry.node
            );
            report.damage(self.reader, LogKind::Times, address, what);
        }
        if entry.node_bytes == 0 {
            if entry.damaged {
                let what = "its chunk did not verify when a writer began, and has no summary";
                report.damage(self.reader, LogKind::Times, address, what.to_owned());
                return Ok(StoredNode::Damaged);
            }
            return Ok(StoredNode::Gap);
        }
        report.nodes += 1;
        match self.read(&entry)? {
            Ok(bytes) => Ok(StoredNode::Node {
                address: entry.node,
                bytes,
            }),
            Err(what) => {
                report.damage(self.reader, LogKind::Chunks, entry.node, what);
                Ok(StoredNode::Damaged)
            }
        }
    }

    /// Nodes are passed over: where the next one begins is not known.
    pub(super) fn pass(&mut self) {
        self.next = None;
    }

    /// A node that `node` gave, decoded.
    pub(super) fn decoded<'n>(&self, node: &'n StoredNode) -> Option<Node<'n>> {
        match node {
            StoredNode::Node { bytes, .. } => Some(Node::assume_decoded(bytes)),
            StoredNode::Gap | StoredNode::Damaged => None,
        }
    }

    /// Reports where a node is not as it must be.
    pub(super) fn compare(&self, node: &StoredNode, expected: &Expected<'_>, report: &mut Report) {
        let (address, what) = match node {
            StoredNode::Damaged => return,
            StoredNode::Gap if expected.is_gap() => return,
            StoredNode::Gap => {
                let what = "a roll-up is missing whose chunks hold records".to_owned();
                (self.next.unwrap_or(Address::ZERO), Some(what))
            }
            StoredNode::Node { address, bytes } => {
                let uuid = &self.reader.meta().uuid;
                (*address, expected.difference(uuid, *address, bytes))
            }
        };
        if let Some(what) = what {
            report.damage(self.reader, LogKind::Chunks, address, what);
        }
    }

    /// The outer error ends the check, the inner one is damage.
    fn entry(&self, address: Address) -> Result<Result<TimeEntry, String>> {
        let mut bytes = [0; TIME_ENTRY_BYTES];
        match self.reader.read(LogKind::Times, address, &mut bytes) {
            Ok(_) => {}
            Err(error @ Error::Evicted { .. }) => return Err(error),
            Err(error) => return Ok(Err(error.what())),
        }
        let decoded = TimeEntry::decode(&self.reader.meta().uuid, address, &bytes);
        Ok(decoded.map_err(|error| error.to_string()))
    }

    fn read(&self, entry: &TimeEntry) -> Result<Result<Vec<u8>, String>> {
        let rest = self.chunks.0.checked_sub(entry.node.0);
        let is_within = rest.is_some_and(|rest| u64::from(entry.node_bytes) <= rest);
        if !is_within || entry.node_bytes > NODE_BYTES_MAX {
            return Ok(Err(format!(
                "a node of {} bytes at {} lies past the published end {}, or is longer than any",
                entry.node_bytes, entry.node, self.chunks
            )));
        }
        let mut bytes = vec![0; entry.node_bytes as usize];
        match self.reader.read(LogKind::Chunks, entry.node, &mut bytes) {
            Ok(_) => {}
            Err(error @ Error::Evicted { .. }) => return Err(error),
            Err(error) => return Ok(Err(error.what())),
        }
        let node = match Node::decode(&self.reader.meta().uuid, entry.node, &bytes) {
            Ok(node) => node,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let told = (
            node.level(),
            node.first_chunk(),
            node.first_arrival(),
            node.last_arrival(),
        );
        let by_entry = (
            entry.level,
            entry.first_chunk,
            entry.first_arrival,
            entry.last_arrival,
        );
        if told != by_entry || node.node_bytes() != bytes.len() {
            let what =
                format!("the node says {told:?}, its entry in the timestamp index {by_entry:?}");
            return Ok(Err(what));
        }
        Ok(Ok(bytes))
    }
}
