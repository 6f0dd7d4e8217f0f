//! The header row of CSV: the delimiter, and the names of the columns.

use std::collections::HashSet;

use anyhow::bail;

use super::super::ROW_BYTES_MAX;
use super::super::blocks::Blocks;
use super::super::text_rows::first_line;
use super::row::{Found, find};

/// What a header row says.
pub(super) struct Header {
    /// The one of four that the row holds most of.
    pub delimiter: u8,
    /// The columns; no two have one name.
    pub names: Vec<String>,
    /// Which columns are not called as the row calls them.
    pub notes: Vec<String>,
}

impl Header {
    /// Consumes the header row.
    pub(super) fn read(blocks: &mut Blocks) -> anyhow::Result<Header> {
        let mut spans = Vec::new();
        loop {
            let (data, name) = (blocks.data(), blocks.name());
            let line = data.get(..first_line(data)).unwrap_or_default();
            let count = |delimiter: &u8| line.iter().filter(|byte| *byte == delimiter).count();
            // The last of equals wins, so that a single column has commas.
            let candidates = b"|;\t,".iter();
            let delimiter = *candidates.max_by_key(|byte| count(byte)).unwrap_or(&b',');
            match find(data, delimiter, blocks.ended(), &mut spans) {
                Found::Row { bytes, .. } => {
                    let row = data.get(..bytes).unwrap_or_default();
                    let Ok(row) = std::str::from_utf8(row) else {
                        bail!(
                            "cannot read the header row of {name}: it is not UTF-8; convert the file"
                        );
                    };
                    let text = |span: &super::row::Span| row.get(span.start..span.end);
                    let unescaped = |text: &str| text.replace("\"\"", "\"").trim().to_owned();
                    let names = spans.iter().filter_map(text).map(unescaped);
                    let mut names: Vec<String> = names.collect();
                    let notes = number_repeated(&mut names);
                    blocks.consume(bytes);
                    return Ok(Header {
                        delimiter,
                        names,
                        notes,
                    });
                }
                Found::More if blocks.ended() => {
                    bail!("cannot read {name} as CSV: it is empty; CSV begins with a header row")
                }
                Found::More if data.len() <= ROW_BYTES_MAX => {
                    blocks.fill()?;
                }
                Found::More => bail!(
                    "cannot read the header row of {name}: it is longer than {ROW_BYTES_MAX} bytes; is the file CSV?"
                ),
                Found::Malformed(reason) => {
                    bail!("cannot read the header row of {name}: {reason}; correct its quotes")
                }
            }
        }
    }
}

/// Gives a name that an earlier column has, in any case, a number, as DuckDB does: `a`, `a_1`. Returns notes about it.
fn number_repeated(names: &mut [String]) -> Vec<String> {
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
            "two columns are named '{name}'; the later one is read as '{renamed}'"
        ));
        *name = renamed;
    }
    notes
}
