//! A running `loom_top`: records of many chunks, each a batch of its own to the writers of vectors.

use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::proven;
use loom_engine::query::{GivenRecords, Poll, TopRow};
use loom_engine::schema::Source;

use super::columns;
use super::fill::{self, Fill};
use super::run::{Run, Worker};
use super::vectors::{CAPACITY, Output};
use crate::error::Result;

pub struct TopRun {
    rows: Vec<TopRow>,
    parts: Vec<TopPart>,
    source: String,
    /// The number of the next vector of rows.
    next: Mutex<usize>,
}

/// The parameters for the rows of one directory.
pub struct TopPart {
    pub source: Arc<Source>,
    /// The output columns, in order.
    pub fills: Vec<Fill>,
}

impl TopRun {
    pub fn new(rows: Vec<TopRow>, parts: Vec<TopPart>, source: String) -> TopRun {
        TopRun {
            rows,
            parts,
            source,
            next: Mutex::new(0),
        }
    }
}

impl Run for TopRun {
    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(self)
    }
}

impl Worker for Arc<TopRun> {
    fn fill(&mut self, out: &mut Output<'_>, _: &Poll<'_>) -> Result<usize> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let given = self.rows.chunks(CAPACITY).nth(*next).unwrap_or_default();
        for (at, found) in given.iter().enumerate() {
            let part = proven::at(&self.parts, found.part);
            let layout = Arc::clone(part.source.layout_at(found.address));
            let mut record = GivenRecords::of(part.source.id, layout);
            record.push(found.address, found.ts, &found.payload)?;
            columns::write(out, at, record.batch(), &part.fills)?;
            fill::dirs(out, at, 1, &part.fills)?;
        }
        if let Some(part) = self.parts.first() {
            fill::constants(out, &self.source, given.len(), &part.fills)?;
        }
        *next += 1;
        Ok(given.len())
    }
}
