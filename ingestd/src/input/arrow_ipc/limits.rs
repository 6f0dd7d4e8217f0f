//! Limits of an Arrow IPC message: its parts lie within its own bytes, and its claims of rows and unpacked bytes match them.
//!
//! `messages` checks every message here before the library decodes it, so that the library never reserves more than the input's length or a named
//! limit.

use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use arrow::ipc::{self, MessageHeader};
use flatbuffers::VerifierOptions;

/// The limit of an unpacked batch, unless the batch already takes more in the input.
pub(super) const UNPACKED_BYTES_MAX: u64 = 1 << 30;
/// The limit of rows in a batch of any size: columns of NULLs and of runs take no bytes.
const ROWS_MAX: u64 = 16 << 20;
/// In any other column, a row takes at least one bit.
const ROWS_A_BYTE: u64 = 8;

/// Checks that a part lies within a file or message of `whole` bytes.
pub(super) fn place(offset: i64, length: i64, whole: u64) -> anyhow::Result<(u64, u64)> {
    let placed = u64::try_from(offset).ok().zip(u64::try_from(length).ok());
    placed
        .filter(|(offset, length)| offset.checked_add(*length).is_some_and(|end| end <= whole))
        .with_context(|| {
            format!("it claims {length} bytes from byte {offset} on, and has {whole} bytes")
        })
}

/// The verifier's limits for a flatbuffer of this length. They keep a part that is referenced many times from counting as many parts.
pub(super) fn verifier(bytes: usize) -> VerifierOptions {
    VerifierOptions {
        max_tables: bytes / 8 + 1,
        max_apparent_size: 8 * bytes + 4096,
        ..VerifierOptions::default()
    }
}

/// The sizes of the dictionaries in memory, by id.
#[derive(Default)]
pub(super) struct Dictionaries(HashMap<i64, Held>);

/// Sizes in the input, and unpacked.
#[derive(Copy, Clone, Default)]
struct Held {
    packed: u64,
    unpacked: u64,
}

impl Held {
    fn and(self, other: Held) -> Held {
        Held {
            packed: self.packed.saturating_add(other.packed),
            unpacked: self.unpacked.saturating_add(other.unpacked),
        }
    }

    fn check(self, what: &str) -> anyhow::Result<()> {
        ensure!(
            self.unpacked <= self.packed.max(UNPACKED_BYTES_MAX),
            "{what} to {} MiB; the limit is {} MiB; write it with smaller record batches",
            self.unpacked >> 20,
            UNPACKED_BYTES_MAX >> 20
        );
        Ok(())
    }
}

impl Dictionaries {
    pub(super) fn check(&mut self, message: ipc::Message<'_>, body: &[u8]) -> anyhow::Result<()> {
        match message.header_type() {
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch();
                check_batch(batch.context("a record batch has no header")?, body).map(drop)
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message.header_as_dictionary_batch();
                let dictionary = dictionary.context("a dictionary has no header")?;
                let values = dictionary.data().context("a dictionary has no values")?;
                let held = check_batch(values, body)?;
                let kept = self.0.entry(dictionary.id()).or_default();
                *kept = if dictionary.isDelta() {
                    kept.and(held)
                } else {
                    held
                };
                let all = self.0.values().copied().fold(Held::default(), Held::and);
                all.check("its dictionaries unpack")
            }
            MessageHeader::NONE => Ok(()),
            other => bail!("it holds a message of type {other:?}; a stream has batches alone"),
        }
    }
}

fn check_batch(batch: ipc::RecordBatch<'_>, body: &[u8]) -> anyhow::Result<Held> {
    let is_packed = batch.compression().is_some();
    let mut unpacked = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let (offset, length) = place(buffer.offset(), buffer.length(), body.len() as u64)?;
        let claimed = body
            .get(offset as usize..)
            .and_then(|bytes| bytes.first_chunk());
        let claimed = claimed.map_or(0, |bytes| i64::from_le_bytes(*bytes));
        // -1 marks bytes that are not compressed.
        let bytes = match u64::try_from(claimed) {
            Ok(claimed) if is_packed && length > 0 => claimed,
            _ => length,
        };
        unpacked = unpacked.saturating_add(bytes);
    }
    let held = Held {
        packed: body.len() as u64,
        unpacked,
    };
    held.check("a batch unpacks")?;
    let most = ROWS_MAX.max(unpacked.saturating_mul(ROWS_A_BYTE));
    let nodes = batch
        .nodes()
        .into_iter()
        .flatten()
        .map(|node| node.length());
    for rows in nodes.chain([batch.length()]) {
        ensure!(
            u64::try_from(rows).is_ok_and(|rows| rows <= most),
            "a batch of {} bytes claims {rows} values of a column; the limit is {most}",
            body.len()
        );
    }
    Ok(held)
}
