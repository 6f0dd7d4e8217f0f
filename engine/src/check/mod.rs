//! Checks that a directory follows FORMAT.md: it verifies every checksum and pointer, and compares the index logs with the records that
//! they summarise.
//!
//! `check` walks the record log once, in order. It verifies and summarises each chunk again; the summary and the roll-ups above it must
//! equal those in the chunk index byte for byte. It reads like a query, also beside a live writer, and writes nothing. A second thread
//! reads and verifies chunks ahead. The memory is a few MiB for waiting chunks, and one open roll-up for each level.

mod ahead;
mod expected;
mod report;
mod rollups;
mod small_files;
mod stored;

use std::path::Path;
use std::thread;

use crate::error::{Error, Result};
use crate::format::{NodeSummary, RecordIter, TIME_ENTRY_BYTES, complete_chunks};
use crate::ingest::{LatestChunks, Natives, Summariser};
use crate::log::{LogReader, Origin, Tails};
use crate::nodes::NodeId;
use crate::schema::{Catalog, decode_catalog};
use crate::types::{Address, ChunkNo, LogKind, PerLog, Timestamp};

use ahead::{Ahead, Verifier};
use expected::Expected;
pub use report::{Damage, DamagedFile, Progress, Report};
use rollups::{Child, Rollups};
use small_files::SmallFiles;
use stored::{Stored, StoredNode};

/// Reads everything that is published, and reports what it found. Damage is part of the report; an error means that there is no report.
///
/// # Errors
/// The directory is not a Loom directory or has another format version, its catalog does not verify, or a live writer's staging cannot be read.
pub fn check(dir: &Path) -> Result<Report> {
    check_with(dir, &mut |_| {})
}

/// As [`check`], but calls `progress` after each chunk.
///
/// # Errors
/// As [`check`].
pub fn check_with(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    check_logs(&LogReader::open(dir)?, progress)
}

/// As [`check_with`], for a directory that is open.
///
/// # Errors
/// As [`check`].
pub fn check_logs(reader: &LogReader, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    let mut tails = reader.tails()?;
    let small_files = SmallFiles::read(reader)?;
    let (catalog, _, valid_bytes) = decode_catalog(&reader.meta().uuid, &small_files.catalog)
        .map_err(|error| error.of_catalog(reader.dir()))?;
    let lines_end = catalog.bytes_before() + valid_bytes as u64;
    tails.begin = reader.begins_described(&tails, catalog.forgotten_below())?;
    let PerLog { records, times, .. } = tails.tail;
    let chunk_bytes = reader.meta().chunk_bytes;
    let first = tails.begin.records.chunk(chunk_bytes);
    let end = records.align_up(chunk_bytes.into()).chunk(chunk_bytes);
    let indexed = complete_chunks(times.0 / TIME_ENTRY_BYTES as u64).min(end.0);
    let mut report = Report {
        files: small_files.damaged(reader, lines_end)?,
        ..Report::default()
    };
    match reader.losses() {
        Ok(losses) => report.pending_losses = losses.unrecorded(records).len() as u64,
        Err(Error::Staging { path, what }) => report.files.push(DamagedFile { path, what }),
        Err(error) => return Err(error),
    }
    report.damage_count += report.files.len() as u64;
    let verifier = Verifier {
        reader,
        tails,
        catalog: &catalog,
    };
    thread::scope(|scope| {
        let mut check = Check {
            reader,
            catalog: &catalog,
            tails,
            chunk_bytes,
            first,
            ahead: Ahead::new(scope, verifier, first),
            stored: Stored::new(reader, tails),
            summariser: Summariser::default(),
            latest: LatestChunks::default(),
            summary: NodeSummary::new(0),
            rollups: Rollups::new(first),
            chunk: Vec::new(),
            last_arrival: Timestamp::MIN,
            unreadable: false,
            lost_lines: small_files.lost_lines(lines_end),
            report,
        };
        let bytes_to = |chunk: ChunkNo| (chunk.0 - first.0).saturating_mul(chunk_bytes.into());
        let mut next = first;
        while next < end {
            next = check.chunk(next, end, indexed)?;
            progress(Progress {
                bytes: bytes_to(next),
                bytes_in_all: bytes_to(end),
            });
        }
        Ok(check.report)
    })
}

struct Check<'a, 'scope> {
    reader: &'a LogReader,
    catalog: &'a Catalog,
    tails: Tails,
    chunk_bytes: u32,
    first: ChunkNo,
    ahead: Ahead<'scope, 'a>,
    stored: Stored<'a>,
    summariser: Summariser,
    latest: LatestChunks,
    summary: NodeSummary,
    rollups: Rollups,
    chunk: Vec<u8>,
    last_arrival: Timestamp,
    /// A part of the current chunk is missing.
    unreadable: bool,
    /// The catalog lost lines. Only that is reported, and nothing is compared with the catalog.
    lost_lines: bool,
    report: Report,
}

impl Check<'_, '_> {
    /// Checks one chunk below `end`; the first `indexed` chunks have summaries. Returns the next chunk to check.
    fn chunk(&mut self, chunk: ChunkNo, end: ChunkNo, indexed: u64) -> Result<ChunkNo> {
        let outcome = if chunk.0 < indexed {
            self.indexed_chunk(chunk)
        } else {
            self.open_chunk(chunk)
        };
        let next = match outcome {
            Err(error @ Error::Evicted { .. }) => self.pass_evicted(chunk, end, &error)?,
            outcome => outcome.map(|()| ChunkNo(chunk.0 + 1))?,
        };
        if std::mem::take(&mut self.unreadable) {
            return self.pass_missing(next, end);
        }
        Ok(next)
    }

    /// Checks a chunk after the last summary: the open one, or one that waits for the next start.
    fn open_chunk(&mut self, chunk: ChunkNo) -> Result<()> {
        self.report.open_chunks += 1;
        self.read_chunk(chunk).map(drop)
    }

    /// Skips to the next chunk with a segment, because a damaged file may claim an enormous log. The chunks between are one damage.
    fn pass_missing(&mut self, next: ChunkNo, end: ChunkNo) -> Result<ChunkNo> {
        let address = next.address(self.chunk_bytes);
        if next >= end {
            return Ok(next);
        }
        let stored = self.reader.stored_from(LogKind::Records, address)?;
        let to = stored.map_or(end, |from| from.chunk(self.chunk_bytes).min(end));
        if to > next {
            let chunks = to.0 - next.0;
            let what = format!("{chunks} more chunks are missing with their segments");
            self.damage(address, what);
            self.pass(ChunkNo(to.0 - 1));
        }
        Ok(to.max(next))
    }

    /// Skips to the next chunk that is retained. Retention moves the begin of the records before the begin of their index, and what it
    /// removed is not checked. If the records do not begin above the chunk, their index begins too high, which is damage.
    fn pass_evicted(&mut self, chunk: ChunkNo, end: ChunkNo, error: &Error) -> Result<ChunkNo> {
        let begin = self.reader.tails()?.begin.records;
        let begin = begin.chunk(self.chunk_bytes);
        if begin > chunk {
            self.pass(ChunkNo(begin.0 - 1));
            return Ok(begin.min(end));
        }
        let what = format!("its records are retained, but their index is not: {error}");
        self.damage(chunk.address(self.chunk_bytes), what);
        self.pass(chunk);
        self.unreadable = true;
        Ok(ChunkNo(chunk.0 + 1))
    }

    /// Skips a chunk that retention removed, or with which more is missing. The nodes above it are unknown from here on.
    fn pass(&mut self, chunk: ChunkNo) {
        self.rollups.add(chunk, Child::Unknown);
        self.first = ChunkNo(chunk.0 + 1);
        self.latest = LatestChunks::default();
        self.stored.pass();
    }

    /// Checks a chunk with a summary, and the roll-ups that it completes.
    fn indexed_chunk(&mut self, chunk: ChunkNo) -> Result<()> {
        let stored = self.stored.node(NodeId::summary(chunk), &mut self.report)?;
        let complete = match &stored {
            StoredNode::Gap { .. } => {
                self.report.gap_chunks += 1;
                self.rollups.add(chunk, Child::None)
            }
            _ if self.read_chunk(chunk)? && !self.lost_lines => {
                self.summarise(chunk, &stored);
                let expected = Expected::new(&self.summary, self.catalog, self.chunk_bytes);
                self.stored.compare(&stored, &expected, &mut self.report);
                self.rollups.add(chunk, Child::Certain(&self.summary))
            }
            // The records are damaged or their sources unknown, so the stored summary replaces theirs in the chain and the roll-ups.
            _ => match &stored {
                StoredNode::Node { node, .. } => {
                    self.summary = node.node().to_summary();
                    for source in self.summary.sources.iter() {
                        self.latest.set(source.source, chunk);
                    }
                    self.rollups.add(chunk, Child::StandIn(&self.summary))
                }
                _ => self.rollups.add(chunk, Child::Unknown),
            },
        };
        for level in 1..=complete {
            let id = NodeId::at(level, chunk);
            let stored = self.stored.node(id, &mut self.report)?;
            if let Some(rollup) = self.rollups.completed(level) {
                let expected = Expected::new(rollup, self.catalog, self.chunk_bytes);
                self.stored.compare(&stored, &expected, &mut self.report);
            }
        }
        Ok(())
    }

    /// Summarises the current chunk, whose records are sound.
    fn summarise(&mut self, chunk: ChunkNo, stored: &StoredNode) {
        let summarised = self.summariser.summarise(
            self.catalog,
            &Natives::new(),
            &mut self.latest,
            chunk,
            &self.chunk,
            &mut self.summary,
        );
        // In a partly published chunk, the bytes after the records may not be an end mark.
        if let Err(error) = summarised {
            self.damage(chunk.address(self.chunk_bytes), error.to_string());
            self.summary.clear(chunk);
        }
        // Where a chain leads below the retained chunks, only the summary knows it.
        let StoredNode::Node { node, .. } = stored else {
            return;
        };
        for source in self.summary.sources.iter_mut() {
            let stats = node.node().source(source.source);
            let known = stats.and_then(|stats| stats.previous_chunk);
            if source.previous_chunk.is_none() && known.is_some_and(|known| known < self.first) {
                source.previous_chunk = known;
            }
        }
    }

    /// Reads the published part of a chunk, and verifies it and each of its records. Returns false if it is damaged.
    fn read_chunk(&mut self, chunk: ChunkNo) -> Result<bool> {
        let address = chunk.address(self.chunk_bytes);
        self.report.chunks += 1;
        if let Some(records) = self.ahead.take(chunk, &mut self.chunk)
            && records.first >= self.last_arrival
        {
            self.report.records += records.count;
            self.last_arrival = self.last_arrival.max(records.last);
            return Ok(true);
        }
        let records = self.tails.tail.records;
        let published = (records.0 - address.0).min(self.chunk_bytes.into()) as usize;
        self.chunk.clear();
        self.chunk.resize(published, 0);
        let origin = match self.reader.read(LogKind::Records, address, &mut self.chunk) {
            Ok(origin) => origin,
            Err(error @ Error::Evicted { .. }) => return Err(error),
            Err(error) => {
                self.unreadable = true;
                self.damage(address, error.what());
                return Ok(false);
            }
        };
        if origin == Origin::Staging {
            self.report.staged_chunks += 1;
        } else {
            let meta = self.reader.meta();
            let mut verified = self.tails.verify_chunk(meta, address, &self.chunk);
            if verified.is_err() {
                // Its segment may have been removed or rewritten during the read.
                self.reader.relist();
                match self.reader.read(LogKind::Records, address, &mut self.chunk) {
                    Err(error @ Error::Evicted { .. }) => return Err(error),
                    _ => verified = self.tails.verify_chunk(meta, address, &self.chunk),
                }
            }
            if let Err(error) = verified {
                self.damage(address, error.to_string());
                return Ok(false);
            }
        }
        Ok(self.check_records(address))
    }

    /// Checks that every record can be found, has a source and its layout, and is no older than the one before it.
    fn check_records(&mut self, chunk: Address) -> bool {
        for record in RecordIter::new(&self.chunk, self.chunk_bytes) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let what = error.to_string();
                    self.report
                        .damage(self.reader, LogKind::Records, chunk, what);
                    return false;
                }
            };
            self.report.records += 1;
            let source = self.catalog.source(record.source);
            let what = if record.arrival < self.last_arrival {
                Some("a record arrived before the previous one".to_owned())
            } else if self.lost_lines {
                None
            } else if let Some(source) = source {
                let valid = source.layout_at(chunk).validate(record.payload);
                valid
                    .err()
                    .map(|error| format!("a record of source '{}': {error}", source.name))
            } else {
                let id = record.source;
                Some(format!(
                    "a record names source {id}, which the catalog does not define"
                ))
            };
            self.last_arrival = record.arrival;
            if let Some(what) = what {
                let address = chunk + u64::from(record.offset);
                self.report
                    .damage(self.reader, LogKind::Records, address, what);
            }
        }
        true
    }

    fn damage(&mut self, address: Address, what: String) {
        self.report
            .damage(self.reader, LogKind::Records, address, what);
    }
}
