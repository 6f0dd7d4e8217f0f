//! One connection, of a client or an inlet, as the writer thread sees it: the way to answer it, and the counts of its records.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loom_engine::schema::Catalog;
use loom_engine::{Address, SourceId};
use rustix::net::SendFlags;

use crate::descriptors::send_with;
use crate::protocol::{Counts, Reply, Synced};

/// The limit of answers that gather while a long one is being sent; beyond it, the client does not read.
const DEFERRED_BYTES_MAX: usize = 1 << 20;

/// Counts the inlets that were opened. They are numbered from above, connections of clients from below.
static INLETS: AtomicU64 = AtomicU64::new(0);

pub(super) struct Peer {
    pub(super) id: u64,
    pub(super) stream: UnixStream,
    /// A producer in this process: it is owed no goodbye, and nobody reads its stream.
    pub(super) is_inlet: bool,
    /// The daemon stops. It is set once, and guards no other memory.
    stopping: AtomicBool,
    answers: Mutex<Answers>,
    account: Mutex<PeerAccount>,
}

/// Two threads answer a client: its own, which may wait for it, and the writer, which never does.
#[derive(Default)]
struct Answers {
    /// The connection's thread is sending, without the lock.
    busy: bool,
    /// Whole frames of the writer thread, to be sent next.
    deferred: Vec<u8>,
    /// The connection ends once what is under way is sent.
    ends: bool,
    /// The daemon stops, and the client has had its time.
    overdue: bool,
}

/// The outcome of a connection's records. Only the writer thread changes it.
#[derive(Default)]
pub(super) struct PeerAccount {
    pub(super) counts: Counts,
    /// The reason of the latest refusal.
    pub(super) reason: String,
    /// Buffers and requests of this connection that wait for room in the log.
    pub(super) waiting: usize,
    /// The number of fields that each source had when the connection learned of it: its payloads have that layout.
    fields_known: BTreeMap<SourceId, usize>,
}

impl PeerAccount {
    pub(super) fn synced(&self, position: Address) -> Synced {
        Synced {
            position,
            counts: self.counts,
            reason: self.reason.clone(),
        }
    }
}

impl Peer {
    pub(super) fn new(id: u64, stream: UnixStream) -> Self {
        Peer {
            id,
            stream,
            is_inlet: false,
            stopping: AtomicBool::new(false),
            answers: Mutex::default(),
            account: Mutex::default(),
        }
    }

    pub(super) fn of_inlet() -> io::Result<Self> {
        let (stream, _) = UnixStream::pair()?;
        let id = u64::MAX - INLETS.fetch_add(1, Ordering::Relaxed);
        Ok(Peer {
            is_inlet: true,
            ..Peer::new(id, stream)
        })
    }

    pub(super) fn account(&self) -> MutexGuard<'_, PeerAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection learns of a source with so many fields: from now on its payloads have that layout.
    pub(super) fn learn(&self, source: SourceId, fields: usize) {
        self.account().fields_known.insert(source, fields);
    }

    /// The connection learns of all sources as they are now.
    pub(super) fn learn_all(&self, catalog: &Catalog) {
        let fields = catalog
            .sources()
            .map(|source| (source.id, source.fields.len()));
        self.account().fields_known.extend(fields);
    }

    /// The number of fields of a source that the connection knows: those of the first time that it names the source, unless it learned otherwise.
    pub(super) fn known_fields(&self, catalog: &Catalog, id: SourceId) -> usize {
        let Some(source) = catalog.source(id) else {
            return 0;
        };
        let mut account = self.account();
        let now = source.fields.len();
        *account.fields_known.entry(id).or_insert(now)
    }

    /// Sends a frame and never waits: a client whose socket has no room for it is disconnected, and this returns false.
    pub(super) fn answer_at_once(&self, reply: &Reply) -> bool {
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
        sent
    }

    /// Sends a last frame as `answer_at_once` does, and ends the connection after it.
    pub(super) fn answer_and_disconnect(&self, reply: &Reply) {
        if self.answer_at_once(reply) {
            let mut answers = self.answers();
            answers.ends = true;
            if !answers.busy {
                self.disconnect();
            }
        }
    }

    /// Sends a frame from the connection's own thread, at the client's pace (the socket's send timeout limits it) until the client is hurried.
    /// A descriptor goes beside its first byte.
    pub(super) fn answer(&self, reply: &Reply, beside: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut answers = self.answers();
        if answers.overdue && beside.is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if answers.overdue {
            drop(answers);
            let sent = self.answer_at_once(reply);
            return sent.then_some(()).ok_or(io::ErrorKind::TimedOut.into());
        }
        answers.busy = true;
        drop(answers);
        let mut frame = Vec::with_capacity(128);
        reply.encode(&mut frame);
        if let Some(descriptor) = beside {
            match send_with(&self.stream, &frame, descriptor) {
                Ok(sent) => drop(frame.drain(..sent)),
                Err(error) => {
                    self.answers().busy = false;
                    return Err(error);
                }
            }
        }
        loop {
            // `frame` goes out without the lock; the writer thread adds its answers to `deferred` meanwhile.
            let sent = (&self.stream).write_all(&frame);
            let mut answers = self.answers();
            if sent.is_err() || answers.deferred.is_empty() {
                answers.busy = false;
                answers.deferred.clear();
                if answers.ends {
                    self.disconnect();
                }
                return sent;
            }
            frame = std::mem::take(&mut answers.deferred);
        }
    }

    /// Waits for the client no longer: an answer under way is cut off, and a later one must find room in the socket.
    pub(super) fn hurry(&self) {
        let mut answers = self.answers();
        answers.overdue = true;
        if answers.busy {
            self.disconnect();
        }
    }

    /// True if the daemon waits for the client no longer.
    pub(super) fn is_overdue(&self) -> bool {
        self.answers().overdue
    }

    /// Ends the connection both ways; its thread sees the end of the stream.
    pub(super) fn disconnect(&self) {
        // It fails if the client has closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// The daemon stops: it takes no more than the socket holds already, and the client's next send fails.
    pub(super) fn stop_receiving(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(std::net::Shutdown::Read);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;
    use crate::protocol::RequestId;

    #[test]
    fn a_last_answer_follows_one_under_way() -> io::Result<()> {
        let request = RequestId::MIN;
        let long = Reply::Status {
            request,
            json: "long".repeat(1 << 20),
        };
        let last = Reply::Done { request };
        let (stream, mut client) = UnixStream::pair()?;
        let peer = Peer::new(1, stream);
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| peer.answer(&long, None));
            // The socket has no room for the long answer, so it stays under way.
            while !peer.answers().busy && !sends.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            peer.answer_and_disconnect(&last);
            client.read_to_end(&mut received)?;
            sends.join().expect("the sender does not panic")
        })?;
        let mut expected = Vec::new();
        long.encode(&mut expected);
        last.encode(&mut expected);
        assert!(received == expected, "{} bytes arrived", received.len());
        Ok(())
    }
}
