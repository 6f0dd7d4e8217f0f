//! The three logs of one snapshot: fixed tails, one function that reads, one way to report damage.
//!
//! Everything below a tail is complete and immutable, so every read returns the same bytes until retention removes them.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::caches::KeptOfEpoch;
use super::forest::node_cache::NodeCache;
use super::scan::verified_chunks::VerifiedChunks;
use super::scan_counters::ScanCounters;
use super::tuning::Tuning;
use crate::error::{Error, Result};
use crate::format::{
    FormatError, LOOKUP_CHUNKS, SourceZones, TIME_ENTRY_BYTES, Template, Unit, Zone,
    complete_chunks,
};
use crate::log::{HeldUnit, LogReader, Origin, Tails, UnitWanted};
use crate::memory::NoMemory;
use crate::nodes::NodeLogs;
use crate::types::{Address, ChunkNo, LogKind};

#[derive(Clone)]
pub(crate) struct SnapshotLogs {
    reader: Arc<LogReader>,
    tails: Tails,
    position: Address,
    kept: KeptOfEpoch,
    tuning: Tuning,
    counters: Arc<ScanCounters>,
}

impl SnapshotLogs {
    /// `position` must be at or below the record log's tail.
    pub fn new(
        reader: Arc<LogReader>,
        tails: Tails,
        position: Address,
        kept: KeptOfEpoch,
        tuning: Tuning,
    ) -> SnapshotLogs {
        SnapshotLogs {
            reader,
            tails,
            position,
            kept,
            tuning,
            counters: Arc::default(),
        }
    }

    /// The same logs with counts of their own.
    pub fn counted_apart(&self) -> Arc<SnapshotLogs> {
        Arc::new(SnapshotLogs {
            counters: Arc::default(),
            ..self.clone()
        })
    }

    /// The same logs up to an address.
    pub fn up_to(&self, position: Address) -> SnapshotLogs {
        SnapshotLogs {
            position: position.min(self.position),
            ..self.clone()
        }
    }

    pub fn uuid(&self) -> &[u8; 16] {
        &self.reader.meta().uuid
    }

    pub fn dir(&self) -> &Path {
        self.reader.dir()
    }

    pub fn chunk_bytes(&self) -> u32 {
        self.reader.meta().chunk_bytes
    }

    pub fn epoch(&self) -> u64 {
        self.tails.epoch
    }

    /// The end of the snapshot: records at or past it are not seen.
    pub fn position(&self) -> Address {
        self.position
    }

    /// The addresses above the snapshot that the next writer will skip, because the records there were lost with staging.
    pub fn gap_to_come(&self) -> Option<(Address, Address)> {
        let from = self.tail(LogKind::Records);
        let to = self.tails.gap_to?;
        (self.position == from).then_some((from.align_up(self.chunk_bytes().into()), to))
    }

    /// The published end of a log when the snapshot was taken. The record log's may lie past the position.
    pub fn tail(&self, log: LogKind) -> Address {
        self.tails.tail[log]
    }

    pub fn begin(&self, log: LogKind) -> Address {
        self.tails.begin[log]
    }

    /// The first chunk that is retained whole.
    pub fn first_chunk(&self) -> ChunkNo {
        ChunkNo(
            self.begin(LogKind::Records)
                .0
                .div_ceil(self.chunk_bytes().into()),
        )
    }

    /// The chunk after the last one that begins below the position.
    pub fn end_chunk(&self) -> ChunkNo {
        ChunkNo(self.position.0.div_ceil(self.chunk_bytes().into()))
    }

    /// The chunk after the last one that ends at or below the position and whose nodes are all published. Nodes answer up to here; later
    /// chunks are scanned.
    pub fn summarised_chunks(&self) -> ChunkNo {
        let entries = self.tail(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
        let whole = self.position.chunk(self.chunk_bytes()).0;
        let summarised = complete_chunks(entries).min(whole);
        ChunkNo(summarised.max(self.first_chunk().0.min(self.end_chunk().0)))
    }

    /// The chunks of the segment of the record log that holds a chunk.
    pub fn segment_of(&self, chunk: ChunkNo) -> Range<ChunkNo> {
        let meta = self.reader.meta();
        let chunks = meta.segment_bytes.records / u64::from(meta.chunk_bytes);
        let first = chunk.0 - chunk.0 % chunks;
        ChunkNo(first)..ChunkNo(first + chunks)
    }

    /// The chunks that have a look-up together with a chunk: so many units, within one segment.
    pub fn span_of(&self, chunk: ChunkNo) -> Range<ChunkNo> {
        let segment = self.segment_of(chunk);
        let in_segment = chunk.0 - segment.start.0;
        let first = chunk.0 - in_segment % LOOKUP_CHUNKS;
        ChunkNo(first)..ChunkNo(segment.end.0.min(first + LOOKUP_CHUNKS))
    }

    /// The number of chunks that a query may have to read.
    pub fn chunks(&self) -> u64 {
        self.end_chunk().0.saturating_sub(self.first_chunk().0)
    }

    /// Fills `bytes` from `address` on. Queries read the logs only through this function.
    pub fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<Origin> {
        let origin = self.reader.read(log, address, bytes)?;
        self.counters.bytes_read(bytes.len());
        Ok(origin)
    }

    /// As [`LogReader::will_read`].
    pub fn will_read(&self, log: LogKind, address: Address, bytes: u64) {
        self.reader.will_read(log, address, bytes);
    }

    /// The unit that holds a chunk, and the chunk's number in it; `None` if the chunk must be read whole.
    pub fn column_unit<'a>(
        &self,
        chunk: ChunkNo,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<Option<(&'a mut Unit, usize)>> {
        let address = chunk.address(self.chunk_bytes());
        self.reader.column_unit(address, wanted, held)
    }

    /// As [`LogReader::segment_zones`].
    pub fn segment_zones(
        &self,
        chunk: ChunkNo,
        template: &Template,
    ) -> Result<Option<SourceZones>> {
        let address = chunk.address(self.chunk_bytes());
        self.reader.segment_zones(address, template)
    }

    /// As [`LogReader::may_have`].
    pub fn may_have(
        &self,
        chunk: ChunkNo,
        template: &Template,
        may: impl FnMut(&[Zone]) -> bool,
    ) -> Result<Option<bool>> {
        let address = chunk.address(self.chunk_bytes());
        self.reader
            .may_have(address, template, may, &self.kept.units)
    }

    /// The error for a unit whose rows cannot be decoded from a chunk on.
    pub fn undecoded(&self, chunk: ChunkNo, error: impl Into<FormatError>) -> Error {
        let address = chunk.address(self.chunk_bytes());
        let path = self.reader.path_of(LogKind::Records, address);
        error.into().of(path, address)
    }

    /// Whether the bytes at an address of the record log were staged when last read, and need no checksum.
    pub fn is_staged(&self, address: Address) -> bool {
        self.reader.is_staged(LogKind::Records, address)
    }

    /// Prefetches the wanted parts of the units of some chunks: first all heads, which give the places of the rest.
    pub fn will_read_columns(&self, chunks: &[ChunkNo], wanted: UnitWanted<'_>) {
        for wanted in [UnitWanted::Head, wanted] {
            for chunk in chunks {
                let address = chunk.address(self.chunk_bytes());
                self.reader
                    .will_read_unit(address, wanted, &self.kept.units);
            }
        }
    }

    /// Verifies a chunk's bytes that were read from segments, up to the published end.
    pub fn verify_chunk(&self, address: Address, chunk: &[u8]) -> Result<(), FormatError> {
        self.tails.verify_chunk(self.reader.meta(), address, chunk)
    }

    /// Lists the segments again after bytes that do not verify, because a segment may have been replaced.
    pub fn relist(&self) {
        self.reader.relist();
        self.kept.units.clear();
    }

    /// A unit buffer for a thread that reads units.
    pub fn held_unit(&self) -> HeldUnit {
        HeldUnit::of(Arc::clone(&self.kept.units))
    }

    pub fn cache(&self) -> &NodeCache {
        &self.kept.nodes
    }

    pub fn verified(&self) -> &VerifiedChunks {
        &self.kept.chunks
    }

    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    pub fn counters(&self) -> &ScanCounters {
        &self.counters
    }

    /// The error for bytes for which there is no memory.
    pub fn no_memory(&self, log: LogKind, address: Address, refused: NoMemory) -> Error {
        refused.of(self.reader.path_of(log, address))
    }

    /// The error for bytes that do not verify.
    pub fn corrupt(&self, log: LogKind, address: Address, what: impl Display) -> Error {
        Error::Corrupt {
            path: self.reader.path_of(log, address),
            address,
            what: what.to_string(),
        }
    }
}

impl NodeLogs for Arc<SnapshotLogs> {
    fn uuid(&self) -> &[u8; 16] {
        SnapshotLogs::uuid(self)
    }

    fn end(&self, log: LogKind) -> Address {
        self.tail(log)
    }

    fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<()> {
        SnapshotLogs::read(self, log, address, bytes).map(drop)
    }

    fn path_of(&self, log: LogKind, address: Address) -> PathBuf {
        self.reader.path_of(log, address)
    }

    fn refresh(&self) -> bool {
        self.relist();
        true
    }
}
