//! JSON objects, one per line or in documents; keys become columns of text, arrays stay the JSON that they are.
//!
//! Each object is parsed by itself, so that a malformed one costs no other. `shape` finds objects, `object` takes one apart, `alike` one that
//! is like the one before, `keys` infers columns, `names` finds the column of each key.

mod alike;
mod keys;
mod names;
mod object;
mod shape;

use arrow::array::LargeStringBuilder;
use loom_engine::proven::at;
use loom_engine::schema::{FieldDef, FieldType};
use memchr::memchr;
use serde_json::de::{SliceRead, StrRead};

use super::Wanted;
use super::blocks::Blocks;
use super::columns::Column;
use super::naming::{field_name, field_names};
use super::plan::LoadOptions;
use super::text_rows::{Data, Step, TextFormat, TextReader};
use keys::infer;
use names::KnownNames;
use object::{Values, parse_object};
use shape::Objects;

/// How many different keys are kept, so that hostile input cannot fill memory.
const KEYS_MAX: usize = 4096;

/// What is wrong with a text that is none.
const HALF_A_PAIR: &str = "has a \\u escape of half a surrogate pair, which is not text";

pub(super) struct Json {
    objects: Objects,
    columns: Vec<Column>,
    names: KnownNames,
    notes: Vec<String>,
}

impl Json {
    /// Looks for the keys that are declared, and for those of the first objects if the source takes fields from them.
    pub(super) fn open(
        mut blocks: Blocks,
        options: &LoadOptions,
    ) -> anyhow::Result<TextReader<Json>> {
        blocks.skip_byte_order_mark()?;
        let objects = Objects::of(&mut blocks)?;
        let (mut columns, notes) = match options.takes_fields() {
            true => infer(&mut blocks, objects, options)?,
            false => (Vec::new(), Vec::new()),
        };
        let fields = options.declared.iter().flat_map(|source| &source.fields);
        let fields: Vec<FieldDef> = fields.cloned().collect();
        let filled = field_names(columns.iter().map(|column| &*column.name), &fields);
        for name in options.declared_names().iter().flatten() {
            let is_it = |column: &Column| column.name == *name || field_name(&column.name) == *name;
            if !filled.contains(name) && !columns.iter().any(is_it) {
                columns.push(Column::new(name, FieldType::Json, true));
            }
        }
        let json = Json {
            objects,
            names: KnownNames::new(&columns),
            columns,
            notes,
        };
        Ok(TextReader::new(blocks, json))
    }
}

impl TextFormat for Json {
    type Row<'a> = Values<'a>;

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn next_row<'a>(&'a mut self, data: Data<'a>, ended: bool) -> Step<Values<'a>> {
        let mut values = Values::with_capacity(self.columns.len());
        let names = &mut self.names;
        // An object is found at the beginning of the data. A long line is not checked for each object on it.
        let parse = |object: &'a [u8]| {
            let text = data.checked(object.len());
            if !text.is_some_and(|text| names.read_alike(text, &mut values)) {
                names.begin_row();
                match text {
                    Some(text) => parse_object(StrRead::new(text), &mut values, names)?,
                    None => parse_object(SliceRead::new(object), &mut values, names)?,
                }
            }
            names.fill(&mut values)
        };
        match self.objects.next(data.bytes, ended, parse) {
            Step::Row((), bytes) => {
                self.names.count_left_out(&values);
                Step::Row(values, bytes)
            }
            Step::Blank(bytes) => Step::Blank(bytes),
            Step::Bad(reason, bytes) => Step::Bad(reason, bytes),
            Step::TooLong => Step::TooLong,
            Step::More => Step::More,
        }
    }

    /// The value as text: strings without quotes and escapes, anything else as it is written.
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
                return Err(format!("it {HALF_A_PAIR}"));
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
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.names.take_left_out());
        notes
    }

    fn end(&mut self) -> Result<(), &'static str> {
        self.notes.extend(self.names.total_left_out());
        match self.objects.is_within_array() {
            true => Err("its array does not end: the file is cut short; get it again"),
            false => Ok(()),
        }
    }
}

/// Whether a JSON text has an escape of one half of a surrogate pair without the other.
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

/// The number of an escape, behind its backslash.
fn utf16_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use crate::input::testing::{Loaded, declared, load, options, try_load};
    use crate::input::{Format, LoadOptions, ROW_BYTES_MAX};

    fn json(text: &str) -> Loaded {
        load(text.as_bytes(), Format::Json, options())
    }

    #[test]
    fn a_value_may_go_on_in_the_next_lines_wherever_it_breaks() {
        for (text, rows, refused) in [
            (
                "{\"a\":1}\n{\"a\":\n[{\"a\":7,\n\"b\":[]}\n]\n}\n{\"a\":3}\n",
                &["1", "[{\"a\":7,\n\"b\":[]}\n]", "3"][..],
                &[][..],
            ),
            (
                "{\"a\":[]}\n{\"a\":\n{\"b\":7}\n}\n{\"a\":3}\n",
                &["[]", "{\"b\":7}", "3"],
                &[],
            ),
            ("{\"a\"\n:4}\n{\"a\":1}", &["4", "1"], &[]),
            ("{\"a\":1} {\"a\":2\n} {\"a\":3}\n", &["1", "2", "3"], &[]),
            (
                "{\"a\":1}\n{\"a\":\n{\"a\":2}\n{\"a\":3}\n",
                &["1", "2", "3"],
                &[2],
            ),
            (
                "{\"a\":1}\n{\"a\":2\n{\"a\":3}\n{\"a\":",
                &["1", "3"],
                &[2, 4],
            ),
        ] {
            let loaded = json(text);
            assert_eq!(loaded.lines(), rows, "{text}");
            let bad: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
            assert_eq!(bad, refused, "{text}");
        }
    }

    #[test]
    fn lines_that_never_end_are_each_refused_in_time_that_grows_with_them() {
        let lines = 400_000;
        let text = format!("{{\"a\":1}}\n{}", "{\"a\":[\n".repeat(lines));
        let begun = std::time::Instant::now();
        assert_eq!(json(&text).refused.len(), lines);
        let seconds = begun.elapsed().as_secs();
        assert!(seconds < 60, "{seconds} s");
    }

    #[test]
    fn a_key_of_the_fields_own_spelling_wins_over_one_of_another_case() {
        let field = |name| {
            format!("[[source.field]]\nname = \"{name}\"\ntype = \"i64\"\nnullable = true\n")
        };
        let fields = ["x", "yy"].map(field).concat();
        let text = "{\"YY\":1,\"yy\":2}\n{\"yy\":3,\"YY\":4}\n{\"YY\":5}\n{\"YY\":6,\"Yy\":7}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(&fields));
        assert_eq!(loaded.lines(), ["-|2", "-|3", "-|5"]);
        assert_eq!(
            loaded.refused,
            [(4, "it has two values for the name 'yy'".to_owned())]
        );
        assert_eq!(loaded.notes.len(), 2, "{:?}", loaded.notes);
        assert!(
            loaded.notes[0].starts_with("key 'YY' is left out where"),
            "{:?}",
            loaded.notes
        );
        assert_eq!(loaded.notes[1], "2 values left out: 2 of key 'YY'");
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
                "n i64?",
                "u u64?",
                "x f64?",
                "s utf8?",
                "b bool?",
                "t timestamp_ns?",
                "o json?",
                "m json?"
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
    fn keys_find_the_fields_that_they_became_and_fields_in_another_case() {
        let fields = |names: &[&str]| {
            let field = |name| {
                format!("[[source.field]]\nname = \"{name}\"\ntype = \"i64\"\nnullable = true\n")
            };
            names.iter().copied().map(field).collect::<String>()
        };
        for add_fields in [false, true] {
            let lines = |names: &[&str], text: &str| {
                let options = LoadOptions {
                    add_fields,
                    ..declared(&fields(names))
                };
                let loaded = load(text.as_bytes(), Format::Json, options);
                assert_eq!(loaded.fields().len(), names.len(), "{:?}", loaded.notes);
                loaded.lines()
            };
            assert_eq!(lines(&["a", "A_1"], "{\"a\":1,\"A\":2}"), ["1|2"]);
            assert_eq!(lines(&["a", "A_1"], "{\"A\":2,\"a\":1}"), ["1|2"]);
            assert_eq!(lines(&["a"], "{\"A\":5}"), ["5"]);
            assert_eq!(lines(&["a", "a_1"], "{\"A\":5}"), ["5|-"]);
        }
    }

    #[test]
    fn keys_that_no_field_may_be_called_fill_a_field_of_a_cleaned_name_in_every_file() {
        let long = "k".repeat(300);
        let text = format!("{{\"\":1,\"a\\nb\":2,\"{long}\":3,\"c\":4}}");
        let first = json(&text);
        let cut = &long[..255];
        assert_eq!(
            first.fields(),
            ["_ i64?", "a b i64?", &format!("{cut} i64?"), "c i64?"]
        );
        assert_eq!(first.lines(), ["1|2|3|4"]);
        let said = [
            "key '' becomes field '_': it is empty",
            "column 'a\\nb' becomes field 'a b': the name holds a control character",
            "…': the name is longer than 255 bytes",
        ];
        for words in said {
            let notes: Vec<_> = first
                .notes
                .iter()
                .filter(|note| note.contains(words))
                .collect();
            assert_eq!(notes.len(), 1, "{words}: {:?}", first.notes);
        }
        for add_fields in [false, true] {
            let known = LoadOptions {
                declared: Some(first.def.clone()),
                add_fields,
                ..options()
            };
            let again = load(text.as_bytes(), Format::Json, known);
            assert_eq!(again.lines(), ["1|2|3|4"]);
            assert!(again.notes.is_empty(), "{:?}", again.notes);
        }
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_bad_line_costs_no_other() {
        let loaded = json("{\"a\":1}\n{\"a\":2\n,\"b\":3}\n[4]\n\n{\"a\":5} x\n{\"a\":6}");
        assert_eq!(loaded.lines(), ["1|-", "2|3", "6|-"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [3, 4]);
        let last = &loaded.refused[1].1;
        assert_eq!(
            last,
            "it is not a JSON object: trailing characters at line 6, column 9"
        );
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_row_with_two_values_for_one_name_is_refused() {
        let loaded = json(concat!(
            "{\"a\":{\"b\":1},\"c\":1}\n",
            "{\"a\":{\"b\":5},\"a.b\":4,\"c\":2}\n",
            "{\"a\":{\"b\":5},\"c\":3,\"c\":4}\n",
            "{\"a\":{\"b\":6,\"b\":null},\"c\":5}\n",
            "{\"a\":{\"b\":7},\"c\":6}\n",
        ));
        assert_eq!(loaded.fields(), ["a.b i64?", "c i64?"]);
        assert_eq!(loaded.lines(), ["1|1", "7|6"]);
        let reason = |name: &str| format!("it has two values for the name '{name}'");
        let refused = [(2, reason("a.b")), (3, reason("c")), (4, reason("a.b"))];
        assert_eq!(loaded.refused, refused);
        let only = try_load(b"{\"a\":{\"b\":5},\"a.b\":4}\n", Format::Json, options());
        let error = only.err().unwrap().to_string();
        assert!(
            error.ends_with(&format!("the first: {}", reason("a.b"))),
            "{error}"
        );
        let first = json("{\"a\":{\"b\":5},\"a.b\":4}\n{\"x\":1}\n{\"a\":{\"b\":6}}\n");
        assert_eq!(first.fields(), ["x i64?", "a.b i64?"]);
        assert_eq!(first.lines(), ["1|-", "-|6"]);
        assert_eq!(first.refused, [(1, reason("a.b"))]);
        let field = "[[source.field]]\nname = \"ts_\"\ntype = \"i64\"\n";
        let loaded = load(
            b"{\"ts\":1,\"ts_\":2}\n{\"ts\":3}\n",
            Format::Json,
            declared(field),
        );
        assert_eq!(loaded.lines(), ["2", "3"]);
        assert!(loaded.refused.is_empty(), "{:?}", loaded.refused);
    }

    #[test]
    fn a_row_that_is_refused_adds_no_field_and_decides_no_type() {
        let ts = LoadOptions {
            ts_column: Some("t".to_owned()),
            ..options()
        };
        for (bad, options) in [
            ("{\"n\":\"x\",\"more\":1,\"more\":2}", options()),
            ("{\"n\":\"\\ud800\",\"more\":1}", options()),
            ("{\"t\":\"end\",\"n\":\"x\",\"more\":1}", ts.clone()),
            ("{\"n\":\"x\",\"more\":1}", ts),
        ] {
            let text = format!("{bad}\n{{\"t\":5,\"n\":1}}\n{bad}\n{{\"t\":6,\"n\":2}}\n");
            let loaded = load(text.as_bytes(), Format::Json, options);
            let fields = loaded.fields();
            assert_eq!(fields.last().unwrap(), "n i64?", "{bad}: {fields:?}");
            assert!(!fields.iter().any(|field| field.starts_with("more")));
            let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
            assert_eq!(rows, [1, 3], "{bad}: {:?}", loaded.refused);
        }
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn half_a_surrogate_pair_refuses_its_row() {
        let loaded = json(concat!(
            "{\"s\":\"a\\ud83d\\ude00\",\"j\":[\"\\ud83d\\ude00\"]}\n",
            "{\"s\":\"\\ud800\",\"j\":[]}\n",
            "{\"s\":\"\\ud83d \\ude00\",\"j\":[]}\n",
            "{\"s\":\"\\\\ud800\",\"j\":[]}\n",
            "{\"s\":\"x\",\"j\":[\"\\udc00\"]}\n",
            "{\"s\":\"y\",\"j\":[\"\\uD83D\\n\"]}\n",
            "{\"\\ud800\":1}\n",
            "{\"s\":\"z\",\"\\udc00\":1}\n",
            "{\"\\ud800\\u0041\":1}\n",
        ));
        assert_eq!(
            loaded.lines(),
            ["a\u{1F600}|[\"\\ud83d\\ude00\"]", "\\ud800|[]"]
        );
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 5, 6, 7, 8, 9]);
        let reason = "has a \\u escape of half a surrogate pair, which is not text";
        let (of_values, of_keys) = loaded.refused.split_at(4);
        assert!(
            of_values
                .iter()
                .all(|(_, why)| *why == format!("it {reason}"))
        );
        for (row, why) in of_keys {
            assert!(
                why.starts_with(&format!("a key {reason}, at line {row}, column ")),
                "{why}"
            );
        }
    }

    #[test]
    fn objects_that_follow_one_another_are_rows_however_they_are_laid_out() {
        for text in [
            "{\"a\":1}{\"a\":2} {\"a\":3}\n{\"a\":4}\n",
            "{\"a\":1}{\"a\":2}{\"a\":3}{\"a\":4}",
            "{\"a\":1}\n{\n  \"a\": 2\n}\n{\"a\":3}\n{\n \"a\":\n 4}{}\n",
            "{\n  \"a\": 1\n}\n{\"a\":2}{\"a\":3}\n{\"a\":4}",
            "\u{1e}{\"a\":1}\n\u{1e}{\"a\":2}\n\u{1e}{\n\"a\":3}\n\u{1e}{\"a\":4}\n",
        ] {
            let loaded = json(text);
            assert!(loaded.refused.is_empty(), "{text}: {:?}", loaded.refused);
            assert_eq!(&loaded.lines()[..4], ["1", "2", "3", "4"], "{text}");
        }
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_line_that_breaks_off_costs_no_other_however_it_ends() {
        let loaded = json(
            "{\"a\":1}\n{\"a\":\n{\"a\":2}\n{\"a\":3}{\"a\":\n{\"a\":4}\n{\"a\":[{\n{\"a\":5}} x\n",
        );
        assert_eq!(loaded.lines(), ["1", "2", "3", "4"]);
        let places = loaded.refused.iter().map(|(row, why)| {
            let place = why.rsplit_once(" at ").map(|(_, place)| place);
            (*row, place.unwrap_or(why))
        });
        let expected = [
            (2, "line 2, column 5"),
            (5, "line 4, column 12"),
            (7, "line 6, column 7"),
            (8, "line 7, column 8"),
        ];
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn many_objects_on_one_line_take_no_longer_than_on_many() {
        let object = "{\"a\":1,\"b\":\"xxxxxxxxxxxxxxxx\"}";
        let several =
            |between: &str| [object; 3].join(between) + &[object; 120_000].concat() + "\n";
        let since = std::time::Instant::now();
        let loaded = json(&several("\n"));
        assert_eq!(loaded.rows.len(), 120_003);
        assert!(since.elapsed().as_secs() < 30, "{:?}", since.elapsed());
    }

    #[test]
    fn keys_that_are_left_out_are_named_up_to_a_number_and_all_are_counted() {
        let keys: Vec<String> = (0..6000).map(|key| format!("\"k{key}\":1")).collect();
        let text = format!("{{\"a\":1,{}}}\n", keys.join(","));
        let field = "[[source.field]]\nname = \"a\"\ntype = \"i64\"\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(field));
        assert_eq!(loaded.lines(), ["1"]);
        assert_eq!(loaded.notes.len(), 12);
        let last = loaded.notes.last().unwrap();
        assert!(last.starts_with("6000 values left out: "), "{last}");
        let error = try_load(text.as_bytes(), Format::Json, options());
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("has more than 4096 keys; a source has at most 1000 fields"),
            "{error}"
        );
        let fewer = format!("{{{}}}\n", keys.get(..2000).unwrap().join(","));
        let error = try_load(fewer.as_bytes(), Format::Json, options());
        let error = error.err().unwrap().to_string();
        assert!(error.contains("of 2000 columns: a source has"), "{error}");
    }

    #[test]
    fn missing_keys_are_null_and_unknown_ones_are_noted() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"i16\"\nnullable = true\n\
                      [[source.field]]\nname = \"ts_\"\ntype = \"json\"\nnullable = true\n";
        let text = "{\"a\":1,\"zz\":0}\n{\"ts\":\"x\"}\n{\"a\":70000}\n{\"a\":3,\"zz\":1}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["1|-", "-|\"x\"", "3|-"]);
        assert_eq!(
            loaded.refused,
            [(3, "'70000' does not fit field 'a' of type i16; a field of type utf8 keeps it (--fields)".to_owned())]
        );
        assert_eq!(
            loaded.notes,
            [
                "key 'zz' is left out: the source has no such field",
                "2 values left out: 2 of key 'zz'"
            ]
        );
    }

    #[test]
    fn a_string_is_no_number_and_no_boolean_and_may_be_a_label() {
        let fields = "[[source.field]]\nname = \"n\"\ntype = \"u8\"\nlabels = { 2 = \"käse\" }\nnullable = true\n\
                      [[source.field]]\nname = \"ok\"\ntype = \"bool\"\nnullable = true\n";
        let text = "{\"n\":\"k\\u00e4se\",\"ok\":true}\n{\"n\":7}\n{\"n\":\"2\"}\n{\"ok\":\"false\"}\n{\"ok\":0}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["2|true", "7|-"]);
        let words =
            "'\"2\"' does not fit field 'n' of type u8; a field of type utf8 keeps it (--fields)";
        assert_eq!(loaded.refused[0], (3, words.to_owned()));
        assert_eq!(loaded.refused.len(), 3, "{:?}", loaded.refused);
    }

    #[test]
    fn arrays_and_objects_of_several_lines_are_rows() {
        let pretty = "\n[\n  {\n    \"a\": 1,\n    \"s\": \"x\"\n  },\n  {\n    \"a\": 2,\n    \"s\": \"y\"\n  }\n]\n";
        let objects = "{\n  \"a\": 1,\n  \"s\": \"x\"\n}\n{\n  \"a\": 2, \"s\": \"y\"\n}";
        let compact = "[{\"a\":1,\"s\":\"x\"},{\"a\":2,\"s\":\"y\"}]";
        let marked = "\u{feff}{\"a\":1,\"s\":\"x\"}\n{\"a\":2,\"s\":\"y\"}\n";
        for text in [pretty, objects, compact, marked] {
            let loaded = json(text);
            assert_eq!(loaded.fields(), ["a i64?", "s utf8?"], "{text}");
            assert_eq!(loaded.lines(), ["1|x", "2|y"], "{text}");
            assert!(loaded.refused.is_empty(), "{text}");
        }
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_bad_element_costs_no_other_and_its_place_is_right() {
        let loaded =
            json("[\n {\"a\": 1},\n {\"a\": 2 3},\n 4, {\"a\": \"5\n\"},\n {\"a\": 6},\n {\"a\"");
        assert_eq!(loaded.lines(), ["1", "6"]);
        let refused = loaded.refused;
        let rows: Vec<u64> = refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 6]);
        assert!(
            refused[0].1.ends_with("at line 3, column 10"),
            "{refused:?}"
        );
        assert_eq!(refused[1].1, "it is not a JSON object");
        assert!(
            refused[3].1.contains("the file is cut short"),
            "{refused:?}"
        );
        let field = "[[source.field]]\nname = \"a\"\ntype = \"i64\"\n";
        for (text, options) in [
            ("[{\"a\":1},{\"a\":2}", declared(field)),
            ("[{\"a\":1},{\"a\":2},", options()),
        ] {
            let error = try_load(text.as_bytes(), Format::Json, options);
            let error = error.err().unwrap().to_string();
            assert!(
                error.ends_with(": its array does not end: the file is cut short; get it again"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_array_with_an_empty_element_or_without_a_comma_is_refused_there() {
        let loaded = json("[{\"a\":1},,\n {\"a\":2} {\"a\":3},{\"a\":4},]\n");
        assert_eq!(loaded.lines(), ["1", "2", "4"]);
        let refused = loaded.refused.iter();
        let reasons: Vec<&str> = refused.map(|(_, why)| why.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "the array has no element before ',' at line 1, column 10",
                "the array has no comma before it, at line 2, column 10",
                "the array has no element before ']' at line 2, column 26",
            ]
        );
    }

    #[test]
    fn keys_of_objects_become_fields_and_arrays_stay_json() {
        let loaded = json(concat!(
            r#"{"o":{"k":1,"in":{"x":"a"},"l":[{"y":1}]},"p":{},"q":{"z":1},"h.s":1}"#,
            "\n",
            r#"{"o":{"k":2,"in":{"x":"b"},"l":[]},"p":{},"q":7,"h":{"s":2}}"#,
            "\n",
            r#"{"o":null,"p":{},"q":null,"h.s":3}"#,
            "\n",
        ));
        assert_eq!(
            loaded.fields(),
            [
                "o.k i64?",
                "o.in.x utf8?",
                "o.l json?",
                "p json?",
                "q json?",
                "h.s i64?"
            ]
        );
        assert_eq!(
            loaded.lines(),
            [
                "1|a|[{\"y\":1}]|{}|{\"z\":1}|1",
                "2|b|[]|{}|7|2",
                "-|-|-|{}|-|3"
            ]
        );
        assert!(loaded.refused.is_empty());
    }

    #[test]
    fn an_object_of_very_many_keys_or_levels_stays_json() {
        let keys: Vec<String> = (0..100).map(|key| format!("\"k{key}\":1")).collect();
        let loaded = json(&format!("{{\"o\":{{{}}}}}\n", keys.join(",")));
        assert_eq!(loaded.fields(), ["o json?"]);
        let deep = format!("{}1{}\n", "{\"a\":".repeat(50), "}".repeat(50));
        let loaded = json(&deep);
        assert_eq!(loaded.fields(), ["a.a.a.a.a.a.a.a.a json?"]);
        assert_eq!(loaded.rows.len(), 1);
    }

    #[test]
    fn objects_fill_the_dotted_fields_of_a_declared_source_and_what_is_left_out_is_counted() {
        let fields = "[[source.field]]\nname = \"o.k\"\ntype = \"i64\"\nnullable = true\n";
        let text =
            "{\"o\":{\"k\":1,\"x\":1}}\n{\"o.k\":2}\n{\"o\":3}\n{\"o\":null}\n{\"o\":{\"x\":2}}\n";
        let loaded = load(text.as_bytes(), Format::Json, declared(fields));
        assert_eq!(loaded.lines(), ["1", "2", "-", "-", "-"]);
        assert_eq!(
            loaded.notes.last().unwrap(),
            "3 values left out: 2 of key 'o.x', 1 of key 'o'"
        );
    }

    #[test]
    fn integers_beside_fractions_are_floats_and_none_is_refused() {
        let loaded = json("{\"a\":1}\n{\"a\":2.5}\n{\"a\":3}\n");
        assert_eq!(loaded.fields(), ["a f64?"]);
        assert_eq!(loaded.lines(), ["1", "2.5", "3"]);
    }

    #[test]
    fn an_element_that_is_too_long_costs_no_other() {
        let mut text = b"[{\"a\":1},{\"a\":[\"".to_vec();
        text.resize(text.len() + 3 * ROW_BYTES_MAX, b'x');
        text.extend_from_slice(b"\\\"\"]},{\"a\":2}]");
        let loaded = load(&text, Format::Json, options());
        assert_eq!(loaded.lines(), ["1", "2"]);
        assert_eq!(loaded.refused.len(), 1);
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
