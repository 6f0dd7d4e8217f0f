//! A running `loom_tail`: the latest records, the newest first. It holds one chunk in memory for each directory. Records of several
//! directories are merged by their arrival.

use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::query::{Poll, RawScan};
use loom_engine::{Timestamp, proven};

use super::columns;
use super::fill::{self, Fill};
use super::run::{Run, Worker};
use super::vectors::{CAPACITY, Output};
use crate::error::Result;
use crate::plan::stats::ScanEntry;

pub struct TailRun {
    source: String,
    state: Mutex<State>,
}

struct State {
    parts: Vec<TailPart>,
    /// The number of rows that are still wanted.
    left: u64,
}

/// The records of one directory.
pub struct TailPart {
    scan: RawScan,
    fills: Vec<Fill>,
    stats: ScanEntry,
    next_row: usize,
}

impl TailPart {
    /// `fills` are the output columns, in order.
    pub fn new(scan: RawScan, fills: Vec<Fill>, stats: ScanEntry) -> TailPart {
        TailPart {
            scan,
            fills,
            stats,
            next_row: 0,
        }
    }

    /// The arrival of the next record; `None` after the oldest.
    fn newest(&mut self, poll: &Poll<'_>) -> Result<Option<Timestamp>> {
        if self.next_row >= self.scan.batch().count() {
            self.next_row = 0;
            self.scan.next(poll)?;
        }
        let arrival = self.scan.batch().arrivals().get(self.next_row);
        Ok(arrival.map(|arrival| Timestamp(*arrival as i64)))
    }

    /// Writes at most `most` records that are in memory and arrived at `since` or later.
    fn write(
        &mut self,
        out: &mut Output<'_>,
        from: usize,
        most: usize,
        since: Timestamp,
    ) -> Result<usize> {
        let batch = self.scan.batch();
        let arrivals = proven::at(batch.arrivals(), self.next_row..);
        let taken = arrivals
            .partition_point(|arrival| Timestamp(*arrival as i64) >= since)
            .min(most);
        let rows = batch.part(self.next_row..self.next_row + taken);
        columns::write(out, from, rows, &self.fills)?;
        fill::dirs(out, from, taken, &self.fills)?;
        self.next_row += taken;
        Ok(taken)
    }
}

impl TailRun {
    /// Reads the latest `rows` records.
    pub fn new(parts: Vec<TailPart>, source: String, rows: u64) -> TailRun {
        TailRun {
            source,
            state: Mutex::new(State { parts, left: rows }),
        }
    }
}

impl Run for TailRun {
    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(self)
    }
}

impl Worker for Arc<TailRun> {
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = state.fill(out, poll)?;
        for part in &state.parts {
            part.stats.finish(part.scan.stats());
        }
        if let Some(part) = state.parts.first() {
            fill::constants(out, &self.source, filled, &part.fills)?;
        }
        Ok(filled)
    }
}

impl State {
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let mut filled = 0;
        while filled < CAPACITY && self.left > 0 {
            let Some((part, since)) = self.turn(poll)? else {
                break;
            };
            let most = self.left.min((CAPACITY - filled) as u64) as usize;
            let part = proven::at_mut(&mut self.parts, part);
            let written = part.write(out, filled, most, since)?;
            filled += written;
            self.left -= written as u64;
        }
        Ok(filled)
    }

    /// The part with the newest record (the first such part), and the time until which it stays that part.
    fn turn(&mut self, poll: &Poll<'_>) -> Result<Option<(usize, Timestamp)>> {
        let mut first: Option<(usize, Timestamp)> = None;
        let mut second = Timestamp::MIN;
        for (at, part) in self.parts.iter_mut().enumerate() {
            let Some(arrival) = part.newest(poll)? else {
                continue;
            };
            match first {
                Some((_, newest)) if arrival <= newest => second = second.max(arrival),
                _ => {
                    second = first.map_or(second, |(_, newest)| newest);
                    first = Some((at, arrival));
                }
            }
        }
        Ok(first.map(|(at, _)| (at, second)))
    }
}
