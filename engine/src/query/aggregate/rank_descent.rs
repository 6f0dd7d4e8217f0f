//! The descent that gathers the values of ranks. It follows the masks of their bins, and in most chunks the kept greatest values suffice
//! for a tail quantile.

use std::ops::Range;
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
use crate::query::scan::batch::Batch;
use crate::query::scan::source_reader::SourceReader;
use crate::query::value::Keys;
use crate::schema::RangeSet;
use crate::types::{ChunkNo, Key, TimeRange, Timestamp};

/// Fills targets from one snapshot, on one thread.
pub(crate) struct RankDescent<'a> {
    question: &'a IndexQuestion,
    /// From the first target's time to the last's.
    times: TimeRange,
    /// The keys of all targets.
    keys: Arc<RangeSet<Key>>,
    /// Sorted by time. The times of two targets are equal or disjoint.
    pub targets: Vec<RankTarget>,
    /// The answers of the summary that was visited last.
    answered: Answered,
    /// The keys of the chunk that is being read.
    found: Keys,
    benefit: SummaryBenefit,
}

/// The targets that a chunk's summary has answered.
#[derive(Default)]
pub(crate) struct Answered {
    /// The first target that concerns the chunk; `targets` says for it and the following ones whether they are answered.
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
            found: Keys::default(),
            benefit: SummaryBenefit::default(),
        }
    }
}

impl Visitor for RankDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.times)
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
        let active = self.active(stats.first_ts, stats.last_ts);
        if active.is_empty() {
            return Ok(0);
        }
        let passing = self.question.filter().masks(&view);
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

    fn rows(&self) -> SourceReader {
        self.question.rows(self.times, !self.takes_together(), &[])
    }

    /// With one target, a chunk is opened only if its summary has not answered it.
    fn takes_together(&self) -> bool {
        self.targets.len() == 1
    }

    fn take(&mut self, answered: Answered, batch: Batch<'_>) -> Result<()> {
        let mut found = std::mem::take(&mut self.found);
        self.question.value.keys(&batch, &mut found);
        match self.targets.as_mut_slice() {
            // The descent reads only times of the one target.
            [target] => {
                found.keep_within(target.range.keys);
                target.add_all(&found.keys);
            }
            _ => self.add_by_time(&answered, &found, batch.times()),
        }
        self.found = found;
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

    /// Answers the targets that the summary can answer, and returns whether another one needs the chunk.
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

    /// Adds values to the targets that want them and were not answered by the chunk's summary.
    fn add_by_time(&mut self, answered: &Answered, found: &Keys, times: &[u64]) {
        let hull = self.keys.hull();
        for (row, key) in found.by_row() {
            // Most keys lie outside of all targets.
            let is_near = hull.is_some_and(|(least, greatest)| least <= key && key <= greatest);
            if !is_near || !self.keys.contains(key) {
                continue;
            }
            let ts = Timestamp(*at(times, row) as i64);
            let active = self.active(ts, ts);
            let from = active.start;
            let targets = at_mut(&mut self.targets, active);
            for (place, target) in (from..).zip(targets) {
                if !answered.holds(place) && target.range.keys.contains(key) {
                    target.add(key);
                }
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
}
