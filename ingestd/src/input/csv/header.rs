//! The first row of CSV: the names of the columns, or values of columns without names.

use anyhow::bail;
use loom_engine::schema::FieldType;
use memchr::{memchr, memchr2};

use super::super::ROW_BYTES_MAX;
use super::super::blocks::Blocks;
use super::super::naming::field_name;
use super::super::plan::LoadOptions;
use super::super::text::Sample;
use super::delimiter;
use super::row::{Found, find};
use crate::counted;

/// The first row, which is not consumed.
pub(super) struct FirstRow {
    pub delimiter: u8,
    /// Neither the user nor the file says the delimiter; rows show it.
    pub is_guess: bool,
    /// Its values, without quotes.
    pub cells: Vec<String>,
    /// Its length with its line break.
    pub bytes: usize,
}

impl FirstRow {
    /// Waits for the first row. The delimiter is the one given, or the one that rows show, with the file's name as a hint.
    pub(super) fn read(
        blocks: &mut Blocks,
        given: Option<u8>,
        named: Option<u8>,
    ) -> anyhow::Result<FirstRow> {
        let given = given.or(delimiter_line(blocks)?);
        let mut spans = Vec::new();
        loop {
            let blank = blocks
                .data()
                .iter()
                .take_while(|byte| b"\r\n".contains(byte));
            blocks.consume(blank.count());
            let (data, ended, name) = (blocks.data(), blocks.ended(), blocks.name());
            let delimiter = given.unwrap_or_else(|| delimiter::of_rows(data, ended, named));
            if has_carriage_returns_only(data) {
                bail!(
                    "cannot read {name} as CSV: its lines end with a carriage return alone; convert it with \"tr '\\r' '\\n' < FILE | ingestd load … -\""
                );
            }
            match find(data, delimiter, ended, &mut spans) {
                Found::Row { bytes, .. } => {
                    let row = data.get(..bytes).unwrap_or_default();
                    let Ok(row) = std::str::from_utf8(row) else {
                        bail!(
                            "cannot read the first row of {name}: it is not UTF-8; convert the file"
                        );
                    };
                    let cell = |span: &super::row::Span| row.get(span.start..span.end);
                    let unescaped = |text: &str| text.replace("\"\"", "\"").trim().to_owned();
                    let cells = spans.iter().filter_map(cell).map(unescaped).collect();
                    return Ok(FirstRow {
                        delimiter,
                        is_guess: given.is_none(),
                        cells,
                        bytes,
                    });
                }
                Found::More if ended => {
                    bail!(
                        "cannot read {name} as CSV: it has a line that names its delimiter, and nothing else"
                    )
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

    /// Whether it holds values rather than names, by the columns below it: a value of each column that is not text, and one at least. Without
    /// rows below, a value that no header would be is enough.
    pub(super) fn fits_the_rows(&self, below: &[Sample]) -> bool {
        if below.iter().all(|sample| sample.rows() == 0) {
            return self.cells.iter().any(|cell| is_value(cell));
        }
        let mut typed = 0;
        for (cell, sample) in self.cells.iter().zip(below) {
            if sample.field_type() == FieldType::Utf8 {
                continue;
            }
            let mut both = sample.clone();
            if !cell.is_empty() {
                both.see(cell);
                typed += 1;
            }
            if both.field_type() == FieldType::Utf8 {
                return false;
            }
        }
        typed > 0
    }

    /// Whether it names the columns, by the source to load into and the first CSV of the load; `None` where they do not show it. Without the name
    /// of any field it holds values if an earlier file has no header either, or if one of its values is a number or a time and all fit.
    pub(super) fn is_header(&self, options: &LoadOptions) -> Option<bool> {
        let declared = options.declared.iter().flat_map(|source| &source.fields);
        let declared = declared.map(|field| (&field.name, field.ty));
        let first = options.first_csv.iter().flat_map(|first| &first.columns);
        let first = first.map(|column| (&column.name, column.ty));
        let known: Vec<(&String, FieldType)> = declared.chain(first).collect();
        if known.is_empty() {
            return None;
        }
        let names_one = |cell: &String| {
            let name = field_name(cell).to_lowercase();
            let ts = options.ts_column.iter();
            let names = known.iter().map(|(name, _)| *name).chain(ts);
            names
                .into_iter()
                .any(|field| field == cell || field.to_lowercase() == name)
        };
        if self.cells.iter().any(names_one) {
            return Some(true);
        }
        if options
            .first_csv
            .as_ref()
            .is_some_and(|first| !first.has_header)
        {
            return Some(false);
        }
        let fits = |(cell, name): (&String, &String)| {
            let field = known.iter().find(|(field, _)| *field == name);
            let takes_texts = field.is_none_or(|(_, ty)| takes_texts(*ty));
            takes_texts || cell.is_empty() || is_value(cell)
        };
        let names = self.places(options);
        let is_row = !options.takes_fields()
            || names.is_some_and(|names| self.cells.iter().zip(&names).all(fits));
        (is_row && self.cells.iter().any(|cell| is_value(cell))).then_some(false)
    }

    /// The names of the columns in their order, where no row names them: those of the source's fields, else `column0` and so on.
    pub(super) fn names_by_place(
        &self,
        blocks: &Blocks,
        options: &LoadOptions,
    ) -> anyhow::Result<Vec<String>> {
        if let Some(names) = self.places(options) {
            return Ok(names);
        }
        let Some(def) = &options.declared else {
            return Ok(self.numbered());
        };
        bail!(
            "cannot load {} into source '{}': its rows have {} and no header, the source has {}; declare a field for each column",
            blocks.name(),
            def.name,
            counted(self.cells.len() as u64, "column"),
            counted(def.fields.len() as u64, "field")
        )
    }

    /// Which column holds the times of the rows, by the first row or by its place.
    pub(super) fn place_of_times(&self, options: &LoadOptions) -> Option<usize> {
        let ts = options.ts_column.as_ref()?;
        let named = self.cells.iter().position(|cell| cell == ts);
        named.or_else(|| self.numbered().iter().position(|name| name == ts))
    }

    /// The names that the first CSV of the load or the source has for as many columns.
    fn places(&self, options: &LoadOptions) -> Option<Vec<String>> {
        if let Some(first) = &options.first_csv
            && first.columns.len() == self.cells.len()
        {
            let names = first.columns.iter().map(|column| column.name.clone());
            return Some(names.collect());
        }
        let fields = &options.declared.as_ref()?.fields;
        let mut names = self.numbered();
        let is_ts = |name: &&mut String| Some(&**name) == options.ts_column.as_ref();
        let others: Vec<&mut String> = names.iter_mut().filter(|name| !is_ts(name)).collect();
        let fits =
            others.len() == fields.len() || options.add_fields && others.len() > fields.len();
        for (name, field) in others.into_iter().zip(fields) {
            name.clone_from(&field.name);
        }
        fits.then_some(names)
    }

    /// `column0` and so on.
    fn numbered(&self) -> Vec<String> {
        let places = 0..self.cells.len();
        places.map(|place| format!("column{place}")).collect()
    }
}

/// Whether a text is what no header would be: a number, a time or a boolean.
fn is_value(cell: &str) -> bool {
    let mut sample = Sample::new();
    sample.see(cell);
    sample.field_type() != FieldType::Utf8
}

fn takes_texts(ty: FieldType) -> bool {
    use FieldType as F;
    matches!(
        ty,
        F::Utf8 | F::Char(_) | F::VarBytes | F::Bytes(_) | F::Json
    )
}

/// Consumes the line `sep=;` with which some spreadsheets name the delimiter, and returns that.
fn delimiter_line(blocks: &mut Blocks) -> anyhow::Result<Option<u8>> {
    const START: &[u8] = b"sep=";
    let is_start = |data: &[u8]| data.iter().zip(START).all(|(byte, start)| byte == start);
    while is_start(blocks.data()) && blocks.data().len() < START.len() + 3 && blocks.fill()? {}
    let line = blocks.data().strip_prefix(START);
    let (delimiter, bytes) = match line {
        Some([delimiter, b'\n', ..]) => (*delimiter, 2),
        Some([delimiter, b'\r', b'\n', ..]) => (*delimiter, 3),
        _ => return Ok(None),
    };
    blocks.consume(START.len() + bytes);
    Ok(Some(delimiter))
}

/// Whether the data at hand has line ends of old Macintoshes, and no others.
fn has_carriage_returns_only(data: &[u8]) -> bool {
    let first = memchr2(b'\r', b'\n', data);
    let within = first.is_some_and(|first| first + 1 < data.len());
    within && memchr(b'\n', data).is_none()
}
