//! Random questions over a world's records, and the rows that answer them.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::query::{Bucket, Predicate, Snapshot};
use crate::schema::{FieldDef, FieldType, Filter, Source};
use crate::testkit::Random;
use crate::testkit::oracle::Record;
use crate::testkit::world::{TAG, TAG_BYTES, World};
use crate::types::{IndexId, Key, SourceId, TimeRange, Timestamp, ValueRange};

/// Address, `ts` and payload of a row.
pub type Found = (u64, i64, Vec<u8>);

const QUANTILES: [f64; 8] = [0.0, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0, 0.25];

/// Parts of a question, as places among the world's records and values.
#[derive(Clone, Debug)]
pub struct Ask {
    source: usize,
    index: Index,
    times: Option<[Index; 2]>,
    keys: Option<[Index; 2]>,
    nudges: [i8; 4],
    /// A width in parts of the window's length, or in months.
    bucket: Option<(bool, u8)>,
    pub quantiles: u8,
    position: Option<(Index, u8)>,
    /// The seed of a random filter.
    filter: Option<u64>,
}

pub fn any_ask() -> impl Strategy<Value = Ask> {
    let pair = || prop::option::of(any::<[Index; 2]>());
    (
        (0usize..3, any::<Index>(), pair(), pair()),
        (any::<[i8; 4]>(), prop::option::of((any::<bool>(), 1u8..40))),
        (
            any::<u8>(),
            prop::option::of((any::<Index>(), 0u8..9)),
            prop::option::of(any::<u64>()),
        ),
    )
        .prop_map(
            |((source, index, times, keys), (nudges, bucket), (quantiles, position, filter))| Ask {
                source,
                index,
                times,
                keys,
                nudges: nudges.map(|nudge| nudge % 2),
                bucket,
                quantiles,
                position,
                filter,
            },
        )
}

/// A question made from an `Ask`.
pub struct Question {
    pub snapshot: Snapshot,
    pub visible: Vec<Record>,
    pub source: SourceId,
    pub index: Option<IndexId>,
    pub time: TimeRange,
    pub value: ValueRange,
    pub bucket: Option<Bucket>,
    pub quantiles: Vec<f64>,
    pub filter: Option<Filter>,
}

impl Question {
    /// A question about all records of a source.
    pub fn plain(snapshot: &Snapshot, visible: &[Record], source: SourceId) -> Question {
        Question {
            snapshot: snapshot.clone(),
            visible: visible.to_vec(),
            source,
            index: None,
            time: TimeRange::ALL,
            value: ValueRange::ALL,
            bucket: None,
            quantiles: vec![0.0, 0.5, 0.99],
            filter: None,
        }
    }

    pub fn new(world: &World, all: &[Record], ask: &Ask) -> Question {
        let source = world.sources[ask.source];
        let snapshot = match &ask.position {
            Some((at, words)) if !all.is_empty() => {
                // Any multiple of 8, even inside a record.
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
            // A bound above everything is the most frequent one.
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
        let filter = ask.filter.and_then(|seed| {
            let found = snapshot.source_by_id(source).unwrap();
            random_filter(&mut Random(seed), &found)
        });
        Question {
            snapshot,
            visible,
            source,
            index,
            time,
            value,
            bucket,
            quantiles,
            filter,
        }
    }

    /// The filter in the form that operators take.
    pub fn passing(&self) -> Predicate {
        let source = self.snapshot.source_by_id(self.source).unwrap();
        let filter = self.filter.as_ref();
        filter.map_or(Predicate::All, |filter| {
            Predicate::matching(filter, &source)
        })
    }

    pub fn rows(&self, predicate: &Predicate) -> Vec<Found> {
        self.visible
            .iter()
            .filter(|record| record.source == self.source && record.matches(predicate))
            .map(|record| (record.address.0, record.ts.0, record.payload.clone()))
            .collect()
    }
}

/// A random filter over the fields of a source; `None` if the source has no fields.
pub fn random_filter(random: &mut Random, source: &Source) -> Option<Filter> {
    let text = filter_text(random, source, 3)?;
    Some(Filter::parse(&text, &source.fields).unwrap_or_else(|error| panic!("{error}")))
}

fn filter_text(random: &mut Random, source: &Source, depth: u32) -> Option<String> {
    if source.fields.is_empty() {
        return None;
    }
    if depth > 0 && random.next().is_multiple_of(2) {
        let join = random.pick(&[" AND ", " OR ", " AND NOT ", " OR NOT "]);
        let left = filter_text(random, source, depth - 1)?;
        let right = filter_text(random, source, depth - 1)?;
        return Some(format!("({left}{join}{right})"));
    }
    let FieldDef { name, ty, .. } = random.pick(&source.fields);
    let [a, b, c] = std::array::from_fn(|_| literal(random, *ty));
    Some(match random.next() % 6 {
        0 => format!("{name} IS NULL"),
        1 => format!("{name} IS NOT NULL"),
        2 => format!("{name} IN ({a}, {b}, {c})"),
        3 => format!("{name} BETWEEN {a} AND {b}"),
        _ => {
            let op = random.pick(&["=", "<>", "<", "<=", ">", ">="]);
            format!("{name} {op} {a}")
        }
    })
}

fn literal(random: &mut Random, ty: FieldType) -> String {
    let small = random.next() % 7;
    let magnitude = random.next() >> (random.next() % 64);
    match ty {
        FieldType::Utf8 => format!("'{}'", "x".repeat(magnitude as usize % 30)),
        FieldType::Char(_) => {
            let tag = &TAG[..TAG_BYTES[small as usize % TAG_BYTES.len()]];
            format!("'{}'", String::from_utf8_lossy(tag))
        }
        FieldType::U8 => small.to_string(),
        _ => match random.next() % 4 {
            0 => small.to_string(),
            1 => format!("{small}.5"),
            2 => format!("-{magnitude}"),
            _ => magnitude.to_string(),
        },
    }
}

/// A random predicate over times and indexes.
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
