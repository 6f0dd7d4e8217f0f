//! Settles quantiles inside their bins: collects the bin's values from the chunks that hold it and picks the rank.
//!
//! The forest's masks lead to those chunks alone; in most of them the kept greatest values suffice for a tail quantile. Memory is
//! bounded: targets are settled in batches, and one with too many values is first narrowed by counting passes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::aggregate::{Asked, Question};
use super::cursor::{ChunkCursor, RecordView};
use super::gather::{Gather, gather};
use super::interrupt::Poll;
use super::looks::Looks;
use super::mask::{NodeView, bin_mask, holds_a_bin, tops_hold_from};
use super::node_reader::contradiction;
use super::place::Place;
use super::runs::{keep_within, payloads_of, within};
use super::tally::Slot;
use super::walk::Visitor;
use crate::error::{Error, Result};
use crate::format::{IndexBlock, Node};
use crate::schema::RangeSet;
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
    asked: &'a Asked<'a>,
    wanted: Vec<Wanted>,
}

impl<'a> Refinery<'a> {
    pub fn new(asked: &'a Asked<'a>) -> Self {
        Refinery {
            asked,
            wanted: Vec::new(),
        }
    }

    /// Where the value of a rank lies, by the bucket's bins.
    pub fn place(&self, slot: &Slot, rank: u64) -> Result<Place> {
        let first = self.asked.questions.first();
        first
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
            let targets = vec![Target {
                time: wanted.time,
                place: wanted.place,
                sink: Sink::Counts {
                    shift,
                    counts: vec![0; parts as usize + 1],
                },
            }];
            let target = self.descend(targets, poll)?.pop();
            let Some(Sink::Counts { counts, .. }) = target.map(|target| target.sink) else {
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
        let mut targets = self.descend(targets, poll)?;
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

    /// Fills the targets from each snapshot.
    fn descend(&self, targets: Vec<Target>, poll: &Poll<'_>) -> Result<Vec<Target>> {
        let Asked {
            questions, threads, ..
        } = *self.asked;
        let keys = targets
            .iter()
            .map(|target| (target.place.keys.min, target.place.keys.max));
        let keys = Arc::new(RangeSet::new(keys));
        questions.iter().try_fold(targets, |targets, question| {
            let refining = Refining::new(question, Arc::clone(&keys), targets);
            Ok(gather(&question.logs, refining, threads, poll)?.targets)
        })
    }

    fn contradiction(&self, what: &str) -> Error {
        match self.asked.questions.first() {
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

    fn add_all(&mut self, keys: &[Key]) {
        match &mut self.sink {
            Sink::Keys(sink) => sink.extend_from_slice(keys),
            Sink::Counts { .. } => keys.iter().for_each(|key| self.add(*key)),
        }
    }

    /// One that wants the same, with nothing gathered.
    fn fork(&self) -> Target {
        Target {
            time: self.time,
            place: self.place,
            sink: match &self.sink {
                Sink::Keys(_) => Sink::Keys(Vec::new()),
                Sink::Counts { shift, counts } => Sink::Counts {
                    shift: *shift,
                    counts: vec![0; counts.len()],
                },
            },
        }
    }

    /// Adds what a fork has gathered.
    fn absorb(&mut self, other: Target) {
        match (&mut self.sink, other.sink) {
            (Sink::Keys(keys), Sink::Keys(more)) => keys.extend(more),
            (Sink::Counts { counts, .. }, Sink::Counts { counts: more, .. }) => {
                for (count, more) in counts.iter_mut().zip(more) {
                    *count += more;
                }
            }
            // A fork gathers as what it was forked from.
            (Sink::Keys(_), Sink::Counts { .. }) | (Sink::Counts { .. }, Sink::Keys(_)) => {}
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
    keys: Arc<RangeSet<Key>>,
    /// Sorted by time; times are equal or apart.
    targets: Vec<Target>,
    /// Of the chunk that was visited last.
    answered: Answered,
    /// The keys of a chunk that is being looked through.
    loaded: Vec<Key>,
    looks: Looks,
}

/// Which targets a chunk's summary has answered.
#[derive(Default)]
struct Answered {
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

impl<'a> Refining<'a> {
    fn new(question: &'a Question, keys: Arc<RangeSet<Key>>, targets: Vec<Target>) -> Self {
        let first = targets.first().map(|target| target.time.first);
        let last = targets.last().map(|target| target.time.last);
        Refining {
            question,
            times: TimeRange {
                first: first.unwrap_or(Timestamp::MAX),
                last: last.unwrap_or(Timestamp::MIN),
            },
            keys,
            targets,
            answered: Answered::default(),
            loaded: Vec::new(),
            looks: Looks::default(),
        }
    }
}

impl Visitor for Refining<'_> {
    fn arrivals(&self) -> TimeRange {
        self.question.arrivals(self.times)
    }

    fn opens_summaries(&mut self) -> bool {
        self.looks.next()
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
            let open = self.visit_summary(&view, block.as_ref(), active);
            if !open {
                self.looks.told();
            }
            return Ok(u64::from(open));
        }
        let in_time = self.children_in_time(&view);
        Ok(match block {
            None => in_time,
            Some(block) => in_time & self.children_with_keys(&block, active),
        })
    }

    fn unsummarised(&mut self) {
        self.answered = Answered::default();
    }
}

impl Gather for Refining<'_> {
    type Note = Answered;

    fn note(&mut self) -> Answered {
        std::mem::take(&mut self.answered)
    }

    fn chunk(&mut self, answered: Answered, cursor: &mut ChunkCursor) -> Result<()> {
        self.answered = answered;
        if self.question.source.own_time() || !self.runs(cursor)? {
            let _ = cursor.for_each(&self.question.source, |record, _| {
                self.record(&record);
                ControlFlow::Continue(())
            })?;
        }
        if self.targets.iter().any(Target::overflows) {
            return Err(contradiction(
                &self.question.logs,
                "more values are found than were counted",
            ));
        }
        Ok(())
    }

    fn fork(&self) -> Self {
        let targets = self.targets.iter().map(Target::fork).collect();
        Refining::new(self.question, Arc::clone(&self.keys), targets)
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        for (target, part) in self.targets.iter_mut().zip(other.targets) {
            target.absorb(part);
        }
        Ok(())
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
                own = RangeSet::from(target.place.keys);
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
            let payloads = payloads_of(&part, chunk);
            if !self.question.value.load_keys(layout, &payloads, &mut keys) {
                self.loaded = keys;
                return Ok(false);
            }
            parts.push(part);
        }
        if let [target] = self.targets.as_mut_slice()
            && !self.answered.holds(0)
        {
            // Its times are those of the descent.
            keep_within(&mut keys, 0, target.place.keys);
            target.add_all(&keys);
            self.loaded = keys;
            return Ok(true);
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
            if !self.answered.holds(place) && target.place.keys.contains(key) {
                target.add(key);
            }
        }
    }
}
