//! The location of a rank's value: its bin, and its rank among that bin's values.

use super::bucket_values::BucketValues;
use super::index_question::IndexQuestion;
use crate::types::{Key, ValueKind, ValueRange};

/// A range of keys that holds the value of a rank.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RankRange {
    pub keys: ValueRange,
    /// The number of values in `keys`.
    pub count: u64,
    /// The rank among these values in ascending order, from 1.
    pub rank: u64,
}

impl RankRange {
    /// The bin that holds the value of `rank` (from 1) in a bucket, or `None` if its counts by bin contradict its count.
    pub fn of(question: &IndexQuestion, bucket: &BucketValues, rank: u64) -> Option<RankRange> {
        let totals = &bucket.totals;
        if rank <= 1 {
            return Some(RankRange::exactly(totals.range.min));
        }
        if rank >= totals.count {
            return Some(RankRange::exactly(totals.range.max));
        }
        let bins = &question.bins;
        let mut before = 0u64;
        for (bin, &count) in bucket.bins.iter().enumerate() {
            let through = before.checked_add(count)?;
            if rank <= through {
                let bin = bin as u16;
                let bounds = ValueRange {
                    min: bins.lower(bin),
                    max: bins.upper(bin),
                };
                let keys = bounds.intersect(totals.range);
                let rank = rank - before;
                return (!keys.is_empty()).then_some(RankRange { keys, count, rank });
            }
            before = through;
        }
        None
    }

    fn exactly(key: Key) -> RankRange {
        RankRange {
            keys: ValueRange { min: key, max: key },
            count: 1,
            rank: 1,
        }
    }

    /// The value, if `keys` is a single key.
    pub fn single(&self) -> Option<Key> {
        (self.keys.min == self.keys.max).then_some(self.keys.min)
    }

    /// The key in the middle of the range; `None` if one end is infinity or NaN.
    pub fn middle(&self, kind: ValueKind) -> Option<Key> {
        let ValueRange { min, max } = self.keys;
        let is_bounded = |key: Key| kind != ValueKind::Float || key.to_f64().is_finite();
        let middle = Key(min.0 + (max.0 - min.0) / 2);
        (is_bounded(min) && is_bounded(max)).then_some(middle)
    }

    /// Cuts the range into at most 2^16 parts of 2^`shift` keys.
    pub fn shift(&self) -> u32 {
        let width = self.keys.max.0 - self.keys.min.0;
        (u64::BITS - width.leading_zeros()).saturating_sub(16)
    }

    /// The part that holds the rank, given the counts of all parts; `None` if they contradict the count.
    pub fn narrowed(&self, counts: &[u64]) -> Option<RankRange> {
        let shift = self.shift();
        let mut before = 0u64;
        for (part, &count) in counts.iter().enumerate() {
            let through = before.checked_add(count)?;
            if self.rank <= through {
                let min = self.keys.min.0 + ((part as u64) << shift);
                let max = min.saturating_add((1u64 << shift) - 1);
                return Some(RankRange {
                    keys: ValueRange {
                        min: Key(min),
                        max: Key(max.min(self.keys.max.0)),
                    },
                    count,
                    rank: self.rank - before,
                });
            }
            before = through;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_up_to_infinity_has_no_middle() {
        let range = |min, max| RankRange {
            keys: ValueRange {
                min: Key::from_f64(min),
                max: Key::from_f64(max),
            },
            count: 2,
            rank: 1,
        };
        let middle = |min, max| range(min, max).middle(ValueKind::Float);
        assert_eq!(middle(1e19, f64::INFINITY), None);
        assert_eq!(middle(f64::NEG_INFINITY, -1e19), None);
        assert_eq!(middle(1.0, f64::NAN), None);
        assert!(middle(1.0, 2.0).is_some_and(|key| (1.0..2.0).contains(&key.to_f64())));
        assert!(range(1e19, f64::NAN).middle(ValueKind::Unsigned).is_some());
    }

    proptest! {
        #[test]
        fn narrowing_ends_at_the_value_of_the_rank(mut keys in prop::collection::vec(any::<u64>(), 1..60), rank: prop::sample::Index) {
            let rank = rank.index(keys.len());
            keys.sort_unstable();
            let mut place = RankRange {
                keys: ValueRange { min: Key(keys[0]), max: Key(keys[keys.len() - 1]) },
                count: keys.len() as u64,
                rank: rank as u64 + 1,
            };
            for _ in 0..5 {
                let mut counts = vec![0; 1 << 16];
                for key in keys.iter().filter(|key| place.keys.contains(Key(**key))) {
                    counts[((key - place.keys.min.0) >> place.shift()) as usize] += 1;
                }
                place = place.narrowed(&counts).unwrap();
                prop_assert!(place.keys.contains(Key(keys[rank])));
            }
            prop_assert_eq!(place.single(), Some(Key(keys[rank])));
        }
    }
}
