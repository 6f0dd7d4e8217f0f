//! A chunk's bytes in memory, and the records of one source in it.
//!
//! A chunk that comes from a segment is verified before it is first used. A record that ends past the snapshot's position is not
//! seen, whatever lies behind it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::snapshot_logs::SnapshotLogs;
use crate::error::{Error, Result};
use crate::format::{
    FormatError, RECORD_HEADER_BYTES, RawRecord, RecordHeader, RecordIter, record_bytes,
    verify_chunk,
};
use crate::log::Origin;
use crate::schema::{Layout, Source};
use crate::types::{Address, ChunkNo, LogKind, TimeRange, Timestamp};

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
        chunk
            .get(start..start + usize::from(self.length))
            .unwrap_or_default()
    }

    /// The record's address, in a chunk that begins at `base`.
    pub fn address(&self, base: Address) -> Address {
        base + u64::from(self.start.saturating_sub(RECORD_HEADER_BYTES as u32))
    }
}

/// A buffer of one chunk, for one thread.
pub(crate) struct ChunkCursor {
    logs: Arc<SnapshotLogs>,
    bytes: Vec<u8>,
    base: Address,
    /// Bytes of the chunk that are published.
    published: usize,
    /// Bytes of the chunk below the position.
    visible: usize,
}

impl ChunkCursor {
    pub fn new(logs: Arc<SnapshotLogs>) -> ChunkCursor {
        ChunkCursor {
            bytes: Vec::new(),
            base: Address::ZERO,
            published: 0,
            visible: 0,
            logs,
        }
    }

    /// Reads a chunk whole, up to the published end.
    pub fn load(&mut self, chunk: ChunkNo) -> Result<()> {
        self.enter(chunk);
        self.logs.counters().chunk_read();
        if self.fill(chunk)?.is_err() {
            self.logs.relist();
            if let Err(error) = self.fill(chunk)? {
                return Err(self.logs.corrupt(LogKind::Records, self.base, error));
            }
        }
        Ok(())
    }

    /// Reads the chunk, and verifies it where it comes from a segment, whole, for the first time.
    fn fill(&mut self, chunk: ChunkNo) -> Result<Result<(), FormatError>> {
        let (logs, base) = (&self.logs, self.base);
        let bytes = self.bytes.get_mut(..self.published).unwrap_or_default();
        let origin = logs.read(LogKind::Records, base, bytes)?;
        let sealed = origin == Origin::Segment && bytes.len() == logs.chunk_bytes() as usize;
        if !sealed || logs.verified().contains(chunk) {
            return Ok(Ok(()));
        }
        let verified = verify_chunk(logs.uuid(), base, bytes);
        if verified.is_ok() {
            logs.verified().insert(chunk);
        }
        Ok(verified)
    }

    /// Reads nothing yet: the chunk is looked at, but no byte of it is.
    pub fn enter(&mut self, chunk: ChunkNo) {
        let chunk_bytes = self.logs.chunk_bytes();
        self.base = chunk.address(chunk_bytes);
        let below = |end: Address| {
            let bytes = end.0.saturating_sub(self.base.0);
            bytes.min(u64::from(chunk_bytes)) as usize
        };
        self.published = below(self.logs.tail(LogKind::Records));
        self.visible = below(self.logs.position()).min(self.published);
        self.bytes.resize(chunk_bytes as usize, 0);
    }

    /// Reads single records, at these offsets, of a chunk that was verified before or is staged. False: the chunk must be loaded
    /// whole. `span` is the arrival of the chunk's first and last record.
    pub fn load_records(
        &mut self,
        source: &Source,
        chunk: ChunkNo,
        offsets: &[u32],
        span: TimeRange,
        rows: &mut Vec<Row>,
    ) -> Result<bool> {
        self.enter(chunk);
        // Later anchors than the chunk's own, the first arrival, stand only where times go on past what 32 bits count from it.
        if i128::from(span.last.0) - i128::from(span.first.0) > i128::from(u32::MAX) {
            return Ok(false);
        }
        let verified = self.logs.verified().contains(chunk);
        for &offset in offsets {
            let Some((row, origin)) = self.load_record(source, offset, span.first)? else {
                return Ok(false);
            };
            if origin == Origin::Segment && !verified {
                return Ok(false);
            }
            rows.push(row);
        }
        self.logs.counters().chunk_read();
        Ok(true)
    }

    /// The record at an offset, or `None` where none of the source can stand.
    fn load_record(
        &mut self,
        source: &Source,
        offset: u32,
        anchor: Timestamp,
    ) -> Result<Option<(Row, Origin)>> {
        /// Enough for most records in one read.
        const GUESS_BYTES: usize = 256;
        let start = offset as usize;
        let room = self.visible.saturating_sub(start);
        let address = self.base + u64::from(offset);
        let mut have = GUESS_BYTES.min(room);
        loop {
            let record = self.bytes.get_mut(start..start + have).unwrap_or_default();
            let origin = self.logs.read(LogKind::Records, address, record)?;
            let Some((header, rest)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
                return Ok(None);
            };
            let header = RecordHeader::decode(*header);
            let payload_bytes = usize::from(header.payload_bytes);
            if header.source != source.id || RECORD_HEADER_BYTES + payload_bytes > room {
                return Ok(None);
            }
            let Some(payload) = rest.get(..payload_bytes) else {
                have = RECORD_HEADER_BYTES + payload_bytes;
                continue;
            };
            let arrival = Timestamp(anchor.0.saturating_add(i64::from(header.delta_ns)));
            let row = Row {
                ts: record_ts(source.layout_at(self.base), arrival, payload),
                start: offset + RECORD_HEADER_BYTES as u32,
                length: header.payload_bytes,
            };
            return Ok(Some((row, origin)));
        }
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

    /// The chunk; bytes that were not read hold anything.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
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
        let published = self.bytes.get(..self.published).unwrap_or_default();
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
        let published = self.bytes.get(..self.published).unwrap_or_default();
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
        let published = self.bytes.get(..self.published).unwrap_or_default();
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
fn record_ts(layout: &Layout, arrival: Timestamp, payload: &[u8]) -> Timestamp {
    layout.own_time(payload).unwrap_or(arrival)
}
