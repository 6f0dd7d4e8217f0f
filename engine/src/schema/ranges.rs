//! Sets of times or keys as sorted, disjoint, closed ranges: the meaning of a window, a list of values, a filter or a `WHERE` clause.
//!
//! A list becomes one set, so testing a value takes the logarithm of the list's length.

use crate::types::{Key, TimeRange, Timestamp, ValueRange};

/// A value of a discrete order, in which ranges that touch are joined.
pub trait Discrete: Copy + Ord {
    const LEAST: Self;
    const GREATEST: Self;
    fn successor(self) -> Option<Self>;
    fn predecessor(self) -> Option<Self>;
}

impl Discrete for Timestamp {
    const LEAST: Self = Timestamp::MIN;
    const GREATEST: Self = Timestamp::MAX;

    fn successor(self) -> Option<Self> {
        self.0.checked_add(1).map(Timestamp)
    }

    fn predecessor(self) -> Option<Self> {
        self.0.checked_sub(1).map(Timestamp)
    }
}

impl Discrete for Key {
    const LEAST: Self = Key::MIN;
    const GREATEST: Self = Key::MAX;

    fn successor(self) -> Option<Self> {
        self.0.checked_add(1).map(Key)
    }

    fn predecessor(self) -> Option<Self> {
        self.0.checked_sub(1).map(Key)
    }
}

impl From<ValueRange> for (Key, Key) {
    fn from(range: ValueRange) -> (Key, Key) {
        (range.min, range.max)
    }
}

impl From<TimeRange> for (Timestamp, Timestamp) {
    fn from(range: TimeRange) -> (Timestamp, Timestamp) {
        (range.first, range.last)
    }
}

/// Closed ranges, ascending; between two of them lies at least one value outside both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeSet<T> {
    ranges: Vec<(T, T)>,
}

impl<T: Discrete, R: Into<(T, T)>> From<R> for RangeSet<T> {
    fn from(range: R) -> RangeSet<T> {
        RangeSet::new([range])
    }
}

impl<T: Discrete> RangeSet<T> {
    /// The union of the ranges. A range whose ends are swapped is empty.
    pub fn new(ranges: impl IntoIterator<Item = impl Into<(T, T)>>) -> Self {
        let mut sorted: Vec<(T, T)> = ranges
            .into_iter()
            .map(Into::into)
            .filter(|(first, last)| first <= last)
            .collect();
        sorted.sort_unstable();
        let mut joined: Vec<(T, T)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match joined.last_mut() {
                Some(before) if before.1.successor().is_none_or(|next| first <= next) => {
                    before.1 = before.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        RangeSet { ranges: joined }
    }

    pub const fn none() -> Self {
        RangeSet { ranges: Vec::new() }
    }

    pub fn all() -> Self {
        RangeSet {
            ranges: vec![(T::LEAST, T::GREATEST)],
        }
    }

    /// The values in all of `sets`; every value if there are no sets.
    pub fn intersection(sets: impl IntoIterator<Item = Self>) -> Self {
        let sets = sets.into_iter();
        sets.reduce(|both, set| both.intersect(&set))
            .unwrap_or_else(Self::all)
    }

    /// The values in at least one of `sets`.
    pub fn union(sets: impl IntoIterator<Item = Self>) -> Self {
        RangeSet::new(sets.into_iter().flat_map(|set| set.ranges))
    }

    /// The values in both.
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        let mut both = Vec::new();
        while let (Some(&&a), Some(&&b)) = (left.peek(), right.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                both.push((first, last));
            }
            if a.1 < b.1 {
                left.next();
            } else {
                right.next();
            }
        }
        RangeSet { ranges: both }
    }

    /// The values outside the set.
    pub fn complement(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = Some(T::LEAST);
        for &(first, last) in &self.ranges {
            gaps.extend(next.zip(first.predecessor()));
            next = last.successor();
        }
        gaps.extend(next.map(|first| (first, T::GREATEST)));
        // The gap before a range that begins with the least value is empty.
        RangeSet::new(gaps)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(T, T)] {
        &self.ranges
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn is_one_range(&self) -> bool {
        self.ranges.len() == 1
    }

    /// Whether the set contains every value.
    pub fn is_all(&self) -> bool {
        self.ranges.as_slice() == [(T::LEAST, T::GREATEST)]
    }

    /// Whether `other` contains the whole set.
    pub fn is_within(&self, other: &Self) -> bool {
        self.ranges
            .iter()
            .all(|&(first, last)| other.covers(first, last))
    }

    /// The least and greatest value.
    pub fn hull(&self) -> Option<(T, T)> {
        Some((self.ranges.first()?.0, self.ranges.last()?.1))
    }

    #[inline]
    pub fn contains(&self, value: T) -> bool {
        self.at_or_above(value)
            .is_some_and(|(first, _)| first <= value)
    }

    /// Whether some value from `first` to `last` is in the set.
    #[inline]
    pub fn overlaps(&self, first: T, last: T) -> bool {
        self.at_or_above(first)
            .is_some_and(|(start, _)| start <= last)
    }

    /// Whether every value from `first` to `last` is in the set.
    #[inline]
    pub fn covers(&self, first: T, last: T) -> bool {
        self.at_or_above(first)
            .is_some_and(|(start, end)| start <= first && last <= end)
    }

    /// The first range that does not end below `value`.
    #[inline]
    fn at_or_above(&self, value: T) -> Option<(T, T)> {
        // Most sets have one range.
        if let [range] = self.ranges.as_slice() {
            return (range.1 >= value).then_some(*range);
        }
        let at = self.ranges.partition_point(|(_, last)| *last < value);
        self.ranges.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet<Key> {
        RangeSet::new(ranges.iter().map(|&(first, last)| (Key(first), Key(last))))
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(set(&[(3, 4), (1, 2)]), set(&[(1, 4)]));
        assert_eq!(set(&[(5, 4)]), RangeSet::none());
        assert!(set(&[(0, 7), (8, u64::MAX)]).is_all());
        assert!(set(&[(u64::MAX, u64::MAX), (3, u64::MAX)]).covers(Key(3), Key(u64::MAX)));
        assert_eq!(set(&[(1, 2), (9, 9)]).hull(), Some((Key(1), Key(9))));
        assert!(RangeSet::<Key>::none().complement().is_all());
        assert!(RangeSet::<Key>::all().complement().is_empty());
    }

    proptest! {
        #[test]
        fn sets_agree_with_their_values(
            left in prop::collection::vec((0u64..24, 0u64..24), 0..6),
            right in prop::collection::vec((0u64..24, 0u64..24), 0..6),
            first in 0u64..24,
            length in 0u64..6,
        ) {
            let naive = |ranges: &[(u64, u64)], value| ranges.iter().any(|(a, b)| (*a..=*b).contains(&value));
            let (a, b) = (set(&left), set(&right));
            let both = RangeSet::intersection([a.clone(), b.clone()]);
            let either = RangeSet::union([a.clone(), b.clone()]);
            for value in 0..24 {
                let (in_a, in_b) = (naive(&left, value), naive(&right, value));
                prop_assert_eq!(a.contains(Key(value)), in_a);
                prop_assert_eq!(both.contains(Key(value)), in_a && in_b);
                prop_assert_eq!(either.contains(Key(value)), in_a || in_b);
                prop_assert_eq!(a.complement().contains(Key(value)), !in_a);
            }
            let last = first + length;
            prop_assert_eq!(a.overlaps(Key(first), Key(last)), (first..=last).any(|value| naive(&left, value)));
            prop_assert_eq!(a.covers(Key(first), Key(last)), (first..=last).all(|value| naive(&left, value)));
            prop_assert_eq!(a.is_within(&b), (0..24).all(|value| !naive(&left, value) || naive(&right, value)));
            prop_assert_eq!(&a.complement().complement(), &a);
            for set in [a, both, either] {
                prop_assert!(set.ranges().windows(2).all(|pair| pair[0].1.0 + 1 < pair[1].0.0));
            }
        }
    }
}
