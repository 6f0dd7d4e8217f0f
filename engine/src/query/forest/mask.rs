//! Evaluates a predicate over a node: which of its children may hold a match, and which hold only matches.
//!
//! AND intersects masks, OR joins them. A summary is treated as a node with one child, the chunk itself (bit 0), so that one algebra serves
//! every level. `may` has every child that holds a match; `all` has only children whose records all match.

use crate::format::{BinEntry, IndexBlock, Node, SourceStats};
use crate::query::predicate::Test;
use crate::query::value::Value;
use crate::schema::RangeSet;
use crate::types::{Key, Timestamp};

/// One bit for each child. `all` is a part of `may`, which is a part of the children that hold the source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Masks {
    pub may: u64,
    pub all: u64,
}

impl Masks {
    const NONE: Masks = Masks { may: 0, all: 0 };

    const fn both(mask: u64) -> Masks {
        Masks {
            may: mask,
            all: mask,
        }
    }

    const fn unknown(mask: u64) -> Masks {
        Masks { may: mask, all: 0 }
    }
}

/// A node, limited to one source.
pub(crate) struct NodeView<'a> {
    pub node: Node<'a>,
    pub stats: SourceStats<'a>,
}

impl<'a> NodeView<'a> {
    pub fn is_summary(&self) -> bool {
        self.node.level() == 0
    }

    /// The children that hold the source.
    pub fn held(&self) -> u64 {
        if self.is_summary() {
            1
        } else {
            self.stats.child_mask
        }
    }

    pub fn index(&self, value: &Value) -> Option<IndexBlock<'a>> {
        self.node.index(self.stats.source, value.id())
    }
}

impl Test {
    /// Evaluates the predicate over the children of a node.
    pub fn masks(&self, view: &NodeView<'_>) -> Masks {
        match self {
            Test::All => Masks::both(view.held()),
            Test::Nothing => Masks::NONE,
            Test::Time(times) => time_masks(times, view),
            Test::Value(value, keys) => match view.index(value) {
                Some(block) => key_masks(value, keys, &block, view),
                None => Masks::unknown(view.held()),
            },
            Test::Fields(_) => Masks::unknown(view.held()),
            Test::And(sides) => {
                let mut masks = Masks::both(view.held());
                for side in sides {
                    let side = side.masks(view);
                    masks.may &= side.may;
                    masks.all &= side.all;
                    if masks.may == 0 {
                        break;
                    }
                }
                masks
            }
            Test::Or(sides) => {
                let mut masks = Masks::NONE;
                for side in sides {
                    let side = side.masks(view);
                    masks.may |= side.may;
                    masks.all |= side.all;
                    if masks.all == view.held() {
                        break;
                    }
                }
                masks
            }
        }
    }

    /// The offsets in the chunk of every record that may match, if the kept greatest values name them all; else `None`.
    pub fn offsets(&self, view: &NodeView<'_>) -> Option<Vec<u32>> {
        match self {
            Test::All | Test::Time(_) | Test::Fields(_) => None,
            Test::Nothing => Some(Vec::new()),
            Test::Value(value, keys) => {
                let block = view.index(value)?;
                let (least, _) = keys.hull()?;
                tops_hold_from(&block, least).then(|| {
                    block
                        .tops()
                        .filter(|top| keys.contains(top.key))
                        .map(|top| top.offset)
                        .collect()
                })
            }
            Test::And(sides) => sides
                .iter()
                .filter_map(|side| side.offsets(view))
                .min_by_key(Vec::len),
            Test::Or(sides) => {
                let mut offsets = Vec::new();
                for side in sides {
                    offsets.extend(side.offsets(view)?);
                }
                Some(offsets)
            }
        }
    }
}

/// Whether every value of the chunk at or above `least` is among the kept greatest ones.
pub(crate) fn tops_hold_from(block: &IndexBlock<'_>, least: Key) -> bool {
    let (mut kept, mut lowest) = (0, Key::MAX);
    for top in block.tops() {
        kept += 1;
        lowest = top.key;
    }
    kept == block.count || (kept > 0 && lowest < least)
}

/// The children with a bin that overlaps the range. If the node keeps no bins, all children that hold a value.
pub(crate) fn bin_mask(value: &Value, keys: &RangeSet<Key>, block: &IndexBlock<'_>) -> u64 {
    let Some((least, greatest)) = keys.hull() else {
        return 0;
    };
    if !block.has_bins() {
        return block.child_mask;
    }
    let mut mask = 0;
    for entry in bins_of(value, keys, block, least, greatest) {
        mask |= entry.mask;
        if mask == block.child_mask {
            break;
        }
    }
    mask & block.child_mask
}

/// The bins with values that overlap `keys`, which reach from `least` to `greatest`.
fn bins_of<'a>(
    value: &'a Value,
    keys: &'a RangeSet<Key>,
    block: &IndexBlock<'a>,
    least: Key,
    greatest: Key,
) -> impl Iterator<Item = BinEntry> + 'a {
    let bins = value.bins();
    let (first, last) = (bins.bin(least), bins.bin(greatest));
    block
        .bins()
        .skip_while(move |entry| entry.bin < first)
        .take_while(move |entry| entry.bin <= last)
        // Every bin between the ends of a single range overlaps it.
        .filter(move |entry| {
            keys.is_one_range() || keys.overlaps(bins.lower(entry.bin), bins.upper(entry.bin))
        })
}

/// Whether a chunk may hold a value within the keys. The answer is exact if the kept greatest values decide it.
fn chunk_may_hold(value: &Value, keys: &RangeSet<Key>, block: &IndexBlock<'_>) -> bool {
    match keys.hull() {
        Some((least, _)) if tops_hold_from(block, least) => {
            block.tops().any(|top| keys.contains(top.key))
        }
        Some(_) => !block.has_bins() || holds_a_bin(value, keys, block),
        None => false,
    }
}

/// Whether the block counts a value in a bin that overlaps the keys. The block has bins.
pub(crate) fn holds_a_bin(value: &Value, keys: &RangeSet<Key>, block: &IndexBlock<'_>) -> bool {
    keys.hull().is_some_and(|(least, greatest)| {
        bins_of(value, keys, block, least, greatest)
            .next()
            .is_some()
    })
}

fn time_masks(times: &RangeSet<Timestamp>, view: &NodeView<'_>) -> Masks {
    let (first, last) = (view.stats.first_ts, view.stats.last_ts);
    if !times.overlaps(first, last) {
        return Masks::NONE;
    }
    if times.covers(first, last) {
        return Masks::both(view.held());
    }
    if view.is_summary() {
        return Masks::unknown(1);
    }
    let mut masks = Masks::NONE;
    for child in view.stats.children() {
        let bit = 1 << child.child;
        if times.overlaps(child.first_ts, child.last_ts) {
            masks.may |= bit;
            if times.covers(child.first_ts, child.last_ts) {
                masks.all |= bit;
            }
        }
    }
    masks
}

fn key_masks(
    value: &Value,
    keys: &RangeSet<Key>,
    block: &IndexBlock<'_>,
    view: &NodeView<'_>,
) -> Masks {
    let range = block.range;
    if block.count == 0 || !keys.overlaps(range.min, range.max) {
        return Masks::NONE;
    }
    let held = view.held();
    let whole = keys.covers(range.min, range.max);
    if view.is_summary() {
        return Masks {
            may: u64::from(whole || chunk_may_hold(value, keys, block)),
            all: u64::from(whole && block.count == view.stats.records),
        };
    }
    if whole && block.count == view.stats.records {
        return Masks::both(held & block.child_mask);
    }
    if !block.has_children() {
        return Masks::unknown(held & bin_mask(value, keys, block));
    }
    let (mut masks, mut sure) = (Masks::NONE, 0);
    let mut stats = view.stats.children();
    for child in block.children() {
        let bit = 1 << child.child;
        if held & bit == 0 || !keys.overlaps(child.min, child.max) {
            continue;
        }
        masks.may |= bit;
        if keys.contains(child.min) || keys.contains(child.max) {
            sure |= bit;
        }
        if keys.covers(child.min, child.max)
            && stats
                .find(|stats| stats.child >= child.child)
                .is_some_and(|stats| stats.child == child.child && stats.records == child.count)
        {
            masks.all |= bit;
        }
    }
    // Bins are not read if the extremes decide, as they do for most children of a threshold.
    if masks.may != sure {
        masks.may &= sure | bin_mask(value, keys, block);
    }
    masks
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::format::{Bin, ChildStats, IndexChild, NodeSummary, encode_node};
    use crate::query::Predicate;
    use crate::schema::{Catalog, Expr, parse_sources};
    use crate::types::{Address, ChunkNo, IndexId, SourceId, Sum, TimeRange, ValueRange};

    const UUID: [u8; 16] = [4; 16];

    /// Times and values of a child's records.
    type Child = Vec<(i64, Option<u64>)>;

    fn value() -> Arc<Value> {
        let text = "[[source]]\nname = 's'\n[[source.field]]\nname = 'v'\ntype = 'u64'\n[[source.index]]\nname = 'v'\nvalue = 'v'";
        let mut catalog = Catalog::new();
        let defs = parse_sources(text).unwrap();
        let (id, _) = catalog.define_source(&defs[0], Address::ZERO).unwrap();
        let index = Arc::clone(&catalog.source(id).unwrap().indexes[0]);
        Arc::new(Value::new(index, None))
    }

    /// The bytes of a roll-up over children, some of which may be empty, with or without an entry for the index.
    fn rollup(children: &[Child], value: &Value, covered: bool) -> Vec<u8> {
        let mut node = NodeSummary::new(1);
        node.clear(ChunkNo(0));
        let source = node.sources.push();
        source.reset(SourceId(1), false);
        let index = source.indexes.push();
        index.reset(value.id());
        index.sum = Sum::Int(0);
        for (place, child) in children
            .iter()
            .enumerate()
            .filter(|(_, child)| !child.is_empty())
        {
            let bit = 1 << place;
            let times = || child.iter().map(|(ts, _)| Timestamp(*ts));
            let (first_ts, last_ts) = (times().min().unwrap(), times().max().unwrap());
            source.records += child.len() as u64;
            source.bytes += 16 * child.len() as u64;
            source.child_mask |= bit;
            source.first_ts = source.first_ts.min(first_ts);
            source.last_ts = source.last_ts.max(last_ts);
            source.children.push(ChildStats {
                child: place as u8,
                records: child.len() as u64,
                first_ts,
                last_ts,
            });
            let keys: Vec<Key> = child.iter().filter_map(|(_, key)| key.map(Key)).collect();
            let (Some(&min), Some(&max)) = (keys.iter().min(), keys.iter().max()) else {
                continue;
            };
            index.count += keys.len() as u64;
            index.child_mask |= bit;
            index.range.min = index.range.min.min(min);
            index.range.max = index.range.max.max(max);
            index.children.push(IndexChild {
                child: place as u8,
                count: keys.len() as u64,
                min,
                max,
                sum: Sum::Int(0),
            });
            for key in keys {
                let bin = value.bins().bin(key);
                let at = index.bins.partition_point(|known| known.bin < bin);
                match index.bins.get_mut(at) {
                    Some(known) if known.bin == bin => {
                        known.count += 1;
                        known.mask |= bit;
                    }
                    _ => index.bins.insert(
                        at,
                        Bin {
                            bin,
                            count: 1,
                            mask: bit,
                        },
                    ),
                }
            }
        }
        let mut bytes = Vec::new();
        encode_node(&UUID, Address::ZERO, &node, |_, _| covered, &mut bytes);
        bytes
    }

    fn holds(predicate: &Predicate, ts: i64, key: Option<u64>) -> bool {
        match predicate {
            Predicate::All => true,
            Predicate::Nothing => false,
            Predicate::Time(times) => times.contains(Timestamp(ts)),
            Predicate::Value(_, keys) => key.is_some_and(|key| keys.contains(Key(key))),
            // The only field is the index's.
            Predicate::Fields(expr) => match &**expr {
                Expr::Null { is_null, .. } => key.is_none() == *is_null,
                _ => unreachable!("only these are drawn"),
            },
            Predicate::And(sides) => sides.iter().all(|side| holds(side, ts, key)),
            Predicate::Or(sides) => sides.iter().any(|side| holds(side, ts, key)),
        }
    }

    fn any_predicate(index: IndexId) -> impl Strategy<Value = Predicate> {
        let leaf = prop_oneof![
            Just(Predicate::All),
            Just(Predicate::Nothing),
            (0i64..60, 0i64..40).prop_map(|(first, length)| Predicate::time(TimeRange {
                first: Timestamp(first),
                last: Timestamp(first + length),
            })),
            (0u64..300, 0u64..200).prop_map(move |(min, length)| {
                let (min, max) = (Key(min), Key(min + length));
                Predicate::value(index, ValueRange { min, max })
            }),
            any::<bool>()
                .prop_map(|is_null| Predicate::Fields(Arc::new(Expr::Null { field: 0, is_null }))),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let sides = || prop::collection::vec(inner.clone(), 0..4);
            prop_oneof![
                sides().prop_map(Predicate::And),
                sides().prop_map(Predicate::Or)
            ]
        })
    }

    proptest! {
        #[test]
        fn no_match_is_lost_and_what_is_whole_is_whole(
            children in prop::collection::vec(
                prop::collection::vec((0i64..100, prop::option::weighted(0.9, 0u64..500)), 0..7), 1..64),
            predicate in any_predicate(IndexId(1)),
            covered: bool,
        ) {
            prop_assume!(children.iter().any(|child| !child.is_empty()));
            let value = value();
            prop_assert_eq!(value.id(), IndexId(1));
            let bytes = rollup(&children, &value, covered);
            let node = Node::decode(&UUID, Address::ZERO, &bytes).unwrap();
            let view = NodeView { node, stats: node.source(SourceId(1)).unwrap() };
            let test = Test::prepare(&predicate, &|_| Ok(Arc::clone(&value))).unwrap();
            let masks = test.masks(&view);
            prop_assert_eq!(masks.all & !masks.may, 0);
            prop_assert_eq!(masks.may & !view.held(), 0);
            for (place, child) in children.iter().enumerate() {
                let matching = child.iter().filter(|(ts, key)| holds(&predicate, *ts, *key)).count();
                prop_assert!(masks.may >> place & 1 == 1 || matching == 0, "child {}", place);
                prop_assert!(masks.all >> place & 1 == 0 || matching == child.len(), "child {}", place);
            }
        }
    }
}
