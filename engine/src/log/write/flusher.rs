//! The flusher: the thread that moves staged bytes into segments, makes them durable, and allocates segments ahead of the writer.
//!
//! It writes directly from staging, the records unit by unit, the index logs unchanged. A mark moves only after its system call has returned. A write that
//! fails for lack of space or the like is tried again while the writer waits. A file that the medium refuses is written again once; another failure ends the
//! flusher. A failed sync is never repeated.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::encoders::Encoders;
use super::fault::Fault;
use super::log_flusher::LogFlusher;
use super::record_flusher::RecordFlusher;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::format::{PendingLoss, checksum};
use crate::log::files::durable::{DurableFile, DurableLog, End};
use crate::log::files::segment::SegmentDir;
use crate::log::files::tail_file::TailFile;
use crate::log::options::Durability;
use crate::log::staging::control::Word;
use crate::log::staging::protocol;
use crate::log::sync::Ordering;
use crate::types::{Address, LogKind, PerLog};

/// The flusher sleeps this long between two rounds: short while there is work, longer while there is none.
const NAP_MIN: Duration = Duration::from_millis(2);
const NAP_MAX: Duration = Duration::from_millis(50);
const WARN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Flusher {
    shared: Arc<Shared>,
    durability: Durability,
    encoders: Encoders,
    records: RecordFlusher,
    indexes: [LogFlusher; 2],
    tail: TailFile,
    durable: DurableFile,
    /// The content of the newest slot.
    slot: PerLog<DurableLog>,
    /// The newest tails whose records are all in units. They become durable without a write to the file `tail`, and so even on a full disk.
    whole: Published,
    /// Later tails, which replace `whole` once units hold their records.
    next_whole: Published,
    /// A buffer for bytes of which a checksum is computed.
    scratch: Vec<u8>,
    /// All that was published before is durable.
    durable_since: Instant,
    warned: Option<Instant>,
}

/// The tails at a time.
#[derive(Copy, Clone, Debug)]
struct Published {
    by: Instant,
    tails: PerLog<Address>,
}

/// The parts of a flusher.
#[derive(Debug)]
pub struct FlusherParts {
    pub shared: Arc<Shared>,
    pub durability: Durability,
    pub encoders: Encoders,
    pub records: RecordFlusher,
    pub indexes: [LogFlusher; 2],
    pub tail: TailFile,
    pub durable: DurableFile,
    /// The slot in `durable` at the beginning of this epoch.
    pub slot: PerLog<DurableLog>,
}

impl Flusher {
    pub fn new(parts: FlusherParts) -> Flusher {
        let FlusherParts {
            shared,
            durability,
            encoders,
            records,
            indexes,
            tail,
            durable,
            slot,
        } = parts;
        let published = Published {
            by: Instant::now(),
            tails: slot.map(|log| log.tail),
        };
        Flusher {
            scratch: vec![0; shared.geometry.chunk_bytes as usize],
            shared,
            durability,
            encoders,
            records,
            indexes,
            tail,
            durable,
            whole: published,
            next_whole: published,
            durable_since: published.by,
            slot,
            warned: None,
        }
    }

    fn segments(&self, log: LogKind) -> &SegmentDir {
        let [chunks, times] = &self.indexes;
        match log {
            LogKind::Records => self.records.segments(),
            LogKind::Chunks => chunks.segments(),
            LogKind::Times => times.segments(),
        }
    }

    /// Works until it must stop or fails for good.
    pub fn run(mut self) -> Flusher {
        let _guard = PanicGuard(Arc::clone(&self.shared));
        let mut nap = NAP_MIN;
        while !self.shared.is_stopping() {
            match self.round() {
                Ok(busy) => {
                    if self.shared.recovered() {
                        self.warned = None;
                        tracing::info!(
                            "{}: writing to disk works again",
                            self.shared.dir.display()
                        );
                    }
                    nap = if busy { NAP_MIN } else { NAP_MAX.min(nap * 2) };
                }
                Err(Fault::Passing(error)) => {
                    self.wait_out(&error);
                    nap = NAP_MIN;
                    continue;
                }
                Err(Fault::Final(error)) => {
                    tracing::error!(
                        "{}: writing to disk failed for good, and the daemon must be restarted: {error}",
                        self.shared.dir.display()
                    );
                    self.shared.fail(error.to_string());
                    break;
                }
            }
            thread::park_timeout(nap.min(self.until_due()));
        }
        self
    }

    /// Reports a failure that may pass, and waits before the next try.
    fn wait_out(&mut self, error: &Error) {
        self.shared.trouble(error.to_string(), error.is_for_space());
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                "{}: cannot write to disk now, and tries again: {error}",
                self.shared.dir.display()
            );
        }
        // A waiting writer asks again and again, and each answer costs system calls.
        let since = Instant::now();
        while !self.shared.is_stopping()
            && let Some(rest) = NAP_MAX.checked_sub(since.elapsed())
        {
            thread::park_timeout(rest);
        }
    }

    /// Does one round over everything. Returns whether there was work.
    fn round(&mut self) -> Result<bool, Fault> {
        let ticket = self.shared.requested();
        let by = Instant::now();
        let begins = PerLog::new(|log| self.shared.writer(log).begin.get());
        let records_before = self.shared.writer(LogKind::Records).tail.get();
        // Tails are loaded in the opposite order of publication, as by every reader: references of the later logs point below the tails that are loaded after
        // theirs.
        let Ok(mut tails) =
            protocol::load_tails(|log| Ok::<_, Infallible>(self.shared.writer(log).tail.get()));
        // The gap at the beginning of this epoch counts as known only if its entries were published before `times` was loaded.
        if records_before < self.slot.records.resume {
            tails.records = records_before;
        }
        let evicts = self
            .slot
            .iter()
            .zip(begins)
            .any(|(log, begin)| log.begin < begin);
        let published = Published { by, tails };
        let must = evicts || !self.shared.is_done(ticket);
        let due = must || self.is_due(tails);
        // This precedes every release, so that the bytes are most likely still staged.
        let slot = if due {
            let published = if must {
                published
            } else {
                self.enough(published)
            };
            Some((published.by, self.describe(published.tails, begins)?))
        } else {
            None
        };

        let allocated = self.allocate_ahead();
        let written = self.records.write_out(&self.shared, &mut self.encoders);
        if self.next_whole.tails.records <= self.records.encoded() {
            self.whole = std::mem::replace(&mut self.next_whole, published);
        }
        let mut busy = false;
        for log in &mut self.indexes {
            busy |= log.write_out(&self.shared, due)?;
        }
        if self.shared.is_stopping() {
            // The writes may be incomplete, so no slot names them.
            return written.map(|wrote| busy || wrote);
        }
        let done = written.and_then(|wrote| {
            busy |= wrote || slot.is_some();
            slot.map_or(Ok(()), |(by, slot)| self.sync(by, slot))
        });
        if evicts && (done.is_ok() || self.sync_whole(&done, begins)?) {
            for log in LogKind::ALL {
                let begin = begins[log];
                self.segments(log).evict(begin)?;
                self.shared.flusher(log).evicted.set(begin);
            }
        }
        done?;
        if due {
            self.shared.complete(ticket);
        }
        self.shared.notify();
        allocated?;
        Ok(busy)
    }

    /// Writes a slot with the begins of the logs although the disk is full, so that the bytes below can go. It names only bytes that are in files. Returns
    /// whether it could.
    fn sync_whole(
        &mut self,
        failed: &Result<(), Fault>,
        begins: PerLog<Address>,
    ) -> Result<bool, Fault> {
        let of_slot = self.slot.map(|log| log.tail);
        let (by, tails) = match self.whole.tails.records > of_slot.records {
            true => (self.whole.by, self.whole.tails),
            false => (self.durable_since, of_slot),
        };
        let is_below = tails.iter().zip(begins).all(|(tail, begin)| begin <= *tail);
        if !is_below || !matches!(failed, Err(Fault::Passing(error)) if error.is_for_space()) {
            return Ok(false);
        }
        let slot = self.describe(tails, begins)?;
        self.sync(by, slot)?;
        Ok(true)
    }

    /// Chooses the tails that become durable. If units follow each other fast, these are the tails of `whole`, so that the file `tail` need not be written;
    /// the rest is then due earlier.
    fn enough(&self, published: Published) -> Published {
        match self.durability {
            Durability::Interval(interval)
                if self.whole.tails.records > self.slot.records.tail
                    && self.whole.by.elapsed() <= interval / 2 =>
            {
                self.whole
            }
            _ => published,
        }
    }

    fn is_due(&self, tails: PerLog<Address>) -> bool {
        let news = self
            .slot
            .iter()
            .zip(tails)
            .any(|(log, tail)| log.tail < tail);
        match self.durability {
            Durability::None => false,
            Durability::Interval(interval) => news && self.durable_since.elapsed() >= interval,
            // The writer must not wait for a block that only a sync frees. It may wait for the one before its own while its own has room left.
            Durability::Batch => LogKind::ALL.into_iter().any(|log| {
                let full = self.shared.writer(log).appended.get();
                let full = full.align_down(self.shared.geometry.block(log));
                self.shared.flusher(log).released.get() < full
            }),
        }
    }

    /// The time until published bytes must become durable.
    fn until_due(&self) -> Duration {
        match self.durability {
            Durability::Interval(interval) => interval
                .saturating_sub(self.durable_since.elapsed())
                .max(NAP_MIN),
            Durability::None | Durability::Batch => NAP_MAX,
        }
    }

    /// Returns the slot that makes the logs durable up to `tails`.
    fn describe(
        &mut self,
        tails: PerLog<Address>,
        begins: PerLog<Address>,
    ) -> Result<PerLog<DurableLog>> {
        let mut slot = self.slot;
        for log in LogKind::ALL {
            let (entry, tail, begin) = (&mut slot[log], tails[log], begins[log]);
            if entry.tail != tail {
                *entry = DurableLog {
                    tail,
                    begin,
                    checksum: self.checksum_below(log, tail)?,
                    resume: entry.resume,
                    encoded: entry.encoded,
                };
            }
            entry.begin = begin;
        }
        Ok(slot)
    }

    /// Checksum of the bytes from the last chunk boundary to the tail.
    fn checksum_below(&mut self, log: LogKind, tail: Address) -> Result<u32> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let checksum = self.checksum_with(log, tail, &mut scratch);
        self.scratch = scratch;
        checksum
    }

    fn checksum_with(&self, log: LogKind, tail: Address, scratch: &mut [u8]) -> Result<u32> {
        let shared = &self.shared;
        let from = tail.align_down(shared.geometry.chunk_bytes);
        let (bytes, _) = scratch.split_at_mut((tail.0 - from.0) as usize);
        if shared.copy_staged(log, from, bytes) > from {
            let segments = self.segments(log);
            let list = segments.list()?;
            if !segments.read(&list, from, bytes)? {
                return Err(segments.missing(&list, from, "the flusher wrote it and it is gone"));
            }
        }
        Ok(checksum(&shared.meta.uuid, log, from, bytes))
    }

    fn allocate_ahead(&mut self) -> Result<(), Fault> {
        self.records.allocate_ahead(&self.shared)?;
        let mut indexes = self.indexes.iter_mut();
        indexes.try_for_each(|log| log.allocate_ahead(&self.shared))
    }

    /// Syncs the written bytes, then writes the slot, then stores the marks. Afterwards everything that was published before `by` is durable.
    fn sync(&mut self, by: Instant, mut slot: PerLog<DurableLog>) -> Result<(), Fault> {
        let shared = &self.shared;
        let [chunks, times] = &self.indexes;
        let encoded = self.records.encoded();
        let written = PerLog {
            records: encoded,
            chunks: chunks.next(),
            times: times.next(),
        };
        self.records.sync(shared)?;
        for log in &mut self.indexes {
            log.sync(shared)?;
        }
        // This follows the units, because the slot before may need their bytes in the tail.
        let tail = slot.records.tail;
        self.tail.hold(encoded, tail, |from, bytes| {
            shared.staging.copy_out(LogKind::Records, from, bytes);
            Ok(())
        })?;
        slot.records.encoded = encoded.min(slot.records.encoded_most(shared.meta.unit_bytes()));
        if slot != self.slot {
            self.durable.write(shared.epoch, End::Open, slot)?;
            self.tail.named(encoded, tail);
            shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.slot = slot;
        self.durable_since = by;
        for log in LogKind::ALL {
            let (entry, written) = (&slot[log], written[log]);
            let marks = self.shared.flusher(log);
            // It is stored before the block is released, so that no reader sees a head above the durable mark.
            marks.durable.set(entry.tail);
            self.shared.staging.announce(log, Word::Durable, entry.tail);
            // Written bytes above the slot's tail are released only for an append that fills a block by itself: it is not published, and so not durable,
            // before it ends.
            let published = self.shared.writer(log).tail.get();
            let unpublished = written.0.saturating_sub(published.0);
            let released = if unpublished >= self.shared.geometry.block(log) {
                written
            } else {
                written.min(entry.tail)
            };
            marks.released.set(released.max(marks.released.get()));
        }
        Ok(())
    }

    /// Cuts every log to its durable tail and records a clean stop there, with the losses that have no record. The writer has synced, and the thread has ended.
    pub fn finish(mut self, losses: &[PendingLoss]) -> Result<()> {
        for log in LogKind::ALL {
            self.segments(log).cut(self.slot[log].tail)?;
        }
        self.records.segments().give_back(self.records.encoded())?;
        self.tail.give_back()?;
        // Both slots record it: if one is damaged later, the other is not of a time at which staging was needed.
        for _ in 0..2 {
            let end = End::Clean(losses);
            self.durable.write(self.shared.epoch, end, self.slot)?;
        }
        Ok(())
    }
}

/// Informs the writer if the thread dies of a broken invariant, so that it does not wait for ever.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("its thread panicked".to_owned());
        }
    }
}
