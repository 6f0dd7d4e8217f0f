//! The flusher's part for the record log: each unit is encoded from staging as soon as its last chunk is sealed, and appended to its segment.
//!
//! After its bytes are written, the mark *encoded* moves over it, and its block may be reused. Units go through the page cache, where the next query finds
//! them; their write-back begins at once.

use super::encoders::Encoders;
use super::fault::Fault;
use super::log_flusher::Release;
use super::segment_writer::SegmentWriter;
use super::shared::Shared;
use crate::error::Error;
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
    /// The begin of the next unit.
    next: Address,
    /// `None` before the first unit, and after the medium refused a segment.
    appender: Option<UnitAppender>,
}

impl RecordFlusher {
    pub fn new(shared: &Shared, segments: SegmentDir, release: Release) -> RecordFlusher {
        RecordFlusher {
            files: SegmentWriter::new(segments),
            release,
            next: shared.flusher(LOG).flushed.get(),
            appender: None,
        }
    }

    pub fn segments(&self) -> &SegmentDir {
        self.files.segments()
    }

    /// The mark *encoded*: units hold everything below. It is a unit's begin.
    pub fn encoded(&self) -> Address {
        self.next
    }

    /// Creates segments until two blocks ahead of the writer have names.
    pub fn allocate_ahead(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.allocate_ahead(shared)
    }

    /// Encodes the units that are whole, and writes them. Returns whether there was one.
    pub fn write_out(&mut self, shared: &Shared, encoders: &mut Encoders) -> Result<bool, Fault> {
        let before = self.next;
        let appended = shared.writer(LOG).appended.get();
        let whole = before..appended.align_down(self.segments().unit_bytes());
        encoders.make_units(shared, whole, |first, unit| self.pass(shared, first, unit))?;
        Ok(self.next > before)
    }

    /// Writes the next unit and moves the marks over it.
    fn pass(&mut self, shared: &Shared, first: Address, unit: &[u8]) -> Result<(), Fault> {
        assert_eq!(first, self.next, "units are written in order");
        let end = first + self.segments().unit_bytes();
        let release = self.release;
        protocol::pass_unit(
            end,
            || self.write(shared, unit),
            |end| shared.staging.announce(LOG, Word::Flushed, end),
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
        Ok(())
    }

    fn write(&mut self, shared: &Shared, unit: &[u8]) -> Result<(), Fault> {
        match self.append(shared, unit) {
            Err(Fault::Final(error @ (Error::Io { .. } | Error::Damaged { .. }))) => {
                self.files.refuse(self.next, &error);
                // The new generation is written before the unit that was refused. It is tried once: the next failure at the same place is final.
                self.append(shared, unit)
            }
            result => result,
        }
    }

    fn append(&mut self, shared: &Shared, unit: &[u8]) -> Result<(), Fault> {
        let file = self.files.file(shared, self.next, self.next)?;
        let known = self.appender.take();
        let appender = match known.filter(|appender| appender.is_of(&file)) {
            Some(appender) => appender,
            None => UnitAppender::find(self.segments(), file, self.next)?,
        };
        let appender = self.appender.insert(appender);
        appender.append(unit)?;
        let first = self.files.segments().first_of(self.next);
        let (bytes, encoded) = (appender.file_bytes(), appender.next());
        shared.files.note(first, bytes, encoded);
        let counter = &shared.counters.written_bytes;
        counter.fetch_add(unit.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub fn sync(&mut self, shared: &Shared) -> Result<(), Fault> {
        self.files.sync(shared, self.next)
    }
}
