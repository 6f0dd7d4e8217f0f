//! A Loom directory opened for reading, live or not: what is cached between snapshots of one process.
//!
//! Held by whoever asks several questions: the catalog, verified chunks and verified nodes are kept. Reading takes no lock that a
//! writer sees and writes nothing.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::forest::node_cache::NodeCache;
use super::interrupt::Poll;
use super::losses::missing::missing_runs;
use super::scan::verified::VerifiedChunks;
use super::snapshot::Snapshot;
use super::snapshot_logs::SnapshotLogs;
use super::value::IndexFn;
use crate::error::{Error, Result};
use crate::log::{CATALOG_NAME, LogReader, Tails};
use crate::schema::{Catalog, decode_whole_catalog};
use crate::types::{Address, IndexId};

/// How often the tails are loaded again while summaries lag behind the records.
const LOADS_MOST: u32 = 3;
/// So many chunks past the last summary are normal: the open one, and one whose summary is just being written.
const LAG_CHUNKS: u64 = 2;

pub struct Directory {
    reader: Arc<LogReader>,
    catalog: Mutex<CachedCatalog>,
    epoch: Mutex<Epoch>,
    functions: RwLock<HashMap<IndexId, IndexFn>>,
}

/// The catalog only grows, so its length says whether it changed.
struct CachedCatalog {
    /// Of the file, before it was read.
    file_bytes: u64,
    catalog: Arc<Catalog>,
}

/// What was verified, of one life of the staging file: after lost staging, ordinals may name other chunks.
#[derive(Default)]
struct Epoch {
    number: u64,
    nodes: Arc<NodeCache>,
    chunks: Arc<VerifiedChunks>,
}

impl Directory {
    /// # Errors
    /// Not a Loom directory, another format version, or files that cannot be read.
    pub fn open(path: &Path) -> Result<Arc<Directory>> {
        Ok(Directory::of(LogReader::open(path)?))
    }

    /// As `open`, of logs that are open.
    pub fn of(reader: LogReader) -> Arc<Directory> {
        Arc::new(Directory {
            reader: Arc::new(reader),
            catalog: Mutex::new(CachedCatalog {
                file_bytes: u64::MAX,
                catalog: Arc::new(Catalog::new()),
            }),
            epoch: Mutex::new(Epoch::default()),
            functions: RwLock::new(HashMap::new()),
        })
    }

    pub fn path(&self) -> &Path {
        self.reader.dir()
    }

    /// Gives the function of an index that was defined as a closure, so that records which no summary covers can be evaluated.
    pub fn provide_function(&self, index: IndexId, function: IndexFn) {
        let mut functions = self
            .functions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        functions.insert(index, function);
    }

    /// Everything that is published now.
    ///
    /// # Errors
    /// Staging that a live writer uses and that cannot be read, a damaged catalog, failed reads.
    pub fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        let tails = self.tails(None)?;
        let position = tail_of_records(&tails);
        self.snapshot_of(tails, position)
    }

    /// What a snapshot with this position saw, as far as it is retained.
    ///
    /// # Errors
    /// As [`Directory::snapshot`]; a position that is not published yet, or below what is retained.
    pub fn snapshot_at(self: &Arc<Self>, position: u64) -> Result<Snapshot> {
        let position = Address(position);
        let tails = self.tails(Some(position))?;
        let (begin, tail) = (begin_of_records(&tails), tail_of_records(&tails));
        if position > tail {
            return Err(Error::Query(format!(
                "position {position} is past what is published, {tail}; take one from loom_snapshot"
            )));
        }
        if position < begin {
            return Err(Error::Evicted {
                dir: self.reader.dir().to_owned(),
                address: position,
                begin,
            });
        }
        self.snapshot_of(tails, position)
    }

    pub(super) fn reader(&self) -> &LogReader {
        &self.reader
    }

    pub(super) fn function(&self, index: IndexId) -> Option<IndexFn> {
        let functions = self
            .functions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        functions.get(&index).cloned()
    }

    /// Loads the tails; again, if records had run far ahead of their summaries between the loads.
    fn tails(&self, position: Option<Address>) -> Result<Tails> {
        let mut tails = self.reader.tails()?;
        for _ in 1..LOADS_MOST {
            let lag = self.lag_chunks(&tails, position);
            if lag <= LAG_CHUNKS {
                break;
            }
            tails = self.reader.tails()?;
        }
        Ok(tails)
    }

    fn lag_chunks(&self, tails: &Tails, position: Option<Address>) -> u64 {
        let position = position.unwrap_or(tail_of_records(tails));
        let logs = self.logs(*tails, position.min(tail_of_records(tails)));
        logs.end_chunk().0 - logs.summarised_chunks().0
    }

    pub(super) fn snapshot_of(
        self: &Arc<Self>,
        tails: Tails,
        position: Address,
    ) -> Result<Snapshot> {
        // After the tails: what they publish was defined before.
        let catalog = self.catalog()?;
        let is_empty = catalog.sources().next().is_none();
        let snapshot = Snapshot::new(Arc::clone(self), catalog, self.logs(tails, position));
        if is_empty && !is_all_gap(snapshot.logs())? {
            return Err(Error::Damaged {
                path: self.path().join(CATALOG_NAME),
                what: "it tells of no source, and there are records: put a whole copy of the file in its place".to_owned(),
            });
        }
        Ok(snapshot)
    }

    fn logs(&self, tails: Tails, position: Address) -> SnapshotLogs {
        let (nodes, chunks) = self.caches(tails.epoch);
        SnapshotLogs::new(Arc::clone(&self.reader), tails, position, nodes, chunks)
    }

    fn caches(&self, epoch: u64) -> (Arc<NodeCache>, Arc<VerifiedChunks>) {
        let mut current = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number != epoch {
            *current = Epoch {
                number: epoch,
                ..Epoch::default()
            };
        }
        (Arc::clone(&current.nodes), Arc::clone(&current.chunks))
    }

    fn catalog(&self) -> Result<Arc<Catalog>> {
        let mut cached = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let file_bytes = self.reader.catalog_len()?;
        if file_bytes != cached.file_bytes {
            *cached = CachedCatalog {
                file_bytes,
                catalog: Arc::new(read_catalog(&self.reader)?),
            };
        }
        Ok(Arc::clone(&cached.catalog))
    }
}

/// The catalog as it stands.
///
/// # Errors
/// One that is damaged together with its copy, or shorter than the directory tells.
pub fn read_catalog(reader: &LogReader) -> Result<Catalog> {
    // Before the catalog, which only grows.
    let told = reader.told_catalog_bytes()?;
    let bytes = reader.catalog_bytes()?;
    let uuid = &reader.meta().uuid;
    let (catalog, _, _) = decode_whole_catalog(reader.dir(), uuid, &bytes, told)?;
    Ok(catalog)
}

fn tail_of_records(tails: &Tails) -> Address {
    tails.tail.records
}

fn begin_of_records(tails: &Tails) -> Address {
    tails.begin.records
}

/// Whether there is nothing but what a crash before the first source left: addresses that hold no records.
fn is_all_gap(logs: &Arc<SnapshotLogs>) -> Result<bool> {
    if logs.chunks() == 0 {
        return Ok(true);
    }
    let missing = missing_runs(logs, &Poll::never())?;
    let lost = missing.iter().filter(|run| !run.damaged);
    Ok(lost.map(|run| run.chunks).sum::<u64>() == logs.chunks())
}
