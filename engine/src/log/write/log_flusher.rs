//! The flusher's part for one log: which bytes go next, and what is written without a gap.

use std::sync::Arc;

use super::fault::Fault;
use super::run_writers::{RUNS_MAX, RunWriters};
use super::segment_writer::SegmentWriter;
use super::shared::Shared;
use super::staged_run::StagedRun;
use crate::error::{Error, Result};
use crate::log::files::segment::{Draft, SegmentDir};
use crate::log::files::storage::{OpenMode, write_at};
use crate::log::staging::control::Word;
use crate::log::sync::Ordering;
use crate::types::{Address, LogKind};

const WRITE_BYTES_MAX: u64 = 4 << 20;
const WRITE_BYTES_MIN: u64 = 1 << 20;
/// How much of an index log is kept warm at a time.
const WARM_BYTES: usize = 1 << 20;
/// What direct writes are multiples of.
const PAGE_BYTES: u64 = 4096;

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
    log: LogKind,
    files: SegmentWriter,
    release: Release,
    /// All below it is written; in the record log a chunk boundary.
    next: Address,
    /// For the record log, whose runs are long.
    writers: Option<RunWriters>,
    /// All of an index log below it was kept warm.
    warmed: Address,
    /// For what is read to be kept warm; empty in the record log.
    scratch: Vec<u8>,
}

impl LogFlusher {
    pub fn new(shared: &Arc<Shared>, segments: SegmentDir, release: Release) -> Result<LogFlusher> {
        let log = segments.log();
        let writers = match log {
            LogKind::Records => Some(RunWriters::start(shared)?),
            LogKind::Chunks | LogKind::Times => None,
        };
        let scratch_bytes = if writers.is_some() { 0 } else { WARM_BYTES };
        let next = shared.flusher(log).flushed.get();
        Ok(LogFlusher {
            log,
            files: SegmentWriter::new(segments),
            release,
            next,
            writers,
            warmed: next,
            scratch: vec![0; scratch_bytes],
        })
    }

    pub fn log(&self) -> LogKind {
        self.log
    }

    pub fn segments(&self) -> &SegmentDir {
        self.files.segments()
    }

    pub fn next(&self) -> Address {
        self.next
    }

    /// Makes segments until two blocks ahead of the writer are allocated.
    pub fn allocate_ahead(&mut self, shared: &Shared) -> Result<(), Fault> {
        let allocated = &shared.flusher(self.log).allocated;
        let wanted = shared.writer(self.log).appended.get() + 2 * shared.geometry.block(self.log);
        while allocated.get() < wanted {
            let first = allocated.get();
            self.allocate(first)?;
            shared.counters.segments.fetch_add(1, Ordering::Relaxed);
            allocated.set(first + self.segments().segment_bytes());
            shared.notify();
        }
        Ok(())
    }

    /// Allocates a segment that nothing is written to yet. Where the medium refuses it, another file takes its place as the next generation; if
    /// that is refused too, it is tried again later: nothing is lost meanwhile, for the writer waits.
    fn allocate(&self, first: Address) -> Result<(), Fault> {
        let refused = match self.segments().provide(first, OpenMode::Write) {
            Ok(_) => return Ok(()),
            Err(error) => match Fault::from(error) {
                Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. })) => error,
                fault => return Err(fault),
            },
        };
        self.segments()
            .draft(first)
            .and_then(Draft::publish)
            .map_err(Fault::Passing)?;
        // Said when it is done: while nothing can be made it is tried again and again, and reported as trouble.
        tracing::warn!("{refused}; another file has replaced the segment");
        Ok(())
    }

    /// Writes what is complete, if it is enough to be worth a write or `all` is asked for. Returns whether it wrote.
    pub fn write_out(&mut self, shared: &Shared, all: bool) -> Result<bool, Fault> {
        let appended = shared.writer(self.log).appended.get();
        let complete = match self.log {
            LogKind::Records => appended.align_down(shared.geometry.chunk_bytes),
            LogKind::Chunks | LogKind::Times => appended,
        };
        let block = shared.geometry.block(self.log);
        let pending = complete.0.saturating_sub(self.next.0);
        let ends_a_block = complete.align_down(block) > self.next.align_down(block);
        if pending == 0 || !(all || ends_a_block || pending >= WRITE_BYTES_MIN.min(block / 4)) {
            return Ok(false);
        }
        while self.next < complete && !shared.is_stopping() {
            let before = self.next;
            match self.write_runs(shared, complete) {
                Err(Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. }))) => {
                    self.files.refuse(self.next, &error);
                    // The new generation is written before the run that was refused. It is tried once: the next failure at the same place is final.
                    let run = self.run_at(shared, self.next, complete);
                    self.write_run(shared, run)?;
                }
                result => result?,
            }
            assert!(
                self.next > before || shared.is_stopping(),
                "the {} is written past {before}",
                self.log
            );
        }
        self.keep_warm();
        Ok(true)
    }

    /// Reads what was written of an index log, twice: the kernel holds pages that were read twice, while those that were only written give way
    /// to the first large scan of the record log. Nothing depends on it, so what cannot be read is passed over.
    fn keep_warm(&mut self) {
        let step = self.scratch.len() as u64;
        if step == 0 || self.next.0 - self.warmed.0 < step {
            return;
        }
        let segments = self.files.segments();
        let Ok(list) = segments.list() else { return };
        while self.next.0 - self.warmed.0 >= step {
            // Each reading opens its files again: two in a row through one open file count once.
            for _ in 0..2 {
                let _whether = segments.read(&list, self.warmed, &mut self.scratch);
            }
            self.warmed += step;
        }
    }

    /// Writes some of what is complete: one run, or as many at once as there are writers for.
    fn write_runs(&mut self, shared: &Shared, complete: Address) -> Result<(), Fault> {
        let run = self.run_at(shared, self.next, complete);
        match self.writers.take() {
            Some(writers) if self.next + (run.bytes as u64) < complete => {
                let result = self.write_together(shared, &writers, complete);
                self.writers = Some(writers);
                result
            }
            writers => {
                self.writers = writers;
                self.write_run(shared, run)
            }
        }
    }

    /// The run that begins at `at`: of one block, and so of one segment.
    fn run_at(&self, shared: &Shared, at: Address, complete: Address) -> StagedRun {
        let bytes = (complete.0 - at.0)
            .min(WRITE_BYTES_MAX)
            .min(shared.staging.layout().run_bytes(self.log, at));
        StagedRun {
            log: self.log,
            at,
            bytes: bytes as usize,
            offset: self.files.offset_of(at),
        }
    }

    fn write_run(&mut self, shared: &Shared, run: StagedRun) -> Result<(), Fault> {
        let file = self.files.file(shared, run.at, self.written(shared))?;
        run.write(shared, &*file)?;
        self.advance(shared, run.bytes);
        Ok(())
    }

    /// Keeps the writers busy until all is written or a run fails; none is under way when this returns.
    fn write_together(
        &mut self,
        shared: &Shared,
        writers: &RunWriters,
        complete: Address,
    ) -> Result<(), Fault> {
        let mut handed = self.next;
        let mut under_way = 0;
        let mut ended: Vec<StagedRun> = Vec::with_capacity(RUNS_MAX);
        let mut failure: Option<(Address, Error)> = None;
        loop {
            // A file is not left, and so perhaps synced, while runs of it are under way.
            while under_way < RUNS_MAX
                && handed < complete
                && failure.is_none()
                && !shared.is_stopping()
                && (under_way == 0 || self.files.is_current(handed))
            {
                let run = self.run_at(shared, handed, complete);
                let file = self.files.file(shared, handed, self.written(shared))?;
                writers.begin(run, file)?;
                handed += run.bytes as u64;
                under_way += 1;
            }
            if under_way == 0 {
                break;
            }
            let run = writers.next_ended()?;
            under_way -= 1;
            match run.result {
                Ok(()) => ended.push(run.run),
                Err(error) if failure.as_ref().is_none_or(|(at, _)| run.run.at < *at) => {
                    failure = Some((run.run.at, error))
                }
                Err(_) => {}
            }
            while let Some(at) = ended.iter().position(|run| run.at == self.next) {
                let bytes = ended.swap_remove(at).bytes;
                self.advance(shared, bytes);
            }
        }
        failure.map_or(Ok(()), |(_, error)| Err(Fault::from(error)))
    }

    /// Writes the chunk under way up to `tail`, for durability alone. Its last page is filled with zeroes, and written again when more of it is
    /// there: with the same values, and more.
    pub fn write_partial(
        &mut self,
        shared: &Shared,
        tail: Address,
        scratch: &mut [u8],
    ) -> Result<(), Fault> {
        let written = self.written(shared);
        if tail <= written {
            return Ok(());
        }
        let from = written.align_down(PAGE_BYTES).max(self.next);
        let bytes = (tail.0 - from.0) as usize;
        let (pages, _) = scratch.split_at_mut(bytes.next_multiple_of(PAGE_BYTES as usize));
        let (known, beyond) = pages.split_at_mut(bytes);
        shared.staging.copy_out(self.log, from, known);
        beyond.fill(0);
        let offset = self.files.offset_of(from);
        let file = self.files.file(shared, from, written)?;
        match write_at(&*file, pages, offset).map_err(Fault::from) {
            Err(Fault::Final(error)) => {
                self.files.refuse(from, &error);
                let file = self.files.file(shared, from, written)?;
                write_at(&*file, pages, offset)?;
            }
            result => result?,
        }
        self.count_written(shared, pages.len());
        self.told_flushed(shared, tail);
        Ok(())
    }

    /// Syncs every file that was written since the last time.
    pub fn sync(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.sync(shared, self.written(shared))
    }

    /// All below it is in segments, the chunk under way included.
    fn written(&self, shared: &Shared) -> Address {
        shared.flusher(self.log).flushed.get().max(self.next)
    }

    /// The bytes from `next` on are written, without a gap.
    fn advance(&mut self, shared: &Shared, bytes: usize) {
        self.next += bytes as u64;
        self.count_written(shared, bytes);
        self.told_flushed(shared, self.next);
        if self.release == Release::Written {
            shared.flusher(self.log).released.set(self.next);
            shared.notify();
        }
    }

    fn count_written(&self, shared: &Shared, bytes: usize) {
        let counter = &shared.counters.written_bytes;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn told_flushed(&self, shared: &Shared, flushed: Address) {
        let marks = shared.flusher(self.log);
        if flushed > marks.flushed.get() {
            marks.flushed.set(flushed);
            shared.staging.tell(self.log, Word::Flushed, flushed);
        }
    }
}
