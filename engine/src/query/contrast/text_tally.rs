//! The counts of a field of texts, bytes or labels, in each group: exact while they are few, and otherwise of the frequent ones.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::frequent::{Frequent, FrequentLimits};
use super::group_counts::GroupCounts;
use super::large_numbers::LargeNumbers;

/// The most bytes of a text that has a count of its own.
pub const TEXT_BYTES_MOST: usize = 256;

pub struct TextTally {
    selected: Frequent<Vec<u8>>,
    others: Frequent<Vec<u8>>,
    /// Whether there are longer texts, which are not counted here.
    has_long: bool,
}

impl TextTally {
    pub fn new(limits: FrequentLimits) -> TextTally {
        TextTally {
            selected: Frequent::new(limits),
            others: Frequent::new(limits),
            has_long: false,
        }
    }

    /// Counts a value some times. `shown` gives it as it shows, which may differ if the bytes are not UTF-8.
    #[inline]
    pub fn add<'a>(
        &mut self,
        bytes: &'a [u8],
        times: GroupCounts,
        shown: impl Fn(&'a [u8]) -> Cow<'a, [u8]>,
    ) {
        for (group, times) in [
            (&mut self.selected, times.selected),
            (&mut self.others, times.others),
        ] {
            if times == 0 {
                continue;
            }
            let hash = group.hash(bytes);
            if group.again(hash, bytes, times) {
                continue;
            }
            let text = shown(bytes);
            if text.len() > TEXT_BYTES_MOST {
                self.has_long = true;
                continue;
            }
            match text {
                Cow::Borrowed(text) => group.first(hash, || text.to_vec(), times),
                Cow::Owned(text) => {
                    let hash = group.hash(text.as_slice());
                    if !group.again(hash, text.as_slice(), times) {
                        group.first(hash, || text, times);
                    }
                }
            }
        }
    }

    /// Counts a text some times.
    pub fn add_times(&mut self, text: &[u8], times: GroupCounts) {
        for (group, times) in [
            (&mut self.selected, times.selected),
            (&mut self.others, times.others),
        ] {
            if times > 0 {
                group.add(text.to_vec(), times);
            }
        }
    }

    /// Adds numbers as the texts that they show as.
    pub fn absorb_groups(&mut self, numbers: LargeNumbers, text: impl Fn(u64) -> Vec<u8>) {
        for (group, numbers) in [
            (&mut self.selected, numbers.selected),
            (&mut self.others, numbers.others),
        ] {
            group.absorb(numbers.map(&text));
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
        let kept = |group: &Frequent<Vec<u8>>, count: u64, records: u64| {
            is_complete || is_frequent(count + group.missed(), records, group.limits())
        };
        for (text, count) in self.selected.counts() {
            if kept(&self.selected, count, records.selected) {
                values.entry(text.clone()).or_default().selected = count;
            }
        }
        for (text, count) in self.others.counts() {
            if kept(&self.others, count, records.others) {
                values.entry(text.clone()).or_default().others = count;
            }
        }
        values
    }
}

/// Whether a value has a share above `1 / kept` of a group.
pub fn is_frequent(count: u64, records: u64, limits: FrequentLimits) -> bool {
    u128::from(count) * limits.kept as u128 > u128::from(records)
}
