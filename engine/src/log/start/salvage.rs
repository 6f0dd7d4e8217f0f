//! Salvage: what a killed writer published and nobody synced is copied from its staging into segments and the tail.
//!
//! Everything that is staged and not known to be durable is written, flushed or not: the writer may have died of a sync that failed, and
//! then only staging is sure to hold it. It can be repeated: the same bytes go to the same places.

use std::path::Path;

use crate::error::Result;
use crate::format::{Unit, checksum, put_raw_unit};
use crate::log::files::durable::DurableLog;
use crate::log::files::meta::DirMeta;
use crate::log::files::segment::SegmentDir;
use crate::log::files::storage::{Storage, write_at};
use crate::log::files::tail_file::{TailFile, TailImage};
use crate::log::files::unit_appender::UnitAppender;
use crate::log::read::records_end::{RecordsEnd, unit_bytes};
use crate::log::staging::attachment::Attachment;
use crate::log::staging::control::Word;
use crate::types::{Address, LogKind, PerLog};

/// Pieces in which it copies.
const COPY_BYTES: u64 = 8 << 20;

/// What it needs to know of a directory.
pub struct Salvage<'a> {
    pub storage: &'a dyn Storage,
    pub dir: &'a Path,
    pub meta: &'a DirMeta,
    pub staging: &'a Attachment,
    pub segments: &'a PerLog<SegmentDir>,
    /// Units hold, durably, what lies below.
    pub encoded: Address,
}

impl Salvage<'_> {
    /// Returns the tails that were published; all below them is in segments and the tail, durably.
    pub fn run(&self, tail: &mut TailFile) -> Result<(PerLog<DurableLog>, RecordsEnd)> {
        let mut end = RecordsEnd::default();
        let logs = PerLog::try_new(|log| match log {
            LogKind::Records => {
                let (records, found) = self.records(tail)?;
                end = found;
                Ok(records)
            }
            LogKind::Chunks | LogKind::Times => self.index_log(&self.segments[log]),
        })?;
        Ok((logs, end))
    }

    fn records(&self, tail_file: &mut TailFile) -> Result<(DurableLog, RecordsEnd)> {
        let (log, staging, meta) = (LogKind::Records, self.staging, self.meta);
        let unit_bytes = unit_bytes(meta);
        let Marks {
            tail, begin, head, ..
        } = Marks::load(staging, log)?;
        let flushed = staging.word(log, Word::Flushed)?;
        let encoded = flushed.align_down(unit_bytes);
        if tail.0.saturating_sub(encoded.0) > 2 * staging.layout().block(log) || encoded < head {
            return Err(staging.damaged("its marks of the records lie too far apart"));
        }
        let encoded = self.write_again(self.encoded.max(head).align_up(unit_bytes), encoded)?;
        let whole = tail.align_down(unit_bytes);
        self.append_units(encoded, whole)?;
        let encoded = encoded.max(whole);
        self.segments.records.sync(self.encoded, encoded)?;
        tail_file.hold(encoded, tail, |from, bytes| {
            staging.copy_out(log, from, bytes)
        })?;
        let last = tail.align_down(u64::from(meta.chunk_bytes));
        let mut below = vec![0; (tail.0 - last.0) as usize];
        staging.copy_out(log, last, &mut below)?;
        let end = RecordsEnd {
            encoded,
            tail: TailImage::load(self.storage, self.dir, &meta.uuid, unit_bytes, encoded)?,
        };
        let records = DurableLog {
            tail,
            begin,
            checksum: checksum(&meta.uuid, log, last, &below),
            resume: Address::ZERO,
            encoded,
        };
        Ok((records, end))
    }

    /// Writes units that are staged again where they stand, so that the next sync is about them. Returns the end of those that are what staging holds.
    fn write_again(&self, from: Address, to: Address) -> Result<Address> {
        let folder = &self.segments.records;
        let mut unit = Vec::new();
        let mut at = from;
        while at < to {
            let first = folder.first_of(at);
            let Some(units) = folder.open_units(first)? else {
                return Ok(at);
            };
            let file = folder.provide(first)?;
            let end = to.min(first + folder.segment_bytes());
            while at < end {
                let nth = (at.0 - first.0) / folder.unit_bytes();
                let Ok(place) = units.read_unit_bytes(nth as usize, &mut unit) else {
                    return Ok(at);
                };
                if !self.is_staged(at, &unit)? {
                    return Ok(at);
                }
                write_at(&*file, &unit, place)?;
                at += folder.unit_bytes();
            }
        }
        Ok(to)
    }

    /// Whether a unit gives back what staging holds.
    fn is_staged(&self, first: Address, unit: &[u8]) -> Result<bool> {
        let (uuid, chunk_bytes) = (&self.meta.uuid, self.meta.chunk_bytes);
        let Ok(mut unit) = Unit::of(uuid, first, chunk_bytes, unit.to_vec()) else {
            return Ok(false);
        };
        let mut staged = vec![0; chunk_bytes as usize];
        let mut chunk = staged.clone();
        for nth in 0..unit.chunks() {
            let address = first + nth as u64 * u64::from(chunk_bytes);
            self.staging
                .copy_out(LogKind::Records, address, &mut staged)?;
            if unit.chunk(nth, &mut chunk).is_err() || chunk != staged {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends raw units of what is staged between two addresses: what they mean is not known yet.
    fn append_units(&self, from: Address, to: Address) -> Result<()> {
        let folder = &self.segments.records;
        let mut chunks = vec![0; folder.unit_bytes() as usize];
        let mut at = from;
        while at < to {
            let file = folder.provide(folder.first_of(at))?;
            let mut appender = UnitAppender::find(folder, file, at)?;
            let end = to.min(folder.first_of(at) + folder.segment_bytes());
            while at < end {
                let mut unit = Vec::new();
                self.staging.copy_out(LogKind::Records, at, &mut chunks)?;
                let (uuid, chunk_bytes) = (&self.meta.uuid, self.meta.chunk_bytes);
                put_raw_unit(uuid, at, chunk_bytes, &chunks, &mut unit);
                appender.append(&unit)?;
                at = appender.next();
            }
        }
        Ok(())
    }

    fn index_log(&self, segments: &SegmentDir) -> Result<DurableLog> {
        let (staging, meta, log) = (self.staging, self.meta, segments.log());
        let chunk_bytes = u64::from(meta.chunk_bytes);
        let Marks {
            begin,
            durable,
            head,
            tail,
        } = Marks::load(staging, log)?;
        // A head is a multiple of the chunk size. It may lie above the tail, if a whole block was not published.
        let from = durable.align_down(chunk_bytes).max(head).min(tail);
        if tail.0 - from.0 > 2 * staging.layout().block(log) {
            return Err(staging.damaged(&format!("its marks of the {log} lie too far apart")));
        }
        let mut at = from;
        while at < tail {
            let mut piece = vec![0; (tail.0 - at.0).min(COPY_BYTES) as usize];
            staging.copy_out(log, at, &mut piece)?;
            segments.write_synced(at, &piece)?;
            at += piece.len() as u64;
        }
        let last = tail.align_down(chunk_bytes);
        let mut below = vec![0; (tail.0 - last.0) as usize];
        let list = segments.list()?;
        if !segments.read(&list, last, &mut below)? {
            return Err(segments.missing(&list, last, "the bytes below the end are not there"));
        }
        Ok(DurableLog {
            tail,
            begin,
            checksum: checksum(&meta.uuid, log, last, &below),
            ..DurableLog::default()
        })
    }
}

/// What the dead writer last said of a log.
struct Marks {
    begin: Address,
    durable: Address,
    head: Address,
    tail: Address,
}

impl Marks {
    fn load(staging: &Attachment, log: LogKind) -> Result<Marks> {
        let mut marks = Marks {
            begin: staging.word(log, Word::Begin)?,
            durable: staging.word(log, Word::Durable)?,
            head: staging.word(log, Word::Head)?,
            tail: staging.word(log, Word::Tail)?,
        };
        if marks.durable > marks.tail {
            // It proves nothing, so all that is staged is written again.
            marks.durable = Address::ZERO;
        }
        if marks.begin <= marks.tail {
            return Ok(marks);
        }
        let what = format!("its Begin of the {log} lies above its Tail");
        Err(staging.damaged(&what))
    }
}
