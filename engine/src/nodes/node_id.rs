//! The roll-up forest by arithmetic alone: the nodes below a number of chunks, and the places of their entries.
//!
//! This is pure. Readers name a node by its [`NodeId`]; a child's is computed and never read from a file, so no pointer can lead in a circle.

use std::ops::Range;

use crate::format::{FANOUT, TIME_ENTRY_BYTES, entry_of};
use crate::types::{Address, ChunkNo};

/// Bits of a chunk's ordinal for each level.
const LEVEL_BITS: u32 = FANOUT.trailing_zeros();
const _: () = assert!(FANOUT == 64, "child masks are u64");

/// A node of the chunk index: level 0 is the summary of one chunk.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NodeId {
    pub level: u8,
    pub ordinal: u64,
}

impl NodeId {
    pub fn summary(chunk: ChunkNo) -> NodeId {
        NodeId {
            level: 0,
            ordinal: chunk.0,
        }
    }

    pub fn at(level: u8, chunk: ChunkNo) -> NodeId {
        NodeId {
            level,
            ordinal: chunk.0 >> (LEVEL_BITS * u32::from(level)),
        }
    }

    /// The last node with an entry before those of `chunk`, which is not the first: the highest one that ends there.
    pub fn last_before(chunk: u64) -> NodeId {
        let level = whole_levels(chunk);
        NodeId {
            level: level as u8,
            ordinal: (chunk >> (LEVEL_BITS * level)) - 1,
        }
    }

    pub fn first_chunk(self) -> ChunkNo {
        ChunkNo(self.ordinal << (LEVEL_BITS * u32::from(self.level)))
    }

    /// The chunks that it covers.
    pub fn chunks(self) -> Range<ChunkNo> {
        let first = self.first_chunk();
        first..ChunkNo(first.0 + (1 << (LEVEL_BITS * u32::from(self.level))))
    }

    /// Where the node's time entry stands in the timestamp index.
    pub fn entry(self) -> Address {
        Address(entry_of(self.level, self.ordinal).saturating_mul(TIME_ENTRY_BYTES as u64))
    }

    /// Its child `child`, from 0 to 63; `None` for a summary.
    pub fn child(self, child: u32) -> Option<NodeId> {
        Some(NodeId {
            level: self.level.checked_sub(1)?,
            ordinal: (self.ordinal << LEVEL_BITS) | u64::from(child),
        })
    }
}

/// The fewest nodes that cover exactly these chunks, ascending. Each level has at most 126.
pub(crate) fn roots(chunks: Range<u64>) -> Vec<NodeId> {
    let mut roots = Vec::new();
    let mut at = chunks.start;
    while at < chunks.end {
        let level = whole_levels(at).min(fitting_levels(chunks.end - at));
        roots.push(NodeId {
            level: level as u8,
            ordinal: at >> (LEVEL_BITS * level),
        });
        at += 1 << (LEVEL_BITS * level);
    }
    roots
}

/// The highest level at which a node begins at this chunk.
fn whole_levels(chunk: u64) -> u32 {
    chunk.trailing_zeros() / LEVEL_BITS
}

/// The highest level whose nodes cover at most this many chunks; there is at least one.
fn fitting_levels(chunks: u64) -> u32 {
    chunks.ilog2() / LEVEL_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entries_before;
    use proptest::prelude::*;

    fn span(id: NodeId) -> u64 {
        FANOUT.pow(u32::from(id.level))
    }

    #[test]
    fn the_roots_are_the_digits_of_the_number_of_chunks() {
        let levels = |end| {
            roots(0..end)
                .iter()
                .map(|root| root.level)
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(0), Vec::<u8>::new());
        assert_eq!(levels(3), [0, 0, 0]);
        assert_eq!(levels(64), [1]);
        assert_eq!(levels(64 * 64 + 64 + 1), [2, 1, 0]);
        assert_eq!(roots(5..5), []);
    }

    #[test]
    fn a_child_stands_below_its_parent() {
        let node = NodeId {
            level: 2,
            ordinal: 3,
        };
        let child = node.child(5).unwrap();
        assert_eq!(
            child,
            NodeId {
                level: 1,
                ordinal: 3 * 64 + 5
            }
        );
        assert_eq!(child.first_chunk(), ChunkNo((3 * 64 + 5) * 64));
        assert_eq!(child.child(0).unwrap().child(0), None);
        assert!(child.entry() < node.entry());
    }

    #[test]
    fn the_last_node_before_a_chunk_has_the_entry_below_it() {
        for chunk in (1..300).chain([4095, 4096, 4097, 1 << 18]) {
            let entries = entries_before(chunk);
            let entry = Address((entries - 1) * TIME_ENTRY_BYTES as u64);
            assert_eq!(NodeId::last_before(chunk).entry(), entry, "chunk {chunk}");
        }
    }

    proptest! {
        #[test]
        fn roots_cover_the_chunks_once_in_order(start in 0u64..1 << 40, chunks in 0u64..1 << 22) {
            let end = start + chunks;
            let mut at = start;
            for root in roots(start..end) {
                prop_assert_eq!(root.first_chunk(), ChunkNo(at));
                at += span(root);
            }
            prop_assert_eq!(at, end);
        }

        #[test]
        fn no_two_roots_could_be_one(end in 1u64..1 << 30) {
            let roots = roots(0..end);
            for level in 0..8u8 {
                prop_assert!(roots.iter().filter(|root| root.level == level).count() < 64);
            }
        }
    }
}
