//! What connections and rings hand to the writer thread: frames with pushes and syncs, and calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flume::{Receiver, Sender, bounded};

use super::buffer::{Buffer, Home};
use super::peer::Peer;
use super::recorder::Recorder;
use super::rings::Place;

/// Messages under way at a time. Each connection has its buffers and one call among them, each ring and inlet its buffers.
const INBOX_MESSAGES: usize = 1024;

pub(super) enum Message {
    Frames(Frames),
    Call(Call),
    /// All connections have ended; each of these learns what became of its records.
    Stop {
        peers: Vec<Arc<Peer>>,
    },
}

/// Frames of one connection, and how far they are taken in.
pub(super) struct Frames {
    pub(super) peer: Arc<Peer>,
    pub(super) buffer: Buffer,
    /// Where the buffer goes once it is taken in.
    pub(super) home: Home,
    /// The item to go on with.
    pub(super) next_item: usize,
    /// How much of that item is taken in already.
    pub(super) taken_bytes: usize,
    pub(super) taken_records: u64,
    /// The place in a ring where the buffer's records stand until the log has them.
    pub(super) place: Option<Place>,
}

/// Something that the writer thread does, after everything that the connection sent before.
pub(super) struct Call {
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) work: Box<dyn FnOnce(&mut Recorder) + Send>,
}

/// The way to the writer thread.
#[derive(Clone)]
pub(super) struct Inbox {
    messages: Sender<Message>,
    /// Whether the writer thread lives. It is cleared once, and guards no other memory.
    alive: Arc<AtomicBool>,
}

/// What the writer thread takes messages from; when it is dropped, every sender learns that the thread is gone.
pub(super) struct Outlet {
    messages: Receiver<Message>,
    alive: Arc<AtomicBool>,
}

/// The writer thread has ended.
#[derive(Debug)]
pub(super) struct Gone;

impl Inbox {
    pub(super) fn new() -> (Inbox, Outlet) {
        let (sender, receiver) = bounded(INBOX_MESSAGES);
        let alive = Arc::new(AtomicBool::new(true));
        let outlet = Outlet {
            messages: receiver,
            alive: Arc::clone(&alive),
        };
        let messages = sender;
        (Inbox { messages, alive }, outlet)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    pub(super) fn send(&self, message: Message) -> Result<(), Gone> {
        self.messages.send(message).map_err(|_| Gone)
    }

    /// Runs `work` on the writer thread and waits for what it returns.
    pub(super) fn call<R: Send + 'static>(
        &self,
        peer: Option<&Arc<Peer>>,
        work: impl FnOnce(&mut Recorder) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let (sender, receiver) = bounded(1);
        self.send(Message::Call(Call {
            peer: peer.cloned(),
            work: Box::new(move |recorder| {
                // A caller that is gone needs no answer.
                let _ = sender.send(work(recorder));
            }),
        }))?;
        receiver.recv().map_err(|_| Gone)
    }
}

impl Frames {
    /// Frames of which nothing is taken in yet.
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

    /// Frames of records that keep their place in a ring until the log has them.
    pub(super) fn of_ring(peer: &Arc<Peer>, buffer: Buffer, home: Home, place: Place) -> Frames {
        Frames {
            place: Some(place),
            ..Frames::new(peer, buffer, home)
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
        self.alive.store(false, Ordering::Relaxed);
    }
}

impl Message {
    /// The connection that it comes from.
    pub(super) fn peer(&self) -> Option<&Arc<Peer>> {
        match self {
            Message::Frames(frames) => Some(&frames.peer),
            Message::Call(call) => call.peer.as_ref(),
            Message::Stop { .. } => None,
        }
    }
}
