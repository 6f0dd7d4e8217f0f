//! How many records a source has in each bucket of time, without any index: nodes count records by source.
//!
//! A node whose records fall in one bucket, and all pass the filter, adds its count, a roll-up adds the children of which that holds, and the chunks on the buckets'
//! edges are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bucket::Bucket;
use super::bucket_values::{BUCKETS_MOST, too_many_buckets};
use super::shared_descent::{Descent, descend};
use super::time_slices::TimeSlices;
use crate::error::Result;
use crate::format::Node;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::Visitor;
use crate::query::poll::Poll;
use crate::query::predicate::{Predicate, Test};
use crate::query::scan::ask::Ask;
use crate::query::scan::batch::Batch;
use crate::query::scan::source_reader::SourceReader;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{RangeSet, Source};
use crate::types::{Address, SourceId, TimeRange, Timestamp};

/// Which records to count.
#[derive(Copy, Clone, Debug)]
pub struct CountSpec {
    pub time: TimeRange,
    pub bucket: Bucket,
    /// As for an aggregate.
    pub threads: usize,
}

/// The records of one bucket, of which there is at least one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CountRow {
    /// The bucket's start.
    pub bucket: Timestamp,
    pub count: u64,
}

/// A count that is being answered, some buckets a step.
pub struct RecordCounts {
    parts: Vec<(Arc<SnapshotLogs>, Arc<Source>, Test)>,
    spec: CountSpec,
    slices: TimeSlices,
}

impl RecordCounts {
    /// The records of several snapshots' sources that pass a predicate of each are counted as those of one.
    ///
    /// # Errors
    /// An unknown source, a bucket that makes no sense, damage, eviction.
    pub fn new(
        asked: &[(&Snapshot, SourceId, &Predicate)],
        spec: CountSpec,
    ) -> Result<RecordCounts> {
        let parts = asked.iter().map(|&(snapshot, source, filter)| {
            let filter = snapshot.test_of(source, filter)?;
            let source = snapshot.source_by_id(source)?;
            Ok((Arc::clone(snapshot.logs()), source, filter))
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

    /// Answers only for these ranges of whole buckets, where that spares work; other buckets may come too. Called before the first step.
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
            for (logs, source, filter) in &self.parts {
                let descent = CountDescent {
                    source,
                    filter,
                    time,
                    bucket: self.spec.bucket,
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
    /// Of the records that pass it.
    filter: &'a Test,
    time: TimeRange,
    bucket: Bucket,
    /// The bucket that was added to last, and what `counts` does not have of it yet.
    current: (TimeRange, u64),
    /// By the buckets' starts.
    counts: BTreeMap<Timestamp, u64>,
}

impl CountDescent<'_> {
    /// Adds records at times that are not empty; false, with nothing added, if some are not wanted or they fall in several buckets.
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

    /// Goes on with another bucket.
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
        let passing = self.filter.masks(&view);
        let is_added = passing.all == view.held() && self.add(times, stats.records);
        if is_added || view.is_summary() {
            return Ok(passing.may & u64::from(!is_added));
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
            self.filter.clone(),
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
                self.record(Timestamp(*time as i64));
            }
        }
        self.require_room()
    }

    fn fork(&self) -> Self {
        CountDescent {
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
