//! The clients: one ends with its daemon, one outlives it, and one pushes through rings.
//!
//! `push` copies the payload into a buffer and returns. The buffer goes to the daemon when it has 64 KiB, when its oldest payload is 2 ms old, or
//! with any request. Threads may share a client; records keep the order in which they were pushed. If the daemon is slower than its producers, `push`
//! waits, or the daemon drops records if the source is set so. A [`Client`] ends with its daemon; a [`LastingClient`] goes on with the next one.

mod absence;
mod error;
mod hang_up;
mod kept;
mod lasting;
mod outgoing;
mod replies;
mod ring;
mod source_ring;
mod watch;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use loom_engine::{IndexId, SourceId, TimeRange};
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::protocol::{
    Depth, ErrorCode, LostCause, REQUEST_BODY_BYTES_MAX, Reply, Request, RequestId, Shape, Synced,
    VERSION, Welcome, Within,
};
use crate::ring::{Opener, Producer, PushError};
use crate::socket::with_socket_path;
pub use absence::PATIENCE;
pub use error::ClientError;
use hang_up::HangUp;
pub use lasting::{LastingClient, LastingOptions, Outcome};
use outgoing::Outgoing;
use replies::Replies;
pub use ring::{RingClient, RingOptions};

/// The socket's buffer. It has space for the longest frame, so it takes one at once.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// The options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A name for people; the daemon shows it.
    pub name: String,
    /// Send when the buffer has this many bytes; at most 128 KiB.
    pub flush_bytes: usize,
    /// Send after this time at the latest.
    pub flush_interval: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            name: String::new(),
            flush_bytes: 64 * 1024,
            flush_interval: Duration::from_millis(2),
        }
    }
}

/// A connection to the daemon of one directory.
pub struct Client {
    shared: Arc<Shared>,
    welcome: Welcome,
    flusher: Option<JoinHandle<()>>,
    opener: Opener,
}

/// A way to define the sources of a document.
type Define = fn(&Client, &str) -> Result<Vec<(SourceId, String)>, ClientError>;

/// Connects to the next daemon and defines there what was defined before. What was closed since stays closed, unless the daemon is older than the
/// request for that: it ends the connection, and gets plain definitions over another.
fn define_at_next<T>(
    mut connect: impl FnMut(Define) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    match connect(Client::define_again) {
        Err(ClientError::Daemon {
            code: ErrorCode::Malformed,
            ..
        }) => connect(Client::define),
        connected => connected,
    }
}

/// The parts that the client's threads share: the outgoing buffer, and the replies to the current request.
struct Shared {
    outgoing: Mutex<Outgoing>,
    /// Wakes the flusher, because an empty buffer got its first payload or the client closes.
    wake: Condvar,
    replies: Mutex<Replies>,
    hang_up: HangUp,
}

impl Client {
    /// Connects to the daemon that runs on `dir`.
    pub fn connect(dir: &Path) -> Result<Client, ClientError> {
        Client::connect_with(dir, ClientOptions::default())
    }

    /// Connects with the given options.
    pub fn connect_with(dir: &Path, options: ClientOptions) -> Result<Client, ClientError> {
        let mut client = Client::connect_for_requests(dir, &options)?;
        let flusher = std::thread::Builder::new()
            .name("loom-client".to_owned())
            .spawn({
                let shared = Arc::clone(&client.shared);
                move || shared.flush_regularly(options.flush_interval)
            })?;
        client.flusher = Some(flusher);
        Ok(client)
    }

    /// Connects without the thread that sends payloads in time: only requests send them.
    fn connect_for_requests(dir: &Path, options: &ClientOptions) -> Result<Client, ClientError> {
        let opener =
            Opener::this_process().map_err(|error| ClientError::from(io::Error::from(error)))?;
        let stream = with_socket_path(dir, |path| UnixStream::connect(path)).map_err(|error| {
            use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
            match error.kind() {
                NotFound | NotADirectory | ConnectionRefused => {
                    ClientError::NotRunning(dir.to_owned())
                }
                PermissionDenied => ClientError::NotAllowed(dir.to_owned()),
                _ => ClientError::from(error),
            }
        })?;
        // If the kernel allows less, a long send waits for the daemon more often.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        let hang_up = HangUp::new(stream.try_clone()?);
        let mut replies = Replies::new(stream.try_clone()?);
        let mut outgoing = Outgoing::new(stream, options.flush_bytes.min(128 * 1024));
        outgoing.append(&Request::Hello {
            version: VERSION,
            client: &options.name,
        });
        // A daemon without a free connection answers before it reads the hello, so its answer explains more than the failed send.
        if let Err(error) = outgoing.send() {
            return Err(replies.last_word().unwrap_or(error));
        }
        let Reply::Welcome(welcome) = replies.receive()? else {
            return Err(ClientError::Protocol(
                "the hello was not answered with a welcome".to_owned(),
            ));
        };
        let shared = Arc::new(Shared {
            outgoing: Mutex::new(outgoing),
            wake: Condvar::new(),
            replies: Mutex::new(replies),
            hang_up,
        });
        Ok(Client {
            shared,
            welcome,
            flusher: None,
            opener,
        })
    }

    /// The daemon's answer to the hello. It has its limits and the directory's UUID.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Defines every `[[source]]` of a TOML document and returns their ids in its order. A source that exists is not an error; fields may be added
    /// after the existing ones.
    pub fn define(&self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        self.define_in(toml, false)
    }

    /// Defines the sources of a document for a client that defined them before. What was closed since stays closed.
    fn define_again(&self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        self.define_in(toml, true)
    }

    fn define_in(&self, toml: &str, again: bool) -> Result<Vec<(SourceId, String)>, ClientError> {
        self.check_document(toml)?;
        match self.request(|request| Request::Define {
            request,
            again,
            toml,
        })? {
            Reply::Defined { sources, .. } => Ok(sources),
            other => Err(unexpected(&other)),
        }
    }

    /// Defines the first source of a TOML document, as [`Client::define`] does.
    pub fn define_one(&self, toml: &str) -> Result<SourceId, ClientError> {
        first_of(&self.define(toml)?)
    }

    /// Hands over one payload in the layout of its source (`FORMAT.md`, *Payload*). Returns at once unless a full buffer must be sent first.
    #[inline]
    pub fn push(&self, source: SourceId, payload: &[u8]) -> Result<(), ClientError> {
        // The daemon's limit alone does not ensure that the length fits two bytes.
        let limit = (self.welcome.payload_bytes_max as usize).min(usize::from(u16::MAX));
        if payload.len() > limit {
            return Err(ClientError::PayloadTooLong {
                bytes: payload.len(),
                limit,
            });
        }
        self.check_process()?;
        let mut outgoing = self.shared.outgoing();
        outgoing.push(source, payload);
        self.shared.after_push(outgoing)
    }

    /// Hands over a batch of payloads: packed ones of one size, or each after its u16 length. If the batch does not end with a whole payload, the
    /// payloads before are sent and the call fails.
    pub fn push_batch(
        &self,
        source: SourceId,
        shape: Shape,
        payloads: &[u8],
    ) -> Result<(), ClientError> {
        self.check_process()?;
        let mut outgoing = self.shared.outgoing();
        outgoing
            .push_batch(source, shape, payloads)
            .map_err(|error| self.shared.explain(error))?;
        self.shared.after_push(outgoing)
    }

    /// How many payloads were handed over since the connection began, sent or not.
    pub fn pushed(&self) -> u64 {
        self.shared.outgoing().pushed
    }

    /// Sends the content of the buffer, without waiting until the daemon takes it.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.check_process()?;
        let sent = self.shared.outgoing().send();
        sent.map_err(|error| self.shared.explain(error))
    }

    /// Returns when everything that was pushed before is visible to queries (durable, if the directory's durability is `batch`), with the counts.
    pub fn sync(&self) -> Result<Synced, ClientError> {
        self.sync_to(Depth::Configured)
    }

    /// Returns when everything that was pushed before is durable.
    pub fn sync_durable(&self) -> Result<Synced, ClientError> {
        self.sync_to(Depth::Durable)
    }

    /// Ends a source: its records stay readable, and later pushes to it are refused.
    pub fn close_source(&self, source: &str) -> Result<(), ClientError> {
        self.request(|request| Request::CloseSource { request, source })
            .map(drop)
    }

    /// Adds an index from TOML with its `name`, `value`, `where` and `bins`.
    pub fn add_index(&self, source: &str, toml: &str) -> Result<IndexId, ClientError> {
        self.check_document(toml)?;
        match self.request(|request| Request::AddIndex {
            request,
            source,
            toml,
        })? {
            Reply::IndexAdded { index, .. } => Ok(index),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends an index: it still answers for the records that it covered.
    pub fn close_index(&self, source: &str, index: &str) -> Result<(), ClientError> {
        self.request(|request| Request::CloseIndex {
            request,
            source,
            index,
        })
        .map(drop)
    }

    /// Reports rows to the daemon's ledger that would have become records of a source, and that this client itself refused.
    pub fn report_refused(
        &self,
        source: &str,
        records: u32,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.request(|request| Request::Refused {
            request,
            records,
            source,
            reason,
        })
        .map(drop)
    }

    /// Reports records of a source to the daemon's ledger that were lost before this client had them, or that it cannot push. Their times would have been
    /// in `span`; if the source has its own time, these are its times. The daemon does not count them as received. A query that asks for a complete
    /// window fails if the window and the span overlap.
    pub fn report_lost(
        &self,
        cause: LostCause,
        source: &str,
        records: u64,
        span: TimeRange,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.request(|request| Request::Lost {
            request,
            records,
            span,
            cause,
            source,
            reason,
        })
        .map(drop)
    }

    /// The sources and indexes of the directory, as the JSON of `PROTOCOL.md`.
    pub fn catalog(&self) -> Result<String, ClientError> {
        match self.request(|request| Request::Catalog { request })? {
            Reply::Catalog { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// Adds the rules of a TOML document with `[[rule]]` tables: all of them or none. They have no actions.
    pub fn add_rules(&self, toml: &str) -> Result<(), ClientError> {
        self.check_document(toml)?;
        self.request(|request| Request::AddRule { request, toml })
            .map(drop)
    }

    /// Ends a rule that was added.
    pub fn close_rule(&self, rule: &str) -> Result<(), ClientError> {
        self.request(|request| Request::CloseRule { request, rule })
            .map(drop)
    }

    /// The state of every rule, as the JSON of `PROTOCOL.md`.
    pub fn rules(&self) -> Result<String, ClientError> {
        match self.request(|request| Request::Rules { request })? {
            Reply::Rules { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps the records that arrived within a time as a pin, of these sources or of all, and returns it as the JSON of `PROTOCOL.md`. Only the daemon's
    /// user and root may.
    pub fn pin(
        &self,
        name: &str,
        within: Within,
        sources: &[String],
    ) -> Result<String, ClientError> {
        let sources = sources.join("\n");
        self.check_document(&sources)?;
        match self.request(|request| Request::Pin {
            request,
            within,
            name,
            sources: &sources,
        })? {
            Reply::Pinned { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// The daemon's state and counters, as the JSON of `PROTOCOL.md`.
    pub fn status(&self) -> Result<String, ClientError> {
        match self.request(|request| Request::Status { request })? {
            Reply::Status { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a ring in shared memory for the records of a source, and returns its producer's end. A capacity of 0 is the daemon's default. The syncs
    /// of this client cover the records that one thread pushes there. [`RingClient`] waits or drops as the source says.
    pub fn open_ring(
        &self,
        source: SourceId,
        capacity_bytes: u64,
    ) -> Result<Producer, ClientError> {
        let reply = self.request(|request| Request::Ring {
            request,
            source,
            capacity_bytes,
        })?;
        let descriptor = self.shared.replies().take_descriptor();
        match (reply, descriptor) {
            (Reply::Ring { .. }, Some(descriptor)) => Ok(Producer::open(descriptor)?),
            (Reply::Ring { .. }, None) => Err(ClientError::Protocol(
                "a ring came without its descriptor".to_owned(),
            )),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// A fork of the process has the descriptors but not the threads, and would mix its frames with those of its parent.
    #[inline]
    fn check_process(&self) -> Result<(), ClientError> {
        let is_own = self.opener.is_this_process();
        is_own.then_some(()).ok_or(PushError::Forked.into())
    }

    /// Whether the daemon has ended the connection. This waits for it up to `patience`.
    fn is_hung_up(&self, patience: Duration) -> bool {
        self.shared.hang_up.is_hung_up(patience)
    }

    /// Whether the connection is known to be over.
    fn has_ended(&self) -> bool {
        self.shared.replies().ended().is_some()
    }

    /// Ends the connection, even if a forked process has a copy of it. Everything that was sent before arrives.
    fn hang_up(&self) {
        self.shared.hang_up.hang_up();
    }

    fn sync_to(&self, depth: Depth) -> Result<Synced, ClientError> {
        match self.request(|request| Request::Sync { request, depth })? {
            Reply::Synced { synced, .. } => Ok(synced),
            other => Err(unexpected(&other)),
        }
    }

    fn check_document(&self, toml: &str) -> Result<(), ClientError> {
        // The frame also has the request's number and the name of a source.
        let limit = REQUEST_BODY_BYTES_MAX - 1024;
        if toml.len() > limit {
            return Err(ClientError::DocumentTooLong {
                bytes: toml.len(),
                limit,
            });
        }
        Ok(())
    }

    /// Sends a request behind all payloads, and waits for its reply. Only one request runs at a time.
    fn request<'a>(
        &self,
        make: impl FnOnce(RequestId) -> Request<'a>,
    ) -> Result<Reply, ClientError> {
        self.check_process()?;
        let mut replies = self.shared.replies();
        let request = replies.next_request();
        let sent = {
            let mut outgoing = self.shared.outgoing();
            outgoing.append(&make(request));
            outgoing.send()
        };
        if let Err(error) = sent {
            return Err(replies.last_word().unwrap_or(error));
        }
        let answer = replies.receive_answer(request);
        if let Some(ended) = replies.ended() {
            self.shared.outgoing().fail(ended);
        }
        answer
    }
}

impl Drop for Client {
    /// Sends the content of the buffer. Only a sync shows whether it arrived. In a fork of the process nothing happens.
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The thread belongs to the other process.
            std::mem::forget(self.flusher.take());
            return;
        }
        {
            let mut outgoing = self.shared.outgoing();
            outgoing.close();
            self.shared.wake.notify_all();
        }
        if let Some(flusher) = self.flusher.take() {
            // The flusher has no state that a panic could leave half done.
            let _ = flusher.join();
        }
    }
}

impl Shared {
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a full buffer, or wakes the flusher, which sends it in time.
    #[inline]
    fn after_push(&self, mut outgoing: MutexGuard<'_, Outgoing>) -> Result<(), ClientError> {
        if outgoing.must_send() {
            let sent = outgoing.send();
            drop(outgoing);
            return sent.map_err(|error| self.explain(error));
        }
        if outgoing.unpark() {
            drop(outgoing);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// The daemon's last message explains more than the failed write.
    fn explain(&self, error: ClientError) -> ClientError {
        match self.replies.try_lock() {
            Ok(mut replies) => replies.last_word().unwrap_or(error),
            Err(_) => error,
        }
    }

    /// Sends the content of the buffer every `interval`; sleeps while nothing is pushed.
    fn flush_regularly(&self, interval: Duration) {
        /// The number of empty intervals after which the flusher sleeps until a payload comes.
        const IDLE_INTERVALS: u32 = 8;
        let mut idle = 0;
        let mut outgoing = self.outgoing();
        while !outgoing.closing {
            if outgoing.is_empty() {
                idle += 1;
            } else {
                idle = 0;
                // The buffer keeps the error, and the next push or request reports it.
                let _ = outgoing.send();
            }
            outgoing = if idle >= IDLE_INTERVALS {
                idle = 0;
                outgoing.parked = true;
                self.wake
                    .wait_while(outgoing, |outgoing| outgoing.parked)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                self.wake
                    .wait_timeout(outgoing, interval)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
        }
        // The client ends, so nobody can receive an error.
        let _ = outgoing.send();
    }
}

/// The first of the sources that a document defined.
fn first_of(sources: &[(SourceId, String)]) -> Result<SourceId, ClientError> {
    let (source, _) = sources.first().ok_or_else(|| ClientError::Daemon {
        code: ErrorCode::Definition,
        message: "the definition has no [[source]]".to_owned(),
    })?;
    Ok(*source)
}

fn unexpected(reply: &Reply) -> ClientError {
    ClientError::Protocol(format!("a reply of another kind: {reply:?}"))
}
