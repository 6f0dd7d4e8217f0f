//! Settles quantiles inside their bins: collects the bin's values from the chunks that hold it and picks the rank.
//!
//! Memory is bounded: targets are settled in batches, and a target with too many values is first narrowed by counting passes.

use std::sync::Arc;

use super::bucket_values::BucketValues;
use super::question_set::QuestionSet;
use super::rank_descent::RankDescent;
use super::rank_range::RankRange;
use super::rank_target::{RankTarget, Sink};
use super::shared_descent::descend;
use crate::error::{Error, Result};
use crate::proven::at_mut;
use crate::query::forest::cached_nodes::contradiction;
use crate::query::poll::Poll;
use crate::schema::RangeSet;
use crate::types::{Key, TimeRange};

/// A quantile that its bin does not decide.
pub(crate) struct WantedRank {
    /// The wanted part of its bucket.
    pub time: TimeRange,
    pub range: RankRange,
    pub row: usize,
    pub column: usize,
}

/// A quantile that is settled.
pub(crate) struct FoundRank {
    pub row: usize,
    pub column: usize,
    pub key: Key,
}

pub(crate) struct RankSearch<'a> {
    asked: &'a QuestionSet<'a>,
    keys_most: u64,
    wanted: Vec<WantedRank>,
}

impl<'a> RankSearch<'a> {
    pub fn new(asked: &'a QuestionSet<'a>) -> Self {
        RankSearch {
            asked,
            keys_most: asked.first().logs.tuning().keys_most,
            wanted: Vec::new(),
        }
    }

    /// The range of keys that holds the value of a rank, according to the bucket's bins.
    pub fn range_of(&self, bucket: &BucketValues, rank: u64) -> Result<RankRange> {
        RankRange::of(self.asked.first(), bucket, rank)
            .ok_or_else(|| self.contradiction("bins do not add up to their count"))
    }

    pub fn want(&mut self, wanted: WantedRank) {
        self.wanted.push(wanted);
    }

    /// Settles everything wanted.
    pub fn settle(mut self, poll: &Poll<'_>) -> Result<Vec<FoundRank>> {
        let mut found = Vec::with_capacity(self.wanted.len());
        let mut wanted = std::mem::take(&mut self.wanted);
        for wanted in wanted
            .iter_mut()
            .filter(|wanted| wanted.range.count > self.keys_most)
        {
            self.narrow(wanted, poll)?;
        }
        wanted.sort_by_key(|wanted| (wanted.time.first, wanted.range.keys.min));
        let mut batch = Vec::new();
        let mut keys = 0;
        for wanted in wanted {
            if let Some(key) = wanted.range.single() {
                found.push(FoundRank {
                    row: wanted.row,
                    column: wanted.column,
                    key,
                });
                continue;
            }
            if keys + wanted.range.count > self.keys_most {
                self.settle_batch(std::mem::take(&mut batch), &mut found, poll)?;
                keys = 0;
            }
            keys += wanted.range.count;
            batch.push(wanted);
        }
        self.settle_batch(batch, &mut found, poll)?;
        Ok(found)
    }

    /// Counts the values of smaller and smaller parts of the range until one part is small enough to be collected.
    fn narrow(&self, wanted: &mut WantedRank, poll: &Poll<'_>) -> Result<()> {
        while wanted.range.count > self.keys_most && wanted.range.single().is_none() {
            let shift = wanted.range.shift();
            let parts = (wanted.range.keys.max.0 - wanted.range.keys.min.0) >> shift;
            let target = RankTarget {
                time: wanted.time,
                range: wanted.range,
                sink: Sink::Counts {
                    shift,
                    counts: vec![0; parts as usize + 1],
                },
            };
            let target = self.descend(vec![target], poll)?.pop();
            let Some(Sink::Counts { counts, .. }) = target.map(|target| target.sink) else {
                unreachable!("a descent returns the targets that it got")
            };
            wanted.range = wanted
                .range
                .narrowed(&counts)
                .ok_or_else(|| self.contradiction("fewer values are found than were counted"))?;
        }
        Ok(())
    }

    /// Collects the values of some targets, sorted by time, in one descent.
    fn settle_batch(
        &self,
        batch: Vec<WantedRank>,
        found: &mut Vec<FoundRank>,
        poll: &Poll<'_>,
    ) -> Result<()> {
        // Quantiles of one bucket that fall in one bin share its values.
        let mut targets: Vec<RankTarget> = Vec::with_capacity(batch.len());
        let mut target_of = Vec::with_capacity(batch.len());
        for wanted in &batch {
            let shared = targets.last().is_some_and(|target| {
                target.time == wanted.time && target.range.keys == wanted.range.keys
            });
            if !shared {
                targets.push(RankTarget {
                    time: wanted.time,
                    range: wanted.range,
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
            let key = at_mut(&mut targets, target)
                .of_rank(wanted.range.rank)
                .ok_or_else(|| {
                    self.contradiction("different values are found than were counted")
                })?;
            found.push(FoundRank {
                row: wanted.row,
                column: wanted.column,
                key,
            });
        }
        Ok(())
    }

    /// Fills the targets from each snapshot.
    fn descend(&self, targets: Vec<RankTarget>, poll: &Poll<'_>) -> Result<Vec<RankTarget>> {
        let QuestionSet {
            questions, threads, ..
        } = *self.asked;
        let keys = targets
            .iter()
            .map(|target| (target.range.keys.min, target.range.keys.max));
        let keys = Arc::new(RangeSet::new(keys));
        questions.iter().try_fold(targets, |targets, question| {
            let descent = RankDescent::new(question, Arc::clone(&keys), targets);
            Ok(descend(&question.logs, question.after, descent, threads, poll)?.targets)
        })
    }

    fn contradiction(&self, what: &str) -> Error {
        contradiction(&self.asked.first().logs, what)
    }
}
