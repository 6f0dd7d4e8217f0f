//! Exact counts of given values of a field.

use std::hash::Hash;

use ahash::RandomState;
use hashbrown::{Equivalent, HashMap};

use super::group_counts::GroupCounts;

pub struct GivenValues<K>(HashMap<K, GroupCounts, RandomState>);

impl<K: Eq + Hash + Clone> GivenValues<K> {
    pub fn new(values: impl IntoIterator<Item = K>) -> GivenValues<K> {
        let values = values.into_iter();
        GivenValues(
            values
                .map(|value| (value, GroupCounts::default()))
                .collect(),
        )
    }

    /// Counts a value some times if it is one of them.
    #[inline]
    pub fn add(
        &mut self,
        value: &(impl Hash + Equivalent<K>),
        is_selected: bool,
        times: u64,
    ) -> bool {
        let counts = self.0.get_mut(value);
        counts
            .map(|counts| counts.add_times(is_selected, times))
            .is_some()
    }

    /// The same values, not counted.
    pub fn fork(&self) -> GivenValues<K> {
        GivenValues::new(self.0.keys().cloned())
    }

    pub fn absorb(&mut self, other: GivenValues<K>) {
        for (value, counts) in other.0 {
            *self.0.entry(value).or_default() += counts;
        }
    }

    /// The same counts of other values. Those of values that become the same are added.
    pub fn map<T: Eq + Hash + Clone>(self, value: impl Fn(K) -> T) -> GivenValues<T> {
        let mut mapped = GivenValues::new([]);
        for (from, counts) in self.0 {
            *mapped.0.entry(value(from)).or_default() += counts;
        }
        mapped
    }

    pub fn into_counts(self) -> impl Iterator<Item = (K, GroupCounts)> {
        self.0.into_iter()
    }
}
