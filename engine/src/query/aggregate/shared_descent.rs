//! Descents that several threads share: one walk hands out chunks, and each thread gathers from nodes and chunks what it is asked for
//! on its own, until the parts are put together.
//!
//! The caller's thread begins alone, so that what summaries answer costs no other thread; with one thread there never is another.

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

/// What one thread gathers.
pub(crate) trait Descent: Visitor + Send + Sized {
    /// What a look at a chunk's summary leaves to know when the chunk is read.
    type Note: Send;

    /// Of the chunk that the walk has just yielded.
    fn note(&mut self) -> Self::Note;

    /// Reads the rows that are wanted of chunks.
    fn rows(&self) -> SourceReader;

    /// Takes what the values whose keys are wanted are together.
    ///
    /// # Panics
    /// It [wants rows](Descent::wants_rows).
    fn totals(&mut self, _totals: &RangeTotals) -> Result<()> {
        unreachable!("rows are wanted")
    }

    /// Whether more is wanted than totals of the values with these keys.
    fn wants_rows(&self) -> bool {
        true
    }

    /// Whether rows of several chunks may be taken at once, whatever the summaries left to know.
    fn takes_together(&self) -> bool {
        false
    }

    /// Takes the rows of a chunk, or of several.
    fn take(&mut self, note: Self::Note, batch: Batch<'_>) -> Result<()>;

    /// The same task with nothing gathered yet.
    fn fork(&self) -> Self;

    /// Adds what another has gathered.
    fn absorb(&mut self, other: Self) -> Result<()>;
}

/// Descends over all records from `after` to the snapshot's position, with up to so many threads.
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
                // Where no thread can be had, those that are there do it all.
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

/// What a helping thread does.
fn help<G: Descent>(shared: &Shared<G::Note>, mut hand: Hand<G>, mut part: G) -> Result<G> {
    let stop = || shared.failed.load(Ordering::Relaxed);
    match shared.run(&mut hand, &mut part, &Poll::new(&stop)) {
        // It stopped because another has failed, which says why.
        Ok(()) | Err(Error::Interrupted) => Ok(part),
        Err(error) => Err(error),
    }
}

struct Shared<N> {
    claims: Mutex<Claims<N>>,
    /// One thread has failed, so that what the others find does not matter. Relaxed: it guards no memory.
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

    /// The walk's chunks, for one thread. While another has them, the caller's is heard.
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

    /// Takes the next chunks; returns how many, 0 where none are left.
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

    /// Takes a chunk, and those behind it that go together with it.
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
        // Else each has a note of its own.
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
