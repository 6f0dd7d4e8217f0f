//! CSV, with or without a header row: a block of bytes becomes columns of text.
//!
//! `delimiter` finds what stands between columns, `header` reads the first row, `row` finds the others. A row that is malformed costs no
//! other row.

mod delimiter;
mod header;
mod row;

use std::fmt::Write;
use std::path::Path;

use arrow::array::LargeStringBuilder;
use loom_engine::proven::at;
use loom_engine::schema::FieldType;

use super::blocks::Blocks;
use super::columns::Column;
use super::plan::LoadOptions;
use super::text::Sample;
use super::text_rows::{Data, Step, TextFormat, TextReader, first_line, sample, unended};
use super::{Outlook, Wanted};
use header::FirstRow;
use row::{Found, Span, find};

use crate::counted;

pub(super) struct Csv {
    delimiter: u8,
    columns: Vec<Column>,
    /// Notes about the first row, the delimiter and the types.
    notes: Vec<String>,
    /// The fields of the row at hand.
    spans: Vec<Span>,
    has_header: bool,
    outlook: Outlook,
}

impl Csv {
    /// Reads the header, and infers the types of the columns if the source takes fields from them: else all are text.
    pub(super) fn open(
        mut blocks: Blocks,
        name: &Path,
        options: &LoadOptions,
    ) -> anyhow::Result<TextReader<Csv>> {
        blocks.skip_byte_order_mark()?;
        let named = delimiter::of_name(name);
        let first = FirstRow::read(&mut blocks, options.csv.delimiter, named)?;
        let mut csv = Csv {
            delimiter: first.delimiter,
            columns: Vec::new(),
            notes: Vec::new(),
            spans: Vec::new(),
            has_header: true,
            outlook: Outlook::Rows,
        };
        if first.is_guess && first.delimiter != named.unwrap_or(b',') && first.cells.len() > 1 {
            csv.notes.push(format!(
                "the columns of {} are separated by {}, as it seems; name another delimiter with --delimiter",
                blocks.name(),
                delimiter::shown(first.delimiter)
            ));
        }
        if options.takes_fields() {
            csv.infer(&mut blocks, &first, options)?;
        } else {
            let header = options.csv.header.or_else(|| first.is_header(options));
            csv.name_columns(&mut blocks, &first, header.unwrap_or(true), options)?;
            csv.note_header(&blocks, options, None);
        }
        Ok(TextReader::new(blocks, csv))
    }

    /// Names the columns and gives each the narrowest type that keeps its first values.
    fn infer(
        &mut self,
        blocks: &mut Blocks,
        first: &FirstRow,
        options: &LoadOptions,
    ) -> anyhow::Result<()> {
        let mut samples = vec![Sample::new(); first.cells.len()];
        let mut spans = Vec::new();
        let mut is_first = true;
        let ts = first.place_of_times(options);
        let mut sampled = sample(blocks, |data, ended| {
            if std::mem::take(&mut is_first) {
                return Some((first.bytes, false));
            }
            match find(data, self.delimiter, ended, &mut spans) {
                Found::Row { bytes, .. } => {
                    let is_row = !is_blank(data, bytes, &samples);
                    let row = std::str::from_utf8(at(data, ..bytes));
                    let text = |span: &Span| row.ok()?.get(span.start..span.end);
                    // A row that is refused counts, and decides no type.
                    let is_time = |place| {
                        let time = spans.get(place).and_then(text);
                        time.is_some_and(|time| options.ts_form.reads(time))
                    };
                    let is_short = |span: &Span| span.end - span.start <= options.payload_bytes_max;
                    let is_kept = spans.len() == samples.len()
                        && row.is_ok()
                        && ts.is_none_or(is_time)
                        && spans.iter().all(is_short);
                    if is_row && is_kept {
                        for (sample, span) in samples.iter_mut().zip(&spans) {
                            see(sample, text(span).expect("cells end at ASCII"));
                        }
                    }
                    Some((bytes, is_row))
                }
                Found::Malformed(_) => Some((first_line(data), true)),
                Found::More => None,
            }
        })?;
        let header = options.csv.header.or_else(|| first.is_header(options));
        let header = header.unwrap_or_else(|| !first.fits_the_rows(&samples));
        let all_text = samples
            .iter()
            .all(|sample| sample.field_type() == FieldType::Utf8);
        if !header {
            for (sample, cell) in samples.iter_mut().zip(&first.cells) {
                see(sample, cell);
            }
        }
        self.name_columns(blocks, first, header, options)?;
        let is_any_kept = !header || samples.iter().any(|sample| sample.rows() > 0);
        self.outlook = match sampled.rows {
            _ if is_any_kept || !sampled.all => Outlook::Rows,
            0 => Outlook::Empty,
            _ => Outlook::Refused,
        };
        let doubt = match self.outlook {
            Outlook::Empty => Some("only"),
            _ if all_text => Some("first"),
            _ => None,
        };
        self.note_header(blocks, options, doubt);
        for (column, sample) in self.columns.iter_mut().zip(&samples) {
            column.ty = sample.field_type();
            column.is_blank = sample.is_blank();
        }
        sampled.rows += u64::from(!header);
        self.notes.extend(sampled.note(blocks, &self.columns));
        Ok(())
    }

    /// Takes the names from the first row, which is consumed then, or from the places of the columns.
    fn name_columns(
        &mut self,
        blocks: &mut Blocks,
        first: &FirstRow,
        header: bool,
        options: &LoadOptions,
    ) -> anyhow::Result<()> {
        let names = match header {
            false => first.names_by_place(blocks, options)?,
            true => {
                blocks.consume(first.bytes);
                first.cells.clone()
            }
        };
        let text = |name: &String| Column::new(name, FieldType::Utf8, true);
        self.columns = names.iter().map(text).collect();
        self.has_header = header;
        Ok(())
    }

    /// Notes what was assumed of the first row where no option says it. `doubt`: which row it is, where it could be one of values.
    fn note_header(&mut self, blocks: &Blocks, options: &LoadOptions, doubt: Option<&str>) {
        let name = blocks.name();
        if options.csv.header.is_some() {
            return;
        }
        if !self.has_header {
            let names: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
            self.notes.push(format!(
                "the first row of {name} is read as values, and its columns are named {}; use --header if that row names them",
                names.join(", ")
            ));
        } else if let Some(which) = doubt {
            self.notes.push(format!(
                "the {which} row of {name} is read as the names of its columns; use --no-header if it holds values"
            ));
        }
    }
}

/// A row with as many fields as the header.
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
        if is_blank(data, bytes, &self.columns) {
            return Step::Blank(bytes);
        }
        let (found, expected) = (self.spans.len(), self.columns.len());
        let reason = match text(bytes) {
            _ if found != expected => {
                format!(
                    "it has {}; the first row has {expected}; correct one of them, remove lines above the names, or give --delimiter",
                    counted(found as u64, "column")
                )
            }
            None => "it is not UTF-8".to_owned(),
            Some(text) => {
                let spans = &self.spans;
                return Step::Row(CsvRow { text, spans }, bytes);
            }
        };
        // Several lines: more likely a stray quote than a text with line breaks.
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

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn has_header(&self) -> Option<bool> {
        Some(self.has_header)
    }

    fn outlook(&self) -> Outlook {
        self.outlook
    }
}

fn see(sample: &mut Sample, text: &str) {
    match text {
        "" => sample.see_null(),
        text => sample.see(text),
    }
}

/// A line without anything is no row, except of a single column: then it is a row with an empty value.
fn is_blank<C>(data: &[u8], bytes: usize, columns: &[C]) -> bool {
    columns.len() > 1 && matches!(data.get(..bytes), Some(b"\n" | b"\r\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::input::testing::{Loaded, declared, load, load_files, options, try_load};
    use crate::input::{CsvOptions, Format, LoadOptions, ROW_BYTES_MAX};

    fn csv(text: &str) -> Loaded {
        load(text.as_bytes(), Format::Csv, options())
    }

    #[test]
    fn types_are_inferred_and_values_kept() {
        let loaded = csv(concat!(
            "n,big,x,ok,name,at\r\n",
            "1,18446744073709551615,0.5,true,\"a \"\"b\"\", c\",2024-01-02T03:04:05Z\r\n",
            "-9223372036854775808,0,nan,false,ünï,1969-12-31 23:59:59.999999999\r\n",
            ",,,,,\r\n",
        ));
        assert_eq!(
            loaded.fields(),
            [
                "n i64?",
                "big u64?",
                "x f64?",
                "ok bool?",
                "name utf8?",
                "at timestamp_ns?"
            ]
        );
        assert_eq!(
            loaded.lines(),
            [
                "1|18446744073709551615|0.5|true|a \"b\", c|1704164645000000000",
                "-9223372036854775808|0|NaN|false|ünï|-1",
                "-|-|-|-|-|-",
            ]
        );
        assert!(loaded.refused.is_empty());
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn a_bad_row_costs_no_other() {
        let loaded = csv("a,b\n1,2\n3\n4,5,6\n7,\"8\n9,10\n11,\"12\"x\n13,14\n");
        assert_eq!(loaded.fields(), ["a i64?", "b i64?"]);
        assert_eq!(loaded.lines(), ["1|2", "9|10", "13|14"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 6]);
        assert_eq!(
            loaded.refused[0].1,
            "it has 1 column; the first row has 2; correct one of them, remove lines above the names, or give --delimiter"
        );
        assert_eq!(
            loaded.refused[3].1,
            "text follows a closing quote; double the quotes within a field"
        );
    }

    #[test]
    fn an_unclosed_quote_at_the_end_costs_one_line() {
        let loaded = csv("a,b\n1,x\n2,\"y\n3,z\n");
        assert_eq!(loaded.lines(), ["1|x", "3|z"]);
        assert_eq!(loaded.refused, [(2, "a quote is not closed".to_owned())]);
    }

    #[test]
    fn texts_may_hold_line_breaks_and_delimiters() {
        let loaded = csv("a;b\n\"x\ny;z\";1\n\n2;\"\"");
        assert_eq!(loaded.lines(), ["x\ny;z|1", "2|-"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_refuse_their_row() {
        let loaded = load(b"a\nx\n\xff\ny\n", Format::Csv, options());
        assert_eq!(loaded.lines(), ["x", "y"]);
        assert_eq!(loaded.refused, [(2, "it is not UTF-8".to_owned())]);
    }

    #[test]
    fn values_that_do_not_fit_a_declared_type_are_named() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"u8\"\nlabels = { 2 = \"SET\" }\n";
        let loaded = load(b"a\n1\n256\nSET\nGET\n\n7\n", Format::Csv, declared(fields));
        assert_eq!(loaded.lines(), ["1", "2", "7"]);
        assert_eq!(
            loaded.refused,
            [
                (2, "'256' does not fit field 'a' of type u8; a field of type utf8 keeps it (--fields)".to_owned()),
                (4, "'GET' does not fit field 'a' of type u8; a field of type utf8 keeps it (--fields)".to_owned()),
                (
                    5,
                    "field 'a' is NULL and not nullable; load into a source whose field has `nullable = true` (--fields)".to_owned()
                )
            ]
        );
    }

    #[test]
    fn a_field_that_is_not_nullable_refuses_empty_values() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"u8\"\n\
                      [[source.field]]\nname = \"b\"\ntype = \"char[2]\"\n";
        let loaded = load(b"a,b\n1,\n,x\n2,abc\n", Format::Csv, declared(fields));
        assert_eq!(loaded.lines(), ["1|"]);
        assert_eq!(
            loaded.refused,
            [
                (
                    2,
                    "field 'a' is NULL and not nullable; load into a source whose field has `nullable = true` (--fields)".to_owned()
                ),
                (3, "'abc' does not fit field 'b' of type char[2]; a field of type utf8 keeps it (--fields)".to_owned())
            ]
        );
    }

    #[test]
    fn a_file_without_rows_is_no_error() {
        let loaded = csv("a,b\n");
        assert_eq!(loaded.fields(), ["a utf8?", "b utf8?"]);
        assert!(loaded.rows.is_empty());
    }

    #[test]
    fn a_blank_line_is_an_empty_value_of_a_single_column_and_no_row_of_several() {
        let loaded = csv("a\n1\n\n3\n");
        assert_eq!(loaded.fields(), ["a i64?"]);
        assert_eq!(loaded.lines(), ["1", "-", "3"]);
        assert_eq!(csv("\n\na,b\n1,2\n\n3,4\n").lines(), ["1|2", "3|4"]);
    }

    #[test]
    fn a_first_row_of_values_is_a_row_and_is_noted() {
        let loaded = csv("1,x,2024-01-01\n2,y,2024-01-02\n");
        assert_eq!(
            loaded.fields(),
            ["column0 i64?", "column1 utf8?", "column2 timestamp_ns?"]
        );
        assert_eq!(loaded.lines().len(), 2);
        assert!(
            loaded.notes[0].ends_with(
                "is read as values, and its columns are named column0, column1, column2; use --header if that row names them"
            ),
            "{:?}",
            loaded.notes
        );
        assert_eq!(csv("7\n").lines(), ["7"]);
        for text in ["a,b\n1,2\n", "a,2020\n1,x\n", "1,b\n2,3\n", "a,b\n"] {
            let loaded = csv(text);
            let header = text.split('\n').next().unwrap();
            let names = loaded.fields().into_iter();
            let names: Vec<String> = names
                .map(|field| field.split(' ').next().unwrap().to_owned())
                .collect();
            assert_eq!(names.join(","), header, "{text}");
        }
        let loaded = csv("name,city\nx,y\n");
        assert_eq!(loaded.lines(), ["x|y"]);
        assert!(
            loaded.notes[0].ends_with(
                "is read as the names of its columns; use --no-header if it holds values"
            ),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn the_only_row_is_values_if_it_holds_what_no_header_would() {
        for (text, row) in [
            ("hello,1\n", "hello|1"),
            ("1,x\n", "1|x"),
            ("bob,42,x", "bob|42|x"),
        ] {
            assert_eq!(csv(text).lines(), [row]);
        }
        let names = csv("hello,world\n");
        assert!(names.rows.is_empty());
        assert!(
            names.notes[0].starts_with("the only row of ")
                && names.notes[0].contains("use --no-header"),
            "{:?}",
            names.notes
        );
    }

    #[test]
    fn later_files_follow_the_first() {
        for (files, fields, rows) in [
            (
                &["1,a\n2,b\n", "3,c\n"][..],
                ["column0 i64?", "column1 utf8?"],
                &["1|a", "2|b", "3|c"][..],
            ),
            (
                &["1,a\n", "x,y\nz,u\n"],
                ["column0 utf8?", "column1 utf8?"],
                &["1|a", "x|y", "z|u"],
            ),
            (
                &["n,s\n1,a\n", "3,c\n"],
                ["n i64?", "s utf8?"],
                &["1|a", "3|c"],
            ),
            (
                &["n,s\n1,a\n", "s,n\nc,3\n", "x,y\n"],
                ["n i64?", "s utf8?"],
                &["1|a", "3|c"],
            ),
        ] {
            let loaded = load_files(files, Format::Csv, options());
            assert_eq!(loaded.fields(), fields, "{files:?}");
            assert_eq!(loaded.lines(), rows, "{files:?}");
        }
    }

    #[test]
    fn a_row_that_fits_a_source_is_no_header_also_where_fields_may_be_added() {
        let fields = "[[source.field]]\nname = \"n\"\ntype = \"i64\"\n\
                      [[source.field]]\nname = \"s\"\ntype = \"utf8\"\n";
        let add = || LoadOptions {
            add_fields: true,
            ..declared(fields)
        };
        for text in ["3,c\n", "3,c\n4,d\n"] {
            let loaded = load(text.as_bytes(), Format::Csv, add());
            assert_eq!(loaded.fields(), ["n i64", "s utf8"], "{text}");
            assert_eq!(loaded.lines().len(), text.lines().count());
        }
        let loaded = load_files(&["n,s\n1,a\n", "more,other\n"], Format::Csv, add());
        assert_eq!(loaded.fields(), ["n i64", "s utf8"]);
        assert!(
            loaded.notes[0].starts_with("the only row of "),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn columns_of_files_that_differ_in_case_are_the_same() {
        let loaded = load_files(&["x,y\n1,2\n", "Y,X\n4,3\n"], Format::Csv, options());
        assert_eq!(loaded.fields(), ["x i64?", "y i64?"]);
        assert_eq!(loaded.lines(), ["1|2", "3|4"]);
        let apart = load_files(&["x\n1\n", "x,X\n2,3\n", "X\n4\n"], Format::Csv, options());
        assert_eq!(apart.fields(), ["x i64?", "X_1 i64?"]);
        assert_eq!(apart.lines(), ["1|-", "2|3", "-|4"]);
        let objects = ["{\"x\":1,\"y\":2}\n", "{\"Y\":4,\"X\":3}\n"];
        let loaded = load_files(&objects, Format::Json, options());
        assert_eq!(loaded.lines(), ["1|2", "3|4"]);
    }

    #[test]
    fn a_column_that_is_left_out_is_named_as_the_file_spells_it() {
        let fields = "[[source.field]]\nname = \"y\"\ntype = \"i64\"\n";
        let loaded = load(b"Y,y\n1,2\n", Format::Csv, declared(fields));
        assert_eq!(loaded.lines(), ["2"]);
        assert!(
            loaded.notes[0].starts_with("column 'Y' is left out"),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn a_header_is_what_the_user_says_it_is() {
        let with = |header| LoadOptions {
            csv: CsvOptions {
                header: Some(header),
                delimiter: None,
            },
            ..options()
        };
        let loaded = load(b"1,2\n3,4\n", Format::Csv, with(true));
        assert_eq!(loaded.fields(), ["1 i64?", "2 i64?"]);
        let loaded = load(b"a,b\n3,4\n", Format::Csv, with(false));
        assert_eq!(loaded.fields(), ["column0 utf8?", "column1 utf8?"]);
        assert_eq!(loaded.lines(), ["a|b", "3|4"]);
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
    }

    #[test]
    fn values_without_a_header_fill_the_fields_of_a_source_in_their_order() {
        let fields = "[[source.field]]\nname = \"n\"\ntype = \"u8\"\n\
                      [[source.field]]\nname = \"s\"\ntype = \"utf8\"\n";
        let loaded = load(b"1,x\n2,y\n", Format::Csv, declared(fields));
        assert_eq!(loaded.lines(), ["1|x", "2|y"]);
        assert!(
            loaded.notes[0].contains("named n, s;"),
            "{:?}",
            loaded.notes
        );
        let named = load(b"s,n\nx,1\n", Format::Csv, declared(fields));
        assert_eq!(named.lines(), ["1|x"]);
        let error = try_load(b"1,x,2\n", Format::Csv, declared(fields));
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("its rows have 3 columns and no header, the source has 2 fields"),
            "{error}"
        );
    }

    #[test]
    fn the_delimiter_is_found_and_noted_or_given() {
        let loaded = csv("a;b\n1,5;x\n2,5;y\n");
        assert_eq!(loaded.lines(), ["1,5|x", "2,5|y"]);
        assert!(
            loaded.notes[0].ends_with(
                "are separated by ';', as it seems; name another delimiter with --delimiter"
            ),
            "{:?}",
            loaded.notes
        );
        let given = LoadOptions {
            csv: CsvOptions {
                delimiter: Some(b'^'),
                header: None,
            },
            ..options()
        };
        let loaded = load(b"a^b,c\n1^2\n", Format::Csv, given);
        assert_eq!(loaded.fields(), ["a i64?", "b,c i64?"]);
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
    }

    #[test]
    fn a_line_of_a_spreadsheet_names_the_delimiter() {
        for line_end in ["\n", "\r\n"] {
            let text = format!("sep=^{line_end}a^b{line_end}1^2{line_end}");
            let loaded = csv(&text);
            assert_eq!(loaded.fields(), ["a i64?", "b i64?"]);
            assert_eq!(loaded.lines(), ["1|2"]);
        }
        assert_eq!(csv("sep=\n1\n").fields(), ["sep= i64?"]);
    }

    #[test]
    fn what_is_no_csv_is_named_with_a_remedy() {
        for (bytes, words) in [
            (
                &b"a,b\r1,2\r"[..],
                "its lines end with a carriage return alone; convert it with",
            ),
            (b"\xFF\xFEa\0", "it is UTF-16; convert it with 'iconv"),
            (b"PK\x03\x04", "unpack it with 'unzip -p FILE"),
            (b"PAR1", "it is Parquet; use --format parquet"),
            (b"ARROW1\0\0", "it is Arrow IPC; use --format arrow"),
        ] {
            let error = try_load(bytes, Format::Csv, options()).err().unwrap();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_header_of_several_lines_names_fields_without_line_breaks() {
        let text = "\"price\r\n(USD)\",n\n1,2\n";
        let first = csv(text);
        assert_eq!(first.fields(), ["price (USD) i64?", "n i64?"]);
        assert_eq!(first.notes.len(), 1, "{:?}", first.notes);
        let known = LoadOptions {
            declared: Some(first.def),
            ..options()
        };
        let again = load(text.as_bytes(), Format::Csv, known);
        assert_eq!(again.lines(), ["1|2"]);
        assert!(again.notes.is_empty(), "{:?}", again.notes);
    }

    #[test]
    fn columns_of_one_name_get_numbers() {
        let loaded = csv("a,A,a,a_1,b\n1,2,3,4,5\n");
        assert_eq!(
            loaded.fields(),
            ["a i64?", "A_2 i64?", "a_3 i64?", "a_1 i64?", "b i64?"]
        );
        assert_eq!(loaded.lines(), ["1|2|3|4|5"]);
    }

    #[test]
    fn columns_that_differ_in_case_only_keep_their_fields_in_whatever_order_a_later_file_has_them()
    {
        let fields = ["a", "A_1"].map(|name| {
            format!("[[source.field]]\nname = \"{name}\"\ntype = \"i64\"\nnullable = true\n")
        });
        for add_fields in [false, true] {
            let lines = |text: &str| {
                let options = LoadOptions {
                    add_fields,
                    ..declared(&fields.concat())
                };
                let loaded = load(text.as_bytes(), Format::Csv, options);
                assert_eq!(loaded.fields(), ["a i64?", "A_1 i64?"]);
                loaded.lines()
            };
            assert_eq!(lines("a,A\n1,2\n"), ["1|2"]);
            assert_eq!(lines("A,a\n2,1\n"), ["1|2"]);
            assert_eq!(lines("A\n2\n"), ["-|2"]);
        }
    }

    #[test]
    fn a_row_that_is_longer_than_the_sample_is_noted() {
        let mut text = b"a,b\n1,2\n3,".to_vec();
        text.resize(text.len() + 3 * ROW_BYTES_MAX, b'x');
        text.extend_from_slice(b"\n4,5\n");
        let loaded = load(&text, Format::Csv, options());
        assert_eq!(loaded.fields(), ["a i64?", "b i64?"]);
        let [note] = loaded.notes.as_slice() else {
            panic!("{:?}", loaded.notes);
        };
        assert!(
            note.starts_with("the fields are inferred from the first 1 row of '")
                && note.ends_with(
                    "', before one that is longer than 4194304 bytes: a i64, b i64; declare others with --fields"
                ),
            "{note}"
        );
        text.drain(4..8);
        let loaded = load(&text, Format::Csv, options());
        assert_eq!(loaded.fields(), ["a utf8?", "b utf8?"]);
        let is_noted = |note: &String| note.contains("from the first 0 rows of '");
        assert!(loaded.notes.iter().any(is_noted), "{:?}", loaded.notes);
    }

    #[test]
    fn a_row_that_is_refused_decides_no_type() {
        let ts = LoadOptions {
            ts_column: Some("t".to_owned()),
            ..options()
        };
        for (text, options, fields, refused) in [
            (
                &b"t,n,x\n5,1,2\nend,total,3.5\n6,2,3\n"[..],
                ts,
                ["n i64?", "x i64?"],
                2,
            ),
            (
                b"n,x\n1,2\nmany,\xff\n3,4\n",
                options(),
                ["n i64?", "x i64?"],
                2,
            ),
            (
                b"n,x\n1,2.5\n1e400,1e-400\n3,4\n",
                options(),
                ["n i64?", "x f64?"],
                2,
            ),
        ] {
            let loaded = load(text, Format::Csv, options);
            assert_eq!(loaded.fields(), fields);
            let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
            assert_eq!(rows, [refused], "{:?}", loaded.refused);
        }
    }

    #[test]
    fn a_number_that_a_float_does_not_reach_refuses_its_row() {
        for (ty, beyond) in [("f32", ["1e39", "1e-50"]), ("f64", ["-1e309", "-4e-400"])] {
            let fields = format!("[[source.field]]\nname = \"x\"\ntype = \"{ty}\"\n");
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
        let loaded = load(&text, Format::Csv, options());
        assert_eq!(loaded.lines(), ["1|2", "4|5"]);
        assert_eq!(loaded.refused.len(), 1);
    }

    #[test]
    fn a_file_whose_rows_all_have_another_number_of_columns_adds_no_field_and_each_row_counts() {
        let loaded = load_files(
            &["b,a\n1,2,3\n4\n\n\"5\"6\n", "a,b\n1,2\n"],
            Format::Csv,
            options(),
        );
        assert_eq!(loaded.fields(), ["a i64?", "b i64?"]);
        assert_eq!(loaded.lines(), ["1|2"]);
        assert_eq!(loaded.refused.len(), 3, "{:?}", loaded.refused);
        let alone = csv("a,b\n\"x\"y\n");
        assert_eq!((alone.rows.len(), alone.refused.len()), (0, 1));
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
            let fields = ["x", "y", "z"].map(|name| {
                format!("[[source.field]]\nname = \"{name}\"\ntype = \"utf8\"\n")
            });
            let loaded =
                load(&writer.into_inner().unwrap(), Format::Csv, declared(&fields.concat()));
            let expected: Vec<Vec<Option<String>>> =
                rows.iter().map(|row| row.iter().cloned().map(Some).collect()).collect();
            prop_assert_eq!(loaded.rows, expected);
            prop_assert!(loaded.refused.is_empty());
        }
    }
}
