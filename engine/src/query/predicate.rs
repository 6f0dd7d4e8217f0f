//! The condition that a query puts on a record, over `ts`, index values and fields.
//!
//! Callers write a [`Predicate`]; a [`Test`] is the same with its indexes looked up. `mask.rs` evaluates a `Test` over nodes, and
//! `Test::keep` over the rows of a batch. Both must agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::scan::batch::Batch;
use super::scan::column_filter::{keep_any, keep_matching};
use super::value::Value;
use super::zone_test::Zones;
use crate::error::Result;
use crate::schema::{Expr, Filter, RangeSet, Source};
use crate::types::{IndexId, Key, TimeRange, Timestamp, ValueRange};

/// A condition on the records of one source.
#[derive(Clone, PartialEq, Debug)]
pub enum Predicate<I = IndexId> {
    All,
    Nothing,
    /// `ts`, which is the source's own time if it has one and otherwise arrival, is one of these.
    Time(RangeSet<Timestamp>),
    /// The record has a value for the index, and its key is one of these.
    Value(I, RangeSet<Key>),
    /// The record passes this test of its fields, which no summary answers.
    Fields(Arc<Expr>),
    And(Vec<Predicate<I>>),
    Or(Vec<Predicate<I>>),
}

/// A prepared predicate over one source.
pub(crate) type Test = Predicate<Arc<Value>>;

/// An index, by its id or with the means to compute its values.
pub trait Subject {
    fn id(&self) -> IndexId;
}

impl Subject for IndexId {
    fn id(&self) -> IndexId {
        *self
    }
}

impl Subject for Arc<Value> {
    fn id(&self) -> IndexId {
        Value::id(self)
    }
}

impl Predicate {
    pub fn value(index: IndexId, range: ValueRange) -> Predicate {
        Predicate::keys(index, range.into())
    }

    /// The records of a source that match a filter. If an index expresses a part of the filter, summaries answer that part.
    pub fn matching(filter: &Filter, source: &Source) -> Predicate {
        Predicate::passing(filter.expr(), source)
    }

    fn passing(expr: &Expr, source: &Source) -> Predicate {
        let of_field = match expr {
            Expr::Keys { field, keys } => source
                .index_of_field(*field)
                .map(|index| (index, keys.clone())),
            Expr::Null {
                field,
                is_null: false,
            } => source
                .index_of_field(*field)
                .map(|index| (index, RangeSet::all())),
            _ => None,
        };
        let of_filter = || Some((source.index_of_filter(expr)?, RangeSet::all()));
        if let Some((index, keys)) = of_field.or_else(of_filter) {
            return Predicate::keys(index.id, keys);
        }
        let all = |tests: &[Expr]| -> Vec<Predicate> {
            let tests = tests.iter().map(|test| Predicate::passing(test, source));
            tests.collect()
        };
        match expr {
            Expr::All(tests) => Predicate::and(all(tests)),
            Expr::Any(tests) => Predicate::or(all(tests)),
            Expr::Keys { keys, .. } if keys.is_empty() => Predicate::Nothing,
            Expr::Keys { .. } | Expr::Bytes { .. } | Expr::Contains { .. } | Expr::Null { .. } => {
                Predicate::Fields(Arc::new(expr.clone()))
            }
        }
    }
}

impl<I: Subject> Predicate<I> {
    pub fn time(range: TimeRange) -> Self {
        Predicate::times(range.into())
    }

    /// This function and the following ones return the simplest form.
    pub fn times(times: RangeSet<Timestamp>) -> Self {
        if times.is_empty() {
            Predicate::Nothing
        } else if times.is_all() {
            Predicate::All
        } else {
            Predicate::Time(times)
        }
    }

    pub fn keys(index: I, keys: RangeSet<Key>) -> Self {
        // A range of all keys is still a condition: the record must have a value.
        if keys.is_empty() {
            Predicate::Nothing
        } else {
            Predicate::Value(index, keys)
        }
    }

    /// Holds if all of `sides` hold. Ranges on one subject are intersected, because a record has one `ts`, and one value for an index.
    pub fn and(sides: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Joined::default();
        for side in sides {
            match side {
                Predicate::All => {}
                Predicate::Nothing => return Predicate::Nothing,
                Predicate::And(inner) => inner.into_iter().for_each(|side| joined.add(side)),
                side => joined.add(side),
            }
        }
        let mut sides = joined.into_sides(RangeSet::intersection, RangeSet::intersection);
        if sides.iter().any(|side| matches!(side, Predicate::Nothing)) {
            return Predicate::Nothing;
        }
        match sides.len() {
            0 => Predicate::All,
            1 => sides.remove(0),
            _ => Predicate::And(sides),
        }
    }

    /// Holds if one of `sides` holds.
    pub fn or(sides: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Joined::default();
        for side in sides {
            match side {
                Predicate::Nothing => {}
                Predicate::All => return Predicate::All,
                Predicate::Or(inner) => inner.into_iter().for_each(|side| joined.add(side)),
                side => joined.add(side),
            }
        }
        joined.join_alternatives();
        let mut sides = joined.into_sides(RangeSet::union, RangeSet::union);
        if sides.iter().any(|side| matches!(side, Predicate::All)) {
            return Predicate::All;
        }
        match sides.len() {
            0 => Predicate::Nothing,
            1 => sides.remove(0),
            _ => Predicate::Or(sides),
        }
    }
}

impl Test {
    /// `value` looks up an index; it fails for an index of another source.
    pub fn prepare(
        predicate: &Predicate,
        value: &impl Fn(IndexId) -> Result<Arc<Value>>,
    ) -> Result<Test> {
        let all = |sides: &[Predicate]| {
            let sides = sides.iter().map(|side| Test::prepare(side, value));
            sides.collect::<Result<Vec<_>>>()
        };
        Ok(match predicate {
            Predicate::All => Test::All,
            Predicate::Nothing => Test::Nothing,
            Predicate::Time(times) => Test::times(times.clone()),
            Predicate::Value(index, keys) => Test::keys(value(*index)?, keys.clone()),
            Predicate::Fields(expr) => Test::Fields(Arc::clone(expr)),
            Predicate::And(sides) => Test::and(all(sides)?),
            Predicate::Or(sides) => Test::or(all(sides)?),
        })
    }

    /// Clears the entries of `passing`, one for each row, whose rows do not satisfy the test.
    ///
    /// # Panics
    /// If a field that [`Test::each_field`] names was not read, or the times were not read that [it needs](Test::needs_times).
    pub fn keep(&self, batch: &Batch<'_>, passing: &mut [bool]) {
        match self {
            Test::All => {}
            Test::Nothing => passing.fill(false),
            Test::Time(times) => {
                for (passes, time) in passing.iter_mut().zip(batch.times()) {
                    *passes &= times.contains(Timestamp(*time as i64));
                }
            }
            Test::Value(value, keys) => value.keep(batch, keys, passing),
            Test::Fields(expr) => keep_matching(batch, expr, passing),
            Test::And(sides) => sides.iter().for_each(|side| side.keep(batch, passing)),
            Test::Or(sides) => keep_any(passing, sides, |side, passing| side.keep(batch, passing)),
        }
    }

    /// Calls `each` with every field that the test reads. Returns false if it may read others too.
    pub fn each_field(&self, each: &mut impl FnMut(usize)) -> bool {
        self.each_use(&mut |field, _| each(field))
    }

    /// As [`Test::each_field`], and whether the field's value is read; otherwise only whether it is NULL.
    pub fn each_use(&self, each: &mut dyn FnMut(usize, bool)) -> bool {
        match self {
            Test::All | Test::Nothing | Test::Time(_) => true,
            Test::Value(value, _) => value.each_field(&mut |field| each(field, true)),
            Test::Fields(expr) => {
                expr.each_use(each);
                true
            }
            // Each side is visited, even after one that may read any field.
            Test::And(sides) | Test::Or(sides) => {
                let known = sides.iter().map(|side| side.each_use(each));
                known.fold(true, |all, known| all & known)
            }
        }
    }

    /// The keys that some fields must have, if the test is no more than that. A NULL has no key.
    pub fn field_keys(&self) -> Option<Vec<(usize, &RangeSet<Key>)>> {
        let mut found = Vec::new();
        self.add_field_keys(&mut found).then_some(found)
    }

    fn add_field_keys<'a>(&'a self, found: &mut Vec<(usize, &'a RangeSet<Key>)>) -> bool {
        match self {
            Test::All => true,
            Test::Value(value, keys) => match value.plain_field() {
                Some(field) => {
                    found.push((field, keys));
                    true
                }
                None => false,
            },
            Test::Fields(expr) => expr.add_field_keys(found),
            Test::And(sides) => sides.iter().all(|side| side.add_field_keys(found)),
            Test::Nothing | Test::Time(_) | Test::Or(_) => false,
        }
    }

    /// Splits off a range of times that every matching record lies in. The second part is the test that remains.
    pub fn split_times(&self) -> (TimeRange, Test) {
        let range_of = |side: &Test| match side {
            Test::Time(times) => match times.ranges() {
                &[(first, last)] => Some(TimeRange { first, last }),
                _ => None,
            },
            _ => None,
        };
        let sides = match self {
            Test::And(sides) => sides.as_slice(),
            side => std::slice::from_ref(side),
        };
        let mut found = sides.iter().map(range_of).enumerate();
        match found.find_map(|(nth, range)| Some((nth, range?))) {
            Some((nth, range)) => {
                let rest = sides.iter().enumerate().filter(|(other, _)| *other != nth);
                (range, Test::and(rest.map(|(_, side)| side.clone())))
            }
            None => (TimeRange::ALL, self.clone()),
        }
    }

    /// Whether the test reads times.
    pub fn needs_times(&self) -> bool {
        match self {
            Test::All | Test::Nothing | Test::Value(..) | Test::Fields(_) => false,
            Test::Time(_) => true,
            Test::And(sides) | Test::Or(sides) => sides.iter().any(Test::needs_times),
        }
    }

    /// Whether the test reads index values, which summaries hold.
    pub fn needs_values(&self) -> bool {
        match self {
            Test::All | Test::Nothing | Test::Time(_) | Test::Fields(_) => false,
            Test::Value(..) => true,
            Test::And(sides) | Test::Or(sides) => sides.iter().any(Test::needs_values),
        }
    }

    /// Whether the test reads fields, which summaries do not hold.
    pub fn needs_records(&self) -> bool {
        match self {
            Test::All | Test::Nothing | Test::Time(_) | Test::Value(..) => false,
            Test::Fields(_) => true,
            Test::And(sides) | Test::Or(sides) => sides.iter().any(Test::needs_records),
        }
    }

    /// Whether it looks at fields, by themselves or by index values.
    pub fn needs_fields(&self) -> bool {
        self.needs_values() || self.needs_records()
    }

    /// Whether a row in some zones may satisfy it.
    pub fn may_pass(&self, zones: Zones<'_>) -> bool {
        match self {
            Test::All | Test::Time(_) => true,
            Test::Nothing => false,
            Test::Value(value, keys) => value.may_have(zones, keys),
            Test::Fields(expr) => zones.may_match(expr),
            Test::And(sides) => sides.iter().all(|side| side.may_pass(zones)),
            Test::Or(sides) => sides.iter().any(|side| side.may_pass(zones)),
        }
    }

    /// A range of times that every matching record lies in.
    pub fn time_hull(&self) -> TimeRange {
        match self {
            Test::All | Test::Value(..) | Test::Fields(_) => TimeRange::ALL,
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

/// The sides of an AND or OR, grouped by subject. All are joined at once, so a long list costs no more than its sorting.
struct Joined<I> {
    times: Vec<RangeSet<Timestamp>>,
    values: BTreeMap<IndexId, (I, Vec<RangeSet<Key>>)>,
    others: Vec<Predicate<I>>,
}

impl<I> Default for Joined<I> {
    fn default() -> Joined<I> {
        Joined {
            times: Vec::new(),
            values: BTreeMap::new(),
            others: Vec::new(),
        }
    }
}

impl<I: Subject> Joined<I> {
    fn add(&mut self, side: Predicate<I>) {
        match side {
            Predicate::Time(times) => self.times.push(times),
            Predicate::Value(index, keys) => {
                let of_index = self.values.entry(index.id());
                let (_, sets) = of_index.or_insert_with(|| (index, Vec::new()));
                sets.push(keys);
            }
            side => self.others.push(side),
        }
    }

    /// Makes one test of those of fields: a list of texts is then tested at once.
    fn join_alternatives(&mut self) {
        let is_fields = |side: &Predicate<I>| matches!(side, Predicate::Fields(_));
        if self.others.iter().filter(|side| is_fields(side)).count() < 2 {
            return;
        }
        let mut tests = Vec::new();
        self.others.retain(|side| match side {
            Predicate::Fields(expr) => {
                tests.push(Expr::clone(expr));
                false
            }
            _ => true,
        });
        self.others
            .push(Predicate::Fields(Arc::new(Expr::Any(tests))));
    }

    fn into_sides(
        self,
        join_times: impl Fn(Vec<RangeSet<Timestamp>>) -> RangeSet<Timestamp>,
        join_keys: impl Fn(Vec<RangeSet<Key>>) -> RangeSet<Key>,
    ) -> Vec<Predicate<I>> {
        let times = (!self.times.is_empty()).then(|| Predicate::times(join_times(self.times)));
        let values = self
            .values
            .into_values()
            .map(|(index, sets)| Predicate::keys(index, join_keys(sets)));
        times.into_iter().chain(values).chain(self.others).collect()
    }
}
