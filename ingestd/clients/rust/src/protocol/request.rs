//! The frames that a client sends.

use std::num::NonZeroU32;

use loom_engine::{SourceId, TimeRange};

use super::frame::{Cursor, Header, Malformed, fill_length, write_frame, write_text};

/// The first bytes of a hello.
pub const MAGIC: [u8; 8] = *b"LOOMSOCK";
/// The version of the protocol.
pub const VERSION: u16 = 1;

/// The number that connects a reply with its request.
pub type RequestId = NonZeroU32;

/// The layout of the payloads in a push.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Packed; each has this many bytes.
    Fixed { record_bytes: u16 },
    /// Packed; each comes after its length, a u16.
    Framed,
}

impl Shape {
    /// The first payload and the bytes after it; `None` if it is not whole.
    pub fn split(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        match self {
            Shape::Fixed { record_bytes: 0 } => None,
            Shape::Fixed { record_bytes } => bytes.split_at_checked(record_bytes.into()),
            Shape::Framed => {
                let (length, rest) = bytes.split_first_chunk::<2>()?;
                rest.split_at_checked(u16::from_le_bytes(*length).into())
            }
        }
    }

    /// How many payloads are in `bytes`; `None` if the last one is not whole.
    pub fn records(self, bytes: &[u8]) -> Option<u64> {
        let mut rest = bytes;
        let mut records = 0;
        while !rest.is_empty() {
            (_, rest) = self.split(rest)?;
            records += 1;
        }
        Some(records)
    }

    /// How many bytes the payloads alone take, of `bytes` bytes with `records` payloads.
    pub fn payload_bytes(self, bytes: usize, records: u64) -> u64 {
        match self {
            Shape::Fixed { .. } => bytes as u64,
            Shape::Framed => {
                let lengths = 2 * records;
                assert!(
                    lengths <= bytes as u64,
                    "{records} framed payloads take more than {bytes} bytes"
                );
                bytes as u64 - lengths
            }
        }
    }
}

/// A batch of payloads of one source.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Push<'a> {
    pub source: SourceId,
    pub shape: Shape,
    pub bytes: &'a [u8],
    /// How many payloads are in `bytes`.
    pub records: u64,
}

/// The state that a sync waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Visible, or durable if the directory's durability is `batch`.
    Configured,
    Durable,
}

/// Where records were lost before a request could bring them to a daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LostCause {
    /// In the kernel, before the client had them.
    Kernel,
    /// In the client, which dropped them because its ring was full. No daemon has counted them.
    RingFull,
    /// In a daemon that was killed while it stored them: the log may have them or not.
    DaemonKilled,
    /// In the kernel, by choice: the recorder left them out to save time.
    Sampled,
}

/// One frame of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Hello {
        version: u16,
        client: &'a str,
    },
    Push(Push<'a>),
    Sync {
        request: RequestId,
        depth: Depth,
    },
    Define {
        request: RequestId,
        /// The client has defined the sources before: what was closed since stays closed.
        again: bool,
        toml: &'a str,
    },
    CloseSource {
        request: RequestId,
        source: &'a str,
    },
    AddIndex {
        request: RequestId,
        source: &'a str,
        toml: &'a str,
    },
    CloseIndex {
        request: RequestId,
        source: &'a str,
        index: &'a str,
    },
    Catalog {
        request: RequestId,
    },
    Status {
        request: RequestId,
    },
    /// A ring in shared memory for the records of a source.
    Ring {
        request: RequestId,
        source: SourceId,
        /// 0 is the daemon's default.
        capacity_bytes: u64,
    },
    /// The client itself refused input that would have become records of a source.
    Refused {
        request: RequestId,
        records: u32,
        source: &'a str,
        reason: &'a str,
    },
    /// Records of a source were lost before this daemon had them. Their times would have been in `span`; if the source has its own time, these are
    /// its times.
    Lost {
        request: RequestId,
        records: u64,
        span: TimeRange,
        cause: LostCause,
        source: &'a str,
        reason: &'a str,
    },
    /// Rules without actions.
    AddRule {
        request: RequestId,
        toml: &'a str,
    },
    CloseRule {
        request: RequestId,
        rule: &'a str,
    },
    Rules {
        request: RequestId,
    },
    /// Records are to be kept as a pin.
    Pin {
        request: RequestId,
        within: Within,
        name: &'a str,
        /// The names of the sources, each on a line; empty for all.
        sources: &'a str,
    },
}

/// The arrival of records that are to be kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Within {
    /// So many nanoseconds before now.
    Last(u64),
    Span(TimeRange),
}

const HELLO: u8 = 0x01;
const PUSH_FIXED: u8 = 0x02;
const PUSH_FRAMED: u8 = 0x03;
const SYNC: u8 = 0x04;
const DEFINE: u8 = 0x05;
const CLOSE_SOURCE: u8 = 0x06;
const ADD_INDEX: u8 = 0x07;
const CLOSE_INDEX: u8 = 0x08;
const CATALOG: u8 = 0x09;
const STATUS: u8 = 0x0A;
const REFUSED: u8 = 0x0B;
const RING: u8 = 0x0C;
const LOST: u8 = 0x0D;
const ADD_RULE: u8 = 0x0E;
const CLOSE_RULE: u8 = 0x0F;
const RULES: u8 = 0x10;
const DROPPED: u8 = 0x11;
const UNSURE: u8 = 0x12;
const PIN: u8 = 0x13;
const PIN_SPAN: u8 = 0x14;
const DEFINE_AGAIN: u8 = 0x15;
const SAMPLED: u8 = 0x16;

impl<'a> Request<'a> {
    /// Decodes the frame with this header and body; the body must have the header's length.
    pub fn decode(header: Header, body: &'a [u8]) -> Result<Request<'a>, Malformed> {
        match header.kind {
            PUSH_FIXED => return decode_fixed(SourceId(header.source), body),
            PUSH_FRAMED => return decode_framed(SourceId(header.source), body),
            _ if header.source != 0 => return Err(Malformed::Reserved("request")),
            _ => {}
        }
        let name = match header.kind {
            HELLO => "hello",
            SYNC => "sync",
            DEFINE => "define",
            CLOSE_SOURCE => "close source",
            ADD_INDEX => "add index",
            CLOSE_INDEX => "close index",
            CATALOG => "catalog",
            STATUS => "status",
            REFUSED => "refused",
            RING => "ring",
            LOST => "lost",
            ADD_RULE => "add rule",
            CLOSE_RULE => "close rule",
            RULES => "rules",
            DROPPED => "dropped",
            UNSURE => "unsure",
            PIN => "pin",
            PIN_SPAN => "pin span",
            DEFINE_AGAIN => "define again",
            SAMPLED => "sampled",
            unknown => return Err(Malformed::UnknownKind(unknown)),
        };
        let mut cursor = Cursor::new(name, body);
        if header.kind == HELLO {
            return decode_hello(cursor);
        }
        let request = RequestId::new(cursor.u32()?).ok_or(Malformed::RequestZero)?;
        let decoded = match header.kind {
            SYNC => {
                let depth = match cursor.u8()? {
                    0 => Depth::Configured,
                    1 => Depth::Durable,
                    _ => return Err(Malformed::Reserved(name)),
                };
                cursor.zeroes::<3>()?;
                Request::Sync { request, depth }
            }
            DEFINE | DEFINE_AGAIN => Request::Define {
                request,
                again: header.kind == DEFINE_AGAIN,
                toml: cursor.document()?,
            },
            CLOSE_SOURCE => Request::CloseSource {
                request,
                source: cursor.text()?,
            },
            ADD_INDEX => Request::AddIndex {
                request,
                source: cursor.text()?,
                toml: cursor.document()?,
            },
            CLOSE_INDEX => Request::CloseIndex {
                request,
                source: cursor.text()?,
                index: cursor.text()?,
            },
            CATALOG => Request::Catalog { request },
            REFUSED => Request::Refused {
                request,
                records: cursor.u32()?,
                source: cursor.text()?,
                reason: cursor.document()?,
            },
            RING => {
                let source = SourceId(cursor.u16()?);
                cursor.zeroes::<2>()?;
                Request::Ring {
                    request,
                    source,
                    capacity_bytes: cursor.u64()?,
                }
            }
            LOST | DROPPED | UNSURE | SAMPLED => Request::Lost {
                request,
                records: cursor.u64()?,
                span: cursor.span()?,
                cause: match header.kind {
                    LOST => LostCause::Kernel,
                    DROPPED => LostCause::RingFull,
                    SAMPLED => LostCause::Sampled,
                    _ => LostCause::DaemonKilled,
                },
                source: cursor.text()?,
                reason: cursor.document()?,
            },
            ADD_RULE => Request::AddRule {
                request,
                toml: cursor.document()?,
            },
            CLOSE_RULE => Request::CloseRule {
                request,
                rule: cursor.text()?,
            },
            RULES => Request::Rules { request },
            PIN | PIN_SPAN => Request::Pin {
                request,
                within: match header.kind {
                    PIN => Within::Last(cursor.u64()?),
                    _ => Within::Span(cursor.span()?),
                },
                name: cursor.text()?,
                sources: cursor.document()?,
            },
            _ => Request::Status { request },
        };
        cursor.end()?;
        Ok(decoded)
    }

    /// Appends the frame to `out`. The daemon refuses one whose body is longer than the limit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let plain = |out: &mut Vec<u8>, kind, request: RequestId, parts: &[&str], last: &str| {
            write_frame(out, kind, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                for part in parts {
                    write_text(body, part);
                }
                body.extend_from_slice(last.as_bytes());
            });
        };
        match *self {
            Request::Hello { version, client } => write_frame(out, HELLO, None, |body| {
                body.extend_from_slice(&MAGIC);
                body.extend_from_slice(&version.to_le_bytes());
                write_text(body, client);
            }),
            Request::Push(push) => encode_push(out, push),
            Request::Sync { request, depth } => write_frame(out, SYNC, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                body.extend_from_slice(&[u8::from(depth == Depth::Durable), 0, 0, 0]);
            }),
            Request::Define {
                request,
                again,
                toml,
            } => {
                let kind = if again { DEFINE_AGAIN } else { DEFINE };
                plain(out, kind, request, &[], toml);
            }
            Request::CloseSource { request, source } => {
                plain(out, CLOSE_SOURCE, request, &[source], "");
            }
            Request::AddIndex {
                request,
                source,
                toml,
            } => plain(out, ADD_INDEX, request, &[source], toml),
            Request::CloseIndex {
                request,
                source,
                index,
            } => plain(out, CLOSE_INDEX, request, &[source, index], ""),
            Request::Catalog { request } => plain(out, CATALOG, request, &[], ""),
            Request::Status { request } => plain(out, STATUS, request, &[], ""),
            Request::AddRule { request, toml } => plain(out, ADD_RULE, request, &[], toml),
            Request::CloseRule { request, rule } => plain(out, CLOSE_RULE, request, &[rule], ""),
            Request::Rules { request } => plain(out, RULES, request, &[], ""),
            Request::Pin {
                request,
                within,
                name,
                sources,
            } => {
                let kind = match within {
                    Within::Last(_) => PIN,
                    Within::Span(_) => PIN_SPAN,
                };
                write_frame(out, kind, None, |body| {
                    body.extend_from_slice(&request.get().to_le_bytes());
                    match within {
                        Within::Last(ns) => body.extend_from_slice(&ns.to_le_bytes()),
                        Within::Span(TimeRange { first, last }) => {
                            body.extend_from_slice(&first.0.to_le_bytes());
                            body.extend_from_slice(&last.0.to_le_bytes());
                        }
                    }
                    write_text(body, name);
                    body.extend_from_slice(sources.as_bytes());
                });
            }
            Request::Ring {
                request,
                source,
                capacity_bytes,
            } => write_frame(out, RING, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                body.extend_from_slice(&source.0.to_le_bytes());
                body.extend_from_slice(&[0, 0]);
                body.extend_from_slice(&capacity_bytes.to_le_bytes());
            }),
            Request::Refused {
                request,
                records,
                source,
                reason,
            } => write_frame(out, REFUSED, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                body.extend_from_slice(&records.to_le_bytes());
                write_text(body, source);
                body.extend_from_slice(reason.as_bytes());
            }),
            Request::Lost {
                request,
                records,
                span,
                cause,
                source,
                reason,
            } => {
                let kind = match cause {
                    LostCause::Kernel => LOST,
                    LostCause::RingFull => DROPPED,
                    LostCause::DaemonKilled => UNSURE,
                    LostCause::Sampled => SAMPLED,
                };
                write_frame(out, kind, None, |body| {
                    body.extend_from_slice(&request.get().to_le_bytes());
                    body.extend_from_slice(&records.to_le_bytes());
                    body.extend_from_slice(&span.first.0.to_le_bytes());
                    body.extend_from_slice(&span.last.0.to_le_bytes());
                    write_text(body, source);
                    body.extend_from_slice(reason.as_bytes());
                });
            }
        }
    }
}

impl Shape {
    /// Appends the part of a push before its payloads: the frame's header, with a length of 0 that [`fill_length`] replaces, and the size of fixed
    /// payloads.
    pub(crate) fn begin(self, source: SourceId, out: &mut Vec<u8>) {
        match self {
            Shape::Fixed { record_bytes } => {
                write_frame(out, PUSH_FIXED, Some(source), |body| {
                    body.extend_from_slice(&record_bytes.to_le_bytes());
                    body.extend_from_slice(&[0, 0]);
                });
            }
            Shape::Framed => write_frame(out, PUSH_FRAMED, Some(source), |_| {}),
        }
    }
}

fn encode_push(out: &mut Vec<u8>, push: Push<'_>) {
    let start = out.len();
    push.shape.begin(push.source, out);
    out.extend_from_slice(push.bytes);
    fill_length(out, start);
}

fn decode_hello(mut cursor: Cursor<'_>) -> Result<Request<'_>, Malformed> {
    if cursor.array()? != MAGIC {
        return Err(Malformed::NotLoom);
    }
    let version = cursor.u16()?;
    if version != VERSION {
        // The rest of the frame depends on that version, and the answer needs only the version.
        return Ok(Request::Hello {
            version,
            client: "",
        });
    }
    let client = cursor.text()?;
    cursor.end()?;
    Ok(Request::Hello { version, client })
}

fn decode_fixed(source: SourceId, body: &[u8]) -> Result<Request<'_>, Malformed> {
    let mut cursor = Cursor::new("push", body);
    let record_bytes = cursor.u16()?;
    cursor.zeroes::<2>()?;
    let bytes = cursor.remainder();
    let each = usize::from(record_bytes);
    let Some(0) = bytes.len().checked_rem(each) else {
        return Err(Malformed::Ragged {
            bytes: bytes.len(),
            record_bytes: each,
        });
    };
    Ok(Request::Push(Push {
        source,
        shape: Shape::Fixed { record_bytes },
        bytes,
        records: (bytes.len() / each) as u64,
    }))
}

fn decode_framed(source: SourceId, body: &[u8]) -> Result<Request<'_>, Malformed> {
    let mut rest = body;
    let mut records = 0;
    while !rest.is_empty() {
        let (length, after) = rest
            .split_first_chunk::<2>()
            .ok_or(Malformed::Short("push"))?;
        let length = usize::from(u16::from_le_bytes(*length));
        rest = after.get(length..).ok_or(Malformed::Short("push"))?;
        records += 1;
    }
    Ok(Request::Push(Push {
        source,
        shape: Shape::Framed,
        bytes: body,
        records,
    }))
}

#[cfg(test)]
mod tests {
    use loom_engine::Timestamp;
    use proptest::prelude::*;

    use super::super::{HEADER_BYTES, REQUEST_BODY_BYTES_MAX};
    use super::*;

    fn decode(frame: &[u8]) -> Result<Request<'_>, Malformed> {
        let header = Header::decode(frame, REQUEST_BODY_BYTES_MAX).unwrap()?;
        assert_eq!(header.body_bytes, frame.len() - HEADER_BYTES);
        Request::decode(header, &frame[HEADER_BYTES..])
    }

    fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    proptest! {
        #[test]
        fn every_request_survives_its_encoding(
            kind in 0..16usize, number in 1u32.., durable: bool,
            a in "\\PC{0,40}", b in "\\PC{0,200}", version: u16, source: u16,
        ) {
            let request = RequestId::new(number).unwrap();
            let sent = match kind {
                0 if version == VERSION => Request::Hello { version, client: &a },
                0 => Request::Hello { version, client: "" },
                1 => Request::Sync { request, depth: if durable { Depth::Durable } else { Depth::Configured } },
                2 => Request::Define { request, again: durable, toml: &b },
                3 => Request::CloseSource { request, source: &a },
                4 => Request::AddIndex { request, source: &a, toml: &b },
                5 => Request::CloseIndex { request, source: &a, index: &b },
                6 => Request::Catalog { request },
                7 => Request::Status { request },
                11 => Request::AddRule { request, toml: &b },
                12 => Request::CloseRule { request, rule: &a },
                13 => Request::Rules { request },
                14 => Request::Pin { request, within: Within::Last(u64::from(number) << 20), name: &a, sources: &b },
                15 => {
                    let (first, last) = (Timestamp(i64::from(version)), Timestamp(i64::from(version) + i64::from(number)));
                    Request::Pin { request, within: Within::Span(TimeRange { first, last }), name: &a, sources: &b }
                }
                9 => Request::Ring { request, source: SourceId(source), capacity_bytes: u64::from(number) << 16 },
                8 => Request::Refused { request, records: number, source: &a, reason: &b },
                _ => Request::Push(Push {
                    source: SourceId(source), shape: Shape::Fixed { record_bytes: 1 },
                    bytes: b.as_bytes(), records: b.len() as u64,
                }),
            };
            let mut frame = Vec::new();
            sent.encode(&mut frame);
            prop_assert_eq!(decode(&frame), Ok(sent));
        }

        #[test]
        fn a_report_of_losses_survives_its_encoding(
            number in 1u32.., records: u64, first: i64, last: i64, a in "\\PC{0,40}", b in "\\PC{0,200}",
            cause in prop::sample::select(vec![LostCause::Kernel, LostCause::RingFull, LostCause::DaemonKilled, LostCause::Sampled]),
        ) {
            let request = RequestId::new(number).unwrap();
            let span = TimeRange { first: Timestamp(first), last: Timestamp(last) };
            let sent = Request::Lost { request, records, span, cause, source: &a, reason: &b };
            let mut frame = Vec::new();
            sent.encode(&mut frame);
            let expected = if first <= last { Ok(sent) } else { Err(Malformed::Backward { first, last }) };
            prop_assert_eq!(decode(&frame), expected);
        }

        #[test]
        fn framed_payloads_are_counted(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..40)) {
            let bytes = framed(&payloads);
            let sent = Request::Push(Push {
                source: SourceId(7), shape: Shape::Framed, bytes: &bytes, records: payloads.len() as u64,
            });
            let mut frame = Vec::new();
            sent.encode(&mut frame);
            prop_assert_eq!(decode(&frame), Ok(sent));
        }

        // G8
        #[test]
        fn any_bytes_decode_or_are_malformed(kind: u8, source: u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let header = Header { body_bytes: body.len(), kind, source };
            if let Ok(request) = Request::decode(header, &body) {
                let mut frame = Vec::new();
                request.encode(&mut frame);
                if !matches!(request, Request::Hello { version, .. } if version != VERSION) {
                    prop_assert_eq!(&frame[HEADER_BYTES..], &body[..]);
                }
            }
        }

        #[test]
        fn a_request_cut_short_is_malformed(cut in 0usize..40) {
            let mut frame = Vec::new();
            Request::CloseIndex {
                request: RequestId::MIN, source: "some source", index: "some index",
            }.encode(&mut frame);
            let body = &frame[HEADER_BYTES..];
            prop_assume!(cut < body.len());
            let header = Header { body_bytes: cut, kind: CLOSE_INDEX, source: 0 };
            prop_assert!(Request::decode(header, &body[..cut]).is_err());
        }
    }

    #[test]
    fn what_is_wrong_with_a_frame_is_named() {
        let raw = |kind: u8, source: u16, body: &[u8]| {
            Request::decode(
                Header {
                    body_bytes: body.len(),
                    kind,
                    source,
                },
                body,
            )
            .map(|_| ())
        };
        assert_eq!(raw(0x55, 0, b""), Err(Malformed::UnknownKind(0x55)));
        assert_eq!(
            raw(HELLO, 0, b"HTTP/1.1....."),
            Err(Malformed::NotLoom),
            "another protocol"
        );
        assert_eq!(raw(STATUS, 0, &[0; 4]), Err(Malformed::RequestZero));
        assert_eq!(
            raw(STATUS, 0, &[1, 0, 0, 0, 9]),
            Err(Malformed::Trailing("status", 1))
        );
        assert_eq!(
            raw(DEFINE, 0, &[1, 0, 0, 0, 0xFF]),
            Err(Malformed::NotUtf8("define"))
        );
        assert_eq!(
            raw(SYNC, 0, &[1, 0, 0, 0, 2, 0, 0, 0]),
            Err(Malformed::Reserved("sync"))
        );
        assert_eq!(
            raw(STATUS, 3, &[1, 0, 0, 0]),
            Err(Malformed::Reserved("request"))
        );
        assert_eq!(
            raw(PUSH_FIXED, 1, &[0, 0, 0, 0]),
            Err(Malformed::Ragged {
                bytes: 0,
                record_bytes: 0
            })
        );
        assert_eq!(
            raw(PUSH_FIXED, 1, &[2, 0, 0, 0, 1, 2, 3]),
            Err(Malformed::Ragged {
                bytes: 3,
                record_bytes: 2
            })
        );
        assert_eq!(
            raw(PUSH_FRAMED, 1, &[3, 0, 1, 2]),
            Err(Malformed::Short("push"))
        );
        let long = ((REQUEST_BODY_BYTES_MAX + 1) as u32).to_le_bytes();
        let head = [long[0], long[1], long[2], long[3], PUSH_FIXED, 0, 1, 0];
        assert!(matches!(
            Header::decode(&head, REQUEST_BODY_BYTES_MAX),
            Some(Err(Malformed::TooLong { .. }))
        ));
    }
}
