//! Counts a source's records in each bucket of time. No index is needed, because nodes count records by source.
//!
//! A node adds its count if its records fall in one bucket and all pass the filter. A roll-up does so for each of its children, and the
//! chunks on the buckets' edges are read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::bucket::Bucket;
use super::bucket_values::{BUCKETS_MOST, too_many_buckets};
use super::shared_descent::{Descent, descend};
use super::time_slices::TimeSlices;
use crate::error::Result;
use crate::format::Node;
use crate::query::forest::mask::NodeView;
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::forest::walk::Visitor;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::scan::ask::Ask;
use crate::query::scan::batch::Batch;
use crate::query::scan::source_reader::SourceReader;
use crate::query::scan::unit_pruning::UnitPruning;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{RangeSet, Source};
use crate::types::{Address, ChunkNo, SourceId, TimeRange, Timestamp};

/// The records to count.
#[derive(Copy, Clone, Debug)]
pub struct CountSpec {
    pub time: TimeRange,
    pub bucket: Bucket,
    /// The same as for an aggregate.
    pub threads: usize,
}

/// The count of a bucket that holds at least one record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CountRow {
    /// The bucket's start.
    pub bucket: Timestamp,
    pub count: u64,
}

/// A count that is being answered, a few buckets in each step.
pub struct RecordCounts {
    parts: Vec<(Arc<SnapshotLogs>, Arc<Source>, UnitPruning)>,
    spec: CountSpec,
    slices: TimeSlices,
}

impl RecordCounts {
    /// Counts the records of several snapshots' sources as those of one. Only records that pass the snapshot's predicate count.
    ///
    /// # Errors
    /// An unknown source, an invalid bucket, damage, eviction.
    pub fn new(
        asked: &[(&Snapshot, SourceId, &Predicate)],
        spec: CountSpec,
    ) -> Result<RecordCounts> {
        let parts = asked.iter().map(|&(snapshot, source, filter)| {
            let filter = snapshot.test_of(source, filter)?;
            let source = snapshot.source_by_id(source)?;
            let logs = snapshot.logs();
            let units = UnitPruning::new(logs, &source, filter);
            Ok((Arc::clone(logs), source, units))
        });
        let sources = asked
            .iter()
            .map(|&(snapshot, source, _)| (snapshot, source));
        Ok(RecordCounts {
            parts: parts.collect::<Result<_>>()?,
            slices: TimeSlices::of(sources, Some(spec.bucket), spec.time)?,
            spec,
        })
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
    pub fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<CountRow>>> {
        while let Some(time) = self.slices.next() {
            let mut counts = BTreeMap::new();
            for (logs, source, units) in &self.parts {
                let descent = CountDescent {
                    source,
                    units,
                    time,
                    bucket: self.spec.bucket,
                    benefit: SummaryBenefit::default(),
                    current: (TimeRange::EMPTY, 0),
                    counts,
                };
                let mut descent = descend(logs, Address::ZERO, descent, self.spec.threads, poll)?;
                descent.turn(TimeRange::EMPTY);
                counts = descent.counts;
            }
            self.slices.found(counts.len());
            if !counts.is_empty() {
                let row = |(bucket, count)| CountRow { bucket, count };
                return Ok(Some(counts.into_iter().map(row).collect()));
            }
        }
        Ok(None)
    }
}

struct CountDescent<'a> {
    source: &'a Arc<Source>,
    /// Only records that pass its test count.
    units: &'a UnitPruning,
    time: TimeRange,
    bucket: Bucket,
    benefit: SummaryBenefit,
    /// The latest bucket, and its records that `counts` does not have yet.
    current: (TimeRange, u64),
    /// By the buckets' starts.
    counts: BTreeMap<Timestamp, u64>,
}

impl CountDescent<'_> {
    /// Adds records with these times, which must not be empty. Returns false and adds nothing if some are not wanted or they fall in
    /// several buckets.
    fn add(&mut self, times: TimeRange, records: u64) -> bool {
        if !self.time.covers(times) {
            return false;
        }
        let (mut bucket, _) = self.current;
        if !bucket.contains(times.first) {
            bucket = self.bucket.range_of(times.first);
        }
        if !bucket.covers(times) {
            return false;
        }
        self.turn(bucket);
        self.current.1 = self.current.1.saturating_add(records);
        true
    }

    /// Moves on to another bucket.
    fn turn(&mut self, bucket: TimeRange) {
        let (before, records) = self.current;
        if before == bucket {
            return;
        }
        if records > 0 {
            let count = self.counts.entry(before.first).or_default();
            *count = count.saturating_add(records);
        }
        self.current = (bucket, 0);
    }

    fn require_room(&self) -> Result<()> {
        match self.counts.len() {
            ..=BUCKETS_MOST => Ok(()),
            _ => Err(too_many_buckets()),
        }
    }

    /// Adds one record.
    fn record(&mut self, ts: Timestamp) {
        let times = TimeRange {
            first: ts,
            last: ts,
        };
        self.add(times, 1);
    }
}

impl Visitor for CountDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        match self.source.own_time() {
            true => TimeRange::ALL,
            false => self.time,
        }
    }

    fn is_outside(&mut self, chunks: Range<ChunkNo>) -> bool {
        // Nodes answer filters of index values for less.
        self.units.test().needs_records() && self.units.is_outside(chunks)
    }

    fn opens_summaries(&mut self) -> bool {
        self.benefit.opens_next()
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.source.id) else {
            return Ok(0);
        };
        let times = TimeRange {
            first: stats.first_ts,
            last: stats.last_ts,
        };
        if !self.time.overlaps(times) {
            return Ok(0);
        }
        let view = NodeView { node: *node, stats };
        let passing = self.units.test().masks(&view);
        let is_added = passing.all == view.held() && self.add(times, stats.records);
        if is_added || view.is_summary() {
            let open = passing.may & u64::from(!is_added);
            if open == 0 {
                self.benefit.answered();
            }
            return Ok(open);
        }
        let mut open = 0;
        for child in stats.children() {
            let times = TimeRange {
                first: child.first_ts,
                last: child.last_ts,
            };
            let bit = 1 << child.child;
            let all_pass = passing.all & bit != 0;
            if self.time.overlaps(times) && !(all_pass && self.add(times, child.records)) {
                open |= passing.may & bit;
            }
        }
        self.require_room()?;
        Ok(open)
    }
}

impl Descent for CountDescent<'_> {
    type Note = ();

    fn note(&mut self) {}

    fn rows(&self) -> SourceReader {
        let ask = Ask {
            times: true,
            ..Ask::default()
        };
        SourceReader::new(
            self.source,
            ask,
            self.units.test().clone(),
            self.time,
            Address::ZERO,
        )
    }

    fn take(&mut self, (): (), batch: Batch<'_>) -> Result<()> {
        let Some(times) = batch.span() else {
            return Ok(());
        };
        if !self.add(times, batch.count() as u64) {
            for time in batch.times() {
                let ts = Timestamp(*time as i64);
                match self.current.0.contains(ts) && self.time.contains(ts) {
                    true => self.current.1 += 1,
                    false => self.record(ts),
                }
            }
        }
        self.require_room()
    }

    fn fork(&self) -> Self {
        CountDescent {
            benefit: SummaryBenefit::default(),
            current: (TimeRange::EMPTY, 0),
            counts: BTreeMap::new(),
            ..*self
        }
    }

    fn absorb(&mut self, mut other: Self) -> Result<()> {
        other.turn(TimeRange::EMPTY);
        for (bucket, records) in other.counts {
            let count = self.counts.entry(bucket).or_default();
            *count = count.saturating_add(records);
        }
        self.require_room()
    }
}
