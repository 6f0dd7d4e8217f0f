//! A Loom directory opened for reading, live or not, with the caches that the snapshots of one process share.
//!
//! A process that asks several questions keeps it: the catalog, verified chunks and verified nodes are cached, most of them in the
//! process's one budget. Reading writes nothing and takes no lock that a writer sees.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use uuid::Uuid;

use super::caches::{Caches, KeptOfEpoch};
use super::snapshot_logs::SnapshotLogs;
use super::tuning::Tuning;
use super::value::IndexFn;
use crate::error::Result;
use crate::log::{LogReader, Tails};
use crate::schema::{Catalog, decode_whole_catalog};
use crate::types::{Address, IndexId};

pub struct Directory {
    reader: Arc<LogReader>,
    catalog: Mutex<CachedCatalog>,
    caches: Arc<Caches>,
    tuning: Tuning,
    epoch: Mutex<Epoch>,
    functions: RwLock<HashMap<IndexId, IndexFn>>,
}

/// A cached catalog. The length of everything that it ever held only grows, so it shows whether the catalog changed.
struct CachedCatalog {
    /// The length of everything that the catalog ever held, taken before it was read.
    bytes_ever: u64,
    catalog: Arc<Catalog>,
}

/// The entries that were verified in one life of the staging file. After lost staging, ordinals may name other chunks.
struct Epoch {
    number: u64,
    kept: KeptOfEpoch,
}

impl Directory {
    /// # Errors
    /// Not a Loom directory, another format version, or files that cannot be read.
    pub fn open(path: &Path) -> Result<Arc<Directory>> {
        Ok(Directory::of(LogReader::open(path)?))
    }

    /// As `open`, in the process of the directory's writer. The writer must outlive the last question.
    ///
    /// # Errors
    /// As `open`.
    pub fn beside_writer(path: &Path) -> Result<Arc<Directory>> {
        Ok(Directory::of(LogReader::beside_writer(path)?))
    }

    /// As `open`, for logs that are already open.
    pub fn of(reader: LogReader) -> Arc<Directory> {
        Directory::with(reader, Caches::of_process(), Tuning::default())
    }

    pub(crate) fn with(reader: LogReader, caches: Arc<Caches>, tuning: Tuning) -> Arc<Directory> {
        Arc::new(Directory {
            reader: Arc::new(reader),
            catalog: Mutex::new(CachedCatalog {
                bytes_ever: u64::MAX,
                catalog: Arc::new(Catalog::new()),
            }),
            epoch: Mutex::new(Epoch {
                number: 0,
                kept: caches.epoch(),
            }),
            caches,
            tuning,
            functions: RwLock::new(HashMap::new()),
        })
    }

    pub fn path(&self) -> &Path {
        self.reader.dir()
    }

    /// The directory's identity, from `loom.json`. No other directory has it.
    pub fn uuid(&self) -> Uuid {
        self.reader.meta().id()
    }

    /// The size of its chunks.
    pub fn chunk_bytes(&self) -> u32 {
        self.reader.meta().chunk_bytes
    }

    /// Whether the directory with the same UUID is still at its path.
    pub fn is_in_place(&self) -> bool {
        self.reader.require_in_place().is_ok()
    }

    /// Provides the function of an index that was defined as a closure, so that records that no summary covers can be evaluated.
    pub fn provide_function(&self, index: IndexId, function: IndexFn) {
        let mut functions = self
            .functions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        functions.insert(index, function);
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

    pub(super) fn logs(&self, tails: Tails, position: Address) -> SnapshotLogs {
        let kept = self.kept_of(tails.epoch);
        let reader = Arc::clone(&self.reader);
        SnapshotLogs::new(reader, tails, position, kept, self.tuning)
    }

    fn kept_of(&self, epoch: u64) -> KeptOfEpoch {
        let mut current = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number != epoch {
            *current = Epoch {
                number: epoch,
                kept: self.caches.epoch(),
            };
        }
        current.kept.clone()
    }

    pub(super) fn catalog(&self) -> Result<Arc<Catalog>> {
        let mut cached = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes_ever = self.reader.catalog_len()?;
        if bytes_ever != cached.bytes_ever {
            *cached = CachedCatalog {
                bytes_ever,
                catalog: Arc::new(read_catalog(&self.reader)?),
            };
        }
        Ok(Arc::clone(&cached.catalog))
    }
}

/// Reads the current catalog.
///
/// # Errors
/// The catalog is damaged together with its copy, or shorter than the directory says.
pub fn read_catalog(reader: &LogReader) -> Result<Catalog> {
    // Read before the catalog, whose length only grows.
    let bytes_least = reader.catalog_bytes_least()?;
    let bytes = reader.catalog_bytes()?;
    let uuid = &reader.meta().uuid;
    let (catalog, _, _) = decode_whole_catalog(reader.dir(), uuid, &bytes, bytes_least)?;
    Ok(catalog)
}
