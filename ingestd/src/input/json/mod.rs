//! JSON lines: one object a line; keys become columns of text, nested values stay the JSON that they are.
//!
//! Each line is parsed by itself, so that a malformed one costs no other. `object` takes a line apart, `keys` infers columns.

mod keys;
mod object;

use std::collections::{BTreeSet, HashMap};

use anyhow::bail;
use arrow::array::LargeStringBuilder;
use loom_engine::schema::FieldType;
use memchr::memchr;
use serde_json::value::RawValue;

use super::Wanted;
use super::blocks::Blocks;
use super::columns::{Column, field_name};
use super::text_rows::{Step, TextFormat, TextReader, unended};
use object::{Values, parse_object};

/// How many different keys are kept, so that hostile input cannot fill memory.
const KEYS_MAX: usize = 4096;

pub(super) struct JsonLines {
    columns: Vec<Column>,
    /// The column of each key.
    keys: HashMap<String, usize>,
    /// Keys that are not columns, and those of them that are not noted yet.
    unknown: BTreeSet<String>,
    unnoted: Vec<String>,
    /// Lines begun so far, blank ones too, as an editor counts them.
    lines: u64,
}

impl JsonLines {
    /// Looks for the keys that are `declared`, and for those of the first lines if it is to `infer` them.
    pub(super) fn open(
        mut blocks: Blocks,
        declared: &[String],
        infer: bool,
    ) -> anyhow::Result<TextReader<JsonLines>> {
        let mut columns = Vec::new();
        if infer {
            blocks.fill()?;
            let mut bytes = blocks.data().iter();
            if bytes.find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
                bail!(
                    "cannot read {} as JSON lines: it holds an array; write one object per line, for instance with jq -c '.[]'",
                    blocks.name()
                );
            }
            columns = keys::infer(&mut blocks)?;
        }
        for name in declared {
            let is_it = |column: &Column| column.name == *name || field_name(&column.name) == *name;
            if !columns.iter().any(is_it) {
                columns.push(Column::new(name, FieldType::Json, true));
            }
        }
        let keys = columns.iter().map(|column| column.name.clone());
        let json = JsonLines {
            keys: keys.zip(0..).collect(),
            columns,
            unknown: BTreeSet::new(),
            unnoted: Vec::new(),
            lines: 0,
        };
        Ok(TextReader::new(blocks, json))
    }
}

impl TextFormat for JsonLines {
    type Row<'a> = Values<'a>;

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn next_row<'a>(&'a mut self, data: &'a [u8], ended: bool) -> Step<Values<'a>> {
        let Some((line, bytes)) = next_line(data, ended) else {
            let step = unended(data);
            self.lines += u64::from(matches!(step, Step::TooLong));
            return step;
        };
        self.lines += 1;
        if is_blank(line) {
            return Step::Blank(bytes);
        }
        let mut values = Vec::with_capacity(self.columns.len());
        let parsed = parse_object(line, &mut values, |key| {
            // A key may be a field under the name that it gets there.
            let column = self
                .keys
                .get(key)
                .or_else(|| self.keys.get(&field_name(key)));
            if column.is_none()
                && self.unknown.len() + self.keys.len() < KEYS_MAX
                && !self.unknown.contains(key)
            {
                self.unknown.insert(key.to_owned());
                self.unnoted.push(key.to_owned());
            }
            column.copied()
        });
        match parsed {
            Ok(()) => Step::Row(values, bytes),
            Err(error) => Step::Bad(explained(&error, self.lines), bytes),
        }
    }

    /// The value as text: strings without quotes and escapes, anything else as it is written.
    fn append(row: &Values<'_>, wanted: &Wanted, texts: &mut LargeStringBuilder) {
        let value = row.get(wanted.column).copied().flatten();
        let text = value.map_or("null", RawValue::get);
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        match inner {
            _ if text == "null" => texts.append_null(),
            _ if wanted.as_json => texts.append_value(text),
            Some(inner) if !inner.contains('\\') => texts.append_value(inner),
            Some(_) => match serde_json::from_str::<String>(text) {
                Ok(text) => texts.append_value(text),
                // Half of a surrogate pair is JSON, but no text.
                Err(_) => texts.append_value(text),
            },
            None => texts.append_value(text),
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        let note = |key| format!("key '{key}' is left out: the source has no such field");
        self.unnoted.drain(..).map(note).collect()
    }
}

/// The line at the beginning of the data, without its break, and its length with it.
fn next_line(data: &[u8], ended: bool) -> Option<(&[u8], usize)> {
    match memchr(b'\n', data) {
        Some(end) => Some((data.get(..end)?, end + 1)),
        None => (ended && !data.is_empty()).then_some((data, data.len())),
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// What is wrong with a line, which the parser takes for the first, and where.
fn explained(error: &serde_json::Error, line: u64) -> String {
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(what, _)| what);
    let column = error.column();
    format!("it is not a JSON object: {what} at line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use crate::input::testing::{Loaded, declared, load, options, try_load};
    use crate::input::{Format, ROW_BYTES_MAX};

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
            "it is not a JSON object: trailing characters at line 6, column 9"
        );
    }

    #[test]
    fn missing_keys_are_null_and_unknown_ones_are_noted() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"i16\"\nnullable = true\n\
                      [[source.field]]\nname = \"ts_\"\ntype = \"json\"\nnullable = true\n";
        let text = "{\"a\":1,\"zz\":0}\n{\"ts\":\"x\"}\n{\"a\":70000}\n{\"a\":3.0,\"zz\":1}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["1|-", "-|\"x\"", "3|-"]);
        assert_eq!(
            loaded.refused,
            [(3, "'70000' does not fit field 'a' of type i16".to_owned())]
        );
        assert_eq!(
            loaded.notes,
            ["key 'zz' is left out: the source has no such field"]
        );
    }

    #[test]
    fn an_array_is_an_error_that_says_what_to_do() {
        let error = try_load(b" [{\"a\":1}]", Format::Json, options())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("write one object per line"), "{error}");
    }

    #[test]
    fn an_empty_file_is_reported_to_have_no_rows() {
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
