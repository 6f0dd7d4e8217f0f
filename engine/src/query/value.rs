//! What an index computes from a record: its key, its kind, its bins.
//!
//! Declared indexes compute it from their definition; an index that was given as a closure needs that closure again.

use std::sync::Arc;

use crate::proven::{at, at_mut};
use crate::query::scan::column_filter::{keep_keys, keep_matching};
use crate::query::scan::columns::Columns;
use crate::schema::{BinMap, Index, Layout, Payloads, RangeSet};
use crate::types::{IndexId, Key, ValueKind};

/// The function of an index that was given as a closure.
pub type IndexFn = Arc<dyn Fn(&[u8]) -> Option<Key> + Send + Sync>;

/// An index and how to evaluate it.
pub(crate) struct Value {
    index: Arc<Index>,
    function: Option<IndexFn>,
    /// The fields that a key is computed from; `None`: it may be any.
    fields: Option<Vec<usize>>,
}

impl Value {
    pub fn new(index: Arc<Index>, function: Option<IndexFn>) -> Value {
        let is_plain = function.is_none() && !index.is_native() && index.filter().is_none();
        Value {
            fields: is_plain.then(|| index.value_field().into_iter().collect()),
            index,
            function,
        }
    }

    pub fn id(&self) -> IndexId {
        self.index.id
    }

    /// The fields that a key is computed from; `None`: it may be any.
    pub fn fields(&self) -> Option<&[usize]> {
        self.fields.as_deref()
    }

    /// Gives `each` every field that decides whether a record has a key, and which; false where it may be any.
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

    /// Drops from `passing`, one for each row, those without a key among these. [`Value::key`] of each is the naive form.
    pub fn keep(&self, columns: &Columns<'_>, keys: &RangeSet<Key>, passing: &mut [bool]) {
        if let Some(filter) = self.index.filter() {
            keep_matching(columns, filter.expr(), passing);
        }
        match self.index.value_field() {
            Some(field) => keep_keys(columns, field, keys, passing),
            None if keys.contains(Key::MIN) => {}
            None => passing.fill(false),
        }
    }

    pub fn kind(&self) -> ValueKind {
        self.index.kind
    }

    pub fn bins(&self) -> &BinMap {
        &self.index.bins
    }

    /// The same for records that the index covered and for those it did not, so that an index never changes an answer.
    #[inline]
    pub fn key(&self, layout: &Layout, payload: &[u8]) -> Option<Key> {
        match &self.function {
            None => self.index.key(layout, payload),
            Some(function) => function(payload),
        }
    }

    /// Appends the key of each row that is not NULL. False, with nothing appended, where `key` must be asked of each.
    pub fn column_keys(&self, columns: &Columns<'_>, keys: &mut Vec<Key>) -> bool {
        let (field, from, rows) = (self.index.value_field(), keys.len(), columns.count());
        let numbers = field.and_then(|field| columns.numbers(field));
        let is_known = self.function.is_none()
            && (self.index).number_keys(columns.layout(), rows, numbers, keys);
        let nulls = field.filter(|_| is_known);
        if let Some(is_null) = nulls.and_then(|field| columns.nulls(field)) {
            // Without a branch for each: which are NULL cannot be predicted.
            let mut kept = from;
            for row in 0..rows {
                *at_mut(keys, kept) = *at(keys.as_slice(), from + row);
                kept += usize::from(!is_null(row));
            }
            keys.truncate(kept);
        }
        is_known
    }

    /// Appends the key of each row, all of which have one.
    pub fn keys_of_all(&self, columns: &Columns<'_>, keys: &mut Vec<Key>) {
        let rows = columns.count();
        match self.index.value_field().filter(|_| rows > 0) {
            Some(field) => {
                let numbers = columns.numbers(field).expect("the field is read");
                columns.layout().number_keys(field, numbers, keys);
            }
            None => keys.extend(std::iter::repeat_n(Key::MIN, rows)),
        }
    }

    /// Appends the key of each payload. False, with nothing appended, where `key` must be asked of each.
    pub fn load_keys(&self, layout: &Layout, payloads: &Payloads<'_>, keys: &mut Vec<Key>) -> bool {
        self.function.is_none()
            && self
                .index
                .load_keys(layout, std::iter::once(*payloads), keys)
    }
}
