//! The counts of a field of texts, bytes or labels, in each group: exact while they are few, and otherwise of the frequent ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::Equivalent;

use super::frequent::{Frequent, FrequentLimits};
use super::group_counts::GroupCounts;
use super::large_numbers::LargeNumbers;
use super::text::{Text, TextRef};

/// The most bytes of a text that has a count of its own.
pub const TEXT_BYTES_MOST: usize = 256;
/// The texts that are hashed together.
const TOGETHER: usize = 128;

pub struct TextTally {
    selected: Frequent<Text>,
    others: Frequent<Text>,
    /// Whether there are longer texts, which are not counted here.
    has_long: bool,
}

impl TextTally {
    pub fn new(limits: FrequentLimits) -> TextTally {
        let selected = Frequent::new(limits);
        TextTally {
            others: selected.fork(),
            selected,
            has_long: false,
        }
    }

    /// Counts texts, each of a place among bytes and of a group. `shown` gives one as it shows, which may differ if the bytes are not UTF-8.
    pub fn add<'a>(
        &mut self,
        bytes: &'a [u8],
        places: &[Range<u32>],
        is_selected: &[bool],
        shown: impl Fn(TextRef<'a>) -> Cow<'a, [u8]>,
    ) {
        let mut hashes = [0; TOGETHER];
        let groups = is_selected.chunks(TOGETHER);
        for (places, is_selected) in places.chunks(TOGETHER).zip(groups) {
            // All are hashed before the first is looked up, so that the processor waits for the counts of many at once.
            for (hash, place) in hashes.iter_mut().zip(places) {
                *hash = self.others.hash(&TextRef::within(bytes, place));
            }
            for ((hash, place), is_selected) in hashes.iter().zip(places).zip(is_selected) {
                let text = || TextRef::within(bytes, place);
                self.count(*hash, text, *is_selected, 1, &shown);
            }
        }
    }

    /// Counts a text some times.
    pub fn add_times<'a>(
        &mut self,
        text: TextRef<'a>,
        times: GroupCounts,
        shown: impl Fn(TextRef<'a>) -> Cow<'a, [u8]>,
    ) {
        let hash = self.others.hash(&text);
        for (is_selected, times) in [(true, times.selected), (false, times.others)] {
            if times > 0 {
                self.count(hash, || text, is_selected, times, &shown);
            }
        }
    }

    #[inline]
    fn count<'a>(
        &mut self,
        hash: u64,
        text: impl Fn() -> TextRef<'a>,
        is_selected: bool,
        times: u64,
        shown: &impl Fn(TextRef<'a>) -> Cow<'a, [u8]>,
    ) {
        let group = match is_selected {
            true => &mut self.selected,
            false => &mut self.others,
        };
        if group.again(hash, |held| text().equivalent(held), times) {
            return;
        }
        let text = text();
        match shown(text) {
            text if text.len() > TEXT_BYTES_MOST => self.has_long = true,
            Cow::Borrowed(_) => group.first(hash, || text.into(), times),
            Cow::Owned(text) => {
                let text = TextRef::of(&text);
                let hash = group.hash(&text);
                if !group.again(hash, |held| text.equivalent(held), times) {
                    group.first(hash, || text.into(), times);
                }
            }
        }
    }

    /// Adds numbers as the texts that they show as.
    pub fn absorb_groups(&mut self, numbers: LargeNumbers, text: impl Fn(u64) -> Vec<u8>) {
        for (group, numbers) in [
            (&mut self.selected, numbers.selected),
            (&mut self.others, numbers.others),
        ] {
            group.absorb(numbers.map(|number| TextRef::of(&text(number)).into()));
        }
    }

    pub fn absorb(&mut self, other: TextTally) {
        self.selected.absorb(other.selected);
        self.others.absorb(other.others);
        self.has_long |= other.has_long;
    }

    /// Whether every value was counted exactly.
    pub fn is_complete(&self) -> bool {
        !self.has_long && self.selected.is_exact() && self.others.is_exact()
    }

    /// Every value that may have a share above `1 / kept` of a group, with counts that are exact if the tally is complete.
    pub fn into_values(self, records: GroupCounts) -> BTreeMap<Vec<u8>, GroupCounts> {
        let is_complete = self.is_complete();
        let mut values: BTreeMap<Vec<u8>, GroupCounts> = BTreeMap::new();
        let kept = |group: &Frequent<Text>, count: u64, records: u64| {
            is_complete || is_frequent(count + group.missed(), records, group.limits())
        };
        for (text, count) in self.selected.counts() {
            if kept(&self.selected, count, records.selected) {
                values.entry(text.to_vec()).or_default().selected = count;
            }
        }
        for (text, count) in self.others.counts() {
            if kept(&self.others, count, records.others) {
                values.entry(text.to_vec()).or_default().others = count;
            }
        }
        values
    }
}

/// Whether a value has a share above `1 / kept` of a group.
pub fn is_frequent(count: u64, records: u64, limits: FrequentLimits) -> bool {
    u128::from(count) * limits.kept as u128 > u128::from(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: TextRef<'_>) -> Cow<'_, [u8]> {
        match String::from_utf8_lossy(text.bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text.bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    proptest! {
        // The naive form counts every text by itself.
        #[test]
        fn texts_that_are_counted_together_have_the_counts_of_each(
            kinds in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'a'), Just(0xFF), Just(0xFE)], 0..40), 1..90),
            rows in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 1u64..3), 0..900),
            is_long: bool,
        ) {
            let limits = FrequentLimits { most: 48, kept: 16 };
            let long = [b'a'; TEXT_BYTES_MOST + 1];
            let kinds: Vec<&[u8]> = kinds.iter().map(Vec::as_slice).chain(is_long.then_some(long.as_slice())).collect();
            let (mut bytes, mut places, mut groups) = (Vec::new(), Vec::new(), Vec::new());
            let mut tally = TextTally::new(limits);
            let (mut records, mut naive) = (GroupCounts::default(), BTreeMap::new());
            for (kind, is_selected, times) in &rows {
                let text = *kind.get(&kinds);
                let mut of_text = GroupCounts::default();
                of_text.add_times(*is_selected, *times);
                records += of_text;
                *naive.entry(shown(TextRef::of(text)).into_owned()).or_default() += of_text;
                if *times > 1 {
                    tally.add_times(TextRef::of(text), of_text, shown);
                    continue;
                }
                let start = bytes.len() as u32;
                bytes.extend_from_slice(text);
                places.push(start..bytes.len() as u32);
                groups.push(*is_selected);
            }
            tally.add(&bytes, &places, &groups, shown);
            let has_long = naive.remove(long.as_slice()).is_some();
            let in_group = |count: fn(&GroupCounts) -> u64| naive.values().filter(|counts| count(counts) > 0).count();
            let are_few = in_group(|counts| counts.selected) <= limits.most && in_group(|counts| counts.others) <= limits.most;
            prop_assert_eq!(tally.is_complete(), are_few && !has_long);
            let is_complete = tally.is_complete();
            let found = tally.into_values(records);
            if is_complete {
                prop_assert_eq!(found, naive);
                return Ok(());
            }
            for (text, counts) in naive {
                let may_miss = !is_frequent(counts.selected, records.selected, limits) && !is_frequent(counts.others, records.others, limits);
                prop_assert!(may_miss || found.contains_key(&text));
            }
        }
    }
}
