//! Salvage: published records that a killed writer did not sync are copied from its staging into segments and the tail.
//!
//! All staged bytes that may not be durable are written, even if segments have them: the writer may have died of a failed sync, and then only staging surely
//! holds them. Salvage can be repeated: the same bytes go to the same places.

use std::ops::Range;
use std::path::Path;

use crate::error::Result;
use crate::format::{Unit, checksum, put_raw_unit};
use crate::log::files::durable::DurableLog;
use crate::log::files::meta::DirMeta;
use crate::log::files::segment::SegmentDir;
use crate::log::files::storage::{Storage, write_at};
use crate::log::files::tail_file::{TailFile, TailImage};
use crate::log::files::unit_appender::UnitAppender;
use crate::log::read::epoch_view::{Stage, View};
use crate::log::read::records_end::RecordsEnd;
use crate::log::read::survey::is_there;
use crate::log::staging::attachment::Attachment;
use crate::log::staging::control::Word;
use crate::types::{Address, LogKind, PerLog};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 8 << 20;

/// The facts about a directory that salvage needs.
pub struct Salvage<'a> {
    pub storage: &'a dyn Storage,
    pub dir: &'a Path,
    pub meta: &'a DirMeta,
    pub staging: &'a Attachment,
    pub segments: &'a PerLog<SegmentDir>,
    /// Units hold everything below this address durably.
    pub encoded: Address,
    /// Everything below this address of the record log was durable when the newest slot was written.
    pub durable: Address,
}

/// The outcome of recovery of bytes: everything known is durable in segments and the tail.
#[derive(Debug, Default)]
pub struct Salvaged {
    pub logs: PerLog<DurableLog>,
    /// The place of the records' bytes.
    pub end: RecordsEnd,
    /// Units of these addresses may be raw, because their meaning was not known yet. No reader knows these units.
    pub raw: Range<Address>,
}

impl Salvage<'_> {
    pub fn run(&self, tail: &mut TailFile) -> Result<Salvaged> {
        let mut salvaged = self.records(tail)?;
        for log in [LogKind::Chunks, LogKind::Times] {
            salvaged.logs[log] = self.index_log(&self.segments[log])?;
        }
        Ok(salvaged)
    }

    fn records(&self, tail_file: &mut TailFile) -> Result<Salvaged> {
        let (log, staging, meta) = (LogKind::Records, self.staging, self.meta);
        let unit_bytes = meta.unit_bytes();
        let Marks {
            tail, begin, head, ..
        } = Marks::load(staging, log)?;
        let marked = staging.word(log, Word::Flushed)?.align_down(unit_bytes);
        if tail.0.saturating_sub(marked.0) > 2 * staging.layout().block(log) || marked < head {
            return Err(staging.damaged("its marks of the records lie too far apart"));
        }
        if tail < self.durable {
            return Err(staging.damaged("its Tail of the records lies below what is durable"));
        }
        let whole = tail.align_down(unit_bytes);
        // The unit that was written last may not have been announced.
        let from = self.encoded.max(head).align_up(unit_bytes);
        let encoded = self.write_again(from, marked.max(whole))?;
        append_units(
            staging,
            &self.segments.records,
            encoded..whole,
            |at, chunks, unit| {
                put_raw_unit(&meta.uuid, at, meta.chunk_bytes, chunks, unit);
            },
        )?;
        // Bytes that were written and never published are given up.
        let encoded = encoded.max(whole).min(tail.align_up(unit_bytes));
        self.segments.records.sync(self.encoded, encoded)?;
        tail_file.hold(encoded, tail, |from, bytes| {
            staging.copy_out(log, from, bytes)
        })?;
        let end = RecordsEnd {
            encoded,
            tail: TailImage::load(self.storage, self.dir, &meta.uuid, unit_bytes, encoded)?,
        };
        // If more than a block was unpublished, the latest published bytes are not staged any more.
        let last = tail.align_down(u64::from(meta.chunk_bytes));
        let mut below = vec![0; (tail.0 - last.0) as usize];
        let view = View::new(Stage::Unknown);
        is_there(view.read_records(&self.segments.records, &end, last, &mut below))?;
        let records = DurableLog {
            tail,
            begin,
            checksum: checksum(&meta.uuid, log, last, &below),
            resume: Address::ZERO,
            encoded,
        };
        let logs = PerLog {
            records,
            ..PerLog::default()
        };
        Ok(Salvaged {
            logs,
            end,
            raw: marked.max(from)..whole,
        })
    }

    /// Writes units that are still staged again in place, so that the next sync covers them. Returns the end of those that match staging.
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
            if at == first + folder.segment_bytes() && units.end_damage()?.is_some() {
                units.write_end(&*file)?;
            }
        }
        Ok(at)
    }

    /// Reports whether a unit restores the staged bytes.
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

/// Appends the units of the staged bytes between two addresses, made by `encode`.
pub fn append_units(
    staging: &Attachment,
    folder: &SegmentDir,
    units: Range<Address>,
    mut encode: impl FnMut(Address, &[u8], &mut Vec<u8>),
) -> Result<()> {
    let mut chunks = vec![0; folder.unit_bytes() as usize];
    let mut at = units.start;
    while at < units.end {
        let first = folder.first_of(at);
        let mut appender = UnitAppender::find(folder, folder.provide(first)?, at)?;
        let end = units.end.min(first + folder.segment_bytes());
        while at < end {
            let mut unit = Vec::new();
            staging.copy_out(LogKind::Records, at, &mut chunks)?;
            encode(at, &chunks, &mut unit);
            appender.append(&unit)?;
            at = appender.next();
        }
        appender.file().sync()?;
    }
    Ok(())
}

/// The last marks of the dead writer for a log.
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
            // The mark proves nothing, so all staged bytes are written again.
            marks.durable = Address::ZERO;
        }
        if marks.begin <= marks.tail {
            return Ok(marks);
        }
        let what = format!("its Begin of the {log} lies above its Tail");
        Err(staging.damaged(&what))
    }
}
