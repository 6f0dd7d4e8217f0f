//! A running `loom_scan`: threads take turns at the engine's scan, each claiming a few chunks in a row, and write the rows of their
//! chunks into vectors. The number of the first chunk claimed is the batch index, by which DuckDB keeps log order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::ChunkNo;
use loom_engine::query::{ChunkReader, Poll, Scan};
use loom_engine::schema::{FieldType, Place, Source};

use super::group::{self, At, Group};
use super::text::Labels;
use super::vectors::{CAPACITY, Output, RawVectors};
use super::{fixed, text};
use crate::error::Result;
use crate::plan::columns::Shown;
use crate::plan::number::Domain;
use crate::plan::stats::Entry;

/// Chunks that a thread claims at a time: enough to keep the threads apart, few enough to share out a short scan.
const CLAIM_CHUNKS: usize = 8;
/// Rows that a thread claims at a time where no record is read: DuckDB's own row group.
const CLAIM_ROWS: u64 = 60 * CAPACITY as u64;

/// What the threads of one execution share.
pub struct ScanRun {
    scan: Arc<Scan>,
    source: String,
    fills: Vec<Fill>,
    /// Where no column needs a record: the rows that are still to be handed out, of how many.
    count: Option<Count>,
    claims: Mutex<()>,
    stats: Entry,
}

struct Count {
    rows: u64,
    given: AtomicU64,
}

enum Fill {
    Source,
    Ts,
    TsNs,
    Addr,
    Payload,
    Field {
        field: usize,
        labels: Option<Labels>,
    },
    Unknown,
}

impl Fill {
    fn new(shown: Shown, source: &Source) -> Fill {
        match shown {
            Shown::Source => Fill::Source,
            Shown::Ts => Fill::Ts,
            Shown::TsNs => Fill::TsNs,
            Shown::Addr => Fill::Addr,
            Shown::Payload => Fill::Payload,
            Shown::Field(field) => {
                let labels = source
                    .fields
                    .get(field)
                    .filter(|def| !def.labels.is_empty())
                    .map(Labels::of);
                Fill::Field { field, labels }
            }
            Shown::Unknown => Fill::Unknown,
        }
    }

    fn needs_records(&self) -> bool {
        !matches!(self, Fill::Source | Fill::Unknown)
    }
}

impl ScanRun {
    /// `shown` are the columns of the output, in its order.
    pub fn new(
        scan: Arc<Scan>,
        source: &Source,
        shown: &[Shown],
        stats: Entry,
        stop: &dyn Fn() -> bool,
    ) -> Result<ScanRun> {
        let fills: Vec<Fill> = shown
            .iter()
            .map(|shown| Fill::new(*shown, source))
            .collect();
        let count = if fills.iter().any(Fill::needs_records) {
            None
        } else {
            scan.count(&Poll::new(stop))?
        };
        Ok(ScanRun {
            source: source.name.clone(),
            fills,
            count: count.map(|rows| Count {
                rows,
                given: AtomicU64::new(0),
            }),
            claims: Mutex::new(()),
            stats,
            scan,
        })
    }

    /// Threads that would find something to do.
    pub fn threads(&self) -> usize {
        let claims = match &self.count {
            Some(count) => count.rows.div_ceil(CLAIM_ROWS),
            None => self.scan.stats().chunks_total.div_ceil(CLAIM_CHUNKS as u64),
        };
        claims.clamp(1, 256) as usize
    }

    pub fn progress(&self) -> f64 {
        match &self.count {
            Some(count) => count.given.load(Ordering::Relaxed) as f64 / count.rows.max(1) as f64,
            None => self.scan.progress(),
        }
    }

    pub fn worker(&self) -> ScanWorker {
        ScanWorker {
            reader: self.scan.reader(),
            claimed: VecDeque::new(),
            next_row: 0,
            batch: 0,
            rows_left: 0,
        }
    }

    /// The next chunks that may hold rows, in a row: nobody else's lie between them.
    fn claim(&self, claimed: &mut VecDeque<ChunkNo>, poll: &Poll<'_>) -> Result<()> {
        let _turn = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        while claimed.len() < CLAIM_CHUNKS {
            match self.scan.next(poll)? {
                Some(chunk) => claimed.push_back(chunk),
                None => break,
            }
        }
        Ok(())
    }
}

impl Drop for ScanRun {
    fn drop(&mut self) {
        self.stats.finish(self.scan.stats());
    }
}

/// What one thread holds.
pub struct ScanWorker {
    reader: ChunkReader,
    claimed: VecDeque<ChunkNo>,
    /// The first row of the reader's that has not been written.
    next_row: usize,
    batch: u64,
    /// Rows of a count that were claimed and not yet given.
    rows_left: u64,
}

impl ScanWorker {
    /// Never decreases, and no other thread has the same.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Writes up to a vector of rows. 0: there are no more.
    pub fn fill<V: RawVectors>(
        &mut self,
        run: &ScanRun,
        out: &mut Output<'_, V>,
        poll: &Poll<'_>,
    ) -> Result<usize> {
        let filled = match &run.count {
            Some(count) => self.count(count),
            None => self.records(run, out, poll)?,
        };
        for (position, _) in run
            .fills
            .iter()
            .enumerate()
            .filter(|(_, fill)| matches!(fill, Fill::Source))
        {
            out.constant(position, &run.source, filled)?;
        }
        Ok(filled)
    }

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

    fn records<V: RawVectors>(
        &mut self,
        run: &ScanRun,
        out: &mut Output<'_, V>,
        poll: &Poll<'_>,
    ) -> Result<usize> {
        let mut filled = 0;
        loop {
            let rows = self.reader.rows();
            let pending = rows.rows.get(self.next_row..).unwrap_or_default();
            let taken = pending.get(..CAPACITY - filled).unwrap_or(pending);
            if !taken.is_empty() {
                let group = Group {
                    base: rows.base,
                    bytes: rows.bytes,
                    layout: rows.layout,
                    rows: taken,
                };
                for (position, fill) in run.fills.iter().enumerate() {
                    write(
                        out,
                        At {
                            position,
                            from: filled,
                        },
                        group,
                        fill,
                    )?;
                }
                filled += taken.len();
                self.next_row += taken.len();
                if filled == CAPACITY {
                    return Ok(filled);
                }
            }
            let Some(chunk) = self.claimed.pop_front() else {
                // A vector holds rows of one batch only.
                if filled > 0 {
                    return Ok(filled);
                }
                run.claim(&mut self.claimed, poll)?;
                match self.claimed.front() {
                    Some(chunk) => self.batch = chunk.0,
                    None => return Ok(0),
                }
                continue;
            };
            poll.check()?;
            self.next_row = 0;
            self.reader.read(chunk)?;
        }
    }
}

fn write<V: RawVectors>(
    out: &mut Output<'_, V>,
    at: At,
    group: Group<'_>,
    fill: &Fill,
) -> Result<()> {
    match fill {
        Fill::Source | Fill::Unknown => Ok(()),
        Fill::Ts => group::ts(out, at, group),
        Fill::TsNs => group::ts_ns(out, at, group),
        Fill::Addr => group::addr(out, at, group),
        Fill::Payload => group::payload(out, at, group),
        Fill::Field { field, labels } => write_field(out, at, group, *field, labels.as_ref()),
    }
}

fn write_field<V: RawVectors>(
    out: &mut Output<'_, V>,
    at: At,
    group: Group<'_>,
    field: usize,
    labels: Option<&Labels>,
) -> Result<()> {
    let Some(slot) = group.layout.slot(field) else {
        return group::nulls(out, at, group.rows.len());
    };
    let is_whole = group.is_whole();
    match (labels, slot.place) {
        (Some(labels), Place::Fixed { offset }) => {
            text::labels(out, at, group, slot, offset, labels)?
        }
        (None, Place::Fixed { offset }) if is_whole && matches!(slot.ty, FieldType::Char(_)) => {
            text::characters(out, at, group, slot, offset)?;
        }
        (None, Place::Fixed { offset }) if Domain::of(slot.ty).is_some() => {
            fixed::number(out, at, group, slot, offset)?
        }
        _ => text::text(out, at, group, field, slot)?,
    }
    if slot.null_bit.is_none() && is_whole {
        return Ok(());
    }
    out.nulls(at.position, at.from, group.rows.len(), |row| {
        group
            .rows
            .get(row)
            .is_none_or(|row| group.layout.is_null(field, row.payload(group.bytes)))
    })
}
