//! A chunk's bytes in memory, and the records of one source in it.
//!
//! A chunk that comes from a segment is verified before it is first used. A record that ends past the snapshot's position is not
//! seen, whatever lies behind it. Chunks that follow one another in segments are read several at once.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::column_rows::{ColumnReads, ColumnRows};
use super::columns::Columns;
use crate::error::{Error, Result};
use crate::format::{
    FormatError, RECORD_HEADER_BYTES, RangeTotals, RawRecord, RecordHeader, RecordIter, Run,
    record_bytes, walk_runs,
};
use crate::log::Origin;
use crate::memory;
use crate::proven::{at, at_mut};
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{Layout, RangeSet, Source};
use crate::types::{Address, ChunkNo, Key, LogKind, TimeRange, Timestamp};

/// One record, as functions of the library's users see it.
#[derive(Copy, Clone)]
pub struct RecordView<'a> {
    /// The source's own time where it has one, else arrival.
    pub ts: Timestamp,
    pub address: Address,
    pub payload: &'a [u8],
    pub layout: &'a Layout,
}

/// Where a record stands in its chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub ts: Timestamp,
    /// Offset in the chunk of the payload's first byte; the record's header stands 8 bytes before.
    pub start: u32,
    /// Payload bytes.
    pub length: u16,
}

impl Row {
    /// The payload, in the bytes of the row's chunk.
    #[inline]
    pub fn payload<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        let start = self.start as usize;
        at(chunk, start..start + usize::from(self.length))
    }

    /// The record's address, in a chunk that begins at `base`.
    pub fn address(&self, base: Address) -> Address {
        base + u64::from(self.start - RECORD_HEADER_BYTES as u32)
    }
}

/// Chunks are read together up to so many bytes: more would not stay in a core's cache until they are used.
const AHEAD_BYTES: u64 = 512 << 10;

/// Enough for most records in one read, and little to read in vain.
const GUESS_BYTES_LEAST: usize = 64;
const GUESS_BYTES_MOST: usize = 1024;

/// A buffer of some chunks in a row, of which one is looked at, for one thread.
pub(crate) struct ChunkCursor {
    logs: Arc<SnapshotLogs>,
    bytes: Vec<u8>,
    /// Chunks that the buffer holds from its start; all of them come from segments, whole.
    held: Range<u64>,
    /// Where in the buffer the chunk begins that is looked at.
    at: usize,
    base: Address,
    /// Bytes of the chunk that are published.
    published: usize,
    /// Bytes of the chunk below the position.
    visible: usize,
    /// The chunk that was loaded last, and how many were then read together.
    latest: Option<(u64, u64)>,
    /// From this chunk on, staging was met: reading several would mix it with segments.
    staged_from: u64,
    runs: Vec<Run>,
    /// The chunk's own bytes are what is loaded, and not rows that were taken from columns.
    is_chunk: bool,
    columns: ColumnRows,
    /// What is read of a record whose length is not known yet: as much as the longest so far took.
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
            is_chunk: true,
            columns: ColumnRows::new(&logs),
            guess_bytes: GUESS_BYTES_LEAST,
            logs,
        }
    }

    /// Says that chunks, ascending, are read soon, whole or only a source's columns of them. The system fetches those that stand alone at once; neighbours it
    /// reads ahead by itself, in larger pieces than on request.
    pub fn expect(
        &mut self,
        chunks: impl Iterator<Item = ChunkNo>,
        columns_of: Option<(&Source, ColumnReads<'_>)>,
    ) {
        let mut alone = Vec::new();
        let mut chunks = chunks.peekable();
        let mut before = None;
        while let Some(chunk) = chunks.next() {
            let follows = before.is_some_and(|before: ChunkNo| before.0 + 1 == chunk.0);
            let is_followed = chunks.peek().is_some_and(|next| chunk.0 + 1 == next.0);
            // What was verified was read before, and is cached.
            if !follows && !is_followed && !self.logs.verified().contains(chunk) {
                alone.push(chunk);
            }
            before = Some(chunk);
        }
        let Some(first) = alone.first() else {
            return;
        };
        match columns_of {
            Some((source, reads)) => {
                let layout = source.layout_at(first.address(self.logs.chunk_bytes()));
                self.columns
                    .will_read(&self.logs, &alone, source, layout, reads);
            }
            None => alone
                .iter()
                .for_each(|chunk| self.logs.will_read_chunk(*chunk)),
        }
    }

    /// Reads a chunk whole, up to the published end; and more behind it, as long as chunks are asked for in a row.
    pub fn load(&mut self, chunk: ChunkNo) -> Result<()> {
        let together = match self.latest {
            Some((latest, together)) if latest + 1 == chunk.0 => together * 2,
            _ => 1,
        };
        self.load_of(chunk, ChunkNo(chunk.0.saturating_add(together)))
    }

    /// Reads a chunk whole, up to the published end, where those from it to `end` are wanted in a row.
    pub fn load_of(&mut self, chunk: ChunkNo, end: ChunkNo) -> Result<()> {
        self.enter(chunk)?;
        self.logs.counters().chunk_read();
        if !self.held.contains(&chunk.0) {
            self.read_together(chunk, end);
        }
        if self.fill(chunk)?.is_err() {
            self.logs.relist();
            self.held = 0..0;
            if let Err(error) = self.fill(chunk)? {
                return Err(self.logs.corrupt(LogKind::Records, self.base, error));
            }
        }
        let held = self.held.end.saturating_sub(chunk.0).max(1);
        self.latest = Some((chunk.0, held));
        Ok(())
    }

    /// Reads several chunks at once, if that is possible; an error is met again, and returned, when its chunk is read alone.
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

    /// Reads the chunk unless it is held, and verifies it where it comes from a segment, for the first time.
    fn fill(&mut self, chunk: ChunkNo) -> Result<Result<(), FormatError>> {
        let (logs, base) = (&self.logs, self.base);
        let chunk_bytes = logs.chunk_bytes() as usize;
        let held = self.held.contains(&chunk.0);
        self.at = if held {
            (chunk.0 - self.held.start) as usize * chunk_bytes
        } else {
            0
        };
        let bytes = at_mut(&mut self.bytes, self.at..self.at + self.published);
        let origin = if held {
            Origin::Segment
        } else {
            self.held = 0..0;
            logs.read(LogKind::Records, base, bytes)?
        };
        if origin == Origin::Staging || logs.verified().contains(chunk) {
            return Ok(Ok(()));
        }
        let verified = logs.verify_chunk(base, bytes);
        // A part is verified each time: the chunk may still be filled up.
        if verified.is_ok() && bytes.len() == chunk_bytes {
            logs.verified().insert(chunk);
        }
        Ok(verified)
    }

    /// Takes rows of one source straight from columns: those of the first of some chunks that are wanted in a row, and of as many behind it as can be taken
    /// together. Returns the end of these chunks; [`ChunkCursor::columns`] has the rows. `None`: the first chunk must be loaded. A cursor is always asked
    /// with the same `reads`.
    ///
    /// # Errors
    /// A part of the unit that is needed does not verify, or retention removed it meanwhile.
    pub fn load_columns(
        &mut self,
        chunks: Range<ChunkNo>,
        source: &Source,
        reads: ColumnReads<'_>,
    ) -> Result<Option<ChunkNo>> {
        let Some(all) = self.enter_columns(chunks, source) else {
            return Ok(None);
        };
        let layout = source.layout_at(self.base);
        let columns = &mut self.columns;
        let end = columns.columns(&self.logs, all.clone(), source, layout, reads)?;
        Ok(end.map(|end| {
            self.is_chunk = false;
            self.count_read(end - all.start);
            ChunkNo(end)
        }))
    }

    /// What the values of a field are together whose keys are wanted, likewise. `None`: the rows must be loaded.
    ///
    /// # Errors
    /// As [`ChunkCursor::load_columns`].
    pub fn totals(
        &mut self,
        chunks: Range<ChunkNo>,
        source: &Source,
        keys: &[(usize, RangeSet<Key>)],
    ) -> Result<Option<(ChunkNo, RangeTotals)>> {
        let Some(all) = self.enter_columns(chunks, source) else {
            return Ok(None);
        };
        let layout = source.layout_at(self.base);
        let columns = &mut self.columns;
        let found = columns.totals(&self.logs, all.clone(), source, layout, keys)?;
        Ok(found.map(|(end, totals)| {
            self.count_read(end - all.start);
            (ChunkNo(end), totals)
        }))
    }

    /// Enters the first of some chunks, and says which of them are visible whole and of its layout.
    fn enter_columns(&mut self, chunks: Range<ChunkNo>, source: &Source) -> Option<Range<u64>> {
        self.look_at(chunks.start);
        if self.held.contains(&chunks.start.0) {
            return None;
        }
        let visible = ChunkNo(self.logs.position().0 / u64::from(self.logs.chunk_bytes()));
        let mut end = chunks.end.min(visible);
        if let Some(next) = source.next_layout_from(self.base) {
            end = end.min(next.chunk(self.logs.chunk_bytes()));
        }
        (chunks.start < end).then_some(chunks.start.0..end.0)
    }

    /// The rows that were taken from columns last.
    pub fn columns(&self) -> Columns<'_> {
        self.columns.view()
    }

    /// Takes the rows of one source in a chunk that stands in columns and is visible whole to where they stand in it, without the other sources' rows: what
    /// `fields` need of payloads, `None` for all. False: the chunk must be loaded. A cursor is always asked with the same `fields`.
    ///
    /// # Errors
    /// As [`ChunkCursor::load_columns`].
    pub fn load_column_rows(
        &mut self,
        chunk: ChunkNo,
        source: &Source,
        fields: Option<&[usize]>,
    ) -> Result<bool> {
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        self.enter(chunk)?;
        if self.visible < chunk_bytes || self.held.contains(&chunk.0) {
            return Ok(false);
        }
        let layout = source.layout_at(self.base);
        let bytes = at_mut(&mut self.bytes, ..chunk_bytes);
        if !(self.columns).rows(&self.logs, chunk, source, layout, fields, bytes)? {
            return Ok(false);
        }
        (self.held, self.at) = (0..0, 0);
        self.is_chunk = false;
        self.count_read(1);
        Ok(true)
    }

    fn count_read(&self, chunks: u64) {
        let counters = self.logs.counters();
        counters.chunks_read(chunks);
        counters.bytes_read(chunks as usize * self.logs.chunk_bytes() as usize);
    }

    /// The rows that were taken from columns, in log order.
    pub fn column_rows(&self, layout: &Layout) -> impl Iterator<Item = Row> {
        self.columns.unit_rows().map(move |row| {
            let found = Row {
                ts: row.arrival,
                start: row.start,
                length: row.length,
            };
            Row {
                ts: record_ts(layout, row.arrival, found.payload(&self.bytes)),
                ..found
            }
        })
    }

    /// Reads nothing yet: the chunk is looked at, but no byte of it is.
    pub fn enter(&mut self, chunk: ChunkNo) -> Result<()> {
        self.look_at(chunk);
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        if self.bytes.len() < chunk_bytes {
            let room = memory::resize(&mut self.bytes, chunk_bytes);
            room.map_err(|refused| self.logs.no_memory(LogKind::Records, self.base, refused))?;
        }
        Ok(())
    }

    /// The same without room for its bytes.
    fn look_at(&mut self, chunk: ChunkNo) {
        let chunk_bytes = self.logs.chunk_bytes();
        self.is_chunk = true;
        self.base = chunk.address(chunk_bytes);
        let below = |end: Address| {
            let bytes = end.0.saturating_sub(self.base.0);
            bytes.min(u64::from(chunk_bytes)) as usize
        };
        self.published = below(self.logs.tail(LogKind::Records));
        self.visible = below(self.logs.position()).min(self.published);
    }

    /// Reads the records at these offsets alone; of a chunk that must be verified first, all of it. False: the offsets say too little, and the
    /// chunk must be looked through. `span` is the arrival of the chunk's first and last record.
    pub fn load_records(
        &mut self,
        source: &Source,
        chunk: ChunkNo,
        offsets: &[u32],
        span: TimeRange,
        rows: &mut Vec<Row>,
    ) -> Result<bool> {
        // Later anchors than the chunk's own, the first arrival, stand only where times go on past what 32 bits count from it.
        if i128::from(span.last.0) - i128::from(span.first.0) > i128::from(u32::MAX) {
            return Ok(false);
        }
        self.enter(chunk)?;
        let verified = self.logs.verified().contains(chunk);
        let whole = !verified && !self.logs.is_staged(self.base);
        if whole {
            self.load_of(chunk, ChunkNo(chunk.0.saturating_add(1)))?;
        } else {
            (self.held, self.at) = (0..0, 0);
        }
        for &offset in offsets {
            // A summary that verifies may name any place.
            if offset as usize >= self.visible {
                return Ok(false);
            }
            if !whole && self.read_record(offset, verified)? == Origin::Segment && !verified {
                return Ok(false);
            }
            let Some(row) = self.record(source, offset, span.first) else {
                return Ok(false);
            };
            if whole && self.logs.verified().contains(chunk) {
                let end = (row.start + u32::from(row.length)) as usize;
                let record = at(self.bytes(), offset as usize..end);
                let address = self.base + u64::from(offset);
                self.logs.verified().keep_record(address, record);
            }
            rows.push(row);
        }
        if !whole {
            self.logs.counters().chunk_read();
        }
        Ok(true)
    }

    /// Reads the record at an offset to its place in the buffer. `verified`: of a chunk that was verified, so the record may be kept.
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
                // Too near the end for any record, as `record` finds.
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

    /// The record at an offset, whose bytes are read; `None` where none of the source can stand.
    fn record(&self, source: &Source, offset: u32, anchor: Timestamp) -> Option<Row> {
        let bytes = self.bytes.get(self.at..self.at + self.visible)?;
        let record = bytes.get(offset as usize..)?;
        let (header, rest) = record.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let header = RecordHeader::decode(*header);
        let payload = rest.get(..usize::from(header.payload_bytes))?;
        let arrival = Timestamp(anchor.0.saturating_add(i64::from(header.delta_ns)));
        (header.source == source.id).then(|| Row {
            ts: record_ts(source.layout_at(self.base), arrival, payload),
            start: offset + RECORD_HEADER_BYTES as u32,
            length: header.payload_bytes,
        })
    }

    pub fn base(&self) -> Address {
        self.base
    }

    /// The error for a chain of chunks that leads to a chunk where it cannot.
    pub fn broken_chain(&self, chunk: ChunkNo, what: &str) -> Error {
        let address = chunk.address(self.logs.chunk_bytes());
        let what = format!("the source's chain of chunks {what}");
        self.logs.corrupt(LogKind::Records, address, what)
    }

    /// The chunk, or nothing before the first; bytes that were not read hold anything.
    pub fn bytes(&self) -> &[u8] {
        let end = self.at + self.logs.chunk_bytes() as usize;
        at(&self.bytes, self.at..end.min(self.bytes.len()))
    }

    fn published(&self) -> &[u8] {
        assert!(
            self.is_chunk,
            "a chunk of which only one source's rows were taken is not walked"
        );
        at(&self.bytes, self.at..self.at + self.published)
    }

    /// The records of a source in the loaded chunk as runs, in log order; `None` where the chunk is not visible whole, and is to be walked.
    pub fn runs(&mut self, source: &Source) -> Result<Option<(&[u8], &[Run])>> {
        let chunk_bytes = self.logs.chunk_bytes() as usize;
        if self.visible < chunk_bytes {
            return Ok(None);
        }
        let runs = &mut self.runs;
        let chunk = at(&self.bytes, self.at..self.at + chunk_bytes);
        runs.clear();
        walk_runs(chunk, |run| {
            if run.source == source.id {
                runs.push(run);
            }
        })
        .map_err(|error| self.logs.corrupt(LogKind::Records, self.base, error))?;
        Ok(Some((chunk, runs)))
    }

    /// Gives `each` the visible records of a source in the loaded chunk, in log order.
    pub fn for_each(
        &self,
        source: &Source,
        mut each: impl FnMut(RecordView<'_>, Row) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let layout = source.layout_at(self.base);
        let (id, base) = (source.id, self.base);
        self.walk(|record| {
            if record.source != id {
                return ControlFlow::Continue(());
            }
            let row = row_of(layout, &record);
            let view = RecordView {
                ts: row.ts,
                address: base + u64::from(record.offset),
                payload: record.payload,
                layout,
            };
            each(view, row)
        })
    }

    /// Likewise, with the time of each record's arrival.
    pub fn for_each_arrival(
        &self,
        source: &Source,
        mut each: impl FnMut(Timestamp, Row) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let layout = source.layout_at(self.base);
        self.walk(|record| {
            if record.source != source.id {
                return ControlFlow::Continue(());
            }
            each(record.arrival, row_of(layout, &record))
        })
    }

    /// Gives `each` the visible records of every source in the loaded chunk, in log order.
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

    /// Arrival of the first visible record, of any source.
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

    /// Whether the position lies inside a record of the loaded chunk, which then is not visible.
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

    /// Arrival of the last visible record, of any source.
    pub fn last_arrival(&self) -> Result<Option<Timestamp>> {
        let mut last = None;
        let _ = self.walk(|record| {
            last = Some(record.arrival);
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }
}

#[inline]
fn row_of(layout: &Layout, record: &RawRecord<'_>) -> Row {
    Row {
        ts: record_ts(layout, record.arrival, record.payload),
        start: record.offset + RECORD_HEADER_BYTES as u32,
        length: record.payload.len() as u16,
    }
}

#[inline]
pub(in crate::query) fn record_ts(
    layout: &Layout,
    arrival: Timestamp,
    payload: &[u8],
) -> Timestamp {
    layout.own_time(payload).unwrap_or(arrival)
}
