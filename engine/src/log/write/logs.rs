//! The writer's end of the three logs. One thread owns it.
//!
//! `append` copies bytes into the staged block and `publish` makes them visible: no lock, no allocation and no system call, except that a new block may wake
//! the flusher or wait for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::flusher::Flusher;
use super::record_files::RecordSegments;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::format::{LossTable, PendingLoss};
use crate::log::files::catalog_file::CatalogFile;
use crate::log::files::lock::WriterLock;
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::segment::SegmentDir;
use crate::log::files::storage::unlink_if_present;
use crate::log::read::reader::LogReader;
use crate::log::staging::control::{DaemonWord, LOSS_TABLE_FIRST, Word};
use crate::log::staging::note::StagingNote;
use crate::log::staging::protocol;
use crate::log::sync::{Memory, Ordering};
use crate::types::{Address, LogKind, PerLog, Timestamp};

/// Counters since the logs were opened.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// The number of times that the writer found both blocks full.
    pub stalls: u64,
    pub stall: Duration,
    /// Bytes written into segments; rewritten bytes count again.
    pub written_bytes: u64,
    pub syncs: u64,
    pub segments: u64,
}

/// The writer's position in one log.
#[derive(Debug)]
struct Cursor {
    /// Everything below it is appended.
    end: Address,
    /// End of the current block. At it, the next block must be entered first.
    limit: Address,
    published: Address,
}

/// The three logs, open for appending. A drop without `close` has the effect of a crash of the process: the next opening recovers everything published.
#[derive(Debug)]
pub struct Logs {
    shared: Arc<Shared>,
    cursors: PerLog<Cursor>,
    flusher: Option<JoinHandle<Flusher>>,
    catalog: CatalogFile,
    losses: LossTable,
    /// The number of the table of pending losses in staging.
    losses_number: u64,
    staging_path: PathBuf,
    stalls: u64,
    stall: Duration,
    /// The time since which `has_room` has said no.
    full_since: Option<Instant>,
    _lock: WriterLock,
}

/// The parts of `Logs`.
pub struct Parts {
    pub shared: Arc<Shared>,
    pub flusher: Flusher,
    pub catalog: CatalogFile,
    /// The losses in staging under the first number.
    pub losses: LossTable,
    pub staging_path: PathBuf,
    pub lock: WriterLock,
}

impl Logs {
    /// Starts the flusher. All marks begin where appending begins, except those of bytes published before a gap.
    pub fn new(parts: Parts) -> Result<Logs> {
        let Parts {
            shared,
            flusher,
            catalog,
            losses,
            staging_path,
            lock,
        } = parts;
        let cursors = PerLog::new(|log| {
            let marks = shared.writer(log);
            let start = marks.appended.get();
            // At the very end of a block the next one is entered like any other.
            Cursor {
                end: start,
                limit: start.align_up(shared.geometry.block(log)),
                published: marks.tail.get(),
            }
        });
        let flusher = std::thread::Builder::new()
            .name("loom-flusher".to_owned())
            .spawn(move || flusher.run())
            .map_err(|error| Error::io(&shared.dir, error))?;
        Ok(Logs {
            shared,
            cursors,
            flusher: Some(flusher),
            catalog,
            losses,
            losses_number: LOSS_TABLE_FIRST,
            staging_path,
            stalls: 0,
            stall: Duration::ZERO,
            full_since: None,
            _lock: lock,
        })
    }

    /// Appends bytes, a multiple of 8, and returns the address of the first. They are invisible before `publish`. It waits while both blocks are full, and
    /// counts that.
    #[inline]
    pub fn append(&mut self, log: LogKind, bytes: &[u8]) -> Result<Address> {
        let cursor = &mut self.cursors[log];
        let address = cursor.end;
        if bytes.len() as u64 <= cursor.limit.0 - address.0 {
            self.shared.staging.copy_in(log, address, bytes);
            cursor.end += bytes.len() as u64;
            return Ok(address);
        }
        self.append_across(log, bytes)?;
        Ok(address)
    }

    /// Works like `append`, but returns `Error::Full` and appends nothing instead of waiting. The bytes are at most a block.
    pub fn try_append(&mut self, log: LogKind, bytes: &[u8]) -> Result<Address> {
        if bytes.len() as u64 > self.room_bytes(log) {
            self.shared.check()?;
            self.stalls += 1;
            self.announce_stalls();
            self.wake_flusher(log);
            return Err(Error::Full);
        }
        self.append(log, bytes)
    }

    /// The bytes of a block in staging. As many can be appended once the flusher has made room.
    pub fn block_bytes(&self, log: LogKind) -> u64 {
        self.shared.geometry.block(log)
    }

    /// Bytes that can be appended now without waiting.
    pub fn room_bytes(&self, log: LogKind) -> u64 {
        let cursor = &self.cursors[log];
        let next = if self.can_enter(log) {
            self.shared.geometry.block(log)
        } else {
            0
        };
        cursor.limit.0 - cursor.end.0 + next
    }

    /// Reports whether this many bytes of records, chunks and times can be appended now without waiting. While it says no, which counts as one stall, the
    /// flusher makes room.
    pub fn has_room(&mut self, bytes: PerLog<u64>) -> Result<bool> {
        let scarce = LogKind::ALL
            .into_iter()
            .find(|log| self.room_bytes(*log) < bytes[*log]);
        let Some(log) = scarce else {
            if let Some(since) = self.full_since.take() {
                self.stall += since.elapsed();
                self.announce_stalls();
            }
            return Ok(true);
        };
        self.shared.check()?;
        if self.full_since.is_none() {
            self.full_since = Some(Instant::now());
            self.stalls += 1;
            self.announce_stalls();
        }
        self.wake_flusher(log);
        Ok(false)
    }

    /// Works like `has_room`, after the flusher made some room or a little while has passed.
    pub fn wait_for_room(&mut self, bytes: PerLog<u64>) -> Result<bool> {
        if !self.has_room(bytes)? {
            let fits = |log| self.room_bytes(log) >= bytes[log];
            self.shared.wait(|| LogKind::ALL.into_iter().all(fits));
        }
        self.has_room(bytes)
    }

    /// Appends bytes that reach past the current block.
    #[cold]
    fn append_across(&mut self, log: LogKind, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.cursors[log].end == self.cursors[log].limit {
                self.enter_block(log)?;
            }
            let cursor = &mut self.cursors[log];
            let run = rest.len().min((cursor.limit.0 - cursor.end.0) as usize);
            let (piece, later) = rest.split_at(run);
            self.shared.staging.copy_in(log, cursor.end, piece);
            cursor.end += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Begins the block after a full one: waits until the block that had its place is released and its segment allocated.
    fn enter_block(&mut self, log: LogKind) -> Result<()> {
        self.wake_flusher(log);
        if !self.can_enter(log) {
            self.wait_for_block(log)?;
        }
        let block = self.shared.geometry.block(log);
        let cursor = &mut self.cursors[log];
        let head = Address(cursor.limit.0.saturating_sub(block));
        cursor.limit += block;
        let marks = self.shared.writer(log);
        if head > marks.head.get() {
            protocol::give_up_below::<Memory>(head, |head| {
                marks.head.set(head);
                self.shared.staging.announce(log, Word::Head, head);
            });
            self.shared.staging.settle();
        }
        Ok(())
    }

    fn can_enter(&self, log: LogKind) -> bool {
        let block = self.shared.geometry.block(log);
        let limit = self.cursors[log].limit;
        let marks = self.shared.flusher(log);
        marks.released.get().0 >= limit.0.saturating_sub(block)
            && marks.allocated.get() >= limit + block
    }

    fn wait_for_block(&mut self, log: LogKind) -> Result<()> {
        self.stalls += 1;
        self.announce_stalls();
        let since = Instant::now();
        let result = loop {
            if self.can_enter(log) {
                break Ok(());
            }
            if let Err(error) = self.shared.check() {
                break Err(error);
            }
            self.shared.wait(|| self.can_enter(log));
        };
        self.stall += since.elapsed();
        self.announce_stalls();
        result
    }

    /// Announces the appended bytes to the flusher, published or not, so that blocks become free.
    fn wake_flusher(&self, log: LogKind) {
        self.shared.staging.settle();
        self.shared.writer(log).appended.set(self.cursors[log].end);
        if let Some(flusher) = &self.flusher {
            flusher.thread().unpark();
        }
    }

    fn announce_stalls(&self) {
        self.shared
            .staging
            .announce_daemon(DaemonWord::Stalls, self.stalls);
        let nanos = u64::try_from(self.stall.as_nanos()).unwrap_or(u64::MAX);
        self.shared
            .staging
            .announce_daemon(DaemonWord::StallNanos, nanos);
    }

    /// The address of the next byte, published or not.
    #[inline]
    pub fn end(&self, log: LogKind) -> Address {
        self.cursors[log].end
    }

    /// Makes all appended bytes visible: records, then the chunk index, then the timestamp index, so that a reader that finds a reference also finds its
    /// target.
    pub fn publish(&mut self) {
        self.shared.staging.settle();
        protocol::publish(|log| {
            let cursor = &mut self.cursors[log];
            if cursor.published == cursor.end {
                return;
            }
            cursor.published = cursor.end;
            let marks = self.shared.writer(log);
            // Staging comes first, so that the flusher never makes bytes durable above the tail in staging.
            self.shared.staging.announce(log, Word::Tail, cursor.end);
            marks.appended.set(cursor.end);
            marks.tail.set(cursor.end);
        });
    }

    /// The published end.
    pub fn tail(&self, log: LogKind) -> Address {
        self.cursors[log].published
    }

    pub fn flushed(&self, log: LogKind) -> Address {
        self.shared.flusher(log).flushed.get()
    }

    pub fn durable(&self, log: LogKind) -> Address {
        self.shared.flusher(log).durable.get()
    }

    pub fn begin(&self, log: LogKind) -> Address {
        self.shared.writer(log).begin.get()
    }

    /// Publishes, and returns when everything is durable. Fails if the disk accepts nothing now; published bytes stay published.
    pub fn sync(&mut self) -> Result<()> {
        let ticket = self.request_sync();
        let since = self.shared.waiting().map_or(0, |(failures, _)| failures);
        while !self.shared.is_done(ticket) {
            self.shared.check()?;
            match self.shared.waiting() {
                // The second failure from here on is of a round that began after the request.
                Some((failures, message)) if failures >= since + 2 => {
                    return Err(Error::Waiting(message));
                }
                _ => self.shared.wait(|| self.shared.is_done(ticket)),
            }
        }
        Ok(())
    }

    /// Publishes and requests a sync without waiting for it; `is_synced` reports its completion.
    pub fn request_sync(&mut self) -> u64 {
        self.publish();
        let ticket = self.shared.request_sync();
        if let Some(flusher) = &self.flusher {
            flusher.thread().unpark();
        }
        ticket
    }

    /// Reports whether the sync of that ticket is done; an error if it never will be.
    pub fn is_synced(&self, ticket: u64) -> Result<bool> {
        if self.shared.is_done(ticket) {
            return Ok(true);
        }
        self.shared.check()?;
        Ok(false)
    }

    /// Returns the reason why nothing is flushed: the flusher waits, perhaps for space, or has ended for good.
    pub fn trouble(&self) -> Option<String> {
        self.shared.stopped_by()
    }

    /// Reports whether the flusher waits for space on the disk.
    pub fn waits_for_space(&self) -> bool {
        self.shared.waits_for_space()
    }

    /// Bytes on the disk of all segments that are not given up: the allocated bytes of the index logs, the files of the record log.
    pub fn segment_bytes(&self) -> u64 {
        let of_log = |log| {
            let begin = self
                .begin(log)
                .align_down(self.shared.geometry.segment(log));
            let allocated = self.shared.flusher(log).allocated.get();
            allocated.0.saturating_sub(begin.0)
        };
        let of_indexes: u64 = [LogKind::Chunks, LogKind::Times].map(of_log).iter().sum();
        of_indexes + self.shared.files.bytes()
    }

    /// Returns `segment_bytes` and the bytes that may be written before the next look: both blocks, raw.
    pub fn segment_bytes_soon(&self) -> u64 {
        self.segment_bytes() + 2 * self.shared.geometry.block(LogKind::Records)
    }

    /// The sizes of the segments of the record log.
    pub fn record_segments(&self) -> RecordSegments {
        self.shared.files.segments()
    }

    /// Rewrites damaged directories at the end of finished segments of the record log. It opens each of them.
    pub fn mend(&self) -> Result<()> {
        let Shared {
            storage, dir, meta, ..
        } = &*self.shared;
        let folder = SegmentDir::new(Arc::clone(storage), dir, LogKind::Records, meta);
        folder.mend_directories(Address::ZERO, self.flushed(LogKind::Records))
    }

    /// The bytes of the segments when everything except the current ones is given up.
    pub fn bytes_min(&self) -> u64 {
        self.shared.geometry.bytes_min()
    }

    /// Reports whether segments that were given up are still being removed.
    pub fn is_evicting(&self) -> bool {
        LogKind::ALL
            .into_iter()
            .any(|log| self.shared.flusher(log).evicted.get() < self.begin(log))
    }

    /// Gives up everything below: readers see it first, then the directory records it, then whole segments are removed in the background.
    pub fn evict(&mut self, begins: PerLog<Address>) {
        for log in LogKind::ALL {
            let marks = self.shared.writer(log);
            let begin = begins[log].min(self.cursors[log].published);
            if begin > marks.begin.get() {
                if log == LogKind::Records {
                    // This comes first, so that a segment's bytes are not noted after it is given up.
                    self.shared.files.give_up_below(begin);
                }
                self.shared.staging.announce(log, Word::Begin, begin);
                marks.begin.set(begin);
            }
        }
        if let Some(flusher) = &self.flusher {
            flusher.thread().unpark();
        }
    }

    /// Returns the address below which the directory has durably given up everything, and the segments are removed.
    pub fn evicted(&self, log: LogKind) -> Address {
        self.shared.flusher(log).evicted.get()
    }

    /// Length of the catalog file.
    pub fn catalog_bytes(&self) -> u64 {
        self.catalog.file_bytes()
    }

    /// Length of everything that the catalog file ever held, once it is durable.
    pub fn catalog_bytes_ever(&mut self) -> Result<u64> {
        self.catalog.settle()?;
        Ok(self.catalog.bytes())
    }

    /// Replaces the catalog by `text`, whose first line says that [`Logs::catalog_bytes_ever`] came before. After an error it is as before.
    pub fn rewrite_catalog(&mut self, text: Vec<u8>) -> Result<()> {
        self.catalog.rewrite(text)?;
        self.announce_catalog_bytes();
        Ok(())
    }

    /// Appends a line to the catalog and syncs it.
    pub fn append_catalog(&mut self, line: &str) -> Result<()> {
        self.catalog.append(line)?;
        self.announce_catalog_bytes();
        Ok(())
    }

    fn announce_catalog_bytes(&self) {
        let bytes = self.catalog.bytes();
        let staging = &self.shared.staging;
        staging.announce_daemon(DaemonWord::CatalogBytes, bytes);
    }

    /// Refused and dropped records without a published loss record.
    pub fn losses(&self) -> &[PendingLoss] {
        &self.losses.rows
    }

    /// Replaces the pending losses: after this returns, a kill of the process loses none of them. A row gets the address of its record after that is appended
    /// and before it is published, and is removed after that is published.
    ///
    /// # Panics
    /// Panics if there are more rows than a table has, or if a row is gone whose record is not published.
    pub fn set_losses(&mut self, rows: Vec<PendingLoss>) {
        let stays = |at: &Address| rows.iter().any(|row| row.recorded_at == Some(*at));
        let old = self.losses.rows.iter().filter_map(|row| row.recorded_at);
        if let Some(gone) = old.filter(|at| !stays(at)).max() {
            let tail = self.tail(LogKind::Records);
            assert!(
                gone < tail,
                "a loss recorded at {gone} goes, published is {tail}"
            );
            self.losses.recorded_below = tail;
        }
        self.losses.rows = rows;
        self.losses_number += 1;
        let table = self
            .losses
            .encode(&self.shared.meta.uuid, self.losses_number);
        self.shared.staging.store_losses(self.losses_number, &table);
    }

    /// Shows readers that the writer lives, and the difference of its clock from the wall clock.
    pub fn heartbeat(&self, now: Timestamp, clock_offset_ns: i64) {
        self.shared
            .staging
            .announce_daemon(DaemonWord::Heartbeat, now.0 as u64);
        self.shared
            .staging
            .announce_daemon(DaemonWord::ClockOffset, clock_offset_ns as u64);
    }

    pub fn stats(&self) -> LogStats {
        let counters = &self.shared.counters;
        LogStats {
            stalls: self.stalls,
            stall: self.stall,
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            segments: counters.segments.load(Ordering::Relaxed),
        }
    }

    /// A reader of these logs, as another process has one.
    pub fn reader(&self) -> Result<LogReader> {
        LogReader::open_with(Arc::clone(&self.shared.storage), &self.shared.dir)
    }

    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    pub fn meta(&self) -> &DirMeta {
        &self.shared.meta
    }

    /// Bytes of memory of staging.
    pub fn staging_bytes(&self) -> u64 {
        self.shared.staging.layout().total_bytes()
    }

    /// Stops cleanly: publishes, flushes and syncs everything, cuts segments to the tails, removes staging. After an error the directory is as after a crash,
    /// and no published record is lost.
    pub fn close(mut self) -> Result<()> {
        self.shared.staging.announce_daemon(DaemonWord::Stopping, 1);
        self.sync()?;
        self.shared.check()?;
        let flusher = self
            .stop_flusher()
            .ok_or_else(|| Error::Flusher("its thread panicked".to_owned()))?;
        let unrecorded = self.losses.unrecorded(self.tail(LogKind::Records));
        flusher.finish(&unrecorded)?;
        self.catalog.finish();
        // From here on the clean mark is valid; any rest of staging is ignored.
        let Shared { storage, dir, .. } = &*self.shared;
        StagingNote::FILE.remove(&**storage, dir)?;
        storage.sync_dir(dir)?;
        unlink_if_present(&**storage, &self.staging_path)
    }

    /// Ends the thread and waits for it; `None` if it is gone already or panicked.
    fn stop_flusher(&mut self) -> Option<Flusher> {
        let handle = self.flusher.take()?;
        self.shared.stop();
        handle.thread().unpark();
        handle.join().ok()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.stop_flusher();
    }
}
