//! A view of the bytes in which a node describes one index. FORMAT.md specifies the layout under *index block*.
//!
//! `Node::decode` calls `parse` and `prove`; the accessors read accepted bytes and cannot fail.

use super::bytes::{FormatError, Pairs, array, i64_at, invalid, ones, u16_at, u32_at, u64_at};
use super::summary::{BinStats, IndexChild, TOP_VALUES, Top};
use crate::types::{IndexId, Key, Sum, Timestamp, ValueRange};

const INDEX_BLOCK_BYTES: usize = 56;
const CHILD_COLUMN_BYTES: usize = 40;
const BIN_STATS_BYTES: usize = 48;

pub(super) const FLAG_BINS: u16 = 1;
pub(super) const FLAG_BIN_STATS: u16 = 2;
pub(super) const FLAG_CHILDREN: u16 = 4;
pub(super) const FLAG_FLOAT: u16 = 8;

/// A node's description of one index.
#[derive(Debug, Clone, Copy)]
pub struct IndexBlock<'a> {
    pub index: IndexId,
    /// At 0 the index covers the node and holds no value in it.
    pub count: u64,
    pub sum: Sum,
    pub range: ValueRange,
    pub child_mask: u64,
    flags: u16,
    tops: &'a [u8],
    top_count: usize,
    columns: &'a [u8],
    masks: &'a [u8],
    stats: &'a [u8],
    bins: &'a [u8],
    bin_count: usize,
}

/// A bin that holds values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BinEntry {
    pub bin: u16,
    pub count: u64,
    /// The children with values in this bin, in a roll-up.
    pub mask: u64,
    pub stats: Option<BinStats>,
}

impl<'a> IndexBlock<'a> {
    /// Reads the block of an index; `prove` validates it.
    pub(super) fn parse(
        index: IndexId,
        block: &'a [u8],
        rollup: bool,
    ) -> Result<Self, FormatError> {
        if block.is_empty() {
            let empty: &[u8] = &[];
            return Ok(Self {
                index,
                count: 0,
                sum: Sum::Int(0),
                range: ValueRange::EMPTY,
                child_mask: 0,
                flags: 0,
                tops: empty,
                top_count: 0,
                columns: empty,
                masks: empty,
                stats: empty,
                bins: empty,
                bin_count: 0,
            });
        }
        let Some((_, mut rest)) = block.split_at_checked(INDEX_BLOCK_BYTES) else {
            return short(block.len(), INDEX_BLOCK_BYTES);
        };
        // A block without values has no bytes.
        if u64_at(block, 0) == 0 {
            return invalid(
                "the length of an index block without values",
                block.len() as u64,
            );
        }
        let flags = u16_at(block, 40);
        let (top_count, bin_count) = (usize::from(u16_at(block, 42)), u32_at(block, 44) as usize);
        let child_mask = u64_at(block, 48);
        let has = |flag| flags & flag != 0;
        let children = child_mask.count_ones() as usize;
        let lengths = [
            (top_count * 12).next_multiple_of(8),
            if has(FLAG_CHILDREN) {
                children * CHILD_COLUMN_BYTES
            } else {
                0
            },
            if rollup {
                bin_count.saturating_mul(8)
            } else {
                0
            },
            if has(FLAG_BIN_STATS) {
                bin_count.saturating_mul(BIN_STATS_BYTES)
            } else {
                0
            },
        ];
        let mut parts = [block; 4];
        for (part, length) in parts.iter_mut().zip(lengths) {
            let Some((front, back)) = rest.split_at_checked(length) else {
                return short(rest.len(), length);
            };
            (*part, rest) = (front, back);
        }
        let [tops, columns, masks, stats] = parts;
        Ok(Self {
            index,
            count: u64_at(block, 0),
            sum: sum_at(block, 8, has(FLAG_FLOAT)),
            range: ValueRange {
                min: Key(u64_at(block, 24)),
                max: Key(u64_at(block, 32)),
            },
            child_mask,
            flags,
            tops,
            top_count,
            columns,
            masks,
            stats,
            bins: rest,
            bin_count,
        })
    }

    /// Reports whether `bins` holds every value. Without bins a reader must open the node.
    pub fn has_bins(&self) -> bool {
        self.count == 0 || self.flags & FLAG_BINS != 0
    }

    /// Reports whether `bins` holds every value with statistics for each bin.
    pub fn has_bin_stats(&self) -> bool {
        self.count == 0 || self.flags & FLAG_BINS != 0 && self.flags & FLAG_BIN_STATS != 0
    }

    /// Reports whether `children` describes every child in the mask.
    pub fn has_children(&self) -> bool {
        self.count == 0 || self.flags & FLAG_CHILDREN != 0
    }

    /// Returns the greatest values, greatest first.
    pub fn tops(&self) -> impl Iterator<Item = Top> + use<'a> {
        let (tops, count) = (self.tops, self.top_count);
        (0..count).map(move |i| Top {
            key: Key(u64_at(tops, i * 8)),
            offset: u32_at(tops, count * 8 + i * 4),
        })
    }

    /// Returns the bins in ascending order; none where the node keeps none.
    pub fn bins(&self) -> impl Iterator<Item = BinEntry> + use<'a> {
        let (block, mut bin) = (*self, 0u64);
        Pairs::new(self.bins, self.bin_count)
            .enumerate()
            .map(move |(i, [step, count])| {
                bin += step;
                BinEntry {
                    bin: bin as u16,
                    count,
                    mask: block.mask(i),
                    stats: block.bin_stats(i),
                }
            })
    }

    /// Returns the children with values in ascending order, for a roll-up with columns.
    pub fn children(&self) -> impl Iterator<Item = IndexChild> + use<'a> {
        let (columns, float) = (self.columns, self.is_float());
        let mask = if self.has_children() {
            self.child_mask
        } else {
            0
        };
        let count = mask.count_ones() as usize;
        ones(mask).enumerate().map(move |(i, child)| IndexChild {
            child,
            count: u64_at(columns, i * 8),
            min: Key(u64_at(columns, (count + i) * 8)),
            max: Key(u64_at(columns, (2 * count + i) * 8)),
            sum: sum_at(columns, 3 * count * 8 + i * 16, float),
        })
    }

    /// Returns 0 for a chunk, because it has no children.
    fn mask(&self, ordinal: usize) -> u64 {
        if self.masks.is_empty() {
            0
        } else {
            u64_at(self.masks, ordinal * 8)
        }
    }

    fn is_float(&self) -> bool {
        self.flags & FLAG_FLOAT != 0
    }

    fn bin_stats(&self, ordinal: usize) -> Option<BinStats> {
        let at = ordinal * BIN_STATS_BYTES;
        (self.flags & FLAG_BIN_STATS != 0).then(|| BinStats {
            sum: sum_at(self.stats, at, self.is_float()),
            min: Key(u64_at(self.stats, at + 16)),
            max: Key(u64_at(self.stats, at + 24)),
            first_ts: Timestamp(i64_at(self.stats, at + 32)),
            last_ts: Timestamp(i64_at(self.stats, at + 40)),
        })
    }

    /// Checks that the numbers agree.
    pub(super) fn prove(&self) -> Result<(), FormatError> {
        if self.count == 0 {
            return Ok(());
        }
        if self.range.is_empty() {
            return invalid("the extremes of an index block", self.range.min.0);
        }
        if self.top_count > TOP_VALUES || self.tops().any(|top| !self.range.contains(top.key)) {
            return invalid(
                "the greatest values of an index block",
                self.top_count as u64,
            );
        }
        if self
            .tops()
            .zip(self.tops().skip(1))
            .any(|(a, b)| a.key < b.key)
        {
            return invalid("the order of greatest values", self.top_count as u64);
        }
        if self.flags & FLAG_BINS == 0 {
            return if self.bin_count == 0 {
                Ok(())
            } else {
                invalid(
                    "the number of bins without the flag for bins",
                    self.bin_count as u64,
                )
            };
        }
        let (mut bins, mut bin, mut total) = (0, 0u64, 0u64);
        for [step, count] in Pairs::new(self.bins, self.bin_count) {
            bin = bin.saturating_add(step);
            total = total.saturating_add(count);
            if bin > u64::from(u16::MAX) || count == 0 || (step == 0 && bins > 0) {
                return invalid("a bin", bin);
            }
            bins += 1;
        }
        if bins < self.bin_count {
            return Err(FormatError::Short {
                what: "the bins of an index",
                have: bins,
                need: self.bin_count,
            });
        }
        if total != self.count {
            return invalid("the total of the bins", total);
        }
        let counted = self
            .children()
            .fold(0u64, |sum, child| sum.saturating_add(child.count));
        if self.child_mask != 0 && self.has_children() && counted != self.count {
            return invalid("the total of the children", counted);
        }
        Ok(())
    }
}

fn short<T>(have: usize, need: usize) -> Result<T, FormatError> {
    let what = "an index block";
    Err(FormatError::Short { what, have, need })
}

fn sum_at(bytes: &[u8], at: usize, float: bool) -> Sum {
    if float {
        let [sum, compensation] = [at, at + 8].map(|at| f64::from_bits(u64_at(bytes, at)));
        Sum::Float { sum, compensation }
    } else {
        Sum::Int(i128::from_le_bytes(array(bytes, at)))
    }
}
