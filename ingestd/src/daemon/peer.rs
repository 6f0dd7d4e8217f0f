//! One connection as the writer thread sees it: how to answer it, what became of its records, where its buffers return.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;
use loom_engine::{Address, SourceId};
use rustix::net::SendFlags;

use super::message::Buffer;
use crate::protocol::{Counts, Reply, Synced};

/// Answers that gather while a long one is being sent, in bytes; more means that the client does not read.
const DEFERRED_BYTES_MAX: usize = 1 << 20;

pub(super) struct Peer {
    pub(super) id: u64,
    pub(super) stream: UnixStream,
    /// Takes buffers back once their batch is taken in.
    pub(super) free: Sender<Buffer>,
    answers: Mutex<Answers>,
    account: Mutex<Account>,
}

/// Two threads answer a client: its own, which may wait for it, and the writer, which never does.
#[derive(Default)]
struct Answers {
    /// The connection's thread is sending, without the lock.
    busy: bool,
    /// Whole frames that the writer thread left meanwhile.
    deferred: Vec<u8>,
}

/// What became of a connection's records. Only the writer thread changes it.
#[derive(Default)]
pub(super) struct Account {
    pub(super) counts: Counts,
    /// Why the latest refused record was refused.
    pub(super) reason: String,
    /// Batches and calls of this connection that wait for room in the log.
    pub(super) waiting: usize,
    /// How many fields each source had when the connection learnt of it: its payloads have that layout.
    pub(super) fields_known: BTreeMap<SourceId, usize>,
}

impl Account {
    /// The counts as a sync or a goodbye tells them.
    pub(super) fn synced(&self, position: Address) -> Synced {
        Synced {
            position,
            counts: self.counts,
            reason: self.reason.clone(),
        }
    }
}

impl Peer {
    pub(super) fn new(id: u64, stream: UnixStream, free: Sender<Buffer>) -> Self {
        Peer {
            id,
            stream,
            free,
            answers: Mutex::default(),
            account: Mutex::default(),
        }
    }

    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame from the writer thread, without ever waiting: a client whose socket has no room for it is
    /// disconnected.
    pub(super) fn answer_at_once(&self, reply: &Reply) {
        let mut frame = Vec::with_capacity(128);
        reply.encode(&mut frame);
        let mut answers = self.answers();
        let sent = if answers.busy {
            answers.deferred.extend_from_slice(&frame);
            answers.deferred.len() <= DEFERRED_BYTES_MAX
        } else {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rustix::net::send(&self.stream, &frame, flags) == Ok(frame.len())
        };
        drop(answers);
        if !sent {
            self.disconnect();
        }
    }

    /// Sends a frame from the connection's own thread, at the client's pace (the socket's send timeout limits it).
    pub(super) fn answer_patiently(&self, reply: &Reply) -> io::Result<()> {
        let mut frame = Vec::with_capacity(128);
        reply.encode(&mut frame);
        self.answers().busy = true;
        loop {
            // `frame` goes out without the lock; the writer thread leaves its answers in `deferred` meanwhile.
            let sent = (&self.stream).write_all(&frame);
            let mut answers = self.answers();
            if sent.is_err() || answers.deferred.is_empty() {
                answers.busy = false;
                answers.deferred.clear();
                return sent;
            }
            frame = std::mem::take(&mut answers.deferred);
        }
    }

    /// Ends the connection both ways; its thread sees the end of the stream.
    pub(super) fn disconnect(&self) {
        // It fails where the client has closed already, which is what is wanted.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Takes no more than what the socket holds already; the client's next send fails.
    pub(super) fn stop_receiving(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Read);
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
