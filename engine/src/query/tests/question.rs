//! Questions drawn at random over what a world holds, and the rows that answer them.

use proptest::prelude::*;
use proptest::sample::Index;

use super::oracle::Record;
use super::world::{Random, World};
use crate::query::{Bucket, Predicate, Snapshot};
use crate::types::{IndexId, Key, SourceId, TimeRange, Timestamp, ValueRange};

/// Address, `ts` and payload of a row.
pub type Found = (u64, i64, Vec<u8>);

const QUANTILES: [f64; 8] = [0.0, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0, 0.25];

/// Parts of a question, as places in what the world holds.
#[derive(Clone, Debug)]
pub struct Ask {
    source: usize,
    index: Index,
    times: Option<[Index; 2]>,
    keys: Option<[Index; 2]>,
    nudges: [i8; 4],
    /// Of the window's length, or months.
    bucket: Option<(bool, u8)>,
    pub quantiles: u8,
    position: Option<(Index, u8)>,
}

pub fn any_ask() -> impl Strategy<Value = Ask> {
    let pair = || prop::option::of(any::<[Index; 2]>());
    (
        (0usize..3, any::<Index>(), pair(), pair()),
        (any::<[i8; 4]>(), prop::option::of((any::<bool>(), 1u8..40))),
        (any::<u8>(), prop::option::of((any::<Index>(), 0u8..9))),
    )
        .prop_map(
            |((source, index, times, keys), (nudges, bucket), (quantiles, position))| Ask {
                source,
                index,
                times,
                keys,
                nudges: nudges.map(|nudge| nudge % 2),
                bucket,
                quantiles,
                position,
            },
        )
}

/// An `Ask` made concrete.
pub struct Question {
    pub snapshot: Snapshot,
    pub visible: Vec<Record>,
    pub source: SourceId,
    pub index: Option<IndexId>,
    pub time: TimeRange,
    pub value: ValueRange,
    pub bucket: Option<Bucket>,
    pub quantiles: Vec<f64>,
}

impl Question {
    pub fn new(world: &World, all: &[Record], ask: &Ask) -> Question {
        let source = world.sources[ask.source];
        let snapshot = match &ask.position {
            Some((at, words)) if !all.is_empty() => {
                // Any multiple of 8: in mid-record too.
                let record = at.get(all);
                let position =
                    (record.address.0 + 8 * u64::from(*words)).min(all[all.len() - 1].end().0);
                world.directory.snapshot_at(position).unwrap()
            }
            _ => world.snapshot(),
        };
        let visible: Vec<Record> = all
            .iter()
            .filter(|record| {
                record.address.0 + 8 + record.payload.len() as u64 <= snapshot.position()
            })
            .cloned()
            .collect();
        let own: Vec<&Record> = all
            .iter()
            .filter(|record| record.source == source)
            .collect();
        let indexes = world.indexes(source);
        let index = (!indexes.is_empty()).then(|| *ask.index.get(&indexes));
        let mut time = TimeRange::ALL;
        if let (Some(places), false) = (ask.times, own.is_empty()) {
            let mut ends = places.map(|place| place.get(&own).ts.0);
            ends.sort_unstable();
            time = TimeRange {
                first: Timestamp(ends[0].saturating_add(ask.nudges[0].into())),
                last: Timestamp(ends[1].saturating_add(ask.nudges[1].into())),
            };
        }
        let mut value = ValueRange::ALL;
        let keys: Vec<Key> = index.map_or(Vec::new(), |index| {
            own.iter().filter_map(|record| record.key(index)).collect()
        });
        if let (Some(places), false) = (ask.keys, keys.is_empty()) {
            let mut ends = places.map(|place| place.get(&keys).0);
            ends.sort_unstable();
            value.min = Key(ends[0].saturating_add_signed(ask.nudges[2].into()));
            // A bound above everything is the usual one.
            if ask.nudges[3] != 0 {
                value.max = Key(ends[1]);
            }
        }
        let span = match (time, own.as_slice()) {
            (TimeRange::ALL, []) => 1,
            (TimeRange::ALL, own) => {
                let times = || own.iter().map(|record| record.ts.0);
                times()
                    .max()
                    .unwrap()
                    .saturating_sub(times().min().unwrap())
            }
            (time, _) => time.last.0.saturating_sub(time.first.0),
        };
        let bucket = ask.bucket.map(|(months, parts)| {
            if months {
                Bucket::Months(parts.into())
            } else {
                Bucket::nanos((span / i64::from(parts)).max(1))
            }
        });
        let quantiles = QUANTILES
            .iter()
            .enumerate()
            .filter(|(bit, _)| ask.quantiles >> bit & 1 == 1)
            .map(|(_, q)| *q)
            .collect();
        Question {
            snapshot,
            visible,
            source,
            index,
            time,
            value,
            bucket,
            quantiles,
        }
    }

    pub fn rows(&self, predicate: &Predicate) -> Vec<Found> {
        self.visible
            .iter()
            .filter(|record| record.source == self.source && record.matches(predicate))
            .map(|record| (record.address.0, record.ts.0, record.payload.clone()))
            .collect()
    }
}

/// A predicate over times and indexes, from random numbers.
pub fn predicate(question: &Question, random: &mut Random, depth: u32) -> Predicate {
    let own: Vec<&Record> = question
        .visible
        .iter()
        .filter(|record| record.source == question.source)
        .collect();
    let pick = |random: &mut Random| own.get((random.next() % (own.len() as u64).max(1)) as usize);
    let kind = random.next() % if depth == 0 { 4 } else { 8 };
    let sides = |random: &mut Random| {
        (0..random.next() % 4)
            .map(|_| predicate(question, random, depth - 1))
            .collect()
    };
    match kind {
        0 | 1 => {
            let (Some(a), Some(b)) = (pick(random), pick(random)) else {
                return Predicate::All;
            };
            let (first, last) = (a.ts.min(b.ts), a.ts.max(b.ts));
            Predicate::time(TimeRange { first, last })
        }
        2 | 3 => {
            let indexes: Vec<IndexId> = own
                .first()
                .map(|record| record.keys.iter().map(|(id, _)| *id).collect())
                .unwrap_or_default();
            let Some(index) = indexes.get((random.next() % (indexes.len() as u64).max(1)) as usize)
            else {
                return Predicate::Nothing;
            };
            let key = |random: &mut Random| pick(random).and_then(|record| record.key(*index));
            let min = key(random).unwrap_or(Key::MIN);
            let max = match random.next() % 3 {
                0 => min,
                1 => key(random).unwrap_or(Key::MAX),
                _ => Key::MAX,
            };
            Predicate::value(*index, ValueRange { min, max })
        }
        4 | 5 => Predicate::And(sides(random)),
        _ => Predicate::Or(sides(random)),
    }
}
