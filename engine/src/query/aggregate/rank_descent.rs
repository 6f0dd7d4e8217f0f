//! The descent that gathers the values of ranks: it follows the masks of their bins, and in most chunks the kept greatest values suffice for a
//! tail quantile.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::index_question::IndexQuestion;
use super::rank_target::RankTarget;
use super::shared_descent::Descent;
use crate::error::Result;
use crate::format::{IndexBlock, Node};
use crate::proven::{at, at_mut};
use crate::query::forest::cached_nodes::contradiction;
use crate::query::forest::mask::{Masks, NodeView, bin_mask, holds_a_bin, tops_hold_from};
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::forest::walk::Visitor;
use crate::query::predicate::Test;
use crate::query::scan::chunk_cursor::{ChunkCursor, RecordView};
use crate::query::scan::columns::Columns;
use crate::query::scan::runs::{keep_within, within};
use crate::schema::{Payloads, RangeSet, Source};
use crate::types::{Key, TimeRange, Timestamp};

/// Fills targets from one snapshot, on one thread.
pub(crate) struct RankDescent<'a> {
    question: &'a IndexQuestion,
    /// From the first target's time to the last's.
    times: TimeRange,
    /// The keys of all targets.
    keys: Arc<RangeSet<Key>>,
    /// Sorted by time; times are equal or apart.
    pub targets: Vec<RankTarget>,
    /// Of the chunk that was visited last.
    answered: Answered,
    /// The keys of a chunk that is being looked through.
    loaded: Vec<Key>,
    benefit: SummaryBenefit,
}

/// Which targets a chunk's summary has answered.
#[derive(Default)]
pub(crate) struct Answered {
    /// The first that the chunk concerns, and whether it and those that follow are.
    from: usize,
    targets: Vec<bool>,
}

impl Answered {
    fn holds(&self, target: usize) -> bool {
        let place = target.checked_sub(self.from);
        place.and_then(|place| self.targets.get(place)) == Some(&true)
    }
}

impl<'a> RankDescent<'a> {
    pub fn new(
        question: &'a IndexQuestion,
        keys: Arc<RangeSet<Key>>,
        targets: Vec<RankTarget>,
    ) -> Self {
        let times = match (targets.first(), targets.last()) {
            (Some(first), Some(last)) => TimeRange {
                first: first.time.first,
                last: last.time.last,
            },
            _ => TimeRange::EMPTY,
        };
        RankDescent {
            question,
            times,
            keys,
            targets,
            answered: Answered::default(),
            loaded: Vec::new(),
            benefit: SummaryBenefit::default(),
        }
    }
}

impl Visitor for RankDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.times)
    }

    fn opens_summaries(&mut self) -> bool {
        self.benefit.opens_next()
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.question.source.id) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        let active = self.active(stats.first_ts, stats.last_ts);
        if active.is_empty() {
            return Ok(0);
        }
        let passing = self.question.filter.masks(&view);
        let block = view.index(&self.question.value);
        if view.is_summary() {
            let open =
                passing.may != 0 && self.visit_summary(&view, passing, block.as_ref(), active);
            if !open {
                self.benefit.answered();
            }
            return Ok(u64::from(open));
        }
        let in_time = passing.may & self.children_in_time(&view);
        Ok(match block {
            None => in_time,
            Some(block) => in_time & self.children_with_keys(&block, active),
        })
    }

    fn unsummarised(&mut self) {
        self.answered = Answered::default();
    }
}

impl Descent for RankDescent<'_> {
    type Note = Answered;

    fn note(&mut self) -> Answered {
        std::mem::take(&mut self.answered)
    }

    fn reads(&self) -> (&Source, Option<&[usize]>) {
        (&self.question.source, self.question.value.fields())
    }

    fn test(&self) -> &Test {
        &self.question.filter
    }

    /// A chunk is opened for one target only where its summary has not answered it.
    fn is_timeless(&self) -> bool {
        self.targets.len() == 1 && self.times == TimeRange::ALL
    }

    fn columns(&mut self, answered: &mut Answered, columns: Columns<'_>) -> Result<bool> {
        if let (true, [target]) = (self.is_timeless(), self.targets.as_mut_slice()) {
            self.loaded.clear();
            let is_loaded = self.question.value.column_keys(&columns, &mut self.loaded);
            keep_within(&mut self.loaded, 0, target.range.keys);
            target.add_all(&self.loaded);
            self.require_agreement()?;
            return Ok(is_loaded);
        }
        let mut keys = std::mem::take(&mut self.loaded);
        keys.clear();
        let part = columns.within(self.times);
        let is_inside = part.is_some();
        let columns = part.map_or(columns, |part| columns.part(part));
        let is_known = self.question.value.column_keys(&columns, &mut keys);
        // Else it is not known here which of the times the NULLs have.
        let is_loaded = is_known && keys.len() == columns.count();
        if is_loaded {
            self.answered = std::mem::take(answered);
            let times = columns.times().iter().map(|time| Timestamp(*time as i64));
            if is_inside {
                self.add_keys(&mut keys, times);
            } else {
                for (ts, key) in times.zip(&keys) {
                    if self.times.contains(ts) {
                        self.add(ts, *key);
                    }
                }
            }
            self.require_agreement()?;
        }
        self.loaded = keys;
        Ok(is_loaded)
    }

    fn chunk(&mut self, answered: Answered, cursor: &mut ChunkCursor) -> Result<()> {
        self.answered = answered;
        let question = self.question;
        let by_record =
            question.source.own_time() || question.is_filtered() || cursor.base() < question.after;
        if by_record || !self.runs(cursor)? {
            let _ = cursor.for_each(&self.question.source, |record, _| {
                self.record(&record);
                ControlFlow::Continue(())
            })?;
        }
        self.require_agreement()
    }

    fn fork(&self) -> Self {
        let targets = self.targets.iter().map(RankTarget::fork).collect();
        RankDescent::new(self.question, Arc::clone(&self.keys), targets)
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        for (target, part) in self.targets.iter_mut().zip(other.targets) {
            target.absorb(part);
        }
        Ok(())
    }
}

impl RankDescent<'_> {
    /// The targets whose times overlap.
    #[inline]
    fn active(&self, first: Timestamp, last: Timestamp) -> Range<usize> {
        let start = self
            .targets
            .partition_point(|target| target.time.last < first);
        let end = self
            .targets
            .partition_point(|target| target.time.first <= last);
        start..end.max(start)
    }

    fn children_in_time(&self, view: &NodeView<'_>) -> u64 {
        view.stats.children().fold(0, |mask, child| {
            let active = self.active(child.first_ts, child.last_ts);
            mask | u64::from(!active.is_empty()) << child.child
        })
    }

    fn children_with_keys(&self, block: &IndexBlock<'_>, active: Range<usize>) -> u64 {
        let own;
        let keys = match at(&self.targets, active) {
            [target] => {
                own = RangeSet::from(target.range.keys);
                &own
            }
            _ => &self.keys,
        };
        if !block.has_children() {
            return bin_mask(&self.question.value, keys, block);
        }
        let mut mask = 0;
        for child in block.children() {
            mask |= u64::from(keys.overlaps(child.min, child.max)) << child.child;
        }
        match mask {
            0 => 0,
            mask => mask & bin_mask(&self.question.value, keys, block),
        }
    }

    /// Answers the targets that the summary can, and says whether some other needs the chunk.
    fn visit_summary(
        &mut self,
        view: &NodeView<'_>,
        passing: Masks,
        block: Option<&IndexBlock<'_>>,
        active: Range<usize>,
    ) -> bool {
        self.answered = Answered {
            from: active.start,
            targets: Vec::new(),
        };
        let Some(block) = block else {
            return true;
        };
        let times = TimeRange {
            first: view.stats.first_ts,
            last: view.stats.last_ts,
        };
        let all_pass = passing.all == view.held();
        let targets = at_mut(&mut self.targets, active);
        for target in targets {
            let keys = target.range.keys;
            let answered = if block.count == 0 || !keys.overlaps(block.range) {
                true
            } else if all_pass && target.time.covers(times) && tops_hold_from(block, keys.min) {
                for top in block.tops().filter(|top| keys.contains(top.key)) {
                    target.add(top.key);
                }
                true
            } else {
                let wanted = RangeSet::from(keys);
                block.has_bins() && !holds_a_bin(&self.question.value, &wanted, block)
            };
            self.answered.targets.push(answered);
        }
        self.answered.targets.contains(&false)
    }

    /// Adds the records of the loaded chunk run by run; false, with nothing added, where it must be done record by record.
    fn runs(&mut self, cursor: &mut ChunkCursor) -> Result<bool> {
        let layout = self.question.source.layout_at(cursor.base());
        let Some((chunk, runs)) = cursor.runs(&self.question.source)? else {
            return Ok(false);
        };
        let mut keys = std::mem::take(&mut self.loaded);
        keys.clear();
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let Some((part, _)) = within(run, chunk, self.times) else {
                continue;
            };
            let payloads = Payloads::of_run(&part, chunk);
            if !self.question.value.load_keys(layout, &payloads, &mut keys) {
                self.loaded = keys;
                return Ok(false);
            }
            parts.push(part);
        }
        let times = (parts.iter())
            .flat_map(|part| (0..part.records).map(move |nth| part.arrival(chunk, nth)));
        self.add_keys(&mut keys, times);
        self.loaded = keys;
        Ok(true)
    }

    /// Adds the keys of records within the descent's times, each with its time.
    fn add_keys(&mut self, keys: &mut Vec<Key>, times: impl Iterator<Item = Timestamp>) {
        if let [target] = self.targets.as_mut_slice()
            && !self.answered.holds(0)
        {
            // Its times are those of the descent.
            keep_within(keys, 0, target.range.keys);
            target.add_all(keys);
            return;
        }
        let hull = self.keys.hull();
        for (ts, key) in times.zip(keys) {
            // Most keys lie outside of all targets.
            if hull.is_some_and(|(least, greatest)| least <= *key && *key <= greatest) {
                self.add(ts, *key);
            }
        }
    }

    fn require_agreement(&self) -> Result<()> {
        if self.targets.iter().any(RankTarget::overflows) {
            return Err(contradiction(
                &self.question.logs,
                "more values are found than were counted",
            ));
        }
        Ok(())
    }

    /// Adds a record that was read from its chunk.
    #[inline]
    fn record(&mut self, record: &RecordView<'_>) {
        if self.times.contains(record.ts)
            && let Some(key) = self.question.key(record)
        {
            self.add(record.ts, key);
        }
    }

    /// Adds a value to the targets that want it and have not been answered by the chunk's summary.
    #[inline]
    fn add(&mut self, ts: Timestamp, key: Key) {
        if !self.keys.contains(key) {
            return;
        }
        let active = self.active(ts, ts);
        let from = active.start;
        let targets = at_mut(&mut self.targets, active);
        for (place, target) in (from..).zip(targets) {
            if !self.answered.holds(place) && target.range.keys.contains(key) {
                target.add(key);
            }
        }
    }
}
