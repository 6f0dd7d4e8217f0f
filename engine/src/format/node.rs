//! Decodes a node of the chunk index. `node_encoding.rs` encodes it; FORMAT.md specifies the layout under *Chunk index*.
//!
//! `Node::decode` proves checksum, bounds, order and sums once; the accessors behind it cannot fail.

use std::ops::Range;

use super::bytes::{FormatError, array, i64_at, invalid, ones, u16_at, u32_at, u64_at};
use super::checksum::checksum;
use super::index_block::IndexBlock;
use super::narrow::{Children, Columns, Numbers, TABLE_BYTES};
use super::record::{CHUNK_BYTES_MAX, RECORD_HEADER_BYTES};
use super::summary::{Bin, ChildStats, NodeSummary};
use super::time_entry::FANOUT;
use crate::proven;
use crate::types::{Address, ChunkNo, IndexId, LogKind, SourceId, TimeRange, Timestamp};

/// This exceeds a roll-up of 65,000 sources. A reader checks a claimed length against it before it allocates.
pub const NODE_BYTES_MAX: u32 = 256 << 20;
pub(super) const MAGIC: u32 = 0x444F_4E4C;
/// Marks a narrow node.
pub(super) const NARROW_MAGIC: u32 = 0x4E4F_4E4C;
pub(super) const NODE_HEADER_BYTES: usize = 56;
pub(super) const SOURCE_ENTRY_BYTES: usize = 88;
pub(super) const INDEX_ENTRY_BYTES: usize = 16;
const SOURCE_COLUMN_BYTES: usize = 24;
/// The bytes of a record without payload.
const RECORD_BYTES_MIN: u64 = RECORD_HEADER_BYTES as u64;

#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
}

/// A node's description of one source.
#[derive(Debug, Clone, Copy)]
pub struct SourceStats<'a> {
    pub source: SourceId,
    pub own_time: bool,
    pub records: u64,
    /// Bytes of its records in the record log, headers and padding included.
    pub bytes: u64,
    pub first_arrival: Timestamp,
    pub last_arrival: Timestamp,
    /// Least and greatest `ts`: the source's own time if it has one, else arrival.
    pub first_ts: Timestamp,
    pub last_ts: Timestamp,
    pub previous_chunk: Option<ChunkNo>,
    /// In a chunk: the offsets of the first and last record. In a roll-up: the first and last child that hold the source.
    pub first: u32,
    pub last: u32,
    pub child_mask: u64,
    children: ChildColumns<'a>,
}

/// The columns of a roll-up about a source's children.
#[derive(Debug, Clone, Copy)]
enum ChildColumns<'a> {
    Wide(&'a [u8]),
    Narrow(Children<'a>),
}

impl<'a> Node<'a> {
    /// Decodes the node at `address` of the chunk index. `bytes` may be longer than the node.
    pub fn decode(uuid: &[u8; 16], address: Address, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let what = "a node";
        let length = match bytes.first_chunk::<NODE_HEADER_BYTES>() {
            Some(header) => u32_at(header, 8) as usize,
            None => NODE_HEADER_BYTES,
        };
        if bytes.len() < length.max(NODE_HEADER_BYTES) {
            return Err(FormatError::Short {
                what,
                have: bytes.len(),
                need: length.max(NODE_HEADER_BYTES),
            });
        }
        if ![MAGIC, NARROW_MAGIC].contains(&u32_at(bytes, 0)) {
            return invalid("the magic number of a node", u32_at(bytes, 0).into());
        }
        if length < NODE_HEADER_BYTES || !length.is_multiple_of(8) {
            return invalid("a node's length", length as u64);
        }
        let node = Self {
            bytes: proven::at(bytes, ..length),
        };
        let stored = u32_at(bytes, 4);
        let computed = checksum(uuid, LogKind::Chunks, address, proven::at(node.bytes, 8..));
        if stored != computed {
            return Err(FormatError::Checksum {
                what,
                stored,
                computed,
            });
        }
        node.prove()?;
        Ok(node)
    }

    /// Wraps exactly the bytes that `decode` accepted before. On other bytes the accessors panic or return nonsense.
    pub fn assume_decoded(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn level(&self) -> u8 {
        let [level] = array::<1>(self.bytes, 12);
        level
    }

    pub fn first_chunk(&self) -> ChunkNo {
        ChunkNo(u64_at(self.bytes, 16))
    }

    pub fn first_arrival(&self) -> Timestamp {
        Timestamp(i64_at(self.bytes, 24))
    }

    pub fn last_arrival(&self) -> Timestamp {
        Timestamp(i64_at(self.bytes, 32))
    }

    pub fn records(&self) -> u64 {
        u64_at(self.bytes, 40)
    }

    /// Returns the number of chunks below a roll-up that have no summary.
    pub fn missing_chunks(&self) -> u32 {
        u32_at(self.bytes, 52)
    }

    pub fn node_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a range that holds the `ts` of all its sources, where it is known without a look at each.
    pub fn times(&self) -> Option<TimeRange> {
        self.narrow()?.times()
    }

    /// Returns the sources in ascending order.
    pub fn sources(&self) -> impl Iterator<Item = SourceStats<'a>> + use<'a> {
        let (node, narrow) = (*self, self.narrow());
        (0..node.source_count()).map(move |nth| match &narrow {
            Some(columns) => node.narrow_stats(columns, nth),
            None => node.wide_stats(nth),
        })
    }

    pub fn source(&self, source: SourceId) -> Option<SourceStats<'a>> {
        self.source_in(self.narrow().as_ref(), source)
    }

    /// Finds a source when the columns of a narrow node are already at hand.
    fn source_in(&self, narrow: Option<&Columns<'a>>, source: SourceId) -> Option<SourceStats<'a>> {
        let count = self.source_count();
        let wanted = u64::from(source.0);
        match narrow {
            Some(columns) => {
                let found = first_of(count, |nth| columns.source(nth) >= wanted);
                let is_there = found < count && columns.source(found) == wanted;
                is_there.then(|| self.narrow_stats(columns, found))
            }
            None => {
                let source_at = |nth: usize| u64::from(u16_at(self.source_entry(nth), 0));
                let found = first_of(count, |nth| source_at(nth) >= wanted);
                let is_there = found < count && source_at(found) == wanted;
                is_there.then(|| self.wide_stats(found))
            }
        }
    }

    /// Returns the node's description of an index. `None` means unknown: the node must be opened.
    pub fn index(&self, source: SourceId, index: IndexId) -> Option<IndexBlock<'a>> {
        let table = self.index_table();
        let wanted = index_order(source.0, index.0);
        let found = partition(table, INDEX_ENTRY_BYTES, |entry| {
            entry_order(entry) < wanted
        });
        let entry = table.get(found..found + INDEX_ENTRY_BYTES)?;
        (entry_order(entry) == wanted).then(|| self.proven_block(entry))
    }

    /// Returns the described indexes of a source.
    fn indexes_of(&self, source: SourceId) -> impl Iterator<Item = IndexBlock<'a>> + use<'a> {
        let (node, table) = (*self, self.index_table());
        let first = partition(table, INDEX_ENTRY_BYTES, |entry| {
            u16_at(entry, 0) < source.0
        });
        proven::at(table, first..)
            .chunks_exact(INDEX_ENTRY_BYTES)
            .take_while(move |entry| u16_at(entry, 0) == source.0)
            .map(move |entry| node.proven_block(entry))
    }

    /// Returns every described (source, index).
    pub fn indexes(&self) -> impl Iterator<Item = (SourceId, IndexBlock<'a>)> + use<'a> {
        let node = *self;
        node.index_table()
            .chunks_exact(INDEX_ENTRY_BYTES)
            .map(move |entry| (SourceId(u16_at(entry, 0)), node.proven_block(entry)))
    }

    /// Converts the node to the writer's data, so that accumulation can continue. It omits greatest values, which only a chunk has.
    pub fn to_summary(&self) -> NodeSummary {
        let mut summary = NodeSummary::new(self.level());
        summary.clear(self.first_chunk());
        summary.first_arrival = self.first_arrival();
        summary.last_arrival = self.last_arrival();
        summary.records = self.records();
        summary.missing_chunks = self.missing_chunks();
        for stats in self.sources() {
            let source = summary.sources.push();
            source.reset(stats.source, stats.own_time);
            (source.records, source.bytes) = (stats.records, stats.bytes);
            (source.first_arrival, source.last_arrival) = (stats.first_arrival, stats.last_arrival);
            (source.first_ts, source.last_ts) = (stats.first_ts, stats.last_ts);
            source.previous_chunk = stats.previous_chunk;
            (source.first, source.last) = (stats.first, stats.last);
            source.child_mask = stats.child_mask;
            source.children.extend(stats.children());
            for block in self.indexes_of(stats.source) {
                let index = source.indexes.push();
                index.reset(block.index);
                index.count = block.count;
                index.sum = block.sum;
                index.range = block.range;
                index.child_mask = block.child_mask;
                index.children.extend(block.children());
                for entry in block.bins() {
                    index.bins.push(Bin {
                        bin: entry.bin,
                        count: entry.count,
                        mask: entry.mask,
                    });
                    index.bin_stats.extend(entry.stats);
                }
            }
        }
        summary
    }

    fn source_count(&self) -> usize {
        u16_at(self.bytes, 14).into()
    }

    fn index_count(&self) -> usize {
        u32_at(self.bytes, 48) as usize
    }

    fn is_narrow(&self) -> bool {
        u32_at(self.bytes, 0) == NARROW_MAGIC
    }

    fn narrow(&self) -> Option<Columns<'a>> {
        self.is_narrow()
            .then(|| Columns::proven(self.bytes, NODE_HEADER_BYTES, self.source_count()))
    }

    /// The index table begins here.
    fn sources_end(&self) -> usize {
        NODE_HEADER_BYTES
            + match self.is_narrow() {
                true => TABLE_BYTES,
                false => self.source_count() * SOURCE_ENTRY_BYTES,
            }
    }

    fn tables_end(&self) -> usize {
        let indexes = self.index_count().saturating_mul(INDEX_ENTRY_BYTES);
        self.sources_end().saturating_add(indexes)
    }

    /// Reads an entry of a node that is not narrow.
    fn source_entry(&self, nth: usize) -> &'a [u8] {
        let start = NODE_HEADER_BYTES + nth * SOURCE_ENTRY_BYTES;
        proven::at(self.bytes, start..start + SOURCE_ENTRY_BYTES)
    }

    fn index_table(&self) -> &'a [u8] {
        proven::at(self.bytes, self.sources_end()..self.tables_end())
    }

    fn wide_stats(&self, nth: usize) -> SourceStats<'a> {
        let entry = self.source_entry(nth);
        let previous = u64_at(entry, 48);
        SourceStats {
            source: SourceId(u16_at(entry, 0)),
            own_time: u16_at(entry, 2) & 1 == 1,
            records: u64_at(entry, 8),
            bytes: u64_at(entry, 80),
            first_arrival: Timestamp(i64_at(entry, 16)),
            last_arrival: Timestamp(i64_at(entry, 24)),
            first_ts: Timestamp(i64_at(entry, 32)),
            last_ts: Timestamp(i64_at(entry, 40)),
            previous_chunk: (previous != u64::MAX).then_some(ChunkNo(previous)),
            first: u32_at(entry, 56),
            last: u32_at(entry, 60),
            child_mask: child_mask(entry),
            children: ChildColumns::Wide(proven::at(self.bytes, columns(entry))),
        }
    }

    fn narrow_stats(&self, columns: &Columns<'a>, nth: usize) -> SourceStats<'a> {
        let numbers = columns.numbers(nth);
        let Numbers {
            source,
            own_time,
            records,
            bytes,
            chunks_back,
            child_mask,
            ..
        } = numbers;
        let previous = || ChunkNo(self.first_chunk().0.wrapping_sub(chunks_back));
        SourceStats {
            source: SourceId(source as u16),
            own_time: own_time & 1 == 1,
            records,
            bytes,
            first_arrival: Timestamp(numbers.first_arrival as i64),
            last_arrival: Timestamp(numbers.last_arrival as i64),
            first_ts: Timestamp(numbers.first_ts as i64),
            last_ts: Timestamp(numbers.last_ts as i64),
            previous_chunk: (chunks_back != 0).then(previous),
            first: numbers.first as u32,
            last: numbers.last as u32,
            child_mask,
            children: ChildColumns::Narrow(columns.children(&numbers)),
        }
    }

    /// Returns the index block of an entry after `prove` has parsed them all.
    fn proven_block(&self, entry: &[u8]) -> IndexBlock<'a> {
        match self.index_block(entry) {
            Ok(block) => block,
            Err(error) => panic!("a node that was decoded before does not verify: {error}"),
        }
    }

    fn index_block(&self, entry: &[u8]) -> Result<IndexBlock<'a>, FormatError> {
        let index = IndexId(u32_at(entry, 4));
        let (start, length) = (u32_at(entry, 8) as usize, u32_at(entry, 12) as usize);
        let Some(block) = self.bytes.get(start..start.saturating_add(length)) else {
            return invalid("the place of an index block", start as u64);
        };
        IndexBlock::parse(index, block, self.level() > 0)
    }

    fn prove(&self) -> Result<(), FormatError> {
        if self.tables_end() > self.bytes.len() {
            return invalid(
                "the number of sources and indexes of a node",
                self.index_count() as u64,
            );
        }
        // Bounds the content of the chunks below, so that no sum over the nodes of a log overflows.
        let chunks = FANOUT.saturating_pow(self.level().into());
        let capacity = chunks.saturating_mul(CHUNK_BYTES_MAX.into());
        if self.records() > capacity / RECORD_BYTES_MIN {
            return invalid("the number of records of a node", self.records());
        }
        if self.is_narrow() {
            Columns::of(self.bytes, NODE_HEADER_BYTES, self.source_count())?.prove()?;
        } else {
            for nth in 0..self.source_count() {
                let entry = self.source_entry(nth);
                if self.bytes.get(columns(entry)).is_none() {
                    return invalid("the child columns of a source", child_mask(entry));
                }
            }
        }
        let (mut previous, mut total_bytes) = (0, 0u64);
        for stats in self.sources() {
            if (self.level() > 0) != (stats.child_mask != 0) {
                return invalid("the child columns of a source", stats.child_mask);
            }
            if stats.source.0 <= previous {
                return invalid("the order of a node's sources", stats.source.0.into());
            }
            previous = stats.source.0;
            total_bytes = total_bytes.saturating_add(stats.bytes);
            if total_bytes > capacity || stats.records > stats.bytes / RECORD_BYTES_MIN {
                return invalid("the number of records of a source", stats.records);
            }
            let of_children = stats
                .children()
                .fold(0u64, |sum, child| sum.saturating_add(child.records));
            if self.level() > 0 && of_children != stats.records {
                return invalid("the total of a source's children", of_children);
            }
            if let Some(chunk) = stats.previous_chunk
                && chunk >= self.first_chunk()
            {
                return invalid("the previous chunk of a source", chunk.0);
            }
        }
        let mut previous = None;
        let narrow = self.narrow();
        for entry in self.index_table().chunks_exact(INDEX_ENTRY_BYTES) {
            let order = entry_order(entry);
            if previous.is_some_and(|previous| order <= previous) || u16_at(entry, 2) != 0 {
                return invalid("the order of a node's indexes", order);
            }
            previous = Some(order);
            let block = self.index_block(entry)?;
            block.prove()?;
            let source = self.source_in(narrow.as_ref(), SourceId(u16_at(entry, 0)));
            if block.count > source.map_or(0, |stats| stats.records) {
                return invalid("the number of values of an index", block.count);
            }
        }
        Ok(())
    }
}

/// Returns the children that hold the source, from an entry of the source table.
fn child_mask(entry: &[u8]) -> u64 {
    u64_at(entry, 64)
}

/// Returns the place of the children's columns in the node, from an entry of the source table.
fn columns(entry: &[u8]) -> Range<usize> {
    let start = u32_at(entry, 72) as usize;
    start..start + child_mask(entry).count_ones() as usize * SOURCE_COLUMN_BYTES
}

/// Combines (source, index) into one number.
fn index_order(source: u16, index: u32) -> u64 {
    u64::from(source) << 32 | u64::from(index)
}

fn entry_order(entry: &[u8]) -> u64 {
    index_order(u16_at(entry, 0), u32_at(entry, 4))
}

/// Returns the first of `count` ordered places where `is_behind` is true; `count` where there is none.
fn first_of(count: usize, is_behind: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        if is_behind(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Returns the offset of the first entry of a sorted table for which `before` is false.
fn partition(table: &[u8], entry_bytes: usize, before: impl Fn(&[u8]) -> bool) -> usize {
    let entry = |nth: usize| proven::at(table, nth * entry_bytes..);
    first_of(table.len() / entry_bytes, |nth| !before(entry(nth))) * entry_bytes
}

impl<'a> SourceStats<'a> {
    /// Returns the children of a roll-up that hold the source, ascending.
    pub fn children(&self) -> impl Iterator<Item = ChildStats> + use<'a> {
        let count = self.child_mask.count_ones() as usize;
        let wide = match self.children {
            ChildColumns::Wide(columns) => Some(columns),
            ChildColumns::Narrow(_) => None,
        };
        let narrow = match self.children {
            ChildColumns::Narrow(children) => Some(children.columns(count)),
            ChildColumns::Wide(_) => None,
        };
        let of_wide = move |columns: &[u8], nth: usize| {
            let time = |column: usize| Timestamp(i64_at(columns, (column * count + nth) * 8));
            (u64_at(columns, nth * 8), time(1), time(2))
        };
        ones(self.child_mask)
            .enumerate()
            .filter_map(move |(nth, child)| {
                let (records, first_ts, last_ts) = match (&narrow, wide) {
                    (Some(columns), _) => columns(nth),
                    (None, columns) => of_wide(columns?, nth),
                };
                Some(ChildStats {
                    child,
                    records,
                    first_ts,
                    last_ts,
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::node_encoding::encode_node;
    use super::super::summary::{BinStats, IndexChild, IndexSummary, SourceSummary, Top};
    use super::*;
    use crate::types::{Key, Sum, ValueRange};
    use proptest::prelude::*;

    const UUID: [u8; 16] = [9; 16];
    const AT: Address = Address(4096);

    fn sum(float: bool, value: i64) -> Sum {
        if float {
            Sum::Float {
                sum: value as f64,
                compensation: 0.5,
            }
        } else {
            Sum::Int(i128::from(value) << 40)
        }
    }

    /// Builds index `id` of a node from numbers. `rollup` gives it children.
    fn index(
        id: u32,
        rollup: bool,
        steps: &[(u16, u64)],
        float: bool,
        stats: bool,
        seed: u64,
    ) -> IndexSummary {
        let mut index = IndexSummary {
            index: IndexId(id),
            ..IndexSummary::default()
        };
        index.sum = sum(float, seed as i64);
        let mut bin = 0u16;
        for (ordinal, (step, count)) in steps.iter().enumerate() {
            bin += step + u16::from(ordinal > 0);
            index.bins.push(Bin {
                bin,
                count: *count,
                mask: if rollup { seed | 1 } else { 0 },
            });
            index.count += count;
            if stats {
                let (min, max) = (Key(seed / 2), Key(seed));
                let (first_ts, last_ts) = (Timestamp(-5), Timestamp(seed as i64));
                index.bin_stats.push(BinStats {
                    sum: sum(float, 3),
                    min,
                    max,
                    first_ts,
                    last_ts,
                });
            }
        }
        if index.count > 0 {
            index.range = ValueRange {
                min: Key(seed / 2),
                max: Key(seed),
            };
            if rollup {
                index.child_mask = 0b101;
                let child = |child, count| IndexChild {
                    child,
                    count,
                    min: Key(1),
                    max: Key(2),
                    sum: sum(float, 7),
                };
                index
                    .children
                    .extend([child(0, index.count - 1), child(2, 1)]);
            } else {
                index.tops.extend([
                    Top {
                        key: Key(seed),
                        offset: 8,
                    },
                    Top {
                        key: Key(seed / 2),
                        offset: 72,
                    },
                ]);
            }
        }
        index
    }

    fn node(level: u8, sources: &[(u16, Vec<IndexSummary>)]) -> NodeSummary {
        let mut node = NodeSummary::new(level);
        node.clear(ChunkNo(128));
        node.records = 77;
        node.missing_chunks = u32::from(level) * 3;
        (node.first_arrival, node.last_arrival) = (Timestamp(1), Timestamp(2));
        for (id, indexes) in sources {
            let source: &mut SourceSummary = node.sources.push();
            source.reset(SourceId(*id), id % 2 == 1);
            let indexed = indexes.iter().map(|index| index.count).max();
            source.records = indexed.unwrap_or_default().max(40);
            source.bytes = (8 + u64::from(id % 7)) * source.records;
            let time = i64::from(*id) * 1_000_000;
            (source.first_arrival, source.last_arrival) = (Timestamp(time), Timestamp(time + 9));
            (source.first_ts, source.last_ts) = match id % 16 {
                0 => (Timestamp::MIN, Timestamp::MAX),
                _ => (Timestamp(-time), Timestamp(time)),
            };
            source.previous_chunk = (id % 3 == 0).then_some(ChunkNo(u64::from(id % 128)));
            (source.first, source.last) = (8 * u32::from(*id), 8 * u32::from(*id) + 16);
            if level > 0 {
                let children = [id % 31, 31 + id % 33].map(|child| child as u8);
                source.child_mask = children.iter().fold(0, |mask, child| mask | 1 << child);
                let (first_ts, last_ts) = (source.first_ts, source.last_ts);
                let child = |child, records| ChildStats {
                    child,
                    records,
                    first_ts: Timestamp(first_ts.0 / 2),
                    last_ts: Timestamp(last_ts.0 / 2),
                };
                let counts = [20, source.records - 20];
                let of_children = children.into_iter().zip(counts);
                source
                    .children
                    .extend(of_children.map(|(which, records)| child(which, records)));
            }
            for index in indexes {
                *source.indexes.push() = index.clone();
            }
        }
        node
    }

    fn encoded(node: &NodeSummary) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_node(&UUID, AT, node, |_, _| true, &mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        bytes
    }

    prop_compose! {
        fn any_node()(
            level in 0u8..3,
            ids in prop_oneof![prop::collection::btree_set(1u16..999, 0..5), prop::collection::btree_set(1u16..999, 28..80)],
            shapes in prop::collection::vec(
                (prop::collection::vec((0u16..9000, 1u64..1 << 11), 0..7), any::<(bool, bool, u32)>()), 0..4),
        ) -> NodeSummary {
            // All sources together fit in one node.
            let few = if ids.len() > 5 { 31 } else { u64::MAX };
            let below = |steps: &[(u16, u64)]| -> Vec<_> {
                let count = |count: u64| (1 + ((count - 1) & few)) << (6 * level);
                steps.iter().map(|(step, own)| (*step, count(*own))).collect()
            };
            let indexes: Vec<_> = shapes.iter().enumerate()
                .map(|(i, (steps, (float, stats, seed)))| index(i as u32 * 3, level > 0, &below(steps), *float, *stats, u64::from(*seed) + 2))
                .collect();
            node(level, &ids.into_iter().map(|id| (id, indexes.clone())).collect::<Vec<_>>())
        }
    }

    proptest! {
        #[test]
        fn a_node_is_read_back_whole(node in any_node()) {
            let bytes = encoded(&node);
            let decoded = Node::decode(&UUID, AT, &bytes).unwrap();
            prop_assert_eq!(decoded.node_bytes(), bytes.len());
            let mut expected = node.clone();
            for (source, index) in expected.sources.iter_mut().flat_map(|s| { let id = s.source; s.indexes.iter_mut().map(move |i| (id, i)) }) {
                let block = decoded.index(source, index.index).unwrap();
                prop_assert_eq!(block.tops().collect::<Vec<_>>(), std::mem::take(&mut index.tops));
                if index.count == 0 {
                    index.reset(index.index);
                }
                if index.count < 4 * u64::from(index.child_mask.count_ones()) {
                    index.children.clear();
                }
            }
            prop_assert_eq!(decoded.to_summary(), expected);
            for source in node.sources.iter() {
                prop_assert_eq!(decoded.source(source.source).unwrap().records, source.records);
            }
            let times = decoded.times().unwrap_or(TimeRange::ALL);
            for stats in decoded.sources() {
                prop_assert!(times.contains(stats.first_ts) && times.contains(stats.last_ts));
            }
            prop_assert!(decoded.source(SourceId(1000)).is_none());
            prop_assert!(decoded.index(SourceId(1000), IndexId(0)).is_none());
        }

        #[test]
        fn a_changed_byte_is_found_and_a_forged_node_does_no_harm(node in any_node(), at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = encoded(&node);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Node::decode(&UUID, AT, &bytes).is_err());
            let length = (u32_at(&bytes, 8) as usize).clamp(8, bytes.len());
            let sum = checksum(&UUID, LogKind::Chunks, AT, &bytes[8..length]);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
            if let Ok(forged) = Node::decode(&UUID, AT, &bytes) {
                forged.to_summary();
                forged.times();
            }
        }

        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Node::decode(&UUID, AT, &bytes).is_err());
        }
    }

    #[test]
    fn a_narrow_node_knows_about_when_its_sources_were() {
        let times = |source_times: &dyn Fn(i64) -> (i64, i64)| {
            let ids: Vec<_> = (1..50).map(|id| (id, Vec::new())).collect();
            let mut summary = node(0, &ids);
            for source in &mut *summary.sources {
                let (first, last) = source_times(source.source.0.into());
                (source.first_ts, source.last_ts) = (Timestamp(first), Timestamp(last));
            }
            let bytes = encoded(&summary);
            let times = Node::decode(&UUID, AT, &bytes).unwrap().times()?;
            Some((times.first.0, times.last.0))
        };
        let shifted = times(&|id| (7_000 + id, 9_000 - id));
        // Each of 48 numbers needs six bits, and so do 48 numbers that differ by twos.
        assert_eq!(shifted, Some((7_001, 7_001 + 63 + 1_902 + 2 * 63)));
        // A sum of bounds overflows, so nothing is known.
        assert_eq!(times(&|id| (-id, i64::MAX - id)), None);
        assert_eq!(times(&|id| (i64::MIN + id, i64::MAX - id)), None);
        assert_eq!(
            times(&|id| (i64::MIN, i64::MIN + (id & 1))).unwrap().0,
            i64::MIN
        );
    }

    #[test]
    fn a_summary_omits_the_entries_of_rare_sources() {
        let mut summary = node(
            0,
            &[(1, vec![index(0, false, &[(3, 5)], false, false, 100)])],
        );
        let blocks = |summary: &NodeSummary| {
            let bytes = encoded(summary);
            let node = Node::decode(&UUID, AT, &bytes).unwrap();
            node.index(SourceId(1), IndexId(0))
                .map(|block| (block.count, block.has_bins()))
        };
        summary.sources[0].records = 32;
        assert_eq!(blocks(&summary), Some((5, true)));
        summary.sources[0].records = 31;
        assert_eq!(blocks(&summary), Some((5, false)));
        summary.sources[0].records = 3;
        assert_eq!(blocks(&summary), None);
    }

    #[test]
    fn a_rollup_answers_only_for_indexes_that_covered_it() {
        let summary = node(
            1,
            &[(
                1,
                vec![
                    index(0, true, &[(3, 9)], false, true, 100),
                    index(1, true, &[], false, false, 2),
                ],
            )],
        );
        let mut bytes = Vec::new();
        encode_node(
            &UUID,
            AT,
            &summary,
            |_, index| index == IndexId(1),
            &mut bytes,
        );
        let node = Node::decode(&UUID, AT, &bytes).unwrap();
        assert!(node.index(SourceId(1), IndexId(0)).is_none());
        assert_eq!(node.index(SourceId(1), IndexId(1)).unwrap().count, 0);
    }
}
