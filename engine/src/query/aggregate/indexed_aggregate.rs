//! The indexed aggregate (paper §4.3): count, sum, extremes and quantiles of an index over a time range, by bucket, exact.
//!
//! Several directories are asked one after the other and add to the same buckets. A first descent gives the totals. Quantiles need counts by bin too: at once where there is one bucket, and group by group where
//! there are many, so that memory is bounded. What the bins leave open, `refine.rs` settles.

use std::sync::Arc;

use super::bucket::Bucket;
use super::collect::Collecting;
use super::gather::gather;
use super::quantile::{Quantile, refuse_repeated};
use super::refine::{Refinery, Wanted};
use super::tally::{Counts, Slot, Tally};
use crate::error::{Error, Result};
use crate::query::forest::cached_nodes::contradiction;
use crate::query::interrupt::Poll;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::query::value::Value;
use crate::schema::{BinMap, Source, TimeKind};
use crate::types::{IndexId, Key, SourceId, Sum, TimeRange, Timestamp, ValueRange};

/// What to aggregate.
#[derive(Clone, PartialEq, Debug)]
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
    /// So many threads work at most, the caller's among them, which begins alone. Memory is bounded for each.
    pub threads: usize,
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

/// What all descents ask of one snapshot, prepared.
pub(crate) struct Question {
    pub logs: Arc<SnapshotLogs>,
    pub source: Arc<Source>,
    pub value: Arc<Value>,
    pub keys: ValueRange,
    /// The bins that values are counted by: those of the first snapshot's index.
    pub bins: BinMap,
    /// Whether they are this snapshot's too, so that its nodes tell counts by bin.
    pub shares_bins: bool,
}

impl Question {
    /// The same question to each snapshot.
    ///
    /// # Errors
    /// No snapshot, an unknown index, or indexes of several kinds of value.
    pub fn prepare(
        asked: &[(&Snapshot, SourceId, IndexId)],
        keys: ValueRange,
    ) -> Result<Vec<Question>> {
        let mut questions: Vec<Question> = Vec::with_capacity(asked.len());
        for &(snapshot, source, index) in asked {
            let value = snapshot.value_of(source, index)?;
            let bins = match questions.first() {
                None => value.bins().clone(),
                Some(first) => first.bins.clone(),
            };
            if bins.kind() != value.kind() {
                return Err(Error::Query(
                    "the index has values of one kind in one directory, of another in the next"
                        .to_owned(),
                ));
            }
            questions.push(Question {
                logs: Arc::clone(snapshot.logs()),
                source: snapshot.source_by_id(source)?,
                shares_bins: bins == *value.bins(),
                bins,
                value,
                keys,
            });
        }
        if questions.is_empty() {
            return Err(Error::Query("there is nothing to aggregate".to_owned()));
        }
        Ok(questions)
    }

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
    let questions = Question::prepare(&[(snapshot, spec.source, spec.index)], spec.value)?;
    answer(&questions, spec, poll)
}

/// Aggregates the values of several snapshots' indexes as those of one, as exactly. The specs differ in source and index only.
///
/// # Errors
/// As [`aggregate`]; no snapshot, other differences, or indexes of several kinds of value.
pub fn aggregate_together(
    asked: &[(Snapshot, AggregateSpec)],
    poll: &Poll<'_>,
) -> Result<Vec<AggregateRow>> {
    let Some((_, spec)) = asked.first() else {
        return Err(Error::Query("there is nothing to aggregate".to_owned()));
    };
    let alike = |other: &AggregateSpec| {
        let own = AggregateSpec {
            source: spec.source,
            index: spec.index,
            ..other.clone()
        };
        own == *spec
    };
    if !asked.iter().all(|(_, other)| alike(other)) {
        return Err(Error::Query(
            "what is aggregated together must be asked alike".to_owned(),
        ));
    }
    let places: Vec<_> = asked
        .iter()
        .map(|(snapshot, spec)| (snapshot, spec.source, spec.index))
        .collect();
    answer(&Question::prepare(&places, spec.value)?, spec, poll)
}

fn answer(
    questions: &[Question],
    spec: &AggregateSpec,
    poll: &Poll<'_>,
) -> Result<Vec<AggregateRow>> {
    refuse_repeated(&spec.quantiles)?;
    if let Some(bucket) = spec.bucket {
        bucket.validate()?;
    }
    let at_once = !spec.quantiles.is_empty() && spec.bucket.is_none();
    let count = if at_once {
        Counts::Bins
    } else {
        Counts::Nothing
    };
    let asked = Asked {
        questions,
        bucket: spec.bucket,
        threads: spec.threads,
    };
    let slots = asked.tally(spec.time, count, poll)?;
    let mut rows: Vec<AggregateRow> = slots.iter().map(|slot| row(slot, spec)).collect();
    if spec.quantiles.is_empty() {
        return Ok(rows);
    }
    if at_once {
        quantiles(&asked, spec, &slots, &mut rows, poll)?;
        return Ok(rows);
    }
    let (asked, group) = asked.at_once(slots.len(), Counts::Bins);
    for (slots, rows) in slots.chunks(group).zip(rows.chunks_mut(group)) {
        let time = spec.time.intersect(span(slots));
        let binned = asked.tally(time, Counts::Bins, poll)?;
        asked.expect_same(slots, &binned)?;
        quantiles(&asked, spec, &binned, rows, poll)?;
    }
    Ok(rows)
}

/// From the first of some buckets to the last.
pub(crate) fn span(slots: &[Slot]) -> TimeRange {
    match (slots.first(), slots.last()) {
        (Some(first), Some(last)) => TimeRange {
            first: first.time.first,
            last: last.time.last,
        },
        _ => TimeRange::EMPTY,
    }
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

/// What the descents of one aggregate or histogram have in common.
#[derive(Copy, Clone)]
pub(crate) struct Asked<'a> {
    /// To each snapshot; never none.
    pub questions: &'a [Question],
    pub bucket: Option<Bucket>,
    pub threads: usize,
}

impl Asked<'_> {
    /// One descent of each snapshot: totals, and what is counted by bin, of the values within `time`.
    pub fn tally(&self, time: TimeRange, counts: Counts, poll: &Poll<'_>) -> Result<Vec<Slot>> {
        let Some(first) = self.questions.first() else {
            return Ok(Vec::new());
        };
        let mut tally = Tally::new(self.bucket, &first.bins, counts);
        for question in self.questions {
            if !time.is_empty() && !question.keys.is_empty() {
                let collecting = Collecting::new(question, time, tally);
                tally = gather(&question.logs, collecting, self.threads, poll)?.tally;
            }
        }
        Ok(tally.into_slots())
    }

    /// How many of so many buckets are counted by bin at once, and with how many threads: each counts them all, so there are only so many that
    /// no further descent is needed.
    pub fn at_once(self, buckets: usize, counts: Counts) -> (Self, usize) {
        let bins = self.questions.first().map_or(1, |first| first.bins.len());
        let most = (BIN_BYTES_MOST / (bins * counts.bin_bytes())).max(1);
        let threads = (most / buckets.max(1)).clamp(1, self.threads.max(1));
        (Self { threads, ..self }, most / threads)
    }

    /// Two descents must find the same buckets.
    pub fn expect_same(&self, slots: &[Slot], again: &[Slot]) -> Result<()> {
        let times = |slots: &[Slot]| slots.iter().map(|slot| slot.time).collect::<Vec<_>>();
        match self.questions.first() {
            Some(first) if times(slots) != times(again) => Err(contradiction(
                &first.logs,
                "two descents find other buckets",
            )),
            _ => Ok(()),
        }
    }
}

/// Fills in the quantiles of rows whose values were counted by bin.
fn quantiles(
    asked: &Asked<'_>,
    spec: &AggregateSpec,
    slots: &[Slot],
    rows: &mut [AggregateRow],
    poll: &Poll<'_>,
) -> Result<()> {
    let mut refinery = Refinery::new(asked);
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
