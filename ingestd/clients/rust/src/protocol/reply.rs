//! The frames that the daemon sends.

use loom_engine::{Address, IndexId, SourceId};

use super::frame::{Cursor, ErrorCode, Header, Malformed, write_frame, write_text};
use super::request::{RequestId, VERSION};

/// When the records of a directory become durable.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DurabilityWord {
    None = 0,
    Interval = 1,
    Batch = 2,
}

/// The answer to a hello.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub durability: DurabilityWord,
    pub frame_body_bytes_max: u32,
    pub payload_bytes_max: u32,
    pub uuid: [u8; 16],
}

/// The counts of a client's records: `received = stored + refused + dropped`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub received: u64,
    pub stored: u64,
    pub refused: u64,
    pub dropped: u64,
}

/// The content of the answer to a sync, and of a goodbye.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// The end of the published record log; a query takes it as `at`.
    pub position: Address,
    /// The counts of this connection since its hello.
    pub counts: Counts,
    /// Why the latest refused record was refused; empty if none was.
    pub reason: String,
}

/// One frame of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Welcome(Welcome),
    Synced {
        request: RequestId,
        synced: Synced,
    },
    Defined {
        request: RequestId,
        sources: Vec<(SourceId, String)>,
    },
    Done {
        request: RequestId,
    },
    IndexAdded {
        request: RequestId,
        index: IndexId,
    },
    Catalog {
        request: RequestId,
        json: String,
    },
    Status {
        request: RequestId,
        json: String,
    },
    Rules {
        request: RequestId,
        json: String,
    },
    Pinned {
        request: RequestId,
        json: String,
    },
    /// The ring's descriptor comes beside the first byte of the frame.
    Ring {
        request: RequestId,
        capacity_bytes: u64,
    },
    Goodbye(Synced),
    Error {
        request: Option<RequestId>,
        code: ErrorCode,
        message: String,
    },
}

const WELCOME: u8 = 0x81;
const SYNCED: u8 = 0x84;
const DEFINED: u8 = 0x85;
const DONE: u8 = 0x86;
const INDEX_ADDED: u8 = 0x87;
const CATALOG: u8 = 0x89;
const STATUS: u8 = 0x8A;
const RING: u8 = 0x8C;
const RULES: u8 = 0x90;
const PINNED: u8 = 0x93;
const GOODBYE: u8 = 0xFE;
const ERROR: u8 = 0xFF;

impl Counts {
    /// Adds the counts of one more batch.
    pub fn add(&mut self, other: Counts) {
        self.received += other.received;
        self.stored += other.stored;
        self.refused += other.refused;
        self.dropped += other.dropped;
    }

    /// The counts since `before`, which are earlier counts of the same records.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            received: self.received - before.received,
            stored: self.stored - before.stored,
            refused: self.refused - before.refused,
            dropped: self.dropped - before.dropped,
        }
    }
}

impl Reply {
    /// The request that this answers.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Reply::Welcome(_) | Reply::Goodbye(_) => None,
            Reply::Error { request, .. } => *request,
            Reply::Synced { request, .. }
            | Reply::Defined { request, .. }
            | Reply::Done { request }
            | Reply::IndexAdded { request, .. }
            | Reply::Catalog { request, .. }
            | Reply::Status { request, .. }
            | Reply::Rules { request, .. }
            | Reply::Pinned { request, .. }
            | Reply::Ring { request, .. } => Some(*request),
        }
    }

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let plain = |out: &mut Vec<u8>, kind, request: RequestId, rest: &[u8]| {
            write_frame(out, kind, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                body.extend_from_slice(rest);
            });
        };
        match self {
            Reply::Welcome(welcome) => write_frame(out, WELCOME, None, |body| {
                body.extend_from_slice(&VERSION.to_le_bytes());
                body.extend_from_slice(&[welcome.durability as u8, 0]);
                body.extend_from_slice(&welcome.frame_body_bytes_max.to_le_bytes());
                body.extend_from_slice(&welcome.payload_bytes_max.to_le_bytes());
                body.extend_from_slice(&welcome.uuid);
            }),
            Reply::Synced { request, synced } => {
                write_frame(out, SYNCED, None, |body| {
                    encode_synced(body, Some(*request), synced);
                });
            }
            Reply::Goodbye(synced) => {
                write_frame(out, GOODBYE, None, |body| encode_synced(body, None, synced));
            }
            Reply::Defined { request, sources } => write_frame(out, DEFINED, None, |body| {
                body.extend_from_slice(&request.get().to_le_bytes());
                body.extend_from_slice(&(sources.len() as u16).to_le_bytes());
                for (source, name) in sources {
                    body.extend_from_slice(&source.0.to_le_bytes());
                    write_text(body, name);
                }
            }),
            Reply::Done { request } => plain(out, DONE, *request, &[]),
            Reply::IndexAdded { request, index } => {
                plain(out, INDEX_ADDED, *request, &index.0.to_le_bytes());
            }
            Reply::Catalog { request, json } => plain(out, CATALOG, *request, json.as_bytes()),
            Reply::Status { request, json } => plain(out, STATUS, *request, json.as_bytes()),
            Reply::Rules { request, json } => plain(out, RULES, *request, json.as_bytes()),
            Reply::Pinned { request, json } => plain(out, PINNED, *request, json.as_bytes()),
            Reply::Ring {
                request,
                capacity_bytes,
            } => plain(out, RING, *request, &capacity_bytes.to_le_bytes()),
            Reply::Error {
                request,
                code,
                message,
            } => write_frame(out, ERROR, None, |body| {
                body.extend_from_slice(&request.map_or(0, RequestId::get).to_le_bytes());
                body.extend_from_slice(&(*code as u16).to_le_bytes());
                write_text(body, message);
            }),
        }
    }

    /// Decodes the frame with this header and body.
    pub fn decode(header: Header, body: &[u8]) -> Result<Reply, Malformed> {
        let name = match header.kind {
            WELCOME => "welcome",
            SYNCED => "synced",
            DEFINED => "defined",
            DONE => "done",
            INDEX_ADDED => "index added",
            CATALOG => "catalog",
            STATUS => "status",
            RULES => "rules",
            PINNED => "pinned",
            RING => "ring",
            GOODBYE => "goodbye",
            ERROR => "error",
            unknown => return Err(Malformed::UnknownKind(unknown)),
        };
        let mut cursor = Cursor::new(name, body);
        let reply = if header.kind == WELCOME {
            Reply::Welcome(decode_welcome(&mut cursor)?)
        } else {
            let request = RequestId::new(cursor.u32()?);
            match (header.kind, request) {
                (GOODBYE, None) => Reply::Goodbye(decode_synced(&mut cursor)?),
                (ERROR, request) => Reply::Error {
                    request,
                    code: ErrorCode::from_wire(cursor.u16()?).ok_or(Malformed::Reserved(name))?,
                    message: cursor.text()?.to_owned(),
                },
                (SYNCED, Some(request)) => Reply::Synced {
                    request,
                    synced: decode_synced(&mut cursor)?,
                },
                (DEFINED, Some(request)) => Reply::Defined {
                    request,
                    sources: decode_sources(&mut cursor)?,
                },
                (DONE, Some(request)) => Reply::Done { request },
                (INDEX_ADDED, Some(request)) => Reply::IndexAdded {
                    request,
                    index: IndexId(cursor.u32()?),
                },
                (CATALOG, Some(request)) => Reply::Catalog {
                    request,
                    json: cursor.document()?.to_owned(),
                },
                (STATUS, Some(request)) => Reply::Status {
                    request,
                    json: cursor.document()?.to_owned(),
                },
                (RULES, Some(request)) => Reply::Rules {
                    request,
                    json: cursor.document()?.to_owned(),
                },
                (PINNED, Some(request)) => Reply::Pinned {
                    request,
                    json: cursor.document()?.to_owned(),
                },
                (RING, Some(request)) => Reply::Ring {
                    request,
                    capacity_bytes: cursor.u64()?,
                },
                (_, None) => return Err(Malformed::RequestZero),
                (_, Some(_)) => return Err(Malformed::Reserved(name)),
            }
        };
        cursor.end()?;
        Ok(reply)
    }
}

fn encode_synced(body: &mut Vec<u8>, request: Option<RequestId>, synced: &Synced) {
    body.extend_from_slice(&request.map_or(0, RequestId::get).to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    let counts = synced.counts;
    for word in [
        synced.position.0,
        counts.received,
        counts.stored,
        counts.refused,
        counts.dropped,
    ] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    write_text(body, &synced.reason);
}

fn decode_synced(cursor: &mut Cursor<'_>) -> Result<Synced, Malformed> {
    cursor.zeroes::<4>()?;
    Ok(Synced {
        position: Address(cursor.u64()?),
        counts: Counts {
            received: cursor.u64()?,
            stored: cursor.u64()?,
            refused: cursor.u64()?,
            dropped: cursor.u64()?,
        },
        reason: cursor.text()?.to_owned(),
    })
}

fn decode_welcome(cursor: &mut Cursor<'_>) -> Result<Welcome, Malformed> {
    if cursor.u16()? != VERSION {
        return Err(Malformed::Reserved("welcome"));
    }
    let durability = match cursor.u8()? {
        0 => DurabilityWord::None,
        1 => DurabilityWord::Interval,
        2 => DurabilityWord::Batch,
        _ => return Err(Malformed::Reserved("welcome")),
    };
    cursor.zeroes::<1>()?;
    Ok(Welcome {
        durability,
        frame_body_bytes_max: cursor.u32()?,
        payload_bytes_max: cursor.u32()?,
        uuid: cursor.array()?,
    })
}

fn decode_sources(cursor: &mut Cursor<'_>) -> Result<Vec<(SourceId, String)>, Malformed> {
    let count = cursor.u16()?;
    (0..count)
        .map(|_| Ok((SourceId(cursor.u16()?), cursor.text()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{HEADER_BYTES, REPLY_BODY_BYTES_MAX};
    use super::*;

    fn synced(words: [u64; 5], reason: &str) -> Synced {
        Synced {
            position: Address(words[0]),
            counts: Counts {
                received: words[1],
                stored: words[2],
                refused: words[3],
                dropped: words[4],
            },
            reason: reason.to_owned(),
        }
    }

    proptest! {
        #[test]
        fn every_reply_survives_its_encoding(
            kind in 0..11usize, number in 1u32.., words: [u64; 5], text in "\\PC{0,60}",
            names in prop::collection::vec((any::<u16>(), "\\PC{0,20}"), 0..5), uuid: [u8; 16], limits: [u32; 2],
        ) {
            let request = RequestId::new(number).unwrap();
            let sent = match kind {
                0 => Reply::Welcome(Welcome {
                    durability: DurabilityWord::Batch, frame_body_bytes_max: limits[0],
                    payload_bytes_max: limits[1], uuid,
                }),
                1 => Reply::Synced { request, synced: synced(words, &text) },
                2 => Reply::Goodbye(synced(words, &text)),
                3 => Reply::Defined {
                    request, sources: names.into_iter().map(|(id, name)| (SourceId(id), name)).collect(),
                },
                4 => Reply::Done { request },
                5 => Reply::IndexAdded { request, index: IndexId(limits[0]) },
                6 => Reply::Catalog { request, json: text },
                7 => Reply::Status { request, json: text },
                8 => Reply::Rules { request, json: text },
                9 => Reply::Ring { request, capacity_bytes: words[0] },
                10 => Reply::Pinned { request, json: text },
                _ => Reply::Error {
                    request: (limits[0] % 2 == 0).then_some(request), code: ErrorCode::NotFound, message: text,
                },
            };
            let mut frame = Vec::new();
            sent.encode(&mut frame);
            let header = Header::decode(&frame, REPLY_BODY_BYTES_MAX).unwrap().unwrap();
            prop_assert_eq!(header.body_bytes, frame.len() - HEADER_BYTES);
            prop_assert_eq!(Reply::decode(header, &frame[HEADER_BYTES..]), Ok(sent));
        }

        #[test]
        fn any_bytes_decode_or_are_malformed(kind in 0x80u8.., body in prop::collection::vec(any::<u8>(), 0..120)) {
            let header = Header { body_bytes: body.len(), kind, source: 0 };
            if let Ok(reply) = Reply::decode(header, &body) {
                let mut frame = Vec::new();
                reply.encode(&mut frame);
                prop_assert_eq!(&frame[HEADER_BYTES..], &body[..]);
            }
        }
    }

    #[test]
    fn a_reason_of_any_length_stays_a_text() {
        let mut frame = Vec::new();
        let reply = Reply::Goodbye(synced([0; 5], &"ä".repeat(40_000)));
        reply.encode(&mut frame);
        let header = Header::decode(&frame, REPLY_BODY_BYTES_MAX)
            .unwrap()
            .unwrap();
        let decoded = Reply::decode(header, &frame[HEADER_BYTES..]).unwrap();
        assert!(matches!(decoded, Reply::Goodbye(synced) if synced.reason.len() == 65_534));
    }
}
