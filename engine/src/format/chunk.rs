//! A chunk of the record log and its records.
//!
//! `ChunkBuilder` is the writer's open chunk, in its own memory; `RecordIter` walks a chunk from anywhere. Both hold that a record never crosses the chunk and
//! that arrival times never decrease.

use std::ops::ControlFlow;

use super::bytes::{FormatError, i64_at, invalid, u32_at, u64_at};
use super::checksum::checksum;
use super::record::{
    ANCHOR_ENTRY_BYTES, ANCHOR_LENGTH, CHUNK_BYTES_MIN, CHUNK_HEADER_BYTES, CHUNK_TRAILER_BYTES,
    RECORD_HEADER_BYTES, RawRecord, record_bytes,
};
use super::runs::Run;
use crate::proven;
use crate::types::{Address, LogKind, SourceId, Timestamp};

const TRAILER_MAGIC: u32 = 0x4B48_434C;

/// The outcome of pushing a record into the open chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The record is at this offset of the chunk.
    At(u32),
    /// The chunk has no room left for the record.
    NoRoom,
}

/// The open chunk: entries are appended in memory and copied to staging when they are published.
pub struct ChunkBuilder {
    bytes: Box<[u8]>,
    end: usize,
    /// The runs that `walk_runs` would find, except the last.
    runs: Vec<Run>,
    run: Run,
    /// The trailer begins here. It is 0 while the chunk is empty, so the first record finds no room and takes the slow path.
    limit: usize,
    anchor_ns: i64,
}

impl ChunkBuilder {
    pub fn new(chunk_bytes: u32) -> Self {
        let bytes = vec![0; chunk_bytes as usize].into_boxed_slice();
        Self {
            bytes,
            end: 0,
            runs: Vec::new(),
            run: NO_RUN,
            limit: 0,
            anchor_ns: 0,
        }
    }

    pub fn clear(&mut self) {
        self.end = 0;
        self.limit = 0;
        self.runs.clear();
        self.run = NO_RUN;
    }

    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Returns the offset past the last entry; 0 for an empty chunk.
    pub fn end(&self) -> usize {
        self.end
    }

    pub fn filled(&self) -> &[u8] {
        proven::at(&self.bytes, ..self.end)
    }

    /// Fills the rest with zeroes, which read as *end*, appends the trailer of the chunk at `address`, and returns the whole chunk and its runs. The next call
    /// must be `clear`.
    pub fn seal(&mut self, uuid: &[u8; 16], address: Address) -> (&[u8], &[Run]) {
        proven::at_mut(&mut self.bytes, self.end..).fill(0);
        put_trailer(uuid, address, &mut self.bytes);
        self.end_run();
        (&self.bytes, &self.runs)
    }

    /// Appends a record. `arrival` must not precede the previous record's, and `payload` must not exceed `longest_payload`.
    #[inline]
    pub fn push(&mut self, source: SourceId, arrival: Timestamp, payload: &[u8]) -> PushOutcome {
        let at = self.end;
        let end = at + record_bytes(payload.len());
        let delta = arrival.0.wrapping_sub(self.anchor_ns) as u64;
        if end > self.limit || delta > u64::from(u32::MAX) {
            return self.push_closely(source, arrival, payload);
        }
        let header = u64::from(source.0) | (payload.len() as u64) << 16 | delta << 32;
        let (head, body) =
            proven::at_mut(&mut self.bytes, at..end).split_at_mut(RECORD_HEADER_BYTES);
        head.copy_from_slice(&header.to_le_bytes());
        copy_padded(body, payload);
        if self.run.source != source || usize::from(self.run.payload_bytes) != payload.len() {
            self.begin_run(source, payload.len() as u16);
        }
        self.run.records += 1;
        self.end = end;
        PushOutcome::At(at as u32)
    }

    /// Appends as many records of one length and one arrival as fit, from payloads that lie back to back, and returns their number. `push` of each does the
    /// same.
    pub fn push_run(
        &mut self,
        source: SourceId,
        arrival: Timestamp,
        payloads: &[u8],
        payload_bytes: usize,
    ) -> usize {
        let mut payloads = payloads.chunks_exact(payload_bytes.max(1));
        let first = payloads
            .next()
            .map(|first| self.push(source, arrival, first));
        let Some(PushOutcome::At(first)) = first else {
            return 0;
        };
        let header = *proven::at(&self.bytes, first as usize..)
            .first_chunk::<RECORD_HEADER_BYTES>()
            .expect("a record that was pushed has its header in the chunk");
        let entry_bytes = record_bytes(payload_bytes);
        let room = proven::at_mut(&mut self.bytes, self.end..self.limit);
        let mut records = 1;
        for (entry, payload) in room.chunks_exact_mut(entry_bytes).zip(payloads) {
            let (head, body) = entry.split_at_mut(RECORD_HEADER_BYTES);
            head.copy_from_slice(&header);
            copy_padded(body, payload);
            records += 1;
        }
        self.end += (records - 1) * entry_bytes;
        self.run.records += records as u32 - 1;
        records
    }

    /// Handles the rare cases of `push`: the chunk is empty, has no room, or needs an anchor.
    #[cold]
    fn push_closely(
        &mut self,
        source: SourceId,
        arrival: Timestamp,
        payload: &[u8],
    ) -> PushOutcome {
        let entry_bytes = record_bytes(payload.len());
        if self.end == 0 {
            self.begin(arrival);
        } else if arrival.0.wrapping_sub(self.anchor_ns) as u64 > u64::from(u32::MAX)
            && self.end + ANCHOR_ENTRY_BYTES + entry_bytes <= self.limit
        {
            self.push_anchor(arrival);
        } else {
            return PushOutcome::NoRoom;
        }
        if self.end + entry_bytes > self.limit {
            return PushOutcome::NoRoom;
        }
        self.push(source, arrival, payload)
    }

    fn begin(&mut self, arrival: Timestamp) {
        self.anchor_ns = arrival.0;
        proven::at_mut(&mut self.bytes, ..CHUNK_HEADER_BYTES)
            .copy_from_slice(&arrival.0.to_le_bytes());
        self.end = CHUNK_HEADER_BYTES;
        self.limit = self.bytes.len() - CHUNK_TRAILER_BYTES;
    }

    fn push_anchor(&mut self, arrival: Timestamp) {
        self.anchor_ns = arrival.0;
        let at = self.end;
        let entry = proven::at_mut(&mut self.bytes, at..at + ANCHOR_ENTRY_BYTES);
        let (head, anchor) = entry.split_at_mut(8);
        head.copy_from_slice(&(ANCHOR_LENGTH << 16).to_le_bytes());
        anchor.copy_from_slice(&arrival.0.to_le_bytes());
        self.end = at + ANCHOR_ENTRY_BYTES;
        self.end_run();
    }

    #[inline]
    fn begin_run(&mut self, source: SourceId, payload_bytes: u16) {
        self.end_run();
        self.run = Run {
            source,
            payload_bytes,
            records: 0,
            offset: self.end as u32,
            anchor: Timestamp(self.anchor_ns),
        };
    }

    #[inline]
    fn end_run(&mut self) {
        if self.run.records > 0 {
            self.runs.push(self.run);
            self.run = NO_RUN;
        }
    }
}

/// No record has source 0, so none continues this run.
const NO_RUN: Run = Run {
    source: SourceId(0),
    payload_bytes: 0,
    records: 0,
    offset: 0,
    anchor: Timestamp(0),
};

/// Copies a payload over `body`, which is as long apart from the padding, and zeroes the padding. Payloads of up to 64 bytes take a few moves that may overlap,
/// because a call to `memcpy` costs more.
#[inline]
fn copy_padded(body: &mut [u8], payload: &[u8]) {
    // An empty payload has no padding.
    if let Some(last) = body.last_chunk_mut::<8>() {
        *last = [0; 8];
    }
    let body = proven::at_mut(body, ..payload.len());
    match payload.len() {
        33..=64 => copy_ends::<32>(body, payload),
        17..=32 => copy_ends::<16>(body, payload),
        8..=16 => copy_ends::<8>(body, payload),
        _ => body.copy_from_slice(payload),
    }
}

/// Copies the first and the last `N` bytes, which together are all bytes. Both slices have the same length.
#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    let last = from.len() - N;
    proven::at_mut(to, ..N).copy_from_slice(proven::at(from, ..N));
    proven::at_mut(to, last..).copy_from_slice(proven::at(from, last..));
}

/// Walks the records of a chunk in log order. It ends at the *end* entry, at the bytes' end, or with one error.
pub struct RecordIter<'a> {
    bytes: &'a [u8],
    at: usize,
    anchor_ns: i64,
    last_ns: i64,
    /// Payload and entry bytes of the latest record. Neighbours mostly have the same length, so the walk predicts the next entry without waiting for this
    /// header.
    length: usize,
    entry_bytes: usize,
}

impl<'a> RecordIter<'a> {
    /// `bytes` begin with the chunk and may end at the published end inside it.
    pub fn new(bytes: &'a [u8], chunk_bytes: u32) -> Self {
        let limit = chunk_bytes as usize - CHUNK_TRAILER_BYTES;
        let bytes = proven::at(bytes, ..limit.min(bytes.len()));
        Self {
            bytes,
            at: CHUNK_HEADER_BYTES,
            // Bytes that end in the header hold no record.
            anchor_ns: bytes.first_chunk().map_or(0, |ns| i64::from_le_bytes(*ns)),
            last_ns: i64::MIN,
            length: 0,
            entry_bytes: RECORD_HEADER_BYTES,
        }
    }

    /// Passes every record to `each` until it breaks. This is the one loop under every scan, so its state stays in registers.
    #[inline]
    pub fn walk<B>(
        mut self,
        mut each: impl FnMut(RawRecord<'a>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, FormatError> {
        loop {
            match self.step(&mut each) {
                Step::Found(ControlFlow::Continue(())) => {}
                Step::Found(broken) => return Ok(broken),
                Step::End => return Ok(ControlFlow::Continue(())),
                Step::Failed(error) => return Err(error),
            }
        }
    }

    #[inline(always)]
    fn step<R>(&mut self, found: impl FnOnce(RawRecord<'a>) -> R) -> Step<R> {
        loop {
            let Some(rest) = self.bytes.get(self.at..) else {
                return Step::End;
            };
            let Some((head, body)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
                return Step::End;
            };
            let header = u64::from_le_bytes(*head);
            let (source, length, delta) =
                (header as u16, (header >> 16) as u16, (header >> 32) as u32);
            if source == 0 {
                if header == 0 {
                    self.at = self.bytes.len();
                    return Step::End;
                }
                if header != ANCHOR_LENGTH << 16 || body.len() < 8 {
                    return self.fail("a filler entry", header);
                }
                self.anchor_ns = i64_at(body, 0);
                self.at += ANCHOR_ENTRY_BYTES;
                continue;
            }
            if usize::from(length) != self.length {
                self.length = length.into();
                self.entry_bytes = entry_bytes_of(length);
            }
            let (Some(payload), true) = (body.get(..self.length), self.entry_bytes <= rest.len())
            else {
                return self.fail("a record's length", length.into());
            };
            let arrival_ns = self.anchor_ns.saturating_add(i64::from(delta));
            if arrival_ns < self.last_ns {
                return self.fail("an arrival time before the previous one", header);
            }
            self.last_ns = arrival_ns;
            let offset = self.at as u32;
            self.at += self.entry_bytes;
            return Step::Found(found(RawRecord {
                source: SourceId(source),
                arrival: Timestamp(arrival_ns),
                offset,
                payload,
            }));
        }
    }

    #[inline(always)]
    fn fail<R>(&mut self, what: &'static str, value: u64) -> Step<R> {
        self.at = self.bytes.len();
        Step::Failed(FormatError::Invalid { what, value })
    }
}

/// The outcome of one step of a walk.
enum Step<R> {
    Found(R),
    End,
    Failed(FormatError),
}

/// Stays out of line, so the common case is a predicted branch and not a conditional move that waits.
#[cold]
#[inline(never)]
fn entry_bytes_of(length: u16) -> usize {
    record_bytes(length.into())
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RawRecord<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.step(|record| record) {
            Step::Found(record) => Some(Ok(record)),
            Step::End => None,
            Step::Failed(error) => Some(Err(error)),
        }
    }
}

/// Writes checksum and mark at the end of a whole chunk.
pub fn put_trailer(uuid: &[u8; 16], address: Address, chunk: &mut [u8]) {
    let (covered, trailer) = chunk.split_at_mut(chunk.len() - CHUNK_TRAILER_BYTES);
    let checksum = checksum(uuid, LogKind::Records, address, covered);
    trailer.copy_from_slice(&trailer_of(checksum));
}

/// Reports whether a whole chunk ends in a trailer, whether or not its checksum is right.
pub fn has_trailer(chunk: &[u8]) -> bool {
    chunk.ends_with(&TRAILER_MAGIC.to_le_bytes())
}

pub(super) fn trailer_of(checksum: u32) -> [u8; CHUNK_TRAILER_BYTES] {
    (u64::from(checksum) | u64::from(TRAILER_MAGIC) << 32).to_le_bytes()
}

pub fn verify_chunk(uuid: &[u8; 16], address: Address, chunk: &[u8]) -> Result<(), FormatError> {
    let Some((covered, trailer)) = chunk.split_last_chunk::<CHUNK_TRAILER_BYTES>() else {
        let need = CHUNK_BYTES_MIN as usize;
        return Err(FormatError::Short {
            what: "a chunk",
            have: chunk.len(),
            need,
        });
    };
    let trailer = u64_at(trailer, 0);
    if u32_at(&trailer.to_le_bytes(), 4) != TRAILER_MAGIC {
        return invalid("the magic number of a chunk", trailer >> 32);
    }
    expect_checksum("a chunk", trailer as u32, uuid, address, covered)
}

/// Verifies the first bytes of a partial chunk against the checksum in a slot of `durable`.
pub fn verify_part(
    uuid: &[u8; 16],
    address: Address,
    part: &[u8],
    stored: u32,
) -> Result<(), FormatError> {
    expect_checksum("the records of a chunk", stored, uuid, address, part)
}

fn expect_checksum(
    what: &'static str,
    stored: u32,
    uuid: &[u8; 16],
    address: Address,
    covered: &[u8],
) -> Result<(), FormatError> {
    let computed = checksum(uuid, LogKind::Records, address, covered);
    if stored != computed {
        return Err(FormatError::Checksum {
            what,
            stored,
            computed,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CHUNK_BYTES_MAX, longest_payload};
    use proptest::prelude::*;

    const CHUNK: u32 = CHUNK_BYTES_MIN;

    fn records(bytes: &[u8]) -> Vec<(u16, i64, Vec<u8>)> {
        RecordIter::new(bytes, CHUNK)
            .map(|record| record.unwrap())
            .map(|record| (record.source.0, record.arrival.0, record.payload.to_vec()))
            .collect()
    }

    proptest! {
        #[test]
        fn pushed_records_are_read_back(
            items in prop::collection::vec((1u16.., 0i64..10_000_000_000, prop::collection::vec(any::<u8>(), 0..70)), 0..80),
            start in any::<i32>(),
        ) {
            let mut chunk = ChunkBuilder::new(CHUNK);
            let mut now = i64::from(start);
            let mut expected = Vec::new();
            for (source, step, payload) in items {
                now += step;
                match chunk.push(SourceId(source), Timestamp(now), &payload) {
                    PushOutcome::At(offset) => {
                        prop_assert_eq!(offset % 8, 0);
                        expected.push((source, now, payload));
                    }
                    PushOutcome::NoRoom => break,
                }
            }
            prop_assert_eq!(records(chunk.filled()), expected.clone());
            let sealed = chunk.seal(&[7; 16], Address(4096)).0;
            prop_assert_eq!(sealed.len(), CHUNK as usize);
            prop_assert_eq!(verify_chunk(&[7; 16], Address(4096), sealed), Ok(()));
            prop_assert!(verify_chunk(&[7; 16], Address(8192), sealed).is_err());
            prop_assert_eq!(records(sealed), expected);
        }

        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..4200)) {
            let mut last = i64::MIN;
            for record in RecordIter::new(&bytes, CHUNK).map_while(Result::ok) {
                prop_assert!(record.arrival.0 >= last);
                last = record.arrival.0;
            }
            prop_assert!(verify_chunk(&[0; 16], Address(0), &bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_pushed_run_equals_its_records_pushed_one_by_one(
            batches in prop::collection::vec((0usize..40, 1usize..41, 0usize..7, prop_oneof![Just(1i64), Just(5_000_000_000i64)]), 1..12),
        ) {
            let (mut whole, mut each) = (ChunkBuilder::new(CHUNK), ChunkBuilder::new(CHUNK));
            let mut now = 3;
            for (records, payload_bytes, ragged, step) in batches {
                now += step;
                let bytes: Vec<u8> = (0..records * payload_bytes + ragged % payload_bytes).map(|i| i as u8).collect();
                let placed = whole.push_run(SourceId(4), Timestamp(now), &bytes, payload_bytes);
                let expected = bytes
                    .chunks_exact(payload_bytes)
                    .map_while(|payload| match each.push(SourceId(4), Timestamp(now), payload) {
                        PushOutcome::At(_) => Some(()),
                        PushOutcome::NoRoom => None,
                    })
                    .count();
                prop_assert_eq!(placed, expected);
                prop_assert_eq!(whole.filled(), each.filled());
                if placed < bytes.len() / payload_bytes {
                    prop_assert_eq!(whole.seal(&[7; 16], Address(0)), each.seal(&[7; 16], Address(0)));
                    return Ok(());
                }
            }
        }
    }

    #[test]
    fn the_longest_payload_fills_a_chunk_and_one_byte_more_does_not_fit() {
        let mut chunk = ChunkBuilder::new(CHUNK);
        let longest = longest_payload(CHUNK);
        assert_eq!(
            chunk.push(SourceId(1), Timestamp(5), &vec![1; longest]),
            PushOutcome::At(8)
        );
        assert_eq!(
            chunk.push(SourceId(1), Timestamp(5), &[]),
            PushOutcome::NoRoom
        );
        chunk.clear();
        assert_eq!(
            chunk.push(SourceId(1), Timestamp(5), &vec![1; longest + 1]),
            PushOutcome::NoRoom
        );
        assert_eq!(longest_payload(CHUNK_BYTES_MAX), 65_528);
    }
}
