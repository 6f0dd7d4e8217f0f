//! Payloads of one length that stand at equal distances, as the records of a run do, so that a column is loaded without a look at each
//! payload's place. `Layout::key` of each of `iter` is the naive form of `load`.

use crate::types::Key;

/// Payloads in consecutive entries of the record log.
#[derive(Debug, Clone, Copy)]
pub struct Payloads<'a> {
    /// Headers, payloads and padding.
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
    /// One after the other.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let payloads = *self;
        (0..self.records).map(move |nth| {
            let start = nth * payloads.entry_bytes + payloads.offset;
            let payload = payloads.entries.get(start..start + payloads.payload_bytes);
            payload.unwrap_or_default()
        })
    }

    /// Appends the key that `decode` makes of the `N` bytes at `at` of each payload. False, with nothing appended, where payloads are shorter.
    #[inline]
    pub(super) fn load<const N: usize>(
        &self,
        at: usize,
        keys: &mut Vec<Key>,
        decode: impl Fn([u8; N]) -> Key,
    ) -> bool {
        if at + N > self.payload_bytes {
            return false;
        }
        let (first, entries, entry_bytes) = (self.offset + at, self.entries, self.entry_bytes);
        keys.extend((0..self.records).map(|nth| {
            let place = entries.get(first + nth * entry_bytes..);
            let value = place.and_then(|place| place.first_chunk());
            value.map_or(Key::MIN, |value| decode(*value))
        }));
        true
    }
}
