//! Salvage: what a killed writer published and nobody synced is copied from its staging into segments.
//!
//! Everything that is staged and not known to be durable is written, flushed or not: the writer may have died of a sync that failed, and
//! then only staging is sure to hold it. It can be repeated: the same bytes go to the same places.

use crate::error::Result;
use crate::format::{checksum, has_trailer, put_trailer};
use crate::log::files::durable::DurableLog;
use crate::log::files::meta::DirMeta;
use crate::log::files::segment::SegmentDir;
use crate::log::staging::attachment::Attachment;
use crate::log::staging::control::Word;
use crate::types::{Address, LogKind, PerLog};

/// Pieces in which it copies.
const COPY_BYTES: u64 = 8 << 20;

/// Returns the tails that were published; all below them is in segments, durably.
pub fn salvage(
    staging: &Attachment,
    segments: &PerLog<SegmentDir>,
    meta: &DirMeta,
) -> Result<PerLog<DurableLog>> {
    PerLog::try_new(|log| salvage_log(staging, &segments[log], meta))
}

fn salvage_log(staging: &Attachment, segments: &SegmentDir, meta: &DirMeta) -> Result<DurableLog> {
    let log = segments.log();
    let chunk_bytes = u64::from(meta.chunk_bytes);
    let marks = Marks::load(staging, log)?;
    let Marks { tail, begin, .. } = marks;
    // A head is a multiple of the chunk size, so whole chunks are staged. It may lie above the tail, if a whole block was not published.
    let from = marks
        .durable
        .align_down(chunk_bytes)
        .max(marks.head)
        .min(tail);
    if tail.0 - from.0 > 2 * staging.layout().block(log) {
        return Err(staging.damaged(&format!("its marks of the {log} lie too far apart")));
    }
    let mut at = from;
    while at < tail {
        let bytes = (tail.0 - at.0).min(COPY_BYTES);
        let mut piece = vec![0; bytes.next_multiple_of(chunk_bytes) as usize];
        let (known, _) = piece.split_at_mut(bytes as usize);
        staging.copy_out(log, at, known)?;
        if log == LogKind::Records {
            seal_whole_chunks(&mut piece, at, tail, meta);
        } else {
            piece.truncate(bytes as usize);
        }
        segments.write_synced(at, &piece)?;
        at += bytes;
    }
    let last = tail.align_down(chunk_bytes);
    let mut below = vec![0; (tail.0 - last.0) as usize];
    let list = segments.list()?;
    if !segments.read(&list, last, &mut below)? {
        return Err(segments.missing(&list, last, "the bytes below the end are not there"));
    }
    Ok(DurableLog {
        tail,
        begin,
        checksum: checksum(&meta.uuid, log, last, &below),
        resume: Address::ZERO,
    })
}

/// What the dead writer last said of a log.
struct Marks {
    begin: Address,
    durable: Address,
    head: Address,
    tail: Address,
}

impl Marks {
    fn load(staging: &Attachment, log: LogKind) -> Result<Marks> {
        let mut marks = Marks {
            begin: staging.word(log, Word::Begin)?,
            durable: staging.word(log, Word::Durable)?,
            head: staging.word(log, Word::Head)?,
            tail: staging.word(log, Word::Tail)?,
        };
        if marks.durable > marks.tail {
            // It proves nothing, so all that is staged is written again.
            marks.durable = Address::ZERO;
        }
        if marks.begin <= marks.tail {
            return Ok(marks);
        }
        let what = format!("its Begin of the {log} lies above its Tail");
        Err(staging.damaged(&what))
    }
}

/// Seals the chunks of `piece`, which begins at `at`, that end at or below the tail, where their writer, an older one, has not.
fn seal_whole_chunks(piece: &mut [u8], at: Address, tail: Address, meta: &DirMeta) {
    let mut address = at;
    for chunk in piece.chunks_exact_mut(meta.chunk_bytes as usize) {
        if address + u64::from(meta.chunk_bytes) <= tail && !has_trailer(chunk) {
            put_trailer(&meta.uuid, address, chunk);
        }
        address += u64::from(meta.chunk_bytes);
    }
}
