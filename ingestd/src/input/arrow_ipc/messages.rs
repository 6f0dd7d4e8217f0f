//! Reads the messages of Arrow IPC one after the other: from streams as their bytes come, from files by the positions in the footer.
//!
//! `arrow_ipc` is the only caller. It gets a message only when it is complete and `limits` has checked it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, anyhow, bail, ensure};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::Schema;
use arrow::ipc::convert::try_fb_to_schema;
use arrow::ipc::reader::read_footer_length;
use arrow::ipc::{self, Block, MetadataVersion};
use loom_engine::proven;

use super::super::blocks::Blocks;
use super::limits::{Dictionaries, UNPACKED_BYTES_MAX, place, verifier};

/// The first bytes of a file; a stream begins with a message.
pub(crate) const FILE_MAGIC: &[u8] = b"ARROW1";
/// The first bytes of a message, except in the oldest streams.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// How far `may_have_rows` looks into a stream.
const LOOK_AHEAD_BYTES: usize = 1 << 20;
/// The magic and the length of the footer, at the end of a file.
const FILE_END_BYTES: u64 = 10;

/// A message in the form that the library takes.
pub(super) struct Message {
    /// The lengths of the metadata and of the body.
    pub block: Block,
    pub bytes: Buffer,
    pub is_dictionary: bool,
}

pub(super) enum Messages {
    File {
        file: File,
        /// Dictionaries first, then batches.
        places: VecDeque<(u64, Block)>,
        total: usize,
        dictionaries: Dictionaries,
    },
    Stream {
        blocks: Blocks,
        dictionaries: Dictionaries,
    },
}

impl Messages {
    /// The schema, with the version of the format, and the messages that follow it.
    pub(super) fn open(mut blocks: Blocks) -> anyhow::Result<(Schema, MetadataVersion, Messages)> {
        blocks.fill_to(FILE_MAGIC.len())?;
        if blocks.data().starts_with(FILE_MAGIC) {
            return open_file(blocks.into_seekable()?);
        }
        let Some((bytes, head)) = stream_head(&mut blocks)? else {
            bail!("it holds no schema");
        };
        let message = message(&bytes, head)?;
        let schema = message.header_as_schema().context("it holds no schema")?;
        let schema = native(schema)?;
        let version = message.version();
        let dictionaries = Dictionaries::default();
        Ok((
            schema,
            version,
            Messages::Stream {
                blocks,
                dictionaries,
            },
        ))
    }

    /// The next message, or `None` at the end. Waits for a pipe.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Message>> {
        let (bytes, head, dictionaries) = match self {
            Messages::File {
                file,
                places,
                dictionaries,
                ..
            } => {
                let Some((at, block)) = places.pop_front() else {
                    return Ok(None);
                };
                let head = usize::try_from(block.metaDataLength())?;
                let length = head + usize::try_from(block.bodyLength())?;
                let mut bytes = MutableBuffer::from_len_zeroed(length);
                file.read_exact_at(&mut bytes, at)?;
                (bytes, head, dictionaries)
            }
            Messages::Stream {
                blocks,
                dictionaries,
            } => {
                let Some((mut bytes, head)) = stream_head(blocks)? else {
                    return Ok(None);
                };
                let body_bytes = message(&bytes, head)?.bodyLength();
                let most = UNPACKED_BYTES_MAX.max(blocks.bytes_total().unwrap_or(0));
                ensure!(
                    u64::try_from(body_bytes).is_ok_and(|bytes| bytes <= most),
                    "a message claims {body_bytes} bytes; the limit is {} MiB; write it with smaller record batches",
                    most >> 20
                );
                take(blocks, &mut bytes, usize::try_from(body_bytes)?)?;
                (bytes, head, dictionaries)
            }
        };
        let (metadata, body) = bytes.as_slice().split_at(head);
        let message = message(metadata, head)?;
        dictionaries.check(message, body)?;
        Ok(Some(Message {
            block: Block::new(0, i32::try_from(head)?, i64::try_from(body.len())?),
            is_dictionary: message.header_as_dictionary_batch().is_some(),
            bytes: bytes.into(),
        }))
    }

    /// Whether a batch with rows may follow. It only looks ahead, consumes nothing, and waits for a pipe.
    pub(super) fn may_have_rows(&mut self) -> anyhow::Result<bool> {
        match self {
            Messages::File { file, places, .. } => {
                for (at, block) in places {
                    let mut bytes = vec![0; usize::try_from(block.metaDataLength())?];
                    file.read_exact_at(&mut bytes, *at)?;
                    if has_rows(message(&bytes, bytes.len())?) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Messages::Stream { blocks, .. } => {
                let mut at = 0;
                while at < LOOK_AHEAD_BYTES {
                    blocks.fill_to(at + 8)?;
                    let (prefix, metadata_bytes) = match blocks.data().get(at..) {
                        None | Some([]) => return Ok(false),
                        Some([0xff, 0xff, 0xff, 0xff, a, b, c, d, ..]) => (8, [*a, *b, *c, *d]),
                        Some([a, b, c, d, ..]) => (4, [*a, *b, *c, *d]),
                        Some(_) => return Ok(true),
                    };
                    let metadata_bytes = usize::try_from(i32::from_le_bytes(metadata_bytes))?;
                    if metadata_bytes == 0 {
                        return blocks.fill_to(at + prefix + 1);
                    }
                    let head = prefix + metadata_bytes;
                    if head > LOOK_AHEAD_BYTES || !blocks.fill_to(at + head)? {
                        return Ok(true);
                    }
                    let message = message(proven::at(blocks.data(), at..), head)?;
                    if has_rows(message) {
                        return Ok(true);
                    }
                    at = at.saturating_add(head + usize::try_from(message.bodyLength())?);
                }
                Ok(true)
            }
        }
    }

    /// The part that was read, from 0 to 1, if it is known.
    pub(super) fn fraction(&self) -> Option<f64> {
        match self {
            Messages::File { places, total, .. } => {
                Some(1.0 - places.len() as f64 / (*total).max(1) as f64)
            }
            Messages::Stream { blocks, .. } => blocks.fraction(),
        }
    }
}

fn open_file(file: File) -> anyhow::Result<(Schema, MetadataVersion, Messages)> {
    let file_bytes = file.metadata()?.len();
    let ends_early = "it ends before its footer";
    let end_at = file_bytes.checked_sub(FILE_END_BYTES).context(ends_early)?;
    let mut end = [0; FILE_END_BYTES as usize];
    file.read_exact_at(&mut end, end_at)?;
    let footer_bytes = read_footer_length(end)?;
    let footer_at = end_at
        .checked_sub(footer_bytes as u64)
        .context(ends_early)?;
    let mut footer = vec![0; footer_bytes];
    file.read_exact_at(&mut footer, footer_at)?;
    let footer = ipc::root_as_footer_with_opts(&verifier(footer_bytes), &footer)
        .map_err(|error| anyhow!("its footer is damaged: {error}"))?;
    let schema = native(footer.schema().context("its footer has no schema")?)?;
    let batches = footer
        .recordBatches()
        .context("its footer has no list of batches")?;
    let dictionaries = footer.dictionaries().into_iter().flatten();
    let mut places = VecDeque::new();
    let mut claimed = 0u64;
    for block in dictionaries.chain(batches) {
        let head = i64::from(block.metaDataLength());
        let (_, head_bytes) = place(block.offset(), head, file_bytes)?;
        let length = block.bodyLength().saturating_add(head);
        let (at, bytes) = place(block.offset(), length, file_bytes)?;
        claimed = claimed.saturating_add(bytes);
        ensure!(
            head_bytes <= bytes && claimed <= file_bytes,
            "its footer claims messages of {claimed} bytes, and it has {file_bytes}"
        );
        places.push_back((at, *block));
    }
    let total = places.len();
    let messages = Messages::File {
        file,
        places,
        total,
        dictionaries: Dictionaries::default(),
    };
    Ok((schema, footer.version(), messages))
}

/// Refuses big-endian schemas, which the library would read as little-endian.
fn native(schema: ipc::Schema<'_>) -> anyhow::Result<Schema> {
    ensure!(
        schema.endianness().equals_to_target_endianness(),
        "its numbers are big-endian; write it as little-endian, as most machines do by themselves"
    );
    Ok(try_fb_to_schema(schema)?)
}

/// The bytes before the body of the next message, and their number; `None` at the end of the stream.
fn stream_head(blocks: &mut Blocks) -> anyhow::Result<Option<(MutableBuffer, usize)>> {
    if !blocks.fill_to(1)? {
        return Ok(None);
    }
    let mut bytes = MutableBuffer::new(0);
    take(blocks, &mut bytes, 4)?;
    if bytes.as_slice() == CONTINUATION {
        take(blocks, &mut bytes, 4)?;
    }
    let metadata_bytes = bytes
        .as_slice()
        .last_chunk()
        .map_or(0, |last| i32::from_le_bytes(*last));
    if metadata_bytes == 0 {
        ensure!(
            !blocks.fill_to(1)?,
            "it goes on after the end of its stream; load each stream by itself"
        );
        return Ok(None);
    }
    let metadata_bytes = usize::try_from(metadata_bytes);
    let metadata_bytes = metadata_bytes.context("the length of a message is negative")?;
    take(blocks, &mut bytes, metadata_bytes)?;
    let head = bytes.len();
    Ok(Some((bytes, head)))
}

/// Moves the next bytes of a stream; an error if the stream ends before.
fn take(blocks: &mut Blocks, bytes: &mut MutableBuffer, mut missing: usize) -> anyhow::Result<()> {
    while missing > 0 {
        let data = blocks.data();
        let data = data.get(..missing.min(data.len())).unwrap_or(data);
        bytes.extend_from_slice(data);
        let moved = data.len();
        blocks.consume(moved);
        missing -= moved;
        ensure!(
            missing == 0 || blocks.fill()?,
            "the stream ends within a message"
        );
    }
    Ok(())
}

fn has_rows(message: ipc::Message<'_>) -> bool {
    let batch = message.header_as_record_batch();
    batch.is_some_and(|batch| batch.length() > 0)
}

/// Decodes the metadata before the body of a message.
fn message(bytes: &[u8], head: usize) -> anyhow::Result<ipc::Message<'_>> {
    let prefix = if bytes.starts_with(&CONTINUATION) {
        8
    } else {
        4
    };
    let metadata = bytes
        .get(prefix..head)
        .context("a message has no metadata")?;
    let message = ipc::root_as_message_with_opts(&verifier(metadata.len()), metadata);
    message.map_err(|error| anyhow!("the metadata of a message is damaged: {error}"))
}
