//! The three logs as one snapshot sees them: fixed tails, one function that reads, one way to say what is damaged.
//!
//! Everything below a tail is complete and immutable, so whatever is read through this is the same each time, until retention
//! removes it.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use super::caches::KeptOfEpoch;
use super::forest::node_cache::NodeCache;
use super::scan::verified_chunks::VerifiedChunks;
use super::scan_counters::ScanCounters;
use super::tuning::Tuning;
use crate::error::{Error, Result};
use crate::format::{FormatError, TIME_ENTRY_BYTES, Unit, complete_chunks};
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
    /// `position` lies at or below the record log's tail.
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

    pub fn chunk_bytes(&self) -> u32 {
        self.reader.meta().chunk_bytes
    }

    pub fn epoch(&self) -> u64 {
        self.tails.epoch
    }

    /// No record at or past it is seen.
    pub fn position(&self) -> Address {
        self.position
    }

    /// The addresses that the next writer will leave out above all that is seen, for what stood there was lost with staging.
    pub fn gap_to_come(&self) -> Option<(Address, Address)> {
        let from = self.tail(LogKind::Records);
        let to = self.tails.gap_to?;
        (self.position == from).then_some((from.align_up(self.chunk_bytes().into()), to))
    }

    /// The published end of a log when the snapshot was taken; that of the record log may lie past the position.
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

    /// Past the last chunk of which something lies below the position.
    pub fn end_chunk(&self) -> ChunkNo {
        ChunkNo(self.position.0.div_ceil(self.chunk_bytes().into()))
    }

    /// Past the last chunk that lies whole below the position and whose nodes are all published: nodes answer up to here, what
    /// follows is scanned.
    pub fn summarised_chunks(&self) -> ChunkNo {
        let entries = self.tail(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
        let whole = self.position.chunk(self.chunk_bytes()).0;
        let summarised = complete_chunks(entries).min(whole);
        ChunkNo(summarised.max(self.first_chunk().0.min(self.end_chunk().0)))
    }

    /// How many chunks a query may have to look at.
    pub fn chunks(&self) -> u64 {
        self.end_chunk().0.saturating_sub(self.first_chunk().0)
    }

    /// Fills `bytes` from `address` on: the one function through which queries read the logs.
    pub fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<Origin> {
        let origin = self.reader.read(log, address, bytes)?;
        self.counters.bytes_read(bytes.len());
        Ok(origin)
    }

    /// The unit of a chunk that stands in one, and which of its chunks that is; `None` where the chunk is to be read whole.
    pub fn column_unit<'a>(
        &self,
        chunk: ChunkNo,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<Option<(&'a mut Unit, usize)>> {
        let address = chunk.address(self.chunk_bytes());
        self.reader.column_unit(address, wanted, held)
    }

    /// The error for a unit whose rows from a chunk on cannot be decoded.
    pub fn undecoded(&self, chunk: ChunkNo, error: impl Into<FormatError>) -> Error {
        let address = chunk.address(self.chunk_bytes());
        let path = self.reader.path_of(LogKind::Records, address);
        error.into().of(path, address)
    }

    /// Whether what stands at an address of the record log was staged when last looked at, and needs no checksum.
    pub fn is_staged(&self, address: Address) -> bool {
        self.reader.is_staged(LogKind::Records, address)
    }

    /// Has fetched what is wanted of the units of some chunks: first the heads of all, which then say where the rest stands.
    pub fn will_read_columns(&self, chunks: &[ChunkNo], wanted: UnitWanted<'_>) {
        for wanted in [UnitWanted::Head, wanted] {
            for chunk in chunks {
                let address = chunk.address(self.chunk_bytes());
                self.reader
                    .will_read_unit(address, wanted, &self.kept.units);
            }
        }
    }

    /// Verifies what was read from segments of the chunk at `address`, up to the published end.
    pub fn verify_chunk(&self, address: Address, chunk: &[u8]) -> Result<(), FormatError> {
        self.tails.verify_chunk(self.reader.meta(), address, chunk)
    }

    /// After bytes that do not verify: a newer generation of their segment may have come.
    pub fn relist(&self) {
        self.reader.relist();
        self.kept.units.clear();
    }

    /// For a thread that reads units.
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

    /// The error for bytes that there is no memory for.
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
