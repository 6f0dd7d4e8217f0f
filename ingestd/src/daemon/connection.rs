//! One client's thread: reads big pieces of its stream, finds the frames, and hands whole buffers to the writer thread.
//!
//! It waits while all its buffers are with the writer thread, so a client is held back by its own records only.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use loom_engine::{SourceId, proven};

use super::answer::Gone;
use super::buffer::{Buffer, Item, Pool, SyncAnswer};
use super::commands;
use super::message::{Frames, Inbox, Message};
use super::peer::Peer;
use super::rings::Rings;
use super::rules::Rules;
use crate::protocol::{
    ErrorCode, HEADER_BYTES, Header, Malformed, REQUEST_BODY_BYTES_MAX, Reply, Request, RequestId,
    VERSION, Welcome,
};

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

enum End {
    Malformed(Malformed),
    Version(u16),
    /// The socket failed, or the client does not take its answers.
    Broken,
    WriterGone,
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        End::Malformed(malformed)
    }
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        End::WriterGone
    }
}

#[derive(Clone)]
pub(super) struct Service {
    pub(super) inbox: Inbox,
    pub(super) rings: Rings,
    pub(super) rules: Rules,
    pub(super) welcome: Welcome,
}

/// A client's stream from the last bytes that were handed over.
pub(super) struct Connection {
    peer: Arc<Peer>,
    service: Service,
    pool: Pool,
    buffer: Buffer,
    /// The bytes of the stream in the buffer.
    filled: usize,
    /// The whole frames among them that are decoded.
    decoded: usize,
    greeted: bool,
    has_rings: bool,
    /// The rings are drained for the frame that is decoded next.
    is_drained: bool,
}

impl Connection {
    pub(super) fn new(id: u64, stream: UnixStream, service: Service) -> Self {
        let mut pool = Pool::new();
        let buffer = pool.take().expect("a new pool has a buffer");
        Connection {
            peer: Arc::new(Peer::new(id, stream)),
            service,
            pool,
            buffer,
            filled: 0,
            decoded: 0,
            greeted: false,
            has_rings: false,
            is_drained: false,
        }
    }

    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Serves the client until its stream ends. By then its whole frames are handed over, and the records in its rings.
    pub(super) fn serve(mut self) {
        self.serve_stream();
        if self.has_rings {
            // A writer that is gone takes nothing more.
            let _ = self.service.rings.end(&self.peer);
        }
    }

    fn serve_stream(&mut self) {
        let ended = self.serve_frames().and_then(|()| Ok(self.hand_over()?));
        let (code, message) = match ended {
            Ok(()) => return,
            Err(End::Malformed(malformed)) => (ErrorCode::Malformed, malformed.to_string()),
            Err(End::Version(version)) => (
                ErrorCode::Version,
                format!("protocol version {version} is unknown; use a client of version {VERSION}"),
            ),
            Err(End::Broken) => return self.peer.disconnect(),
            Err(End::WriterGone) => (
                ErrorCode::Failed,
                "the daemon's writer thread has failed; its log says why; start the daemon again"
                    .to_owned(),
            ),
        };
        // Frames before a malformed one count. A writer that is gone takes none, and the client learns that already.
        let _ = self.hand_over();
        // A client that does not take the answer is disconnected like any other.
        let error = Reply::Error {
            request: None,
            code,
            message,
        };
        let _ = self.peer.answer(&error, None);
        self.peer.disconnect();
    }

    fn serve_frames(&mut self) -> Result<(), End> {
        let stream = &self.peer.stream;
        stream
            .set_read_timeout(Some(HELLO_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(|_| End::Broken)?;
        while self.read()? {
            self.decode()?;
            self.hand_over()?;
        }
        Ok(())
    }

    /// Reads as much as there is and fits. False at the end of the stream.
    fn read(&mut self) -> Result<bool, End> {
        let room = proven::at_mut(&mut self.buffer.bytes, self.filled..);
        assert!(
            !room.is_empty(),
            "a frame fits into a buffer, but {} bytes hold no whole one",
            self.filled
        );
        loop {
            match (&self.peer.stream).read(room) {
                Ok(0) => return Ok(false),
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Broken),
            }
        }
    }

    /// Decodes the whole frames that are there. Pushes and syncs become items; other requests are carried out.
    fn decode(&mut self) -> Result<(), End> {
        while let Some((header, body)) = self.next_frame()? {
            let bytes = proven::at(&self.buffer.bytes, body.clone());
            match Request::decode(header, bytes)? {
                Request::Hello { version, .. } => self.greet(version)?,
                _ if !self.greeted => return Err(Malformed::NotLoom.into()),
                Request::Push(push) => {
                    // The payloads are the last bytes of the body.
                    let start = body.end - push.bytes.len();
                    self.buffer.items.push(Item::Push {
                        source: push.source,
                        shape: push.shape,
                        range: start..body.end,
                        records: push.records,
                    });
                }
                // Records that the client pushed into its rings before the request come first.
                _ if self.has_rings && !self.is_drained => {
                    self.hand_over()?;
                    self.service.rings.drain(&self.peer)?;
                    self.is_drained = true;
                    continue;
                }
                Request::Sync { request, depth } => {
                    let answer = SyncAnswer::Client(request);
                    self.buffer.items.push(Item::Sync { depth, answer });
                }
                // Earlier pushes come first; the command is decoded again, as the first frame of another buffer.
                _ if !self.buffer.items.is_empty() => {
                    self.hand_over()?;
                    continue;
                }
                // The daemon stops, and further requests of this client hold up the others.
                _ if self.peer.is_overdue() => return Err(End::Broken),
                Request::Ring {
                    request,
                    source,
                    capacity_bytes,
                } => self.open_ring(request, source, capacity_bytes)?,
                command => {
                    let Service { inbox, rules, .. } = &self.service;
                    if let Some(reply) = commands::carry_out(command, inbox, rules, &self.peer)? {
                        self.answer(&reply)?;
                    }
                }
            }
            self.decoded = body.end;
            self.is_drained = false;
        }
        Ok(())
    }

    fn open_ring(
        &mut self,
        request: RequestId,
        source: SourceId,
        capacity_bytes: u64,
    ) -> Result<(), End> {
        let Service { inbox, rings, .. } = &self.service;
        let reply = match rings.open(inbox, &self.peer, source, capacity_bytes)? {
            Ok((descriptor, capacity_bytes)) => {
                self.has_rings = true;
                let reply = Reply::Ring {
                    request,
                    capacity_bytes,
                };
                let sent = self.peer.answer(&reply, Some(descriptor.as_fd()));
                return sent.map_err(|_| End::Broken);
            }
            Err((code, message)) => Reply::Error {
                request: Some(request),
                code,
                message,
            },
        };
        self.answer(&reply)
    }

    /// The next whole frame: its header, and the range of its body.
    fn next_frame(&self) -> Result<Option<(Header, std::ops::Range<usize>)>, Malformed> {
        let rest = proven::at(&self.buffer.bytes, self.decoded..self.filled);
        let Some(header) = Header::decode(rest, REQUEST_BODY_BYTES_MAX) else {
            return Ok(None);
        };
        let header = header?;
        let start = self.decoded + HEADER_BYTES;
        let end = start + header.body_bytes;
        Ok((end <= self.filled).then_some((header, start..end)))
    }

    fn greet(&mut self, version: u16) -> Result<(), End> {
        if self.greeted {
            return Err(Malformed::Reserved("hello").into());
        }
        if version != VERSION {
            return Err(End::Version(version));
        }
        self.greeted = true;
        let unlimited = self.peer.stream.set_read_timeout(None);
        unlimited.map_err(|_| End::Broken)?;
        self.answer(&Reply::Welcome(self.service.welcome))
    }

    fn answer(&self, reply: &Reply) -> Result<(), End> {
        self.peer.answer(reply, None).map_err(|_| End::Broken)
    }

    /// Gives the decoded frames to the writer thread, and goes on in another buffer with the rest.
    fn hand_over(&mut self) -> Result<(), Gone> {
        if self.buffer.items.is_empty() && self.decoded == 0 {
            return Ok(());
        }
        let undecoded = self.decoded..self.filled;
        let length = undecoded.len();
        if self.buffer.items.is_empty() {
            self.buffer.bytes.copy_within(undecoded, 0);
        } else {
            let mut next = self.pool.take_or_wait(self.service.inbox.alive())?;
            proven::at_mut(&mut next.bytes, ..length)
                .copy_from_slice(proven::at(&self.buffer.bytes, undecoded));
            let full = std::mem::replace(&mut self.buffer, next);
            let frames = Frames::new(&self.peer, full, self.pool.home());
            self.service.inbox.send(Message::Frames(frames))?;
        }
        self.filled = length;
        self.decoded = 0;
        Ok(())
    }
}
