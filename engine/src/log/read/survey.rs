//! What a directory holds, before anybody changes it: the first question of recovery and of every reader that finds no writer.
//!
//! FORMAT.md, *Recovery*, 1 to 3. It writes nothing, so a reader on a read-only mount gets the very answer that a writer would begin from.

use std::path::Path;
use std::sync::Arc;

use super::epoch_view::{Stage, View};
use super::records_end::{RecordsEnd, unit_bytes};
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

/// The durable state that holds when staging is lost: the slot, with the record log taken further, over the longest run above it of chunks in units that
/// verify, and of pieces in the tail. Where no slot verifies, the record log begins with its first segment, and the index logs are empty.
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
    // The tail is sure to hold what the slot says, where a unit that took it is damaged.
    if run.end > end.encoded && run.end >= records.tail {
        // A unit whose end is damaged, or was ended by a recovery, is there all the same.
        end.encoded = run.end.align_up(unit_bytes(meta));
        let unit = end.encoded;
        end.tail = TailImage::load(storage, dir, &meta.uuid, unit_bytes(meta), unit)?;
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

/// The run of chunks in units that verify, from where units are known to hold the log on, or from the tail, if that lies below.
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
        // A recovery that was cut off itself may have ended the chunk at the tail, and what stands above does not follow on what the chunk lost. In the
        // segment nothing stands above then: that recovery cut it off.
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

/// Whether bytes were read. What is missing or damaged, or stands in a segment's place and is not a file, holds nothing that could verify.
pub fn is_there(read: Result<()>) -> Result<bool> {
    match read {
        Err(Error::Damaged { .. } | Error::Corrupt { .. }) => Ok(false),
        read => read.map(|()| true),
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
