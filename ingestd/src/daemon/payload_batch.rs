//! Payloads of one source as a client sent them: in the shape that it chose, and in the layout that the source had when it learned of it.

use loom_engine::Error;
use loom_engine::ingest::Batch;
use loom_engine::schema::{Source, Widening};

use crate::protocol::Shape;

#[derive(Copy, Clone)]
pub(super) struct PayloadBatch<'a> {
    pub(super) shape: Shape,
    pub(super) bytes: &'a [u8],
    /// The number of payloads in `bytes`.
    pub(super) records: u64,
}

impl<'a> PayloadBatch<'a> {
    pub(super) fn batch(&self) -> Batch<'a> {
        let bytes = self.bytes;
        match self.shape {
            Shape::Fixed { record_bytes } => Batch::Fixed {
                bytes,
                record_bytes: usize::from(record_bytes),
            },
            Shape::Framed => Batch::Framed { bytes },
        }
    }

    /// The protocol has decoded them, so each is whole.
    fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let payloads = self.batch().payloads();
        payloads.map(|payload| payload.expect("a push that was decoded has whole payloads"))
    }

    /// The bytes of the payloads without their lengths.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.shape.payload_bytes(self.bytes.len(), self.records)
    }

    /// The length of the first `records` of them, lengths included.
    pub(super) fn bytes_of(&self, records: u64) -> usize {
        match self.shape {
            Shape::Fixed { record_bytes } => records as usize * usize::from(record_bytes),
            Shape::Framed => {
                let first = self.payloads().take(records as usize);
                first.map(|payload| 2 + payload.len()).sum()
            }
        }
    }

    /// The same payloads, framed, in the present layout of their source: NULL in the fields after the first `known`.
    ///
    /// A payload that does not fit the older layout becomes one of 0 bytes, which the writer refuses in its place.
    pub(super) fn widened(&self, source: &Source, known: usize) -> Result<Vec<u8>, Error> {
        let widening = Widening::new(source.time, &source.fields, known)?;
        let mut framed = Vec::with_capacity(2 * self.bytes.len());
        let mut widened = Vec::new();
        for payload in self.payloads() {
            widened.clear();
            let fits = widening.widen(payload, &mut widened);
            match u16::try_from(widened.len()) {
                Ok(length) if fits => {
                    framed.extend_from_slice(&length.to_le_bytes());
                    framed.extend_from_slice(&widened);
                }
                _ => framed.extend_from_slice(&[0, 0]),
            }
        }
        Ok(framed)
    }
}
