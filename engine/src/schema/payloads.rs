//! Payloads of one length that stand at equal distances, as the records of a run do, so that a column is loaded without a look at each
//! payload's place. `Layout::key` of each of `iter` is the naive form of `load`.

use crate::format::{RECORD_HEADER_BYTES, Run};
use crate::proven;
use crate::types::Key;

/// Payloads in consecutive entries of the record log.
#[derive(Debug, Clone, Copy)]
pub struct Payloads<'a> {
    /// Headers, payloads and padding of as many as `records` says.
    pub entries: &'a [u8],
    /// From one payload to the next.
    pub entry_bytes: usize,
    /// Where in its entry each payload begins.
    pub offset: usize,
    pub payload_bytes: usize,
    /// How many there are.
    pub records: usize,
}

impl<'a> Payloads<'a> {
    /// Those of a run of the chunk.
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

    /// One after the other.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let payloads = *self;
        (0..self.records).map(move |nth| {
            let start = nth * payloads.entry_bytes + payloads.offset;
            proven::at(payloads.entries, start..start + payloads.payload_bytes)
        })
    }

    /// `load` of each of many. False, perhaps with some appended, where payloads are shorter.
    #[inline]
    pub(super) fn load_all<const N: usize>(
        mut many: impl Iterator<Item = Self>,
        at: usize,
        keys: &mut Vec<Key>,
        decode: impl Fn([u8; N]) -> Key,
    ) -> bool {
        many.all(|payloads| payloads.load(at, keys, &decode))
    }

    /// Appends the key that `decode` makes of the `N` bytes at `at` of each payload. False, with nothing appended, where payloads are shorter.
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
            // As common as long runs where sources take turns, and spared the division that `chunks_exact` begins with.
            keys.push(key(entries));
        } else {
            keys.extend(entries.chunks_exact(self.entry_bytes.max(1)).map(key));
        }
        true
    }
}
