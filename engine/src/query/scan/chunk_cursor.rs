//! A chunk's bytes in memory, and the records of one source in it.
//!
//! A chunk from a segment is verified before its first use. A record that ends past the snapshot's position is invisible, whatever follows it. Consecutive
//! chunks in segments are read several at once.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{
    FormatError, RECORD_HEADER_BYTES, RawRecord, RecordHeader, RecordIter, Run, StreamRows,
    Template, Unit, Zone, record_bytes, walk_runs,
};
use crate::log::{HeldUnit, Origin, UnitWanted};
use crate::memory;
use crate::proven::{at, at_mut};
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::Source;
use crate::types::{Address, ChunkNo, LogKind, SourceId, TimeRange, Timestamp};

/// Chunks are read together up to this many bytes, because more would leave a core's cache before use.
const AHEAD_BYTES: u64 = 512 << 10;

/// This covers most records in one read and wastes little.
const GUESS_BYTES_LEAST: usize = 64;
const GUESS_BYTES_MOST: usize = 1024;

/// A buffer of some consecutive chunks with one current chunk, for one thread.
pub(crate) struct ChunkCursor {
    logs: Arc<SnapshotLogs>,
    bytes: Vec<u8>,
    /// Whole chunks from segments that the buffer holds from its start.
    held: Range<u64>,
    /// Offset of the current chunk in the buffer.
    at: usize,
    base: Address,
    /// Published bytes of the chunk.
    published: usize,
    /// Bytes of the chunk below the position.
    visible: usize,
    /// The chunk that was loaded last, and the number of chunks then read together.
    latest: Option<(u64, u64)>,
    /// Staging was met at this chunk: reading several together would mix it with segments.
    staged_from: u64,
    runs: Vec<Run>,
    /// The unit that rows were taken from last.
    unit: HeldUnit,
    /// Units are read whole, because each gives rows of many sources.
    whole_units: bool,
    /// Bytes to read of a record whose length is unknown: the longest so far.
    guess_bytes: usize,
}

impl ChunkCursor {
    pub fn new(logs: Arc<SnapshotLogs>) -> ChunkCursor {
        ChunkCursor {
            bytes: Vec::new(),
            held: 0..0,
            at: 0,
            base: Address::ZERO,
            published: 0,
            visible: 0,
            latest: None,
            staged_from: u64::MAX,
            runs: Vec::new(),
            unit: logs.held_unit(),
            whole_units: false,
            guess_bytes: GUESS_BYTES_LEAST,
            logs,
        }
    }

    /// Creates a cursor that reads units whole, for rows of many sources.
    pub fn of_many_sources(logs: Arc<SnapshotLogs>) -> ChunkCursor {
        ChunkCursor {
            whole_units: true,
            ..ChunkCursor::new(logs)
        }
    }

    /// Announces the parts of ascending chunks that are read soon. Neighbours are fetched when the first of their units had to be waited for.
    pub fn expect(&self, chunks: impl Iterator<Item = ChunkNo>, wanted: UnitWanted<'_>) {
        let mut alone = Vec::new();
        let mut chunks = chunks.peekable();
        let mut before = None;
        while let Some(chunk) = chunks.next() {
            let follows = before.is_some_and(|before: ChunkNo| before.0 + 1 == chunk.0);
            let is_followed = chunks.peek().is_some_and(|next| chunk.0 + 1 == next.0);
            // A verified chunk was read before, and is cached.
            if !follows && !is_followed && !self.logs.verified().contains(chunk) {
                alone.push(chunk);
            }
            before = Some(chunk);
        }
        self.logs.will_read_columns(&alone, wanted);
    }

    /// Reads a chunk whole, up to the published end, and more behind it if chunks are loaded in sequence.
    pub fn load(&mut self, chunk: ChunkNo) -> Result<()> {
        let together = match self.latest {
            Some((latest, together)) if latest + 1 == chunk.0 => together * 2,
            _ => 1,
        };
        self.load_of(chunk, ChunkNo(chunk.0.saturating_add(together)))
    }

    /// Reads a chunk whole, up to the published end, where all chunks up to `end` are wanted.
    pub fn load_of(&mut self, chunk: ChunkNo, end: ChunkNo) -> Result<()> {
        self.look_at(chunk)?;
        self.logs.counters().chunk_read();
        let is_rebuilt = !self.held.contains(&chunk.0) && self.rebuild(chunk)?;
        if !is_rebuilt && !self.held.contains(&chunk.0) {
            self.read_together(chunk, end);
        }
        if self.fill(chunk, is_rebuilt)?.is_err() {
            self.logs.relist();
            self.held = 0..0;
            let is_rebuilt = self.rebuild(chunk)?;
            if let Err(error) = self.fill(chunk, is_rebuilt)? {
                return Err(self.logs.corrupt(LogKind::Records, self.base, error));
            }
        }
        let held = self.held.end.saturating_sub(chunk.0).max(1);
        self.latest = Some((chunk.0, held));
        Ok(())
    }

    /// Reads several chunks at once, if possible. An error occurs again, and is returned, when its chunk is read alone.
    fn read_together(&mut self, chunk: ChunkNo, end: ChunkNo) {
        let chunk_bytes = u64::from(self.logs.chunk_bytes());
        let published = self.logs.tail(LogKind::Records).0 / chunk_bytes;
        let most = (AHEAD_BYTES / chunk_bytes).max(1);
        let end = end
            .0
            .min(chunk.0.saturating_add(most))
            .min(published)
            .min(self.staged_from);
        self.held = 0..0;
        if end <= chunk.0 + 1 {
            return;
        }
        let bytes = ((end - chunk.0) * chunk_bytes) as usize;
        if self.bytes.len() < bytes && memory::resize(&mut self.bytes, bytes).is_err() {
            return;
        }
        let buffer = at_mut(&mut self.bytes, ..bytes);
        match self.logs.read(LogKind::Records, self.base, buffer) {
            Ok(Origin::Segment) => self.held = chunk.0..end,
            Ok(Origin::Staging) => self.staged_from = chunk.0,
            Err(_) => {}
        }
    }

    /// Rebuilds a chunk from its unit; false if it is in none.
    fn rebuild(&mut self, chunk: ChunkNo) -> Result<bool> {
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        if self.published < chunk_bytes {
            return Ok(false);
        }
        let found = (self.logs).column_unit(chunk, UnitWanted::All, &mut self.unit)?;
        let Some((unit, nth)) = found else {
            return Ok(false);
        };
        (self.held, self.at) = (0..0, 0);
        let rebuilt = unit.chunk(nth, at_mut(&mut self.bytes, ..chunk_bytes));
        rebuilt.map_err(|error| self.logs.undecoded(chunk, error))?;
        self.logs.counters().bytes_read(chunk_bytes);
        Ok(true)
    }

    /// Reads the chunk unless it is held or rebuilt, and verifies it if it comes from a segment for the first time.
    fn fill(&mut self, chunk: ChunkNo, is_rebuilt: bool) -> Result<Result<(), FormatError>> {
        let (logs, base) = (&self.logs, self.base);
        let chunk_bytes = logs.chunk_bytes() as usize;
        let held = self.held.contains(&chunk.0);
        self.at = if held {
            (chunk.0 - self.held.start) as usize * chunk_bytes
        } else {
            0
        };
        let bytes = at_mut(&mut self.bytes, self.at..self.at + self.published);
        let origin = if held || is_rebuilt {
            Origin::Segment
        } else {
            self.held = 0..0;
            logs.read(LogKind::Records, base, bytes)?
        };
        if origin == Origin::Staging || logs.verified().contains(chunk) {
            return Ok(Ok(()));
        }
        let verified = logs.verify_chunk(base, bytes);
        // A part is verified each time, because the chunk may still grow.
        if verified.is_ok() && bytes.len() == chunk_bytes {
            logs.verified().insert(chunk);
        }
        Ok(verified)
    }

    /// Moves to the first of some chunks and returns those that are visible whole and hold records of its layout; `None` if the first is not, or was loaded
    /// with the one before.
    pub fn enter(&mut self, chunks: Range<ChunkNo>, source: &Source) -> Option<Range<ChunkNo>> {
        self.stand_at(chunks.start);
        if self.held.contains(&chunks.start.0) {
            return None;
        }
        let visible = ChunkNo(self.logs.position().0 / u64::from(self.logs.chunk_bytes()));
        let mut end = chunks.end.min(visible);
        if let Some(next) = source.next_layout_from(self.base) {
            end = end.min(next.chunk(self.logs.chunk_bytes()));
        }
        (chunks.start < end).then_some(chunks.start..end)
    }

    /// Returns the unit of a chunk with this part read, the chunk's number in it, and the logs; `None` if the chunk is in no unit.
    ///
    /// # Errors
    /// Fails if a needed part does not verify, or retention removed it in the meantime.
    pub fn unit(
        &mut self,
        chunk: ChunkNo,
        wanted: UnitWanted<'_>,
    ) -> Result<(&SnapshotLogs, Option<(&mut Unit, usize)>)> {
        let wanted = match self.whole_units {
            true => UnitWanted::All,
            false => wanted,
        };
        let unit = self.logs.column_unit(chunk, wanted, &mut self.unit)?;
        Ok((&self.logs, unit))
    }

    /// The end of those of some chunks that stand in the unit of the first, if none of the rows that a source has in them is wanted, by the head of the unit.
    /// `may` says of the zones of their fields whether one is. `None`: one may be, or the first stands in no unit.
    ///
    /// # Errors
    /// As [`ChunkCursor::unit`].
    pub fn pass_unit(
        &mut self,
        chunks: Range<ChunkNo>,
        template: &Template,
        may: impl FnMut(&[Zone]) -> bool,
    ) -> Result<Option<ChunkNo>> {
        let count = (chunks.end.0 - chunks.start.0) as usize;
        let (_, unit) = self.unit(chunks.start, UnitWanted::Head)?;
        let Some((unit, nth)) = unit else {
            return Ok(None);
        };
        let end = unit.chunks().min(nth + count);
        if unit.may_have(nth..end, template, may) {
            return Ok(None);
        }
        let passed = (end - nth) as u64;
        self.logs.counters().chunks_outside_zones(passed);
        Ok(Some(ChunkNo(chunks.start.0 + passed)))
    }

    /// Returns the rows that the unit found last; `None` if there are none.
    pub fn found(&self) -> Option<StreamRows<'_>> {
        self.unit.unit().and_then(Unit::found)
    }

    /// Counts chunks whose rows were read.
    pub fn count_read(&self, chunks: u64) {
        let counters = self.logs.counters();
        counters.chunks_read(chunks);
        counters.bytes_read(chunks as usize * self.logs.chunk_bytes() as usize);
    }

    /// Moves to a chunk; the buffer has room for its bytes.
    fn look_at(&mut self, chunk: ChunkNo) -> Result<()> {
        self.stand_at(chunk);
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        if self.bytes.len() < chunk_bytes {
            let room = memory::resize(&mut self.bytes, chunk_bytes);
            room.map_err(|refused| self.logs.no_memory(LogKind::Records, self.base, refused))?;
        }
        Ok(())
    }

    fn stand_at(&mut self, chunk: ChunkNo) {
        let chunk_bytes = self.logs.chunk_bytes();
        self.base = chunk.address(chunk_bytes);
        let below = |end: Address| {
            let bytes = end.0.saturating_sub(self.base.0);
            bytes.min(u64::from(chunk_bytes)) as usize
        };
        self.published = below(self.logs.tail(LogKind::Records));
        self.visible = below(self.logs.position()).min(self.published);
    }

    /// Reads only the records at these offsets, as runs, or all of a chunk that must be verified first. Returns false if the offsets do not suffice and the
    /// chunk must be searched. `span` is the arrival of the chunk's first and last record.
    pub fn load_records(
        &mut self,
        source: SourceId,
        chunk: ChunkNo,
        offsets: &[u32],
        span: TimeRange,
    ) -> Result<bool> {
        self.runs.clear();
        // Anchors other than the chunk's first occur only where times exceed the 32 bits that count from it.
        if i128::from(span.last.0) - i128::from(span.first.0) > i128::from(u32::MAX) {
            return Ok(false);
        }
        self.look_at(chunk)?;
        let verified = self.logs.verified().contains(chunk);
        let whole = !verified && !self.logs.is_staged(self.base);
        if whole {
            self.load_of(chunk, ChunkNo(chunk.0.saturating_add(1)))?;
        } else {
            (self.held, self.at) = (0..0, 0);
        }
        for &offset in offsets {
            // A summary that verifies may still name any place.
            if offset as usize >= self.visible {
                return Ok(false);
            }
            if !whole && self.read_record(offset, verified)? == Origin::Segment && !verified {
                return Ok(false);
            }
            let Some(run) = self.record(source, offset, span.first) else {
                return Ok(false);
            };
            if whole && self.logs.verified().contains(chunk) {
                let end = offset as usize + RECORD_HEADER_BYTES + usize::from(run.payload_bytes);
                let record = at(self.bytes(), offset as usize..end);
                let address = self.base + u64::from(offset);
                self.logs.verified().keep_record(address, record);
            }
            self.runs.push(run);
        }
        if !whole {
            self.logs.counters().chunk_read();
        }
        Ok(true)
    }

    /// Reads the record at an offset to its place in the buffer. `verified` says that the chunk was verified, so the record may be kept.
    fn read_record(&mut self, offset: u32, verified: bool) -> Result<Origin> {
        let start = offset as usize;
        let room = self.visible - start;
        let address = self.base + u64::from(offset);
        if verified && let Some(kept) = self.logs.verified().record(address) {
            let bytes = kept.len().min(room);
            at_mut(&mut self.bytes, start..start + bytes).copy_from_slice(at(&kept, ..bytes));
            self.logs.counters().bytes_read(bytes);
            return Ok(Origin::Segment);
        }
        let mut have = self.guess_bytes.min(room);
        loop {
            let record = at_mut(&mut self.bytes, start..start + have);
            let origin = self.logs.read(LogKind::Records, address, record)?;
            let Some(header) = record.first_chunk::<RECORD_HEADER_BYTES>() else {
                // No record fits here, as `record` finds.
                return Ok(origin);
            };
            let header = RecordHeader::decode(*header);
            let need = RECORD_HEADER_BYTES + usize::from(header.payload_bytes);
            self.guess_bytes = need.clamp(self.guess_bytes, GUESS_BYTES_MOST);
            if need > room {
                return Ok(origin);
            }
            if need <= have {
                if verified && origin == Origin::Segment {
                    let record = at(record, ..need);
                    self.logs.verified().keep_record(address, record);
                }
                return Ok(origin);
            }
            have = need;
        }
    }

    /// Returns the loaded record at an offset as a run; `None` if none of the source can be there.
    fn record(&self, source: SourceId, offset: u32, anchor: Timestamp) -> Option<Run> {
        let bytes = self.bytes.get(self.at..self.at + self.visible)?;
        let record = bytes.get(offset as usize..)?;
        let (header, rest) = record.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let header = RecordHeader::decode(*header);
        let is_there = rest.len() >= usize::from(header.payload_bytes);
        (is_there && header.source == source).then_some(Run {
            source,
            payload_bytes: header.payload_bytes,
            records: 1,
            offset,
            anchor,
        })
    }

    pub fn base(&self) -> Address {
        self.base
    }

    /// Reports records of the chunk that cannot be decoded.
    pub fn undecoded(&self, error: FormatError) -> Error {
        self.logs
            .undecoded(self.base.chunk(self.logs.chunk_bytes()), error)
    }

    /// Reports a chain of chunks that leads to an impossible chunk.
    pub fn broken_chain(&self, chunk: ChunkNo, what: &str) -> Error {
        let address = chunk.address(self.logs.chunk_bytes());
        let what = format!("the source's chain of chunks {what}");
        self.logs.corrupt(LogKind::Records, address, what)
    }

    /// Returns the current chunk, empty before the first; unread bytes may hold anything.
    pub fn bytes(&self) -> &[u8] {
        let end = self.at + self.logs.chunk_bytes() as usize;
        at(&self.bytes, self.at..end.min(self.bytes.len()))
    }

    fn published(&self) -> &[u8] {
        at(&self.bytes, self.at..self.at + self.published)
    }

    /// Finds the visible records of a source in the loaded chunk.
    pub fn find_runs(&mut self, source: SourceId) -> Result<()> {
        self.runs.clear();
        let mut runs = std::mem::take(&mut self.runs);
        let walked = self.walk_runs(|run| {
            if run.source == source {
                runs.push(run);
            }
        });
        self.runs = runs;
        walked
    }

    /// Returns the runs that were found or loaded last, in log order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Passes the visible records of every source in the loaded chunk to `each` as runs, in log order.
    pub fn walk_runs(&mut self, mut each: impl FnMut(Run)) -> Result<()> {
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        let chunk = at_mut(&mut self.bytes, self.at..self.at + chunk_bytes);
        // Unpublished bytes may be anything.
        at_mut(chunk, self.published..).fill(0);
        let visible = self.visible;
        let walked = walk_runs(chunk, |run| {
            let first_end =
                run.offset as usize + RECORD_HEADER_BYTES + usize::from(run.payload_bytes);
            if let Some(room) = visible.checked_sub(first_end) {
                let records = (room / run.entry_bytes() + 1).min(run.records as usize);
                let records = records as u32;
                each(Run { records, ..run });
            }
        });
        walked.map_err(|error| self.logs.corrupt(LogKind::Records, self.base, error))
    }

    /// Passes the visible records of every source in the loaded chunk to `each`, in log order.
    #[inline]
    pub fn walk(
        &self,
        mut each: impl FnMut(RawRecord<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let published = self.published();
        let (base, visible) = (self.base, self.visible);
        RecordIter::new(published, self.logs.chunk_bytes())
            .walk(|record| {
                let start = record.offset as usize + RECORD_HEADER_BYTES;
                if start + record.payload.len() > visible {
                    return ControlFlow::Break(());
                }
                each(record)
            })
            .map_err(|error| self.logs.corrupt(LogKind::Records, base, error))
    }

    /// Returns the arrival of the first visible record of any source.
    pub fn first_arrival(&self) -> Result<Option<Timestamp>> {
        let published = self.published();
        let first = RecordIter::new(published, self.logs.chunk_bytes()).next();
        let Some(record) = first
            .transpose()
            .map_err(|error| self.logs.corrupt(LogKind::Records, self.base, error))?
        else {
            return Ok(None);
        };
        let end = record.offset as usize + RECORD_HEADER_BYTES + record.payload.len();
        Ok((end <= self.visible).then_some(record.arrival))
    }

    /// Reports whether the position lies inside a record of the loaded chunk, which is then invisible.
    pub fn cuts_a_record(&self) -> Result<bool> {
        let published = self.published();
        let visible = self.visible;
        for record in RecordIter::new(published, self.logs.chunk_bytes()) {
            let record =
                record.map_err(|error| self.logs.corrupt(LogKind::Records, self.base, error))?;
            let start = record.offset as usize;
            if visible < start + record_bytes(record.payload.len()) {
                return Ok(start < visible);
            }
        }
        Ok(false)
    }

    /// Returns the arrival of the last visible record of any source.
    pub fn last_arrival(&self) -> Result<Option<Timestamp>> {
        let mut last = None;
        let _ = self.walk(|record| {
            last = Some(record.arrival);
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }
}
