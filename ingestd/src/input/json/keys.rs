//! The keys of the first objects of an input, and the columns that keep their values.
//!
//! A key whose values are all objects becomes a column for each key of theirs: `a.b`. Objects that look like tables of data, with very
//! many keys, stay JSON, as arrays do.

use std::collections::HashMap;

use anyhow::{bail, ensure};
use loom_engine::schema::{FIELDS_MAX, FieldType, NAME_BYTES_MAX};
use serde_json::de::SliceRead;

use super::super::ROW_BYTES_MAX;
use super::super::blocks::Blocks;
use super::super::columns::Column;
use super::super::naming::shown;
use super::super::plan::LoadOptions;
use super::super::text::Sample;
use super::super::text_rows::{Step, sample};
use super::object::{Names, Values, name_of, parse_object};
use super::shape::Objects;
use super::{KEYS_MAX, has_half_a_pair};

/// Objects with more keys stay JSON.
const INNER_KEYS_MAX: usize = 64;
/// Objects within so many objects stay JSON.
const DEPTH_MAX: usize = 8;

/// Looks at the first objects without consuming them. Returns the columns, and notes about them. Rows that are refused add no column and decide
/// no type, unless all of them are.
pub(super) fn infer(
    blocks: &mut Blocks,
    objects: Objects,
    options: &LoadOptions,
) -> anyhow::Result<(Vec<Column>, Vec<String>)> {
    let ts = options.ts_column.as_deref();
    let is_kept = |keys: &Keys, values: &Values<'_>| {
        let mut texts = values.iter().flatten();
        let is_short =
            |text: &str| text.len() <= options.payload_bytes_max || text.starts_with('{');
        texts.all(|text| is_short(text) && !has_half_a_pair(text))
            && ts.is_none_or(|ts| options.ts_form.reads(keys.text_of(ts, values)))
    };
    match inferred(blocks, objects, is_kept)? {
        Some(inferred) => Ok(inferred),
        None => Ok(inferred(blocks, objects, |_, _| true)?.unwrap_or_default()),
    }
}

/// `None` if there are rows, and none is kept.
fn inferred(
    blocks: &mut Blocks,
    mut objects: Objects,
    is_kept: impl Fn(&Keys, &Values<'_>) -> bool,
) -> anyhow::Result<Option<(Vec<Column>, Vec<String>)>> {
    let mut keys = Keys::default();
    let (mut first_bad, mut beyond, mut kept) = (None, 0, 0);
    let sampled = sample(blocks, |data, ended| {
        let known = keys.samples.len();
        let mut values = Values::with_capacity(known);
        let parse = |text| {
            let parsed = parse_object(SliceRead::new(text), &mut values, &mut keys);
            parsed.inspect_err(|_| keys.forget(known))
        };
        match objects.next(data, ended, parse) {
            Step::Row((), bytes) => {
                if is_kept(&keys, &values) {
                    keys.see(&values);
                    beyond += values.beyond;
                    kept += 1;
                } else {
                    keys.forget(known);
                }
                Some((bytes, true))
            }
            Step::Bad(reason, bytes) => {
                first_bad.get_or_insert(reason);
                Some((bytes, false))
            }
            Step::Blank(bytes) => Some((bytes, false)),
            Step::TooLong | Step::More => None,
        }
    })?;
    if sampled.rows == 0 && (first_bad.is_some() || !sampled.all) {
        let name = blocks.name();
        match first_bad {
            Some(why) => bail!(
                "cannot infer fields from {name}: none of its first values can be read; the first: {why}"
            ),
            None => bail!(
                "cannot infer fields from {name}: its first value does not end within {ROW_BYTES_MAX} bytes"
            ),
        }
    }
    if sampled.rows > 0 && kept == 0 {
        return Ok(None);
    }
    let mut columns = keys.columns(true);
    if columns.len() > FIELDS_MAX {
        columns = keys.columns(false);
    }
    ensure!(
        columns.len() <= FIELDS_MAX || beyond == 0,
        "cannot infer fields from {}: it has more than {KEYS_MAX} keys; a source has at most {FIELDS_MAX} fields; declare those that matter with \
         --fields",
        blocks.name()
    );
    let notes = sampled.note(blocks, &columns).into_iter().collect();
    Ok(Some((columns, notes)))
}

/// The keys that were seen, in the order in which objects name them: an outer one before its inner ones.
#[derive(Default)]
struct Keys {
    numbers: HashMap<String, usize>,
    samples: Vec<KeySample>,
}

impl Keys {
    /// Forgets all but the first `known` keys.
    fn forget(&mut self, known: usize) {
        if self.samples.len() > known {
            self.samples.truncate(known);
            self.numbers.retain(|_, number| *number < known);
        }
    }

    /// The value of a name as it is written, without the quotes of a string; empty if there is none.
    fn text_of<'a>(&self, name: &str, values: &Values<'a>) -> &'a str {
        let number = self.numbers.get(name);
        let value = number.and_then(|number| values.get(*number));
        value.map_or("", |value| value.trim_matches('"'))
    }

    fn see(&mut self, values: &Values<'_>) {
        for (sample, value) in self.samples.iter_mut().zip(values.iter()) {
            if let Some(value) = value {
                sample.see(value);
            }
        }
    }

    /// The columns, with objects taken apart or not. They are nullable: a later row may not have the key.
    fn columns(&self, apart: bool) -> Vec<Column> {
        let mut inner = vec![Inner::default(); self.samples.len()];
        for sample in &self.samples {
            if let Some(inner) = sample.outer.and_then(|outer| inner.get_mut(outer)) {
                inner.keys += 1;
                inner.name_bytes_max = inner.name_bytes_max.max(sample.name.len());
            }
        }
        // Whether each was taken apart; an outer key stands before its inner ones.
        let mut taken: Vec<bool> = Vec::new();
        let mut columns = Vec::new();
        for (sample, inner) in self.samples.iter().zip(inner) {
            let reached = match sample.outer {
                Some(outer) => taken.get(outer) == Some(&true) || sample.at_top,
                None => true,
            };
            let fits = (1..=INNER_KEYS_MAX).contains(&inner.keys)
                && inner.name_bytes_max <= NAME_BYTES_MAX;
            let is_taken = apart && reached && fits && sample.holds_objects_only();
            taken.push(is_taken);
            if reached && !is_taken {
                columns.push(sample.column());
            }
        }
        columns
    }
}

/// The keys of the objects of one key.
#[derive(Clone, Default)]
struct Inner {
    keys: usize,
    name_bytes_max: usize,
}

impl Names for Keys {
    fn number(&mut self, parent: Option<usize>, key: &str) -> Option<usize> {
        let outer = parent.and_then(|parent| self.samples.get(parent));
        let name = outer.map(|outer| format!("{}.{key}", outer.name));
        let depth = outer.map_or(0, |outer| outer.depth + 1);
        let name = name.as_deref().unwrap_or(name_of(key));
        if let Some(number) = self.numbers.get(name) {
            if let Some(sample) = self.samples.get_mut(*number) {
                sample.at_top |= parent.is_none();
                sample.outer = sample.outer.or(parent);
            }
            return Some(*number);
        }
        if self.samples.len() >= KEYS_MAX {
            return None;
        }
        let number = self.samples.len();
        self.numbers.insert(name.to_owned(), number);
        self.samples.push(KeySample {
            outer: parent,
            depth,
            at_top: parent.is_none(),
            is_empty: parent.is_none() && key.is_empty(),
            ..KeySample::new(name)
        });
        Some(number)
    }

    fn is_taken_apart(&self, number: usize) -> bool {
        let sample = self.samples.get(number);
        sample.is_some_and(|sample| sample.depth < DEPTH_MAX)
    }

    fn text(&self, number: usize) -> &str {
        self.samples.get(number).map_or("", |sample| &sample.name)
    }
}

/// What the values of one key have in common.
struct KeySample {
    name: String,
    /// The key of the objects that this one was first found in.
    outer: Option<usize>,
    depth: usize,
    /// It is a key of a row too, under this name.
    at_top: bool,
    /// The key itself is empty, at the top of a row.
    is_empty: bool,
    /// Numbers and booleans.
    bare: Sample,
    strings: Sample,
    arrays: u64,
    objects: u64,
    nulls: u64,
    rows: u64,
}

impl KeySample {
    fn new(name: &str) -> KeySample {
        KeySample {
            name: name.to_owned(),
            outer: None,
            depth: 0,
            at_top: false,
            is_empty: false,
            bare: Sample::new(),
            strings: Sample::new(),
            arrays: 0,
            objects: 0,
            nulls: 0,
            rows: 0,
        }
    }

    fn see(&mut self, value: &str) {
        self.rows += 1;
        match value.as_bytes().first() {
            Some(b'{') => self.objects += 1,
            Some(b'[') => self.arrays += 1,
            Some(b'n') => self.nulls += 1,
            Some(b'"') => self.strings.see(value.trim_matches('"')),
            _ => self.bare.see(value),
        }
    }

    fn holds_objects_only(&self) -> bool {
        self.objects > 0 && self.objects + self.nulls == self.rows
    }

    fn column(&self) -> Column {
        let bare = self.bare.rows() > 0;
        let strings = self.strings.rows() > 0;
        let nested = self.arrays + self.objects > 0;
        let ty = match (nested, bare, strings) {
            (false, true, false) => self.bare.number_type(),
            (false, false, true) if self.strings.is_timestamp() => Some(FieldType::TimestampNs),
            (false, false, true) => Some(FieldType::Utf8),
            _ => None,
        };
        let mut column = Column::new(&self.name, ty.unwrap_or(FieldType::Json), true);
        column.is_blank = self.nulls == self.rows;
        let name = shown(&self.name);
        if ty.is_none() {
            column.note = Some(format!(
                "key '{name}' becomes json: no field type keeps its values"
            ));
        } else if self.is_empty {
            column.note = Some(format!("key '' becomes field '{name}': it is empty"));
        }
        column
    }
}
