//! Rings bring records that clients push through shared memory to the writer thread.
//!
//! A connection's thread opens a ring; one thread, the drainer, then owns all rings. It copies their records into buffers, which go to the
//! writer thread as those of a socket do, and never waits for a producer or for the log. Before each request of a client, and at the end of
//! its connection, the connection's thread has its rings drained up to the present end, so requests and pushes take effect in
//! the order in which the client made them. Records keep their place in the ring until they are published, so a client can hand over to the
//! next daemon those that a killed one had not stored.

mod drainer;
mod place;
mod ring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flume::{Sender, bounded};
use loom_client::ring::{Consumer, Ending, RingError, Stamps, WhenFull};
use loom_engine::SourceId;

use super::answer::Gone;
use super::clients::Clients;
use super::message::{Inbox, Request};
use super::peer::Peer;
use crate::protocol::ErrorCode;
use drainer::{Drainer, Order};
pub(super) use place::Place;
use ring::Ring;

/// The memory of all rings together, in bytes.
const RINGS_BYTES_MAX: u64 = 1 << 30;
/// Orders under way; each connection has at most one.
const ORDERS: usize = 256;

#[derive(Clone)]
pub(super) struct Rings {
    orders: Sender<Order>,
    clients: Arc<Clients>,
}

/// The descriptor of a ring and its capacity in bytes, or the reason why it is refused.
type Opened = Result<(OwnedFd, u64), (ErrorCode, String)>;

/// Room for a ring's memory among all rings', given back when it is dropped.
pub(super) struct Reserved {
    bytes: u64,
    clients: Arc<Clients>,
}

impl Rings {
    /// Starts the drainer. It ends once every `Rings` is dropped.
    pub(super) fn start(inbox: Inbox, clients: Arc<Clients>) -> io::Result<Rings> {
        let (orders, taken) = bounded(ORDERS);
        let drainer = Drainer::new(inbox, taken);
        std::thread::Builder::new()
            .name("loom-rings".to_owned())
            .spawn(move || drainer.run())?;
        Ok(Rings { orders, clients })
    }

    /// Opens a ring for records of a source.
    pub(super) fn open(
        &self,
        inbox: &Inbox,
        peer: &Arc<Peer>,
        source: SourceId,
        capacity_bytes: u64,
    ) -> Result<Opened, Gone> {
        let found = inbox.ask_after(Some(peer), |answer| Request::Ring(source, answer))?;
        let Some((stamps, when_full)) = found else {
            let message = format!("no open source has the id {source}; define the source first");
            return Ok(Err((ErrorCode::NotFound, message)));
        };
        let created = self.create(capacity_bytes, stamps, when_full);
        let (consumer, descriptor, reserved) = match created {
            Ok(created) => created,
            Err(refused) => return Ok(Err(refused)),
        };
        let capacity_bytes = consumer.capacity_bytes();
        let ring = Ring::new(consumer, Arc::clone(peer), source, reserved);
        self.order(Order::Open(Box::new(ring)))?;
        Ok(Ok((descriptor, capacity_bytes)))
    }

    /// Returns once the writer thread has been handed everything that the client's producers had pushed before the call.
    pub(super) fn drain(&self, peer: &Peer) -> Result<(), Gone> {
        self.drain_and(peer, None)
    }

    /// Drains the client's rings and closes them: its producers push no more.
    pub(super) fn end(&self, peer: &Peer) -> Result<(), Gone> {
        let ending = if peer.is_stopping() {
            Ending::OfDaemon
        } else {
            Ending::OfClient
        };
        self.drain_and(peer, Some(ending))
    }

    fn drain_and(&self, peer: &Peer, end: Option<Ending>) -> Result<(), Gone> {
        let (done, is_done) = bounded(1);
        self.order(Order::Drain {
            peer: peer.id,
            end,
            done,
        })?;
        is_done.recv().map_err(|_| Gone)
    }

    fn order(&self, order: Order) -> Result<(), Gone> {
        self.orders.send(order).map_err(|_| Gone)
    }

    fn create(
        &self,
        capacity_bytes: u64,
        stamps: Stamps,
        when_full: WhenFull,
    ) -> Result<(Consumer, OwnedFd, Reserved), (ErrorCode, String)> {
        let refused = |error: RingError| {
            let code = match error {
                RingError::Capacity(_) => ErrorCode::Definition,
                _ => ErrorCode::Failed,
            };
            (code, error.to_string())
        };
        let wanted = loom_client::ring::capacity_of(capacity_bytes).map_err(refused)?;
        let reserved = self.reserve(wanted)?;
        let created = Consumer::create(wanted, stamps, when_full);
        let (consumer, descriptor) = created.map_err(refused)?;
        Ok((consumer, descriptor, reserved))
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved, (ErrorCode, String)> {
        let before = self.clients.ring_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.clients.rings.fetch_add(1, Ordering::Relaxed);
        let reserved = Reserved {
            bytes,
            clients: Arc::clone(&self.clients),
        };
        if before + bytes > RINGS_BYTES_MAX {
            let message = format!(
                "the rings of all clients hold {before} bytes, and {bytes} more are over the limit of {RINGS_BYTES_MAX}; \
                 ask for a smaller ring, or close another client"
            );
            return Err((ErrorCode::TooManyConnections, message));
        }
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.clients
            .ring_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.clients.rings.fetch_sub(1, Ordering::Relaxed);
    }
}
