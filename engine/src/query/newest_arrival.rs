//! When the newest record arrived, from the first node or chunk that holds one, counted from the end.

use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::Node;
use crate::types::Timestamp;

impl Snapshot {
    /// Arrival of the newest visible record of the directory, of any source.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn newest_ts(&self) -> Result<Option<Timestamp>> {
        let mut newest = Newest { arrival: None };
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::NewestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        let poll = Poll::never();
        while let Some(chunk) = walk.next(&mut newest, &poll)? {
            cursor.load(chunk)?;
            newest.arrival = cursor.last_arrival()?;
        }
        Ok(newest.arrival)
    }
}

/// The latest arrival of the newest node or chunk that holds a record: the first answer is the one.
struct Newest {
    arrival: Option<Timestamp>,
}

impl Visitor for Newest {
    fn is_answered(&self) -> bool {
        self.arrival.is_some()
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        self.arrival = (node.records() > 0).then(|| node.last_arrival());
        Ok(0)
    }
}
