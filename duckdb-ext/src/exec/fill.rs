//! The content of each column of `loom_scan` and its kin.

use loom_engine::query::Ask;
use loom_engine::schema::Source;

use super::text::Labels;
use super::vectors::Output;
use crate::error::Result;
use crate::plan::columns::Shown;
use crate::plan::passing::PassingRows;

/// A column of the output, for records of one source.
pub enum Fill {
    Source,
    Ts,
    TsNs,
    Addr,
    Payload,
    Field {
        field: usize,
        labels: Option<Labels>,
    },
    /// A text that is NULL in all rows.
    Null,
    Dir(String),
    Unknown,
}

impl Fill {
    /// The columns of an output, in order.
    pub fn all(shown: &[Shown], source: &Source, dir: &str) -> Vec<Fill> {
        shown
            .iter()
            .map(|shown| Fill::new(*shown, source, dir))
            .collect()
    }

    pub fn new(shown: Shown, source: &Source, dir: &str) -> Fill {
        match shown {
            Shown::Source => Fill::Source,
            Shown::Ts => Fill::Ts,
            Shown::TsNs => Fill::TsNs,
            Shown::Addr => Fill::Addr,
            Shown::Payload => Fill::Payload,
            Shown::Field(field) => {
                let def = source.fields.get(field);
                let labels = def.filter(|def| !def.labels.is_empty()).map(Labels::of);
                Fill::Field { field, labels }
            }
            Shown::Dir => Fill::Dir(dir.to_owned()),
            Shown::Unknown => Fill::Unknown,
        }
    }

    /// The column as far as the rows that pass need it.
    pub fn of_passing(self, rows: &PassingRows) -> Fill {
        match self {
            Fill::Field {
                field,
                labels: None,
            } if rows.null_texts.contains(&field) => Fill::Null,
            other => other,
        }
    }

    pub fn needs_records(&self) -> bool {
        !matches!(self, Fill::Source | Fill::Dir(_) | Fill::Unknown)
    }

    /// The parts of rows that these columns need.
    pub fn ask(fills: &[Fill]) -> Ask {
        let mut ask = Ask::default();
        for fill in fills {
            match fill {
                Fill::Payload => ask.payloads = true,
                Fill::Addr => ask.addresses = true,
                Fill::Ts | Fill::TsNs => ask.times = true,
                Fill::Field { field, .. } => ask.fields.push(*field),
                Fill::Source | Fill::Null | Fill::Dir(_) | Fill::Unknown => {}
            }
        }
        ask
    }

    /// Whether the column has one value in all rows of a directory but not in all rows of a call.
    pub fn differs_by_directory(&self) -> bool {
        matches!(self, Fill::Dir(_))
    }
}

/// Writes the columns that are the same in all `rows` rows of the output.
pub fn constants(out: &mut Output<'_>, source: &str, rows: usize, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        if matches!(fill, Fill::Source) {
            out.repeated(position, 0, rows, source.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes the directory of some rows of an output that has rows of several directories.
pub fn dirs(out: &mut Output<'_>, from: usize, rows: usize, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        if let Fill::Dir(dir) = fill {
            out.repeated(position, from, rows, dir.as_bytes())?;
        }
    }
    Ok(())
}
