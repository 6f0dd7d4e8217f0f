//! A record in a chunk: its header, and the sizes of chunks and their parts.

use crate::types::{SourceId, Timestamp};

pub const CHUNK_HEADER_BYTES: usize = 8;
pub const CHUNK_TRAILER_BYTES: usize = 8;
pub const RECORD_HEADER_BYTES: usize = 8;
pub const CHUNK_BYTES_MIN: u32 = 4 << 10;
pub const CHUNK_BYTES_MAX: u32 = 1 << 20;

/// This length marks filler as an anchor: a time that later records count from.
pub(super) const ANCHOR_LENGTH: u64 = 1;
pub(super) const ANCHOR_ENTRY_BYTES: usize = 16;
/// Filler that no writer produces. It replaces bytes that were lost with their checksum, because zeroes would say that no records follow.
pub const LOST_ENTRY: [u8; 8] = [0, 0, 0xFF, 0xFF, 0, 0, 0, 0];
/// The greatest payload length that is a multiple of 8 and fits the header's `u16`.
const PAYLOAD_BYTES_MAX: usize = 65_528;

/// The longest payload, in bytes, that fits a chunk of this size.
pub fn longest_payload(chunk_bytes: u32) -> usize {
    let room =
        chunk_bytes as usize - CHUNK_HEADER_BYTES - CHUNK_TRAILER_BYTES - RECORD_HEADER_BYTES;
    room.min(PAYLOAD_BYTES_MAX)
}

/// The bytes of a record in the log, header and padding included.
#[inline]
pub const fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + ((payload_bytes + 7) & !7)
}

/// One record in a chunk, before its payload is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    pub source: SourceId,
    pub arrival: Timestamp,
    /// Offset of the record's header in the chunk, in bytes.
    pub offset: u32,
    pub payload: &'a [u8],
}

/// The header of one entry of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// 0 marks filler instead of a record.
    pub source: SourceId,
    pub payload_bytes: u16,
    pub delta_ns: u32,
}

impl RecordHeader {
    #[inline]
    pub fn decode(header: [u8; RECORD_HEADER_BYTES]) -> Self {
        let header = u64::from_le_bytes(header);
        Self {
            source: SourceId(header as u16),
            payload_bytes: (header >> 16) as u16,
            delta_ns: (header >> 32) as u32,
        }
    }
}
