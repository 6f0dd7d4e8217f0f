//! Reads JSON lines into declared fields: the keys of each object become columns of text, and nested values stay JSON.
//!
//! Each line is parsed by itself, so a malformed line does not affect others. `object` parses a line, `alike` is faster for lines like the one
//! before, `keys` finds the column of each key.

mod alike;
mod keys;
mod object;
mod values;

use std::path::Path;

use anyhow::bail;
use arrow::array::LargeStringBuilder;
use loom_engine::proven::at;
use loom_engine::schema::FieldType;
use memchr::memchr;
use serde_json::de::{SliceRead, StrRead};

use super::Wanted;
use super::blocks::Blocks;
use super::columns::Column;
use super::duckdb::copy_statement;
use super::plan::LoadOptions;
use super::text_rows::{Data, Step, TextFormat, TextReader, unended};
use keys::Keys;
use object::parse_object;
use values::Values;

pub(super) struct Json {
    columns: Vec<Column>,
    keys: Keys,
}

impl Json {
    /// The columns are the source's fields and the column of times.
    pub(super) fn open(
        mut blocks: Blocks,
        path: &Path,
        options: &LoadOptions,
    ) -> anyhow::Result<TextReader<Json>> {
        blocks.skip_byte_order_mark()?;
        if let [b'[', ..] | [b'{', b'\r' | b'\n', ..] = blocks.data().trim_ascii_start() {
            bail!(
                "cannot read {} as JSON lines: its first line is not a whole object; let DuckDB read it: {}",
                blocks.name(),
                copy_statement(options, path, "read_json")
            );
        }
        let fields = options.declared.iter().flat_map(|source| &source.fields);
        let names = fields.map(|field| &field.name).chain(&options.ts_column);
        let columns: Vec<Column> = names
            .map(|name| Column::new(name, FieldType::Json, true))
            .collect();
        let keys = Keys::new(&columns);
        Ok(TextReader::new(blocks, Json { columns, keys }))
    }
}

impl TextFormat for Json {
    type Row<'a> = Values<'a>;

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn next_row<'a>(&'a mut self, data: Data<'a>, ended: bool) -> Step<Values<'a>> {
        let bytes = match memchr(b'\n', data.bytes) {
            Some(end) => end + 1,
            None if ended && !data.bytes.is_empty() => data.bytes.len(),
            None => return unended(data.bytes),
        };
        let line = at(data.bytes, ..bytes);
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Step::Blank(bytes);
        }
        let mut values = Values::with_capacity(self.columns.len());
        let keys = &mut self.keys;
        let parsed = match data.checked(line.len()) {
            Some(text) if keys.read_alike(text, &mut values) => Ok(()),
            Some(text) => parse_object(StrRead::new(text), &mut values, keys),
            None => parse_object(SliceRead::new(line), &mut values, keys),
        };
        match parsed {
            Ok(()) => {
                keys.count_left_out(&values);
                Step::Row(values, bytes)
            }
            Err(reason) => Step::Bad(reason, bytes),
        }
    }

    /// The value as text: strings without quotes and escapes, other values as in the input.
    fn append(
        row: &Values<'_>,
        wanted: &Wanted,
        texts: &mut LargeStringBuilder,
    ) -> Result<(), String> {
        let text = row.get(wanted.column).unwrap_or("null");
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let may_be_escaped = inner.is_some() || text.starts_with(['{', '[']);
        let is_escaped = may_be_escaped && memchr(b'\\', text.as_bytes()).is_some();
        match inner {
            _ if text == "null" => texts.append_null(),
            _ if is_escaped && has_half_a_pair(text) => {
                let reason = "it has a \\u escape of half a surrogate pair, which is not text";
                return Err(reason.to_owned());
            }
            Some(_) if is_escaped && !wanted.as_json => {
                let text: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
                texts.append_value(text);
            }
            Some(inner) if !wanted.as_json => texts.append_value(inner),
            _ => texts.append_value(text),
        }
        Ok(())
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.keys.take_notes()
    }

    fn end(&mut self) {
        self.keys.total_left_out();
    }
}

/// Whether a JSON text has an escape of half a surrogate pair.
fn has_half_a_pair(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(backslash) = memchr(b'\\', rest) {
        let escape = at(rest, backslash + 1..);
        let read = match utf16_unit(escape) {
            Some(0xD800..=0xDBFF) => {
                let behind = escape.get(5..).and_then(|rest| rest.strip_prefix(b"\\"));
                match behind.and_then(utf16_unit) {
                    Some(0xDC00..=0xDFFF) => 11,
                    _ => return true,
                }
            }
            Some(0xDC00..=0xDFFF) => return true,
            _ => 1,
        };
        rest = at(escape, read..);
    }
    false
}

/// The code unit of a `\u` escape, whose backslash is before `escape`.
fn utf16_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use crate::input::testing::{Loaded, declared, fields, load, try_load};
    use crate::input::{Format, ROW_BYTES_MAX};

    fn json(of: &str, text: impl AsRef<[u8]>) -> Loaded {
        load(text.as_ref(), Format::Json, declared(&fields(of)))
    }

    #[test]
    fn values_are_kept_as_they_are() {
        let loaded = json(
            "n i64?, u u64?, x f64?, s utf8?, b bool?, t timestamp_ns?, o json?, text utf8?",
            concat!(
                r#"{"n":-9223372036854775808,"u":18446744073709551615,"x":1,"s":"a\n\u00fc\"","b":true,"#,
                r#""t":"1969-12-31T23:59:59Z","o":{"k":[1, 2]},"text":1}"#,
                "\n",
                r#"{"b":null,"n":9223372036854775807,"u":0,"x":-2.5e3,"s":"","t":"1970-01-01","o":"x","text":[1]}"#,
                "\r\n\n",
                "{}"
            ),
        );
        assert_eq!(
            loaded.lines(),
            [
                "-9223372036854775808|18446744073709551615|1|a\nü\"|true|-1000000000|{\"k\":[1, 2]}|1",
                "9223372036854775807|0|-2500||-|0|\"x\"|[1]",
                "-|-|-|-|-|-|-|-",
            ]
        );
        assert!(loaded.notes.is_empty() && loaded.refused.is_empty());
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_bad_line_costs_no_other() {
        let loaded = json(
            "a i64?",
            "{\"a\":1}\n{\"a\":2\n[4]\n\n{\"a\":5} x\n{\"a\":7}{\"a\":8}\n\u{1e}{\"a\":9}\n{\"a\":6}",
        );
        assert_eq!(loaded.lines(), ["1", "6"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 5, 6]);
        let reason = "it is not a JSON object on one line: trailing characters at column 9";
        assert_eq!(loaded.refused[2].1, reason);
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn documents_of_several_lines_are_left_to_duckdb() {
        for text in ["[{\"a\":1},\n{\"a\":2}]\n", "{\n  \"a\": 1\n}\n"] {
            let error = try_load(text.as_bytes(), Format::Json, declared(&fields("a i64")));
            let error = error.err().unwrap().to_string();
            assert!(error.contains("COPY (SELECT * FROM read_json('"), "{error}");
        }
        // White space alone is not a row.
        let loaded = json("a i64", "\u{feff} \n{\"a\":1}\n");
        assert_eq!(loaded.lines(), ["1"]);
    }

    #[test]
    fn a_row_with_two_values_for_one_field_is_refused() {
        let loaded = json(
            "a i64?, ts_ i64?",
            concat!(
                "{\"a\":1,\"ts\":1}\n",
                "{\"a\":2,\"a\":3}\n",
                "{\"A\":4,\"a\":null}\n",
                "{\"x\":5,\"x\":6}\n",
                "{\"A\":7,\"ts_\":2}\n",
            ),
        );
        assert_eq!(loaded.lines(), ["1|1", "7|2"]);
        let reason = |name: &str| format!("it has two values for the name '{name}'");
        let refused = [(2, reason("a")), (3, reason("a")), (4, reason("x"))];
        assert_eq!(loaded.refused, refused);
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn half_a_surrogate_pair_refuses_its_row() {
        let loaded = json(
            "s utf8, j json?",
            concat!(
                "{\"s\":\"a\\ud83d\\ude00\",\"j\":[\"\\ud83d\\ude00\"]}\n",
                "{\"s\":\"\\ud800\",\"j\":[]}\n",
                "{\"s\":\"\\ud83d \\ude00\",\"j\":[]}\n",
                "{\"s\":\"\\\\ud800\",\"j\":[]}\n",
                "{\"s\":\"x\",\"j\":[\"\\udc00\"]}\n",
                "{\"s\":\"y\",\"j\":[\"\\uD83D\\n\"]}\n",
                "{\"s\":\"z\",\"\\udc00\":1}\n",
            ),
        );
        assert_eq!(
            loaded.lines(),
            ["a\u{1F600}|[\"\\ud83d\\ude00\"]", "\\ud800|[]"]
        );
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 5, 6, 7]);
    }

    #[test]
    fn missing_keys_are_null_and_keys_without_a_field_are_noted_and_counted() {
        let loaded = json(
            "a i16?, ts_ json?",
            "{\"a\":1,\"zz\":0}\n{\"ts\":\"x\"}\n{\"a\":70000}\n{\"a\":3,\"zz\":1}\n{\"zz\":null}\n",
        );
        assert_eq!(loaded.lines(), ["1|-", "-|\"x\"", "3|-", "-|-"]);
        assert_eq!(
            loaded.refused,
            [(3, "'70000' does not fit field 'a' of type i16; a field of type utf8 keeps it (--fields)".to_owned())]
        );
        assert_eq!(
            loaded.notes,
            [
                "key 'zz' is left out: the source has no such field",
                "2 values left out: the source has no fields for their keys"
            ]
        );
        let keys: Vec<String> = (0..6000).map(|key| format!("\"k{key}\":1")).collect();
        let loaded = json("a i64", format!("{{\"a\":1,{}}}\n", keys.join(",")));
        assert_eq!(loaded.lines(), ["1"]);
        assert_eq!(loaded.notes.len(), 12);
        let last = loaded.notes.last().unwrap();
        assert!(last.starts_with("6000 values left out: "), "{last}");
    }

    #[test]
    fn a_string_is_no_number_and_no_boolean_and_may_be_a_label() {
        let fields = "[[source.field]]\nname = \"n\"\ntype = \"u8\"\nlabels = { 2 = \"käse\" }\nnullable = true\n\
                      [[source.field]]\nname = \"ok\"\ntype = \"bool\"\nnullable = true\n";
        let text = "{\"n\":\"k\\u00e4se\",\"ok\":true}\n{\"n\":7}\n{\"n\":\"2\"}\n{\"ok\":\"false\"}\n{\"ok\":0}\n{\"n\":{}}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["2|true", "7|-"]);
        let words =
            "'\"2\"' does not fit field 'n' of type u8; a field of type utf8 keeps it (--fields)";
        assert_eq!(loaded.refused[0], (3, words.to_owned()));
        assert_eq!(loaded.refused.len(), 4, "{:?}", loaded.refused);
    }

    #[test]
    fn a_line_without_end_is_refused_and_reading_goes_on() {
        let mut text = b"{\"a\":1}\n{\"a\":\"".to_vec();
        text.resize(text.len() + 3 * ROW_BYTES_MAX, b'x');
        text.extend_from_slice(b"\"}\n{\"a\":2}\n");
        let loaded = json("a i64", &text);
        assert_eq!(loaded.lines(), ["1", "2"]);
        assert_eq!(loaded.refused.len(), 1);
    }
}
