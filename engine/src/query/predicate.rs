//! What a query asks of a record, over `ts` and index values, and its prepared form.
//!
//! A [`Predicate`] is what callers write; [`Test`] is the same with indexes looked up, windows and value lists joined into sorted sets,
//! and AND and OR flattened. `mask.rs` evaluates a `Test` over nodes, `Test::matches` over one record: both must agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ranges::RangeSet;
use super::value::Value;
use crate::error::Result;
use crate::schema::Layout;
use crate::types::{IndexId, Key, TimeRange, Timestamp, ValueRange};

/// A condition on the records of one source.
#[derive(Clone, PartialEq, Debug)]
pub enum Predicate {
    All,
    Nothing,
    /// `ts`, the source's own time where it has one and else arrival, lies in the range.
    Time(TimeRange),
    /// The record has a value for the index, and it lies in the range.
    Value {
        index: IndexId,
        range: ValueRange,
    },
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
}

/// A predicate over one source, prepared.
#[derive(Clone)]
pub(crate) enum Test {
    All,
    Nothing,
    Time(RangeSet<Timestamp>),
    Value(Arc<Value>, RangeSet<Key>),
    And(Vec<Test>),
    Or(Vec<Test>),
}

impl Test {
    /// `value` gives what an index computes; it fails for an index of another source.
    pub fn prepare(
        predicate: &Predicate,
        value: &impl Fn(IndexId) -> Result<Arc<Value>>,
    ) -> Result<Test> {
        Ok(match predicate {
            Predicate::All => Test::All,
            Predicate::Nothing => Test::Nothing,
            Predicate::Time(range) => time(RangeSet::new([(range.first, range.last)])),
            Predicate::Value { index, range } => {
                keys(value(*index)?, RangeSet::new([(range.min, range.max)]))
            }
            Predicate::And(sides) => {
                let sides = sides.iter().map(|side| Test::prepare(side, value));
                Test::and(sides.collect::<Result<_>>()?)
            }
            Predicate::Or(sides) => {
                let sides = sides.iter().map(|side| Test::prepare(side, value));
                Test::or(sides.collect::<Result<_>>()?)
            }
        })
    }

    /// What holds where all of `sides` hold. Ranges on one subject are intersected: a record has one `ts`, and one value for an index.
    pub fn and(sides: Vec<Test>) -> Test {
        let mut joined = Joined::default();
        for side in sides {
            match side {
                Test::All => {}
                Test::Nothing => return Test::Nothing,
                Test::And(inner) => inner.into_iter().for_each(|side| joined.add(side)),
                side => joined.add(side),
            }
        }
        let mut sides = joined.into_sides(RangeSet::intersection, RangeSet::intersection);
        if sides.iter().any(|side| matches!(side, Test::Nothing)) {
            return Test::Nothing;
        }
        match sides.len() {
            0 => Test::All,
            1 => sides.remove(0),
            _ => Test::And(sides),
        }
    }

    /// What holds where one of `sides` holds.
    pub fn or(sides: Vec<Test>) -> Test {
        let mut joined = Joined::default();
        for side in sides {
            match side {
                Test::Nothing => {}
                Test::All => return Test::All,
                Test::Or(inner) => inner.into_iter().for_each(|side| joined.add(side)),
                side => joined.add(side),
            }
        }
        let mut sides = joined.into_sides(RangeSet::union, RangeSet::union);
        if sides.iter().any(|side| matches!(side, Test::All)) {
            return Test::All;
        }
        match sides.len() {
            0 => Test::Nothing,
            1 => sides.remove(0),
            _ => Test::Or(sides),
        }
    }

    /// Whether a record satisfies it; exact.
    pub fn matches(&self, ts: Timestamp, layout: &Layout, payload: &[u8]) -> bool {
        match self {
            Test::All => true,
            Test::Nothing => false,
            Test::Time(times) => times.contains(ts),
            Test::Value(value, keys) => value
                .key(layout, payload)
                .is_some_and(|key| keys.contains(key)),
            Test::And(sides) => sides.iter().all(|side| side.matches(ts, layout, payload)),
            Test::Or(sides) => sides.iter().any(|side| side.matches(ts, layout, payload)),
        }
    }

    /// Whether it looks at index values; else times alone decide it.
    pub fn needs_values(&self) -> bool {
        match self {
            Test::All | Test::Nothing | Test::Time(_) => false,
            Test::Value(..) => true,
            Test::And(sides) | Test::Or(sides) => sides.iter().any(Test::needs_values),
        }
    }

    /// A range outside which no record satisfies it.
    pub fn time_hull(&self) -> TimeRange {
        match self {
            Test::All | Test::Value(..) => TimeRange::ALL,
            Test::Nothing => TimeRange::EMPTY,
            Test::Time(times) => match times.hull() {
                Some((first, last)) => TimeRange { first, last },
                None => TimeRange::EMPTY,
            },
            Test::And(sides) => sides.iter().fold(TimeRange::ALL, |hull, side| {
                hull.intersect(side.time_hull())
            }),
            Test::Or(sides) => sides.iter().fold(TimeRange::EMPTY, |hull, side| {
                let other = side.time_hull();
                TimeRange {
                    first: hull.first.min(other.first),
                    last: hull.last.max(other.last),
                }
            }),
        }
    }
}

fn time(times: RangeSet<Timestamp>) -> Test {
    if times.is_empty() {
        Test::Nothing
    } else if times.is_all() {
        Test::All
    } else {
        Test::Time(times)
    }
}

fn keys(value: Arc<Value>, keys: RangeSet<Key>) -> Test {
    // Every key is still a condition: the record must have a value.
    if keys.is_empty() {
        Test::Nothing
    } else {
        Test::Value(value, keys)
    }
}

/// The sides of an AND or OR, those on one subject together: joined all at once, a list costs no more than to sort it.
#[derive(Default)]
struct Joined {
    times: Vec<RangeSet<Timestamp>>,
    values: BTreeMap<IndexId, (Arc<Value>, Vec<RangeSet<Key>>)>,
    others: Vec<Test>,
}

impl Joined {
    fn add(&mut self, side: Test) {
        match side {
            Test::Time(times) => self.times.push(times),
            Test::Value(value, keys) => {
                let (_, sets) = self
                    .values
                    .entry(value.id())
                    .or_insert_with(|| (value, Vec::new()));
                sets.push(keys);
            }
            side => self.others.push(side),
        }
    }

    fn into_sides(
        self,
        join_times: impl Fn(Vec<RangeSet<Timestamp>>) -> RangeSet<Timestamp>,
        join_keys: impl Fn(Vec<RangeSet<Key>>) -> RangeSet<Key>,
    ) -> Vec<Test> {
        let times = (!self.times.is_empty()).then(|| time(join_times(self.times)));
        let values = self
            .values
            .into_values()
            .map(|(value, sets)| keys(value, join_keys(sets)));
        times.into_iter().chain(values).chain(self.others).collect()
    }
}
