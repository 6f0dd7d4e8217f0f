//! The counts of a field of numbers: of each value while they are few, and by `auto` bins.
//!
//! Small integers have a place in an array each, because most codes and labels are small. Labels are counted as numbers, and become texts
//! at the end of a snapshot.

use std::borrow::Cow;

use super::frequent::FrequentLimits;
use super::group_counts::GroupCounts;
use super::large_numbers::LargeNumbers;
use super::text::TextRef;
use super::text_tally::TextTally;
use crate::proven::at_mut;
use crate::schema::{BinMap, BinsDef, FieldDef};
use crate::types::{Key, ValueKind};

/// The number of small integers.
const SMALL: usize = 4096;
/// Of these, the number below zero of a signed field.
const SMALL_NEGATIVE: u64 = 256;

pub struct NumberTally {
    kind: ValueKind,
    /// The key of the first small integer.
    first: u64,
    small: Vec<GroupCounts>,
    /// The other integers; `None` if there are too many, or the values are floats.
    large: Option<LargeNumbers>,
    /// The other values by bin: those that are not small, or all; `None` if the numbers are labels.
    bins: Option<(BinMap, Vec<GroupCounts>)>,
    /// A buffer for the bins of rows.
    room: Vec<u16>,
}

impl NumberTally {
    pub fn new(kind: ValueKind, is_labelled: bool, limits: FrequentLimits) -> NumberTally {
        let bins = || {
            let bins = BinMap::new(&BinsDef::Auto, kind).expect("any kind has automatic bins");
            let counts = vec![GroupCounts::default(); bins.len()];
            (bins, counts)
        };
        let is_float = kind == ValueKind::Float;
        NumberTally {
            kind,
            first: match kind {
                ValueKind::Signed => Key::from_i64(0).0 - SMALL_NEGATIVE,
                ValueKind::Unsigned | ValueKind::Float => 0,
            },
            small: vec![GroupCounts::default(); if is_float { 0 } else { SMALL }],
            large: (!is_float).then(|| LargeNumbers::new(limits)),
            bins: (!is_labelled).then(bins),
            room: Vec::new(),
        }
    }

    pub fn fork(&self, limits: FrequentLimits) -> NumberTally {
        NumberTally::new(self.kind, self.bins.is_none(), limits)
    }

    /// Counts the values of some rows.
    pub fn add(&mut self, keys: &[Key], is_selected: &[bool]) {
        match &mut self.bins {
            // Bins hold all values from here on, so the loop does not branch.
            Some((bins, counts)) if self.large.is_none() => {
                self.room.clear();
                bins.load_bins(keys, &mut self.room);
                for (bin, is_selected) in self.room.iter().zip(is_selected) {
                    at_mut(counts, usize::from(*bin)).add(*is_selected);
                }
            }
            _ => {
                for (key, is_selected) in keys.iter().zip(is_selected) {
                    self.add_one(*key, *is_selected);
                }
            }
        }
    }

    #[inline]
    fn add_one(&mut self, key: Key, is_selected: bool) {
        let place = key.0.wrapping_sub(self.first) as usize;
        match self.small.get_mut(place) {
            Some(counts) => counts.add(is_selected),
            None => self.add_large(key, is_selected),
        }
    }

    fn add_large(&mut self, key: Key, is_selected: bool) {
        if let Some((bins, counts)) = &mut self.bins {
            at_mut(counts, usize::from(bins.bin(key))).add(is_selected);
        }
        if let Some(large) = &mut self.large {
            large.add(key.0, is_selected);
            self.give_up();
        }
    }

    /// Numbers that have bins are not counted one by one if there are too many.
    fn give_up(&mut self) {
        let is_exact = self.large.as_ref().is_some_and(LargeNumbers::is_exact);
        if !is_exact && self.bins.is_some() {
            self.large = None;
        }
    }

    pub fn absorb(&mut self, other: NumberTally) {
        for (counts, more) in self.small.iter_mut().zip(other.small) {
            *counts += more;
        }
        if let (Some((_, counts)), Some((_, others))) = (&mut self.bins, other.bins) {
            for (counts, more) in counts.iter_mut().zip(others) {
                *counts += more;
            }
        }
        match (&mut self.large, other.large) {
            (Some(large), Some(other)) => {
                large.selected.absorb(other.selected);
                large.others.absorb(other.others);
                self.give_up();
            }
            _ => self.large = None,
        }
    }

    /// The counts of each value, ascending; `None` if there are too many.
    pub fn values(&self) -> Option<Vec<(Key, GroupCounts)>> {
        let large = self.large.as_ref()?;
        let mut values: Vec<(Key, GroupCounts)> = self.small().collect();
        let selected = large.selected.counts().map(|(key, selected)| {
            let others = 0;
            (Key(*key), GroupCounts { selected, others })
        });
        let others = large.others.counts().map(|(key, others)| {
            let selected = 0;
            (Key(*key), GroupCounts { selected, others })
        });
        values.extend(selected.chain(others));
        values.sort_unstable_by_key(|(key, _)| *key);
        values.dedup_by(|(key, more), (kept, counts)| {
            let is_same = key == kept;
            if is_same {
                *counts += *more;
            }
            is_same
        });
        Some(values)
    }

    /// The small values that occur, ascending.
    fn small(&self) -> impl Iterator<Item = (Key, GroupCounts)> {
        let keys = (self.first..).map(Key);
        let counts = keys.zip(self.small.iter().copied());
        counts.filter(|(_, counts)| counts.total() > 0)
    }

    /// The counts of all values by bin, ascending, without empty bins.
    pub fn bins(self) -> Option<(BinMap, Vec<(u16, GroupCounts)>)> {
        let small: Vec<(Key, GroupCounts)> = self.small().collect();
        let (bins, mut counts) = self.bins?;
        for (key, more) in small {
            *at_mut(&mut counts, usize::from(bins.bin(key))) += more;
        }
        let counts = (0..).zip(counts);
        let filled = counts.filter(|(_, counts)| counts.total() > 0).collect();
        Some((bins, filled))
    }

    /// The counts by the texts that the numbers show as.
    pub fn into_texts(self, def: &FieldDef, limits: FrequentLimits) -> TextTally {
        let text = |key: Key| number_shown(def, self.kind, key).into_bytes();
        let mut texts = TextTally::new(limits);
        for (key, counts) in self.small() {
            texts.add_times(TextRef::of(&text(key)), counts, |text| {
                Cow::Borrowed(text.bytes())
            });
        }
        if let Some(large) = self.large {
            texts.absorb_groups(large, |key| text(Key(key)));
        }
        texts
    }
}

/// The text that an integer shows as.
pub fn number_shown(def: &FieldDef, kind: ValueKind, key: Key) -> String {
    let number = match kind {
        ValueKind::Unsigned => i128::from(key.to_u64()),
        ValueKind::Signed | ValueKind::Float => i128::from(key.to_i64()),
    };
    match def.labels.get(&number) {
        Some(label) => label.clone(),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The naive form counts every value by itself.
        #[test]
        fn numbers_have_their_counts_before_and_after_they_are_too_many(
            numbers in prop::collection::vec((prop_oneof![-300i64..5000, any::<i64>()], any::<bool>()), 0..300),
            kind in prop_oneof![Just(ValueKind::Unsigned), Just(ValueKind::Signed), Just(ValueKind::Float)],
            together in 1..200usize,
            most in prop_oneof![Just(12), Just(1000)],
        ) {
            let limits = FrequentLimits { most, kept: 4 };
            let key = |number: i64| match kind {
                ValueKind::Unsigned => Key::from_u64(number as u64),
                ValueKind::Signed => Key::from_i64(number),
                ValueKind::Float => Key::from_f64(number as f64),
            };
            let keys: Vec<Key> = numbers.iter().map(|(number, _)| key(*number)).collect();
            let is_selected: Vec<bool> = numbers.iter().map(|(_, is_selected)| *is_selected).collect();
            let mut tally = NumberTally::new(kind, false, limits);
            for (keys, is_selected) in keys.chunks(together).zip(is_selected.chunks(together)) {
                tally.add(keys, is_selected);
            }
            let auto = BinMap::new(&BinsDef::Auto, kind).unwrap();
            let (mut values, mut bins) = (BTreeMap::new(), BTreeMap::new());
            for (key, is_selected) in keys.iter().zip(is_selected) {
                let counts: &mut GroupCounts = values.entry(*key).or_default();
                counts.add(is_selected);
                let counts: &mut GroupCounts = bins.entry(auto.bin(*key)).or_default();
                counts.add(is_selected);
            }
            match tally.values() {
                Some(found) => prop_assert_eq!(found, Vec::from_iter(values)),
                None => prop_assert!(kind == ValueKind::Float || values.len() > most),
            }
            prop_assert_eq!(tally.bins(), Some((auto, Vec::from_iter(bins))));
        }
    }
}
