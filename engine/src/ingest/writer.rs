//! The whole append path: a record goes into the open chunk; a full chunk is summarised, indexed and published.
//!
//! `push` copies the record into the open chunk, which stays in the core's cache, and returns; `publish` copies what is new to
//! staging and moves the tails; `seal` ends the chunk, summarises it while it is warm, and appends its nodes. So a record is
//! visible after the next `publish`, which the owner calls after each drained batch and at least every 10 ms (`tick`).

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, PayloadError, Result};
use crate::format::{ChunkBuilder, NodeSummary, Pushed as Placed, longest_payload};
use crate::log::storage::Storage;
use crate::log::{DirMeta, Durability, LogOptions, LogStats, Logs, Opening, is_for_space};
use crate::schema::{BinsDef, Catalog, Event, IndexDef, Layout, SourceDef, encode_line};
use crate::types::{Address, ChunkNo, IndexId, LogKind, SourceId, Timestamp, ValueKind};

use super::batch::{Batch, Pushed};
use super::clock::{Clock, SystemTimeSource};
use super::indexer::Indexer;
use super::native::{NativeKey, Natives};
use super::recovery::{self, IndexLogs};
use super::retention;
use super::summarise::{LatestChunks, Summariser};

/// How a writer opens its directory.
#[derive(Debug, Clone, Default)]
pub struct WriterOptions {
    pub log: LogOptions,
    /// Start although the log's newest record is more than a day ahead of the wall clock.
    pub accept_clock: bool,
    pub when_full: WhenFull,
}

/// What a writer does that finds no room on the disk to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It is refused.
    #[default]
    Refuse,
    /// It gives up the oldest segments, one after the other, until there is room or only the last is left.
    Evict,
}

/// Counters of a writer since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriterStats {
    pub records: u64,
    pub chunks_sealed: u64,
    /// By how much wall time is ahead of arrival time, in ns.
    pub clock_offset_ns: i64,
    pub log: LogStats,
}

/// What `push` needs of a source.
#[derive(Clone, Default)]
struct Intake {
    /// The length of payloads that need no closer look.
    plain_bytes: Option<usize>,
    /// `None` while the source takes no records.
    layout: Option<Arc<Layout>>,
}

/// One of the catalog's two ways to define a source.
type Define = fn(&mut Catalog, &SourceDef, Address) -> Result<(SourceId, Vec<Event>)>;

/// The one writer of a Loom directory.
pub struct Writer {
    pub(super) logs: Logs,
    catalog: Catalog,
    catalog_lines: u64,
    natives: Natives,
    clock: Clock<SystemTimeSource>,
    /// By source id.
    intakes: Vec<Intake>,
    chunk: ChunkBuilder,
    chunk_no: ChunkNo,
    pub(super) chunk_bytes: u32,
    /// How many bytes of the open chunk are in staging.
    staged_bytes: usize,
    payload_bytes_max: usize,
    indexer: Indexer,
    summariser: Summariser,
    latest: LatestChunks,
    summary: NodeSummary,
    durability: Durability,
    stats: WriterStats,
}

impl Writer {
    /// Opens a directory, creating it where there is none, and recovers what its last writer left.
    pub fn open(dir: &Path, options: WriterOptions) -> Result<Self> {
        Self::open_with(options.log.storage(), dir, options)
    }

    /// As `open`, on a storage of the caller's.
    pub fn open_with(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: WriterOptions,
    ) -> Result<Self> {
        Self::begin(storage, dir, &options, IndexLogs::KeepSound)
    }

    /// As `open`, but the chunk index and the timestamp index are made anew from the records, whatever they hold.
    pub fn rebuild(dir: &Path, options: WriterOptions) -> Result<Self> {
        Self::begin(options.log.storage(), dir, &options, IndexLogs::Rebuild)
    }

    fn begin(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: &WriterOptions,
        index_logs: IndexLogs,
    ) -> Result<Self> {
        let open = || Opening::open_with(Arc::clone(&storage), dir, &options.log);
        loop {
            match Self::recover(open()?, options, index_logs) {
                Err(error) if options.when_full == WhenFull::Evict && is_for_space(&error) => {
                    if !retention::evict_oldest(open()?)? {
                        return Err(error);
                    }
                    tracing::warn!("{error}; the oldest segment was evicted to make room");
                }
                result => return result,
            }
        }
    }

    fn recover(opening: Opening, options: &WriterOptions, index_logs: IndexLogs) -> Result<Self> {
        let durability = options.log.durability;
        let recovered = recovery::recover(opening, index_logs)?;
        let clock = recovery::start_clock(recovered.newest, options.accept_clock)?;
        let chunk_bytes = recovered.logs.meta().chunk_bytes;
        let mut writer = Self {
            clock,
            intakes: Vec::new(),
            chunk: ChunkBuilder::new(chunk_bytes),
            chunk_no: recovered.indexer.next_chunk(),
            chunk_bytes,
            staged_bytes: 0,
            payload_bytes_max: longest_payload(chunk_bytes),
            indexer: recovered.indexer,
            summariser: Summariser::default(),
            latest: recovered.latest,
            summary: NodeSummary::new(0),
            durability,
            stats: WriterStats::default(),
            logs: recovered.logs,
            catalog: recovered.catalog,
            catalog_lines: recovered.catalog_lines,
            natives: Natives::new(),
        };
        writer.refresh_intakes();
        Ok(writer)
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn stats(&self) -> WriterStats {
        WriterStats {
            log: self.logs.stats(),
            ..self.stats
        }
    }

    /// The longest payload that a chunk holds, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// The arrival time that a record pushed now would get.
    pub fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    /// Defines a source with its indexes (Figure 9). The same definition again changes nothing; further fields and indexes are
    /// added from the next chunk on; a closed source is opened again.
    pub fn define_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_source)
    }

    /// As `define_source`, for sources that are built in: their names begin with `loom_`.
    pub fn define_builtin_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_builtin_source)
    }

    fn define(&mut self, def: &SourceDef, define: Define) -> Result<SourceId> {
        let (id, events) = define(&mut self.catalog.clone(), def, self.chunk_start())?;
        if events.is_empty() {
            return Ok(id);
        }
        if self.catalog.source(id).is_some() {
            self.seal()?;
        }
        self.change_catalog(|catalog, at| define(catalog, def, at))
    }

    /// Ends a source: its records stay, it takes no more.
    pub fn close_source(&mut self, source: SourceId) -> Result<()> {
        self.seal()?;
        self.change_catalog(|catalog, at| Ok(((), vec![catalog.close_source(source, at)?])))
    }

    /// Defines an index for the records from the next chunk on (§5.3).
    pub fn define_index(&mut self, source: SourceId, def: &IndexDef) -> Result<IndexId> {
        self.seal()?;
        self.change_catalog(|catalog, at| {
            let (id, event) = catalog.define_index(source, def, at)?;
            Ok((id, event.into_iter().collect()))
        })
    }

    /// Defines an index by a closure, for as long as this writer lives. Only library users of this process can query it.
    pub fn define_index_fn(
        &mut self,
        source: SourceId,
        name: &str,
        kind: ValueKind,
        bins: &BinsDef,
        key: NativeKey,
    ) -> Result<IndexId> {
        self.seal()?;
        let id = self.change_catalog(|catalog, at| {
            let (id, event) = catalog.define_native_index(source, name, kind, bins, at)?;
            Ok((id, vec![event]))
        })?;
        self.natives.insert(id, key);
        Ok(id)
    }

    /// Ends an index; it stays readable over the records that it covered.
    pub fn close_index(&mut self, index: IndexId) -> Result<()> {
        self.seal()?;
        self.change_catalog(|catalog, at| Ok(((), vec![catalog.close_index(index, at)?])))?;
        self.natives.remove(&index);
        Ok(())
    }

    /// Appends one record with an arrival time of its own and returns its address. Visible after the next `publish`.
    #[inline]
    pub fn push(&mut self, source: SourceId, payload: &[u8]) -> Result<Address> {
        let intake = self.intakes.get(usize::from(source.0));
        if intake.is_none_or(|intake| intake.plain_bytes != Some(payload.len())) {
            self.check(source, payload)?;
        }
        let now = self.clock.now();
        match self.append::<true>(source, now, payload)? {
            Some(address) => Ok(address),
            None => Err(Error::Full),
        }
    }

    /// As `push`, but where that would wait it stores nothing and returns `None`.
    pub fn try_push(&mut self, source: SourceId, payload: &[u8]) -> Result<Option<Address>> {
        self.check(source, payload)?;
        let now = self.clock.now();
        self.append::<false>(source, now, payload)
    }

    /// Appends the records of a batch with one arrival time. What is refused is told; the rest is stored. Waits while both staged blocks
    /// are full.
    pub fn push_batch(&mut self, source: SourceId, batch: &Batch<'_>) -> Result<Pushed> {
        self.push_payloads::<true>(source, batch)
    }

    /// As `push_batch`, but where that would wait it returns with what it took until then. The batch is to go on at `taken_bytes`.
    pub fn try_push_batch(&mut self, source: SourceId, batch: &Batch<'_>) -> Result<Pushed> {
        self.push_payloads::<false>(source, batch)
    }

    fn push_payloads<const WAIT: bool>(
        &mut self,
        source: SourceId,
        batch: &Batch<'_>,
    ) -> Result<Pushed> {
        let Some(intake) = self.intakes.get(usize::from(source.0)) else {
            return Err(self.not_open(source));
        };
        let Some(layout) = intake.layout.clone() else {
            return Err(self.not_open(source));
        };
        let now = self.clock.now();
        let mut pushed = Pushed::default();
        let stored = match batch {
            Batch::Fixed {
                bytes,
                record_bytes,
            } if intake.plain_bytes == Some(*record_bytes) => {
                self.append_run::<WAIT>(source, now, bytes, *record_bytes, &mut pushed)
            }
            _ => self.append_each::<WAIT>(source, now, batch, &layout, &mut pushed),
        };
        match stored {
            // What was taken before is told first; who goes on meets the error again.
            Err(error) if WAIT || pushed.taken_bytes == 0 => Err(error),
            _ => Ok(pushed),
        }
    }

    /// Stores payloads of one length that need no closer look, until one would wait and may not.
    fn append_run<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        payloads: &[u8],
        payload_bytes: usize,
        pushed: &mut Pushed,
    ) -> Result<()> {
        let mut rest = payloads;
        while rest.len() >= payload_bytes {
            if !self.can_append::<WAIT>()? {
                return Ok(());
            }
            let records = self.chunk.push_run(source, now, rest, payload_bytes);
            if records == 0 {
                self.seal()?;
                continue;
            }
            let taken_bytes = records * payload_bytes;
            rest = rest.get(taken_bytes..).unwrap_or_default();
            self.stats.records += records as u64;
            pushed.stored += records as u64;
            pushed.stored_bytes += taken_bytes as u64;
            pushed.taken_bytes += taken_bytes;
        }
        if !rest.is_empty() {
            let (found, least) = (rest.len(), payload_bytes);
            pushed.refuse(
                pushed.stored,
                PayloadError::TooShort { found, least }.into(),
            );
            pushed.taken_bytes += rest.len();
        }
        Ok(())
    }

    /// Stores the payloads that have the source's layout, one by one, until one would wait and may not.
    fn append_each<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        batch: &Batch<'_>,
        layout: &Layout,
        pushed: &mut Pushed,
    ) -> Result<()> {
        for (ordinal, payload) in (0u64..).zip(batch.payloads()) {
            let checked = payload.map_err(Error::from).and_then(|payload| {
                check(layout, payload, self.payload_bytes_max)?;
                Ok(payload)
            });
            match checked {
                Ok(payload) => {
                    if self.append::<WAIT>(source, now, payload)?.is_none() {
                        return Ok(());
                    }
                    pushed.stored += 1;
                    pushed.stored_bytes += payload.len() as u64;
                }
                Err(reason) => pushed.refuse(ordinal, reason),
            }
            pushed.taken_bytes += payload.map_or(0, |payload| batch.frame_bytes(payload));
        }
        pushed.taken_bytes = batch.bytes().len();
        Ok(())
    }

    /// Makes everything pushed so far visible to queries.
    pub fn publish(&mut self) -> Result<()> {
        self.stage()?;
        self.logs.publish();
        Ok(())
    }

    /// Figure 9's `sync`: returns when everything pushed so far is visible, with `batch` durability when it is durable.
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

    /// Publishes, and asks for all of it to become durable without waiting; `is_synced` tells when it is.
    pub fn request_sync(&mut self) -> Result<u64> {
        self.stage()?;
        Ok(self.logs.request_sync())
    }

    /// Whether the sync of that ticket is done; an error if it never will be.
    pub fn is_synced(&self, ticket: u64) -> Result<bool> {
        self.logs.is_synced(ticket)
    }

    /// The published end of the record log.
    pub fn position(&self) -> Address {
        self.logs.tail(LogKind::Records)
    }

    /// All of the record log below is on stable storage.
    pub fn durable(&self) -> Address {
        self.logs.durable(LogKind::Records)
    }

    /// Why the disk takes nothing for now, if it does not: no space, for one.
    pub fn trouble(&self) -> Option<String> {
        self.logs.trouble()
    }

    /// Bytes on the disk of the segments of all logs.
    pub fn segment_bytes(&self) -> u64 {
        self.logs.segment_bytes()
    }

    /// Whether the disk takes nothing because it is full.
    pub fn waits_for_space(&self) -> bool {
        self.logs.waits_for_space()
    }

    pub fn meta(&self) -> &DirMeta {
        self.logs.meta()
    }

    /// To be called at least every 10 ms: publishes, tells readers that the writer is alive, slews the clock.
    pub fn tick(&mut self) -> Result<()> {
        self.publish()?;
        if let Some(offset_ns) = self.clock.discipline() {
            self.stats.clock_offset_ns = offset_ns;
        }
        let now = self.clock.now();
        self.logs.heartbeat(now, self.stats.clock_offset_ns);
        Ok(())
    }

    /// Seals, flushes and syncs everything and leaves a directory that can be copied.
    pub fn close(mut self) -> Result<()> {
        self.seal()?;
        self.logs.close()
    }

    /// Stores a record; None, with nothing stored, where that would wait and may not.
    #[inline]
    fn append<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        payload: &[u8],
    ) -> Result<Option<Address>> {
        loop {
            if !self.can_append::<WAIT>()? {
                return Ok(None);
            }
            if let Placed::At(offset) = self.chunk.push(source, now, payload) {
                self.stats.records += 1;
                return Ok(Some(self.chunk_start() + u64::from(offset)));
            }
            self.seal()?;
        }
    }

    /// Whether the next record may be stored. The room for a whole chunk is looked for when it begins, so that neither publishing nor
    /// sealing it has to wait.
    #[inline]
    fn can_append<const WAIT: bool>(&mut self) -> Result<bool> {
        if WAIT || !self.chunk.is_empty() {
            return Ok(true);
        }
        self.logs.has_room(self.room_for_chunk())
    }

    /// What a chunk takes of the three logs: itself, its summary and the roll-ups that it completes, their entries. Nodes have no
    /// greatest length; one that is longer than this waits, which is rare and harmless.
    fn room_for_chunk(&self) -> [u64; 3] {
        [u64::from(self.chunk_bytes), 32 << 10, 4 << 10]
    }

    #[inline]
    fn chunk_start(&self) -> Address {
        self.chunk_no.address(self.chunk_bytes)
    }

    /// Copies what the open chunk has gained to staging.
    fn stage(&mut self) -> Result<()> {
        let filled = self.chunk.filled();
        if let Some(fresh) = filled
            .get(self.staged_bytes..)
            .filter(|fresh| !fresh.is_empty())
        {
            self.logs.append(LogKind::Records, fresh)?;
            self.staged_bytes = filled.len();
        }
        Ok(())
    }

    /// Ends the open chunk, if it holds anything: the next record begins a new one.
    fn seal(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let (chunk, runs) = self.chunk.seal();
        self.logs.append(
            LogKind::Records,
            chunk.get(self.staged_bytes..).unwrap_or_default(),
        )?;
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

    /// Makes a change of the catalog from the next chunk on: each of its events is written before it counts, so that the catalog here is always
    /// the one on the disk, whichever write fails.
    fn change_catalog<T>(
        &mut self,
        change: impl FnOnce(&mut Catalog, Address) -> Result<(T, Vec<Event>)>,
    ) -> Result<T> {
        let (made, events) = change(&mut self.catalog.clone(), self.chunk_start())?;
        let uuid = self.logs.meta().uuid;
        let written = events.iter().try_for_each(|event| {
            self.logs
                .append_catalog(&encode_line(&uuid, self.catalog_lines, event))?;
            self.catalog_lines += 1;
            self.catalog.apply(event)
        });
        // Only theirs: there may be tens of thousands of others.
        for source in events.iter().filter_map(Event::source) {
            self.refresh_intake(source);
        }
        written.map(|()| made)
    }

    fn refresh_intakes(&mut self) {
        let sources: Vec<SourceId> = self.catalog.sources().map(|source| source.id).collect();
        for source in sources {
            self.refresh_intake(source);
        }
    }

    fn refresh_intake(&mut self, source: SourceId) {
        let open = self
            .catalog
            .source(source)
            .filter(|source| source.is_open());
        let intake = open.map_or_else(Intake::default, |source| {
            let layout = source.layout_at(Address::MAX);
            let plain_bytes = layout.plain_bytes();
            Intake {
                plain_bytes: plain_bytes
                    .filter(|bytes| (1..=self.payload_bytes_max).contains(bytes)),
                layout: Some(Arc::clone(layout)),
            }
        });
        let at = usize::from(source.0);
        if self.intakes.len() <= at {
            self.intakes.resize(at + 1, Intake::default());
        }
        if let Some(slot) = self.intakes.get_mut(at) {
            *slot = intake;
        }
    }

    #[cold]
    fn check(&self, source: SourceId, payload: &[u8]) -> Result<()> {
        let intake = self.intakes.get(usize::from(source.0));
        match intake.and_then(|intake| intake.layout.as_deref()) {
            Some(layout) => check(layout, payload, self.payload_bytes_max),
            None => Err(self.not_open(source)),
        }
    }

    #[cold]
    fn not_open(&self, source: SourceId) -> Error {
        match self.catalog.source(source) {
            Some(closed) => Error::SourceClosed {
                name: closed.name.clone(),
            },
            None => Error::schema(format!("no source has the id {source}")),
        }
    }
}

#[inline]
fn check(layout: &Layout, payload: &[u8], payload_bytes_max: usize) -> Result<()> {
    if payload.len() > payload_bytes_max {
        return Err(Error::TooLong {
            bytes: payload.len(),
            limit: payload_bytes_max,
        });
    }
    layout.validate(payload)?;
    Ok(())
}
