//! Rows of an input as columns, and messages about refused rows.

use anyhow::Context;
use arrow::array::{Array, ArrayRef, RecordBatch};
use loom_sink::InputBatch;

/// Rows of an input: one array for each selected column.
pub(crate) struct Rows {
    pub columns: Vec<ArrayRef>,
    pub count: usize,
    /// Rows that could not be read, with their position in the batch and the reason.
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

    /// A part of the rows.
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

/// The limit of messages about refused rows; further ones are only counted.
const NAMED_MAX: u64 = 1000;

/// Reports refused rows, up to a limit.
#[derive(Debug, Default)]
pub struct Refusals {
    named: u64,
}

impl Refusals {
    /// Messages about refused rows of a batch.
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
