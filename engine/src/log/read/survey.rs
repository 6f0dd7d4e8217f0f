//! The content of a directory before any change: the first question of recovery and of every reader that finds no writer (FORMAT.md, *Recovery*, 1 to 3).
//!
//! It writes nothing, so a reader on a read-only mount gets the same answer from which a writer would begin.

use std::path::Path;
use std::sync::Arc;

use super::epoch_view::{Stage, View};
use super::records_end::RecordsEnd;
use crate::error::{Error, Result};
use crate::format::{CHUNK_TRAILER_BYTES, checksum, verify_chunk};
use crate::log::files::durable::{self, DurableLog, DurableState};
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::segment::{SegmentDir, SegmentList};
use crate::log::files::storage::{Storage, is_not_found};
use crate::log::files::tail_file::TailImage;
use crate::log::staging::attachment::Attachment;
use crate::log::staging::note::StagingNote;
use crate::proven;
use crate::types::{Address, LogKind, PerLog};

/// The most chunks of a gap that are in no segment. A damaged word may claim any number, and a crash leaves few.
pub const GAP_CHUNKS_MAX: u64 = 1 << 20;

/// The end of a directory's last writer.
#[derive(Debug)]
pub enum Ending {
    /// It stopped cleanly, or there was none.
    Clean,
    /// It was killed, or still runs; its staging file exists.
    Staged(Attachment),
    /// Staging is gone or unusable. `missing` is the error of opening the file in the note, if it should exist.
    Lost { missing: Option<Error> },
}

/// The result of the survey.
#[derive(Debug)]
pub struct Survey {
    pub ending: Ending,
    pub note: Option<StagingNote>,
    /// The newest slot; `None` if none verifies.
    pub slot: Option<DurableState>,
}

impl Survey {
    /// `is_empty` returns whether the three logs have no segment; it is called only if nothing else shows that.
    pub fn take(
        storage: &dyn Storage,
        dir: &Path,
        meta: &DirMeta,
        is_empty: impl FnOnce() -> Result<bool>,
    ) -> Result<Survey> {
        // The note comes before the slot: a starting writer first writes a slot that supersedes older notes, so a note that no slot supersedes is the newest.
        let note = StagingNote::load(storage, dir)?;
        let slot = durable::read(storage, dir, meta)?;
        let staged = match &note {
            Some(note) if !is_superseded(note, slot.as_ref()) => attach(storage, dir, meta, note)?,
            _ => Ending::Lost { missing: None },
        };
        let is_clean = slot.as_ref().is_some_and(|slot| slot.clean);
        let ending = match staged {
            Ending::Staged(attachment) => Ending::Staged(attachment),
            // An epoch with lost staging published nothing while the newest slot is the clean one that it began from.
            _ if is_clean => Ending::Clean,
            _ if slot.is_none() && is_empty()? => Ending::Clean,
            lost => lost,
        };
        Ok(Survey { ending, note, slot })
    }

    /// The greatest epoch that the directory knows of.
    pub fn epoch(&self) -> u64 {
        let of_slot = self.slot.as_ref().map_or(0, |slot| slot.epoch);
        of_slot.max(self.note.as_ref().map_or(0, |note| note.epoch))
    }
}

/// Reports whether the slot is newer than staging: an end of its epoch, or a later epoch, which began by saving the content of staging.
fn is_superseded(note: &StagingNote, slot: Option<&DurableState>) -> bool {
    slot.is_some_and(|slot| slot.epoch > note.epoch || (slot.clean && slot.epoch == note.epoch))
}

fn attach(storage: &dyn Storage, dir: &Path, meta: &DirMeta, note: &StagingNote) -> Result<Ending> {
    if !note.is_of(storage, dir, &meta.uuid)? {
        return Ok(Ending::Lost { missing: None });
    }
    match Attachment::open(storage, dir, note) {
        Ok(attachment) => Ok(Ending::Staged(attachment)),
        Err(error) if is_not_found(&error) => Ok(Ending::Lost {
            missing: Some(error),
        }),
        Err(error) => Err(error),
    }
}

/// The segment folders of the three logs.
pub fn segment_dirs(storage: &Arc<dyn Storage>, dir: &Path, meta: &DirMeta) -> PerLog<SegmentDir> {
    PerLog::new(|log| SegmentDir::new(Arc::clone(storage), dir, log, meta))
}

pub fn is_empty(lists: &PerLog<SegmentList>) -> bool {
    lists.iter().all(SegmentList::is_empty)
}

pub fn list_all(segments: &PerLog<SegmentDir>) -> Result<PerLog<SegmentList>> {
    PerLog::try_new(|log| segments[log].list())
}

/// Returns the durable state after lost staging: the slot, with the record log extended over the longest run above it of verifying chunks in units, and of
/// pieces in the tail. If no slot verifies, the record log begins with its first segment, and the index logs are empty.
pub fn keep(
    storage: &dyn Storage,
    dir: &Path,
    segments: &PerLog<SegmentDir>,
    lists: &PerLog<SegmentList>,
    meta: &DirMeta,
    slot: Option<&DurableState>,
) -> Result<(PerLog<DurableLog>, RecordsEnd)> {
    let mut logs = slot.map_or_else(
        || {
            PerLog::new(|log| {
                let first = lists[log].keys().next().copied();
                let first = first.unwrap_or(Address::ZERO);
                DurableLog {
                    tail: first,
                    begin: first,
                    encoded: first,
                    ..DurableLog::default()
                }
            })
        },
        |slot| slot.logs,
    );
    let records = &mut logs.records;
    let mut end = RecordsEnd::of_slot(storage, dir, meta, records)?;
    if records.ends_in_gap() {
        return Ok((logs, end));
    }
    let view = View::new(Stage::Unknown);
    let folder = &segments.records;
    let run = run_of_units(&view, folder, meta, records.tail, end.encoded)?;
    // The tail certainly holds the slot's records, even if a unit with them is damaged.
    if run.end > end.encoded && run.end >= records.tail {
        // A unit exists even if its end is damaged or a recovery ended it.
        end.encoded = run.end.align_up(meta.unit_bytes());
        let unit = end.encoded;
        end.tail = TailImage::load(storage, dir, &meta.uuid, meta.unit_bytes(), unit)?;
    }
    let goes_on = !run.is_ended && end.encoded <= run.end.max(records.tail);
    let in_tail = if goes_on { end.tail.end() } else { run.end };
    let tail = records.tail.max(run.end).max(in_tail);
    if tail > records.tail {
        records.tail = tail;
        let from = tail.align_down(meta.chunk_bytes.into());
        let mut bytes = vec![0; (tail.0 - from.0) as usize];
        view.read_records(folder, &end, from, &mut bytes)?;
        records.checksum = checksum(&meta.uuid, LogKind::Records, from, &bytes);
    }
    Ok((logs, end))
}

struct Run {
    end: Address,
    /// A recovery ended it, so that nothing above follows on it.
    is_ended: bool,
}

/// Returns the run of verifying chunks in units, from the known units' end on, or from the tail if that is lower.
fn run_of_units(
    view: &View,
    folder: &SegmentDir,
    meta: &DirMeta,
    tail: Address,
    encoded: Address,
) -> Result<Run> {
    let chunk_bytes = u64::from(meta.chunk_bytes);
    let mut chunk = vec![0; meta.chunk_bytes as usize];
    let mut at = encoded.min(tail.align_down(chunk_bytes));
    while is_there(view.read_segments(folder, at, &mut chunk))?
        && verify_chunk(&meta.uuid, at, &chunk).is_ok()
    {
        let end = at + chunk_bytes;
        // An interrupted recovery may have ended the chunk at the tail, and later bytes then do not follow on the lost ones. That recovery has removed
        // everything above in the segment.
        let is_ended = at < tail
            && tail < end
            && folder.first_of(end) == end
            && is_filler(proven::at(&chunk, (tail.0 - at.0) as usize..));
        at = end;
        if is_ended {
            return Ok(Run { end: at, is_ended });
        }
    }
    Ok(Run {
        end: at,
        is_ended: false,
    })
}

/// Reports whether bytes were read. Missing or damaged bytes, and something else in a segment's place, hold nothing that could verify.
pub fn is_there(read: Result<()>) -> Result<bool> {
    match read {
        Err(Error::Damaged { .. } | Error::Corrupt { .. }) => Ok(false),
        read => read.map(|()| true),
    }
}

/// Returns the lowest address at which the record log may continue: a chunk boundary, and past every segment if staging was `lost`, because bytes that were
/// published above the end must not share their addresses with later ones.
pub fn resume_after(
    logs: &PerLog<DurableLog>,
    meta: &DirMeta,
    lost: Option<&PerLog<SegmentList>>,
) -> Address {
    let records = &logs.records;
    let segment_bytes = meta.segment_bytes.records;
    let past_end = records
        .tail
        .max(records.resume)
        .align_up(u64::from(meta.chunk_bytes));
    match lost.and_then(|lists| lists.records.keys().next_back()) {
        Some(&last) => past_end.max(last + segment_bytes),
        None => past_end,
    }
}

/// Returns the number of chunks between two addresses of the record log that are in no segment.
pub fn missing_chunks(
    folder: &SegmentDir,
    list: &SegmentList,
    meta: &DirMeta,
    from: Address,
    to: Address,
) -> u64 {
    let in_segment = |first: &Address| {
        let end = first.0.saturating_add(folder.segment_bytes()).min(to.0);
        end.saturating_sub(first.0.max(from.0))
    };
    let stored: u64 = list.keys().map(in_segment).sum();
    let bytes = to.0.saturating_sub(from.0).saturating_sub(stored);
    bytes / u64::from(meta.chunk_bytes)
}

/// Reports whether the rest of a chunk holds only the trailer.
fn is_filler(rest: &[u8]) -> bool {
    let filler = rest.len().saturating_sub(CHUNK_TRAILER_BYTES);
    rest.iter().take(filler).all(|byte| *byte == 0)
}
