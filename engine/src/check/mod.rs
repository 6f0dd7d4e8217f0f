//! Whether a directory is what FORMAT.md says: every checksum and pointer is verified, and what the index logs say is compared with
//! the records that it was made of.
//!
//! `check` walks the record log once, in order. Each chunk is verified and summarised again; its summary, and the roll-ups above it,
//! must be those that stand in the chunk index, byte for byte. It reads like any query, beside a live writer too, and writes nothing.
//! A second thread reads and verifies chunks ahead. Memory is what waits there, a few MiB, and one open roll-up of each level.

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

/// Reads everything that is published, and reports what it found. Damage is part of the report; an error means that there is none.
///
/// # Errors
/// Not a Loom directory, another format version, a catalog that does not verify, or staging that a live writer uses and that
/// cannot be read.
pub fn check(dir: &Path) -> Result<Report> {
    check_logs(&LogReader::open(dir)?)
}

/// As `check`, and gives `progress` how far it is, after each chunk.
///
/// # Errors
/// As [`check`].
pub fn check_with(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    check_all(&LogReader::open(dir)?, progress)
}

/// As `check`, of a directory that is open.
///
/// # Errors
/// As [`check`].
pub fn check_logs(reader: &LogReader) -> Result<Report> {
    check_all(reader, &mut |_| {})
}

fn check_all(reader: &LogReader, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
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
    /// What is published.
    tails: Tails,
    chunk_bytes: u32,
    /// The oldest chunk that is retained.
    first: ChunkNo,
    ahead: Ahead<'scope, 'a>,
    stored: Stored<'a>,
    summariser: Summariser,
    latest: LatestChunks,
    summary: NodeSummary,
    rollups: Rollups,
    chunk: Vec<u8>,
    last_arrival: Timestamp,
    /// Something of the chunk at hand is not there.
    unreadable: bool,
    /// The catalog lost lines: that alone is reported, and nothing is held against it.
    lost_lines: bool,
    report: Report,
}

impl Check<'_, '_> {
    /// Checks a chunk of those up to `end`, of which the first `indexed` have summaries. The next one to check.
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

    /// A chunk past the last summary: the open one, or one that waits for the next start.
    fn open_chunk(&mut self, chunk: ChunkNo) -> Result<()> {
        self.report.open_chunks += 1;
        self.read_chunk(chunk).map(drop)
    }

    /// Goes from a chunk to the next for which there is a segment: a file may claim that the log is longer than anybody can count. What lies
    /// between is damage once.
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

    /// Goes from a chunk of which something is not retained to the next that is. Retention moves where the records begin before it moves
    /// where their index begins, and what it removed is nobody's business any more. Where the records do not begin above the chunk, their
    /// index begins too high: that is damage.
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

    /// Goes on past a chunk that retention removed, or with which more is missing: what it was a part of is not known from here on.
    fn pass(&mut self, chunk: ChunkNo) {
        self.rollups.add(chunk, Child::Unknown);
        self.first = ChunkNo(chunk.0 + 1);
        self.latest = LatestChunks::default();
        self.stored.pass();
    }

    /// A chunk that has a summary, and the roll-ups that it completes.
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
            // The records are damaged, or nobody knows of what source they are; their summary stands in for them in the chain and the roll-ups.
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

    /// Makes the summary of the chunk at hand, whose records were found sound.
    fn summarise(&mut self, chunk: ChunkNo, stored: &StoredNode) {
        let summarised = self.summariser.summarise(
            self.catalog,
            &Natives::new(),
            &mut self.latest,
            chunk,
            &self.chunk,
            &mut self.summary,
        );
        // Of a chunk that is published in part, what follows the records may be no end.
        if let Err(error) = summarised {
            self.damage(chunk.address(self.chunk_bytes), error.to_string());
            self.summary.clear(chunk);
        }
        // Where a chain leads below what is retained, nobody knows better than the summary.
        let StoredNode::Node { node, .. } = stored else {
            return;
        };
        for source in self.summary.sources.iter_mut() {
            let stats = node.node().source(source.source);
            let told = stats.and_then(|stats| stats.previous_chunk);
            if source.previous_chunk.is_none() && told.is_some_and(|told| told < self.first) {
                source.previous_chunk = told;
            }
        }
    }

    /// Reads a chunk, or what is published of it, and verifies it and each of its records. False where it is damaged.
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
                // Its segment may have been given up, or written again, while it was read.
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

    /// Whether every record can be found. Each must be of a source, in its layout, and no older than the one below it.
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
