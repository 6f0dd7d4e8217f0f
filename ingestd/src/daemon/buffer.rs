//! Buffers that a socket, a ring or an inlet fills, and the items in them. They go round: producer, writer thread, producer.

use flume::{Receiver, Sender, TrySendError, bounded};
use loom_engine::SourceId;
use loom_engine::schema::LossReason;
use std::ops::Range;

use super::answer::{Alive, Answer, Gone};
use crate::losses::Lost;
use crate::protocol::{Depth, FRAME_BYTES_MAX, RequestId, Shape, Synced};

pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) items: Vec<Item>,
}

pub(super) enum Item {
    Push {
        source: SourceId,
        shape: Shape,
        range: Range<usize>,
        records: u64,
    },
    /// One record of a built-in source, which no client may push and no account counts.
    Own {
        source: SourceId,
        range: Range<usize>,
    },
    Sync {
        depth: Depth,
        answer: SyncAnswer,
    },
    /// Records that count as received and are in no buffer: a ring's producer dropped them, or they cannot be made or read.
    Lost(Loss),
}

/// Records that are lost for one reason.
#[derive(Clone)]
pub(super) struct Loss {
    /// `None`: no existing source.
    pub(super) source: Option<SourceId>,
    pub(super) reason: LossReason,
    pub(super) records: u64,
    /// Payload bytes, where they are known.
    pub(super) bytes: Option<u64>,
    pub(super) detail: String,
}

impl Loss {
    /// The same as an entry of `loom_losses`.
    pub(super) fn lost(&self) -> Lost<'_> {
        Lost {
            source: self.source,
            reason: self.reason,
            records: self.records,
            bytes: self.bytes,
            detail: &self.detail,
        }
    }
}

/// The receiver of the answer to a sync.
#[derive(Clone)]
pub(super) enum SyncAnswer {
    Client(RequestId),
    Inlet {
        answer: Answer<Result<Synced, String>>,
        /// Counted once the records before the sync are published: their sender sends them again otherwise.
        losses: Vec<Loss>,
    },
}

impl SyncAnswer {
    pub(super) fn losses(&self) -> &[Loss] {
        match self {
            SyncAnswer::Client(_) => &[],
            SyncAnswer::Inlet { losses, .. } => losses,
        }
    }
}

/// One is filled while others are on their way.
const BUFFERS_MAX: usize = 3;

pub(super) struct Pool {
    free: Receiver<Buffer>,
    home: Sender<Buffer>,
    made: usize,
}

#[derive(Clone)]
pub(super) struct Home(Sender<Buffer>);

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
        (self.made < BUFFERS_MAX).then(|| {
            self.made += 1;
            Buffer {
                bytes: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
                items: Vec::new(),
            }
        })
    }

    /// An empty buffer; waits for the writer thread if all are with it.
    pub(super) fn take_or_wait(&mut self, alive: &Alive) -> Result<Buffer, Gone> {
        match self.take() {
            Some(buffer) => Ok(buffer),
            None => alive.wait(&self.free),
        }
    }

    /// Waits until the writer thread has taken in all buffers.
    pub(super) fn wait_for_all(&self, alive: &Alive) -> Result<(), Gone> {
        (0..self.made).try_for_each(|_| alive.wait(&self.free).map(drop))
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
