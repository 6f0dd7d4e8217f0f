//! An index as a function of a record: its key, its kind, its bins.
//!
//! Declared indexes compute it from their definition. An index that was given as a closure needs that closure again.

use std::sync::Arc;

use crate::proven::at;
use crate::query::scan::ask::Ask;
use crate::query::scan::batch::{Batch, PayloadRoom};
use crate::query::scan::column_filter::{keep_keys, keep_matching};
use crate::query::scan::records::keep;
use crate::query::zone_test::Zones;
use crate::schema::{BinMap, Index, RangeSet};
use crate::types::{IndexId, Key, ValueKind, ValueRange};

/// The function of an index that was given as a closure.
pub type IndexFn = Arc<dyn Fn(&[u8]) -> Option<Key> + Send + Sync>;

/// The keys of some rows.
#[derive(Default)]
pub(crate) struct Keys {
    pub keys: Vec<Key>,
    /// The rows that have a key, ascending; empty if every row has one.
    rows: Vec<u32>,
}

impl Keys {
    /// Keeps the keys in a range and forgets their rows. It has no branch for each key, because such a branch cannot be predicted.
    pub fn keep_within(&mut self, range: ValueRange) {
        if range == ValueRange::ALL {
            return;
        }
        self.rows.clear();
        match range.max.0.checked_sub(range.min.0) {
            Some(width) => keep(&mut self.keys, |_, key| {
                key.0.wrapping_sub(range.min.0) <= width
            }),
            None => self.keys.clear(),
        }
    }

    /// The rows that have a key, each with its key.
    pub fn by_row(&self) -> impl Iterator<Item = (usize, Key)> {
        let row = |nth: usize| self.rows.get(nth).map_or(nth, |row| *row as usize);
        (self.keys.iter().enumerate()).map(move |(nth, key)| (row(nth), *key))
    }

    /// Drops the keys of the rows that `is_kept` does not hold for. Every row must have a key.
    fn keep_rows(&mut self, is_kept: impl Fn(usize) -> bool) {
        self.rows.extend(0..self.keys.len() as u32);
        keep(&mut self.keys, |row, _| is_kept(row));
        keep(&mut self.rows, |row, _| is_kept(row));
    }
}

/// An index and the means to evaluate it.
pub(crate) struct Value {
    index: Arc<Index>,
    function: Option<IndexFn>,
}

impl Value {
    pub fn new(index: Arc<Index>, function: Option<IndexFn>) -> Value {
        Value { index, function }
    }

    pub fn id(&self) -> IndexId {
        self.index.id
    }

    /// The field whose keys are the values of all records; `None` if they are computed in another way.
    pub fn plain_field(&self) -> Option<usize> {
        let is_plain = self.function.is_none() && self.index.filter().is_none();
        self.index.value_field().filter(|_| is_plain)
    }

    /// The columns that are needed to compute a key.
    pub fn ask(&self) -> Ask {
        let mut fields = Vec::new();
        let is_known = self.each_field(&mut |field| fields.push(field));
        Ask {
            fields,
            payloads: !is_known,
            ..Ask::default()
        }
    }

    /// Calls `each` with every field that decides whether a record has a key, and which one. Returns false if it may be any field.
    pub fn each_field(&self, each: &mut impl FnMut(usize)) -> bool {
        if self.function.is_some() || self.index.is_native() {
            return false;
        }
        self.index.value_field().into_iter().for_each(&mut *each);
        if let Some(filter) = self.index.filter() {
            filter.expr().each_field(each);
        }
        true
    }

    /// Clears the entries of `passing`, one for each row, whose rows have no key among `keys`.
    pub fn keep(&self, batch: &Batch<'_>, keys: &RangeSet<Key>, passing: &mut [bool]) {
        if let Some(function) = &self.function {
            let mut room = PayloadRoom::default();
            for (passes, payload) in passing.iter_mut().zip(batch.payloads(&mut room)) {
                let holds = || function(payload).is_some_and(|key| keys.contains(key));
                *passes = *passes && holds();
            }
            return;
        }
        if let Some(filter) = self.index.filter() {
            keep_matching(batch, filter.expr(), passing);
        }
        match self.index.value_field() {
            Some(field) => keep_keys(batch, field, keys, passing),
            None if keys.contains(Key::MIN) => {}
            None => passing.fill(false),
        }
    }

    /// Whether a row in some zones may have a key among these.
    pub fn may_have(&self, zones: Zones<'_>, keys: &RangeSet<Key>) -> bool {
        if self.function.is_some() || self.index.is_native() {
            return true;
        }
        let filter = self.index.filter();
        filter.is_none_or(|filter| zones.may_match(filter.expr()))
            && match self.index.value_field() {
                Some(field) => zones.may_have(field, keys),
                None => keys.contains(Key::MIN),
            }
    }

    pub fn kind(&self) -> ValueKind {
        self.index.kind
    }

    pub fn bins(&self) -> &BinMap {
        &self.index.bins
    }

    /// Finds the key of each row that has one. It is the same whether or not the index covered the record, so that an index never changes
    /// an answer.
    pub fn keys(&self, batch: &Batch<'_>, found: &mut Keys) {
        found.keys.clear();
        found.rows.clear();
        let count = batch.count();
        if let Some(function) = &self.function {
            let mut room = PayloadRoom::default();
            for (row, payload) in batch.payloads(&mut room).enumerate() {
                if let Some(key) = function(payload) {
                    found.keys.push(key);
                    found.rows.push(row as u32);
                }
            }
            return;
        }
        let (field, layout) = (self.index.value_field(), batch.layout());
        match field.map(|field| (field, batch.numbers(field))) {
            None => found.keys.extend(std::iter::repeat_n(Key::MIN, count)),
            Some((field, Some(numbers))) if layout.number_keys(field, numbers, &mut found.keys) => {
            }
            // The layout is older than the field, so the field is NULL.
            Some(_) => return,
        }
        let nulls = field.and_then(|field| batch.nulls(field));
        if let Some(filter) = self.index.filter() {
            let mut passing = vec![true; count];
            keep_matching(batch, filter.expr(), &mut passing);
            found.keep_rows(|row| {
                *at(&passing, row) && nulls.as_ref().is_none_or(|is_null| !is_null(row))
            });
        } else if let Some(is_null) = nulls {
            found.keep_rows(|row| !is_null(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_that_are_kept_are_those_in_the_range(
            keys in prop::collection::vec(prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..], 0..60),
            min in prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..],
            max in prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..],
        ) {
            let range = ValueRange { min: Key(min), max: Key(max) };
            let keys: Vec<Key> = keys.into_iter().map(Key).collect();
            let expected: Vec<Key> = keys.iter().copied().filter(|key| range.contains(*key)).collect();
            let mut kept = Keys { keys, rows: Vec::new() };
            kept.keep_within(range);
            prop_assert_eq!(kept.keys, expected);
        }
    }
}
