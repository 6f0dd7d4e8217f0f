//! The clients: one that ends with its daemon, one that outlasts it, and one that pushes through rings.
//!
//! `push` copies the payload into a buffer and returns; the buffer goes to the daemon when it holds 64 KiB, when its
//! oldest payload is 2 ms old, or with any request. A client may be shared by threads; records keep the order in
//! which they were pushed. Where the daemon is slower than its producers, `push` waits (or the daemon drops, where
//! the source says so). A [`Client`] ends with its daemon; a [`LastingClient`] goes on with the next one.

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
    VERSION, Welcome,
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

/// What the socket may hold: the longest frame, so that it takes one at once.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// When a client's buffer goes to the daemon.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What the daemon calls this client, for people.
    pub name: String,
    /// Send when this many bytes have gathered; at most 128 KiB.
    pub flush_bytes: usize,
    /// Send at the latest after this time.
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

/// What the client's threads share: the way out, and the way in for the one request under way.
struct Shared {
    outgoing: Mutex<Outgoing>,
    /// Wakes the flusher: a first payload stands in an empty buffer, or the client closes.
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

    /// Connects without the thread that sends payloads in time: a request sends them.
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
        // Where the kernel allows less, a long send waits for the daemon more often.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        let hang_up = HangUp::new(stream.try_clone()?);
        let mut replies = Replies::new(stream.try_clone()?);
        let mut outgoing = Outgoing::new(stream, options.flush_bytes.min(128 * 1024));
        outgoing.append(&Request::Hello {
            version: VERSION,
            client: &options.name,
        });
        // A daemon that is full answers without waiting for the hello, so its word counts more than the failed send.
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

    /// The daemon's answer to the hello: its limits, and the directory's UUID.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Defines every `[[source]]` of a TOML document and returns their ids in its order. A source that exists is not an
    /// error; fields may be added after the existing ones.
    pub fn define(&self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        self.check_document(toml)?;
        match self.request(|request| Request::Define { request, toml })? {
            Reply::Defined { sources, .. } => Ok(sources),
            other => Err(unexpected(&other)),
        }
    }

    /// Defines the first source of a TOML document, as [`Client::define`] does.
    pub fn define_one(&self, toml: &str) -> Result<SourceId, ClientError> {
        first_of(&self.define(toml)?)
    }

    /// Hands one payload over, in the layout of its source (`FORMAT.md`, *Payload*). Returns at once unless a full
    /// buffer has to be sent first.
    #[inline]
    pub fn push(&self, source: SourceId, payload: &[u8]) -> Result<(), ClientError> {
        // The daemon's word alone does not make a length fit into its two bytes.
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

    /// Hands over a batch of payloads: packed ones of one size, or each behind its u16 length. Where it does not end
    /// with a whole payload, those before are sent, and an error says so.
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

    /// Payloads handed over since the connection began, sent or not.
    pub fn pushed(&self) -> u64 {
        self.shared.outgoing().pushed()
    }

    /// Sends what the buffer holds, without waiting for the daemon to take it in.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.check_process()?;
        let sent = self.shared.outgoing().send();
        sent.map_err(|error| self.shared.explain(error))
    }

    /// Returns when everything pushed before is visible to queries (durable, where the directory's durability is
    /// `batch`), with the counts of what became of it.
    pub fn sync(&self) -> Result<Synced, ClientError> {
        self.sync_to(Depth::Configured)
    }

    /// Returns when everything pushed before is durable.
    pub fn sync_durable(&self) -> Result<Synced, ClientError> {
        self.sync_to(Depth::Durable)
    }

    /// Ends a source: what it holds stays readable, and what is pushed to it afterwards is refused.
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

    /// Ends an index: it keeps answering for the records that it covered.
    pub fn close_index(&self, source: &str, index: &str) -> Result<(), ClientError> {
        self.request(|request| Request::CloseIndex {
            request,
            source,
            index,
        })
        .map(drop)
    }

    /// Enters rows that were to become records of a source, and that this client refused itself, in the daemon's ledger.
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

    /// Enters records of a source in the daemon's ledger that were lost before this client had them, in the kernel. Each would have had a time
    /// in `span`, by the source's own time if it has one. They are in no count of what the daemon received; a query that asks for a complete
    /// window fails if the window and the span overlap.
    pub fn report_lost(
        &self,
        source: &str,
        records: u64,
        span: TimeRange,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.report_lost_by(LostCause::Kernel, source, records, span, reason)
    }

    fn report_lost_by(
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

    /// Adds the rules of a TOML document with `[[rule]]` tables, all or none. They have no actions.
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

    /// Every rule as it stands, as the JSON of `PROTOCOL.md`.
    pub fn rules(&self) -> Result<String, ClientError> {
        match self.request(|request| Request::Rules { request })? {
            Reply::Rules { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// What the daemon does and has counted, as the JSON of `PROTOCOL.md`.
    pub fn status(&self) -> Result<String, ClientError> {
        match self.request(|request| Request::Status { request })? {
            Reply::Status { json, .. } => Ok(json),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a ring in shared memory for the records of a source, and returns its producer's end. A capacity of 0 is the daemon's default.
    /// What one thread pushes there is covered by the syncs of this client. [`RingClient`] waits and drops as the source says.
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

    /// A fork of the process has the descriptors but not the threads, and would mix its frames with the other's.
    #[inline]
    fn check_process(&self) -> Result<(), ClientError> {
        let is_own = self.opener.is_this_process();
        is_own.then_some(()).ok_or(PushError::Forked.into())
    }

    /// Whether the daemon has ended the connection; waits for that as long as `patience`.
    fn is_hung_up(&self, patience: Duration) -> bool {
        self.shared.hang_up.is_hung_up(patience)
    }

    /// Whether the connection is known to be over.
    fn has_ended(&self) -> bool {
        self.shared.replies().ended().is_some()
    }

    /// Ends the connection, also where a forked process holds a copy of it. What was sent before arrives.
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
        // Room for the request's number and a source's name beside it.
        let limit = REQUEST_BODY_BYTES_MAX - 1024;
        if toml.len() > limit {
            return Err(ClientError::DocumentTooLong {
                bytes: toml.len(),
                limit,
            });
        }
        Ok(())
    }

    /// Sends a request behind all payloads and waits for its reply. One request is under way at a time.
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
    /// Sends what the buffer holds. Only a sync shows whether it arrived. In a fork of the process nothing happens.
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The thread is the other process's.
            std::mem::forget(self.flusher.take());
            return;
        }
        {
            let mut outgoing = self.shared.outgoing();
            outgoing.close();
            self.shared.wake.notify_all();
        }
        if let Some(flusher) = self.flusher.take() {
            // The flusher holds no state that a panic could leave half done.
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

    /// Sends a full buffer, or sees to it that somebody sends it in time.
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

    /// What the daemon said before it closed the connection is the better reason than the failed write.
    fn explain(&self, error: ClientError) -> ClientError {
        match self.replies.try_lock() {
            Ok(mut replies) => replies.last_word().unwrap_or(error),
            Err(_) => error,
        }
    }

    /// Sends what stands in the buffer every `interval`; sleeps while nothing is pushed.
    fn flush_regularly(&self, interval: Duration) {
        /// Empty intervals in a row after which the flusher sleeps until a payload comes.
        const IDLE_INTERVALS: u32 = 8;
        let mut idle = 0;
        let mut outgoing = self.outgoing();
        while !outgoing.is_closing() {
            if outgoing.is_empty() {
                idle += 1;
            } else {
                idle = 0;
                // The error stays with the buffer, and the next push or request reports it.
                let _ = outgoing.send();
            }
            outgoing = if idle >= IDLE_INTERVALS {
                idle = 0;
                outgoing.park();
                self.wake
                    .wait_while(outgoing, |outgoing| outgoing.is_parked())
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                self.wake
                    .wait_timeout(outgoing, interval)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
        }
        // The client ends, and nobody is left to report an error to.
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
