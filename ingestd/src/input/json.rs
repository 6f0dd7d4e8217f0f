//! JSON lines: one object a line; keys become columns of text, nested values stay the JSON that they are.
//!
//! Each line is parsed by itself, so that a malformed one costs no other.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use arrow::array::{ArrayRef, LargeStringBuilder};
use loom_engine::schema::FieldType;
use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::blocks::Blocks;
use super::columns::{Column, field_name};
use super::rows::Rows;
use super::text::Sample;
use super::{BATCH_BYTES, ROW_BYTES_MAX, Reader, SAMPLE_ROWS, SAMPLE_WAIT, Wanted};

/// How much of a regular file types are inferred from.
const SAMPLE_BYTES: usize = 16 << 20;
/// How many different keys are told apart, so that hostile input cannot fill memory.
const KEYS_MAX: usize = 4096;

pub(crate) struct JsonLines {
    blocks: Blocks,
    columns: Vec<Column>,
    /// The column of each key.
    keys: HashMap<String, usize>,
    wanted: Vec<Wanted>,
    unknown: BTreeSet<String>,
    notes: Vec<String>,
    /// Within a line that is too long: all up to its break is left out.
    skipping: bool,
    /// Lines begun so far, blank ones too, as an editor counts them.
    lines: u64,
}

impl JsonLines {
    /// Infers columns from the first lines, unless the names of those to look for are given.
    pub(crate) fn open(
        mut blocks: Blocks,
        declared: Option<&[String]>,
    ) -> anyhow::Result<JsonLines> {
        if declared.is_none() {
            blocks.fill()?;
            if blocks
                .data()
                .iter()
                .find(|byte| !byte.is_ascii_whitespace())
                == Some(&b'[')
            {
                bail!(
                    "{} holds a JSON array; write one object a line, for instance with jq -c '.[]'",
                    blocks.name()
                );
            }
        }
        let columns = match declared {
            None => infer(&mut blocks)?,
            Some(names) => {
                let column = |name: &String| Column::new(name, FieldType::Json, true);
                names.iter().map(column).collect()
            }
        };
        let keys = columns
            .iter()
            .enumerate()
            .map(|(at, column)| (column.name.clone(), at));
        Ok(JsonLines {
            keys: keys.collect(),
            blocks,
            columns,
            wanted: Vec::new(),
            unknown: BTreeSet::new(),
            notes: Vec::new(),
            skipping: false,
            lines: 0,
        })
    }

    /// Consumes the whole lines among the bytes at hand.
    fn parse(&mut self) -> Rows {
        let mut builders: Vec<_> = self
            .wanted
            .iter()
            .map(|_| LargeStringBuilder::new())
            .collect();
        let mut bad = Vec::new();
        let (mut count, mut read) = (0, 0);
        if self.skipping {
            let end = memchr(b'\n', self.blocks.data());
            read = end.map_or(self.blocks.data().len(), |end| end + 1);
            self.skipping = end.is_none();
        }
        let mut unknown = BTreeSet::new();
        while read < BATCH_BYTES {
            let data = self.blocks.data().get(read..).unwrap_or_default();
            let Some(line) = next_line(data, self.blocks.ended()) else {
                break;
            };
            self.lines += 1;
            let mut values = vec![None; self.columns.len()];
            let outcome = match line {
                Line::TooLong => {
                    read += data.len();
                    self.skipping = true;
                    Err(format!("it is longer than {ROW_BYTES_MAX} bytes"))
                }
                Line::Whole { line, bytes } => {
                    read += bytes;
                    if line.iter().all(u8::is_ascii_whitespace) {
                        continue;
                    }
                    parse_object(line, &self.keys, &mut values, &mut unknown)
                        .map_err(|error| told(&error, self.lines))
                }
            };
            for (wanted, builder) in self.wanted.iter().zip(&mut builders) {
                let value = values.get(wanted.column).copied().flatten();
                append(builder, value.filter(|_| outcome.is_ok()), wanted.as_json);
            }
            if let Err(reason) = outcome {
                bad.push((count, reason));
            }
            count += 1;
        }
        self.blocks.consume(read);
        self.learn(unknown);
        let columns = builders
            .iter_mut()
            .map(|builder| Arc::new(builder.finish()) as ArrayRef);
        Rows {
            columns: columns.collect(),
            count,
            bad,
        }
    }

    /// A key that is not known by itself may be a field under the name that it gets there, or is said to be left out.
    fn learn(&mut self, unknown: BTreeSet<String>) {
        for key in unknown {
            if self.unknown.len() + self.keys.len() >= KEYS_MAX || self.unknown.contains(&key) {
                continue;
            }
            self.notes.push(format!(
                "the key '{key}' is no field of the source and is left out"
            ));
            self.unknown.insert(key);
        }
    }
}

impl Reader for JsonLines {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        self.wanted = wanted;
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            let rows = self.parse();
            if rows.count > 0 {
                return Ok(Some(rows));
            }
            // Bytes that are left over were blank lines up to here, or lack their end.
            if !self.blocks.fill()? && self.blocks.data().is_empty() {
                return Ok(None);
            }
        }
    }

    fn fraction(&self) -> Option<f64> {
        self.blocks.fraction()
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

/// The value as text: strings without quotes and escapes, anything else as it is written.
fn append(builder: &mut LargeStringBuilder, value: Option<&RawValue>, as_json: bool) {
    let text = value.map(RawValue::get);
    match text {
        None | Some("null") => builder.append_null(),
        Some(text) if as_json => builder.append_value(text),
        Some(text) => match text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
        {
            None => builder.append_value(text),
            Some(inner) if !inner.contains('\\') => builder.append_value(inner),
            Some(_) => match serde_json::from_str::<String>(text) {
                Ok(text) => builder.append_value(text),
                // Half of a surrogate pair is JSON, but no text.
                Err(_) => builder.append_value(text),
            },
        },
    }
}

enum Line<'a> {
    Whole { line: &'a [u8], bytes: usize },
    TooLong,
}

fn next_line(data: &[u8], ended: bool) -> Option<Line<'_>> {
    match memchr(b'\n', data) {
        Some(end) => Some(Line::Whole {
            line: data.get(..end)?,
            bytes: end + 1,
        }),
        None if ended && !data.is_empty() => Some(Line::Whole {
            line: data,
            bytes: data.len(),
        }),
        None if data.len() > ROW_BYTES_MAX => Some(Line::TooLong),
        None => None,
    }
}

fn parse_object<'a>(
    line: &'a [u8],
    keys: &HashMap<String, usize>,
    values: &mut [Option<&'a RawValue>],
    unknown: &mut BTreeSet<String>,
) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_slice(line);
    let object = Object {
        keys,
        values,
        unknown,
    };
    object.deserialize(&mut parser).and_then(|()| parser.end())
}

/// What is wrong with a line, which the parser takes for the first, and where.
fn told(error: &serde_json::Error, line: u64) -> String {
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(what, _)| what);
    let column = error.column();
    format!("it is no JSON object: {what} at line {line}, column {column}")
}

/// Takes an object apart: the values of the keys that are columns.
struct Object<'k, 'a> {
    keys: &'k HashMap<String, usize>,
    values: &'k mut [Option<&'a RawValue>],
    unknown: &'k mut BTreeSet<String>,
}

impl<'a> DeserializeSeed<'a> for Object<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(column) = map.next_key_seed(Key {
            keys: self.keys,
            unknown: &mut *self.unknown,
        })? {
            let value: &'a RawValue = map.next_value()?;
            if let Some(cell) = column.and_then(|column| self.values.get_mut(column)) {
                *cell = Some(value);
            }
        }
        Ok(())
    }
}

/// Looks a key up without copying it.
struct Key<'k> {
    keys: &'k HashMap<String, usize>,
    unknown: &'k mut BTreeSet<String>,
}

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<Option<usize>, D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        let column = self
            .keys
            .get(key)
            .or_else(|| self.keys.get(&field_name(key)));
        if column.is_none() && self.unknown.len() < KEYS_MAX && !self.unknown.contains(key) {
            self.unknown.insert(key.to_owned());
        }
        Ok(column.copied())
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
                "key '{name}' becomes json, as no field type keeps it"
            ));
        }
        column
    }
}

/// Looks at the first lines without consuming them.
fn infer(blocks: &mut Blocks) -> anyhow::Result<Vec<Column>> {
    let mut keys: HashMap<String, usize> = HashMap::new();
    let mut samples: Vec<KeySample> = Vec::new();
    let mut rows = 0;
    let mut read = 0;
    let deadline = Instant::now() + SAMPLE_WAIT;
    let all = loop {
        if rows >= SAMPLE_ROWS && blocks.is_stream() || read >= SAMPLE_BYTES {
            break false;
        }
        let data = blocks.data().get(read..).unwrap_or_default();
        match next_line(data, blocks.ended()) {
            Some(Line::Whole { line, bytes }) => {
                read += bytes;
                if see_line(line, &mut keys, &mut samples) {
                    rows += 1;
                }
            }
            Some(Line::TooLong) => break false,
            None if blocks.ended() => break true,
            None => {
                let wait = deadline.saturating_duration_since(Instant::now());
                if rows > 0 && blocks.is_stream() && !blocks.ready(wait) {
                    break false;
                }
                blocks.fill()?;
            }
        }
    };
    if samples.is_empty() && rows == 0 && read > 0 {
        bail!(
            "{}: none of the first lines is a JSON object",
            blocks.name()
        );
    }
    Ok(samples
        .iter()
        .map(|sample| sample.column(rows, all))
        .collect())
}

fn see_line(line: &[u8], keys: &mut HashMap<String, usize>, samples: &mut Vec<KeySample>) -> bool {
    let mut unknown = BTreeSet::new();
    let mut values = vec![None; samples.len()];
    if parse_object(line, keys, &mut values, &mut unknown).is_err() {
        return false;
    }
    if !unknown.is_empty() && keys.len() < KEYS_MAX {
        // Columns stand in the order in which the line names its keys.
        for key in keys_in_order(line) {
            if unknown.contains(&key) && !keys.contains_key(&key) {
                samples.push(KeySample::new(&key));
                keys.insert(key, samples.len() - 1);
            }
        }
        values = vec![None; samples.len()];
        if parse_object(line, keys, &mut values, &mut unknown).is_err() {
            return false;
        }
    }
    for (sample, value) in samples.iter_mut().zip(&values) {
        if let Some(value) = value {
            sample.see(value);
        }
    }
    true
}

fn keys_in_order(line: &[u8]) -> Vec<String> {
    struct Keys(Vec<String>);
    impl<'a> Visitor<'a> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<Vec<String>, A::Error> {
            while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                self.0.push(key);
            }
            Ok(self.0)
        }
    }
    let mut parser = serde_json::Deserializer::from_slice(line);
    parser.deserialize_map(Keys(Vec::new())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Format;
    use crate::input::testing::{Loaded, declared, load, options, try_load};

    fn json(text: &str) -> Loaded {
        load(text.as_bytes(), Format::Json, options())
    }

    #[test]
    fn types_are_inferred_and_values_kept() {
        let loaded = json(concat!(
            r#"{"n":-9223372036854775808,"u":18446744073709551615,"x":1,"s":"a\n\u00fc\"","b":true,"#,
            r#""t":"1969-12-31T23:59:59Z","o":{"k":[1, 2]},"m":1}"#,
            "\n",
            r#"{"b":null,"n":9223372036854775807,"u":0,"x":-2.5e3,"s":"","t":"1970-01-01","o":[],"m":"x"}"#,
            "\r\n"
        ));
        assert_eq!(
            loaded.fields(),
            [
                "n i64",
                "u u64",
                "x f64",
                "s utf8",
                "b bool?",
                "t timestamp_ns",
                "o json",
                "m json"
            ]
        );
        assert_eq!(
            loaded.lines(),
            [
                "-9223372036854775808|18446744073709551615|1|a\nü\"|true|-1000000000|{\"k\":[1, 2]}|1",
                "9223372036854775807|0|-2500||-|0|[]|\"x\"",
            ]
        );
        assert_eq!(loaded.notes.len(), 2);
    }

    #[test]
    fn a_bad_line_costs_no_other() {
        let loaded = json("{\"a\":1}\n{\"a\":2\n,\"b\":3}\n[4]\n\n{\"a\":5} x\n{\"a\":6}");
        assert_eq!(loaded.lines(), ["1", "6"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 5]);
        let last = &loaded.refused[3].1;
        assert_eq!(
            last,
            "it is no JSON object: trailing characters at line 6, column 9"
        );
    }

    #[test]
    fn keys_that_lack_are_null_and_unknown_ones_are_said() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"i16\"\nnullable = true\n\
                      [[source.field]]\nname = \"ts_\"\ntype = \"json\"\nnullable = true\n";
        let text = "{\"a\":1,\"zz\":0}\n{\"ts\":\"x\"}\n{\"a\":70000}\n{\"a\":3.0,\"zz\":1}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["1|-", "-|\"x\"", "3|-"]);
        assert_eq!(
            loaded.refused,
            [(
                3,
                "'70000' does not fit the field 'a' of type i16".to_owned()
            )]
        );
        assert_eq!(
            loaded.notes,
            ["the key 'zz' is no field of the source and is left out"]
        );
    }

    #[test]
    fn an_array_is_an_error_that_says_what_to_do() {
        let error = try_load(b" [{\"a\":1}]", Format::Json, options())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("write one object a line"), "{error}");
    }

    #[test]
    fn an_empty_file_is_told_to_have_no_rows() {
        let error = try_load(b"", Format::Json, options())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("no rows"), "{error}");
        assert!(error.contains("--fields"), "{error}");
    }

    #[test]
    fn a_line_without_end_is_refused_and_reading_goes_on() {
        let mut text = b"{\"a\":1}\n{\"a\":\"".to_vec();
        text.resize(text.len() + 3 * ROW_BYTES_MAX, b'x');
        text.extend_from_slice(b"\"}\n{\"a\":2}\n");
        let loaded = load(&text, Format::Json, options());
        assert_eq!(loaded.lines(), ["1", "2"]);
        assert_eq!(loaded.refused.len(), 1);
    }
}
