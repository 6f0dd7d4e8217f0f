//! What a directory holds, before anybody changes it: the first question of recovery and of every reader that finds no writer.
//!
//! FORMAT.md, *Recovery*, 1 to 3. It writes nothing, so a reader on a read-only mount gets the very answer that a writer would begin from.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CHUNK_TRAILER_BYTES, verify_chunk};
use crate::log::files::durable::{self, DurableLog, DurableState};
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::segment::{SegmentDir, SegmentList};
use crate::log::files::storage::{Storage, is_not_found};
use crate::log::staging::attachment::Attachment;
use crate::log::staging::note::StagingNote;
use crate::proven;
use crate::types::{Address, PerLog};

/// A damaged word may claim any number of chunks. Those that a crash leaves missing stand in segments.
pub const GAP_CHUNKS_MAX: u64 = 1 << 20;

/// How the last writer of a directory ended.
#[derive(Debug)]
pub enum Ending {
    /// With a clean stop, or there was none.
    Clean,
    /// It was killed, or still runs; its staging file is there.
    Staged(Attachment),
    /// Staging is gone, or of no use here. `missing` is the error of opening what the note names, where it should have been.
    Lost { missing: Option<Error> },
}

/// What was found.
#[derive(Debug)]
pub struct Survey {
    pub ending: Ending,
    pub note: Option<StagingNote>,
    /// The newest slot, or what stands for it where none verifies.
    pub slot: Option<DurableState>,
}

impl Survey {
    /// `is_empty` says whether the three logs have no segment; it is asked where nothing else says so.
    pub fn take(
        storage: &dyn Storage,
        dir: &Path,
        meta: &DirMeta,
        is_empty: impl FnOnce() -> Result<bool>,
    ) -> Result<Survey> {
        // The note before the slot: a writer that begins first writes a slot that supersedes older notes, so one that no slot supersedes is the newest.
        let note = StagingNote::load(storage, dir)?;
        let slot = durable::read(storage, dir, &meta.uuid)?;
        let staged = match &note {
            Some(note) if !is_superseded(note, slot.as_ref()) => attach(storage, dir, meta, note)?,
            _ => Ending::Lost { missing: None },
        };
        let is_clean = slot.as_ref().is_some_and(|slot| slot.clean);
        let ending = match staged {
            Ending::Staged(attachment) => Ending::Staged(attachment),
            // An epoch whose staging is lost published nothing while the newest slot is the clean one that it began from.
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

/// Whether the slot says more than staging can: an end of its epoch, or a later epoch, which began by saving what staging held.
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

/// Whether no log has a segment.
pub fn is_empty(lists: &PerLog<SegmentList>) -> bool {
    lists.iter().all(SegmentList::is_empty)
}

/// What segments there are.
pub fn list_all(segments: &PerLog<SegmentDir>) -> Result<PerLog<SegmentList>> {
    PerLog::try_new(|log| segments[log].list())
}

/// The durable state that holds when staging is lost: the slot, with the record log taken further, over the longest run of chunks above it that verify.
/// Where no slot verifies, the record log begins with its first segment, and the index logs are empty.
pub fn keep(
    segments: &PerLog<SegmentDir>,
    lists: &PerLog<SegmentList>,
    meta: &DirMeta,
    slot: Option<&DurableState>,
) -> Result<PerLog<DurableLog>> {
    let mut logs = slot.map_or_else(
        || {
            PerLog::new(|log| {
                let first = lists[log].keys().next().copied();
                let first = first.unwrap_or(Address::ZERO);
                DurableLog {
                    tail: first,
                    begin: first,
                    ..DurableLog::default()
                }
            })
        },
        |slot| slot.logs,
    );
    let records = &mut logs.records;
    let (folder, list) = (&segments.records, &lists.records);
    let chunk_bytes = u64::from(meta.chunk_bytes);
    let mut chunk = vec![0; meta.chunk_bytes as usize];
    if records.ends_in_gap() {
        return Ok(logs);
    }
    let mut at = records.tail.align_down(chunk_bytes);
    while is_there(folder.read(list, at, &mut chunk))?
        && verify_chunk(&meta.uuid, at, &chunk).is_ok()
    {
        let is_ended =
            at < records.tail && is_filler(proven::at(&chunk, (records.tail.0 - at.0) as usize..));
        at += chunk_bytes;
        // A recovery that was cut off itself may have ended the chunk there: what stands above does not follow on what the chunk lost.
        if is_ended {
            break;
        }
    }
    records.tail = at.max(records.tail);
    Ok(logs)
}

/// What stands in a segment's place and is not a file holds nothing that could verify.
pub fn is_there(read: Result<bool>) -> Result<bool> {
    match read {
        Err(Error::Damaged { .. }) => Ok(false),
        read => read,
    }
}

/// The first address at which the record log may go on: a chunk boundary, and past every segment if staging was `lost`, since what was published
/// above the end must not share its addresses with anything later.
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

/// How many chunks between two addresses of the record log are in no segment.
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

/// Whether nothing but the trailer stands in the rest of a chunk.
fn is_filler(rest: &[u8]) -> bool {
    let filler = rest.len().saturating_sub(CHUNK_TRAILER_BYTES);
    rest.iter().take(filler).all(|byte| *byte == 0)
}
