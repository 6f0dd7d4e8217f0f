//! Payloads of one length at equal distances, as the records of a run are, so a column is loaded without looking up each payload's place.
//! `Layout::key` over `iter` is the naive form of `load`.

use crate::format::{RECORD_HEADER_BYTES, Run};
use crate::proven;
use crate::types::Key;

/// Payloads in consecutive entries of the record log.
#[derive(Debug, Clone, Copy)]
pub struct Payloads<'a> {
    /// The headers, payloads and padding of `records` records.
    pub entries: &'a [u8],
    /// The distance between payloads.
    pub entry_bytes: usize,
    /// The offset of each payload in its entry.
    pub offset: usize,
    pub payload_bytes: usize,
    pub records: usize,
}

impl<'a> Payloads<'a> {
    /// The payloads of a run in a chunk.
    #[inline]
    pub fn of_run(run: &Run, chunk: &'a [u8]) -> Payloads<'a> {
        Payloads {
            entries: run.entries(chunk),
            entry_bytes: run.entry_bytes(),
            offset: RECORD_HEADER_BYTES,
            payload_bytes: run.payload_bytes.into(),
            records: run.records as usize,
        }
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let payloads = *self;
        (0..self.records).map(move |nth| {
            let start = nth * payloads.entry_bytes + payloads.offset;
            proven::at(payloads.entries, start..start + payloads.payload_bytes)
        })
    }

    /// Calls `load` for each of many. Returns false, perhaps with some appended, if payloads are shorter.
    #[inline]
    pub(super) fn load_all<const N: usize>(
        mut many: impl Iterator<Item = Self>,
        at: usize,
        keys: &mut Vec<Key>,
        decode: impl Fn([u8; N]) -> Key,
    ) -> bool {
        many.all(|payloads| payloads.load(at, keys, &decode))
    }

    /// Appends the key that `decode` computes from the `N` bytes at `at` of each payload. Returns false, with nothing appended, if payloads
    /// are shorter.
    #[inline]
    fn load<const N: usize>(
        &self,
        at: usize,
        keys: &mut Vec<Key>,
        decode: impl Fn([u8; N]) -> Key,
    ) -> bool {
        if at + N > self.payload_bytes {
            return false;
        }
        let (at, entries) = (self.offset + at, self.entries);
        let key = |entry: &[u8]| {
            let value = proven::at(entry, at..at + N).first_chunk();
            decode(*value.expect("a part of N bytes"))
        };
        if self.records == 1 {
            // Single records are as common as long runs when sources take turns; this avoids the division that `chunks_exact` starts with.
            keys.push(key(entries));
        } else {
            keys.extend(entries.chunks_exact(self.entry_bytes.max(1)).map(key));
        }
        true
    }
}
