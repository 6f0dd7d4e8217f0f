//! The way in for a producer in the daemon's own process: batches go to the writer thread without a socket between.
//!
//! `ingestd record` pushes what the kernel reports through it where it is the daemon itself. To the writer thread an inlet is one more
//! connection, which nobody can answer; its account has what became of its records.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom_engine::{SourceId, proven};

use super::DaemonError;
use super::buffer::{Item, Pool};
use super::message::{Frames, Gone, Inbox, Message};
use super::peer::Peer;
use crate::protocol::{Counts, FRAME_BYTES_MAX, Shape};

/// Producers in this process that were connected. They are numbered from above, connections from below.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Takes batches for the writer thread of a daemon in this process.
pub struct Inlet {
    peer: Arc<Peer>,
    inbox: Inbox,
    pool: Pool,
}

impl Inlet {
    pub(super) fn open(inbox: &Inbox) -> std::io::Result<Inlet> {
        Ok(Inlet {
            peer: Arc::new(mute_peer()?),
            inbox: inbox.clone(),
            pool: Pool::new(),
        })
    }

    /// Hands over payloads of a source, all of `record_bytes`. Waits while the writer thread has all buffers.
    pub fn push(
        &mut self,
        source: SourceId,
        record_bytes: u16,
        payloads: &[u8],
    ) -> Result<(), DaemonError> {
        let size = usize::from(record_bytes);
        let most = FRAME_BYTES_MAX / size * size;
        for piece in payloads.chunks(most) {
            let mut buffer = self.pool.take_or_wait(&self.inbox).map_err(gone)?;
            proven::at_mut(&mut buffer.bytes, ..piece.len()).copy_from_slice(piece);
            buffer.items.push(Item::Push {
                source,
                shape: Shape::Fixed { record_bytes },
                range: 0..piece.len(),
                records: (piece.len() / size) as u64,
            });
            let frames = Frames::new(&self.peer, buffer, self.pool.home());
            self.inbox.send(Message::Frames(frames)).map_err(gone)?;
        }
        Ok(())
    }

    /// What became of all that was pushed, once the writer thread has taken it in, and why the latest refused record was refused. Nothing can be
    /// pushed after that.
    pub fn finish(self) -> Result<(Counts, String), DaemonError> {
        self.pool.wait_for_all(&self.inbox).map_err(gone)?;
        let account = self.peer.account();
        Ok((account.counts, account.reason.clone()))
    }
}

/// A connection of a producer in this process, whose answers go nowhere.
pub(super) fn mute_peer() -> std::io::Result<Peer> {
    let (stream, _) = UnixStream::pair()?;
    let id = u64::MAX - OPENED.fetch_add(1, Ordering::Relaxed);
    Ok(Peer::new(id, stream))
}

fn gone(_: Gone) -> DaemonError {
    DaemonError::WriterGone
}
