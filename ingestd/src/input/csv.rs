//! CSV with a header row: a block of bytes becomes columns of text.
//!
//! Rows are found here rather than by a library, because a row that is malformed must cost no other row: a stray
//! quote would swallow lines up to the next one. Such a row is given up at its first line break, and reading
//! goes on behind it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use arrow::array::{ArrayRef, LargeStringBuilder};
use memchr::{memchr, memchr2};

use super::blocks::Blocks;
use super::columns::Column;
use super::rows::Rows;
use super::text::Sample;
use super::{BATCH_BYTES, ROW_BYTES_MAX, Reader, SAMPLE_ROWS, SAMPLE_WAIT, Wanted};

/// How much of a regular file types are inferred from.
const SAMPLE_BYTES: usize = 16 << 20;

pub(crate) struct Csv {
    blocks: Blocks,
    delimiter: u8,
    columns: Vec<Column>,
    wanted: Vec<Wanted>,
    /// What is to be said of the header.
    notes: Vec<String>,
    /// Within a line that is too long: all up to its break is left out.
    skipping: bool,
}

/// One field of a row, as a range of the row's bytes without its quotes.
#[derive(Copy, Clone)]
struct Span {
    start: usize,
    end: usize,
    /// Holds doubled quotes.
    escaped: bool,
}

enum Step {
    /// A row of so many bytes, its line break included, and whether it holds one within quotes.
    Row { bytes: usize, lines: bool },
    /// The row does not end within the data.
    More,
    /// Skip so many bytes: the first line of something that is no row.
    Malformed { bytes: usize, reason: &'static str },
}

impl Csv {
    /// Reads the header, and infers the types of the columns unless `infer` is false: then all are text.
    pub(crate) fn open(mut blocks: Blocks, infer: bool) -> anyhow::Result<Csv> {
        blocks.fill_to(3)?;
        if blocks.data().starts_with(b"\xEF\xBB\xBF") {
            blocks.consume(3);
        }
        let (delimiter, mut names) = header(&mut blocks)?;
        let notes = tell_apart(&mut names);
        let mut csv = Csv {
            blocks,
            delimiter,
            columns: Vec::new(),
            wanted: Vec::new(),
            notes,
            skipping: false,
        };
        let text = |name: &String| Column::new(name, loom_engine::schema::FieldType::Utf8, true);
        csv.columns = names.iter().map(text).collect();
        if infer {
            csv.infer()?;
        }
        Ok(csv)
    }

    /// Looks at the first rows without consuming them.
    fn infer(&mut self) -> anyhow::Result<()> {
        let mut samples = vec![Sample::new(); self.columns.len()];
        let mut spans = Vec::new();
        let mut read = 0;
        let mut rows = 0;
        let deadline = Instant::now() + SAMPLE_WAIT;
        let all = loop {
            let data = self.blocks.data().get(read..).unwrap_or_default();
            if rows >= SAMPLE_ROWS && self.blocks.is_stream() || read >= SAMPLE_BYTES {
                break false;
            }
            match next_row(data, self.delimiter, self.blocks.ended(), &mut spans) {
                Step::Row { bytes, .. } => {
                    if spans.len() == samples.len() && !is_blank(data, bytes) {
                        rows += 1;
                        for (sample, span) in samples.iter_mut().zip(&spans) {
                            see(sample, data, *span);
                        }
                    }
                    read += bytes;
                }
                Step::Malformed { bytes, .. } => read += bytes,
                Step::More if self.blocks.ended() => break true,
                Step::More => {
                    let wait = deadline.saturating_duration_since(Instant::now());
                    if rows > 0 && self.blocks.is_stream() && !self.blocks.ready(wait) {
                        break false;
                    }
                    if data.len() > ROW_BYTES_MAX {
                        break false;
                    }
                    self.blocks.fill()?;
                }
            }
        };
        if rows == 0 && all {
            self.notes.push(format!(
                "{} has no rows to tell types by: its columns are taken as text; declare them with --fields",
                self.blocks.name()
            ));
        }
        for (column, sample) in self.columns.iter_mut().zip(&samples) {
            column.ty = sample.field_type();
            // What was not looked at may hold NULLs.
            column.nullable = !all || sample.nulls() > 0 || sample.rows() == 0;
        }
        Ok(())
    }
}

impl Reader for Csv {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        self.wanted = wanted;
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            let rows = self.parse()?;
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

impl Csv {
    /// Consumes the whole rows among the bytes at hand.
    fn parse(&mut self) -> anyhow::Result<Rows> {
        let mut builders: Vec<_> = self
            .wanted
            .iter()
            .map(|_| LargeStringBuilder::new())
            .collect();
        let mut bad = Vec::new();
        let mut spans = Vec::new();
        let mut scratch = String::new();
        let (mut count, mut read) = (0, 0);
        if self.skipping {
            read = first_line(self.blocks.data());
            self.skipping = memchr(b'\n', self.blocks.data()).is_none();
        }
        let ended = self.blocks.ended();
        while read < BATCH_BYTES {
            let data = self.blocks.data().get(read..).unwrap_or_default();
            let (bytes, reason) = match next_row(data, self.delimiter, ended, &mut spans) {
                Step::More if data.len() > ROW_BYTES_MAX => {
                    self.skipping = memchr(b'\n', data).is_none();
                    (
                        first_line(data),
                        Some(format!("it is longer than {ROW_BYTES_MAX} bytes")),
                    )
                }
                Step::More => break,
                Step::Malformed { bytes, reason } => (bytes, Some(reason.to_owned())),
                Step::Row { bytes, .. } if is_blank(data, bytes) => {
                    read += bytes;
                    continue;
                }
                Step::Row { bytes, lines } => match self.check(data, bytes, &spans) {
                    Ok(row) => {
                        self.append(row, &spans, &mut builders, &mut scratch);
                        (bytes, None)
                    }
                    // More than one line: more likely a stray quote than a text of several lines.
                    Err(reason) if lines => (first_line(data), Some(reason)),
                    Err(reason) => (bytes, Some(reason)),
                },
            };
            if let Some(reason) = reason {
                builders
                    .iter_mut()
                    .for_each(LargeStringBuilder::append_null);
                bad.push((count, reason));
            }
            count += 1;
            read += bytes;
        }
        self.blocks.consume(read);
        let columns = builders
            .iter_mut()
            .map(|builder| Arc::new(builder.finish()) as ArrayRef);
        Ok(Rows {
            columns: columns.collect(),
            count,
            bad,
        })
    }

    /// The row as text, if it has as many fields as the header.
    fn check<'a>(&self, data: &'a [u8], bytes: usize, spans: &[Span]) -> Result<&'a str, String> {
        let (found, expected) = (spans.len(), self.columns.len());
        if found != expected {
            return Err(format!("it has {found} columns, the header has {expected}"));
        }
        let row = data.get(..bytes).unwrap_or_default();
        std::str::from_utf8(row).map_err(|_| "it is not UTF-8".to_owned())
    }

    fn append(
        &self,
        row: &str,
        spans: &[Span],
        builders: &mut [LargeStringBuilder],
        scratch: &mut String,
    ) {
        for (wanted, builder) in self.wanted.iter().zip(builders) {
            let span = spans.get(wanted.column);
            let text = span.and_then(|span| Some((row.get(span.start..span.end)?, span.escaped)));
            match text {
                None | Some(("", _)) if wanted.empty_is_null => builder.append_null(),
                None => builder.append_value(""),
                Some((text, false)) => builder.append_value(text),
                Some((text, true)) => {
                    scratch.clear();
                    unescape(text, scratch);
                    builder.append_value(&scratch);
                }
            }
        }
    }
}

/// The delimiter (the one of four that the header row holds most of) and the names.
fn header(blocks: &mut Blocks) -> anyhow::Result<(u8, Vec<String>)> {
    let mut spans = Vec::new();
    loop {
        let data = blocks.data();
        let line = data.get(..first_line(data)).unwrap_or_default();
        let count = |delimiter: &u8| line.iter().filter(|byte| *byte == delimiter).count();
        // The last of equals wins, so that a single column has commas.
        let delimiter = *b"|;\t,"
            .iter()
            .max_by_key(|byte| count(byte))
            .unwrap_or(&b',');
        match next_row(data, delimiter, blocks.ended(), &mut spans) {
            Step::Row { bytes, .. } => {
                let Ok(row) = std::str::from_utf8(data.get(..bytes).unwrap_or_default()) else {
                    bail!("{}: the header row is not UTF-8", blocks.name());
                };
                let mut names = Vec::with_capacity(spans.len());
                for span in &spans {
                    let mut name = String::new();
                    unescape(row.get(span.start..span.end).unwrap_or_default(), &mut name);
                    names.push(name.trim().to_owned());
                }
                blocks.consume(bytes);
                return Ok((delimiter, names));
            }
            Step::More if blocks.ended() => {
                bail!("{} is empty; CSV needs a header row", blocks.name())
            }
            Step::More if data.len() <= ROW_BYTES_MAX => {
                blocks.fill()?;
            }
            Step::More => bail!("{}: the header row has no end", blocks.name()),
            Step::Malformed { reason, .. } => {
                bail!("{}: the header row is malformed: {reason}", blocks.name())
            }
        }
    }
}

/// Gives a name that an earlier column has, in any case, a number: `a`, `a_1`, as DuckDB does; returns what is to be said of it.
fn tell_apart(names: &mut [String]) -> Vec<String> {
    let mut taken: HashSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let mut seen = HashSet::new();
    let mut notes = Vec::new();
    for name in names {
        if seen.insert(name.to_lowercase()) {
            continue;
        }
        let mut number = 1;
        let mut renamed = format!("{name}_{number}");
        while !taken.insert(renamed.to_lowercase()) {
            number += 1;
            renamed = format!("{name}_{number}");
        }
        seen.insert(renamed.to_lowercase());
        notes.push(format!(
            "an earlier column is called '{name}' too; this one is read as '{renamed}'"
        ));
        *name = renamed;
    }
    notes
}

fn see(sample: &mut Sample, data: &[u8], span: Span) {
    match std::str::from_utf8(data.get(span.start..span.end).unwrap_or_default()) {
        Ok("") => sample.see_null(),
        Ok(text) => sample.see(text),
        Err(_) => {}
    }
}

/// Finds the row at the beginning of `data` and its fields. `ended`: no more bytes follow.
fn next_row(data: &[u8], delimiter: u8, ended: bool, spans: &mut Vec<Span>) -> Step {
    spans.clear();
    if data.is_empty() {
        return Step::More;
    }
    let mut lines = false;
    let mut at = 0;
    loop {
        let rest = data.get(at..).unwrap_or_default();
        let (span, after) = if rest.first() == Some(&b'"') {
            match quoted(data, at + 1) {
                Some((span, after)) => {
                    lines |=
                        memchr(b'\n', data.get(span.start..span.end).unwrap_or_default()).is_some();
                    (span, after)
                }
                None if ended => {
                    let bytes = first_line(data);
                    return Step::Malformed {
                        bytes,
                        reason: "a quote is not closed",
                    };
                }
                None => return Step::More,
            }
        } else {
            let end = at + memchr2(delimiter, b'\n', rest).unwrap_or(rest.len());
            (
                Span {
                    start: at,
                    end,
                    escaped: false,
                },
                end,
            )
        };
        spans.push(span);
        let rest = data.get(after..).unwrap_or_default();
        match rest {
            [] | [b'\r'] if !ended => return Step::More,
            [] => {
                trim_return(data, spans);
                return Step::Row {
                    bytes: after,
                    lines,
                };
            }
            [b'\n', ..] => {
                trim_return(data, spans);
                return Step::Row {
                    bytes: after + 1,
                    lines,
                };
            }
            [b'\r'] => {
                return Step::Row {
                    bytes: after + 1,
                    lines,
                };
            }
            [b'\r', b'\n', ..] => {
                return Step::Row {
                    bytes: after + 2,
                    lines,
                };
            }
            [byte, ..] if *byte == delimiter => at = after + 1,
            _ => {
                let bytes = first_line(data);
                return Step::Malformed {
                    bytes,
                    reason: "text follows a closing quote",
                };
            }
        }
    }
}

/// The field that a quote opened before `start`, and where it ends; `None` where it does not.
fn quoted(data: &[u8], start: usize) -> Option<(Span, usize)> {
    let mut at = start;
    let mut escaped = false;
    loop {
        let quote = at + memchr(b'"', data.get(at..)?)?;
        if data.get(quote + 1) != Some(&b'"') {
            return Some((
                Span {
                    start,
                    end: quote,
                    escaped,
                },
                quote + 1,
            ));
        }
        escaped = true;
        at = quote + 2;
    }
}

/// A line break of two characters leaves the first at the end of an unquoted last field.
fn trim_return(data: &[u8], spans: &mut [Span]) {
    if let Some(last) = spans.last_mut()
        && last.end > last.start
        && data.get(last.end - 1) == Some(&b'\r')
        && data.get(last.end) != Some(&b'"')
    {
        last.end -= 1;
    }
}

fn unescape(text: &str, out: &mut String) {
    let mut parts = text.split("\"\"");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push('"');
        out.push_str(part);
    }
}

/// The length of the first line with its break, or of everything.
fn first_line(data: &[u8]) -> usize {
    memchr(b'\n', data).map_or(data.len(), |at| at + 1)
}

/// A line without anything is no row.
fn is_blank(data: &[u8], bytes: usize) -> bool {
    matches!(data.get(..bytes), Some(b"\n" | b"\r\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::Format;
    use crate::input::testing::{Loaded, declared, load, options, try_load};

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

    #[test]
    fn a_bad_row_costs_no_other() {
        let loaded = csv("a,b\n1,2\n3\n4,5,6\n7,\"8\n9,10\n11,\"12\"x\n13,14\n");
        assert_eq!(loaded.fields(), ["a i64", "b i64"]);
        assert_eq!(loaded.lines(), ["1|2", "9|10", "13|14"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 6]);
        assert_eq!(loaded.refused[0].1, "it has 1 columns, the header has 2");
        assert_eq!(loaded.refused[3].1, "text follows a closing quote");
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
                (2, "'256' does not fit the field 'a' of type u8".to_owned()),
                (4, "'GET' does not fit the field 'a' of type u8".to_owned())
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
                    "the field 'a' is NULL and is not declared nullable".to_owned()
                ),
                (
                    3,
                    "'abc' does not fit the field 'b' of type char[2]".to_owned()
                )
            ]
        );
    }

    #[test]
    fn a_file_without_a_header_is_an_error_and_one_without_rows_is_none() {
        let error = try_load(b"", Format::Csv, options())
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.ends_with("is empty; CSV needs a header row"),
            "{error}"
        );
        let loaded = csv("a,b\n");
        assert_eq!(loaded.fields(), ["a utf8?", "b utf8?"]);
        assert!(loaded.rows.is_empty());
    }

    #[test]
    fn columns_of_one_name_are_told_apart() {
        let loaded = csv("a,A,a,a_1,b\n1,2,3,4,5\n");
        assert_eq!(
            loaded.fields(),
            ["a i64", "A_2 i64", "a_3 i64", "a_1 i64", "b i64"]
        );
        assert_eq!(loaded.lines(), ["1|2|3|4|5"]);
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
