//! Reads CSV into declared fields: each block of bytes becomes columns of text.
//!
//! The first row names the columns, unless the user says that it holds values. `row` finds the rows. A malformed row does not affect others.

mod row;

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use arrow::array::LargeStringBuilder;
use loom_engine::proven::at;
use loom_engine::schema::FieldType;

use super::blocks::Blocks;
use super::columns::Column;
use super::plan::LoadOptions;
use super::text_rows::{Data, Step, TextFormat, TextReader, first_line, unended};
use super::{ROW_BYTES_MAX, Wanted};
use row::{Found, Span, find};

use crate::counted;

pub(super) struct Csv {
    delimiter: u8,
    columns: Vec<Column>,
    /// The fields of the current row.
    spans: Vec<Span>,
}

impl Csv {
    /// `name` is the file's name; its extension chooses tabs or commas.
    pub(super) fn open(
        mut blocks: Blocks,
        name: &Path,
        options: &LoadOptions,
    ) -> anyhow::Result<TextReader<Csv>> {
        blocks.skip_byte_order_mark()?;
        let is_tabs = name
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("tsv"));
        let usual = if is_tabs { b'\t' } else { b',' };
        let delimiter = options.csv.delimiter.unwrap_or(usual);
        let names = match options.csv.no_header {
            true => names_by_place(options)?,
            false => header(&mut blocks, delimiter)?,
        };
        let text = |name: &String| Column::new(name, FieldType::Utf8, true);
        let csv = Csv {
            delimiter,
            columns: names.iter().map(text).collect(),
            spans: Vec::new(),
        };
        Ok(TextReader::new(blocks, csv))
    }
}

/// Reads the column names. Skips blank lines before them.
fn header(blocks: &mut Blocks, delimiter: u8) -> anyhow::Result<Vec<String>> {
    let mut spans = Vec::new();
    loop {
        let is_break = |byte: &&u8| b"\r\n".contains(byte);
        let blank = blocks.data().iter().take_while(is_break).count();
        blocks.consume(blank);
        let (data, name) = (blocks.data(), blocks.name());
        match find(data, delimiter, blocks.ended(), &mut spans) {
            Found::Row { bytes, .. } => {
                let row = at(data, ..bytes);
                let row = std::str::from_utf8(row).with_context(|| {
                    format!(
                        "cannot read the first row of {name}: it is not UTF-8; convert the file"
                    )
                })?;
                let cell = |span: &Span| row.get(span.start..span.end);
                let unescaped = |text: &str| text.replace("\"\"", "\"").trim().to_owned();
                let names = spans.iter().filter_map(cell).map(unescaped).collect();
                blocks.consume(bytes);
                return Ok(names);
            }
            Found::More if blocks.ended() => {
                bail!("cannot read {name} as CSV: its lines are blank")
            }
            Found::More if data.len() <= ROW_BYTES_MAX => {
                blocks.fill()?;
            }
            Found::More => bail!(
                "cannot read the first row of {name}: it is longer than {ROW_BYTES_MAX} bytes; is the file CSV?"
            ),
            Found::Malformed(reason) => {
                bail!("cannot read the first row of {name}: {reason}; correct its quotes")
            }
        }
    }
}

/// Names the columns of a file without a header by the fields in their order. The column of times is named by its place: `column0` is the first.
fn names_by_place(options: &LoadOptions) -> anyhow::Result<Vec<String>> {
    let fields = options.declared.iter().flat_map(|source| &source.fields);
    let mut names: Vec<String> = fields.map(|field| field.name.clone()).collect();
    if let Some(ts) = &options.ts_column {
        let place = ts
            .strip_prefix("column")
            .and_then(|place| place.parse().ok());
        let place = place.filter(|place| *place <= names.len()).with_context(|| {
            format!(
                "cannot take times from column '{ts}' (--ts): without a header it is named by its place, from 'column0' to 'column{}'",
                names.len()
            )
        })?;
        names.insert(place, ts.clone());
    }
    Ok(names)
}

/// A row with the expected number of cells.
pub(super) struct CsvRow<'a> {
    text: &'a str,
    spans: &'a [Span],
}

impl TextFormat for Csv {
    type Row<'a> = CsvRow<'a>;

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn next_row<'a>(&'a mut self, data: Data<'a>, ended: bool) -> Step<CsvRow<'a>> {
        let text = |bytes| data.text(bytes);
        let data = data.bytes;
        let (bytes, lines) = match find(data, self.delimiter, ended, &mut self.spans) {
            Found::Row { bytes, lines } => (bytes, lines),
            Found::Malformed(reason) => return Step::Bad(reason.to_owned(), first_line(data)),
            Found::More => return unended(data),
        };
        // In a file with one column, an empty line is a row with an empty value.
        if self.columns.len() > 1 && matches!(data.get(..bytes), Some(b"\n" | b"\r\n")) {
            return Step::Blank(bytes);
        }
        let (found, expected) = (self.spans.len(), self.columns.len());
        let reason = match text(bytes) {
            _ if found != expected => {
                format!(
                    "it has {}, not {expected}; correct it, remove lines above the names, or give --delimiter",
                    counted(found as u64, "column")
                )
            }
            None => "it is not UTF-8".to_owned(),
            Some(text) => {
                let spans = &self.spans;
                return Step::Row(CsvRow { text, spans }, bytes);
            }
        };
        // A row over several lines more likely has a stray quote than a text with line breaks.
        Step::Bad(reason, if lines { first_line(data) } else { bytes })
    }

    fn append(
        row: &CsvRow<'_>,
        wanted: &Wanted,
        texts: &mut LargeStringBuilder,
    ) -> Result<(), String> {
        let span = row.spans.get(wanted.column);
        let text = span.and_then(|span| Some((row.text.get(span.start..span.end)?, span.escaped)));
        match text {
            None | Some(("", _)) if wanted.empty_is_null => texts.append_null(),
            None => texts.append_value(""),
            Some((text, false)) => texts.append_value(text),
            Some((text, true)) => {
                // Writing to a builder cannot fail.
                for (at, part) in text.split("\"\"").enumerate() {
                    let _ = texts.write_str(if at > 0 { "\"" } else { "" });
                    let _ = texts.write_str(part);
                }
                texts.append_value("");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::input::testing::{Loaded, declared, fields, load, options, try_load};
    use crate::input::{CsvOptions, Format, LoadOptions, ROW_BYTES_MAX};

    fn csv(of: &str, text: impl AsRef<[u8]>) -> Loaded {
        load(text.as_ref(), Format::Csv, declared(&fields(of)))
    }

    #[test]
    fn values_are_kept_as_they_are() {
        let loaded = csv(
            "n i64?, big u64?, x f64?, ok bool?, name utf8?, at timestamp_ns?",
            concat!(
                "n,big,x,ok,name,at\r\n",
                "1,18446744073709551615,0.5,true,\"a \"\"b\"\", c\",2024-01-02T03:04:05Z\r\n",
                "-9223372036854775808,0,nan,false,ünï,1969-12-31 23:59:59.999999999\r\n",
                ",,,,,\r\n",
            ),
        );
        assert_eq!(
            loaded.lines(),
            [
                "1|18446744073709551615|0.5|true|a \"b\", c|1704164645000000000",
                "-9223372036854775808|0|NaN|false|ünï|-1",
                "-|-|-|-|-|-",
            ]
        );
        assert!(loaded.refused.is_empty() && loaded.notes.is_empty());
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_bad_row_costs_no_other() {
        let text = "a,b\n1,2\n3\n4,5,6\n7,\"8\n9,10\n11,\"12\"x\n13,14\n";
        let loaded = csv("a i64, b i64", text);
        assert_eq!(loaded.lines(), ["1|2", "9|10", "13|14"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 6]);
        assert_eq!(
            loaded.refused[0].1,
            "it has 1 column, not 2; correct it, remove lines above the names, or give --delimiter"
        );
        assert_eq!(
            loaded.refused[3].1,
            "text follows a closing quote; double the quotes within a field"
        );
    }

    #[test]
    fn an_unclosed_quote_at_the_end_costs_one_line() {
        let loaded = csv("a i64, b utf8", "a,b\n1,x\n2,\"y\n3,z\n");
        assert_eq!(loaded.lines(), ["1|x", "3|z"]);
        assert_eq!(loaded.refused, [(2, "a quote is not closed".to_owned())]);
    }

    #[test]
    fn bytes_that_are_not_utf8_refuse_their_row() {
        let loaded = csv("a utf8", b"a\nx\n\xff\ny\n");
        assert_eq!(loaded.lines(), ["x", "y"]);
        assert_eq!(loaded.refused, [(2, "it is not UTF-8".to_owned())]);
    }

    #[test]
    fn values_that_do_not_fit_their_field_are_named() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"u8\"\nlabels = { 2 = \"SET\" }\n\
                      [[source.field]]\nname = \"b\"\ntype = \"char[2]\"\n";
        let text = b"a,b\n1,\n256,x\nSET,x\nGET,x\n,x\n7,abc\n";
        let loaded = load(text, Format::Csv, declared(fields));
        assert_eq!(loaded.lines(), ["1|", "2|x"]);
        let misfit = |value, field, ty| {
            format!(
                "'{value}' does not fit field '{field}' of type {ty}; a field of type utf8 keeps it (--fields)"
            )
        };
        let null = "field 'a' is NULL and not nullable; load into a source whose field has `nullable = true` (--fields)";
        assert_eq!(
            loaded.refused,
            [
                (2, misfit("256", "a", "u8")),
                (4, misfit("GET", "a", "u8")),
                (5, null.to_owned()),
                (6, misfit("abc", "b", "char[2]"))
            ]
        );
    }

    #[test]
    fn a_blank_line_is_an_empty_value_of_a_single_column_and_no_row_of_several() {
        assert_eq!(csv("a i64?", "a\n1\n\n3\n").lines(), ["1", "-", "3"]);
        let loaded = csv("a i64, b i64", "\n\na,b\n1,2\n\n3,4\n");
        assert_eq!(loaded.lines(), ["1|2", "3|4"]);
        assert!(csv("a i64, b i64", "a,b\n").rows.is_empty());
    }

    #[test]
    fn without_a_header_columns_fill_the_fields_in_their_order() {
        let with = |ts: Option<&str>| LoadOptions {
            csv: CsvOptions {
                no_header: true,
                delimiter: None,
            },
            ts_column: ts.map(str::to_owned),
            ..declared(&format!(
                "time = \"{}\"\n{}",
                if ts.is_some() { "own" } else { "arrival" },
                fields("n u8, s utf8")
            ))
        };
        let loaded = load(b"1,x\n2,y\n3\n", Format::Csv, with(None));
        assert_eq!(loaded.lines(), ["1|x", "2|y"]);
        assert_eq!((loaded.refused.len(), loaded.notes.len()), (1, 0));
        let loaded = load(b"1,5,x\n", Format::Csv, with(Some("column1")));
        assert_eq!(loaded.lines(), ["5|1|x"]);
        let error = try_load(b"1,5,x\n", Format::Csv, with(Some("t")));
        let error = error.err().unwrap().to_string();
        let words = "without a header it is named by its place, from 'column0' to 'column2'";
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn a_header_names_fields_in_any_order_and_case() {
        let loaded = csv("n i64, s utf8", "\u{feff}S,n\nx,1\n");
        assert_eq!(loaded.lines(), ["1|x"]);
        let loaded = csv("y i64", "Y,y\n1,2\n");
        assert_eq!(loaded.lines(), ["2"]);
        let note = &loaded.notes[0];
        assert!(note.starts_with("column 'Y' is left out"), "{note}");
        let loaded = csv("price (USD) i64, n i64", "\"price\r\n(USD)\",n\n1,2\n");
        assert_eq!(loaded.lines(), ["1|2"]);
    }

    #[test]
    fn the_delimiter_is_given() {
        let given = LoadOptions {
            csv: CsvOptions {
                delimiter: Some(b';'),
                no_header: false,
            },
            ..declared(&fields("a utf8, b i64?"))
        };
        let loaded = load(b"a;b\n\"x\ny;z\";1\n\n2,5;\n", Format::Csv, given);
        assert_eq!(loaded.lines(), ["x\ny;z|1", "2,5|-"]);
    }

    #[test]
    fn what_is_no_csv_is_named_with_a_remedy() {
        for (bytes, words) in [
            (&b"\xFF\xFEa\0"[..], "it is UTF-16; convert it with 'iconv"),
            (b"PK\x03\x04", "unpack it with 'unzip -p FILE"),
            (b"PAR1", "it is Parquet; use --format parquet"),
            (b"ARROW1\0\0", "it is Arrow IPC; use --format arrow"),
        ] {
            let error = try_load(bytes, Format::Csv, declared(&fields("a i64")));
            let error = error.err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn without_declared_fields_the_message_shows_the_statement_that_loads_the_file() {
        for (format, function) in [(Format::Csv, "read_csv"), (Format::Json, "read_json")] {
            let error = try_load(b"{\"a\":1}\n", format, options()).err().unwrap();
            let error = error.to_string();
            let statement = format!("COPY (SELECT * FROM {function}('/");
            assert!(error.contains(&statement), "{error}");
            assert!(
                error.contains("TO 'DIR' (FORMAT loom, SOURCE 's')"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_number_that_a_float_does_not_reach_refuses_its_row() {
        for (ty, beyond) in [("f32", ["1e39", "1e-50"]), ("f64", ["-1e309", "-4e-400"])] {
            let fields = fields(&format!("x {ty}"));
            let [large, small] = beyond;
            let csv = format!("x\n{large}\n{small}\n0.0\n0e9\n");
            let json =
                format!("{{\"x\":{large}}}\n{{\"x\":{small}}}\n{{\"x\":0.0}}\n{{\"x\":0e9}}\n");
            for (text, format) in [(csv, Format::Csv), (json, Format::Json)] {
                let loaded = load(text.as_bytes(), format, declared(&fields));
                assert_eq!(loaded.lines(), ["0", "0"], "{ty}");
                let reasons: Vec<String> = loaded.refused.into_iter().map(|(_, why)| why).collect();
                let reason = |value| {
                    format!(
                        "'{value}' does not fit field 'x' of type {ty}; a field of type utf8 keeps it (--fields)"
                    )
                };
                assert_eq!(reasons, beyond.map(reason));
            }
        }
    }

    #[test]
    fn a_row_without_end_is_refused_and_reading_goes_on() {
        let mut text = b"a,b\n1,2\n3,".to_vec();
        text.resize(text.len() + 3 * ROW_BYTES_MAX, b'x');
        text.extend_from_slice(b"\n4,5\n");
        let loaded = csv("a i64, b i64", &text);
        assert_eq!(loaded.lines(), ["1|2", "4|5"]);
        assert_eq!(loaded.refused.len(), 1);
    }

    proptest! {
        #[test]
        fn what_a_csv_writer_writes_is_read(
            rows in prop::collection::vec(prop::collection::vec("[ -~äπ\n\r]{0,6}", 3), 1..20)
        ) {
            let mut writer = ::csv::Writer::from_writer(Vec::new());
            writer.write_record(["x", "y", "z"]).unwrap();
            for row in &rows {
                writer.write_record(row).unwrap();
            }
            let loaded = csv("x utf8, y utf8, z utf8", writer.into_inner().unwrap());
            let expected: Vec<Vec<Option<String>>> =
                rows.iter().map(|row| row.iter().cloned().map(Some).collect()).collect();
            prop_assert_eq!(loaded.rows, expected);
            prop_assert!(loaded.refused.is_empty());
        }
    }
}
