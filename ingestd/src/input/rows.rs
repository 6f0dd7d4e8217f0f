//! Rows on their way: as an input gives them, in columns, and as payloads of one source.

use anyhow::Context;
use arrow::array::{Array, ArrayRef, RecordBatch};

/// Rows as an input gives them: one array for each column that was asked for.
pub(crate) struct Rows {
    pub columns: Vec<ArrayRef>,
    pub count: usize,
    /// Rows that could not be read at all, counted from the batch's first, with the reason.
    pub bad: Vec<(usize, String)>,
}

impl Rows {
    /// The columns of a record batch at these positions.
    pub(crate) fn of_batch(batch: &RecordBatch, positions: &[usize]) -> anyhow::Result<Rows> {
        let column = |position: &usize| batch.columns().get(*position).cloned();
        let columns: Option<_> = positions.iter().map(column).collect();
        Ok(Rows {
            columns: columns.context("a batch has fewer columns than its schema")?,
            count: batch.num_rows(),
            bad: Vec::new(),
        })
    }

    /// Some of them.
    pub(crate) fn slice(&self, from: usize, count: usize) -> Rows {
        let columns = self.columns.iter();
        let bad = self.bad.iter();
        Rows {
            columns: columns.map(|column| column.slice(from, count)).collect(),
            count,
            bad: bad
                .filter(|(row, _)| (from..from + count).contains(row))
                .map(|(row, reason)| (row - from, reason.clone()))
                .collect(),
        }
    }
}

/// Payloads of one source, framed for `Writer::push_batch` and for the socket.
#[derive(Debug, Default)]
pub struct InputBatch {
    /// For each payload a u16 length and its bytes, packed.
    pub bytes: Vec<u8>,
    /// How many payloads there are.
    pub rows: u64,
    /// The number of the batch's first row in its input, from 1.
    pub first_row: u64,
    /// The rows that are no payload, ascending by row number, with the reason.
    pub refused: Vec<(u64, String)>,
    /// The input's name, and what it calls a row.
    pub input: String,
    pub row_noun: &'static str,
    /// Notes about columns that change or are left out, each once.
    pub notes: Vec<String>,
}

/// How many refused rows are named; the others are only counted.
const NAMED_MAX: u64 = 1000;

/// Names the rows of an input that are refused, a sentence each, up to a number of them.
#[derive(Debug, Default)]
pub struct Refusals {
    named: u64,
}

impl Refusals {
    /// The sentences about some rows of a batch.
    pub fn sentences(&mut self, batch: &InputBatch, refused: &[(u64, String)]) -> Vec<String> {
        let room = NAMED_MAX.saturating_sub(self.named);
        let named = refused
            .iter()
            .take(usize::try_from(room).unwrap_or(usize::MAX));
        let mut sentences: Vec<String> = named.map(|row| batch.refusal(row)).collect();
        let before = self.named;
        self.named += refused.len() as u64;
        if before <= NAMED_MAX && self.named > NAMED_MAX {
            sentences.push(format!(
                "more than {NAMED_MAX} rows are refused; the others are only counted"
            ));
        }
        sentences
    }
}

impl InputBatch {
    /// One sentence about a row that is refused.
    pub fn refusal(&self, (row, reason): &(u64, String)) -> String {
        let InputBatch {
            input, row_noun, ..
        } = self;
        format!("{row_noun} {row} of {input} is refused: {reason}")
    }

    /// How many rows the input gave, refused ones too.
    pub fn received(&self) -> u64 {
        self.rows + self.refused.len() as u64
    }

    /// The number of the row that the payload with this ordinal, from 0, was made of.
    pub fn row_of(&self, ordinal: u64) -> u64 {
        let mut row = self.first_row + ordinal;
        for (refused, _) in &self.refused {
            row += u64::from(*refused <= row);
        }
        row
    }
}
