//! Recovery before a writer's first record: it reads the catalog, cuts the index logs to the part that verifies, indexes the rest of the
//! records, and restores the open roll-ups.
//!
//! A clean stop, a kill and lost staging take the same path and differ only in the amount of work. The record log is the truth, and the
//! index logs end as if every chunk had been sealed in the order of the log. Recovery that runs again changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::format::{
    FANOUT, Node, NodeSummary, TIME_ENTRY_BYTES, complete_chunks, entries_before, verify_chunk,
};
use crate::log::{CATALOG_NAME, GAP_CHUNKS_MAX, LogReader, Logs, Opening, Origin, Recovered};
use crate::nodes::{NodeId, NodeLogs, NodeReader};
use crate::schema::{Catalog, Event, decode_whole_catalog, encode_line};
use crate::types::{Address, ChunkNo, LogKind, SourceId, Timestamp};

use super::clock::{Clock, SystemTimeSource, TimeSource};
use super::indexer::{Indexer, Missing};
use super::known_sources;
use super::native::Natives;
use super::rollup::Merger;
use super::summariser::{LatestChunks, Summariser};
use super::unit_encoder::{ColumnUnits, Templates};

const DAY_NS: i64 = 86_400_000_000_000;

/// A directory that is ready for its first record.
pub(super) struct RecoveredDirectory {
    pub logs: Logs,
    pub catalog: Catalog,
    pub indexer: Indexer,
    pub latest: LatestChunks,
    pub templates: Templates,
    /// The newest arrival time in the log.
    pub newest: Option<Timestamp>,
}

/// Starts arrival time above `newest`, unless `newest` is too far ahead of the wall clock to be credible.
pub(super) fn start_clock(
    newest: Option<Timestamp>,
    accept_clock: bool,
) -> Result<Clock<SystemTimeSource>> {
    let source = SystemTimeSource::default();
    let now = source.wall();
    match newest {
        Some(newest) if !accept_clock && newest.0.saturating_sub(now.0) > DAY_NS => {
            Err(Error::Clock { newest, now })
        }
        _ => Ok(Clock::start(source, newest)),
    }
}

/// Whether a start keeps the existing index logs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum IndexLogs {
    /// They are kept as far as their end verifies.
    KeepSound,
    /// All of them are rebuilt.
    Rebuild,
}

pub(super) fn recover(opening: Opening, index_logs: IndexLogs) -> Result<RecoveredDirectory> {
    let uuid = opening.meta().uuid;
    let catalog_bytes = opening.catalog_bytes()?;
    let catalog_bytes_least = opening.catalog_bytes_least()?;
    // If staging is lost, only the newest slot gives a length, and the catalog may have grown since.
    let is_length_known = catalog_bytes_least > 0 && opening.how() != Recovered::StagingLost;
    let (mut catalog, _, valid_bytes) =
        decode_whole_catalog(opening.dir(), &uuid, &catalog_bytes, catalog_bytes_least)?;
    require_described(&opening, &catalog)?;
    let mut indexed = match index_logs {
        IndexLogs::KeepSound => Indexed::find(&opening, u64::MAX)?,
        IndexLogs::Rebuild => Indexed::nothing(&opening)?,
    };
    let (open, latest) = loop {
        match indexed.open_rollups(&opening, &catalog) {
            Err(unsound) => indexed = indexed.cut(&opening, unsound)?,
            Ok(open) => {
                if !is_length_known {
                    known_sources::require_indexed(&opening, &catalog, &open)?;
                }
                match indexed.find_latest(&opening, &open, &catalog) {
                    Err(unsound) => indexed = indexed.cut(&opening, unsound)?,
                    Ok(latest) => break (open, latest),
                }
            }
        }
    };
    let first_missing = indexed.chunks.address(indexed.chunk_bytes);
    let closing = first_missing.max(catalog.latest_at());
    // An index by closure ends with its writer, because its values cannot be computed any more.
    let native: Vec<_> = catalog
        .sources()
        .flat_map(|source| source.open_indexes())
        .filter(|index| index.is_native())
        .map(|index| index.id)
        .collect();
    let first_line = catalog.event_count();
    let events = native
        .iter()
        .map(|index| catalog.close_index(*index, closing))
        .collect::<Result<Vec<Event>>>()?;

    let indexer = Indexer::new(
        uuid,
        indexed.chunk_bytes,
        indexed.chunks,
        open,
        indexed.newest.unwrap_or(Timestamp::MIN),
        native,
    );
    let records_end = opening.end(LogKind::Records);
    let resume = resume_at(&opening, &catalog)?;
    let missing = opening.missing_chunks(first_missing, resume);
    if missing > GAP_CHUNKS_MAX {
        let what = format!(
            "{missing} chunks below {resume}, where records should continue, are in no segment, and no crash leaves so many; move away \
             the file that is wrong: a segment of another directory, 'staging' or 'durable'"
        );
        return Err(Error::Damaged {
            path: opening.dir().join(LogKind::Records.dir_name()),
            what,
        });
    }
    // Few chunks are missing here, so each can be read.
    if !is_length_known {
        known_sources::require_recorded(&opening, &catalog, indexed.chunks)?;
    }
    let (sound_lines, _torn) = catalog_bytes.split_at(valid_bytes);
    let templates = Templates::of(&catalog);
    let units = ColumnUnits::new(opening.meta(), templates.clone());
    let mut logs = opening.start(
        resume,
        indexed.chunk_index_end,
        indexed.times_end(),
        sound_lines,
        Box::new(units),
    )?;
    for (event, line_no) in events.iter().zip(first_line..) {
        logs.append_catalog(&encode_line(&uuid, line_no, event))?;
    }
    let mut recovered = RecoveredDirectory {
        logs,
        catalog,
        indexer,
        latest,
        templates,
        newest: indexed.newest,
    };
    if indexed.chunks.address(indexed.chunk_bytes) < resume {
        recovered.index_missing(&recovered.logs.reader()?, records_end, resume)?;
    }
    recovered.logs.publish();
    Ok(recovered)
}

/// Refuses a catalog that is newer than the log, because it no longer describes all records that are there.
fn require_described(opening: &Opening, catalog: &Catalog) -> Result<()> {
    let (begin, described) = (opening.begin(LogKind::Records), catalog.forgotten_below());
    if begin >= described {
        return Ok(());
    }
    let what = format!(
        "it does not describe records below address {described}, and the log begins at {begin}; restore the whole directory from one backup"
    );
    Err(Error::damaged(&opening.dir().join(CATALOG_NAME), what))
}

/// The address at which records continue: past everything that is stored, and past every address from which a definition in the catalog
/// holds.
fn resume_at(opening: &Opening, catalog: &Catalog) -> Result<Address> {
    let meta = opening.meta();
    let resume = opening.resume();
    let wanted = catalog.latest_at().align_up(meta.chunk_bytes.into());
    // A definition stands at most a segment ahead of the records that survived, because the writer had no more allocated.
    let segment_bytes = meta.segment_bytes.records;
    if wanted.0.saturating_sub(resume.0) > 2 * segment_bytes {
        let what = format!(
            "it names address {wanted}, far past the end of the record log at {resume}; restore it from a backup"
        );
        return Err(Error::Damaged {
            path: opening.dir().join(CATALOG_NAME),
            what,
        });
    }
    Ok(resume.max(wanted))
}

impl RecoveredDirectory {
    /// Summarises every chunk from the indexer's next one up to `resume`. Chunks from `records_end` on hold no bytes and are added as gaps.
    fn index_missing(
        &mut self,
        reader: &LogReader,
        records_end: Address,
        resume: Address,
    ) -> Result<()> {
        let (uuid, chunk_bytes) = (reader.meta().uuid, reader.meta().chunk_bytes);
        let mut summariser = Summariser::default();
        let mut summary = NodeSummary::new(0);
        let mut chunk = vec![0; chunk_bytes as usize];
        // Everything between a lost chunk and this address is missing from the segments too.
        let mut stored_from = Address::ZERO;
        loop {
            let chunk_no = self.indexer.next_chunk();
            let address = chunk_no.address(chunk_bytes);
            if address >= resume {
                return Ok(());
            }
            if address >= records_end || address < stored_from {
                self.indexer
                    .add_missing(&mut self.logs, &self.catalog, Missing::Gap)?;
                continue;
            }
            let read = reader.read(LogKind::Records, address, &mut chunk);
            let stored = match is_lost(&read, &chunk) {
                true => reader.stored_from(LogKind::Records, address)?,
                false => Some(address),
            };
            // A chunk that cannot be read from a file that exists is damaged, not lost.
            if is_lost(&read, &chunk) && (read.is_ok() || stored != Some(address)) {
                let next = ChunkNo(chunk_no.0 + 1).address(chunk_bytes);
                stored_from = stored
                    .unwrap_or(records_end)
                    .clamp(next, records_end.max(next));
                tracing::error!(
                    "chunk {chunk_no} at address {address} and everything up to address {stored_from} are lost: the segments are missing or empty"
                );
                self.indexer
                    .add_missing(&mut self.logs, &self.catalog, Missing::Gap)?;
                continue;
            }
            let sound = match read {
                Ok(_) => verify_chunk(&uuid, address, &chunk).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let known = sound.and_then(|()| {
                match known_sources::unknown_source(&chunk, chunk_bytes, &self.catalog) {
                    None => Ok(()),
                    Some(source) => Err(format!(
                        "a record names source {source}, which the catalog does not define: its bytes changed in staging, before they had a checksum"
                    )),
                }
            });
            let summarised = known.and_then(|()| {
                let (latest, none) = (&mut self.latest, Natives::new());
                let summarised = summariser.summarise(
                    &self.catalog,
                    &none,
                    latest,
                    chunk_no,
                    &chunk,
                    &mut summary,
                );
                summarised.map_err(|error| error.to_string())
            });
            match summarised {
                Ok(()) => {
                    self.newest = self
                        .newest
                        .max(Some(summary.last_arrival).filter(|_| summary.records > 0));
                    self.indexer.add(&mut self.logs, &self.catalog, &summary)?;
                }
                Err(what) => {
                    tracing::error!(
                        "chunk {chunk_no} at address {address} is damaged; queries skip it and loom_losses lists it: {what}"
                    );
                    self.indexer
                        .add_missing(&mut self.logs, &self.catalog, Missing::Damaged)?;
                }
            }
        }
    }
}

/// Whether a chunk is lost, not damaged: its segment is missing, or the chunk was never written.
fn is_lost(read: &Result<Origin>, chunk: &[u8]) -> bool {
    match read {
        Ok(_) => chunk.iter().all(|byte| *byte == 0),
        Err(error) => matches!(error, Error::Corrupt { .. }),
    }
}

/// Turns damage into `None`.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

/// The part of the index logs that verifies: the first `chunks` chunks are indexed.
struct Indexed {
    uuid: [u8; 16],
    chunk_bytes: u32,
    chunks: ChunkNo,
    chunk_index_end: Address,
    newest: Option<Timestamp>,
}

impl Indexed {
    /// Walks back from the end of the timestamp index, or from the entry of chunk `most`, to the last sound entry that names a sound node.
    fn find(opening: &Opening, most: u64) -> Result<Self> {
        let (uuid, chunk_bytes) = (opening.meta().uuid, opening.meta().chunk_bytes);
        let first = opening.begin(LogKind::Records).0 / u64::from(chunk_bytes);
        let entries = opening.end(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
        let in_records = opening.end(LogKind::Records).0 / u64::from(chunk_bytes);
        let mut chunks = complete_chunks(entries).min(in_records).min(most);
        let mut reader = NodeReader::new(opening);
        while chunks > first {
            if let Some(entry) = unless_damaged(reader.entry(NodeId::last_before(chunks)))? {
                let end = Address(entry.node.0.saturating_add(entry.node_bytes.into()));
                // An entry without a node holds the address of the next node.
                let is_within = end.0.is_multiple_of(8) && end <= opening.end(LogKind::Chunks);
                if is_within && unless_damaged(reader.open_at(&entry))?.is_some() {
                    let newest = Some(entry.last_arrival).filter(|last| *last != Timestamp::MIN);
                    return Ok(Self {
                        uuid,
                        chunk_bytes,
                        chunks: ChunkNo(chunks),
                        chunk_index_end: end,
                        newest,
                    });
                }
            }
            chunks -= 1;
        }
        Self::nothing(opening)
    }

    fn nothing(opening: &Opening) -> Result<Self> {
        let chunk_bytes = opening.meta().chunk_bytes;
        let begin = opening.begin(LogKind::Records);
        let nothing = Self {
            uuid: opening.meta().uuid,
            chunk_bytes,
            chunks: begin.chunk(chunk_bytes),
            chunk_index_end: opening.begin(LogKind::Chunks),
            newest: None,
        };
        let times = opening.end(LogKind::Times);
        if nothing.times_end() > times {
            let what = format!(
                "its records begin at address {begin} according to 'staging' or 'durable', past the end of its timestamp index at {times}; move away \
                 the wrong file"
            );
            return Err(Error::Damaged {
                path: opening.dir().to_owned(),
                what,
            });
        }
        Ok(nothing)
    }

    /// Keeps the index logs only below an unsound node. Summaries and roll-ups from there on are rebuilt.
    fn cut(&self, opening: &Opening, unsound: Unsound) -> Result<Self> {
        let Unsound { first_chunk, error } = unsound;
        if first_chunk >= self.chunks {
            return Err(error);
        }
        tracing::error!("{error}; the index logs are rebuilt from chunk {first_chunk} on");
        Self::find(opening, first_chunk.0)
    }

    fn times_end(&self) -> Address {
        Address(entries_before(self.chunks.0) * TIME_ENTRY_BYTES as u64)
    }

    /// The roll-ups that were open when chunk `chunks` began, from level 1 up, complete as the writer had them.
    fn open_rollups(
        &self,
        opening: &Opening,
        catalog: &Catalog,
    ) -> Result<Vec<NodeSummary>, Unsound> {
        let mut open = Vec::new();
        let mut reader = NodeReader::new(opening);
        let mut merger = Merger::default();
        let mut summariser = Summariser::default();
        // The number of complete nodes of the level below.
        let mut nodes = self.chunks.0;
        for level in 1u8.. {
            if nodes == 0 {
                break;
            }
            let first = nodes - nodes % FANOUT;
            let mut rollup = NodeSummary::new(level);
            let child_of = |ordinal| NodeId {
                level: level - 1,
                ordinal,
            };
            rollup.clear(child_of(first).first_chunk());
            for id in (first..nodes).map(child_of) {
                if self.is_evicted(opening, id) {
                    continue;
                }
                let open = reader.open(id).map_err(|error| Unsound::at(id, error))?;
                let child = open.map(|open| match level {
                    1 => self.summarise_again(opening, catalog, &mut summariser, &open.node()),
                    _ => open.node().to_summary(),
                });
                match child {
                    Some(child) => {
                        merger.add_child(&mut rollup, (id.ordinal - first) as u8, &child);
                    }
                    None => merger.pass_child(&mut rollup),
                }
            }
            // If retention removed the first children, the chain of those after them leads outside the roll-up, to nothing.
            for source in rollup.sources.iter_mut() {
                source.previous_chunk = source
                    .previous_chunk
                    .filter(|previous| *previous < rollup.first_chunk);
            }
            open.push(rollup);
            nodes /= FANOUT;
        }
        Ok(open)
    }

    /// The complete summary of a chunk; its node keeps only a part.
    fn summarise_again(
        &self,
        opening: &Opening,
        catalog: &Catalog,
        summariser: &mut Summariser,
        node: &Node<'_>,
    ) -> NodeSummary {
        let chunk_no = node.first_chunk();
        let address = chunk_no.address(self.chunk_bytes);
        let mut chunk = vec![0; self.chunk_bytes as usize];
        let mut summary = NodeSummary::new(0);
        let read = opening.read(LogKind::Records, address, &mut chunk);
        let whole = read.is_ok() && verify_chunk(&self.uuid, address, &chunk).is_ok();
        let (natives, mut unused) = (Natives::new(), LatestChunks::default());
        if !whole
            || summariser
                .summarise(
                    catalog,
                    &natives,
                    &mut unused,
                    chunk_no,
                    &chunk,
                    &mut summary,
                )
                .is_err()
        {
            tracing::error!(
                "chunk {chunk_no} at address {address} is damaged; roll-ups use its stored summary instead"
            );
            return node.to_summary();
        }
        for source in summary.sources.iter_mut() {
            source.previous_chunk = node
                .source(source.source)
                .and_then(|stats| stats.previous_chunk);
        }
        summary
    }

    /// Finds the latest chunk of each source: it is in the last child that holds the source, in the lowest open roll-up that does.
    fn find_latest(
        &self,
        opening: &Opening,
        open: &[NodeSummary],
        catalog: &Catalog,
    ) -> Result<LatestChunks, Unsound> {
        let mut descent = Descent {
            indexed: self,
            opening,
            reader: NodeReader::new(opening),
            latest: LatestChunks::default(),
        };
        let mut found = HashSet::new();
        for rollup in open {
            let lasts = rollup
                .sources
                .iter()
                .filter(|summary| catalog.source(summary.source).is_some())
                .filter(|summary| found.insert(summary.source))
                .map(|summary| (summary.last, summary.source));
            let id = NodeId::at(rollup.level, rollup.first_chunk);
            for (child, sources) in by_child(id, lasts) {
                descent.descend(child, &sources)?;
            }
        }
        Ok(descent.latest)
    }

    /// Whether retention removed the node, because it stands before the nodes of the first retained chunk.
    fn is_evicted(&self, opening: &Opening, id: NodeId) -> bool {
        let first = opening.begin(LogKind::Records).chunk(self.chunk_bytes);
        id.entry() < NodeId::summary(first).entry()
    }
}

/// The descent to the latest chunks of sources. Each node is opened once for all sources below it, because it may hold tens of thousands.
struct Descent<'a> {
    indexed: &'a Indexed,
    opening: &'a Opening,
    reader: NodeReader<&'a Opening>,
    latest: LatestChunks,
}

impl Descent<'_> {
    /// Goes down from a node that holds these sources.
    fn descend(&mut self, id: NodeId, sources: &[SourceId]) -> Result<(), Unsound> {
        if id.level == 0 {
            for source in sources {
                self.latest.set(*source, id.first_chunk());
            }
            return Ok(());
        }
        if self.indexed.is_evicted(self.opening, id) {
            return Ok(());
        }
        let open = self.reader.open(id);
        let open = open.map_err(|error| Unsound::at(id, error))?;
        let mut lasts = Vec::with_capacity(sources.len());
        for &source in sources {
            let last = open
                .as_ref()
                .and_then(|open| Some(open.node().source(source)?.last));
            let Some(last) = last.filter(|last| u64::from(*last) < FANOUT) else {
                return Err(self.without(id, source));
            };
            lasts.push((last, source));
        }
        drop(open);
        by_child(id, lasts)
            .iter()
            .try_for_each(|(child, sources)| self.descend(*child, sources))
    }

    fn without(&self, id: NodeId, source: SourceId) -> Unsound {
        let what = format!(
            "roll-up {} of level {} does not hold source {source}, which the one above it holds",
            id.ordinal, id.level
        );
        let path = self.opening.dir().join(LogKind::Chunks.dir_name());
        Unsound::at(id, Error::Damaged { path, what })
    }
}

/// The sources by the child of a roll-up that holds them last.
fn by_child(
    id: NodeId,
    lasts: impl IntoIterator<Item = (u32, SourceId)>,
) -> Vec<(NodeId, Vec<SourceId>)> {
    let mut children: BTreeMap<u32, Vec<SourceId>> = BTreeMap::new();
    for (last, source) in lasts {
        children.entry(last).or_default().push(source);
    }
    children
        .into_iter()
        .filter_map(|(last, sources)| Some((id.child(last)?, sources)))
        .collect()
}

/// A node of the chunk index, or its entry, that does not verify or contradicts itself.
struct Unsound {
    /// The first chunk that it covers.
    first_chunk: ChunkNo,
    error: Error,
}

impl Unsound {
    fn at(id: NodeId, error: Error) -> Self {
        Self {
            first_chunk: id.first_chunk(),
            error,
        }
    }
}

impl NodeLogs for &Opening {
    fn uuid(&self) -> &[u8; 16] {
        &self.meta().uuid
    }

    fn end(&self, log: LogKind) -> Address {
        Opening::end(self, log)
    }

    fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<()> {
        Opening::read(self, log, address, bytes)
    }

    fn path_of(&self, log: LogKind, address: Address) -> PathBuf {
        Opening::path_of(self, log, address)
    }

    /// Segments do not change during an opening.
    fn refresh(&self) -> bool {
        false
    }
}
