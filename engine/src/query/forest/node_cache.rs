//! Nodes that this process has verified, kept in bounded memory.
//!
//! What is used again stays, whatever passes by once. Roll-ups and summaries are kept apart, so that a walk over many summaries does not push
//! out the few roll-ups above them.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::nodes::{NodeId, OpenNode};

const ROLLUP_BYTES_MAX: u64 = 48 << 20;
const SUMMARY_BYTES_MAX: u64 = 16 << 20;
/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: u64 = 96;
/// A node with few indexes; how many nodes are expected follows from it.
const NODE_BYTES_USUAL: u64 = 2 << 10;
/// Each has its own lock and its part of the memory, so a node that takes more than a part is not kept.
const SHARDS: usize = 4;

/// Belongs to one epoch of a directory: after lost staging, ordinals may name other chunks.
pub(crate) struct NodeCache {
    rollups: Nodes,
    summaries: Nodes,
}

type Nodes = Cache<NodeId, OpenNode, NodeWeight>;

impl Default for NodeCache {
    fn default() -> Self {
        NodeCache {
            rollups: nodes(ROLLUP_BYTES_MAX),
            summaries: nodes(SUMMARY_BYTES_MAX),
        }
    }
}

impl NodeCache {
    pub fn get(&self, id: NodeId) -> Option<OpenNode> {
        self.of(id).get(&id)
    }

    pub fn insert(&self, id: NodeId, open: OpenNode) {
        self.of(id).insert(id, open);
    }

    fn of(&self, id: NodeId) -> &Nodes {
        if id.level == 0 {
            &self.summaries
        } else {
            &self.rollups
        }
    }
}

/// No nodes yet, and room for so many bytes of them.
fn nodes(bytes_max: u64) -> Nodes {
    let options = OptionsBuilder::new()
        .weight_capacity(bytes_max)
        .estimated_items_capacity((bytes_max / NODE_BYTES_USUAL) as usize)
        .shards(SHARDS)
        .build()
        .expect("both capacities are given");
    Cache::with_options(
        options,
        NodeWeight,
        DefaultHashBuilder::default(),
        DefaultLifecycle::default(),
    )
}

#[derive(Clone)]
struct NodeWeight;

impl Weighter<NodeId, OpenNode> for NodeWeight {
    fn weight(&self, _: &NodeId, open: &OpenNode) -> u64 {
        open.bytes().len() as u64 + ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES_MOST: u64 = 4096;
    const NODE_BYTES: usize = 1000;

    fn id(ordinal: u64) -> NodeId {
        NodeId { level: 0, ordinal }
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let bytes_max = NODES_MOST * (NODE_BYTES as u64 + ENTRY_BYTES);
        let cache = nodes(bytes_max);
        let node = OpenNode::of_bytes(&[7; NODE_BYTES]).unwrap();
        cache.insert(id(0), node.clone());
        for ordinal in 1..40_000 {
            cache.insert(id(ordinal), node.clone());
            assert!(cache.get(&id(0)).is_some(), "after {ordinal}");
            assert!(cache.weight() <= bytes_max, "after {ordinal}");
        }
        let kept = (1..40_000).filter(|ordinal| cache.get(&id(*ordinal)).is_some());
        assert!(kept.count() < NODES_MOST as usize);
        let large = OpenNode::of_bytes(&vec![0; bytes_max as usize / SHARDS]).unwrap();
        cache.insert(id(50_000), large);
        assert!(cache.get(&id(50_000)).is_none());
    }

    #[test]
    fn what_is_used_from_now_on_is_kept_before_long() {
        let cache = nodes(NODES_MOST * (NODE_BYTES as u64 + ENTRY_BYTES));
        let node = OpenNode::of_bytes(&[7; NODE_BYTES]).unwrap();
        (0..40_000).for_each(|ordinal| cache.insert(id(ordinal), node.clone()));
        let mut found = 0;
        for _ in 0..8 {
            found = 0;
            for ordinal in 100_000..101_000 {
                match cache.get(&id(ordinal)) {
                    Some(_) => found += 1,
                    None => cache.insert(id(ordinal), node.clone()),
                }
            }
        }
        assert_eq!(found, 1000);
    }
}
