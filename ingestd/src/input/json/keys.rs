//! Which column each key of an input fills, and the keys that fill none. `object` asks for every key of a row.

use std::collections::HashMap;

use super::super::columns::Column;
use super::super::naming::{field_name, shown};
use super::alike::{self, is_plain};
use super::values::Values;
use crate::counted;

/// How many different keys are kept, so that hostile input cannot fill memory.
const KEYS_MAX: usize = 4096;
/// How many keys without a column are named.
const NAMED_MAX: usize = 10;

/// The keys of an input, each with a number: that of its column, or one behind those of the columns.
pub(super) struct Keys {
    numbers: HashMap<String, usize>,
    /// The name of each number.
    names: Vec<String>,
    columns: usize,
    /// The number behind the last one that was found: most objects have their keys in one order.
    next: usize,
    /// The keys of the last row that was parsed.
    order: Vec<usize>,
    left_out: u64,
    notes: Vec<String>,
}

impl Keys {
    pub(super) fn new(columns: &[Column]) -> Keys {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        Keys {
            numbers: names.iter().cloned().zip(0..).collect(),
            columns: names.len(),
            names,
            next: 0,
            order: Vec::new(),
            left_out: 0,
            notes: Vec::new(),
        }
    }

    /// Reads a row that has the keys of the last one that was parsed; false if it has others, or nested values.
    pub(super) fn read_alike<'a>(&self, text: &'a str, values: &mut Values<'a>) -> bool {
        let keys = self
            .order
            .iter()
            .map(|number| (*number, self.name(*number)));
        alike::read(text, keys, values).is_some()
    }

    /// Called before a row is parsed: most begin with the first column's key.
    pub(super) fn begin_row(&mut self) {
        self.next = 0;
        self.order.clear();
    }

    /// The number of a key of the row at hand; `None` if there are too many keys to look at it.
    pub(super) fn number(&mut self, key: &str) -> Option<usize> {
        let is_next = self.names.get(self.next).is_some_and(|next| next == key);
        let known = match is_next {
            true => Some(self.next),
            false => self.numbers.get(key).copied(),
        };
        let number = match known {
            Some(number) => number,
            None if self.numbers.len() >= KEYS_MAX => return None,
            None => self.add(key),
        };
        self.next = number + 1;
        if is_plain(key) {
            self.order.push(number);
        }
        Some(number)
    }

    /// The number of a key that is new: of the column that its name became, or that differs in case only.
    fn add(&mut self, key: &str) -> usize {
        let lower = key.to_lowercase();
        let cleaned = field_name(key);
        let columns = || self.names.iter().take(self.columns);
        let column = columns().position(|column| *column == cleaned);
        let column = column.or_else(|| columns().position(|name| name.to_lowercase() == lower));
        let number = column.unwrap_or(self.names.len());
        if column.is_none() {
            self.names.push(key.to_owned());
            self.note_new(key);
        }
        self.numbers.insert(key.to_owned(), number);
        number
    }

    fn note_new(&mut self, key: &str) {
        let without_column = self.names.len() - self.columns;
        if without_column <= NAMED_MAX {
            let key = shown(key);
            let note = format!("key '{key}' is left out: the source has no such field");
            self.notes.push(note);
        } else if without_column == NAMED_MAX + 1 {
            self.notes.push(format!(
                "more than {NAMED_MAX} keys are left out; the last note counts the values of all"
            ));
        }
    }

    pub(super) fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("", String::as_str)
    }

    /// Counts the values of a row that have no column.
    pub(super) fn count_left_out(&mut self, values: &Values<'_>) {
        let without_column = values.iter().skip(self.columns).flatten();
        let left_out = without_column.filter(|value| *value != "null");
        self.left_out += left_out.count() as u64 + values.beyond;
    }

    /// Notes for the user since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Notes how many values were left out, if any were.
    pub(super) fn total_left_out(&mut self) {
        if self.left_out > 0 {
            let values = counted(self.left_out, "value");
            let note = format!("{values} left out: the source has no fields for their keys");
            self.notes.push(note);
        }
    }
}
