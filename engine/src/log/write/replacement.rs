//! A new generation of a segment, after the medium refused a write or a sync of the old one.
//!
//! The content of the medium is then unknown, and another sync proves nothing. Bytes that are still staged come from there; the rest is read back, and damage
//! in it is reported. The new file gets its name only after all of it is synced, so that a crash in between keeps the old generation in force.

use std::sync::Arc;

use super::shared::Shared;
use crate::error::Result;
use crate::format::{Unit, put_raw_unit, verify_chunk};
use crate::log::files::segment::{Draft, SegmentDir};
use crate::log::files::storage::write_at;
use crate::log::files::unit_appender::UnitAppender;
use crate::log::files::unit_file::UnitFile;
use crate::types::{Address, LogKind};

const COPY_BYTES: u64 = 1 << 20;

/// Writes the segment that begins at `first`, whose bytes below `end` were written, to a new file and syncs it.
pub fn replace(shared: &Shared, segments: &SegmentDir, first: Address, end: Address) -> Result<()> {
    let draft = segments.draft(first)?;
    match segments.log() {
        LogKind::Records => copy_units(shared, segments, first, end, &draft)?,
        LogKind::Chunks | LogKind::Times => copy_bytes(shared, segments, first, end, &draft)?,
    }
    draft.publish()
}

/// Staged units become raw, because encoding would take time.
fn copy_units(
    shared: &Shared,
    segments: &SegmentDir,
    first: Address,
    end: Address,
    draft: &Draft<'_>,
) -> Result<()> {
    let before = segments.open_units(first);
    let mut appender = UnitAppender::find(segments, Arc::clone(draft.file()), first)?;
    let mut chunks = vec![0; segments.unit_bytes() as usize];
    let mut unit = Vec::new();
    while appender.next() < end {
        let at = appender.next();
        unit.clear();
        if shared.copy_staged(LogKind::Records, at, &mut chunks) > at {
            let nth = (at.0 - first.0) / segments.unit_bytes();
            let read = match &before {
                Ok(Some(before)) => read_unit(shared, before, nth as usize, at, &mut unit),
                _ => false,
            };
            if !read {
                tracing::error!(
                    "{}: the records are damaged at address {at}: the unit cannot be read back",
                    shared.dir.display()
                );
            }
            if unit.is_empty() {
                appender.append_empty(at + segments.unit_bytes())?;
                continue;
            }
        } else {
            let (uuid, chunk_bytes) = (segments.uuid(), segments.chunk_bytes());
            put_raw_unit(uuid, at, chunk_bytes, &chunks, &mut unit);
        }
        appender.append(&unit)?;
    }
    Ok(())
}

/// Reads a unit of the old generation; empty if its head does not verify. Returns whether all of it verifies.
fn read_unit(
    shared: &Shared,
    before: &UnitFile,
    nth: usize,
    first: Address,
    unit: &mut Vec<u8>,
) -> bool {
    let (uuid, chunk_bytes) = (&shared.meta.uuid, shared.meta.chunk_bytes);
    if before.read_unit_bytes(nth, unit).is_err() {
        unit.clear();
        return false;
    }
    let Ok(mut read) = Unit::of(uuid, first, chunk_bytes, unit.clone()) else {
        unit.clear();
        return false;
    };
    let mut chunk = vec![0; chunk_bytes as usize];
    (0..read.chunks()).all(|nth| {
        let address = first + nth as u64 * u64::from(chunk_bytes);
        let is_read = read.chunk(nth, &mut chunk).is_ok();
        // A chunk that was never written is zeroes.
        let is_empty = chunk.iter().all(|byte| *byte == 0);
        is_read && (is_empty || verify_chunk(uuid, address, &chunk).is_ok())
    })
}

fn copy_bytes(
    shared: &Shared,
    segments: &SegmentDir,
    first: Address,
    end: Address,
    draft: &Draft<'_>,
) -> Result<()> {
    let begin = shared.writer(segments.log()).begin.get();
    let mut at = first.max(begin.align_down(COPY_BYTES));
    while at < end {
        let run = shared.staging.layout().run_bytes(segments.log(), at);
        let mut piece = vec![0; (end.0 - at.0).min(COPY_BYTES).min(run) as usize];
        let staged = shared.copy_staged(segments.log(), at, &mut piece);
        let (below, _) = piece.split_at_mut((staged.0 - at.0) as usize);
        let is_read = segments.read(&segments.list()?, at, below);
        if !is_read.is_ok_and(|is_there| is_there) {
            tracing::error!(
                "{}: the {} is damaged at address {at}: the bytes cannot be read back",
                shared.dir.display(),
                segments.log()
            );
        }
        write_at(&**draft.file(), &piece, at.0 - first.0)?;
        at += piece.len() as u64;
    }
    Ok(())
}
