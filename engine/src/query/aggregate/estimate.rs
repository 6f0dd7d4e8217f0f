//! Estimates how much a question would read. It descends without reading a chunk, so it costs no more than the nodes.

use std::sync::Arc;

use super::bucket_values::{BinDetail, ValuesByBucket};
use super::index_question::IndexQuestion;
use super::indexed_aggregate::{AggregateSpec, indexes_of};
use super::question_set::QuestionSet;
use super::rank_descent::RankDescent;
use super::rank_range::RankRange;
use super::rank_target::{RankTarget, Sink};
use super::totals_descent::TotalsDescent;
use crate::error::Result;
use crate::query::forest::walk::{Order, Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::scan::shared_scan::Scan;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::RangeSet;

/// The number of chunks that would be read, approximately. The greatest values that summaries keep may spare some of them. Where two slices
/// of buckets meet, and between threads, a chunk is read once more than is counted here.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    pub chunks: u64,
    pub bytes: u64,
}

impl Estimate {
    fn add(&mut self, logs: &SnapshotLogs, chunks: u64) {
        self.chunks += chunks;
        self.bytes += chunks * u64::from(logs.chunk_bytes());
    }
}

impl Scan {
    /// Estimates how much this scan would read.
    ///
    /// # Errors
    /// Damage in the index logs, [`crate::Error::Interrupted`].
    pub fn estimate(&self, poll: &Poll<'_>) -> Result<Estimate> {
        let mut estimate = Estimate::default();
        estimate.add(self.logs(), survey(self.logs(), &mut self.pruning(), poll)?);
        Ok(estimate)
    }
}

/// Estimates how much [`super::indexed_aggregate::aggregate_together`] would read. With quantiles a chunk may be read up to three times,
/// and is counted as often.
///
/// # Errors
/// As for an aggregate, except damage in chunks.
pub fn estimate_aggregate(
    asked: &[(Snapshot, AggregateSpec)],
    poll: &Poll<'_>,
) -> Result<Estimate> {
    let spec = asked.first().map(|(_, spec)| spec);
    let spec = spec.expect("an estimate is of at least one directory");
    let questions = IndexQuestion::prepare(&indexes_of(asked), spec.value)?;
    let asked = QuestionSet {
        questions: &questions,
        bucket: spec.bucket,
        threads: 1,
    };
    let mut estimate = Estimate::default();
    let has_quantiles = !spec.quantiles.is_empty();
    if !has_quantiles || spec.bucket.is_some() {
        totals(&asked, spec, BinDetail::Nothing, &mut estimate, poll)?;
    }
    if !has_quantiles {
        return Ok(estimate);
    }
    let before = estimate;
    let values = totals(&asked, spec, BinDetail::Bins, &mut estimate, poll)?;
    if spec.approx {
        return Ok(estimate);
    }
    // The search for ranks may read any of these chunks again.
    estimate.chunks += estimate.chunks - before.chunks;
    estimate.bytes += estimate.bytes - before.bytes;
    let mut targets = Vec::new();
    for bucket in values.into_buckets().iter() {
        for quantile in &spec.quantiles {
            let rank = quantile.rank(bucket.totals.count.max(1));
            let open = RankRange::of(asked.first(), bucket, rank)
                .filter(|range| bucket.totals.count > 0 && range.single().is_none());
            targets.extend(open.map(|range| RankTarget {
                time: spec.time.intersect(bucket.time),
                range,
                sink: Sink::Keys(Vec::new()),
            }));
        }
    }
    let keys = targets
        .iter()
        .map(|target| (target.range.keys.min, target.range.keys.max));
    let keys = Arc::new(RangeSet::new(keys));
    if !targets.is_empty() {
        for question in &questions {
            let forked = targets.iter().map(RankTarget::fork).collect();
            let mut descent = RankDescent::new(question, Arc::clone(&keys), forked);
            estimate.add(&question.logs, survey(&question.logs, &mut descent, poll)?);
        }
    }
    Ok(estimate)
}

/// The totals that the nodes give without a scan. Adds the chunks that would be scanned to the estimate.
fn totals(
    asked: &QuestionSet<'_>,
    spec: &AggregateSpec,
    detail: BinDetail,
    estimate: &mut Estimate,
    poll: &Poll<'_>,
) -> Result<ValuesByBucket> {
    let mut values = ValuesByBucket::new(asked.bucket, &asked.first().bins, detail);
    for question in asked.questions {
        if !spec.time.is_empty() && !question.keys.is_empty() {
            let mut descent = TotalsDescent::new(question, spec.time, values);
            estimate.add(&question.logs, survey(&question.logs, &mut descent, poll)?);
            values = descent.values;
        }
    }
    Ok(values)
}

/// The number of chunks that a walk yields.
fn survey(logs: &Arc<SnapshotLogs>, visitor: &mut impl Visitor, poll: &Poll<'_>) -> Result<u64> {
    let mut walk = Walk::new(logs.counted_apart(), Order::OldestFirst);
    let mut chunks = 0;
    while walk.next(visitor, poll)?.is_some() {
        chunks += 1;
    }
    Ok(chunks)
}
