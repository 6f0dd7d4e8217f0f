//! The arrivals of the newest and the oldest record, from the first node or chunk at that end that holds one; and the address at which the
//! records since a time begin.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::Node;
use crate::types::{Address, ChunkNo, TimeRange, Timestamp};

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

    /// The address of the first chunk that holds a record, of any source, that arrived at this time or later; the position if there is
    /// none. Damaged chunks are skipped.
    ///
    /// # Errors
    /// A failed read, or eviction meanwhile.
    pub fn arrived_since(&self, time: Timestamp) -> Result<Address> {
        let mut since = Since { time };
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::OldestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut since, &Poll::never())? {
            if loads(&mut cursor, chunk)? && cursor.last_arrival()? >= Some(time) {
                return Ok(cursor.base());
            }
        }
        Ok(Address(self.position()))
    }

    /// The address of the first record, of any source, that arrived at this time or later; the position if there is none. The search begins
    /// at the end, so a late time costs a chunk or two. Damaged chunks are skipped, because none of their records can be read.
    ///
    /// # Errors
    /// A failed read, or eviction meanwhile.
    pub fn first_arrived(&self, time: Timestamp) -> Result<Address> {
        let mut edge = Edge {
            time,
            is_found: false,
            since: None,
        };
        let mut found = None;
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::NewestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut edge, &Poll::never())? {
            if !loads(&mut cursor, chunk)? {
                continue;
            }
            let (mut first, mut is_cut) = (None, false);
            let _ = cursor.walk(|record| {
                if record.arrival < time {
                    is_cut = true;
                    return ControlFlow::Continue(());
                }
                first = Some(cursor.base() + u64::from(record.offset));
                ControlFlow::Break(())
            })?;
            if first.is_some() {
                (found, edge.since) = (first, None);
            }
            edge.is_found = is_cut;
        }
        if let Some(chunk) = edge.since {
            found = Some(self.first_from(time, chunk)?);
        }
        Ok(found.unwrap_or(Address(self.position())))
    }

    /// As `first_arrived`, if no chunk before this one holds such a record.
    fn first_from(&self, time: Timestamp, chunk: ChunkNo) -> Result<Address> {
        let mut since = Since { time };
        let from = chunk.address(self.chunk_bytes());
        let mut walk = Walk::after(Arc::clone(self.logs()), from);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut since, &Poll::never())? {
            if !loads(&mut cursor, chunk)? {
                continue;
            }
            let mut first = None;
            let _ = cursor.walk(|record| {
                if record.arrival < time {
                    return ControlFlow::Continue(());
                }
                first = Some(cursor.base() + u64::from(record.offset));
                ControlFlow::Break(())
            })?;
            if let Some(first) = first {
                return Ok(first);
            }
        }
        Ok(Address(self.position()))
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

/// Reads a chunk. Returns false if it is damaged.
fn loads(cursor: &mut ChunkCursor, chunk: ChunkNo) -> Result<bool> {
    match cursor.load(chunk) {
        Err(error) if error.is_corruption() => Ok(false),
        loaded => loaded.map(|()| true),
    }
}

/// Visits the nodes that hold a record that arrived at the time or later.
struct Since {
    time: Timestamp,
}

impl Visitor for Since {
    fn arrivals(&self) -> TimeRange {
        TimeRange {
            first: self.time,
            last: Timestamp::MAX,
        }
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        Ok(match node.last_arrival() >= self.time {
            true => u64::MAX,
            false => 0,
        })
    }
}

/// Searches backward for the edge between records that arrived before a time and those that arrived later.
struct Edge {
    time: Timestamp,
    /// Set once a record that arrived earlier was found: all such records lie below all others.
    is_found: bool,
    /// The lowest chunk so far whose records all arrived at the time or later, if it is lower than any chunk that was read.
    since: Option<ChunkNo>,
}

impl Visitor for Edge {
    fn is_answered(&self) -> bool {
        self.is_found
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        if node.records() == 0 {
            return Ok(0);
        }
        if node.last_arrival() < self.time {
            self.is_found = true;
            return Ok(0);
        }
        if node.first_arrival() >= self.time {
            self.since = Some(node.first_chunk());
            return Ok(0);
        }
        Ok(u64::MAX)
    }
}

/// Finds the arrival at one end: the first node or chunk that holds a record gives it.
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
