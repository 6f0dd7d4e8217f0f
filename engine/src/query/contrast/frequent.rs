//! The frequent values of a stream in bounded memory (Misra and Gries 1982).
//!
//! Invariant: a value's count is at most `missed` below its true count, never above it, and `missed` is less than `n / kept` after `n` values,
//! also after other streams were absorbed: the sieve misses a third of it, values fade by as much, and pruning takes less than a third. So every
//! value with more than `n / kept` occurrences has a count.

use std::hash::Hash;

use ahash::RandomState;
use hashbrown::HashTable;

use super::sieve::Sieve;
use crate::proven::at;

/// The limits of memory: all values have a count while there are at most `most`; beyond it, at least those with a share above `1 / kept`. `most` is at
/// least three times `kept`.
#[derive(Copy, Clone, Debug)]
pub struct FrequentLimits {
    pub most: usize,
    pub kept: usize,
}

/// The most different values in a group of which each is counted.
pub const CONTRAST_VALUES_MOST: usize = 4096;
/// If there are more, values with a share above one in this many are counted.
pub const CONTRAST_SHARE: usize = 1024;

pub struct Frequent<K> {
    limits: FrequentLimits,
    hasher: RandomState,
    counts: HashTable<(K, u64)>,
    missed: u64,
    /// All values that were counted, also those without a count.
    total: u64,
    /// Holds back values once there are too many.
    sieve: Option<Sieve>,
}

impl<K: Eq + Hash> Frequent<K> {
    pub fn new(limits: FrequentLimits) -> Frequent<K> {
        assert!(
            limits.most >= 3 * limits.kept,
            "pruning would miss frequent values"
        );
        Frequent {
            limits,
            hasher: RandomState::new(),
            counts: HashTable::new(),
            missed: 0,
            total: 0,
            sieve: None,
        }
    }

    /// Returns an empty one for another stream, in which values have the same hashes.
    pub fn fork(&self) -> Frequent<K> {
        Frequent {
            hasher: self.hasher.clone(),
            ..Frequent::new(self.limits)
        }
    }

    pub fn limits(&self) -> FrequentLimits {
        self.limits
    }

    /// The hash of a value, by which it is found.
    #[inline]
    pub fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    /// Counts a value that has a count already some times; otherwise returns false.
    #[inline]
    pub fn again(&mut self, hash: u64, is_value: impl Fn(&K) -> bool, times: u64) -> bool {
        if self.counts.is_empty() {
            return false;
        }
        let held = self.counts.find_mut(hash, |(held, _)| is_value(held));
        let Some((_, count)) = held else {
            return false;
        };
        *count += times;
        self.total += times;
        true
    }

    /// Counts a value that has no count yet some times, unless it is probably rare.
    #[inline]
    pub fn first(&mut self, hash: u64, value: impl FnOnce() -> K, times: u64) {
        let missed = match &mut self.sieve {
            Some(sieve) if sieve.is_over(self.total) => sieve.clear(self.total, self.limits.kept),
            _ => 0,
        };
        if missed > 0 {
            self.missed += missed;
            // A value that is as rare as those that the sieve holds back loses its count in time.
            self.fade(missed);
        }
        if let Some(sieve) = &mut self.sieve
            && !sieve.passes(hash, times)
        {
            self.total += times;
        } else {
            self.insert(hash, value(), times);
        }
    }

    /// Counts a value some times.
    pub fn add(&mut self, value: K, times: u64) {
        let hash = self.hash(&value);
        if !self.again(hash, |held| *held == value, times) {
            self.insert(hash, value, times);
        }
    }

    fn insert(&mut self, hash: u64, value: K, times: u64) {
        let hasher = &self.hasher;
        let rehash = |(value, _): &(K, u64)| hasher.hash_one(value);
        self.counts.insert_unique(hash, (value, times), rehash);
        self.total += times;
        if self.counts.len() > self.limits.most {
            self.prune();
        }
    }

    pub fn absorb(&mut self, other: Frequent<K>) {
        self.missed += other.missed;
        let total = self.total + other.total;
        for (value, times) in other.counts {
            self.add(value, times);
        }
        self.total = total;
    }

    /// The same counts of other values. Those of values that become the same are added.
    pub fn map<T: Eq + Hash>(self, value: impl Fn(K) -> T) -> Frequent<T> {
        let mut mapped = Frequent::new(self.limits);
        for (from, times) in self.counts {
            mapped.add(value(from), times);
        }
        mapped.missed += self.missed;
        mapped.total = self.total;
        mapped
    }

    /// Whether every value has its exact count.
    pub fn is_exact(&self) -> bool {
        self.missed == 0
    }

    pub fn missed(&self) -> u64 {
        self.missed
    }

    pub fn counts(&self) -> impl Iterator<Item = (&K, u64)> {
        self.counts.iter().map(|(value, count)| (value, *count))
    }

    /// Subtracts the count of some rank from all, which takes it from that many of them.
    fn prune(&mut self) {
        let mut counts: Vec<u64> = self.counts.iter().map(|(_, count)| *count).collect();
        let rank = (3 * self.limits.kept).min(counts.len() - 1);
        counts.select_nth_unstable_by(rank, |one, other| other.cmp(one));
        self.fade(*at(&counts, rank));
        self.sieve.get_or_insert_default();
    }

    /// Subtracts from all counts.
    #[cold]
    fn fade(&mut self, less: u64) {
        self.missed += less;
        self.counts.retain(|(_, count)| {
            *count = count.saturating_sub(less);
            *count > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The naive form counts every value.
        #[test]
        fn frequent_values_have_a_count_that_misses_little(
            streams in prop::collection::vec(prop::collection::vec(0u64..40, 0..200), 1..4),
            skewed: bool,
        ) {
            let limits = FrequentLimits { most: 12, kept: 4 };
            let mut all = Frequent::new(limits);
            let mut naive: BTreeMap<u64, u64> = BTreeMap::new();
            for stream in streams {
                let mut of_stream = Frequent::new(limits);
                for value in stream {
                    let value = if skewed { value * value / 60 } else { value };
                    *naive.entry(value).or_default() += 1;
                    let hash = of_stream.hash(&value);
                    if !of_stream.again(hash, |held| *held == value, 1) {
                        of_stream.first(hash, || value, 1);
                    }
                }
                all.absorb(of_stream);
            }
            let total: u64 = naive.values().sum();
            prop_assert!(all.missed() == 0 || all.missed() * 4 < total);
            prop_assert!(all.counts().count() <= limits.most);
            prop_assert_eq!(all.is_exact(), naive.len() <= limits.most);
            let counts: BTreeMap<u64, u64> = all.counts().map(|(value, count)| (*value, count)).collect();
            for (value, times) in naive {
                let count = counts.get(&value).copied().unwrap_or(0);
                prop_assert!(count <= times && times <= count + all.missed());
                prop_assert!(times * 4 <= total || count > 0);
            }
        }
    }
}
