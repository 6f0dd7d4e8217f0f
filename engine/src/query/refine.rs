//! Settles quantiles inside their bins: collects the bin's values from the chunks that hold it and picks the rank.
//!
//! The forest's masks lead to those chunks alone; in most of them the kept greatest values suffice for a tail quantile. Memory is
//! bounded: targets are settled in batches, and one with too many values is first narrowed by counting passes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::aggregate::Question;
use super::cursor::{ChunkCursor, RecordView};
use super::interrupt::Poll;
use super::mask::{NodeView, bin_mask, holds_a_bin, tops_hold_from};
use super::node_reader::contradiction;
use super::place::Place;
use super::ranges::RangeSet;
use super::runs::{payloads_of, within};
use super::tally::Slot;
use super::walk::{Order, Visitor, Walk};
use crate::error::{Error, Result};
use crate::format::{IndexBlock, Node};
use crate::types::{Key, TimeRange, Timestamp};

/// A quantile that its bin does not decide.
pub(crate) struct Wanted {
    /// The part of its bucket that is asked for.
    pub time: TimeRange,
    pub place: Place,
    pub row: usize,
    pub column: usize,
}

/// A quantile that is settled.
pub(crate) struct Found {
    pub row: usize,
    pub column: usize,
    pub key: Key,
}

/// Values collected at once take at most 32 MiB; few under test, so that batches and narrowing passes happen.
const KEYS_MOST: u64 = if cfg!(test) { 200 } else { 4 << 20 };

pub(crate) struct Refinery<'a> {
    /// Of all snapshots whose values are asked for together; never none.
    questions: &'a [Question],
    wanted: Vec<Wanted>,
}

impl<'a> Refinery<'a> {
    pub fn new(questions: &'a [Question]) -> Self {
        Refinery {
            questions,
            wanted: Vec::new(),
        }
    }

    /// Where the value of a rank lies, by the bucket's bins.
    pub fn place(&self, slot: &Slot, rank: u64) -> Result<Place> {
        self.questions
            .first()
            .and_then(|first| Place::of(first, slot, rank))
            .ok_or_else(|| self.contradiction("bins do not add up to their count"))
    }

    pub fn want(&mut self, wanted: Wanted) {
        self.wanted.push(wanted);
    }

    /// Settles everything wanted.
    pub fn settle(mut self, poll: &Poll<'_>) -> Result<Vec<Found>> {
        let mut found = Vec::with_capacity(self.wanted.len());
        let mut wanted = std::mem::take(&mut self.wanted);
        for wanted in wanted
            .iter_mut()
            .filter(|wanted| wanted.place.count > KEYS_MOST)
        {
            self.narrow(wanted, poll)?;
        }
        wanted.sort_by_key(|wanted| (wanted.time.first, wanted.place.keys.min));
        let mut batch = Vec::new();
        let mut keys = 0;
        for wanted in wanted {
            if let Some(key) = wanted.place.single() {
                found.push(Found {
                    row: wanted.row,
                    column: wanted.column,
                    key,
                });
                continue;
            }
            if keys + wanted.place.count > KEYS_MOST {
                self.settle_batch(std::mem::take(&mut batch), &mut found, poll)?;
                keys = 0;
            }
            keys += wanted.place.count;
            batch.push(wanted);
        }
        self.settle_batch(batch, &mut found, poll)?;
        Ok(found)
    }

    /// Counts the values of ever smaller parts of the range until those of one part can be collected.
    fn narrow(&self, wanted: &mut Wanted, poll: &Poll<'_>) -> Result<()> {
        while wanted.place.count > KEYS_MOST && wanted.place.single().is_none() {
            let shift = wanted.place.shift();
            let parts = (wanted.place.keys.max.0 - wanted.place.keys.min.0) >> shift;
            let mut targets = [Target {
                time: wanted.time,
                place: wanted.place,
                sink: Sink::Counts {
                    shift,
                    counts: vec![0; parts as usize + 1],
                },
            }];
            self.descend(&mut targets, poll)?;
            let [target] = targets;
            let Sink::Counts { counts, .. } = target.sink else {
                return Ok(());
            };
            wanted.place = wanted
                .place
                .narrowed(&counts)
                .ok_or_else(|| self.contradiction("fewer values are found than were counted"))?;
        }
        Ok(())
    }

    /// Collects the values of some targets, sorted by time, in one descent.
    fn settle_batch(
        &self,
        batch: Vec<Wanted>,
        found: &mut Vec<Found>,
        poll: &Poll<'_>,
    ) -> Result<()> {
        // Quantiles of one bucket that fall in one bin share its values.
        let mut targets: Vec<Target> = Vec::with_capacity(batch.len());
        let mut target_of = Vec::with_capacity(batch.len());
        for wanted in &batch {
            let shared = targets.last().is_some_and(|target| {
                target.time == wanted.time && target.place.keys == wanted.place.keys
            });
            if !shared {
                targets.push(Target {
                    time: wanted.time,
                    place: wanted.place,
                    sink: Sink::Keys(Vec::new()),
                });
            }
            target_of.push(targets.len() - 1);
        }
        if targets.is_empty() {
            return Ok(());
        }
        self.descend(&mut targets, poll)?;
        for (wanted, target) in batch.iter().zip(target_of) {
            let key = targets
                .get_mut(target)
                .and_then(|target| target.of_rank(wanted.place.rank))
                .ok_or_else(|| self.contradiction("other values are found than were counted"))?;
            found.push(Found {
                row: wanted.row,
                column: wanted.column,
                key,
            });
        }
        Ok(())
    }

    fn descend(&self, targets: &mut [Target], poll: &Poll<'_>) -> Result<()> {
        self.questions
            .iter()
            .try_for_each(|question| self.descend_one(question, targets, poll))
    }

    fn descend_one(
        &self,
        question: &Question,
        targets: &mut [Target],
        poll: &Poll<'_>,
    ) -> Result<()> {
        let keys = targets
            .iter()
            .map(|target| (target.place.keys.min, target.place.keys.max));
        let mut refining = Refining {
            question,
            times: TimeRange {
                first: targets
                    .first()
                    .map_or(Timestamp::MAX, |first| first.time.first),
                last: targets.last().map_or(Timestamp::MIN, |last| last.time.last),
            },
            keys: RangeSet::new(keys),
            answered: Vec::new(),
            answered_from: 0,
            targets,
            loaded: Vec::new(),
        };
        let mut walk = Walk::new(Arc::clone(&question.logs), Order::OldestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(&question.logs));
        while let Some(chunk) = walk.next(&mut refining, poll)? {
            cursor.load(chunk)?;
            if question.source.own_time() || !refining.runs(&mut cursor)? {
                let _ = cursor.for_each(&question.source, |record, _| {
                    refining.record(&record);
                    ControlFlow::Continue(())
                })?;
            }
            if refining.targets.iter().any(Target::overflows) {
                return Err(self.contradiction("more values are found than were counted"));
            }
        }
        Ok(())
    }

    fn contradiction(&self, what: &str) -> Error {
        match self.questions.first() {
            Some(first) => contradiction(&first.logs, what),
            None => Error::Query(what.to_owned()),
        }
    }
}

/// Values of one bucket and bin, being gathered.
struct Target {
    time: TimeRange,
    place: Place,
    sink: Sink,
}

enum Sink {
    Keys(Vec<Key>),
    /// How many keys fall in each part of 2^`shift` keys.
    Counts {
        shift: u32,
        counts: Vec<u64>,
    },
}

impl Target {
    #[inline]
    fn add(&mut self, key: Key) {
        match &mut self.sink {
            Sink::Keys(keys) => keys.push(key),
            Sink::Counts { shift, counts } => {
                let part = (key.0 - self.place.keys.min.0) >> *shift;
                if let Some(count) = counts.get_mut(part as usize) {
                    *count += 1;
                }
            }
        }
    }

    fn overflows(&self) -> bool {
        match &self.sink {
            Sink::Keys(keys) => keys.len() as u64 > self.place.count,
            Sink::Counts { .. } => false,
        }
    }

    /// The value of a rank; `None` if the values are not as many as were counted.
    fn of_rank(&mut self, rank: u64) -> Option<Key> {
        let Sink::Keys(keys) = &mut self.sink else {
            return None;
        };
        let all_found = keys.len() as u64 == self.place.count;
        let at = usize::try_from(rank.checked_sub(1)?).ok()?;
        (all_found && at < keys.len()).then(|| *keys.select_nth_unstable(at).1)
    }
}

/// The descent: follows the masks of the targets' bins.
struct Refining<'a> {
    question: &'a Question,
    /// From the first target's time to the last's.
    times: TimeRange,
    /// The keys of all targets.
    keys: RangeSet<Key>,
    /// Sorted by time; times are equal or apart.
    targets: &'a mut [Target],
    /// Which targets, from `answered_from` on, the current chunk's summary has answered.
    answered: Vec<bool>,
    answered_from: usize,
    /// The keys of a chunk that is being looked through.
    loaded: Vec<Key>,
}

impl Visitor for Refining<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.times)
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
        let block = view.index(&self.question.value);
        if view.is_summary() {
            return Ok(u64::from(self.visit_summary(&view, block.as_ref(), active)));
        }
        let in_time = self.children_in_time(&view);
        Ok(match block {
            None => in_time,
            Some(block) => in_time & self.children_with_keys(&block, active),
        })
    }

    fn unsummarised(&mut self) {
        self.answered.clear();
    }
}

impl Refining<'_> {
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
        let keys = match self.targets.get(active) {
            Some([target]) => {
                own = RangeSet::new([(target.place.keys.min, target.place.keys.max)]);
                &own
            }
            _ => &self.keys,
        };
        let mut mask = bin_mask(&self.question.value, keys, block);
        for child in block.children() {
            if !keys.overlaps(child.min, child.max) {
                mask &= !(1 << child.child);
            }
        }
        mask
    }

    /// Answers the targets that the summary can, and says whether some other needs the chunk.
    fn visit_summary(
        &mut self,
        view: &NodeView<'_>,
        block: Option<&IndexBlock<'_>>,
        active: Range<usize>,
    ) -> bool {
        self.answered.clear();
        self.answered_from = active.start;
        let Some(block) = block else {
            return true;
        };
        let times = TimeRange {
            first: view.stats.first_ts,
            last: view.stats.last_ts,
        };
        let targets = self.targets.get_mut(active).unwrap_or_default();
        for target in targets {
            let keys = target.place.keys;
            let answered = if block.count == 0 || !keys.overlaps(block.range) {
                true
            } else if target.time.covers(times) && tops_hold_from(block, keys.min) {
                for top in block.tops().filter(|top| keys.contains(top.key)) {
                    target.add(top.key);
                }
                true
            } else {
                let wanted = RangeSet::new([(keys.min, keys.max)]);
                block.has_bins() && !holds_a_bin(&self.question.value, &wanted, block)
            };
            self.answered.push(answered);
        }
        self.answered.contains(&false)
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
            let payloads = payloads_of(&part, chunk);
            if !self.question.value.load_keys(layout, &payloads, &mut keys) {
                self.loaded = keys;
                return Ok(false);
            }
            parts.push(part);
        }
        let hull = self.keys.hull();
        let mut rest = keys.as_slice();
        for part in parts {
            let Some((of_part, later)) = rest.split_at_checked(part.records as usize) else {
                break;
            };
            rest = later;
            for (nth, key) in (0..).zip(of_part) {
                // Most keys lie outside of all targets.
                if hull.is_some_and(|(least, greatest)| least <= *key && *key <= greatest) {
                    self.add(part.arrival(chunk, nth), *key);
                }
            }
        }
        self.loaded = keys;
        Ok(true)
    }

    /// Adds a record that was read from its chunk.
    #[inline]
    fn record(&mut self, record: &RecordView<'_>) {
        if !self.times.contains(record.ts) {
            return;
        }
        if let Some(key) = self.question.value.key(record.layout, record.payload) {
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
        let targets = self.targets.get_mut(active).unwrap_or_default();
        for (place, target) in (from..).zip(targets) {
            let answered = place
                .checked_sub(self.answered_from)
                .and_then(|place| self.answered.get(place));
            if answered != Some(&true) && target.place.keys.contains(key) {
                target.add(key);
            }
        }
    }
}
