//! Adds a node to its roll-up: counts, extremes and sums add up; bins merge and remember which child holds them.
//!
//! A roll-up is made from complete summaries, never from the part that a summary's bytes keep, so nothing is missing in it.

use crate::format::{
    Bin, BinStats, ChildStats, FANOUT, IndexChild, IndexSummary, NodeSummary, SourceSummary,
};
use crate::proven::{at, at_mut};
use crate::types::{Key, ValueRange};

/// Merges bins, and reuses the memory of its lists.
#[derive(Default)]
pub struct Merger {
    /// Bins of a child that are missing from its parent.
    bins: Vec<Bin>,
    stats: Vec<BinStats>,
}

impl Merger {
    /// Adds `node`, the `child`-th of its 64 siblings. Children come in ascending order, each once.
    pub fn add_child(&mut self, rollup: &mut NodeSummary, child: u8, node: &NodeSummary) {
        rollup.records += node.records;
        rollup.missing_chunks = rollup.missing_chunks.saturating_add(node.missing_chunks);
        rollup.first_arrival = rollup.first_arrival.min(node.first_arrival);
        rollup.last_arrival = rollup.last_arrival.max(node.last_arrival);
        // Both lists ascend. New sources are appended and then sorted once, because there may be tens of thousands.
        let known = rollup.sources.len();
        let mut place = 0;
        for source in node.sources.iter() {
            let rest = at(&rollup.sources, place..known);
            place += rest.partition_point(|parent| parent.source < source.source);
            let is_known = (rollup.sources.get(place..known))
                .and_then(|rest| rest.first())
                .is_some_and(|parent| parent.source == source.source);
            let parent = if is_known {
                at_mut(&mut rollup.sources, place)
            } else {
                let parent = rollup.sources.push();
                parent.reset(source.source, source.own_time);
                parent.previous_chunk = source.previous_chunk;
                parent.first = child.into();
                parent
            };
            self.add_source(parent, child, source);
        }
        if rollup.sources.len() > known {
            rollup.sources.sort_by_key(|parent| parent.source);
        }
    }

    /// Passes over a child that does not exist because none of its chunks has a summary.
    pub fn pass_child(&self, rollup: &mut NodeSummary) {
        let below = u32::from(rollup.level).saturating_sub(1);
        let chunks = u32::try_from(FANOUT.saturating_pow(below)).unwrap_or(u32::MAX);
        rollup.missing_chunks = rollup.missing_chunks.saturating_add(chunks);
    }

    fn add_source(&mut self, parent: &mut SourceSummary, child: u8, source: &SourceSummary) {
        parent.records += source.records;
        parent.bytes += source.bytes;
        parent.first_arrival = parent.first_arrival.min(source.first_arrival);
        parent.last_arrival = parent.last_arrival.max(source.last_arrival);
        parent.first_ts = parent.first_ts.min(source.first_ts);
        parent.last_ts = parent.last_ts.max(source.last_ts);
        parent.last = child.into();
        parent.child_mask |= 1 << child;
        let (first_ts, last_ts) = (source.first_ts, source.last_ts);
        parent.children.push(ChildStats {
            child,
            records: source.records,
            first_ts,
            last_ts,
        });
        for index in source.indexes.iter() {
            let merged = parent.indexes.entry(
                |merged| merged.index.cmp(&index.index),
                |merged| {
                    merged.reset(index.index);
                    merged.sum = index.sum.zero_alike();
                },
            );
            self.add_index(merged, child, index);
        }
    }

    fn add_index(&mut self, parent: &mut IndexSummary, child: u8, index: &IndexSummary) {
        if index.count == 0 {
            return;
        }
        if parent.count == 0 {
            // An empty index that was read back from bytes does not know whether it sums floats.
            parent.sum = index.sum.zero_alike();
        }
        parent.count += index.count;
        parent.sum.merge(&index.sum);
        parent.range = hull(parent.range, index.range);
        parent.child_mask |= 1 << child;
        let (count, sum) = (index.count, index.sum);
        let ValueRange { min, max } = index.range;
        parent.children.push(IndexChild {
            child,
            count,
            min,
            max,
            sum,
        });
        self.merge_bins(parent, 1 << child, index);
    }

    /// Merges the ascending bins of a child into the parent's. Most are soon in the parent and are added to in place; new ones are gathered
    /// and merged in at the end.
    fn merge_bins(&mut self, parent: &mut IndexSummary, child_bit: u64, index: &IndexSummary) {
        self.bins.clear();
        self.stats.clear();
        // A node that was read back may have no statistics. A parent has statistics of all its bins or of none.
        let has_stats = has_stats(parent) && has_stats(index);
        if !has_stats {
            parent.bin_stats.clear();
        }
        let mut place = 0;
        for (ordinal, new) in index.bins.iter().enumerate() {
            place += below(at(&parent.bins, place..), new.bin);
            let known = parent
                .bins
                .get_mut(place)
                .filter(|known| known.bin == new.bin);
            let stats = has_stats.then(|| at(&index.bin_stats, ordinal));
            match known {
                Some(known) => {
                    known.count += new.count;
                    known.mask |= child_bit;
                    if let Some(stats) = stats {
                        add_stats(at_mut(&mut parent.bin_stats, place), stats);
                    }
                    place += 1;
                }
                None => {
                    self.bins.push(Bin {
                        mask: child_bit,
                        ..*new
                    });
                    self.stats.extend(stats);
                }
            }
        }
        if !self.bins.is_empty() {
            self.merge_new_bins(parent);
        }
    }

    /// Merges bins that are new to the parent into its list, from the greatest down, so that each is moved once.
    fn merge_new_bins(&mut self, parent: &mut IndexSummary) {
        let mut old = parent.bins.len();
        let mut place = old + self.bins.len();
        let blank = Bin {
            bin: 0,
            count: 0,
            mask: 0,
        };
        parent.bins.resize(place, blank);
        if let Some(any) = self.stats.first() {
            parent.bin_stats.resize(place, *any);
        }
        while let Some(new) = self.bins.last().copied() {
            place -= 1;
            let below = old.checked_sub(1).and_then(|old| parent.bins.get(old));
            if let Some(bin) = below.filter(|bin| bin.bin > new.bin).copied() {
                old -= 1;
                *at_mut(&mut parent.bins, place) = bin;
                if !parent.bin_stats.is_empty() {
                    parent.bin_stats.copy_within(old..=old, place);
                }
            } else {
                *at_mut(&mut parent.bins, place) = new;
                self.bins.pop();
                if let Some(stats) = self.stats.pop() {
                    *at_mut(&mut parent.bin_stats, place) = stats;
                }
            }
        }
    }
}

/// Counts the bins of an ascending list below `bin`, which is near its start. Four are compared at a time, because the number is hard for
/// the processor to predict when each chunk holds only a part of the source's bins.
#[inline]
fn below(bins: &[Bin], bin: u16) -> usize {
    if bins.first().is_none_or(|first| first.bin >= bin) {
        return 0;
    }
    let (fours, rest) = bins.as_chunks::<4>();
    let mut below = 0;
    for four in fours {
        let passed = four.iter().filter(|other| other.bin < bin).count();
        below += passed;
        if passed < 4 {
            return below;
        }
    }
    below + rest.iter().filter(|other| other.bin < bin).count()
}

/// Whether each bin has statistics; true if there is no bin.
fn has_stats(index: &IndexSummary) -> bool {
    index.bin_stats.len() == index.bins.len()
}

fn hull(a: ValueRange, b: ValueRange) -> ValueRange {
    ValueRange {
        min: Key(a.min.0.min(b.min.0)),
        max: Key(a.max.0.max(b.max.0)),
    }
}

fn add_stats(stats: &mut BinStats, other: &BinStats) {
    stats.sum.merge(&other.sum);
    stats.min = stats.min.min(other.min);
    stats.max = stats.max.max(other.max);
    stats.first_ts = stats.first_ts.min(other.first_ts);
    stats.last_ts = stats.last_ts.max(other.last_ts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{IndexId, SourceId, Sum, Timestamp};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A chunk of one source and one index whose values are their own bins.
    fn chunk(values: &[u16], time: i64) -> NodeSummary {
        let mut node = NodeSummary::new(0);
        node.records = values.len() as u64;
        if values.is_empty() {
            return node;
        }
        let source = node.sources.push();
        source.reset(SourceId(1), false);
        source.records = values.len() as u64;
        (source.first_ts, source.last_ts) = (Timestamp(time), Timestamp(time + 1));
        let index = source.indexes.push();
        index.reset(IndexId(5));
        let mut counts = BTreeMap::<u16, u64>::new();
        values
            .iter()
            .for_each(|value| *counts.entry(*value).or_default() += 1);
        for (bin, count) in counts {
            let key = Key(bin.into());
            let sum = Sum::Int(i128::from(bin) * i128::from(count));
            let (first_ts, last_ts) = (Timestamp(time), Timestamp(time + 1));
            index.bins.push(Bin {
                bin,
                count,
                mask: 0,
            });
            index.bin_stats.push(BinStats {
                sum,
                min: key,
                max: key,
                first_ts,
                last_ts,
            });
            index.count += count;
            index.sum.merge(&sum);
            index.range = hull(index.range, ValueRange { min: key, max: key });
        }
        node
    }

    #[test]
    fn a_rollup_has_statistics_of_all_its_bins_or_of_none() {
        let mut bare = chunk(&[3, 5], 1);
        bare.sources[0].indexes[0].bin_stats.clear();
        let with = |values: &[u16]| chunk(values, 2);
        for children in [
            [with(&[4]), bare.clone(), with(&[3, 4, 9])],
            [bare.clone(), with(&[4]), with(&[3])],
            [with(&[3, 5]), with(&[9]), bare],
        ] {
            let mut rollup = NodeSummary::new(1);
            let mut merger = Merger::default();
            for (child, node) in (0u8..).zip(&children) {
                merger.add_child(&mut rollup, child, node);
            }
            let index = &rollup.sources[0].indexes[0];
            assert!(index.bin_stats.is_empty(), "{:?}", index.bin_stats);
            let binned: u64 = index.bins.iter().map(|bin| bin.count).sum();
            assert_eq!(binned, index.count);
        }
    }

    proptest! {
        #[test]
        fn a_rollup_is_the_sum_of_its_children(children in prop::collection::vec(prop::collection::vec(0u16..20, 0..9), 1..64)) {
            let mut rollup = NodeSummary::new(1);
            let mut merger = Merger::default();
            for (child, values) in children.iter().enumerate() {
                merger.add_child(&mut rollup, child as u8, &chunk(values, child as i64));
            }
            let all: Vec<u16> = children.concat();
            prop_assert_eq!(rollup.records, all.len() as u64);
            let Some(source) = rollup.sources.first() else {
                prop_assert!(all.is_empty());
                return Ok(());
            };
            let held: Vec<usize> = (0..children.len()).filter(|child| !children[*child].is_empty()).collect();
            prop_assert_eq!(source.children.iter().map(|c| usize::from(c.child)).collect::<Vec<_>>(), held);
            let index = &source.indexes[0];
            prop_assert_eq!(index.count, all.len() as u64);
            prop_assert_eq!(index.sum, Sum::Int(all.iter().map(|v| i128::from(*v)).sum()));
            prop_assert_eq!(index.bins.len(), index.bin_stats.len());
            for (bin, stats) in index.bins.iter().zip(&index.bin_stats) {
                prop_assert_eq!(bin.count, all.iter().filter(|value| **value == bin.bin).count() as u64);
                let mask = (0..children.len()).filter(|c| children[*c].contains(&bin.bin)).fold(0u64, |m, c| m | 1 << c);
                prop_assert_eq!(bin.mask, mask);
                prop_assert_eq!(stats.first_ts.0, i64::from(mask.trailing_zeros()));
                prop_assert_eq!(stats.last_ts.0, 64 - i64::from(mask.leading_zeros()));
            }
            prop_assert!(index.bins.is_sorted_by_key(|bin| bin.bin));
        }
    }
}
