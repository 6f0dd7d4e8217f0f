//! A running `loom_top`: records of many chunks; each counts as a chunk of its own for the code that writes vectors.

use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::proven;
use loom_engine::query::{Poll, Rows, TopRow};
use loom_engine::schema::Source;

use super::fill::{self, Fill};
use super::group::Group;
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
            let alone = std::slice::from_ref(&found.row);
            let chunk = Rows {
                base: found.base,
                bytes: &found.bytes,
                layout: part.source.layout_at(found.base),
                rows: alone,
                stride: None,
            };
            fill::group(out, at, Group::new(chunk, alone), &part.fills)?;
            fill::dirs(out, at, 1, &part.fills)?;
        }
        if let Some(part) = self.parts.first() {
            fill::constants(out, &self.source, given.len(), &part.fills)?;
        }
        *next += 1;
        Ok(given.len())
    }
}
