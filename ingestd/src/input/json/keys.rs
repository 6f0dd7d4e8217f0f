//! The keys of the first objects of an input, and the columns that keep their values.

use std::collections::HashMap;

use anyhow::bail;
use loom_engine::schema::FieldType;
use serde_json::value::RawValue;

use super::super::blocks::Blocks;
use super::super::columns::Column;
use super::super::text::Sample;
use super::super::text_rows::{Sampled, sample};
use super::object::parse_object;
use super::{KEYS_MAX, next_line};

/// Looks at the first lines without consuming them.
pub(super) fn infer(blocks: &mut Blocks) -> anyhow::Result<Vec<Column>> {
    let mut keys = Keys::default();
    let Sampled { rows, bytes, all } = sample(blocks, |data, ended| {
        let (line, bytes) = next_line(data, ended)?;
        Some((bytes, keys.see(line)))
    })?;
    if rows == 0 && bytes > 0 {
        bail!(
            "cannot infer fields from {}: none of its first lines is a JSON object",
            blocks.name()
        );
    }
    let samples = keys.samples.iter();
    Ok(samples.map(|sample| sample.column(rows, all)).collect())
}

/// The keys that were seen, in the order in which lines name them.
#[derive(Default)]
struct Keys {
    ordinals: HashMap<String, usize>,
    samples: Vec<KeySample>,
}

impl Keys {
    /// Whether a line is an object; one that is none leaves nothing behind.
    fn see(&mut self, line: &[u8]) -> bool {
        let known = self.samples.len();
        let mut values = Vec::with_capacity(known);
        let parsed = parse_object(line, &mut values, |key| {
            let ordinal = self.ordinals.get(key).copied();
            if ordinal.is_none() && self.samples.len() < KEYS_MAX {
                let ordinal = self.samples.len();
                self.samples.push(KeySample::new(key));
                self.ordinals.insert(key.to_owned(), ordinal);
                return Some(ordinal);
            }
            ordinal
        });
        if parsed.is_err() {
            self.samples.truncate(known);
            self.ordinals.retain(|_, ordinal| *ordinal < known);
            return false;
        }
        for (sample, value) in self.samples.iter_mut().zip(&values) {
            if let Some(value) = value {
                sample.see(value);
            }
        }
        true
    }
}

/// What the values of one key have in common.
struct KeySample {
    name: String,
    /// Numbers and booleans.
    bare: Sample,
    strings: Sample,
    nested: u64,
    nulls: u64,
    rows: u64,
}

impl KeySample {
    fn new(name: &str) -> KeySample {
        KeySample {
            name: name.to_owned(),
            bare: Sample::new(),
            strings: Sample::new(),
            nested: 0,
            nulls: 0,
            rows: 0,
        }
    }

    fn see(&mut self, value: &RawValue) {
        self.rows += 1;
        match value.get().as_bytes().first() {
            Some(b'{' | b'[') => self.nested += 1,
            Some(b'n') => self.nulls += 1,
            Some(b'"') => self.strings.see(value.get().trim_matches('"')),
            _ => self.bare.see(value.get()),
        }
    }

    fn column(&self, rows: u64, all: bool) -> Column {
        let bare = self.bare.rows() > 0;
        let strings = self.strings.rows() > 0;
        let ty = match (self.nested > 0, bare, strings) {
            (false, true, false) => self.bare.number_type(),
            (false, false, true) if self.strings.is_timestamp() => Some(FieldType::TimestampNs),
            (false, false, true) => Some(FieldType::Utf8),
            _ => None,
        };
        let nullable = !all || self.nulls > 0 || self.rows < rows;
        let mut column = Column::new(&self.name, ty.unwrap_or(FieldType::Json), nullable);
        if ty.is_none() {
            let name = &self.name;
            column.note = Some(format!(
                "key '{name}' becomes json: no field type keeps its values"
            ));
        }
        column
    }
}
