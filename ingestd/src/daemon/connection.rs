//! One client's thread: reads big pieces of its stream, finds the frames, and hands whole buffers to the writer thread.
//!
//! It waits when its buffers are all with the writer thread, so a client is held back by its own records only.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use loom_engine::proven;

use super::buffer::{Buffer, Item};
use super::commands;
use super::message::{Frames, Gone, Inbox, Message};
use super::peer::Peer;
use crate::protocol::{
    ErrorCode, HEADER_BYTES, Header, Malformed, REQUEST_BODY_BYTES_MAX, Reply, Request, VERSION,
    Welcome,
};

/// One is filled while others are on their way.
pub(super) const BUFFERS_PER_CONNECTION: usize = 3;
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection that waits for a buffer looks whether the writer thread lives.
const WRITER_CHECK: Duration = Duration::from_secs(1);

/// Why a connection ends before its stream does.
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

/// What has been read from a client and is not handed over yet.
pub(super) struct Connection {
    peer: Arc<Peer>,
    inbox: Inbox,
    welcome: Welcome,
    free: Receiver<Buffer>,
    made: usize,
    buffer: Buffer,
    /// How much of the buffer holds bytes of the stream.
    filled: usize,
    /// How much of that is decoded: whole frames.
    decoded: usize,
    greeted: bool,
}

impl Connection {
    pub(super) fn new(id: u64, stream: UnixStream, inbox: Inbox, welcome: Welcome) -> Self {
        let (sender, free) = bounded(BUFFERS_PER_CONNECTION);
        Connection {
            peer: Arc::new(Peer::new(id, stream, sender)),
            inbox,
            welcome,
            free,
            made: 1,
            buffer: Buffer::new(),
            filled: 0,
            decoded: 0,
            greeted: false,
        }
    }

    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Serves the client until its stream ends. What it sent in whole frames is handed over by then.
    pub(super) fn serve(mut self) {
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
        let _ = self.peer.answer_patiently(&Reply::Error {
            request: None,
            code,
            message,
        });
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

    /// Reads what there is, as much as fits. False at the end of the stream.
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
                Request::Sync { request, depth } => {
                    self.buffer.items.push(Item::Sync { request, depth });
                }
                // Earlier pushes come first; the command is decoded again, as the first frame of another buffer.
                _ if !self.buffer.items.is_empty() => {
                    self.hand_over()?;
                    continue;
                }
                // The daemon stops, and what this client still asks for holds up the others.
                _ if self.peer.is_overdue() => return Err(End::Broken),
                command => {
                    if let Some(reply) = commands::carry_out(command, &self.inbox, &self.peer)? {
                        self.answer(&reply)?;
                    }
                }
            }
            self.decoded = body.end;
        }
        Ok(())
    }

    /// The next frame that is whole: its header, and where its body stands.
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
        self.peer
            .stream
            .set_read_timeout(None)
            .map_err(|_| End::Broken)?;
        self.answer(&Reply::Welcome(self.welcome))
    }

    fn answer(&self, reply: &Reply) -> Result<(), End> {
        self.peer.answer_patiently(reply).map_err(|_| End::Broken)
    }

    /// Gives the decoded frames to the writer thread and goes on in another buffer with what is not decoded.
    fn hand_over(&mut self) -> Result<(), Gone> {
        if self.buffer.items.is_empty() && self.decoded == 0 {
            return Ok(());
        }
        let undecoded = self.decoded..self.filled;
        let length = undecoded.len();
        if self.buffer.items.is_empty() {
            self.buffer.bytes.copy_within(undecoded, 0);
        } else {
            let mut next = self.free_buffer()?;
            proven::at_mut(&mut next.bytes, ..length)
                .copy_from_slice(proven::at(&self.buffer.bytes, undecoded));
            let full = std::mem::replace(&mut self.buffer, next);
            self.inbox.send(Message::Frames(Frames {
                peer: Arc::clone(&self.peer),
                buffer: full,
                next_item: 0,
                taken_bytes: 0,
                taken_records: 0,
            }))?;
        }
        self.filled = length;
        self.decoded = 0;
        Ok(())
    }

    /// An empty buffer; waits for the writer thread where all are with it.
    fn free_buffer(&mut self) -> Result<Buffer, Gone> {
        if let Ok(buffer) = self.free.try_recv() {
            return Ok(buffer);
        }
        if self.made < BUFFERS_PER_CONNECTION {
            self.made += 1;
            return Ok(Buffer::new());
        }
        loop {
            match self.free.recv_timeout(WRITER_CHECK) {
                Ok(buffer) => return Ok(buffer),
                Err(_) if !self.inbox.is_alive() => return Err(Gone),
                Err(_) => {}
            }
        }
    }
}
