//! Nodes that this process has verified, kept in bounded memory.
//!
//! Two generations: what is used moves to the young one, and when that is half of the bound, the old one is dropped. Roll-ups and
//! summaries are kept apart, so that a walk over many summaries does not push out the few roll-ups above them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::nodes::{NodeId, OpenNode};

const ROLLUP_BYTES_MAX: usize = 48 << 20;
const SUMMARY_BYTES_MAX: usize = 16 << 20;
/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 96;

/// Belongs to one epoch of a directory: after lost staging, ordinals may name other chunks.
pub(crate) struct NodeCache {
    rollups: Mutex<Generations>,
    summaries: Mutex<Generations>,
}

impl Default for NodeCache {
    fn default() -> Self {
        NodeCache {
            rollups: Mutex::new(Generations::new(ROLLUP_BYTES_MAX)),
            summaries: Mutex::new(Generations::new(SUMMARY_BYTES_MAX)),
        }
    }
}

impl NodeCache {
    pub fn get(&self, id: NodeId) -> Option<OpenNode> {
        self.of(id)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
    }

    pub fn insert(&self, id: NodeId, open: OpenNode) {
        self.of(id)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, open);
    }

    fn of(&self, id: NodeId) -> &Mutex<Generations> {
        if id.level == 0 {
            &self.summaries
        } else {
            &self.rollups
        }
    }
}

/// Spreads the numbers of nodes, which follow each other and which nobody chooses.
#[derive(Default)]
struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u8(&mut self, level: u8) {
        self.write_u64(level.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

type Nodes = HashMap<NodeId, OpenNode, BuildHasherDefault<NodeHasher>>;

struct Generations {
    young: Nodes,
    old: Nodes,
    young_bytes: usize,
    bytes_max: usize,
}

impl Generations {
    fn new(bytes_max: usize) -> Self {
        Generations {
            young: Nodes::default(),
            old: Nodes::default(),
            young_bytes: 0,
            bytes_max,
        }
    }

    fn get(&mut self, id: NodeId) -> Option<OpenNode> {
        if let Some(open) = self.young.get(&id) {
            return Some(open.clone());
        }
        let open = self.old.remove(&id)?;
        self.insert(id, open.clone());
        Some(open)
    }

    fn insert(&mut self, id: NodeId, open: OpenNode) {
        let cost = open.bytes().len() + ENTRY_BYTES;
        if cost > self.bytes_max / 4 {
            return;
        }
        if self.young_bytes + cost > self.bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(id, open).is_none() {
            self.young_bytes += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ordinal: u64) -> NodeId {
        NodeId { level: 0, ordinal }
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let mut cache = Generations::new(100 * (ENTRY_BYTES + 8));
        let node = OpenNode::of_bytes(&[7; 8]);
        cache.insert(id(0), node.clone());
        for ordinal in 1..1000 {
            cache.insert(id(ordinal), node.clone());
            assert!(cache.get(id(0)).is_some(), "after {ordinal}");
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert!(cache.get(id(1)).is_none());
        cache.insert(id(5000), OpenNode::of_bytes(&[0; 1 << 20]));
        assert!(cache.get(id(5000)).is_none());
    }
}
