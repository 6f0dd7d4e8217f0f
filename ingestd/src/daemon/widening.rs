//! Batches of producers that do not know all fields of a source, made into batches of its present layout.

use loom_engine::Error;
use loom_engine::ingest::Batch;
use loom_engine::schema::{Source, Widening};

use super::writing::Payloads;
use crate::protocol::Shape;

/// The payloads, framed, with NULL for the fields past the first `known`. What is no payload of the older layout becomes one of no bytes,
/// which the writer refuses in its place.
pub(super) fn widen(
    source: &Source,
    known: usize,
    payloads: &Payloads<'_>,
) -> Result<Vec<u8>, Error> {
    let widening = Widening::new(source.time, &source.fields, known)?;
    let batch = match payloads.shape {
        Shape::Fixed { record_bytes } => Batch::Fixed {
            bytes: payloads.bytes,
            record_bytes: usize::from(record_bytes),
        },
        Shape::Framed => Batch::Framed {
            bytes: payloads.bytes,
        },
    };
    let mut framed = Vec::with_capacity(2 * payloads.bytes.len());
    let mut widened = Vec::new();
    for payload in batch.payloads() {
        widened.clear();
        let fits = payload.is_ok_and(|payload| widening.widen(payload, &mut widened));
        let length = u16::try_from(widened.len()).ok().filter(|_| fits);
        framed.extend_from_slice(&length.unwrap_or(0).to_le_bytes());
        if length.is_some() {
            framed.extend_from_slice(&widened);
        }
    }
    Ok(framed)
}
