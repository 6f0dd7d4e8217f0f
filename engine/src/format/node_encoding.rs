//! Encodes a node of the chunk index. `node.rs` decodes it; FORMAT.md specifies the layout under *Chunk index*.
//!
//! Only this file decides what a summary omits: bins of rare sources and statistics of the rarest.

use super::bytes::{pad8, put_pairs};
use super::checksum::checksum;
use super::index_block::{FLAG_BIN_STATS, FLAG_BINS, FLAG_CHILDREN, FLAG_FLOAT};
use super::narrow::{NARROW_SOURCES, TABLE_BYTES, put_columns};
use super::node::{INDEX_ENTRY_BYTES, MAGIC, NARROW_MAGIC, NODE_HEADER_BYTES, SOURCE_ENTRY_BYTES};
use super::summary::{BinStats, IndexSummary, NodeSummary, SourceSummary};
use crate::proven;
use crate::types::{Address, IndexId, LogKind, SourceId, Sum};

/// A source with fewer records in a chunk has no index entries in its summary.
const STATISTICS_RECORDS_MIN: u64 = 4;
/// A source with fewer records in a chunk has no bins in its summary.
const BINS_RECORDS_MIN: u64 = 32;
/// A roll-up keeps columns of its children for an index with at least this many values for each child.
const CHILD_COLUMNS_VALUES_MIN: u64 = 4;

/// Appends the bytes of a node at `address` of the chunk index to `out`, which must be empty.
///
/// `covers` reports whether an index covered every chunk of the node. Other indexes get no entry in a roll-up.
pub fn encode_node(
    uuid: &[u8; 16],
    address: Address,
    node: &NodeSummary,
    covers: impl Fn(SourceId, IndexId) -> bool,
    out: &mut Vec<u8>,
) {
    let rollup = node.level > 0;
    let is_described = |source: &SourceSummary, index: &IndexSummary| {
        if rollup {
            covers(source.source, index.index)
        } else {
            source.records >= STATISTICS_RECORDS_MIN
        }
    };
    let entries = || {
        node.sources
            .iter()
            .flat_map(|source| source.indexes.iter().map(move |index| (source, index)))
            .filter(|(source, index)| is_described(source, index))
    };
    put_header(out, node, entries().count());
    let sources_at = out.len();
    let is_narrow = node.sources.len() >= NARROW_SOURCES;
    let sources_bytes = match is_narrow {
        true => TABLE_BYTES,
        false => node.sources.len() * SOURCE_ENTRY_BYTES,
    };
    out.resize(sources_at + sources_bytes, 0);
    let indexes_at = out.len();
    out.resize(indexes_at + entries().count() * INDEX_ENTRY_BYTES, 0);

    if is_narrow {
        put_columns(node, sources_at, out);
    } else {
        put_sources(node, sources_at, out);
    }
    let mut at = indexes_at;
    for (source, index) in entries() {
        let block_at = out.len();
        if index.count > 0 {
            let bins = if rollup {
                has_bins_of_all(index)
            } else {
                source.records >= BINS_RECORDS_MIN
            };
            put_index_block(out, index, rollup, bins);
        }
        let mut entry = [0u8; INDEX_ENTRY_BYTES];
        let place = (block_at as u64) | ((out.len() - block_at) as u64) << 32;
        let words = [
            u64::from(source.source.0) | u64::from(index.index.0) << 32,
            place,
        ];
        for (slot, word) in entry.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        overwrite(out, at, &entry);
        at += INDEX_ENTRY_BYTES;
    }
    let length = out.len() as u32;
    overwrite(out, 8, &length.to_le_bytes());
    let sum = checksum(uuid, LogKind::Chunks, address, proven::at(out, 8..));
    overwrite(out, 4, &sum.to_le_bytes());
}

/// Writes the entries of the source table at `at` and appends the bytes that they point to.
fn put_sources(node: &NodeSummary, mut at: usize, out: &mut Vec<u8>) {
    for source in node.sources.iter() {
        let columns_at = out.len() as u32;
        put_source_columns(out, source);
        let entry = source_entry(source, if node.level > 0 { columns_at } else { 0 });
        overwrite(out, at, &entry);
        at += SOURCE_ENTRY_BYTES;
    }
}

/// Reports whether every value is in a bin. Some are not where a damaged chunk's summary without bins replaced its records.
fn has_bins_of_all(index: &IndexSummary) -> bool {
    index.bins.iter().map(|bin| bin.count).sum::<u64>() == index.count
}

fn overwrite(out: &mut [u8], at: usize, bytes: &[u8]) {
    proven::at_mut(out, at..at + bytes.len()).copy_from_slice(bytes);
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_sum(out: &mut Vec<u8>, sum: &Sum) {
    match sum {
        Sum::Int(value) => out.extend_from_slice(&value.to_le_bytes()),
        Sum::Float { sum, compensation } => {
            put_u64(out, sum.to_bits());
            put_u64(out, compensation.to_bits());
        }
    }
}

fn put_header(out: &mut Vec<u8>, node: &NodeSummary, indexes: usize) {
    let is_narrow = node.sources.len() >= NARROW_SOURCES;
    put_u64(out, u64::from(if is_narrow { NARROW_MAGIC } else { MAGIC }));
    put_u64(
        out,
        u64::from(node.level) << 32 | (node.sources.len() as u64) << 48,
    );
    put_u64(out, node.first_chunk.0);
    put_u64(out, node.first_arrival.0 as u64);
    put_u64(out, node.last_arrival.0 as u64);
    put_u64(out, node.records);
    put_u64(out, indexes as u64 | u64::from(node.missing_chunks) << 32);
    debug_assert_eq!(out.len(), NODE_HEADER_BYTES);
}

fn source_entry(source: &SourceSummary, columns_at: u32) -> [u8; SOURCE_ENTRY_BYTES] {
    let words = [
        u64::from(source.source.0) | u64::from(source.own_time) << 16,
        source.records,
        source.first_arrival.0 as u64,
        source.last_arrival.0 as u64,
        source.first_ts.0 as u64,
        source.last_ts.0 as u64,
        source.previous_chunk.map_or(u64::MAX, |chunk| chunk.0),
        u64::from(source.first) | u64::from(source.last) << 32,
        source.child_mask,
        u64::from(columns_at),
        source.bytes,
    ];
    let mut entry = [0; SOURCE_ENTRY_BYTES];
    for (place, word) in entry.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    entry
}

fn put_source_columns(out: &mut Vec<u8>, source: &SourceSummary) {
    source
        .children
        .iter()
        .for_each(|child| put_u64(out, child.records));
    source
        .children
        .iter()
        .for_each(|child| put_u64(out, child.first_ts.0 as u64));
    source
        .children
        .iter()
        .for_each(|child| put_u64(out, child.last_ts.0 as u64));
}

fn put_index_block(out: &mut Vec<u8>, index: &IndexSummary, rollup: bool, bins: bool) {
    let columns = rollup
        && index.count >= CHILD_COLUMNS_VALUES_MIN * u64::from(index.child_mask.count_ones());
    let bin_stats = bins && !index.bin_stats.is_empty();
    let flag = |flag: u16, set: bool| if set { flag } else { 0 };
    let flags = flag(FLAG_BINS, bins)
        | flag(FLAG_BIN_STATS, bin_stats)
        | flag(FLAG_CHILDREN, columns)
        | flag(FLAG_FLOAT, matches!(index.sum, Sum::Float { .. }));
    let bin_count = if bins { index.bins.len() } else { 0 };
    put_u64(out, index.count);
    put_sum(out, &index.sum);
    put_u64(out, index.range.min.0);
    put_u64(out, index.range.max.0);
    put_u64(
        out,
        u64::from(flags) | (index.tops.len() as u64) << 16 | (bin_count as u64) << 32,
    );
    put_u64(out, index.child_mask);
    index.tops.iter().for_each(|top| put_u64(out, top.key.0));
    index
        .tops
        .iter()
        .for_each(|top| out.extend_from_slice(&top.offset.to_le_bytes()));
    pad8(out);
    if columns {
        index
            .children
            .iter()
            .for_each(|child| put_u64(out, child.count));
        index
            .children
            .iter()
            .for_each(|child| put_u64(out, child.min.0));
        index
            .children
            .iter()
            .for_each(|child| put_u64(out, child.max.0));
        index
            .children
            .iter()
            .for_each(|child| put_sum(out, &child.sum));
    }
    if rollup && bins {
        index.bins.iter().for_each(|bin| put_u64(out, bin.mask));
    }
    if bin_stats {
        index
            .bin_stats
            .iter()
            .for_each(|stats| put_bin_stats(out, stats));
    }
    if bins {
        let bins = index.bins.iter();
        let before = std::iter::once(0).chain(bins.clone().map(|bin| bin.bin));
        put_pairs(
            out,
            bins.zip(before)
                .map(|(bin, before)| [u64::from(bin.bin - before), bin.count]),
        );
        pad8(out);
    }
}

fn put_bin_stats(out: &mut Vec<u8>, stats: &BinStats) {
    put_sum(out, &stats.sum);
    put_u64(out, stats.min.0);
    put_u64(out, stats.max.0);
    put_u64(out, stats.first_ts.0 as u64);
    put_u64(out, stats.last_ts.0 as u64);
}
