//! The indexed aggregate (paper §4.3): count, sum, extremes and quantiles of an index over a time range, by bucket, exact.
//!
//! A first descent gives the totals. Quantiles need counts by bin too: at once where there is one bucket, and group by group where
//! there are many, so that memory is bounded. What the bins leave open, `refine.rs` settles.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::bucket::Bucket;
use super::collect::Collecting;
use super::cursor::ChunkCursor;
use super::interrupt::Poll;
use super::node_reader::contradiction;
use super::quantile::{Quantile, refuse_repeated};
use super::refine::{Refinery, Wanted};
use super::snapshot::Snapshot;
use super::tally::{Slot, Tally};
use super::value::Value;
use super::walk::{Order, Walk};
use crate::error::Result;
use crate::schema::{Source, TimeKind};
use crate::types::{IndexId, Key, SourceId, Sum, TimeRange, Timestamp, ValueRange};

/// What to aggregate.
#[derive(Clone, Debug)]
pub struct AggregateSpec {
    pub source: SourceId,
    pub index: IndexId,
    pub time: TimeRange,
    pub value: ValueRange,
    /// `None`: one row for all times, even if it is empty.
    pub bucket: Option<Bucket>,
    pub quantiles: Vec<Quantile>,
    /// Quantiles from bins alone, at most a bin's width off.
    pub approx: bool,
}

/// The aggregates of one bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateRow {
    /// The bucket's start; `None` without buckets.
    pub bucket: Option<Timestamp>,
    /// Values: records that the index's filter matches and whose value is not NULL.
    pub count: u64,
    pub sum: Sum,
    pub min: Option<Key>,
    pub max: Option<Key>,
    /// One for each quantile asked for, in that order; `None` where there is no value.
    pub quantiles: Vec<Option<Key>>,
}

/// Counts by bin of a group of buckets take at most this; little under test, so that there are groups.
const BIN_BYTES_MOST: usize = if cfg!(test) { 128 << 10 } else { 64 << 20 };

/// What both descents ask, prepared.
pub(crate) struct Question {
    pub source: Arc<Source>,
    pub value: Arc<Value>,
    pub keys: ValueRange,
}

impl Question {
    /// Arrival times outside which no record has a `ts` in `time`.
    pub fn arrivals(&self, time: TimeRange) -> TimeRange {
        match self.source.time {
            TimeKind::Arrival => time,
            TimeKind::Own => TimeRange::ALL,
        }
    }
}

/// Aggregates the values of an index. Without buckets there is one row, with them one for each that holds a value, by time.
///
/// # Errors
/// An unknown index, a bucket or quantiles that make no sense, damage, eviction, [`crate::Error::Interrupted`].
pub fn aggregate(
    snapshot: &Snapshot,
    spec: &AggregateSpec,
    poll: &Poll<'_>,
) -> Result<Vec<AggregateRow>> {
    refuse_repeated(&spec.quantiles)?;
    if let Some(bucket) = spec.bucket {
        bucket.validate()?;
    }
    let question = Question {
        source: snapshot.source_by_id(spec.source)?,
        value: snapshot.value_of(spec.source, spec.index)?,
        keys: spec.value,
    };
    let at_once = !spec.quantiles.is_empty() && spec.bucket.is_none();
    let slots = tally(snapshot, &question, spec, spec.time, at_once, poll)?;
    let mut rows: Vec<AggregateRow> = slots.iter().map(|slot| row(slot, spec)).collect();
    if spec.quantiles.is_empty() {
        return Ok(rows);
    }
    if at_once {
        quantiles(snapshot, &question, spec, &slots, &mut rows, poll)?;
        return Ok(rows);
    }
    let group = (BIN_BYTES_MOST / (question.value.bins().len() * size_of::<u64>())).max(1);
    for (slots, rows) in slots.chunks(group).zip(rows.chunks_mut(group)) {
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else {
            continue;
        };
        let time = spec.time.intersect(TimeRange {
            first: first.time.first,
            last: last.time.last,
        });
        let binned = tally(snapshot, &question, spec, time, true, poll)?;
        if !binned
            .iter()
            .map(|slot| slot.time)
            .eq(slots.iter().map(|slot| slot.time))
        {
            return Err(contradiction(
                snapshot.logs(),
                "two descents find other buckets",
            ));
        }
        quantiles(snapshot, &question, spec, &binned, rows, poll)?;
    }
    Ok(rows)
}

fn row(slot: &Slot, spec: &AggregateSpec) -> AggregateRow {
    let totals = &slot.totals;
    let some = totals.count > 0;
    AggregateRow {
        bucket: spec.bucket.map(|_| slot.time.first),
        count: totals.count,
        sum: totals.sum,
        min: some.then_some(totals.range.min),
        max: some.then_some(totals.range.max),
        quantiles: vec![None; spec.quantiles.len()],
    }
}

/// One descent: totals, and counts by bin if they are asked for, of the values within `time`.
fn tally(
    snapshot: &Snapshot,
    question: &Question,
    spec: &AggregateSpec,
    time: TimeRange,
    counts_bins: bool,
    poll: &Poll<'_>,
) -> Result<Vec<Slot>> {
    let logs = snapshot.logs();
    let mut collecting = Collecting {
        logs,
        question,
        time,
        tally: Tally::new(spec.bucket, &question.value, counts_bins),
    };
    if time.is_empty() || question.keys.is_empty() {
        return Ok(collecting.tally.into_slots());
    }
    let mut walk = Walk::new(Arc::clone(logs), Order::OldestFirst);
    let mut cursor = ChunkCursor::new(Arc::clone(logs));
    while let Some(chunk) = walk.next(&mut collecting, poll)? {
        cursor.load(chunk)?;
        let mut failed = Ok(());
        let _ = cursor.for_each(&question.source, |record, _| {
            failed = collecting.record(&record);
            match failed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        failed?;
    }
    Ok(collecting.tally.into_slots())
}

/// Fills in the quantiles of rows whose values were counted by bin.
fn quantiles(
    snapshot: &Snapshot,
    question: &Question,
    spec: &AggregateSpec,
    slots: &[Slot],
    rows: &mut [AggregateRow],
    poll: &Poll<'_>,
) -> Result<()> {
    let mut refinery = Refinery::new(snapshot.logs(), question);
    for (row_number, (slot, row)) in slots.iter().zip(rows.iter_mut()).enumerate() {
        for (column, quantile) in spec.quantiles.iter().enumerate() {
            if slot.totals.count == 0 {
                continue;
            }
            let rank = quantile.rank(slot.totals.count);
            let place = refinery.place(slot, rank)?;
            let answer = if spec.approx {
                Some(place.middle())
            } else {
                place.single()
            };
            if let Some(cell) = row.quantiles.get_mut(column) {
                *cell = answer;
            }
            if answer.is_none() {
                let time = spec.time.intersect(slot.time);
                refinery.want(Wanted {
                    time,
                    place,
                    row: row_number,
                    column,
                });
            }
        }
    }
    for found in refinery.settle(poll)? {
        let cell = rows
            .get_mut(found.row)
            .and_then(|row| row.quantiles.get_mut(found.column));
        if let Some(cell) = cell {
            *cell = Some(found.key);
        }
    }
    Ok(())
}
