//! The content of a node of the chunk index as plain data: the writer fills it, `encode_node` encodes it, and `Node::to_summary` rebuilds it.
//!
//! A `NodeSummary` is complete; the format may omit parts later. Its lists are sorted and reused from chunk to chunk, so sealing a chunk allocates nothing once
//! the lists have grown.

use std::cmp::Ordering;
use std::ops::{Deref, DerefMut};

use crate::proven;
use crate::types::{ChunkNo, IndexId, Key, SourceId, Sum, Timestamp, ValueRange};

/// A summary keeps this many of a chunk's greatest values for each index.
pub const TOP_VALUES: usize = 4;

/// One of the greatest values of a chunk, with the offset in the chunk of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Top {
    pub key: Key,
    pub offset: u32,
}

/// The number of an index's values in a bin, and the children of a roll-up that hold some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bin {
    pub bin: u16,
    pub count: u64,
    pub mask: u64,
}

/// The paper's full statistics of a bin (§4.2): sum, extremes and times of its records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BinStats {
    pub sum: Sum,
    pub min: Key,
    pub max: Key,
    pub first_ts: Timestamp,
    pub last_ts: Timestamp,
}

/// A roll-up's description of one child's records of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildStats {
    pub child: u8,
    pub records: u64,
    pub first_ts: Timestamp,
    pub last_ts: Timestamp,
}

/// A roll-up's description of one child's values of an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexChild {
    pub child: u8,
    pub count: u64,
    pub min: Key,
    pub max: Key,
    pub sum: Sum,
}

#[derive(Debug, Clone, PartialEq)]
pub struct IndexSummary {
    pub index: IndexId,
    pub count: u64,
    pub sum: Sum,
    pub range: ValueRange,
    pub child_mask: u64,
    /// Greatest first; only in the summary of a chunk.
    pub tops: Vec<Top>,
    /// Ascending.
    pub bins: Vec<Bin>,
    /// One for each of `bins`, or none at all.
    pub bin_stats: Vec<BinStats>,
    /// Ascending by child; only in a roll-up.
    pub children: Vec<IndexChild>,
}

impl Default for IndexSummary {
    fn default() -> Self {
        Self {
            index: IndexId(0),
            count: 0,
            sum: Sum::Int(0),
            range: ValueRange::EMPTY,
            child_mask: 0,
            tops: Vec::new(),
            bins: Vec::new(),
            bin_stats: Vec::new(),
            children: Vec::new(),
        }
    }
}

impl IndexSummary {
    /// Resets it to the empty summary of an index and keeps the allocations of its lists.
    pub fn reset(&mut self, index: IndexId) {
        self.index = index;
        self.count = 0;
        self.sum = Sum::Int(0);
        self.range = ValueRange::EMPTY;
        self.child_mask = 0;
        self.tops.clear();
        self.bins.clear();
        self.bin_stats.clear();
        self.children.clear();
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SourceSummary {
    pub source: SourceId,
    pub own_time: bool,
    pub records: u64,
    /// Bytes of its records in the record log, headers and padding included.
    pub bytes: u64,
    pub first_arrival: Timestamp,
    pub last_arrival: Timestamp,
    pub first_ts: Timestamp,
    pub last_ts: Timestamp,
    /// The latest chunk before this node that holds the source.
    pub previous_chunk: Option<ChunkNo>,
    /// In a chunk: the offsets of the first and last record. In a roll-up: the first and last child that hold the source.
    pub first: u32,
    pub last: u32,
    pub child_mask: u64,
    pub children: Vec<ChildStats>,
    /// Ascending by index.
    pub indexes: Reuse<IndexSummary>,
}

impl Default for SourceSummary {
    fn default() -> Self {
        Self {
            source: SourceId(0),
            own_time: false,
            records: 0,
            bytes: 0,
            first_arrival: Timestamp::MAX,
            last_arrival: Timestamp::MIN,
            first_ts: Timestamp::MAX,
            last_ts: Timestamp::MIN,
            previous_chunk: None,
            first: 0,
            last: 0,
            child_mask: 0,
            children: Vec::new(),
            indexes: Reuse::default(),
        }
    }
}

impl SourceSummary {
    /// Resets it to the empty summary of a source and keeps the allocations of its lists.
    pub fn reset(&mut self, source: SourceId, own_time: bool) {
        let mut children = std::mem::take(&mut self.children);
        let mut indexes = std::mem::take(&mut self.indexes);
        children.clear();
        indexes.clear();
        *self = Self {
            source,
            own_time,
            children,
            indexes,
            ..Self::default()
        };
    }
}

/// The complete content of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSummary {
    pub level: u8,
    pub first_chunk: ChunkNo,
    pub first_arrival: Timestamp,
    pub last_arrival: Timestamp,
    pub records: u64,
    /// The number of chunks below a roll-up without a summary, because they were lost or damaged.
    pub missing_chunks: u32,
    /// Ascending by source.
    pub sources: Reuse<SourceSummary>,
}

impl NodeSummary {
    pub fn new(level: u8) -> Self {
        Self {
            level,
            first_chunk: ChunkNo(0),
            first_arrival: Timestamp::MAX,
            last_arrival: Timestamp::MIN,
            records: 0,
            missing_chunks: 0,
            sources: Reuse::default(),
        }
    }

    pub fn clear(&mut self, first_chunk: ChunkNo) {
        self.first_chunk = first_chunk;
        self.first_arrival = Timestamp::MAX;
        self.last_arrival = Timestamp::MIN;
        self.records = 0;
        self.missing_chunks = 0;
        self.sources.clear();
    }
}

/// A list that keeps the allocations of cleared items and reuses them.
#[derive(Debug, Clone)]
pub struct Reuse<T> {
    items: Vec<T>,
    used: usize,
}

impl<T: Default> Reuse<T> {
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds an item at the end. It still holds its content from before it was cleared: the caller resets it.
    pub fn push(&mut self) -> &mut T {
        self.insert(self.used)
    }

    /// Returns the item of a sorted list that `order` calls equal, or inserts one and calls `reset` on it.
    pub fn entry(
        &mut self,
        order: impl FnMut(&T) -> Ordering,
        reset: impl FnOnce(&mut T),
    ) -> &mut T {
        match self.binary_search_by(order) {
            #[expect(clippy::indexing_slicing, reason = "the search just found it there")]
            Ok(at) => &mut self[at],
            Err(at) => {
                let item = self.insert(at);
                reset(item);
                item
            }
        }
    }

    /// Inserts an item at `at` (at most the length); the caller resets it.
    fn insert(&mut self, at: usize) -> &mut T {
        if self.used == self.items.len() {
            self.items.push(T::default());
        }
        proven::at_mut(&mut self.items, at..=self.used).rotate_right(1);
        self.used += 1;
        #[expect(
            clippy::indexing_slicing,
            reason = "an item was just put at `at`, which is below `used`"
        )]
        &mut self.items[at]
    }
}

impl<T> Default for Reuse<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            used: 0,
        }
    }
}

impl<T> Deref for Reuse<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        proven::at(&self.items, ..self.used)
    }
}

impl<T> DerefMut for Reuse<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        proven::at_mut(&mut self.items, ..self.used)
    }
}

impl<T: PartialEq> PartialEq for Reuse<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
