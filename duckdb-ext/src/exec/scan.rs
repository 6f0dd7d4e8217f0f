//! A running `loom_scan`: threads take turns at the engine's scans, one directory after the other. Each thread claims a few consecutive
//! chunks and writes their rows into vectors. The number of the first claimed chunk, counted over all directories, is the batch index by
//! which DuckDB keeps log order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom_engine::query::{Ask, ChunkReader, Poll, Scan};
use loom_engine::{ChunkNo, proven};

use super::columns;
use super::fill::{self, Fill};
use super::run::{Run, Worker};
use super::vectors::{CAPACITY, Output};
use crate::error::Result;
use crate::plan::passing::PassingRows;
use crate::plan::stats::ScanEntry;

/// The least number of chunks that a thread claims: enough to keep the threads apart and to read several at once, and few enough to share a
/// short scan.
const CLAIM_CHUNKS: usize = 8;
/// The least number of chunks if values prune: a vector holds rows of one claim only, and each chunk keeps few rows.
const CLAIM_SPARSE_CHUNKS: usize = 48;
/// The rows that a thread claims if no record is read: DuckDB's own row group.
const CLAIM_ROWS: u64 = 60 * CAPACITY as u64;

/// The number of times that a thread asks for its turn before it sleeps.
const TURN_ATTEMPTS: usize = 200;

/// The state that the threads of one execution share.
pub struct ScanRun {
    parts: Vec<ScanPart>,
    source: String,
    /// If no column needs a record: the rows that are left to hand out, and their total.
    count: Option<Count>,
    /// The part that is being handed out.
    turn: Mutex<usize>,
}

/// The scan of one directory.
pub struct ScanPart {
    pub scan: Arc<Scan>,
    /// The output columns, in order.
    pub fills: Vec<Fill>,
    /// Other rows may be left out; those that fail its predicate are.
    pub passing: PassingRows,
    /// The number of chunks in earlier directories.
    pub chunks_before: u64,
    pub stats: ScanEntry,
}

struct Count {
    rows: u64,
    given: AtomicU64,
}

impl ScanRun {
    pub fn new(parts: Vec<ScanPart>, source: String, stop: &dyn Fn() -> bool) -> Result<ScanRun> {
        let poll = Poll::new(stop);
        let is_one = parts.len() == 1;
        let reads = |fill: &Fill| fill.needs_records() || !is_one && fill.differs_by_directory();
        let reads = parts.iter().any(|part| part.fills.iter().any(reads));
        let mut rows = if reads { None } else { Some(0) };
        for part in &parts {
            if let Some(before) = rows {
                rows = part.scan.count(&poll)?.map(|counted| before + counted);
            }
        }
        Ok(ScanRun {
            parts,
            source,
            count: rows.map(|rows| Count {
                rows,
                given: AtomicU64::new(0),
            }),
            turn: Mutex::new(0),
        })
    }

    /// A turn is short, so a thread asks repeatedly before it sleeps. A sleeping thread is often woken on the processor of the thread that
    /// wakes it, and then both share that processor.
    fn take_turn(&self) -> MutexGuard<'_, usize> {
        for _ in 0..TURN_ATTEMPTS {
            if let Ok(turn) = self.turn.try_lock() {
                return turn;
            }
            std::thread::yield_now();
        }
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the next chunks of one part that may hold rows, without another thread's chunks between them. Returns no chunks at the end.
    fn claim(&self, chunks: &mut Vec<ChunkNo>, poll: &Poll<'_>) -> Result<usize> {
        chunks.clear();
        let mut turn = self.take_turn();
        while let Some(part) = self.parts.get(*turn) {
            let least = if part.scan.prunes_by_values() {
                CLAIM_SPARSE_CHUNKS
            } else {
                CLAIM_CHUNKS
            };
            part.scan.claim(least, poll, |chunk| chunks.push(chunk))?;
            if !chunks.is_empty() {
                break;
            }
            *turn += 1;
        }
        Ok(*turn)
    }
}

impl Run for ScanRun {
    fn threads(&self) -> usize {
        let claims = match &self.count {
            Some(count) => count.rows.div_ceil(CLAIM_ROWS),
            None => {
                let chunks = self.parts.iter().map(|part| part.scan.stats().chunks_total);
                chunks.sum::<u64>().div_ceil(CLAIM_CHUNKS as u64)
            }
        };
        claims.clamp(1, 256) as usize
    }

    fn progress(&self) -> f64 {
        match &self.count {
            Some(count) => count.given.load(Ordering::Relaxed) as f64 / count.rows.max(1) as f64,
            None => {
                let done: f64 = self.parts.iter().map(|part| part.scan.progress()).sum();
                done / self.parts.len().max(1) as f64
            }
        }
    }

    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(ScanWorker {
            run: self,
            reader: None,
            claimed: Vec::new(),
            next_row: 0,
            batch: 0,
            rows_left: 0,
        })
    }
}

impl Drop for ScanRun {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stats.finish(part.scan.stats());
        }
    }
}

/// The state of one thread.
struct ScanWorker {
    run: Arc<ScanRun>,
    /// The reader of the part of the last claim.
    reader: Option<(usize, ChunkReader)>,
    /// The chunks of the last claim.
    claimed: Vec<ChunkNo>,
    /// The first row of the reader's batch that is not written.
    next_row: usize,
    batch: u64,
    /// Rows of a count that are claimed and not returned yet.
    rows_left: u64,
}

impl Worker for ScanWorker {
    fn batch(&self) -> u64 {
        self.batch
    }

    /// Writes at most one vector of rows, and returns their number; 0 at the end.
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let run = &*Arc::clone(&self.run);
        let filled = match &run.count {
            Some(count) => self.count(count),
            None => self.records(run, out, poll)?,
        };
        if let Some(part) = run.parts.first() {
            fill::constants(out, &run.source, filled, &part.fills)?;
        }
        let part = self.reader.as_ref().map_or(0, |(part, _)| *part);
        if let Some(part) = run.parts.get(part) {
            fill::dirs(out, 0, filled, &part.fills)?;
        }
        Ok(filled)
    }
}

impl ScanWorker {
    fn count(&mut self, count: &Count) -> usize {
        if self.rows_left == 0 {
            let from = count.given.fetch_add(CLAIM_ROWS, Ordering::Relaxed);
            self.rows_left = count.rows.saturating_sub(from).min(CLAIM_ROWS);
            self.batch = from / CLAIM_ROWS;
        }
        let given = self.rows_left.min(CAPACITY as u64);
        self.rows_left -= given;
        given as usize
    }

    fn records(&mut self, run: &ScanRun, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let mut filled = 0;
        loop {
            if let Some((part, reader)) = &self.reader {
                let part = proven::at(&run.parts, *part);
                let batch = reader.batch();
                let rows = (batch.count() - self.next_row).min(CAPACITY - filled);
                let taken = self.next_row..self.next_row + rows;
                if rows > 0 {
                    columns::write(out, filled, batch.part(taken), &part.fills)?;
                    filled += rows;
                    self.next_row += rows;
                    if filled == CAPACITY {
                        return Ok(filled);
                    }
                }
            }
            poll.check()?;
            let is_read = match &mut self.reader {
                Some((_, reader)) => reader.read_next()?,
                None => false,
            };
            if is_read {
                self.next_row = 0;
            } else if filled > 0 || !self.claim(run, poll)? {
                // A vector may hold rows of one batch only.
                return Ok(filled);
            }
        }
    }

    /// Claims more chunks and takes a reader of their part; returns false at the end.
    fn claim(&mut self, run: &ScanRun, poll: &Poll<'_>) -> Result<bool> {
        let of_part = run.claim(&mut self.claimed, poll)?;
        let Some(chunk) = self.claimed.first() else {
            return Ok(false);
        };
        let part = proven::at(&run.parts, of_part);
        self.batch = part.chunks_before + chunk.0;
        let reader = match self.reader.take() {
            Some((of, reader)) if of == of_part => reader,
            _ => part.scan.reader(Ask {
                keys: part.passing.keys.clone(),
                tests: part.passing.tests.clone(),
                ..Fill::ask(&part.fills)
            }),
        };
        // All rows of the reader's batch are written.
        self.next_row = reader.batch().count();
        let (_, reader) = self.reader.insert((of_part, reader));
        reader.take(self.claimed.iter().copied(), poll)?;
        Ok(true)
    }
}
