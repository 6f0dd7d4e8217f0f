//! A new generation of a segment, after the medium refused a write or a sync of the old one.
//!
//! Nobody knows then what the medium holds, and asking it again proves nothing. What is still staged is taken from there; the rest is
//! read back, and what of it does not verify is named. The new file gets its name only when all of it is synced, so that a crash in between leaves
//! the old generation in force.

use super::shared::Shared;
use crate::error::Result;
use crate::format::verify_chunk;
use crate::log::files::segment::SegmentDir;
use crate::log::files::storage::write_at;
use crate::types::{Address, LogKind};

const COPY_BYTES: u64 = 1 << 20;

/// Writes the segment that begins at `first`, of which everything below `end` was written, to a new file, synced.
pub fn replace(shared: &Shared, segments: &SegmentDir, first: Address, end: Address) -> Result<()> {
    let draft = segments.draft(first)?;
    let mut at = first.max(
        shared
            .writer(segments.log())
            .begin
            .get()
            .align_down(COPY_BYTES),
    );
    while at < end {
        let run = shared.staging.layout().run_bytes(segments.log(), at);
        let mut piece = vec![0; (end.0 - at.0).min(COPY_BYTES).min(run) as usize];
        let staged = shared.copy_staged(segments.log(), at, &mut piece);
        let (below, _) = piece.split_at_mut((staged.0 - at.0) as usize);
        read_back(shared, segments, at, below)?;
        write_at(draft.file(), &piece, at.0 - first.0)?;
        at += piece.len() as u64;
    }
    draft.publish()
}

/// Reads bytes of the old generation, as far as they are there, and names the chunks that do not verify. Of the record log these are whole chunks:
/// staging begins at one, and holds the chunk under way.
fn read_back(shared: &Shared, segments: &SegmentDir, at: Address, piece: &mut [u8]) -> Result<()> {
    let list = segments.list()?;
    let chunk_bytes = shared.geometry.chunk_bytes;
    let mut address = at;
    for chunk in piece.chunks_mut(chunk_bytes as usize) {
        let is_sealed = segments.log() == LogKind::Records;
        assert!(
            !is_sealed || chunk.len() as u64 == chunk_bytes,
            "the chunk at {address} of the {} is whole below what is staged, not {} bytes",
            segments.log(),
            chunk.len()
        );
        let is_read = segments
            .read(&list, address, chunk)
            .is_ok_and(|is_there| is_there);
        if !is_read || (is_sealed && verify_chunk(&shared.meta.uuid, address, chunk).is_err()) {
            tracing::error!(
                "{}: the {} is damaged at address {address}: the bytes cannot be read back",
                shared.dir.display(),
                segments.log()
            );
        }
        address += chunk_bytes;
    }
    Ok(())
}
