//! One question to the indexes of several snapshots. They are descended one after the other and add to the same buckets.

use super::bucket::Bucket;
use super::bucket_values::{BinDetail, BucketValues, ValuesByBucket};
use super::index_question::IndexQuestion;
use super::shared_descent::descend;
use super::totals_descent::TotalsDescent;
use crate::error::Result;
use crate::query::forest::cached_nodes::contradiction;
use crate::query::poll::Poll;
use crate::types::TimeRange;

/// The common part of the descents of one aggregate or histogram.
#[derive(Copy, Clone)]
pub(crate) struct QuestionSet<'a> {
    /// One for each snapshot, at least one.
    pub questions: &'a [IndexQuestion],
    pub bucket: Option<Bucket>,
    pub threads: usize,
}

impl QuestionSet<'_> {
    pub fn first(&self) -> &IndexQuestion {
        let first = self.questions.first();
        first.expect("a question is prepared of at least one snapshot")
    }

    /// Descends each snapshot once and returns the totals, and the counts by bin if asked for, of the values within `time`.
    pub fn values(
        &self,
        time: TimeRange,
        detail: BinDetail,
        poll: &Poll<'_>,
    ) -> Result<Vec<BucketValues>> {
        let mut values = ValuesByBucket::new(self.bucket, &self.first().bins, detail);
        for question in self.questions {
            if !time.is_empty() && !question.keys.is_empty() {
                let descent = TotalsDescent::new(question, time, values);
                values =
                    descend(&question.logs, question.after, descent, self.threads, poll)?.values;
            }
        }
        Ok(values.into_buckets())
    }

    /// The set if all buckets of `time` can be counted by bin in one descent; `None` if they would take too much memory.
    pub fn in_one_descent(self, time: TimeRange, detail: BinDetail) -> Option<Self> {
        let buckets = self.bucket.map_or(1, |bucket| bucket.most_in(time));
        let (asked, group) = self.at_once(buckets, detail);
        (buckets <= group).then_some(asked)
    }

    /// The number of buckets that are counted by bin at once, and of threads. Each thread counts all of them, so the number of threads is
    /// limited to what fits without a further descent.
    pub fn at_once(self, buckets: usize, detail: BinDetail) -> (Self, usize) {
        let first = self.first();
        let bin_bytes = first.bins.len() * detail.bin_bytes();
        let most = (first.logs.tuning().bin_bytes_most / bin_bytes).max(1);
        let threads = (most / buckets.max(1)).clamp(1, self.threads.max(1));
        (Self { threads, ..self }, most / threads)
    }

    /// Fails if two descents found different buckets.
    pub fn expect_same(&self, buckets: &[BucketValues], again: &[BucketValues]) -> Result<()> {
        let times =
            |buckets: &[BucketValues]| buckets.iter().map(|bucket| bucket.time).collect::<Vec<_>>();
        if times(buckets) == times(again) {
            return Ok(());
        }
        let what = "two directories give different buckets";
        Err(contradiction(&self.first().logs, what))
    }
}

/// The times from the first bucket to the last.
pub(crate) fn span(buckets: &[BucketValues]) -> TimeRange {
    match (buckets.first(), buckets.last()) {
        (Some(first), Some(last)) => TimeRange {
            first: first.time.first,
            last: last.time.last,
        },
        _ => TimeRange::EMPTY,
    }
}
