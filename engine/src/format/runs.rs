//! The records of a chunk as runs: consecutive records of one source and one length, with no anchor between them.
//!
//! Summaries are made from runs, so the records of a batch, or of the only busy source, cost one comparison each. `RecordIter` is the naive form and gives the
//! same records.

use super::bytes::{FormatError, array, invalid, u64_at};
use super::record::{
    ANCHOR_ENTRY_BYTES, ANCHOR_LENGTH, CHUNK_HEADER_BYTES, CHUNK_TRAILER_BYTES,
    RECORD_HEADER_BYTES, record_bytes,
};
use crate::proven;
use crate::types::{SourceId, Timestamp};

/// Consecutive records of one source and one length in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub source: SourceId,
    /// The payload bytes of each record.
    pub payload_bytes: u16,
    /// At least 1.
    pub records: u32,
    /// Offset of the first record's header in the chunk, in bytes.
    pub offset: u32,
    /// The record times count from this anchor.
    pub anchor: Timestamp,
}

impl Run {
    /// The distance from one record to the next, header and padding included.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        record_bytes(self.payload_bytes.into())
    }

    /// Returns the offset of the header of record `nth` in the chunk, counted from 0.
    #[inline]
    pub fn offset_of(&self, nth: u32) -> u32 {
        self.offset + nth * self.entry_bytes() as u32
    }

    #[inline]
    pub fn arrival(&self, chunk: &[u8], nth: u32) -> Timestamp {
        let delta = u32::from_le_bytes(array(chunk, self.offset_of(nth) as usize + 4));
        Timestamp(self.anchor.0.saturating_add(i64::from(delta)))
    }

    /// Returns the entries of its records, headers and padding included.
    #[inline]
    pub fn entries<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        let (start, end) = (self.offset, self.offset_of(self.records));
        proven::at(chunk, start as usize..end as usize)
    }
}

/// Passes the runs of a whole chunk to `each` in log order. It fails where `RecordIter` fails, possibly after some runs.
#[inline]
pub fn walk_runs(chunk: &[u8], mut each: impl FnMut(Run)) -> Result<(), FormatError> {
    let limit = chunk.len().saturating_sub(CHUNK_TRAILER_BYTES);
    let bytes = proven::at(chunk, ..limit);
    // Bytes that end in the header hold no record.
    let mut anchor_ns = bytes.first_chunk().map_or(0, |ns| i64::from_le_bytes(*ns));
    let mut last_ns = i64::MIN;
    let mut at = CHUNK_HEADER_BYTES;
    while let Some(mut header) = header_at(bytes, at) {
        let (source, length) = (header as u16, (header >> 16) as u16);
        if source == 0 {
            if header == 0 {
                break;
            }
            if header != ANCHOR_LENGTH << 16 || at + ANCHOR_ENTRY_BYTES > limit {
                return invalid("a filler entry", header);
            }
            anchor_ns = u64_at(bytes, at + 8) as i64;
            at += ANCHOR_ENTRY_BYTES;
            continue;
        }
        let entry_bytes = record_bytes(length.into());
        if at + entry_bytes > limit {
            return invalid("a record's length", length.into());
        }
        if anchor_ns.saturating_add((header >> 32) as i64) < last_ns {
            return invalid("an arrival time before the previous one", header);
        }
        let offset = at as u32;
        let mut records = 0;
        // The headers of a run differ only in their upper half: the time, which never decreases.
        let delta = loop {
            records += 1;
            at += entry_bytes;
            match header_at(bytes, at) {
                Some(next)
                    if next as u32 == header as u32
                        && next >= header
                        && at + entry_bytes <= limit =>
                {
                    header = next;
                }
                _ => break header >> 32,
            }
        };
        last_ns = anchor_ns.saturating_add(delta as i64);
        each(Run {
            source: SourceId(source),
            payload_bytes: length,
            records,
            offset,
            anchor: Timestamp(anchor_ns),
        });
    }
    Ok(())
}

#[inline]
fn header_at(bytes: &[u8], at: usize) -> Option<u64> {
    let rest = bytes.get(at..)?;
    rest.first_chunk::<RECORD_HEADER_BYTES>()
        .map(|header| u64::from_le_bytes(*header))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder, RecordIter};
    use crate::types::Address;

    const CHUNK: u32 = CHUNK_BYTES_MIN;

    /// Source, arrival, offset and payload length of each record, and the error, if any.
    type Listed = (Vec<(u16, i64, u32, usize)>, Option<FormatError>);

    fn listed_by_records(chunk: &[u8]) -> Listed {
        let mut listed = Listed::default();
        for record in RecordIter::new(chunk, chunk.len() as u32) {
            match record {
                Ok(record) => listed.0.push((
                    record.source.0,
                    record.arrival.0,
                    record.offset,
                    record.payload.len(),
                )),
                Err(error) => listed.1 = Some(error),
            }
        }
        listed
    }

    fn listed_by_runs(chunk: &[u8]) -> (Listed, usize) {
        let (mut listed, mut runs) = (Listed::default(), 0);
        listed.1 = walk_runs(chunk, |run| {
            runs += 1;
            assert_eq!(
                run.entries(chunk).len(),
                run.records as usize * run.entry_bytes()
            );
            for nth in 0..run.records {
                listed.0.push((
                    run.source.0,
                    run.arrival(chunk, nth).0,
                    run.offset_of(nth),
                    run.payload_bytes.into(),
                ));
            }
        })
        .err();
        (listed, runs)
    }

    proptest! {
        #[test]
        fn runs_hold_the_same_records(
            items in prop::collection::vec((1u16..3, 0usize..3, 1usize..20, prop_oneof![Just(0i64), 0..5i64, Just(5_000_000_000i64)]), 0..40),
        ) {
            let mut chunk = ChunkBuilder::new(CHUNK);
            let mut now = 77;
            for (source, length, times, step) in items {
                for _ in 0..times {
                    now += step;
                    chunk.push(SourceId(source), Timestamp(now), &vec![source as u8; length * 8]);
                }
            }
            let (sealed, runs) = chunk.seal(&[7; 16], Address(0));
            prop_assert_eq!(listed_by_runs(sealed).0, listed_by_records(sealed));
            let mut walked = Vec::new();
            walk_runs(sealed, |run| walked.push(run)).unwrap();
            prop_assert_eq!(runs, walked);
        }

        #[test]
        fn runs_of_any_bytes_hold_the_same_records(
            words in prop::collection::vec(prop_oneof![
                Just(0x0000_0005_0008_0001u64), Just(0x0000_0006_0008_0001), Just(0x0000_0004_0000_0002), Just(1 << 16), Just(0),
                Just(0x0000_0007_0100_0001), any::<u64>(),
            ], 1..520),
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            prop_assert_eq!(listed_by_runs(&bytes).0, listed_by_records(&bytes));
        }
    }

    #[test]
    fn a_chunk_of_one_source_is_one_run_for_each_anchor() {
        let mut chunk = ChunkBuilder::new(CHUNK);
        for now in [1, 1, 2, 5_000_000_000, 5_000_000_007] {
            chunk.push(SourceId(9), Timestamp(now), &[7; 20]);
        }
        assert_eq!(listed_by_runs(chunk.seal(&[7; 16], Address(0)).0).1, 2);
    }
}
