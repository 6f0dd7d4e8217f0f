//! The descent that adds up an index. Nodes that can answer are added whole; others are opened or scanned.
//!
//! A node answers only if it lies inside the time range, one bucket and the value range, all of its records pass the filter, and it has an
//! entry for the index. Roll-ups carry their children's totals, so the siblings inside a window are added without being opened.

use std::ops::Range;

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
use crate::query::scan::batch::Batch;
use crate::query::scan::source_reader::SourceReader;
use crate::query::value::Keys;
use crate::schema::RangeSet;
use crate::types::{ChunkNo, TimeRange, Timestamp, ValueRange};

pub(crate) struct TotalsDescent<'a> {
    pub question: &'a IndexQuestion,
    pub time: TimeRange,
    pub values: ValuesByBucket,
    /// The keys of the chunk that is being added.
    found: Keys,
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
            found: Keys::default(),
            benefit: SummaryBenefit::default(),
        }
    }
}

impl Visitor for TotalsDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.time)
    }

    fn is_outside(&mut self, chunks: Range<ChunkNo>) -> bool {
        self.question.is_outside(chunks)
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
        let passing = self.question.filter().masks(&view);
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

    fn rows(&self) -> SourceReader {
        let question = self.question;
        let needs_times = !self.values.is_one_bucket(self.time);
        question.rows(self.time, needs_times, &question.field_keys)
    }

    fn wants_rows(&self) -> bool {
        let has_keys = !self.question.field_keys.is_empty();
        !has_keys
            || self.question.is_filtered()
            || !self.is_one_bucket(TimeRange::ALL)
            || self.values.detail() != BinDetail::Nothing
    }

    fn totals(&mut self, totals: &RangeTotals) -> Result<()> {
        let (kind, first) = (self.question.value.kind(), self.question.keys.min);
        self.add_totals(self.time.first, &Totals::behind(kind, first, totals))
    }

    fn take(&mut self, (): (), batch: Batch<'_>) -> Result<()> {
        let (question, found) = (self.question, &mut self.found);
        question.value.keys(&batch, found);
        let one_bucket = match self.values.is_one_bucket(self.time) {
            true => Some(self.time.first),
            false => {
                let times = batch
                    .span()
                    .filter(|times| self.values.is_one_bucket(*times));
                times.map(|times| times.first)
            }
        };
        if let Some(ts) = one_bucket {
            found.keep_within(question.keys);
            return self.values.add_keys(ts, &found.keys, &question.bins);
        }
        let times = batch.times();
        for (row, key) in found.by_row() {
            if question.keys.contains(key) {
                let ts = Timestamp(*at(times, row) as i64);
                self.values.add_key(ts, key, &question.bins)?;
            }
        }
        Ok(())
    }

    fn fork(&self) -> Self {
        TotalsDescent::new(self.question, self.time, self.values.fork())
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        self.values.absorb(other.values)
    }
}

impl TotalsDescent<'_> {
    /// Whether all of these times are wanted and fall in one bucket.
    fn is_one_bucket(&self, times: TimeRange) -> bool {
        self.time.covers(times) && self.values.is_one_bucket(times)
    }

    /// Whether all values of the block are wanted and it holds the wanted details.
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

    /// Adds the wanted values of a summary in one bucket, if they are all among the kept greatest ones.
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

    /// Adds the children that a roll-up's columns answer for, and returns those to open.
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
