//! A frame's header, the cursor that decodes a body, and the errors of both.

use loom_engine::{SourceId, TimeRange, Timestamp, proven};
use thiserror::Error;

/// Bytes before a frame's body.
pub const HEADER_BYTES: usize = 8;
/// The size of a client's longest frame with its header; the daemon's buffers have this size.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
/// The longest body of a client's frame.
pub const REQUEST_BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;
/// The longest body of a daemon's frame.
pub const REPLY_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The ways in which bytes can fail to be a frame of this protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Malformed {
    #[error("a frame body of {bytes} bytes is longer than the limit of {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("a frame has the unknown kind {0:#04x}")]
    UnknownKind(u8),
    #[error("a {0} frame ends too early")]
    Short(&'static str),
    #[error("a {0} frame has {1} bytes too many")]
    Trailing(&'static str, usize),
    #[error("a {0} frame has text that is not UTF-8")]
    NotUtf8(&'static str),
    #[error("a {0} frame has a reserved byte that is not 0, or an unknown value")]
    Reserved(&'static str),
    #[error("the first frame is not a hello that begins with LOOMSOCK")]
    NotLoom,
    #[error(
        "a lost frame has records that were lost between {first} ns and {last} ns; the second time must not come before the first"
    )]
    Backward { first: i64, last: i64 },
    #[error("a request number is 0; use another one")]
    RequestZero,
    #[error("a push of {bytes} bytes is not a multiple of its payloads of {record_bytes} bytes")]
    Ragged { bytes: usize, record_bytes: usize },
}

/// The reason in an error frame; the discriminant is the number on the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ErrorCode {
    Malformed = 1,
    Version = 2,
    TooManyConnections = 3,
    NotPermitted = 4,
    NotFound = 5,
    Definition = 6,
    Failed = 7,
    Stopping = 8,
}

impl ErrorCode {
    pub(super) fn from_wire(code: u16) -> Option<ErrorCode> {
        use ErrorCode::*;
        [
            Malformed,
            Version,
            TooManyConnections,
            NotPermitted,
            NotFound,
            Definition,
            Failed,
            Stopping,
        ]
        .into_iter()
        .find(|known| *known as u16 == code)
    }
}

/// The eight bytes before each body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub body_bytes: usize,
    pub kind: u8,
    /// The source of a push; otherwise 0.
    pub source: u16,
}

impl Header {
    /// Decodes the header at the start of `bytes`; `None` if there are fewer than eight.
    pub fn decode(bytes: &[u8], body_bytes_max: usize) -> Option<Result<Header, Malformed>> {
        let (head, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [l0, l1, l2, l3, kind, zero, s0, s1] = *head;
        let body_bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        Some(if body_bytes > body_bytes_max {
            Err(Malformed::TooLong {
                bytes: body_bytes,
                limit: body_bytes_max,
            })
        } else if zero != 0 {
            Err(Malformed::Reserved("unknown"))
        } else {
            Ok(Header {
                body_bytes,
                kind,
                source: u16::from_le_bytes([s0, s1]),
            })
        })
    }
}

/// Appends a frame to `out`: the header, and the body that `body` writes. The length is filled in afterwards.
pub(super) fn write_frame(
    out: &mut Vec<u8>,
    kind: u8,
    source: Option<SourceId>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let [s0, s1] = source.map_or(0, |source| source.0).to_le_bytes();
    out.extend_from_slice(&[0, 0, 0, 0, kind, 0, s0, s1]);
    body(out);
    fill_length(out, start);
}

/// Fills in the length of the frame that takes `out` from `start` to its end.
pub(crate) fn fill_length(out: &mut [u8], start: usize) {
    let body_bytes = proven::at(out, start + HEADER_BYTES..).len();
    let body_bytes = u32::try_from(body_bytes).expect("a frame is shorter than 4 GiB");
    proven::at_mut(out, start..start + 4).copy_from_slice(&body_bytes.to_le_bytes());
}

/// Appends a text behind its length of two bytes. A text of more than 65,535 bytes is cut between two characters.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    let (text, _) = text.split_at(text.floor_char_boundary(usize::from(u16::MAX)));
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Reads a body from front to back.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    frame: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(frame: &'static str, body: &'a [u8]) -> Self {
        Cursor { rest: body, frame }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::Short(self.frame))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A span of time that is not empty.
    pub(super) fn span(&mut self) -> Result<TimeRange, Malformed> {
        let (first, last) = (self.i64()?, self.i64()?);
        if first > last {
            return Err(Malformed::Backward { first, last });
        }
        Ok(TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        })
    }

    pub(super) fn zeroes<const N: usize>(&mut self) -> Result<(), Malformed> {
        if self.array::<N>()? == [0; N] {
            Ok(())
        } else {
            Err(Malformed::Reserved(self.frame))
        }
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Malformed::Short(self.frame))?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.u16()?;
        let bytes = self.bytes(usize::from(length))?;
        self.utf8(bytes)
    }

    /// The rest, as bytes.
    pub(super) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The rest, as text.
    pub(super) fn document(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.remainder();
        self.utf8(bytes)
    }

    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(Malformed::Trailing(self.frame, more)),
        }
    }

    fn utf8(&self, bytes: &'a [u8]) -> Result<&'a str, Malformed> {
        std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8(self.frame))
    }
}
