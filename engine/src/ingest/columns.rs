//! Summarises the values of one index in a chunk, held as columns: a few tight loops, each over the whole column.
//!
//! Scratch memory is reused, so a chunk costs no allocation. The tests compare every loop with a naive form of it.

use crate::format::{Bin, BinStats, IndexSummary, TOP_VALUES, Top};
use crate::proven::{at, at_mut};
use crate::schema::{BinMap, Index};
use crate::types::{Key, Sum, Timestamp, ValueRange};

/// Bins are 16-bit numbers.
const BINS: usize = 1 << 16;
/// The number of keys whose extremes are compared together.
const BLOCK_KEYS: usize = 32;
/// Bins are searched one by one if there are at most this many for each value.
const BINS_EACH: usize = 4;

#[derive(Default)]
pub struct Columns {
    keys: Vec<Key>,
    /// For each key, the number of the record that holds it; empty if every record has a key.
    holders: Vec<u32>,
    /// The bin of each key.
    bins: Vec<u16>,
    /// Counts by bin; zero between uses, and empty before the first use.
    counts: Vec<u32>,
    /// A bit for each bin; zero between uses.
    counted: Vec<u64>,
    stats: Vec<Option<BinStats>>,
}

impl Columns {
    pub fn clear(&mut self) {
        self.keys.clear();
        self.holders.clear();
    }

    /// The keys, to be filled with one for every record.
    pub fn keys(&mut self) -> &mut Vec<Key> {
        &mut self.keys
    }

    /// Adds a key that not every record has; `holder` is the number of the record that has it, from 0.
    #[inline]
    pub fn push(&mut self, holder: u32, key: Key) {
        self.keys.push(key);
        self.holders.push(holder);
    }

    /// Fills `out`. `offset_of` gives the place of a record in its chunk, `ts_of` its `ts`, which is needed where bins are not `auto`.
    pub fn summarise(
        &mut self,
        index: &Index,
        out: &mut IndexSummary,
        offset_of: impl Fn(u32) -> u32,
        ts_of: impl Fn(u32) -> Timestamp,
    ) {
        out.reset(index.id);
        out.count = self.keys.len() as u64;
        out.sum = Sum::of_keys(index.kind, &self.keys);
        out.range = self.keep_greatest(&mut out.tops);
        for top in &mut out.tops {
            top.offset = offset_of(self.holder(top.offset));
        }
        self.count(&index.bins);
        if !index.bins.is_auto() {
            self.gather_stats(index, ts_of);
        }
        self.take_bins(&index.bins, out);
    }

    /// The record that holds the n-th key.
    #[inline]
    fn holder(&self, nth: u32) -> u32 {
        if self.holders.is_empty() {
            return nth;
        }
        *at(&self.holders, nth as usize)
    }

    /// Keeps the greatest values in descending order, with their numbers as offsets; of equal values, the first ones. Returns the extremes.
    ///
    /// Few values are ever among the greatest so far, so a block is examined only if its greatest value is.
    fn keep_greatest(&self, tops: &mut Vec<Top>) -> ValueRange {
        let mut all = ValueRange::EMPTY;
        for (number, block) in self.keys.chunks(BLOCK_KEYS).enumerate() {
            let extremes = extremes(block);
            all.min = all.min.min(extremes.min);
            all.max = all.max.max(extremes.max);
            let mut least = tops.get(TOP_VALUES - 1).map(|top| top.key);
            if least.is_some_and(|least| extremes.max <= least) {
                continue;
            }
            for (nth, key) in (number * BLOCK_KEYS..).zip(block) {
                if least.is_none_or(|least| *key > least) {
                    keep(tops, *key, nth as u32);
                    least = tops.get(TOP_VALUES - 1).map(|top| top.key);
                }
            }
        }
        all
    }

    fn count(&mut self, bins: &BinMap) {
        self.bins.clear();
        bins.load_bins(&self.keys, &mut self.bins);
        self.counts.resize(BINS, 0);
        // An array of known length needs no bounds check for each bin.
        let counts = self.counts.first_chunk_mut::<BINS>();
        let counts = counts.expect("it was just made as long");
        for bin in &self.bins {
            *at_mut(counts, usize::from(*bin)) += 1;
        }
    }

    fn gather_stats(&mut self, index: &Index, ts_of: impl Fn(u32) -> Timestamp) {
        if self.stats.len() < index.bins.len() {
            self.stats.resize(index.bins.len(), None);
        }
        for (nth, (key, bin)) in (0u32..).zip(self.keys.iter().zip(&self.bins)) {
            let (key, ts) = (*key, ts_of(self.holder(nth)));
            let stats = at_mut(&mut self.stats, usize::from(*bin)).get_or_insert(BinStats {
                sum: Sum::zero(index.kind),
                min: key,
                max: key,
                first_ts: ts,
                last_ts: ts,
            });
            stats.sum.add_key(index.kind, key);
            stats.min = stats.min.min(key);
            stats.max = stats.max.max(key);
            stats.first_ts = stats.first_ts.min(ts);
            stats.last_ts = stats.last_ts.max(ts);
        }
    }

    /// Moves the counted bins into `out`, ascending, and clears the scratch. All of them lie between the bins of the extremes.
    fn take_bins(&mut self, bins: &BinMap, out: &mut IndexSummary) {
        if out.range.is_empty() {
            return;
        }
        let [first, last] = [out.range.min, out.range.max].map(|key| usize::from(bins.bin(key)));
        if last - first <= BINS_EACH * self.keys.len() {
            let counts = at_mut(&mut self.counts, first..=last);
            out.bins.reserve(counts.len());
            for (bin, count) in (first..).zip(counts) {
                take_bin(bin, count, &mut out.bins);
            }
        } else {
            self.take_scattered_bins(&mut out.bins);
        }
        if !bins.is_auto() {
            out.bin_stats.extend(out.bins.iter().map(|bin| {
                let stats = at_mut(&mut self.stats, usize::from(bin.bin)).take();
                stats.expect("a bin that was counted has statistics")
            }));
        }
    }

    /// `take_bins` for a few bins in a wide range.
    fn take_scattered_bins(&mut self, out: &mut Vec<Bin>) {
        self.counted.resize(BINS / 64, 0);
        let (mut first, mut last) = (BINS / 64, 0);
        for bin in &self.bins {
            let at = usize::from(bin / 64);
            (first, last) = (first.min(at), last.max(at));
            *at_mut(&mut self.counted, at) |= 1 << (bin % 64);
        }
        let words = at_mut(&mut self.counted, first..=last);
        for (at, word) in (first..).zip(words) {
            while *word != 0 {
                let bin = at * 64 + word.trailing_zeros() as usize;
                take_bin(bin, at_mut(&mut self.counts, bin), out);
                *word &= *word - 1;
            }
        }
    }
}

#[inline]
fn take_bin(bin: usize, count: &mut u32, out: &mut Vec<Bin>) {
    if *count > 0 {
        out.push(Bin {
            bin: bin as u16,
            count: std::mem::take(count).into(),
            mask: 0,
        });
    }
}

/// Inserts a value among the greatest. Those behind it move on by one, and the last is dropped.
#[inline]
fn keep(tops: &mut Vec<Top>, key: Key, nth: u32) {
    let mut moving = Top { key, offset: nth };
    let mut found = false;
    for top in tops.iter_mut() {
        found |= moving.key > top.key;
        if found {
            std::mem::swap(top, &mut moving);
        }
    }
    if tops.len() < TOP_VALUES {
        tops.push(moving);
    }
}

/// The least and the greatest key. Four are compared at a time, so that no comparison waits for the one before it.
#[inline]
fn extremes(keys: &[Key]) -> ValueRange {
    let (quads, rest) = keys.as_chunks::<4>();
    let mut lanes = [ValueRange::EMPTY; 4];
    for quad in quads {
        for (lane, key) in lanes.iter_mut().zip(quad) {
            lane.min = lane.min.min(*key);
            lane.max = lane.max.max(*key);
        }
    }
    let rest = rest.iter().map(|key| ValueRange {
        min: *key,
        max: *key,
    });
    lanes
        .into_iter()
        .chain(rest)
        .fold(ValueRange::EMPTY, |all, lane| ValueRange {
            min: all.min.min(lane.min),
            max: all.max.max(lane.max),
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::schema::{BinsDef, Catalog, IndexDef, SourceDef, parse_sources};
    use crate::types::{Address, ValueKind};

    /// An index of each kind of value, with `auto` bins and with edges.
    fn indexes() -> Vec<Arc<Index>> {
        let mut text = "[[source]]\nname = 's'\n".to_owned();
        for ty in ["u64", "i64", "f64"] {
            text += &format!("[[source.field]]\nname = '{ty}'\ntype = '{ty}'\n");
        }
        let defs: Vec<SourceDef> = parse_sources(&text).unwrap();
        let mut catalog = Catalog::default();
        let (source, _) = catalog.define_source(&defs[0], Address(0)).unwrap();
        for ty in ["u64", "i64", "f64"] {
            let edges: BinsDef = serde_json::from_str("[0, 5, 70, 1000000]").unwrap();
            for (name, bins) in [("auto", BinsDef::Auto), ("edges", edges)] {
                let def = IndexDef {
                    bins,
                    ..IndexDef::new(format!("{ty}_{name}"), Some(ty))
                };
                catalog.define_index(source, &def, Address(0)).unwrap();
            }
        }
        catalog.source(source).unwrap().indexes.clone()
    }

    /// The expected result of `summarise`, made with sorted copies and maps.
    fn naive(index: &Index, held: &[(u32, Key)]) -> IndexSummary {
        let mut out = IndexSummary::default();
        out.reset(index.id);
        out.count = held.len() as u64;
        out.sum = Sum::zero(index.kind);
        held.iter()
            .for_each(|(_, key)| out.sum.add_key(index.kind, *key));
        if let (Some(min), Some(max)) = (
            held.iter().map(|held| held.1).min(),
            held.iter().map(|held| held.1).max(),
        ) {
            out.range = ValueRange { min, max };
        }
        let mut descending = held.to_vec();
        descending.sort_by_key(|held| std::cmp::Reverse(held.1));
        out.tops = descending
            .iter()
            .take(TOP_VALUES)
            .map(|(holder, key)| Top {
                key: *key,
                offset: offset_of(*holder),
            })
            .collect();
        let mut bins: BTreeMap<u16, (u64, BinStats)> = BTreeMap::new();
        for (holder, key) in held {
            let ts = ts_of(*holder);
            let (count, stats) = bins.entry(index.bins.bin(*key)).or_insert((
                0,
                BinStats {
                    sum: Sum::zero(index.kind),
                    min: Key::MAX,
                    max: Key::MIN,
                    first_ts: Timestamp::MAX,
                    last_ts: Timestamp::MIN,
                },
            ));
            *count += 1;
            stats.sum.add_key(index.kind, *key);
            (stats.min, stats.max) = (stats.min.min(*key), stats.max.max(*key));
            (stats.first_ts, stats.last_ts) = (stats.first_ts.min(ts), stats.last_ts.max(ts));
        }
        for (bin, (count, stats)) in bins {
            out.bins.push(Bin {
                bin,
                count,
                mask: 0,
            });
            if !index.bins.is_auto() {
                out.bin_stats.push(stats);
            }
        }
        out
    }

    fn offset_of(holder: u32) -> u32 {
        8 + 56 * holder
    }

    fn ts_of(holder: u32) -> Timestamp {
        Timestamp(i64::from(holder % 7) - 3)
    }

    fn key(kind: ValueKind, bits: u64) -> Key {
        match kind {
            ValueKind::Unsigned => Key::from_u64(bits),
            ValueKind::Signed => Key::from_i64(bits as i64),
            ValueKind::Float => Key::from_f64(f64::from_bits(bits)),
        }
    }

    /// Values that are near one another, far apart, mostly alike, or ascending.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let one = prop_oneof![
            0..9u64,
            1000..2000u64,
            any::<u64>(),
            Just(f64::to_bits(2.5))
        ];
        prop_oneof![
            prop::collection::vec(one, 0..200),
            prop::collection::vec(100..200u64, 0..300),
            (0..300u64).prop_map(|end| (0..end).collect()),
        ]
    }

    proptest! {
        #[test]
        fn a_summary_says_what_a_naive_one_says(all in prop::collection::vec((values(), any::<bool>()), 1..6)) {
            let mut columns = Columns::default();
            for index in indexes() {
                for (values, sparse) in &all {
                    let held: Vec<_> = values
                        .iter()
                        .enumerate()
                        .map(|(nth, bits)| (nth as u32 * if *sparse { 2 } else { 1 }, key(index.kind, *bits)))
                        .collect();
                    columns.clear();
                    for (holder, key) in &held {
                        if *sparse {
                            columns.push(*holder, *key);
                        } else {
                            columns.keys().push(*key);
                        }
                    }
                    let mut found = IndexSummary::default();
                    columns.summarise(&index, &mut found, offset_of, ts_of);
                    let expected = naive(&index, &held);
                    // Compared as text, because NaN does not equal NaN.
                    prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
                }
            }
        }
    }
}
