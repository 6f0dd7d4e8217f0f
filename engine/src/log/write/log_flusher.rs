//! The flusher's part for one index log, whose bytes are written unchanged.

use super::fault::Fault;
use super::segment_writer::SegmentWriter;
use super::shared::Shared;
use crate::error::Error;
use crate::log::files::segment::SegmentDir;
use crate::log::files::storage::write_at;
use crate::log::staging::control::Word;
use crate::log::sync::Ordering;
use crate::types::{Address, LogKind};

const WRITE_BYTES_MAX: u64 = 4 << 20;
const WRITE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of an index log that are kept warm at a time.
const WARM_BYTES: usize = 1 << 20;

/// The condition for reusing a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Release {
    /// Its writes have returned.
    Written,
    /// It is also durable.
    Synced,
}

#[derive(Debug)]
pub struct LogFlusher {
    log: LogKind,
    files: SegmentWriter,
    release: Release,
    /// Everything below it is written.
    next: Address,
    /// Everything below it was kept warm.
    warmed: Address,
    /// A buffer for reads that keep pages warm.
    scratch: Vec<u8>,
}

impl LogFlusher {
    pub fn new(shared: &Shared, segments: SegmentDir, release: Release) -> LogFlusher {
        let log = segments.log();
        let next = shared.flusher(log).flushed.get();
        LogFlusher {
            log,
            files: SegmentWriter::new(segments),
            release,
            next,
            warmed: next,
            scratch: vec![0; WARM_BYTES],
        }
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

    /// Creates segments until two blocks ahead of the writer are allocated.
    pub fn allocate_ahead(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.allocate_ahead(shared)
    }

    /// Writes complete bytes, if they are worth a write or `all` is set. Returns whether it wrote.
    pub fn write_out(&mut self, shared: &Shared, all: bool) -> Result<bool, Fault> {
        let appended = shared.writer(self.log).appended.get();
        let block = shared.geometry.block(self.log);
        let pending = appended.0.saturating_sub(self.next.0);
        let ends_a_block = appended.align_down(block) > self.next.align_down(block);
        if pending == 0 || !(all || ends_a_block || pending >= WRITE_BYTES_MIN.min(block / 4)) {
            return Ok(false);
        }
        while self.next < appended && !shared.is_stopping() {
            let before = self.next;
            match self.write_run(shared, appended) {
                Err(Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. }))) => {
                    self.files.refuse(self.next, &error);
                    // The new generation is written before the refused run. It is tried once: the next failure at the same place is final.
                    self.write_run(shared, appended)?;
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

    /// Reads the written bytes twice: the kernel keeps pages that were read twice, while pages that were only written give way to the first large scan of the
    /// record log. Nothing depends on it, so errors are ignored.
    fn keep_warm(&mut self) {
        let step = self.scratch.len() as u64;
        if self.next.0 - self.warmed.0 < step {
            return;
        }
        let segments = self.files.segments();
        let Ok(list) = segments.list() else { return };
        while self.next.0 - self.warmed.0 >= step {
            // Each reading opens its files again, because two in a row through one open file count once.
            for _ in 0..2 {
                let _whether = segments.read(&list, self.warmed, &mut self.scratch);
            }
            self.warmed += step;
        }
    }

    /// Writes the next bytes below `end`, as far as they lie in one block and so in one segment.
    fn write_run(&mut self, shared: &Shared, end: Address) -> Result<(), Fault> {
        let at = self.next;
        let bytes = (end.0 - at.0)
            .min(WRITE_BYTES_MAX)
            .min(shared.staging.layout().run_bytes(self.log, at)) as usize;
        let file = self.files.file(shared, at, at)?;
        // SAFETY: the bytes lie below `appended` and are not released before they are written, so the writer stores nothing there.
        let staged = unsafe { shared.staging.stable_bytes(self.log, at, bytes) };
        write_at(&*file, staged, self.files.offset_of(at))?;
        self.advance(shared, bytes);
        Ok(())
    }

    pub fn sync(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.sync(shared, self.next)
    }

    /// Notes that `bytes` bytes from `next` on are written.
    fn advance(&mut self, shared: &Shared, bytes: usize) {
        self.next += bytes as u64;
        let counter = &shared.counters.written_bytes;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let marks = shared.flusher(self.log);
        marks.flushed.set(self.next);
        shared.staging.announce(self.log, Word::Flushed, self.next);
        if self.release == Release::Written {
            marks.released.set(self.next);
            shared.notify();
        }
    }
}
