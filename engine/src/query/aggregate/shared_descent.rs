//! Descents that several threads share. One walk hands out chunks, and each thread gathers its part from nodes and chunks on its own. At
//! the end the parts are put together.
//!
//! The caller's thread begins alone, so that a question that summaries answer starts no other thread. With `threads` 1 there is never
//! another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;

use crate::error::{Error, Result};
use crate::format::RangeTotals;
use crate::query::forest::claims::Claims;
use crate::query::forest::walk::{Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::scan::batch::Batch;
use crate::query::scan::chunk_cursor::ChunkCursor;
use crate::query::scan::source_reader::SourceReader;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{Address, ChunkNo};

/// The work and the result of one thread.
pub(crate) trait Descent: Visitor + Send + Sized {
    /// Facts from a chunk's summary that are needed when the chunk is read.
    type Note: Send;

    /// The note of the chunk that the walk has just yielded.
    fn note(&mut self) -> Self::Note;

    /// A reader of the wanted rows.
    fn rows(&self) -> SourceReader;

    /// Adds the totals of the values with wanted keys.
    ///
    /// # Panics
    /// If it [wants rows](Descent::wants_rows).
    fn totals(&mut self, _totals: &RangeTotals) -> Result<()> {
        unreachable!("rows are wanted")
    }

    /// Whether it needs the rows themselves, not only the totals of the values with wanted keys.
    fn wants_rows(&self) -> bool {
        true
    }

    /// Whether rows of several chunks may be taken at once, without regard to their notes.
    fn takes_together(&self) -> bool {
        true
    }

    /// Takes the rows of one or several chunks.
    fn take(&mut self, note: Self::Note, batch: Batch<'_>) -> Result<()>;

    /// The same task with nothing gathered yet.
    fn fork(&self) -> Self;

    /// Adds the part that another thread has gathered.
    fn absorb(&mut self, other: Self) -> Result<()>;
}

/// Descends over all records from `after` to the snapshot's position, with at most `threads` threads.
pub(crate) fn descend<G: Descent>(
    logs: &Arc<SnapshotLogs>,
    after: Address,
    mut gathered: G,
    threads: usize,
    poll: &Poll<'_>,
) -> Result<G> {
    let walk = Walk::after(Arc::clone(logs), after);
    let shared = Shared {
        claims: Mutex::new(Claims::of(walk)),
        failed: AtomicBool::new(false),
    };
    let mut hand = Hand::new(logs, &gathered, after);
    let mut alone = 0;
    while threads <= 1 || alone < logs.tuning().alone_chunks {
        match hand.step(&shared, &mut gathered, poll)? {
            0 => return Ok(gathered),
            chunks => alone += chunks,
        }
    }
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map_while(|_| {
                let part = gathered.fork();
                let (shared, hand) = (&shared, Hand::new(logs, &part, after));
                // If no further thread can be started, the existing ones do all the work.
                thread::Builder::new()
                    .spawn_scoped(scope, move || help(shared, hand, part))
                    .ok()
            })
            .collect();
        let mut outcome = shared.run(&mut hand, &mut gathered, poll);
        for helper in helpers {
            let part = match helper.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            outcome = outcome.and_then(|()| gathered.absorb(part?));
        }
        outcome.map(|()| gathered)
    })
}

/// Runs a helping thread.
fn help<G: Descent>(shared: &Shared<G::Note>, mut hand: Hand<G>, mut part: G) -> Result<G> {
    let stop = || shared.failed.load(Ordering::Relaxed);
    match shared.run(&mut hand, &mut part, &Poll::new(&stop)) {
        // It stopped because another thread has failed, which reports the error.
        Ok(()) | Err(Error::Interrupted) => Ok(part),
        Err(error) => Err(error),
    }
}

struct Shared<N> {
    claims: Mutex<Claims<N>>,
    /// Set if one thread has failed, so that the others can stop. Relaxed, because it guards no memory.
    failed: AtomicBool,
}

impl<N: Send> Shared<N> {
    fn run<G: Descent<Note = N>>(
        &self,
        hand: &mut Hand<G>,
        part: &mut G,
        poll: &Poll<'_>,
    ) -> Result<()> {
        let mut outcome = Ok(1);
        while matches!(outcome, Ok(1..)) && !self.failed.load(Ordering::Relaxed) {
            outcome = hand.step(self, part, poll);
        }
        self.failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        outcome.map(|_| ())
    }

    /// Locks the walk for one thread. While another thread holds it, an interruption of the caller is noticed.
    fn claims(&self, poll: &Poll<'_>) -> Result<MutexGuard<'_, Claims<N>>> {
        loop {
            match self.claims.try_lock() {
                Ok(claims) => return Ok(claims),
                Err(TryLockError::Poisoned(claims)) => return Ok(claims.into_inner()),
                Err(TryLockError::WouldBlock) => poll.check()?,
            }
            thread::yield_now();
        }
    }
}

/// One thread's buffers.
struct Hand<G: Descent> {
    cursor: ChunkCursor,
    rows: SourceReader,
    claim: VecDeque<(ChunkNo, G::Note)>,
    claim_chunks: usize,
}

impl<G: Descent> Hand<G> {
    fn new(logs: &Arc<SnapshotLogs>, part: &G, after: Address) -> Hand<G> {
        let mut rows = part.rows();
        rows.begin_at(after);
        Hand {
            cursor: ChunkCursor::new(Arc::clone(logs)),
            rows,
            claim: VecDeque::new(),
            claim_chunks: (logs.tuning().claim_bytes / logs.chunk_bytes()).max(1) as usize,
        }
    }

    /// Takes the next chunks and returns how many; 0 at the end.
    fn step(&mut self, shared: &Shared<G::Note>, part: &mut G, poll: &Poll<'_>) -> Result<usize> {
        let claim = &mut self.claim;
        let each = |chunk, note| claim.push_back((chunk, note));
        let least = self.claim_chunks;
        shared
            .claims(poll)?
            .claim(part, G::note, least, poll, each)?;
        let chunks = self.claim.len();
        let expected = self.claim.iter().map(|(chunk, _)| *chunk);
        self.rows.expect(&self.cursor, expected);
        while let Some((chunk, note)) = self.claim.pop_front() {
            poll.check()?;
            self.take(chunk, note, part)?;
        }
        Ok(chunks)
    }

    /// Takes a chunk, and the following ones that can be read with it.
    fn take(&mut self, chunk: ChunkNo, note: G::Note, part: &mut G) -> Result<()> {
        let following = self.claim.iter().map(|(chunk, _)| *chunk);
        let chunks = chunk..chunk.row_end(following);
        let next = chunk.0 + 1;
        let (cursor, rows) = (&mut self.cursor, &mut self.rows);
        if !part.wants_rows()
            && let Some((end, totals)) = rows.totals(cursor, chunks.clone())?
        {
            part.totals(&totals)?;
            self.claim.drain(..(end.0 - next) as usize);
            return Ok(());
        }
        // Otherwise each chunk has its own note and is taken alone.
        let together = match part.takes_together() {
            true => chunks.clone(),
            false => chunk..ChunkNo(next),
        };
        let end = match rows.read_unit(cursor, together)? {
            Some(end) => end,
            None => {
                rows.read_chunk(cursor, chunks)?;
                ChunkNo(next)
            }
        };
        part.take(note, rows.batch(cursor))?;
        self.claim.drain(..(end.0 - next) as usize);
        Ok(())
    }
}
