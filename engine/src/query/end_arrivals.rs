//! When the newest and the oldest record arrived, from the first node or chunk that holds one, counted from that end.

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
        self.arrival_at(Order::NewestFirst)
    }

    /// Arrival of the oldest retained record of the directory, of any source.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn oldest_ts(&self) -> Result<Option<Timestamp>> {
        self.arrival_at(Order::OldestFirst)
    }

    fn arrival_at(&self, order: Order) -> Result<Option<Timestamp>> {
        let mut end = End {
            order,
            arrival: None,
        };
        let mut walk = Walk::new(Arc::clone(self.logs()), order);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        let poll = Poll::never();
        while let Some(chunk) = walk.next(&mut end, &poll)? {
            cursor.load(chunk)?;
            end.arrival = match order {
                Order::NewestFirst => cursor.last_arrival()?,
                Order::OldestFirst => cursor.first_arrival()?,
            };
        }
        Ok(end.arrival)
    }
}

/// The arrival at one end of the first node or chunk that holds a record: the first answer is the one.
struct End {
    order: Order,
    arrival: Option<Timestamp>,
}

impl Visitor for End {
    fn is_answered(&self) -> bool {
        self.arrival.is_some()
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        self.arrival = (node.records() > 0).then(|| match self.order {
            Order::NewestFirst => node.last_arrival(),
            Order::OldestFirst => node.first_arrival(),
        });
        Ok(0)
    }
}
