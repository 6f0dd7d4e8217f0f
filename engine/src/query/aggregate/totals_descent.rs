//! The descent that adds up an index: what nodes answer goes into the values whole, what they cannot is opened or scanned.
//!
//! A node answers only where it lies wholly inside the time range, one bucket and the value range, all of its records pass the filter, and it has an
//! entry for the index. Roll-ups carry their children's totals, so the siblings inside a window are added without being opened.

use std::ops::ControlFlow;

use super::bucket_values::{BinDetail, Totals, ValuesByBucket};
use super::index_question::IndexQuestion;
use super::shared_descent::Descent;
use crate::error::Result;
use crate::format::{IndexBlock, Node, RangeTotals};
use crate::proven::at;
use crate::query::forest::cached_nodes::contradiction;
use crate::query::forest::mask::{Masks, NodeView, bin_mask, tops_hold_from};
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::forest::walk::Visitor;
use crate::query::predicate::Test;
use crate::query::scan::chunk_cursor::{ChunkCursor, RecordView};
use crate::query::scan::columns::Columns;
use crate::query::scan::runs::{keep_within, within};
use crate::schema::{Payloads, RangeSet, Source};
use crate::types::{Key, TimeRange, Timestamp, ValueRange};

pub(crate) struct TotalsDescent<'a> {
    pub question: &'a IndexQuestion,
    pub time: TimeRange,
    pub values: ValuesByBucket,
    /// The keys of a chunk that is being added.
    loaded: Vec<Key>,
    benefit: SummaryBenefit,
}

impl<'a> TotalsDescent<'a> {
    pub fn new(
        question: &'a IndexQuestion,
        time: TimeRange,
        values: ValuesByBucket,
    ) -> TotalsDescent<'a> {
        TotalsDescent {
            question,
            time,
            values,
            loaded: Vec::new(),
            benefit: SummaryBenefit::default(),
        }
    }
}

impl Visitor for TotalsDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.time)
    }

    fn opens_summaries(&mut self) -> bool {
        self.benefit.opens_next()
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.question.source.id) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        let times = TimeRange {
            first: stats.first_ts,
            last: stats.last_ts,
        };
        if !self.time.overlaps(times) {
            return Ok(0);
        }
        let passing = self.question.filter.masks(&view);
        if passing.may == 0 {
            self.benefit.answered();
            return Ok(0);
        }
        let Some(block) = view.index(&self.question.value) else {
            return Ok(passing.may & self.children_in_time(&view));
        };
        if block.count == 0 || !self.question.keys.overlaps(block.range) {
            self.benefit.answered();
            return Ok(0);
        }
        let one_bucket = self.is_one_bucket(times) && passing.all == view.held();
        if one_bucket && self.answers_whole(&block) {
            self.benefit.answered();
            self.add_block(times.first, &block)?;
            return Ok(0);
        }
        if !view.is_summary() {
            return self.add_children(&view, &block, passing);
        }
        if one_bucket && self.add_tops(times.first, &block)? {
            self.benefit.answered();
            return Ok(0);
        }
        Ok(1)
    }
}

impl Descent for TotalsDescent<'_> {
    type Note = ();

    fn note(&mut self) {}

    fn reads(&self) -> (&Source, Option<&[usize]>) {
        (&self.question.source, self.question.value.fields())
    }

    fn test(&self) -> &Test {
        &self.question.filter
    }

    fn keys(&self) -> &[(usize, RangeSet<Key>)] {
        &self.question.field_keys
    }

    fn wants_rows(&self) -> bool {
        let has_keys = !self.question.field_keys.is_empty();
        !has_keys
            || self.question.is_filtered()
            || !self.is_timeless()
            || self.values.detail() != BinDetail::Nothing
    }

    fn totals(&mut self, totals: &RangeTotals) -> Result<()> {
        let (kind, first) = (self.question.value.kind(), self.question.keys.min);
        self.add_totals(self.time.first, &Totals::behind(kind, first, totals))
    }

    fn is_timeless(&self) -> bool {
        self.is_one_bucket(TimeRange::ALL)
    }

    fn columns(&mut self, (): &mut (), columns: Columns<'_>) -> Result<bool> {
        let is_timeless = self.is_timeless();
        let (question, keys) = (self.question, &mut self.loaded);
        keys.clear();
        if is_timeless {
            let is_loaded = question.value.column_keys(&columns, keys);
            keep_within(keys, 0, question.keys);
            self.values
                .add_keys(self.time.first, keys, &question.bins)?;
            return Ok(is_loaded);
        }
        let part = columns.within(self.time);
        let columns = part.map_or(columns, |part| columns.part(part));
        if !question.value.column_keys(&columns, keys) {
            return Ok(false);
        }
        let Some(times) = columns.span() else {
            return Ok(true);
        };
        if self.time.covers(times) && self.values.is_one_bucket(times) {
            keep_within(keys, 0, question.keys);
            self.values.add_keys(times.first, keys, &question.bins)?;
            return Ok(true);
        }
        if keys.len() < columns.count() {
            // Which of the times the NULLs have is not known here.
            return Ok(false);
        }
        for (ts, key) in columns.times().iter().zip(keys) {
            let ts = Timestamp(*ts as i64);
            if self.time.contains(ts) && question.keys.contains(*key) {
                self.values.add_key(ts, *key, &question.bins)?;
            }
        }
        Ok(true)
    }

    /// Adds the records of the loaded chunk.
    fn chunk(&mut self, (): (), cursor: &mut ChunkCursor) -> Result<()> {
        let question = self.question;
        let by_record =
            question.source.own_time() || question.is_filtered() || cursor.base() < question.after;
        if !by_record && self.runs(cursor)? {
            return Ok(());
        }
        let mut failed = Ok(());
        let _ = cursor.for_each(&question.source, |record, _| {
            failed = self.record(&record);
            match failed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        failed
    }

    fn fork(&self) -> Self {
        TotalsDescent::new(self.question, self.time, self.values.fork())
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        self.values.absorb(other.values)
    }
}

impl TotalsDescent<'_> {
    /// Adds the chunk's records run by run; false, with nothing added, where it must be done record by record.
    fn runs(&mut self, cursor: &mut ChunkCursor) -> Result<bool> {
        let layout = self.question.source.layout_at(cursor.base());
        let Some((chunk, runs)) = cursor.runs(&self.question.source)? else {
            return Ok(false);
        };
        let (value, wanted) = (&self.question.value, self.question.keys);
        let keys = &mut self.loaded;
        keys.clear();
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let Some((part, times)) = within(run, chunk, self.time) else {
                continue;
            };
            let payloads = Payloads::of_run(&part, chunk);
            let from = keys.len();
            if !self.values.is_one_bucket(times) || !value.load_keys(layout, &payloads, keys) {
                return Ok(false);
            }
            keep_within(keys, from, wanted);
            parts.push((times.first, keys.len()));
        }
        let mut from = 0;
        for (first, end) in parts {
            let keys = at(&self.loaded, from..end);
            self.values.add_keys(first, keys, &self.question.bins)?;
            from = end;
        }
        Ok(true)
    }

    /// Adds one record.
    #[inline]
    fn record(&mut self, record: &RecordView<'_>) -> Result<()> {
        if !self.time.contains(record.ts) {
            return Ok(());
        }
        match self.question.key(record) {
            Some(key) => self.values.add_key(record.ts, key, &self.question.bins),
            None => Ok(()),
        }
    }

    /// Whether everything at these times is wanted, and falls in one bucket.
    fn is_one_bucket(&self, times: TimeRange) -> bool {
        self.time.covers(times) && self.values.is_one_bucket(times)
    }

    /// Whether the block's values are all wanted and it knows what is asked of them.
    fn answers_whole(&self, block: &IndexBlock<'_>) -> bool {
        let knows_bins = match self.values.detail() {
            BinDetail::Nothing => true,
            BinDetail::Bins => self.question.shares_bins && block.has_bins(),
            BinDetail::BinTotals => self.question.shares_bins && block.has_bin_stats(),
        };
        self.question.keys.covers(block.range) && knows_bins
    }

    fn add_block(&mut self, ts: Timestamp, block: &IndexBlock<'_>) -> Result<()> {
        let totals = Totals {
            count: block.count,
            sum: block.sum,
            range: block.range,
        };
        self.add_totals(ts, &totals)?;
        let detail = self.values.detail();
        let bucket = self.values.bucket_at(ts)?;
        let mut bins = block.bins();
        let is_known = match detail {
            BinDetail::Nothing => true,
            BinDetail::Bins => bins.all(|entry| bucket.add_bin(entry.bin, entry.count)),
            BinDetail::BinTotals => bins.all(|entry| {
                entry.stats.is_some_and(|stats| {
                    let totals = Totals {
                        count: entry.count,
                        sum: stats.sum,
                        range: ValueRange {
                            min: stats.min,
                            max: stats.max,
                        },
                    };
                    bucket.add_bin_totals(entry.bin, &totals)
                })
            }),
        };
        if is_known {
            return Ok(());
        }
        let what = "a bin is not one of the index, or its sum is of another type";
        Err(contradiction(&self.question.logs, what))
    }

    fn add_totals(&mut self, ts: Timestamp, totals: &Totals) -> Result<()> {
        if self.values.bucket_at(ts)?.totals.add(totals) {
            return Ok(());
        }
        Err(contradiction(
            &self.question.logs,
            "a sum is of another type",
        ))
    }

    /// Of a summary in one bucket: adds the wanted values, if the kept greatest ones are all of them.
    fn add_tops(&mut self, ts: Timestamp, block: &IndexBlock<'_>) -> Result<bool> {
        let keys = self.question.keys;
        if !tops_hold_from(block, keys.min) {
            return Ok(false);
        }
        for top in block.tops().filter(|top| keys.contains(top.key)) {
            self.values.add_key(ts, top.key, &self.question.bins)?;
        }
        Ok(true)
    }

    /// Of a roll-up: adds the children that its columns answer for, and returns those to open.
    fn add_children(
        &mut self,
        view: &NodeView<'_>,
        block: &IndexBlock<'_>,
        passing: Masks,
    ) -> Result<u64> {
        let keys = self.question.keys;
        let mut open = passing.may & self.children_in_time(view) & block.child_mask;
        if !keys.covers(block.range) {
            let keys = RangeSet::from(keys);
            open &= bin_mask(&self.question.value, &keys, block);
        }
        let mut stats = view.stats.children().peekable();
        for child in block.children() {
            let bit = 1 << child.child;
            if open & bit == 0 {
                continue;
            }
            let range = ValueRange {
                min: child.min,
                max: child.max,
            };
            if !keys.overlaps(range) {
                open &= !bit;
                continue;
            }
            while stats.next_if(|stats| stats.child < child.child).is_some() {}
            let Some(stats) = stats.next_if(|stats| stats.child == child.child) else {
                return Err(contradiction(
                    &self.question.logs,
                    "a child has values but no records",
                ));
            };
            let times = TimeRange {
                first: stats.first_ts,
                last: stats.last_ts,
            };
            if self.values.detail() == BinDetail::Nothing
                && passing.all & bit != 0
                && keys.covers(range)
                && self.is_one_bucket(times)
            {
                let totals = Totals {
                    count: child.count,
                    sum: child.sum,
                    range,
                };
                self.add_totals(times.first, &totals)?;
                open &= !bit;
            }
        }
        Ok(open)
    }

    fn children_in_time(&self, view: &NodeView<'_>) -> u64 {
        if view.is_summary() {
            return 1;
        }
        let mut mask = 0;
        for child in view.stats.children() {
            let times = TimeRange {
                first: child.first_ts,
                last: child.last_ts,
            };
            mask |= u64::from(self.time.overlaps(times)) << child.child;
        }
        mask
    }
}
