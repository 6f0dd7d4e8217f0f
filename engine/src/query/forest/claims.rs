//! Divides a walk among the threads that share it. A thread takes consecutive chunks, in whole units if it can, so that each unit is read
//! and decoded once by one thread.

use super::walk::{Visitor, Walk};
use crate::error::Result;
use crate::format::UNIT_CHUNKS;
use crate::query::poll::Poll;
use crate::types::ChunkNo;

/// A walk whose chunks are claimed, each with the note of the visitor that looked at its summary.
pub(crate) struct Claims<N> {
    walk: Walk,
    /// The first chunk of the next claim, if it is already known.
    next: Option<(ChunkNo, N)>,
}

impl<N> Claims<N> {
    pub fn of(walk: Walk) -> Claims<N> {
        Claims { walk, next: None }
    }

    /// The next chunk.
    ///
    /// # Errors
    /// Errors of the walk.
    pub fn next<V: Visitor>(
        &mut self,
        visitor: &mut V,
        note: impl Fn(&mut V) -> N,
        poll: &Poll<'_>,
    ) -> Result<Option<(ChunkNo, N)>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let found = self.walk.next(visitor, poll)?;
        Ok(found.map(|chunk| (chunk, note(visitor))))
    }

    /// Gives `each` the next chunks: at least `least` if there are that many, and those that follow in the last one's unit.
    ///
    /// # Errors
    /// Errors of the walk.
    pub fn claim<V: Visitor>(
        &mut self,
        visitor: &mut V,
        note: impl Fn(&mut V) -> N,
        least: usize,
        poll: &Poll<'_>,
        mut each: impl FnMut(ChunkNo, N),
    ) -> Result<()> {
        let mut claimed = 0;
        let mut latest = None;
        while let Some((chunk, noted)) = self.next(visitor, &note, poll)? {
            let unit = chunk.0 / UNIT_CHUNKS;
            if claimed >= least && latest.is_some_and(|latest| latest != unit) {
                self.next = Some((chunk, noted));
                break;
            }
            each(chunk, noted);
            claimed += 1;
            latest = Some(unit);
        }
        Ok(())
    }
}
