//! The names that keys of an input have: those of its columns, of the objects that they are taken from, and those that are left out.

use std::collections::HashMap;

use super::super::columns::Column;
use super::super::naming::{field_name, numbered, shown};
use super::KEYS_MAX;
use super::alike::{self, is_plain};
use super::object::{Names, Unread, Values, name_of};
use crate::counted;

/// How many keys are named, as they come and in the count at the end.
const LISTED_MAX: usize = 10;

/// The names of an input whose columns are known. The first numbers are those of the columns.
pub(super) struct KnownNames {
    numbers: HashMap<String, usize>,
    /// The number behind the last one that was found: most objects have their keys in one order.
    next: usize,
    /// The plain keys of the last row that was parsed.
    order: Vec<usize>,
    names: Vec<Name>,
    columns: usize,
    /// The names that fill a column, and which columns they filled in the row at hand.
    filling: Vec<usize>,
    filled: Vec<usize>,
    /// Keys that are left out and not noted yet, and how many were.
    unnoted: Vec<usize>,
    noted: usize,
    /// Values of keys beyond those that are kept.
    beyond: u64,
    scratch: String,
}

struct Name {
    text: String,
    /// Columns are made of the keys of its objects.
    has_inner: bool,
    /// The column that it fills where no key of the row is the column's own.
    fills: Option<usize>,
    /// How many values were left out.
    left_out: u64,
}

impl KnownNames {
    pub(super) fn new(columns: &[Column]) -> KnownNames {
        let mut known = KnownNames {
            numbers: HashMap::new(),
            next: 0,
            order: Vec::new(),
            names: Vec::new(),
            columns: columns.len(),
            filling: Vec::new(),
            filled: Vec::new(),
            unnoted: Vec::new(),
            noted: 0,
            beyond: 0,
            scratch: String::new(),
        };
        for column in columns {
            known.add(&column.name);
        }
        for column in columns {
            for (at, _) in column.name.match_indices('.') {
                let (outer, _) = column.name.split_at(at);
                let number = match known.numbers.get(outer) {
                    Some(number) => *number,
                    None => known.add(outer),
                };
                if let Some(name) = known.names.get_mut(number) {
                    name.has_inner = true;
                }
            }
        }
        known
    }

    /// Reads a row that has the keys of the last one that was parsed; false if it has others, or nested values.
    pub(super) fn read_alike<'a>(&self, text: &'a str, values: &mut Values<'a>) -> bool {
        let keys = self
            .order
            .iter()
            .map(|number| (*number, self.text(*number)));
        alike::read(text, keys, values).is_some()
    }

    /// Called before a row is parsed: most begin with the first column's key.
    pub(super) fn begin_row(&mut self) {
        self.next = 0;
        self.order.clear();
    }

    /// The column of a key that none is named after: the field that it became, since its name was reserved or taken, or one in another case.
    fn column_of(&self, key: &str) -> Option<usize> {
        let columns = || self.names.iter().take(self.columns);
        let texts = || columns().map(|column| column.text.as_str());
        let named = |name: &str| texts().position(|column| column == name);
        let lower = key.to_lowercase();
        let in_case = texts().position(|column| column.to_lowercase() == lower);
        let became = in_case.and_then(|_| named(numbered(key, texts())?));
        named(&field_name(key)).or(became).or(in_case)
    }

    fn add(&mut self, text: &str) -> usize {
        let number = self.names.len();
        self.names.push(Name {
            text: text.to_owned(),
            has_inner: false,
            fills: None,
            left_out: 0,
        });
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The number of a name that is new.
    fn add_new(&mut self, name: &str) -> usize {
        let Some(column) = self.column_of(name) else {
            return self.add(name);
        };
        if self.is_taken_apart(column) {
            self.numbers.insert(name.to_owned(), column);
            return column;
        }
        let number = self.add(name);
        if let Some(name) = self.names.get_mut(number) {
            name.fills = Some(column);
        }
        self.filling.push(number);
        number
    }

    /// Fills the columns of a row that have no value of their own name by the keys that a column is found for.
    pub(super) fn fill(&mut self, values: &mut Values<'_>) -> Result<(), Unread> {
        self.filled.clear();
        for number in &self.filling {
            let column = self.names.get(*number).and_then(|name| name.fills);
            let (Some(column), Some(value)) = (column, values.get(*number)) else {
                continue;
            };
            if self.filled.contains(&column) {
                return Err(Unread::Twice(self.text(column).to_owned()));
            }
            if values.get(column).is_none() {
                values.set(column, value);
                values.clear(*number);
                self.filled.push(column);
            }
        }
        Ok(())
    }

    /// Counts the values of a row that no column keeps.
    pub(super) fn count_left_out(&mut self, values: &Values<'_>) {
        self.beyond += values.beyond;
        for (number, value) in values.iter().enumerate().skip(self.columns) {
            let (Some(text), Some(name)) = (value, self.names.get_mut(number)) else {
                continue;
            };
            if text == "null" || name.has_inner && text.starts_with('{') {
                continue;
            }
            if name.left_out == 0 {
                self.unnoted.push(number);
            }
            name.left_out += 1;
        }
    }

    /// A note for each key of which a value was left out since the last call, up to a number of notes.
    pub(super) fn take_left_out(&mut self) -> Vec<String> {
        let numbers = std::mem::take(&mut self.unnoted);
        let mut notes = Vec::new();
        for number in numbers {
            self.noted += 1;
            if self.noted <= LISTED_MAX {
                let key = shown(self.text(number));
                let fills = self.names.get(number).and_then(|name| name.fills);
                notes.push(match fills {
                    Some(column) => format!(
                        "key '{key}' is left out where a row has the key '{}' too: they differ, and the source has one field for both",
                        shown(self.text(column))
                    ),
                    None => format!("key '{key}' is left out: the source has no such field"),
                });
            } else if self.noted == LISTED_MAX + 1 {
                notes.push(format!(
                    "more than {LISTED_MAX} keys are left out; the last note counts the values of all"
                ));
            }
        }
        notes
    }

    /// How many values were left out, with the keys that have most; `None` if none was.
    pub(super) fn total_left_out(&self) -> Option<String> {
        let mut names: Vec<&Name> = self.names.iter().collect();
        names.retain(|name| name.left_out > 0);
        names.sort_by_key(|name| std::cmp::Reverse(name.left_out));
        let listed_values: u64 = names.iter().map(|name| name.left_out).sum();
        let values = listed_values + self.beyond;
        let listed = names.iter().take(LISTED_MAX);
        let mut listed: Vec<String> = listed
            .map(|name| format!("{} of key '{}'", name.left_out, shown(&name.text)))
            .collect();
        if names.len() > LISTED_MAX {
            listed.push(format!("others of {} more keys", names.len() - LISTED_MAX));
        }
        if self.beyond > 0 {
            listed.push(format!(
                "{} of keys beyond the first {KEYS_MAX}",
                self.beyond
            ));
        }
        (values > 0).then(|| {
            let values = counted(values, "value");
            format!("{values} left out: {}", listed.join(", "))
        })
    }
}

impl Names for KnownNames {
    fn number(&mut self, parent: Option<usize>, key: &str) -> Option<usize> {
        let name = match parent.and_then(|parent| self.names.get(parent)) {
            None => name_of(key),
            Some(outer) => {
                self.scratch.clear();
                self.scratch.push_str(&outer.text);
                self.scratch.push('.');
                self.scratch.push_str(key);
                &self.scratch
            }
        };
        let is_next = self
            .names
            .get(self.next)
            .is_some_and(|next| next.text == name);
        if let Some(number) = match is_next {
            true => Some(self.next),
            false => self.numbers.get(name).copied(),
        } {
            self.next = number + 1;
            if parent.is_none() && is_plain(self.text(number)) {
                self.order.push(number);
            }
            return Some(number);
        }
        if self.numbers.len() >= KEYS_MAX {
            return None;
        }
        let name = name.to_owned();
        Some(self.add_new(&name))
    }

    fn is_taken_apart(&self, number: usize) -> bool {
        self.names.get(number).is_some_and(|name| name.has_inner)
    }

    fn text(&self, number: usize) -> &str {
        self.names.get(number).map_or("", |name| &name.text)
    }
}
