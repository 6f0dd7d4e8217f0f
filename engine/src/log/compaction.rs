//! Rewrites segments of the record log as columns, one by one, while a writer and readers go on.
//!
//! Only segments that are durable to their end, and the last one of a log that is closed, are taken, so nobody writes to them. Each unit is put together again and compared with its rows
//! before it is written, and the file is read back before it takes their place; a reader that has the rows open goes on with them. Killed at any
//! point, rows or columns are there. While the disk cannot keep up with the writer, the compactor leaves it the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::files::meta::DirMeta;
use super::files::open_segment::OpenSegment;
use super::files::segment::{Draft, SegmentDir, SegmentForm, SegmentName};
use super::files::storage::{Storage, write_at};
use super::read::survey::segment_dirs;
use super::write::shared::Shared;
use crate::error::{Error, Result};
use crate::format::{SegmentDirectory, Template, UNIT_CHUNKS, UnitEncoder, checksum, saves_enough};
use crate::proven::at_mut;
use crate::types::{Address, LogKind, SourceId};

/// How long the compactor leaves the disk to a writer that is behind, before it looks again.
const PATIENCE: Duration = Duration::from_millis(20);

/// What became of a segment.
#[derive(Debug)]
pub enum Compacted {
    /// It is columns now.
    Columns { rows_bytes: u64, column_bytes: u64 },
    /// It stays rows: columns would save too little, or did not give back what they were made of.
    StaysRows,
    /// It stays rows: it could not be read, or its columns could not be written.
    Failed(Error),
    /// It was no longer wanted.
    Stopped,
}

pub struct Compaction {
    segments: SegmentDir,
    meta: DirMeta,
    /// Whose directory it is; `None` if nobody writes it.
    writer: Option<Arc<Shared>>,
    encoder: UnitEncoder,
    rows: Vec<u8>,
    unit: Vec<u8>,
    /// Segments below it are not looked at again, also those that stay rows.
    next: Address,
}

impl Compaction {
    /// Of a directory that nobody writes.
    pub fn of(storage: &Arc<dyn Storage>, dir: &Path, meta: DirMeta) -> Compaction {
        Compaction {
            segments: segment_dirs(storage, dir, &meta).records,
            writer: None,
            encoder: UnitEncoder::new(meta.uuid, meta.chunk_bytes),
            meta,
            rows: Vec::new(),
            unit: Vec::new(),
            next: Address::ZERO,
        }
    }

    /// Of a directory that this process writes.
    pub fn beside(writer: Arc<Shared>) -> Compaction {
        Compaction {
            writer: Some(Arc::clone(&writer)),
            ..Compaction::of(&writer.storage, &writer.dir, writer.meta)
        }
    }

    /// The segments of rows that lie wholly between two addresses and were not looked at yet, ascending.
    pub fn candidates(&self, begin: Address, durable: Address) -> Result<Vec<Address>> {
        let segment_bytes = self.segments.segment_bytes();
        let from = begin.align_up(segment_bytes).max(self.next);
        let list = self.segments.list()?;
        Ok(list
            .range(from..)
            .filter(|(_, generation)| generation.form == SegmentForm::Rows)
            .map(|(first, _)| *first)
            .take_while(|first| first.0.saturating_add(segment_bytes) <= durable.0)
            .collect())
    }

    /// Writes the directories of column segments again that are damaged.
    pub fn mend(&self) -> Result<()> {
        self.segments.mend_directories()
    }

    /// Rewrites the segment at `first`, a candidate. `template_of` says how payloads are taken apart; `is_wanted` is asked before each unit.
    ///
    /// # Errors
    /// The disk is full, so that no segment can be rewritten.
    pub fn compact(
        &mut self,
        first: Address,
        template_of: impl FnMut(SourceId, Address) -> Template,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Compacted> {
        let compacted = match self.rewrite(first, template_of, is_wanted) {
            Err(error) if !error.is_for_space() => Compacted::Failed(error),
            compacted => compacted?,
        };
        if !matches!(compacted, Compacted::Stopped) {
            self.next = first + self.segments.segment_bytes();
        }
        Ok(compacted)
    }

    fn rewrite(
        &mut self,
        first: Address,
        mut template_of: impl FnMut(SourceId, Address) -> Template,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Compacted> {
        let segments = self.segments.clone();
        let list = segments.list()?;
        let Some(&generation) = list.get(&first) else {
            // Retention was faster.
            return Ok(Compacted::StaysRows);
        };
        let rows = segments.open_to_read(SegmentName { first, generation })?;
        let draft = segments.draft_of(first, SegmentForm::Columns)?;
        let Some(written) = self.write(first, &rows, &draft, &mut template_of, &is_wanted)? else {
            return Ok(Compacted::Stopped);
        };
        let column_bytes = draft.file().bytes()?;
        let rows_bytes = rows.bytes()?;
        if !saves_enough(column_bytes, rows_bytes) || !self.holds(first, &draft, &written)? {
            return Ok(Compacted::StaysRows);
        }
        let name = draft.name();
        draft.publish()?;
        if let Some(writer) = &self.writer
            && !writer.savings.note(first, column_bytes)
        {
            // Retention gave it up meanwhile, and may not see the new name.
            segments.remove(name)?;
        }
        Ok(Compacted::Columns {
            rows_bytes,
            column_bytes,
        })
    }

    /// Writes all units and their directory. Returns the checksum of each unit; `None` where it was stopped.
    fn write(
        &mut self,
        first: Address,
        rows: &OpenSegment,
        draft: &Draft<'_>,
        template_of: &mut impl FnMut(SourceId, Address) -> Template,
        is_wanted: &impl Fn() -> bool,
    ) -> Result<Option<Vec<u32>>> {
        let (mut starts, mut checksums) = (vec![0], Vec::new());
        let mut end = 0;
        let segment_bytes = self.segments.segment_bytes();
        let unit_bytes = UNIT_CHUNKS * u64::from(self.meta.chunk_bytes);
        for offset in (0..segment_bytes).step_by(unit_bytes as usize) {
            if !self.may_go_on(is_wanted) {
                return Ok(None);
            }
            let length = unit_bytes.min(segment_bytes - offset) as usize;
            self.rows.resize(length, 0);
            let read = rows.read_at(&mut self.rows, offset)?;
            // The last segment of a closed log ends with the log; any other that is cut short holds damaged chunks from there on.
            at_mut(&mut self.rows, read..).fill(0);
            self.unit.clear();
            self.encoder.encode(
                first + offset,
                &self.rows,
                &mut *template_of,
                &mut self.unit,
            );
            write_at(draft.file(), &self.unit, end)?;
            end += self.unit.len() as u64;
            starts.push(end);
            checksums.push(self.checksum(first));
        }
        let mut directory = Vec::new();
        SegmentDirectory::new(starts).encode(&self.meta.uuid, first, &mut directory);
        write_at(draft.file(), &directory, end)?;
        Ok(Some(checksums))
    }

    /// Waits while the writer's disk is behind. `false` once the work is not wanted any more.
    fn may_go_on(&self, is_wanted: &impl Fn() -> bool) -> bool {
        while is_wanted() {
            let Some(writer) = &self.writer else {
                return true;
            };
            let appended = writer.writer(LogKind::Records).appended.get();
            let flushed = writer.flusher(LogKind::Records).flushed.get();
            if appended.0.saturating_sub(flushed.0) < writer.geometry.block(LogKind::Records) / 2 {
                return true;
            }
            std::thread::sleep(PATIENCE);
        }
        false
    }

    /// Whether the file holds, where its directory says, the units that were compared with their rows.
    fn holds(&mut self, first: Address, draft: &Draft<'_>, checksums: &[u32]) -> Result<bool> {
        let columns = self.segments.columns_of(first, draft.shared_file())?;
        for (nth, written) in checksums.iter().enumerate() {
            columns.read_unit_bytes(nth, &mut self.unit)?;
            if *written != self.checksum(first) {
                tracing::warn!(
                    "{}: unit {nth} does not come back as it was written; the segment stays as it is",
                    draft.file().path().display()
                );
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn checksum(&self, first: Address) -> u32 {
        checksum(&self.meta.uuid, LogKind::Records, first, &self.unit)
    }
}
