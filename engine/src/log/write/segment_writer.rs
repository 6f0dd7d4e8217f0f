//! The flusher's segment files of one log: open for writing, waiting for a sync, or refused by the medium.

use std::sync::Arc;

use super::fault::Fault;
use super::replacement::replace;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::log::files::segment::{Draft, SegmentDir};
use crate::log::files::storage::StorageFile;
use crate::log::sync::Ordering;
use crate::types::Address;

/// Files that wait for their sync; more are synced before the next one begins.
const UNSYNCED_FILES_MAX: usize = 8;

#[derive(Debug)]
pub struct SegmentWriter {
    segments: SegmentDir,
    current: Option<SegmentFile>,
    /// Files written since their last sync.
    unsynced: Vec<SegmentFile>,
    /// First addresses of segments whose content on the medium is unknown; they are written again before anything else.
    suspect: Vec<Address>,
}

#[derive(Clone, Debug)]
struct SegmentFile {
    first: Address,
    file: Arc<dyn StorageFile>,
}

impl SegmentWriter {
    pub fn new(segments: SegmentDir) -> SegmentWriter {
        SegmentWriter {
            segments,
            current: None,
            unsynced: Vec::new(),
            suspect: Vec::new(),
        }
    }

    pub fn segments(&self) -> &SegmentDir {
        &self.segments
    }

    pub fn offset_of(&self, at: Address) -> u64 {
        at.0 - self.segments.first_of(at).0
    }

    /// Creates segments until two blocks ahead of the writer exist, so that no address is published without one.
    pub fn allocate_ahead(&self, shared: &Shared) -> Result<(), Fault> {
        let log = self.segments.log();
        let allocated = &shared.flusher(log).allocated;
        let wanted = shared.writer(log).appended.get() + 2 * shared.geometry.block(log);
        while allocated.get() < wanted {
            let first = allocated.get();
            self.allocate(first)?;
            shared.counters.segments.fetch_add(1, Ordering::Relaxed);
            allocated.set(first + self.segments.segment_bytes());
            shared.notify();
        }
        Ok(())
    }

    /// Creates an empty segment. If the medium refuses it, another file replaces it as the next generation; if that is refused too, it is tried again later.
    /// Nothing is lost in the meantime, because the writer waits.
    fn allocate(&self, first: Address) -> Result<(), Fault> {
        let refused = match self.segments.provide_reserved(first) {
            Ok(_) => return Ok(()),
            Err(error) => match Fault::from(error) {
                Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. })) => error,
                fault => return Err(fault),
            },
        };
        let draft = self.segments.draft(first);
        draft.and_then(Draft::publish).map_err(Fault::Passing)?;
        // This is reported only on success: a failure is tried again and again, and reported as trouble.
        tracing::warn!("{refused}; another file has replaced the segment");
        Ok(())
    }

    /// Opens the segment file that holds `at`, and notes that it needs a sync. Everything below `written` was written.
    pub fn file(
        &mut self,
        shared: &Shared,
        at: Address,
        written: Address,
    ) -> Result<Arc<dyn StorageFile>, Fault> {
        self.replace_suspects(shared, written)?;
        let first = self.segments.first_of(at);
        let file = match &self.current {
            Some(current) if current.first == first => Arc::clone(&current.file),
            _ => self.open(shared, first, written)?,
        };
        if !self.unsynced.iter().any(|other| other.first == first) {
            self.unsynced.push(SegmentFile {
                first,
                file: Arc::clone(&file),
            });
        }
        Ok(file)
    }

    fn open(
        &mut self,
        shared: &Shared,
        first: Address,
        written: Address,
    ) -> Result<Arc<dyn StorageFile>, Fault> {
        if self.unsynced.len() >= UNSYNCED_FILES_MAX {
            self.sync(shared, written)?;
        }
        let file = self.segments.provide_reserved(first)?;
        self.current = Some(SegmentFile {
            first,
            file: Arc::clone(&file),
        });
        Ok(file)
    }

    /// Notes that the medium refused a write or a sync of the segment that holds `at`. It is not used again.
    pub fn refuse(&mut self, at: Address, error: &Error) {
        let first = self.segments.first_of(at);
        tracing::warn!(
            "{error}; the segment of the {} is written to a new file",
            self.segments.log()
        );
        self.current.take_if(|current| current.first == first);
        self.unsynced.retain(|other| other.first != first);
        if !self.suspect.contains(&first) {
            self.suspect.push(first);
        }
    }

    /// Syncs every file that was written since the last time. One whose sync fails is never synced again: its segment is written again.
    pub fn sync(&mut self, shared: &Shared, written: Address) -> Result<(), Fault> {
        for unsynced in std::mem::take(&mut self.unsynced) {
            match unsynced.file.sync() {
                Ok(()) => {
                    shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.refuse(unsynced.first, &error),
            }
        }
        self.replace_suspects(shared, written)
    }

    /// Gives every suspect segment a new generation, which is synced when this returns.
    fn replace_suspects(&mut self, shared: &Shared, written: Address) -> Result<(), Fault> {
        while let Some(&first) = self.suspect.last() {
            let end = written.min(first + self.segments.segment_bytes());
            replace(shared, &self.segments, first, end)?;
            shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.suspect.pop();
        }
        Ok(())
    }
}
