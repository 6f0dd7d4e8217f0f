//! Messages to the writer thread: buffers with pushes and syncs, and requests, which bring the channel for their answer.
//!
//! All of it is data: nothing here knows who asks, or how the writer thread carries it out.

use std::sync::Arc;

use flume::{Receiver, Sender, bounded};
use loom_client::ring::{Calibration, Stamps, WhenFull};
use loom_engine::schema::{Catalog, IndexDef, SourceDef};
use loom_engine::{Address, Error, IndexId, SourceId, TimeRange, Timestamp};

use super::answer::{Alive, Answer, Gone};
use super::buffer::{Buffer, Home};
use super::peer::Peer;
use super::rings::Place;
use super::status::DaemonStatus;
use crate::config::Config;
use crate::protocol::LostCause;

/// The most messages under way. Each connection has its buffers and one request among them, each ring and inlet its buffers.
const INBOX_MESSAGES: usize = 1024;

pub(super) enum Message {
    Frames(Frames),
    Request {
        /// The request is carried out after everything that this connection sent before; without one, at once.
        peer: Option<Arc<Peer>>,
        request: Request,
    },
    /// All connections have ended; each of these learns the outcome of its records.
    Stop {
        peers: Vec<Arc<Peer>>,
    },
}

/// A buffer of one connection, and how far it is taken in.
pub(super) struct Frames {
    pub(super) peer: Arc<Peer>,
    pub(super) buffer: Buffer,
    /// The pool that gets the buffer once it is taken in.
    pub(super) home: Home,
    pub(super) next_item: usize,
    /// The part of that item that is taken in already.
    pub(super) taken_bytes: usize,
    pub(super) taken_records: u64,
    /// The place in a ring where the buffer's records stand until the log has them.
    pub(super) place: Option<Place>,
}

/// The answer to a request that the log or the catalog may refuse.
pub(super) type Tried<T> = Answer<Result<T, Error>>;

pub(super) enum Request {
    Status(Answer<DaemonStatus>),
    /// Publishes. All records that are not published yet are later than the answer.
    Publish(Answer<Timestamp>),
    /// An error says why the log takes no records now.
    Room(Answer<Result<(), String>>),
    /// Takes over another configuration, or none of it. The answer names the parts that do not take effect.
    Reconfigure(Box<Config>, Tried<Vec<String>>),
    /// The peer learns of all sources, if one asks.
    Catalog(Answer<Known>),
    /// Defines sources, all or none, of which the peer learns.
    Define {
        sources: Vec<SourceDef>,
        how: Define,
        answer: Tried<Defined>,
    },
    DefineOwn(Vec<SourceDef>, Tried<Vec<SourceId>>),
    /// Counts records of a built-in source that found no room.
    LoseOwn(SourceId, u64, Answer<()>),
    /// The answer has the id of an index that was added.
    Change(Change, Tried<Option<IndexId>>),
    /// The shape of the peer's ring for a source; `None`: the source takes no records of clients.
    Ring(SourceId, Answer<Option<(Stamps, WhenFull)>>),
    /// The present line from ticks to the log's time; `None`: this machine has no steady counter.
    Calibration(Answer<Option<Calibration>>),
    /// Retention removes nothing from now on: a pin is about to be written.
    HoldRetention(Answer<()>),
    /// The pin is written, or has failed.
    ReleaseRetention(Answer<()>),
}

/// A change that a client asks for, or records that it reports.
pub(super) enum Change {
    CloseSource(String),
    AddIndex(String, Box<IndexDef>),
    CloseIndex {
        source: String,
        index: String,
    },
    /// Counts rows that the peer could not make records of.
    Refused {
        source: String,
        records: u32,
        reason: String,
    },
    /// Counts records that never reached this daemon.
    Lost {
        source: String,
        records: u64,
        span: TimeRange,
        cause: LostCause,
        reason: String,
    },
}

/// The catalog, and the limits of additions to it.
pub(crate) struct Known {
    pub(crate) catalog: Catalog,
    pub(crate) catalog_bytes: u64,
    pub(crate) payload_bytes_max: usize,
}

/// Why sources are defined.
pub(crate) enum Define {
    /// A client asked: a closed source is opened again.
    AsAsked,
    /// A client that defined them before connects again: what was closed since stays closed.
    Again,
    Growing(Growth),
}

/// The bounds of a definition of sources that grow by themselves.
pub(crate) struct Growth {
    /// The longest catalog file that it may make.
    pub(crate) catalog_bytes_max: u64,
    /// The definitions are of a catalog that forgot sources below.
    pub(crate) forgotten_below: Address,
}

pub(crate) struct Defined {
    /// In the order of the definitions.
    pub(crate) ids: Vec<SourceId>,
    /// The growth of the catalog file.
    pub(crate) catalog_bytes: u64,
    /// The catalog forgot sources below this address.
    pub(crate) forgotten_below: Address,
}

#[derive(Clone)]
pub(super) struct Inbox {
    messages: Sender<Message>,
    alive: Alive,
}

/// Gives messages to the writer thread; when it is dropped, every sender learns that the thread is gone.
pub(super) struct Outlet {
    messages: Receiver<Message>,
    alive: Alive,
}

impl Inbox {
    pub(super) fn new() -> (Inbox, Outlet) {
        let (sender, messages) = bounded(INBOX_MESSAGES);
        let alive = Alive::new();
        let inbox = Inbox {
            messages: sender,
            alive: alive.clone(),
        };
        (inbox, Outlet { messages, alive })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.get()
    }

    pub(super) fn alive(&self) -> &Alive {
        &self.alive
    }

    pub(super) fn send(&self, message: Message) -> Result<(), Gone> {
        self.messages.send(message).map_err(|_| Gone)
    }

    /// Asks at once, and waits for the answer.
    pub(super) fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, Gone> {
        self.ask_after(None, request)
    }

    /// Asks after everything that the connection sent before, and waits for the answer.
    pub(super) fn ask_after<T>(
        &self,
        peer: Option<&Arc<Peer>>,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, Gone> {
        let (answer, answered) = Answer::new();
        let peer = peer.cloned();
        let request = request(answer);
        self.send(Message::Request { peer, request })?;
        self.alive.wait(&answered)
    }
}

impl Frames {
    /// A buffer of which nothing is taken in yet.
    pub(super) fn new(peer: &Arc<Peer>, buffer: Buffer, home: Home) -> Frames {
        Frames {
            peer: Arc::clone(peer),
            buffer,
            home,
            next_item: 0,
            taken_bytes: 0,
            taken_records: 0,
            place: None,
        }
    }
}

impl Outlet {
    pub(super) fn messages(&self) -> &Receiver<Message> {
        &self.messages
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.alive.end();
        // Each of these may hold a channel for an answer, whose owner learns it at once.
        self.messages.drain().for_each(drop);
    }
}

impl Message {
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        match self {
            Message::Frames(frames) => Some(&frames.peer),
            Message::Request { peer, .. } => peer.as_ref(),
            Message::Stop { .. } => None,
        }
    }
}
