//! The process's caches of what it has read: one budget of bytes for all directories that it has open and for all kinds of entries.
//!
//! Each kind has a fixed part of the budget and evicts by its own rule, so no kind waits for another and no two locks are held together.
//! The working memory of a thread is its own and does not count.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::forest::node_cache::{NodeCache, SharedNodes};
use super::scan::verified_chunks::{RECORD_BYTES_USUAL, SharedRecords, VerifiedChunks};
use crate::log::{Keeper, SharedUnits, UnitCache};

/// The budget of a process that does not set one.
pub const CACHE_BYTES_MAX: u64 = 256 << 20;

/// The budget is divided into this many parts. Units take what nodes and records do not.
const PARTS: u64 = 15;
const NODES_PARTS: u64 = 4;

pub(crate) struct Caches {
    nodes: Arc<SharedNodes>,
    records: Arc<SharedRecords>,
    units: Arc<SharedUnits>,
    bytes_max: Mutex<u64>,
}

/// The cached entries of one epoch of a directory.
#[derive(Clone)]
pub(crate) struct KeptOfEpoch {
    pub nodes: Arc<NodeCache>,
    pub chunks: Arc<VerifiedChunks>,
    pub units: Arc<UnitCache>,
}

/// The caches that all directories of the process share.
static OF_PROCESS: LazyLock<Arc<Caches>> =
    LazyLock::new(|| Arc::new(Caches::of_bytes(CACHE_BYTES_MAX)));

/// Sets the most bytes that this process caches from now on, for all directories together.
pub fn set_cache_bytes_max(bytes_max: u64) {
    OF_PROCESS.set_bytes_max(bytes_max);
}

/// The bytes that this process caches now.
pub fn cache_bytes() -> u64 {
    OF_PROCESS.bytes()
}

impl Caches {
    pub fn of_process() -> Arc<Caches> {
        Arc::clone(&OF_PROCESS)
    }

    /// Empty caches with room for `bytes_max`.
    pub fn of_bytes(bytes_max: u64) -> Caches {
        let Parts {
            nodes,
            records,
            units,
        } = Parts::of(bytes_max);
        Caches {
            nodes: Arc::new(SharedNodes::of_bytes(nodes)),
            records: Arc::new(SharedRecords::of_bytes(records, RECORD_BYTES_USUAL)),
            units: Arc::new(SharedUnits::of_bytes(units as usize)),
            bytes_max: Mutex::new(bytes_max),
        }
    }

    pub fn set_bytes_max(&self, bytes_max: u64) {
        let mut current = self
            .bytes_max
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *current == bytes_max {
            return;
        }
        let Parts {
            nodes,
            records,
            units,
        } = Parts::of(bytes_max);
        self.nodes.set_bytes_max(nodes);
        self.records.set_bytes_max(records);
        self.units.set_bytes_max(units as usize);
        *current = bytes_max;
    }

    /// The memory that all entries take, about.
    pub fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.records.bytes() + self.units.bytes() as u64
    }

    /// Begins an epoch, with nothing cached.
    pub(super) fn epoch(&self) -> KeptOfEpoch {
        let keeper = Keeper::unique();
        KeptOfEpoch {
            nodes: Arc::new(NodeCache::of(keeper, Arc::clone(&self.nodes))),
            chunks: Arc::new(VerifiedChunks::of(keeper, Arc::clone(&self.records))),
            units: Arc::new(UnitCache::of(keeper, Arc::clone(&self.units))),
        }
    }
}

/// The bytes of each kind.
struct Parts {
    nodes: u64,
    records: u64,
    units: u64,
}

impl Parts {
    fn of(bytes_max: u64) -> Parts {
        let records = bytes_max / PARTS;
        let nodes = records * NODES_PARTS;
        Parts {
            nodes,
            records,
            units: bytes_max - nodes - records,
        }
    }
}
