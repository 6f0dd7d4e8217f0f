//! The roll-ups that the summaries require, built again in the writer's order.

use crate::format::{FANOUT, NodeSummary};
use crate::ingest::Merger;
use crate::nodes::NodeId;
use crate::proven::at_mut;
use crate::types::ChunkNo;

/// The contribution of a chunk to the roll-ups above it.
pub(super) enum Child<'a> {
    /// The summary, computed from its records.
    Certain(&'a NodeSummary),
    /// The stored summary, which may be incomplete.
    StandIn(&'a NodeSummary),
    /// Nothing, because the chunk was lost.
    None,
    /// The contribution is unknown.
    Unknown,
}

/// The open roll-ups of all levels.
pub(super) struct Rollups {
    open: Vec<Open>,
    first: ChunkNo,
    merger: Merger,
}

struct Open {
    node: NodeSummary,
    /// Whether every child is known completely.
    certain: bool,
}

impl Rollups {
    /// Starts at chunk `first`; roll-ups that began before it cannot be rebuilt.
    pub(super) fn new(first: ChunkNo) -> Rollups {
        Rollups {
            open: Vec::new(),
            first,
            merger: Merger::default(),
        }
    }

    /// Adds the next chunk, and returns the highest level at which it completes a roll-up; 0 for none.
    pub(super) fn add(&mut self, chunk: ChunkNo, child: Child<'_>) -> u8 {
        let mut ordinal = chunk.0;
        let (summary, mut certain) = match child {
            Child::Certain(summary) => (Some(summary), true),
            Child::StandIn(summary) => (Some(summary), false),
            Child::None => (None, true),
            Child::Unknown => (None, false),
        };
        for level in 1u8.. {
            let below = usize::from(level) - 1;
            if self.open.len() == below {
                let mut node = NodeSummary::new(level);
                node.clear(NodeId::at(level, chunk).first_chunk());
                let certain = node.first_chunk >= self.first;
                self.open.push(Open { node, certain });
            }
            let (below, from_here) = self.open.split_at_mut(below);
            let rollup = at_mut(from_here, 0);
            if ordinal.is_multiple_of(FANOUT) {
                rollup.node.clear(NodeId::at(level, chunk).first_chunk());
                rollup.certain = true;
            }
            rollup.certain &= certain;
            let child = match below.last() {
                None => summary,
                Some(below) => Some(&below.node).filter(|node| !node.sources.is_empty()),
            };
            let place = (ordinal % FANOUT) as u8;
            match child {
                Some(child) => self.merger.add_child(&mut rollup.node, place, child),
                None => self.merger.pass_child(&mut rollup.node),
            }
            if ordinal % FANOUT != FANOUT - 1 {
                return level - 1;
            }
            certain = rollup.certain;
            ordinal /= FANOUT;
        }
        0
    }

    /// The roll-up of a level that the last chunk completed; `None` if a child of it is unknown.
    pub(super) fn completed(&self, level: u8) -> Option<&NodeSummary> {
        let rollup = self.open.get(usize::from(level).checked_sub(1)?)?;
        Some(&rollup.node).filter(|_| rollup.certain)
    }
}
