//! Rows on their way: as an input gives them, in columns, and as payloads of one source.

use anyhow::Context;
use arrow::array::{Array, ArrayRef, RecordBatch};
use loom_sink::InputBatch;

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
