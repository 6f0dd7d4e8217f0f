//! The whole append path: a record goes into the open chunk, and a full chunk is summarised, indexed and published.
//!
//! `push` copies the record into the open chunk, which stays in the core's cache, and returns. `publish` copies the new bytes to staging
//! and moves the tails. `seal` ends the chunk, summarises it while it is warm, and appends its nodes. So a record is visible after the next
//! `publish`, which the owner calls after each drained batch and at least every 20 ms (`tick`).

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{ChunkBuilder, NodeSummary, PendingLoss, PushOutcome, longest_payload};
use crate::log::{DirMeta, Durability, LogStats, Logs, Opening, RecordSegments};
use crate::proven::at;
use crate::schema::Catalog;
use crate::types::{Address, ChunkNo, LogKind, PerLog, SourceId, Timestamp};

use super::clock::{Clock, ClockLine, SystemTimeSource};
use super::indexer::Indexer;
use super::intake::Intakes;
use super::native::Natives;
use super::options::WriterOptions;
use super::recovery::{self, IndexLogs};
use super::steps::ClockStep;
use super::summariser::{LatestChunks, Summariser};
use super::unit_encoder::Templates;

/// Counters of a writer since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriterStats {
    pub records: u64,
    pub chunks_sealed: u64,
    /// The lead of wall time over arrival time, in ns.
    pub clock_offset_ns: i64,
    pub log: LogStats,
}

/// The one writer of a Loom directory.
pub struct Writer {
    pub(super) logs: Logs,
    pub(super) catalog: Catalog,
    pub(super) natives: Natives,
    pub(super) clock: Clock<SystemTimeSource>,
    pub(super) intakes: Intakes,
    pub(super) chunk: ChunkBuilder,
    chunk_no: ChunkNo,
    pub(super) chunk_bytes: u32,
    /// The bytes of the open chunk that are in staging.
    staged_bytes: usize,
    indexer: Indexer,
    summariser: Summariser,
    pub(super) latest: LatestChunks,
    pub(super) templates: Templates,
    summary: NodeSummary,
    durability: Durability,
    pub(super) stats: WriterStats,
}

impl Writer {
    /// Recovers a directory that has no writer.
    pub(super) fn recover(
        opening: Opening,
        options: &WriterOptions,
        index_logs: IndexLogs,
    ) -> Result<Self> {
        let durability = options.log.durability;
        let recovered = recovery::recover(opening, index_logs)?;
        let clock = recovery::start_clock(recovered.newest, options.accept_clock)?;
        let chunk_bytes = recovered.logs.meta().chunk_bytes;
        Ok(Self {
            clock,
            intakes: Intakes::new(&recovered.catalog, longest_payload(chunk_bytes)),
            chunk: ChunkBuilder::new(chunk_bytes),
            chunk_no: recovered.indexer.next_chunk(),
            chunk_bytes,
            staged_bytes: 0,
            indexer: recovered.indexer,
            summariser: Summariser::default(),
            latest: recovered.latest,
            templates: recovered.templates,
            summary: NodeSummary::new(0),
            durability,
            stats: WriterStats::default(),
            logs: recovered.logs,
            catalog: recovered.catalog,
            natives: Natives::new(),
        })
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Length of the catalog file.
    pub fn catalog_bytes(&self) -> u64 {
        self.logs.catalog_bytes()
    }

    pub fn stats(&self) -> WriterStats {
        WriterStats {
            log: self.logs.stats(),
            ..self.stats
        }
    }

    /// The longest payload that a chunk holds, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        self.intakes.payload_bytes_max
    }

    /// The arrival time that a record would get if it were pushed now.
    pub fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    /// The latest forward step of the wall clock that arrival time followed.
    pub fn latest_clock_step(&self) -> Option<ClockStep> {
        self.clock.steps.last()
    }

    /// Takes over the steps that earlier writers followed, so that records from before them keep their age.
    pub fn restore_clock_steps(&mut self, earlier: Vec<ClockStep>) {
        self.clock.steps.restore(earlier);
    }

    /// The line that converts readings of the time-stamp counter to arrival time for the next second; `None` if this machine's clock does
    /// not count by it.
    pub fn time_stamp_line(&self) -> Option<ClockLine> {
        self.clock.time_stamp_line()
    }

    /// Appends one record with an arrival time of its own and returns its address. The record is visible after the next `publish`.
    #[inline]
    pub fn push(&mut self, source: SourceId, payload: &[u8]) -> Result<Address> {
        if !self.intakes.is_plain(source, payload.len()) {
            self.intakes.check(&self.catalog, source, payload)?;
        }
        let now = self.clock.now();
        match self.append::<true>(source, now, payload)? {
            Some(address) => Ok(address),
            None => Err(Error::Full),
        }
    }

    /// As `push`, but returns `None` and stores nothing if it would have to wait.
    pub fn try_push(&mut self, source: SourceId, payload: &[u8]) -> Result<Option<Address>> {
        self.intakes.check(&self.catalog, source, payload)?;
        let now = self.clock.now();
        self.append::<false>(source, now, payload)
    }

    /// Makes everything pushed so far visible to queries.
    pub fn publish(&mut self) -> Result<()> {
        self.stage()?;
        self.logs.publish();
        Ok(())
    }

    /// Whether the next record would be stored without waiting.
    pub fn has_room(&mut self) -> Result<bool> {
        self.can_append::<false>()
    }

    /// Waits at most 10 ms for room after `try_push_batch` stored only a part, and returns whether there is room. While there is none,
    /// `trouble` says whether writes to the disk fail.
    pub fn wait_for_room(&mut self) -> Result<bool> {
        let room = self.room_for_chunk();
        self.logs.wait_for_room(room)
    }

    /// Figure 9's `sync`: returns when everything pushed so far is visible, and with `batch` durability durable.
    pub fn sync(&mut self) -> Result<()> {
        match self.durability {
            Durability::Batch => self.sync_durable(),
            Durability::None | Durability::Interval(_) => self.publish(),
        }
    }

    /// Returns when everything pushed so far is on stable storage, whatever the durability.
    pub fn sync_durable(&mut self) -> Result<()> {
        self.publish()?;
        self.logs.sync()
    }

    /// Publishes, and requests without waiting that everything becomes durable. `is_synced` says when it is.
    pub fn request_sync(&mut self) -> Result<u64> {
        self.stage()?;
        Ok(self.logs.request_sync())
    }

    /// Whether the sync of that ticket is done; an error if it will never be.
    pub fn is_synced(&self, ticket: u64) -> Result<bool> {
        self.logs.is_synced(ticket)
    }

    /// The published end of the record log.
    pub fn position(&self) -> Address {
        self.logs.tail(LogKind::Records)
    }

    /// The address below which the record log is on stable storage.
    pub fn durable(&self) -> Address {
        self.logs.durable(LogKind::Records)
    }

    /// The reason why writes to the disk fail at the moment, such as no space.
    pub fn trouble(&self) -> Option<String> {
        self.logs.trouble()
    }

    /// Bytes on the disk of the segments of all logs.
    pub fn segment_bytes(&self) -> u64 {
        self.logs.segment_bytes()
    }

    /// The sizes of the segments of the record log.
    pub fn record_segments(&self) -> RecordSegments {
        self.logs.record_segments()
    }

    /// Rewrites the damaged directories at the end of segments of the record log. It opens each segment.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn mend(&self) -> Result<()> {
        self.logs.mend()
    }

    /// The bytes that may be written before the next check of the limits.
    pub fn bytes_ahead(&self) -> u64 {
        self.logs.segment_bytes_soon() - self.logs.segment_bytes()
    }

    /// The least space that the segments take while records are written. A limit below it cannot be kept.
    pub fn bytes_min(&self) -> u64 {
        self.logs.bytes_min()
    }

    /// Whether writes fail because the disk is full.
    pub fn waits_for_space(&self) -> bool {
        self.logs.waits_for_space()
    }

    /// Refused or dropped records that have no published loss record yet. After an opening: those that the last writer had not recorded.
    pub fn pending_losses(&self) -> &[PendingLoss] {
        self.logs.losses()
    }

    /// Replaces the pending losses. Once this returns, a kill of the process loses none of them. A row gets the address of its record after
    /// that is pushed and before it is published, and is removed once it is published.
    ///
    /// # Panics
    /// There are more than [`LOSS_ROWS_MAX`](crate::format::LOSS_ROWS_MAX) rows, or a row was removed before its record was published.
    pub fn set_pending_losses(&mut self, rows: Vec<PendingLoss>) {
        self.logs.set_losses(rows);
    }

    pub fn dir(&self) -> &Path {
        self.logs.dir()
    }

    pub fn meta(&self) -> &DirMeta {
        self.logs.meta()
    }

    /// Publishes, shows readers that the writer is alive, and slews the clock. Must be called at least every 20 ms.
    pub fn tick(&mut self) -> Result<()> {
        self.publish()?;
        if let Some(offset_ns) = self.clock.discipline() {
            self.stats.clock_offset_ns = offset_ns;
        }
        let now = self.clock.now();
        self.logs.heartbeat(now, self.stats.clock_offset_ns);
        Ok(())
    }

    /// Seals, flushes and syncs everything. The directory can be copied afterwards.
    pub fn close(mut self) -> Result<()> {
        self.seal()?;
        self.logs.close()
    }

    /// Stores a record, or returns `None` and stores nothing if it would have to wait and waiting is not allowed.
    #[inline]
    pub(super) fn append<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        payload: &[u8],
    ) -> Result<Option<Address>> {
        loop {
            if !self.can_append::<WAIT>()? {
                return Ok(None);
            }
            if let PushOutcome::At(offset) = self.chunk.push(source, now, payload) {
                self.stats.records += 1;
                return Ok(Some(self.chunk_start() + u64::from(offset)));
            }
            self.seal()?;
        }
    }

    /// Whether the next record can be stored. It looks for the room of a whole chunk when the chunk begins, so that neither publishing nor
    /// sealing it has to wait.
    #[inline]
    pub(super) fn can_append<const WAIT: bool>(&mut self) -> Result<bool> {
        if WAIT || !self.chunk.is_empty() {
            return Ok(true);
        }
        let room = self.room_for_chunk();
        self.logs.has_room(room)
    }

    /// The bytes that a chunk takes of the three logs: itself, its summary, the roll-ups that it completes, and their entries. Nodes have
    /// no greatest length: one that is longer than a block, or far longer than the earlier ones, waits.
    fn room_for_chunk(&mut self) -> PerLog<u64> {
        let nodes = self.indexer.next_nodes_bytes();
        let nodes = nodes.min(self.logs.block_bytes(LogKind::Chunks));
        [u64::from(self.chunk_bytes), nodes, 4 << 10].into()
    }

    #[inline]
    pub(super) fn chunk_start(&self) -> Address {
        self.chunk_no.address(self.chunk_bytes)
    }

    /// Copies the new bytes of the open chunk to staging.
    fn stage(&mut self) -> Result<()> {
        let filled = self.chunk.filled();
        let fresh = at(filled, self.staged_bytes..);
        if !fresh.is_empty() {
            self.logs.append(LogKind::Records, fresh)?;
            self.staged_bytes = filled.len();
        }
        Ok(())
    }

    /// Ends the open chunk if it holds anything. The next record begins a new one.
    pub(super) fn seal(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let address = self.chunk_start();
        let (chunk, runs) = self.chunk.seal(&self.logs.meta().uuid, address);
        self.logs
            .append(LogKind::Records, at(chunk, self.staged_bytes..))?;
        self.staged_bytes = chunk.len();
        self.summariser.summarise_runs(
            &self.catalog,
            &self.natives,
            &mut self.latest,
            self.chunk_no,
            (chunk, runs),
            &mut self.summary,
        );
        self.indexer
            .add(&mut self.logs, &self.catalog, &self.summary)?;
        self.logs.publish();
        self.chunk.clear();
        self.chunk_no = self.indexer.next_chunk();
        self.staged_bytes = 0;
        self.stats.chunks_sealed += 1;
        Ok(())
    }
}
