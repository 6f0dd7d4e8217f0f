//! Maps each key of an input to its column, and reports keys without a column. `object` calls it for every key of a row.

use std::collections::HashMap;

use super::super::columns::Column;
use super::super::naming::{field_name, shown};
use super::alike::{self, is_plain};
use super::values::Values;
use crate::counted;

/// The limit of known keys, so that hostile input cannot fill memory.
const KEYS_MAX: usize = 4096;
/// The limit of notes about keys without a column.
const NAMED_MAX: usize = 10;

/// The keys of an input, each with a number: that of its column, or a higher one if it has no column.
pub(super) struct Keys {
    numbers: HashMap<String, usize>,
    /// The name of each number.
    names: Vec<String>,
    columns: usize,
    /// The number after the last key, a guess for the next one: most objects have the same order of keys.
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

    /// Reads a row with the same keys as the last parsed row; false if it has other keys or nested values.
    pub(super) fn read_alike<'a>(&self, text: &'a str, values: &mut Values<'a>) -> bool {
        let keys = self
            .order
            .iter()
            .map(|number| (*number, self.name(*number)));
        alike::read(text, keys, values).is_some()
    }

    /// Call it before a row is parsed.
    pub(super) fn begin_row(&mut self) {
        self.next = 0;
        self.order.clear();
    }

    /// The number of a key in the current row; `None` if there are too many different keys.
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

    /// The number of a new key: that of the column with its cleaned name, or whose name differs only in case.
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

    /// Counts the values of a row without a column.
    pub(super) fn count_left_out(&mut self, values: &Values<'_>) {
        let without_column = values.iter().skip(self.columns).flatten();
        let left_out = without_column.filter(|value| *value != "null");
        self.left_out += left_out.count() as u64 + values.beyond;
    }

    /// The new notes for the user.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Adds the note about the number of values without a field.
    pub(super) fn total_left_out(&mut self) {
        if self.left_out > 0 {
            let values = counted(self.left_out, "value");
            let note = format!("{values} left out: the source has no fields for their keys");
            self.notes.push(note);
        }
    }
}
