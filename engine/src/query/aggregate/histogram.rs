//! The histogram of an index over a time range, by bucket: the number of values in each bin, and their statistics if the bin keeps some.
//!
//! Nodes answer with their bins, and the rest is scanned, by the descents of the indexed aggregate. The window is answered slice by slice.
//! If the bins of a slice would take too much memory, it is answered in groups of those buckets that hold values.

use super::bucket::Bucket;
use super::bucket_values::{BinDetail, BucketValues};
use super::index_question::{IndexAsked, IndexQuestion};
use super::question_set::{QuestionSet, span};
use super::time_slices::TimeSlices;
use crate::error::{Error, Result};
use crate::proven::at;
use crate::query::poll::Poll;
use crate::schema::{BinMap, RangeSet};
use crate::types::{Key, Sum, TimeRange, Timestamp, ValueRange};

/// The values to count.
#[derive(Copy, Clone, Debug)]
pub struct HistogramSpec {
    pub time: TimeRange,
    /// `None` gives one histogram for all times.
    pub bucket: Option<Bucket>,
    /// The same as for an aggregate.
    pub threads: usize,
}

/// A bin of one bucket that holds values.
#[derive(Clone, PartialEq, Debug)]
pub struct HistogramRow {
    /// The bucket's start; `None` without buckets.
    pub bucket: Option<Timestamp>,
    pub bin: u16,
    pub count: u64,
    /// Set for defined bins; `auto` bins only count.
    pub stats: Option<BinValues>,
}

/// The statistics of the values in a defined bin.
#[derive(Clone, PartialEq, Debug)]
pub struct BinValues {
    pub sum: Sum,
    pub min: Key,
    pub max: Key,
}

/// A histogram that is being answered, a few buckets in each step.
pub struct Histogram {
    questions: Vec<IndexQuestion>,
    spec: HistogramSpec,
    bins: BinMap,
    detail: BinDetail,
    slices: TimeSlices,
    /// Buckets that hold a value, by time, of a slice that needs more than one descent.
    buckets: Vec<BucketValues>,
    /// The number of answered `buckets`.
    answered: usize,
}

impl Histogram {
    /// The values of several snapshots' indexes count as those of one.
    ///
    /// # Errors
    /// An unknown index, indexes with different bins, an invalid bucket, damage, eviction.
    pub fn new(asked: &[IndexAsked<'_>], spec: HistogramSpec) -> Result<Histogram> {
        let questions = IndexQuestion::prepare(asked, ValueRange::ALL)?;
        let Some(first) = questions
            .first()
            .filter(|_| questions.iter().all(|question| question.shares_bins))
        else {
            return Err(Error::Query(
                "the index has different bins in two directories; query them one by one".to_owned(),
            ));
        };
        let bins = first.bins.clone();
        let sources = asked.iter().map(|asked| (asked.snapshot, asked.source));
        Ok(Histogram {
            detail: if bins.is_auto() {
                BinDetail::Bins
            } else {
                BinDetail::BinTotals
            },
            slices: TimeSlices::of(sources, spec.bucket, spec.time)?,
            questions,
            spec,
            bins,
            buckets: Vec::new(),
            answered: 0,
        })
    }

    pub fn bins(&self) -> &BinMap {
        &self.bins
    }

    /// Restricts the answer to these ranges of whole buckets if that saves work; other buckets may still come. Must be called before the
    /// first step.
    pub fn keep(&mut self, times: &RangeSet<Timestamp>) {
        self.slices.keep(times);
    }

    /// The next rows, by bucket and bin; `None` after the last.
    ///
    /// # Errors
    /// Damage, eviction, [`crate::Error::Interrupted`].
    pub fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<HistogramRow>>> {
        while self.answered == self.buckets.len() {
            let Some(time) = self.slices.next() else {
                return Ok(None);
            };
            let asked = asked_of(&self.questions, &self.spec);
            if let Some(asked) = asked.in_one_descent(time, self.detail) {
                let binned = asked.values(time, self.detail, poll)?;
                self.slices.found(binned.len());
                if !binned.is_empty() {
                    return Ok(Some(self.rows(&binned)));
                }
                continue;
            }
            self.buckets = asked.values(time, BinDetail::Nothing, poll)?;
            self.slices.found(self.buckets.len());
            self.answered = 0;
        }
        let left = at(&self.buckets, self.answered..);
        let asked = asked_of(&self.questions, &self.spec);
        let (asked, group) = asked.at_once(left.len(), self.detail);
        let buckets = at(left, ..group.min(left.len()));
        let time = self.spec.time.intersect(span(buckets));
        let binned = asked.values(time, self.detail, poll)?;
        asked.expect_same(buckets, &binned)?;
        self.answered += buckets.len();
        Ok(Some(self.rows(&binned)))
    }

    fn rows(&self, buckets: &[BucketValues]) -> Vec<HistogramRow> {
        let rows = buckets.iter().flat_map(|values| self.bucket_rows(values));
        rows.collect()
    }

    fn bucket_rows(&self, values: &BucketValues) -> Vec<HistogramRow> {
        let bucket = self.spec.bucket.map(|_| values.time.first);
        let counted = values
            .bins
            .iter()
            .zip(0..)
            .map(|(&count, bin)| HistogramRow {
                bucket,
                bin,
                count,
                stats: None,
            });
        let totalled = values
            .bin_totals
            .iter()
            .zip(0..)
            .map(|(totals, bin)| HistogramRow {
                bucket,
                bin,
                count: totals.count,
                stats: Some(BinValues {
                    sum: totals.sum,
                    min: totals.range.min,
                    max: totals.range.max,
                }),
            });
        counted
            .chain(totalled)
            .filter(|row| row.count > 0)
            .collect()
    }
}

fn asked_of<'a>(questions: &'a [IndexQuestion], spec: &HistogramSpec) -> QuestionSet<'a> {
    QuestionSet {
        questions,
        bucket: spec.bucket,
        threads: spec.threads,
    }
}
