//! The indexed aggregate (paper §4.3): count, sum, extremes and quantiles of an index over a time range, by bucket, exact.
//!
//! Several directories are asked one after the other and add to the same buckets, slice by slice of the window if there are buckets.
//! Quantiles need counts by bin too. If the bins of a slice would take too much memory, it is answered in groups of those buckets that hold
//! values, which a first descent finds. `RankSearch` settles the ranks that bins do not decide.

use super::bucket::Bucket;
use super::bucket_values::{BinDetail, BucketValues};
use super::index_question::{IndexAsked, IndexQuestion};
use super::quantile::{Quantile, refuse_repeated};
use super::question_set::{QuestionSet, span};
use super::rank_search::{RankSearch, WantedRank};
use super::time_slices::TimeSlices;
use crate::error::{Error, Result};
use crate::proven::at_mut;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::snapshot::Snapshot;
use crate::schema::RangeSet;
use crate::types::{Address, IndexId, Key, SourceId, Sum, TimeRange, Timestamp, ValueRange};

/// The values to aggregate, and the aggregates.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateSpec {
    pub source: SourceId,
    pub index: IndexId,
    pub time: TimeRange,
    pub value: ValueRange,
    /// Only records that pass this filter count.
    pub filter: Predicate,
    /// `None` gives one row for all times, even if it is empty.
    pub bucket: Option<Bucket>,
    pub quantiles: Vec<Quantile>,
    /// Compute quantiles from bins alone, with an error of at most a bin's width.
    pub approx: bool,
    /// The most threads that work, with the caller's, which begins alone. Memory is bounded for each.
    pub threads: usize,
}

/// The aggregates of one bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateRow {
    /// The bucket's start; `None` without buckets.
    pub bucket: Option<Timestamp>,
    /// The number of records that the index's filter matches and whose value is not NULL.
    pub count: u64,
    pub sum: Sum,
    pub min: Option<Key>,
    pub max: Option<Key>,
    /// One for each requested quantile, in that order; `None` if there is no value.
    pub quantiles: Vec<Option<Key>>,
    /// The keys between which each quantile lies: the same key twice if it is exact, the ends of a bin if it is approximate.
    pub bounds: Vec<Option<ValueRange>>,
}

/// Aggregates the values of an index. Without buckets there is one row; with buckets there is one for each that holds a value, by time.
///
/// # Errors
/// An unknown index, an invalid bucket or quantile, damage, eviction, [`crate::Error::Interrupted`].
pub fn aggregate(
    snapshot: &Snapshot,
    spec: &AggregateSpec,
    poll: &Poll<'_>,
) -> Result<Vec<AggregateRow>> {
    Aggregate::new(&[(snapshot.clone(), spec.clone())])?.collect(poll)
}

/// Aggregates the values of several snapshots' indexes as if they were one index, and just as exactly. The specs may differ only in source,
/// index and filter.
///
/// # Errors
/// As [`aggregate`]; no snapshot, other differences, or indexes of several kinds of value.
pub fn aggregate_together(
    asked: &[(Snapshot, AggregateSpec)],
    poll: &Poll<'_>,
) -> Result<Vec<AggregateRow>> {
    Aggregate::new(asked)?.collect(poll)
}

/// An aggregate that is being answered, a few buckets in each step.
pub struct Aggregate {
    questions: Vec<IndexQuestion>,
    spec: AggregateSpec,
    slices: TimeSlices,
}

impl Aggregate {
    /// The values of several snapshots' indexes count as those of one. The specs may differ only in source, index and filter.
    ///
    /// # Errors
    /// As [`aggregate_together`].
    pub fn new(asked: &[(Snapshot, AggregateSpec)]) -> Result<Aggregate> {
        let Some((_, spec)) = asked.first() else {
            return Err(Error::Query("there is nothing to aggregate".to_owned()));
        };
        let alike = |other: &AggregateSpec| {
            let own = AggregateSpec {
                source: spec.source,
                index: spec.index,
                filter: spec.filter.clone(),
                ..other.clone()
            };
            own == *spec
        };
        if !asked.iter().all(|(_, other)| alike(other)) {
            return Err(Error::Query(
                "questions that are answered together must have the same form".to_owned(),
            ));
        }
        refuse_repeated(&spec.quantiles)?;
        let questions = IndexQuestion::prepare(&indexes_of(asked), spec.value)?;
        let sources = asked.iter().map(|(snapshot, spec)| (snapshot, spec.source));
        Ok(Aggregate {
            questions,
            slices: TimeSlices::of(sources, spec.bucket, spec.time)?,
            spec: spec.clone(),
        })
    }

    /// Skips the records below an address, which must be a record's. Must be called before the first step.
    pub fn after(&mut self, address: Address) {
        for question in &mut self.questions {
            question.after = address;
        }
    }

    /// Restricts the answer to these ranges of whole buckets if that saves work; other buckets may still come. Must be called before the
    /// first step.
    pub fn keep(&mut self, times: &RangeSet<Timestamp>) {
        self.slices.keep(times);
    }

    /// The next rows, by time; `None` after the last.
    ///
    /// # Errors
    /// Damage, eviction, [`crate::Error::Interrupted`].
    pub fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<AggregateRow>>> {
        while let Some(time) = self.slices.next() {
            let rows = self.rows(time, poll)?;
            self.slices.found(rows.len());
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    fn collect(mut self, poll: &Poll<'_>) -> Result<Vec<AggregateRow>> {
        let mut rows = Vec::new();
        while let Some(more) = self.next(poll)? {
            rows.extend(more);
        }
        Ok(rows)
    }

    /// The rows of one slice.
    fn rows(&self, time: TimeRange, poll: &Poll<'_>) -> Result<Vec<AggregateRow>> {
        let spec = &self.spec;
        let asked = QuestionSet {
            questions: &self.questions,
            bucket: spec.bucket,
            threads: spec.threads,
        };
        let rows_of = |buckets: &[BucketValues]| -> Vec<AggregateRow> {
            buckets.iter().map(|bucket| row(bucket, spec)).collect()
        };
        if !spec.quantiles.is_empty()
            && let Some(asked) = asked.in_one_descent(time, BinDetail::Bins)
        {
            let binned = asked.values(time, BinDetail::Bins, poll)?;
            let mut rows = rows_of(&binned);
            quantiles(&asked, spec, &binned, &mut rows, poll)?;
            return Ok(rows);
        }
        let buckets = asked.values(time, BinDetail::Nothing, poll)?;
        let mut rows = rows_of(&buckets);
        if spec.quantiles.is_empty() {
            return Ok(rows);
        }
        let (asked, group) = asked.at_once(buckets.len(), BinDetail::Bins);
        for (buckets, rows) in buckets.chunks(group).zip(rows.chunks_mut(group)) {
            let time = time.intersect(span(buckets));
            let binned = asked.values(time, BinDetail::Bins, poll)?;
            asked.expect_same(buckets, &binned)?;
            quantiles(&asked, spec, &binned, rows, poll)?;
        }
        Ok(rows)
    }
}

pub(super) fn indexes_of(asked: &[(Snapshot, AggregateSpec)]) -> Vec<IndexAsked<'_>> {
    let indexes = asked.iter().map(|(snapshot, spec)| IndexAsked {
        snapshot,
        source: spec.source,
        index: spec.index,
        filter: &spec.filter,
    });
    indexes.collect()
}

fn row(bucket: &BucketValues, spec: &AggregateSpec) -> AggregateRow {
    let totals = &bucket.totals;
    let some = totals.count > 0;
    AggregateRow {
        bucket: spec.bucket.map(|_| bucket.time.first),
        count: totals.count,
        sum: totals.sum,
        min: some.then_some(totals.range.min),
        max: some.then_some(totals.range.max),
        quantiles: vec![None; spec.quantiles.len()],
        bounds: vec![None; spec.quantiles.len()],
    }
}

/// Fills in the quantiles of rows whose values were counted by bin.
fn quantiles(
    asked: &QuestionSet<'_>,
    spec: &AggregateSpec,
    buckets: &[BucketValues],
    rows: &mut [AggregateRow],
    poll: &Poll<'_>,
) -> Result<()> {
    let mut search = RankSearch::new(asked);
    let kind = asked.first().bins.kind();
    for (row_number, (bucket, row)) in buckets.iter().zip(rows.iter_mut()).enumerate() {
        for (column, quantile) in spec.quantiles.iter().enumerate() {
            if bucket.totals.count == 0 {
                continue;
            }
            let rank = quantile.rank(bucket.totals.count);
            let range = search.range_of(bucket, rank)?;
            let middle = spec.approx.then(|| range.middle(kind)).flatten();
            let answer = range.single().or(middle);
            *at_mut(&mut row.quantiles, column) = answer;
            *at_mut(&mut row.bounds, column) = Some(range.keys);
            if answer.is_none() {
                let time = spec.time.intersect(bucket.time);
                search.want(WantedRank {
                    time,
                    range,
                    row: row_number,
                    column,
                });
            }
        }
    }
    for found in search.settle(poll)? {
        let row = at_mut(rows, found.row);
        *at_mut(&mut row.quantiles, found.column) = Some(found.key);
        *at_mut(&mut row.bounds, found.column) = Some(ValueRange {
            min: found.key,
            max: found.key,
        });
    }
    Ok(())
}
