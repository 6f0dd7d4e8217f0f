//! The node that the records require, to compare with the node in the chunk index.

use std::collections::BTreeSet;

use crate::format::{FANOUT, Node, NodeSummary, encode_node};
use crate::ingest::covers;
use crate::schema::Catalog;
use crate::types::{Address, IndexId, SourceId};

pub(super) struct Expected<'a> {
    node: &'a NodeSummary,
    catalog: &'a Catalog,
    chunk_bytes: u32,
}

impl<'a> Expected<'a> {
    pub(super) fn new(node: &'a NodeSummary, catalog: &'a Catalog, chunk_bytes: u32) -> Self {
        Expected {
            node,
            catalog,
            chunk_bytes,
        }
    }

    /// Whether the log must have a gap in place of the node.
    pub(super) fn is_gap(&self) -> bool {
        self.node.level > 0 && self.node.sources.is_empty()
    }

    /// The difference of the node at `address`; `None` if it is as required.
    pub(super) fn difference(
        &self,
        uuid: &[u8; 16],
        address: Address,
        bytes: &[u8],
    ) -> Option<String> {
        let mut expected = Vec::new();
        let from = self.node.first_chunk.address(self.chunk_bytes);
        let span = FANOUT.pow(self.node.level.into()) * u64::from(self.chunk_bytes);
        let covers = |source: SourceId, index: IndexId| {
            covers(self.catalog, source, index, from, from + span)
        };
        encode_node(uuid, address, self.node, covers, &mut expected);
        if expected == bytes {
            return None;
        }
        let natives = self.natives();
        match (
            Node::decode(uuid, address, &expected),
            Node::decode(uuid, address, bytes),
        ) {
            (Ok(expected), Ok(found)) => describe(&expected, &found, &natives),
            (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        }
    }

    /// The indexes that a closure computed, which only their writer could check.
    fn natives(&self) -> BTreeSet<IndexId> {
        let indexes = self
            .catalog
            .sources()
            .flat_map(|source| source.indexes.iter());
        indexes
            .filter(|index| index.is_native())
            .map(|index| index.id)
            .collect()
    }
}

/// The first difference between two nodes, without the indexes of closures. Nodes are compared as text, in which NaN equals NaN.
fn describe(expected: &Node<'_>, found: &Node<'_>, natives: &BTreeSet<IndexId>) -> Option<String> {
    let header = |node: &Node<'_>| {
        (
            node.level(),
            node.first_chunk(),
            node.first_arrival(),
            node.last_arrival(),
            node.records(),
            node.missing_chunks(),
        )
    };
    if header(expected) != header(found) {
        let (expected, found) = (header(expected), header(found));
        return Some(format!(
            "it says {found:?}, but its records give {expected:?}"
        ));
    }
    let sources = |node: &Node<'_>| -> Vec<(SourceId, String)> {
        let sources = node.sources();
        sources
            .map(|stats| {
                let children: Vec<_> = stats.children().collect();
                let chain = (stats.previous_chunk, stats.first, stats.last);
                let arrivals = (stats.first_arrival, stats.last_arrival);
                let times = (stats.first_ts, stats.last_ts, stats.own_time);
                let counts = (stats.records, stats.bytes);
                let text = format!("{counts:?} {arrivals:?} {times:?} {chain:?} {children:?}");
                (stats.source, text)
            })
            .collect()
    };
    if let Some((source, _)) = first_difference(sources(expected), sources(found)) {
        return Some(format!(
            "its statistics of source {source} differ from its records"
        ));
    }
    let indexes = |node: &Node<'_>| -> Vec<((SourceId, IndexId), String)> {
        let blocks = node
            .indexes()
            .filter(|(_, block)| !natives.contains(&block.index));
        blocks
            .map(|(source, block)| {
                let bins: Vec<_> = block.bins().collect();
                let tops: Vec<_> = block.tops().collect();
                let children: Vec<_> = block.children().collect();
                let totals = (block.count, block.sum, block.range, block.child_mask);
                let text = format!("{totals:?} {tops:?} {bins:?} {children:?}");
                ((source, block.index), text)
            })
            .collect()
    };
    let ((source, index), _) = first_difference(indexes(expected), indexes(found))?;
    Some(format!(
        "its statistics of index {} of source {source} differ from its records",
        index.0
    ))
}

fn first_difference<T: PartialEq>(expected: Vec<T>, found: Vec<T>) -> Option<T> {
    let longest = expected.len().max(found.len());
    let at = (0..longest).find(|&at| expected.get(at) != found.get(at))?;
    let list = match found.len() > expected.len() {
        true => found,
        false => expected,
    };
    list.into_iter().nth(at)
}
