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
use crate::query::predicate::Test;
use crate::query::scan::chunk_cursor::ChunkCursor;
use crate::query::scan::column_rows::ColumnReads;
use crate::query::scan::columns::Columns;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{RangeSet, Source};
use crate::types::{Address, ChunkNo, Key};

/// What one thread gathers.
pub(crate) trait Descent: Visitor + Send + Sized {
    /// What a look at a chunk's summary leaves to know when the chunk is read.
    type Note: Send;

    /// Of the chunk that the walk has just yielded.
    fn note(&mut self) -> Self::Note;

    /// The source whose records are wanted of chunks, and the fields that are read of them; `None`: all.
    fn reads(&self) -> (&Source, Option<&[usize]>);

    /// What records satisfy that are wanted: of columns, no others are given.
    fn test(&self) -> &Test;

    /// Rows where one of these fields has another key, or is NULL, may be left out.
    fn keys(&self) -> &[(usize, RangeSet<Key>)] {
        &[]
    }

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

    /// Whether all that opened chunks hold is wanted alike, whenever it arrived: no times are read, and what the summaries left to know does not matter.
    fn is_timeless(&self) -> bool {
        false
    }

    /// Takes what is wanted of a chunk's rows, of several chunks' where it is timeless; false, with nothing taken, where that takes the loaded chunk.
    fn columns(&mut self, note: &mut Self::Note, columns: Columns<'_>) -> Result<bool>;

    /// Takes what is wanted of the loaded chunk.
    fn chunk(&mut self, note: Self::Note, cursor: &mut ChunkCursor) -> Result<()>;

    /// The same task with nothing gathered yet.
    fn fork(&self) -> Self;

    /// Adds what another has gathered.
    fn absorb(&mut self, other: Self) -> Result<()>;
}

/// Descends over all chunks from `after` to the snapshot's position, with up to so many threads. The chunk that holds `after` is given whole.
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
        after,
        failed: AtomicBool::new(false),
    };
    let mut hand = Hand::new(logs);
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
                let (shared, hand) = (&shared, Hand::new(logs));
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
    /// Where the question begins.
    after: Address,
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
    claim: VecDeque<(ChunkNo, G::Note)>,
    claim_chunks: usize,
    chunk_bytes: u32,
}

impl<G: Descent> Hand<G> {
    fn new(logs: &Arc<SnapshotLogs>) -> Hand<G> {
        Hand {
            cursor: ChunkCursor::new(Arc::clone(logs)),
            claim: VecDeque::new(),
            claim_chunks: (logs.tuning().claim_bytes / logs.chunk_bytes()).max(1) as usize,
            chunk_bytes: logs.chunk_bytes(),
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
        self.cursor.expect(expected, column_reads(part));
        while let Some((chunk, mut note)) = self.claim.pop_front() {
            poll.check()?;
            // The chunk that holds the beginning is cut by the addresses of its records.
            let is_cut = chunk.address(self.chunk_bytes) < shared.after;
            if !is_cut && self.columns(chunk, &mut note, part)? {
                continue;
            }
            let following = self.claim.iter().map(|(chunk, _)| *chunk);
            self.cursor.load_of(chunk, chunk.row_end(following))?;
            part.chunk(note, &mut self.cursor)?;
        }
        Ok(chunks)
    }

    /// Takes a chunk column by column, where it stands so; and those behind it that go together with it.
    fn columns(&mut self, chunk: ChunkNo, note: &mut G::Note, part: &mut G) -> Result<bool> {
        let Some((source, reads)) = column_reads(part) else {
            return Ok(false);
        };
        let chunks = chunk..chunk.row_end(self.claim.iter().map(|(chunk, _)| *chunk));
        let next = chunk.0 + 1;
        if !part.wants_rows()
            && let Some((end, totals)) = self.cursor.totals(chunks.clone(), source, part.keys())?
        {
            part.totals(&totals)?;
            self.claim.drain(..(end.0 - next) as usize);
            return Ok(true);
        }
        let Some(end) = self.cursor.load_columns(chunks, source, reads)? else {
            return Ok(false);
        };
        let is_taken = part.columns(note, self.cursor.columns())?;
        if is_taken {
            self.claim.drain(..(end.0 - next) as usize);
        }
        Ok(is_taken)
    }
}

/// What is read column by column, and of which source; `None` where whole chunks are wanted.
fn column_reads<G: Descent>(part: &G) -> Option<(&Source, ColumnReads<'_>)> {
    let (source, fields) = part.reads();
    let test = part.test();
    if !test.each_field(&mut |_| ()) {
        return None;
    }
    let is_timeless = part.is_timeless();
    let reads = ColumnReads {
        fields: fields?,
        times: !is_timeless,
        addresses: false,
        // Else each has a note of its own.
        together: is_timeless,
        beside_others: false,
        keys: part.keys(),
        test,
    };
    Some((source, reads))
}
