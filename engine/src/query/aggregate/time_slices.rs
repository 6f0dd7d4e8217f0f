//! Cuts the window of a bucketed question into slices of whole buckets, which are answered one after the other.
//!
//! So the first rows come early, a reader that needs no more rows stops the work, and memory is bounded however many buckets there are. A
//! slice that finds few buckets makes the next one longer.

use std::collections::VecDeque;

use super::bucket::Bucket;
use crate::error::Result;
use crate::query::snapshot::Snapshot;
use crate::schema::RangeSet;
use crate::types::{SourceId, TimeRange, Timestamp};

/// Buckets of the first slice.
const FIRST_BUCKETS: i128 = 64;
/// A slice with fewer buckets makes the next one longer; a slice with many more makes it shorter.
const BUCKETS_FEW: usize = 1024;
const GROWTH: i128 = 4;

pub(crate) struct TimeSlices {
    /// `None` if the rest is one slice.
    bucket: Option<Bucket>,
    rest: VecDeque<TimeRange>,
    buckets: i128,
}

impl TimeSlices {
    /// Slices the part of `time` in which the sources have records.
    ///
    /// # Errors
    /// Damage, eviction, an invalid bucket.
    pub fn of<'a>(
        asked: impl Iterator<Item = (&'a Snapshot, SourceId)>,
        bucket: Option<Bucket>,
        time: TimeRange,
    ) -> Result<TimeSlices> {
        let Some(bucket) = bucket else {
            return Ok(TimeSlices::whole(time));
        };
        bucket.validate()?;
        let mut span = TimeRange::EMPTY;
        for (snapshot, source) in asked {
            if snapshot.source_by_id(source)?.own_time() {
                // Any chunk may hold any time, so each slice would read all of them.
                return Ok(TimeSlices::whole(time));
            }
            let totals = snapshot.source_totals(source)?;
            if let (Some(first), Some(last)) = (totals.first_ts, totals.last_ts) {
                span.first = span.first.min(first);
                span.last = span.last.max(last);
            }
        }
        Ok(TimeSlices::sliced(bucket, time.intersect(span)))
    }

    fn whole(time: TimeRange) -> TimeSlices {
        TimeSlices {
            bucket: None,
            rest: VecDeque::from([time]),
            buckets: FIRST_BUCKETS,
        }
    }

    fn sliced(bucket: Bucket, time: TimeRange) -> TimeSlices {
        TimeSlices {
            bucket: Some(bucket),
            rest: Some(time)
                .filter(|time| !time.is_empty())
                .into_iter()
                .collect(),
            buckets: FIRST_BUCKETS,
        }
    }

    /// Drops everything outside these ranges of whole buckets. A question that is answered in one slice is not changed.
    pub fn keep(&mut self, times: &RangeSet<Timestamp>) {
        if self.bucket.is_some() {
            let kept = RangeSet::new(self.rest.drain(..)).intersect(times);
            let ranges = kept.ranges().iter();
            self.rest = ranges
                .map(|&(first, last)| TimeRange { first, last })
                .collect();
        }
    }

    /// The next slice. It ends at the end of a bucket or of the window.
    pub fn next(&mut self) -> Option<TimeRange> {
        let rest = self.rest.pop_front()?;
        let Some(bucket) = self.bucket else {
            return Some(rest);
        };
        let first = bucket.range_of(rest.first);
        let bucket_ns = i128::from(first.last.0) - i128::from(first.first.0) + 1;
        let in_last = i128::from(first.last.0) + (self.buckets - 1).saturating_mul(bucket_ns);
        let in_last = in_last.min(i128::from(rest.last.0)) as i64;
        let last = bucket.range_of(Timestamp(in_last)).last;
        if last < rest.last {
            self.rest.push_front(TimeRange {
                first: Timestamp(last.0 + 1),
                last: rest.last,
            });
        }
        Some(TimeRange {
            first: rest.first,
            last: last.min(rest.last),
        })
    }

    /// Reports how many buckets of the latest slice held values.
    pub fn found(&mut self, buckets: usize) {
        if buckets < BUCKETS_FEW {
            self.buckets = self.buckets.saturating_mul(GROWTH);
        } else if buckets > BUCKETS_FEW * 4 {
            self.buckets = (self.buckets / GROWTH).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slices_are_of_what_is_kept() {
        let range = |first: i64, last: i64| TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        let all = range(5, 994);
        let kept = RangeSet::new([range(0, 9), range(30, 39), range(70, 999)]);
        let mut slices = TimeSlices::sliced(Bucket::nanos(10), all);
        slices.keep(&kept);
        let next = std::iter::from_fn(|| slices.next());
        let expected = [range(5, 9), range(30, 39), range(70, 709), range(710, 994)];
        assert_eq!(next.collect::<Vec<_>>(), expected);
        let mut whole = TimeSlices::whole(all);
        whole.keep(&kept);
        assert_eq!(whole.next(), Some(all));
    }

    proptest! {
        #[test]
        fn slices_follow_each_other_and_cut_no_bucket(
            first in prop_oneof![-100_000i64..100_000, Just(i64::MIN), Just(i64::MAX - 9)],
            length in prop_oneof![0i64..50_000, Just(i64::MAX)],
            width in 1i64..3000,
            found in prop::collection::vec(0usize..10_000, 1..9),
        ) {
            let bucket = Bucket::nanos(width);
            let time = TimeRange { first: Timestamp(first), last: Timestamp(first.saturating_add(length)) };
            let mut slices = TimeSlices::sliced(bucket, time);
            let mut next = Some(time.first);
            for found in found.iter().cycle().take(400) {
                let Some(slice) = slices.next() else { break };
                prop_assert_eq!(Some(slice.first), next);
                prop_assert!(!slice.is_empty() && time.covers(slice));
                let is_end = slice.last == time.last;
                prop_assert!(is_end || bucket.range_of(slice.last).last == slice.last);
                next = (!is_end).then(|| Timestamp(slice.last.0 + 1));
                slices.found(*found);
            }
            prop_assert_eq!(next.is_none(), slices.rest.is_empty());
        }
    }
}
