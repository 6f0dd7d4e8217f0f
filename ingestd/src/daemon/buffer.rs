//! What a socket or a ring is read into, and what was found in it. Buffers go round: reader, writer thread, reader.

use std::ops::Range;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use loom_engine::SourceId;
use loom_engine::schema::LossReason;

use super::message::{Gone, Inbox};
use crate::protocol::{Depth, FRAME_BYTES_MAX, RequestId, Shape};

pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) items: Vec<Item>,
}

/// One frame in a buffer.
pub(super) enum Item {
    Push {
        source: SourceId,
        shape: Shape,
        range: Range<usize>,
        records: u64,
    },
    Sync {
        request: RequestId,
        depth: Depth,
    },
    /// Records that a ring's producer dropped, or that cannot be read from its ring.
    Lost {
        source: SourceId,
        reason: LossReason,
        records: u64,
        detail: String,
    },
}

/// How often someone who waits for a buffer looks whether the writer thread lives.
const WRITER_CHECK: Duration = Duration::from_secs(1);
/// One is filled while others are on their way.
const BUFFERS_MAX: usize = 3;

/// The buffers of one connection or one ring.
pub(super) struct Pool {
    free: Receiver<Buffer>,
    home: Sender<Buffer>,
    made: usize,
}

/// The way of a buffer back to its pool.
#[derive(Clone)]
pub(super) struct Home(Sender<Buffer>);

impl Buffer {
    pub(super) fn new() -> Self {
        Buffer {
            bytes: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            items: Vec::new(),
        }
    }
}

impl Pool {
    pub(super) fn new() -> Pool {
        let (home, free) = bounded(BUFFERS_MAX);
        Pool {
            free,
            home,
            made: 0,
        }
    }

    pub(super) fn home(&self) -> Home {
        Home(self.home.clone())
    }

    /// An empty buffer, unless all are on their way.
    pub(super) fn take(&mut self) -> Option<Buffer> {
        if let Ok(buffer) = self.free.try_recv() {
            return Some(buffer);
        }
        let make = self.made < BUFFERS_MAX;
        self.made += usize::from(make);
        make.then(Buffer::new)
    }

    /// An empty buffer; waits for the writer thread where all are with it.
    pub(super) fn take_or_wait(&mut self, inbox: &Inbox) -> Result<Buffer, Gone> {
        match self.take() {
            Some(buffer) => Ok(buffer),
            None => self.wait(inbox),
        }
    }

    /// Waits until the writer thread has taken in what all buffers held.
    pub(super) fn wait_for_all(&self, inbox: &Inbox) -> Result<(), Gone> {
        (0..self.made).try_for_each(|_| self.wait(inbox).map(drop))
    }

    fn wait(&self, inbox: &Inbox) -> Result<Buffer, Gone> {
        loop {
            match self.free.recv_timeout(WRITER_CHECK) {
                Ok(buffer) => return Ok(buffer),
                Err(_) if !inbox.is_alive() => return Err(Gone),
                Err(_) => {}
            }
        }
    }
}

impl Home {
    /// Takes a buffer back, emptied. A pool that is gone takes none.
    pub(super) fn give_back(&self, mut buffer: Buffer) {
        buffer.items.clear();
        let returned = self.0.try_send(buffer);
        assert!(
            !matches!(returned, Err(TrySendError::Full(_))),
            "a pool has {BUFFERS_MAX} buffers, and all came back before this one"
        );
    }
}
