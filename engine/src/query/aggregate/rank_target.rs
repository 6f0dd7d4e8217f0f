//! The values gathered for a rank: those of one bucket and bin, or the counts of the bin's parts.

use super::rank_range::RankRange;
use crate::proven::at_mut;
use crate::types::{Key, TimeRange};

/// The values of one bucket within a range of keys.
pub(crate) struct RankTarget {
    pub time: TimeRange,
    pub range: RankRange,
    pub sink: Sink,
}

pub(crate) enum Sink {
    Keys(Vec<Key>),
    /// The number of keys in each part of 2^`shift` keys.
    Counts {
        shift: u32,
        counts: Vec<u64>,
    },
}

impl RankTarget {
    #[inline]
    pub fn add(&mut self, key: Key) {
        match &mut self.sink {
            Sink::Keys(keys) => keys.push(key),
            Sink::Counts { shift, counts } => {
                let part = (key.0 - self.range.keys.min.0) >> *shift;
                *at_mut(counts, part as usize) += 1;
            }
        }
    }

    pub fn add_all(&mut self, keys: &[Key]) {
        match &mut self.sink {
            Sink::Keys(sink) => sink.extend_from_slice(keys),
            Sink::Counts { .. } => keys.iter().for_each(|key| self.add(*key)),
        }
    }

    /// A target that wants the same, with nothing gathered.
    pub fn fork(&self) -> RankTarget {
        RankTarget {
            time: self.time,
            range: self.range,
            sink: match &self.sink {
                Sink::Keys(_) => Sink::Keys(Vec::new()),
                Sink::Counts { shift, counts } => Sink::Counts {
                    shift: *shift,
                    counts: vec![0; counts.len()],
                },
            },
        }
    }

    /// Adds the values that a fork gathered.
    pub fn absorb(&mut self, other: RankTarget) {
        match (&mut self.sink, other.sink) {
            (Sink::Keys(keys), Sink::Keys(more)) => keys.extend(more),
            (Sink::Counts { counts, .. }, Sink::Counts { counts: more, .. }) => {
                for (count, more) in counts.iter_mut().zip(more) {
                    *count += more;
                }
            }
            (Sink::Keys(_), Sink::Counts { .. }) | (Sink::Counts { .. }, Sink::Keys(_)) => {
                unreachable!("a fork gathers as what it was forked from")
            }
        }
    }

    pub fn overflows(&self) -> bool {
        match &self.sink {
            Sink::Keys(keys) => keys.len() as u64 > self.range.count,
            Sink::Counts { .. } => false,
        }
    }

    /// The value of a rank; `None` if the number of values differs from the count.
    pub fn of_rank(&mut self, rank: u64) -> Option<Key> {
        let Sink::Keys(keys) = &mut self.sink else {
            return None;
        };
        let all_found = keys.len() as u64 == self.range.count;
        let at = usize::try_from(rank.checked_sub(1)?).ok()?;
        (all_found && at < keys.len()).then(|| *keys.select_nth_unstable(at).1)
    }
}
