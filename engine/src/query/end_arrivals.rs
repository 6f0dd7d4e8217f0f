//! The arrivals of the newest and the oldest record, from the first node or chunk at that end that holds one; and the address at which the
//! records since a time begin.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot::Snapshot;
use crate::error::{Error, Result};
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
            if damage(&mut cursor, chunk)?.is_none() && cursor.last_arrival()? >= Some(time) {
                return Ok(cursor.base());
            }
        }
        Ok(Address(self.position()))
    }

    /// Where the records, of any source, begin that arrived at this time or later: at the position if there is none. The search begins at the end, so
    /// a late time costs a chunk or two.
    ///
    /// # Errors
    /// A failed read, or eviction meanwhile.
    pub fn first_arrived(&self, time: Timestamp) -> Result<FirstArrived> {
        let mut edge = Edge {
            time,
            is_found: false,
            since: None,
        };
        let mut found = Address(self.position());
        let mut damaged = None;
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::NewestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut edge, &Poll::never())? {
            if let Some(error) = damage(&mut cursor, chunk)? {
                damaged = Some((chunk, error));
                continue;
            }
            let (first, is_cut) = first_in(&mut cursor, time)?;
            if let Some(first) = first {
                (found, edge.since) = (first, None);
            }
            edge.is_found = is_cut;
        }
        if let Some(chunk) = edge.since {
            found = self.first_from(time, chunk)?;
        }
        let below = |(chunk, error): (ChunkNo, Error)| {
            let base = chunk.address(self.chunk_bytes());
            (base < found).then_some((base, error))
        };
        Ok(FirstArrived {
            address: found,
            doubt: damaged.and_then(below),
        })
    }

    /// The address of the first record that arrived at this time or later, if all records of this chunk did, and none below it. A damaged chunk begins
    /// with it, as far as can be known.
    fn first_from(&self, time: Timestamp, chunk: ChunkNo) -> Result<Address> {
        let mut since = Since { time };
        let from = chunk.address(self.chunk_bytes());
        let mut walk = Walk::after(Arc::clone(self.logs()), from);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut since, &Poll::never())? {
            if damage(&mut cursor, chunk)?.is_some() {
                return Ok(chunk.address(self.chunk_bytes()));
            }
            if let (Some(first), _) = first_in(&mut cursor, time)? {
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

/// Where the records begin that arrived at a time or later.
#[derive(Debug)]
pub struct FirstArrived {
    /// The address of the first of them that can be read.
    pub address: Address,
    /// Damage below it, from this address on, that may hold more of them.
    pub doubt: Option<(Address, Error)>,
}

impl FirstArrived {
    /// The lowest address at which one of them may stand.
    pub fn from(&self) -> Address {
        self.doubt.as_ref().map_or(self.address, |(from, _)| *from)
    }

    /// The address.
    ///
    /// # Errors
    /// The damage that hides whether it is the right one.
    pub fn known(self) -> Result<Address> {
        match self.doubt {
            Some((_, error)) => Err(error),
            None => Ok(self.address),
        }
    }
}

/// Reads a chunk. Returns the damage that it has.
fn damage(cursor: &mut ChunkCursor, chunk: ChunkNo) -> Result<Option<Error>> {
    match cursor.load(chunk) {
        Err(error) if error.is_corruption() => Ok(Some(error)),
        loaded => loaded.map(|()| None),
    }
}

/// The first record of a chunk that arrived at the time or later, and whether one arrived earlier.
fn first_in(cursor: &mut ChunkCursor, time: Timestamp) -> Result<(Option<Address>, bool)> {
    let (mut first, mut is_cut) = (None, false);
    let base = cursor.base();
    let _ = cursor.walk(|record| {
        if record.arrival < time {
            is_cut = true;
            return ControlFlow::Continue(());
        }
        first = Some(base + u64::from(record.offset));
        ControlFlow::Break(())
    })?;
    Ok((first, is_cut))
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
