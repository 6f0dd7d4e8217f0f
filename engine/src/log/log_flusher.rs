//! The flusher's part for one log: which bytes go next, and into which segment file.

use std::sync::Arc;

use super::control::Word;
use super::fault::Fault;
use super::replacement::replace;
use super::segment::SegmentDir;
use super::shared::Shared;
use super::storage::{OpenMode, StorageFile, write_at};
use super::sync::Ordering;
use crate::error::{Error, Result};
use crate::format::{CHUNK_TRAILER_BYTES, seal_trailer};
use crate::types::{Address, LogKind};

const WRITE_BYTES_MAX: u64 = 4 << 20;
const WRITE_BYTES_MIN: u64 = 1 << 20;
/// What direct writes are multiples of.
const PAGE_BYTES: u64 = 4096;
/// Files that wait for their sync; more are synced before the next one is begun.
const UNSYNCED_FILES_MAX: usize = 8;

/// When a block may be reused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Release {
    /// As soon as its writes have returned.
    Written,
    /// When it is durable too.
    Synced,
}

#[derive(Debug)]
pub struct LogFlusher {
    segments: SegmentDir,
    release: Release,
    /// All below it is written; in the record log a chunk boundary.
    next: Address,
    current: Option<SegmentFile>,
    /// Written since their last sync.
    unsynced: Vec<SegmentFile>,
    /// First addresses of segments of which nobody knows what is on the medium; they are written anew before anything else.
    suspect: Vec<Address>,
}

#[derive(Clone, Debug)]
struct SegmentFile {
    first: Address,
    file: Arc<dyn StorageFile>,
}

impl LogFlusher {
    pub fn new(segments: SegmentDir, release: Release, start: Address) -> LogFlusher {
        LogFlusher {
            segments,
            release,
            next: start,
            current: None,
            unsynced: Vec::new(),
            suspect: Vec::new(),
        }
    }

    pub fn log(&self) -> LogKind {
        self.segments.log()
    }

    pub fn segments(&self) -> &SegmentDir {
        &self.segments
    }

    pub fn next(&self) -> Address {
        self.next
    }

    /// Makes segments until two blocks ahead of the writer are allocated.
    pub fn allocate_ahead(&mut self, shared: &Shared) -> Result<()> {
        let log = self.log();
        let allocated = &shared.flusher(log).allocated;
        let wanted = shared.writer(log).appended.get() + 2 * shared.geometry.block(log);
        while allocated.get() < wanted {
            let first = allocated.get();
            self.segments.provide(first, OpenMode::Write)?;
            shared.counters.segments.fetch_add(1, Ordering::Relaxed);
            allocated.set(first + self.segments.segment_bytes());
            shared.notify();
        }
        Ok(())
    }

    /// Writes what is complete, if it is enough to be worth a write or `all` is asked for. Returns whether it wrote.
    pub fn write_out(&mut self, shared: &Shared, all: bool) -> Result<bool, Fault> {
        let log = self.log();
        self.replace_suspects(shared)?;
        let appended = shared.writer(log).appended.get();
        let complete = match log {
            LogKind::Records => appended.align_down(shared.geometry.chunk_bytes),
            LogKind::Chunks | LogKind::Times => appended,
        };
        let block = shared.geometry.block(log);
        let pending = complete.0.saturating_sub(self.next.0);
        let ends_a_block = complete.align_down(block) > self.next.align_down(block);
        if pending == 0 || !(all || ends_a_block || pending >= WRITE_BYTES_MIN.min(block / 4)) {
            return Ok(false);
        }
        while self.next < complete && !shared.is_stopping() {
            let run = (complete.0 - self.next.0)
                .min(WRITE_BYTES_MAX)
                .min(shared.staging.layout().run_bytes(log, self.next));
            self.write_run(shared, run as usize)?;
        }
        Ok(true)
    }

    /// Writes the next bytes, which lie in one block, and so in one segment.
    fn write_run(&mut self, shared: &Shared, bytes: usize) -> Result<(), Fault> {
        let (log, at) = (self.log(), self.next);
        if log == LogKind::Records {
            self.seal_chunks(shared, bytes);
        }
        // SAFETY: the range lies below `appended` and at or above `released`, which follows `next`, so the writer stores nothing there; the
        // seals were stored by this thread just before.
        let staged = unsafe { shared.staging.stable_bytes(log, at, bytes) };
        self.write(shared, at, staged)?;
        self.next += bytes as u64;
        shared
            .counters
            .written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.told_flushed(shared, self.next);
        if self.release == Release::Written {
            shared.flusher(log).released.set(self.next);
            shared.notify();
        }
        Ok(())
    }

    /// Stores the seals of the chunks in the next `bytes` bytes. Readers of staging ignore that place, so no published byte changes.
    fn seal_chunks(&self, shared: &Shared, bytes: usize) {
        let chunk_bytes = shared.geometry.chunk_bytes;
        let mut chunk = self.next;
        while chunk < self.next + bytes as u64 {
            let trailer = {
                // SAFETY: as in `write_run`; the slice is gone before the trailer is stored.
                let staged = unsafe {
                    shared
                        .staging
                        .stable_bytes(LogKind::Records, chunk, chunk_bytes as usize)
                };
                seal_trailer(&shared.meta.uuid, chunk, staged)
            };
            let place = chunk + (chunk_bytes - CHUNK_TRAILER_BYTES as u64);
            shared.staging.copy_in(LogKind::Records, place, &trailer);
            chunk += chunk_bytes;
        }
    }

    /// Writes the chunk under way up to `tail`, for durability alone. Its last page is filled with zeroes, and written again when more of it is
    /// there: with the same values, and more.
    pub fn write_partial(
        &mut self,
        shared: &Shared,
        tail: Address,
        scratch: &mut [u8],
    ) -> Result<(), Fault> {
        let flushed = shared.flusher(self.log()).flushed.get();
        if tail <= flushed.max(self.next) {
            return Ok(());
        }
        let from = flushed.align_down(PAGE_BYTES).max(self.next);
        let bytes = (tail.0 - from.0) as usize;
        let (pages, _) = scratch.split_at_mut(bytes.next_multiple_of(PAGE_BYTES as usize));
        let (known, beyond) = pages.split_at_mut(bytes);
        shared.staging.copy_out(self.log(), from, known);
        beyond.fill(0);
        self.write(shared, from, pages)?;
        shared
            .counters
            .written_bytes
            .fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.told_flushed(shared, tail);
        Ok(())
    }

    /// Syncs every file that was written since the last time. One whose sync fails is never synced again: its segment is written anew.
    pub fn sync(&mut self, shared: &Shared) -> Result<(), Fault> {
        for written in std::mem::take(&mut self.unsynced) {
            match written.file.sync() {
                Ok(()) => {
                    shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.suspect(written.first, &error),
            }
        }
        self.replace_suspects(shared)
    }

    fn suspect(&mut self, first: Address, error: &Error) {
        tracing::warn!("{error}; the segment of the {} is written anew", self.log());
        self.current.take_if(|current| current.first == first);
        self.unsynced.retain(|written| written.first != first);
        if !self.suspect.contains(&first) {
            self.suspect.push(first);
        }
    }

    /// Gives every suspect segment a new generation, which is synced when this returns.
    fn replace_suspects(&mut self, shared: &Shared) -> Result<(), Fault> {
        while let Some(&first) = self.suspect.last() {
            let written = shared.flusher(self.log()).flushed.get().max(self.next);
            let end = written.min(first + self.segments.segment_bytes());
            replace(shared, &self.segments, first, end)?;
            shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.suspect.pop();
        }
        Ok(())
    }

    /// Writes bytes of one segment. If the medium refuses them, the segment is written anew and they follow there.
    fn write(&mut self, shared: &Shared, at: Address, bytes: &[u8]) -> Result<(), Fault> {
        let file = self.file(shared, at)?;
        let first = self.segments.first_of(at);
        match write_at(&*file, bytes, at.0 - first.0).map_err(Fault::from) {
            Err(Fault::Final(error)) => {
                self.suspect(first, &error);
                self.replace_suspects(shared)?;
                let file = self.file(shared, at)?;
                Ok(write_at(&*file, bytes, at.0 - first.0)?)
            }
            result => result,
        }
    }

    fn told_flushed(&self, shared: &Shared, flushed: Address) {
        let marks = shared.flusher(self.log());
        if flushed > marks.flushed.get() {
            marks.flushed.set(flushed);
            shared.staging.tell(self.log(), Word::Flushed, flushed);
        }
    }

    /// The segment file that holds `at`, marked as written to.
    fn file(&mut self, shared: &Shared, at: Address) -> Result<Arc<dyn StorageFile>, Fault> {
        let first = self.segments.first_of(at);
        let file = match &self.current {
            Some(current) if current.first == first => Arc::clone(&current.file),
            _ => {
                if self.unsynced.len() >= UNSYNCED_FILES_MAX {
                    self.sync(shared)?;
                }
                let mode = if self.log() == LogKind::Records {
                    OpenMode::WriteDirect
                } else {
                    OpenMode::Write
                };
                let file = self.segments.provide(first, mode)?;
                self.current = Some(SegmentFile {
                    first,
                    file: Arc::clone(&file),
                });
                file
            }
        };
        if !self.unsynced.iter().any(|written| written.first == first) {
            self.unsynced.push(SegmentFile {
                first,
                file: Arc::clone(&file),
            });
        }
        Ok(file)
    }
}
