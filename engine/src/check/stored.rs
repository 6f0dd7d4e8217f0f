//! Reads nodes from the chunk index, through their entries in the timestamp index.

use std::path::PathBuf;

use super::expected::Expected;
use super::report::Report;
use crate::error::{Error, Result};
use crate::log::{LogReader, Tails};
use crate::nodes::{NodeId, NodeLogs, NodeReader, OpenNode};
use crate::types::{Address, LogKind};

/// Reads nodes in the order in which they were written.
pub(super) struct Stored<'a> {
    logs: PublishedLogs<'a>,
    nodes: NodeReader<PublishedLogs<'a>>,
    /// The address of the next node; `None` if it is unknown.
    next: Option<Address>,
}

/// The entry of a node in the index logs.
pub(super) enum StoredNode {
    /// A node that verifies.
    Node { address: Address, node: OpenNode },
    /// There is no node, because its records were lost. It would be at `address`.
    Gap { address: Address },
    /// The entry is damaged, and reported.
    Damaged,
}

impl<'a> Stored<'a> {
    pub(super) fn new(reader: &'a LogReader, tails: Tails) -> Stored<'a> {
        let logs = PublishedLogs { reader, tails };
        Stored {
            nodes: NodeReader::new(logs),
            logs,
            next: None,
        }
    }

    /// Reads and verifies a node and its entry.
    pub(super) fn node(&mut self, id: NodeId, report: &mut Report) -> Result<StoredNode> {
        let address = id.entry();
        let entry = match self.nodes.entry(id) {
            Ok(entry) => entry,
            Err(error) => {
                self.next = None;
                return self.damaged(LogKind::Times, address, error, report);
            }
        };
        let end = entry.node.0.saturating_add(entry.node_bytes.into());
        let expected = self.next.replace(Address(end));
        if let Some(expected) = expected.filter(|expected| *expected != entry.node) {
            let what = format!(
                "the entry points to address {} of the chunk index; the node before it ends at {expected}",
                entry.node
            );
            report.damage(self.logs.reader, LogKind::Times, address, what);
        }
        if entry.node_bytes == 0 {
            if entry.damaged {
                let what = "its chunk was damaged when a writer started, and has no summary";
                report.damage(self.logs.reader, LogKind::Times, address, what.to_owned());
                return Ok(StoredNode::Damaged);
            }
            return Ok(StoredNode::Gap {
                address: entry.node,
            });
        }
        report.nodes += 1;
        match self.nodes.open_at(&entry) {
            Ok(Some(node)) => Ok(StoredNode::Node {
                address: entry.node,
                node,
            }),
            Ok(None) => Ok(StoredNode::Gap {
                address: entry.node,
            }),
            Err(error) => self.damaged(LogKind::Chunks, entry.node, error, report),
        }
    }

    /// Reports damage; an eviction ends the check.
    fn damaged(
        &self,
        log: LogKind,
        address: Address,
        error: Error,
        report: &mut Report,
    ) -> Result<StoredNode> {
        if matches!(error, Error::Evicted { .. }) {
            return Err(error);
        }
        report.damage(self.logs.reader, log, address, error.what());
        Ok(StoredNode::Damaged)
    }

    /// Skips nodes, so the address of the next one is unknown.
    pub(super) fn pass(&mut self) {
        self.next = None;
    }

    /// Reports how a node differs from the expected one.
    pub(super) fn compare(&self, node: &StoredNode, expected: &Expected<'_>, report: &mut Report) {
        let (address, what) = match node {
            StoredNode::Damaged => return,
            StoredNode::Gap { .. } if expected.is_gap() => return,
            StoredNode::Gap { address } => {
                let what = "a roll-up is missing, but its chunks hold records".to_owned();
                (*address, Some(what))
            }
            StoredNode::Node { address, node } => {
                let uuid = self.logs.uuid();
                (*address, expected.difference(uuid, *address, node.bytes()))
            }
        };
        if let Some(what) = what {
            report.damage(self.logs.reader, LogKind::Chunks, address, what);
        }
    }
}

/// The index logs up to their published ends.
#[derive(Copy, Clone)]
struct PublishedLogs<'a> {
    reader: &'a LogReader,
    tails: Tails,
}

impl NodeLogs for PublishedLogs<'_> {
    fn uuid(&self) -> &[u8; 16] {
        &self.reader.meta().uuid
    }

    fn end(&self, log: LogKind) -> Address {
        self.tails.tail[log]
    }

    fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<()> {
        self.reader.read(log, address, bytes).map(drop)
    }

    fn path_of(&self, log: LogKind, address: Address) -> PathBuf {
        self.reader.path_of(log, address)
    }

    fn refresh(&self) -> bool {
        self.reader.relist();
        true
    }
}
