//! Verified nodes in bounded memory, for all directories that this process has open.
//!
//! Roll-ups and summaries are kept apart, so that a walk over many summaries does not push out the few roll-ups above them.

use std::sync::Arc;

use crate::log::Keeper;
use crate::nodes::{NodeId, OpenNode};
use crate::query::shared_cache::{Kept, SharedCache};

/// Summaries may take one part in this many of the memory.
const SUMMARIES_PART: u64 = 4;
/// The size of a node with few indexes.
const NODE_BYTES_USUAL: u64 = 2 << 10;

/// The nodes of all keepers.
pub(crate) struct SharedNodes {
    rollups: SharedCache<NodeId, OpenNode>,
    summaries: SharedCache<NodeId, OpenNode>,
}

/// The nodes of one keeper, which are dropped with it.
pub(crate) struct NodeCache {
    keeper: Keeper,
    shared: Arc<SharedNodes>,
}

impl Kept for OpenNode {
    fn bytes(&self) -> usize {
        OpenNode::bytes(self).len()
    }
}

impl SharedNodes {
    /// An empty cache with room for `bytes_max`.
    pub fn of_bytes(bytes_max: u64) -> SharedNodes {
        let [rollups, summaries] =
            parts(bytes_max).map(|bytes| SharedCache::of_bytes(bytes, NODE_BYTES_USUAL));
        SharedNodes { rollups, summaries }
    }

    /// Keeps no more than `bytes_max` from now on.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        let [rollups, summaries] = parts(bytes_max);
        self.rollups.set_bytes_max(rollups);
        self.summaries.set_bytes_max(summaries);
    }

    /// The memory that the nodes take, about.
    pub fn bytes(&self) -> u64 {
        self.rollups.bytes() + self.summaries.bytes()
    }

    fn of(&self, id: NodeId) -> &SharedCache<NodeId, OpenNode> {
        if id.level == 0 {
            &self.summaries
        } else {
            &self.rollups
        }
    }
}

/// Divides the memory between roll-ups and summaries.
fn parts(bytes_max: u64) -> [u64; 2] {
    let summaries = bytes_max / SUMMARIES_PART;
    [bytes_max - summaries, summaries]
}

impl NodeCache {
    pub fn of(keeper: Keeper, shared: Arc<SharedNodes>) -> NodeCache {
        NodeCache { keeper, shared }
    }

    pub fn get(&self, id: NodeId) -> Option<OpenNode> {
        self.shared.of(id).get(self.keeper, id)
    }

    pub fn insert(&self, id: NodeId, open: OpenNode) {
        self.shared.of(id).insert(self.keeper, id, open);
    }
}

impl Drop for NodeCache {
    fn drop(&mut self) {
        self.shared.rollups.forget(self.keeper);
        self.shared.summaries.forget(self.keeper);
    }
}
