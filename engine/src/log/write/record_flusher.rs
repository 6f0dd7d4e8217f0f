//! The flusher's part for the record log: each unit is encoded from staging as soon as its last chunk is sealed, and appended to its segment.
//!
//! Once its bytes are written the mark `encoded` moves over it, and its block may be reused. Units go through the page cache, where the next question finds
//! them; their write-back is begun at once.

use super::encoder::Encoder;
use super::fault::Fault;
use super::log_flusher::Release;
use super::segment_writer::SegmentWriter;
use super::shared::Shared;
use crate::error::Error;
use crate::format::put_raw_unit;
use crate::log::files::segment::SegmentDir;
use crate::log::files::unit_appender::UnitAppender;
use crate::log::staging::control::Word;
use crate::log::staging::protocol;
use crate::log::sync::Ordering;
use crate::types::{Address, LogKind};

const LOG: LogKind = LogKind::Records;

#[derive(Debug)]
pub struct RecordFlusher {
    files: SegmentWriter,
    release: Release,
    encoder: Box<dyn Encoder>,
    /// All below it is in units.
    next: Address,
    /// `None` before the first unit, and after the medium refused a segment.
    appender: Option<UnitAppender>,
    /// The unit under way.
    unit: Vec<u8>,
}

impl RecordFlusher {
    pub fn new(
        shared: &Shared,
        segments: SegmentDir,
        release: Release,
        encoder: Box<dyn Encoder>,
    ) -> RecordFlusher {
        RecordFlusher {
            files: SegmentWriter::new(segments),
            release,
            encoder,
            next: shared.flusher(LOG).flushed.get(),
            appender: None,
            unit: Vec::new(),
        }
    }

    pub fn segments(&self) -> &SegmentDir {
        self.files.segments()
    }

    /// All below it is in units: a unit's begin.
    pub fn encoded(&self) -> Address {
        self.next
    }

    /// Makes segments until two blocks ahead of the writer have names.
    pub fn allocate_ahead(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.allocate_ahead(shared)
    }

    /// Encodes and writes the units that are whole. Returns whether there was one.
    pub fn write_out(&mut self, shared: &Shared) -> Result<bool, Fault> {
        let appended = shared.writer(LOG).appended.get();
        let unit_bytes = self.segments().unit_bytes();
        let release = self.release;
        let mut wrote = false;
        while self.next + unit_bytes <= appended && !shared.is_stopping() {
            self.encode(shared);
            let end = self.next + unit_bytes;
            protocol::pass_unit(
                end,
                || self.write(shared),
                |end| shared.staging.tell(LOG, Word::Flushed, end),
                |end| {
                    let marks = shared.flusher(LOG);
                    marks.flushed.set(end);
                    if release == Release::Written {
                        marks.released.set(end);
                    }
                },
            )?;
            self.next = end;
            shared.notify();
            wrote = true;
        }
        Ok(wrote)
    }

    /// Makes the next unit: of columns, unless so much waits that there is no time for it.
    fn encode(&mut self, shared: &Shared) {
        let unit_bytes = self.segments().unit_bytes();
        // SAFETY: the unit lies below `appended` and is not released before it is written, so the writer stores nothing there.
        let chunks = unsafe {
            let bytes = unit_bytes as usize;
            shared.staging.stable_bytes(LOG, self.next, bytes)
        };
        self.unit.clear();
        let behind = self.next + unit_bytes;
        let waits = shared.writer(LOG).appended.get().0.saturating_sub(behind.0);
        if waits > shared.geometry.block(LOG) / 3 * 2 {
            let (uuid, chunk_bytes) = (&shared.meta.uuid, shared.meta.chunk_bytes);
            put_raw_unit(uuid, self.next, chunk_bytes, chunks, &mut self.unit);
        } else {
            self.encoder.encode(self.next, chunks, &mut self.unit);
        }
    }

    fn write(&mut self, shared: &Shared) -> Result<(), Fault> {
        match self.append(shared) {
            Err(Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. }))) => {
                self.files.refuse(self.next, &error);
                // The new generation is written before the unit that was refused. It is tried once: the next failure at the same place is final.
                self.append(shared)
            }
            result => result,
        }
    }

    fn append(&mut self, shared: &Shared) -> Result<(), Fault> {
        let file = self.files.file(shared, self.next, self.next)?;
        let known = self.appender.take();
        let appender = match known.filter(|appender| appender.is_of(&file)) {
            Some(appender) => appender,
            None => UnitAppender::find(self.segments(), file, self.next)?,
        };
        let appender = self.appender.insert(appender);
        appender.append(&self.unit)?;
        let first = self.files.segments().first_of(self.next);
        let (bytes, encoded) = (appender.file_bytes(), appender.next());
        shared.files.note(first, bytes, encoded);
        let counter = &shared.counters.written_bytes;
        counter.fetch_add(self.unit.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs every file that was written since the last time.
    pub fn sync(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.sync(shared, self.next)
    }
}
