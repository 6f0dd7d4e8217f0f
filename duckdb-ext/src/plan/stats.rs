//! The rows of `loom_scan_stats`: what the latest scans of this process opened, pruned and read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use loom_engine::query::{Scan, ScanStats};

use super::part::Part;

/// The number of scans that are remembered.
const LATEST: usize = 256;

#[derive(Clone)]
pub struct Record {
    /// The number of the scan in this process, from 1.
    pub scan: u64,
    pub dir: String,
    pub source: String,
    pub stats: ScanStats,
    pub note: Option<&'static str>,
}

/// The note on a directory that a call names but does not read.
const SKIPPED: &str = "skipped: the directory does not have the source";

enum State {
    Running(Weak<Scan>),
    Finished(ScanStats),
    Skipped,
}

struct Shared {
    scan: u64,
    dir: String,
    source: String,
    state: Mutex<State>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static LATEST_SCANS: Mutex<VecDeque<Arc<Shared>>> = Mutex::new(VecDeque::new());

/// The entry of one scan.
pub struct ScanEntry(Arc<Shared>);

impl ScanEntry {
    /// Adds a running scan. Its counters are read from the scan itself until [`ScanEntry::finish`] sets them.
    pub fn begin(dir: &str, source: &str, scan: &Arc<Scan>) -> ScanEntry {
        ScanEntry::add(dir, source, State::Running(Arc::downgrade(scan)))
    }

    /// Adds work that is not a scan: [`ScanEntry::finish`] sets its counters whenever they change.
    pub fn pending(dir: &str, source: &str) -> ScanEntry {
        ScanEntry::add(dir, source, State::Finished(ScanStats::default()))
    }

    fn add(dir: &str, source: &str, state: State) -> ScanEntry {
        let shared = Arc::new(Shared {
            scan: NEXT.fetch_add(1, Ordering::Relaxed),
            dir: dir.to_owned(),
            source: source.to_owned(),
            state: Mutex::new(state),
        });
        let mut latest = LATEST_SCANS.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() == LATEST {
            latest.pop_front();
        }
        latest.push_back(Arc::clone(&shared));
        ScanEntry(shared)
    }

    pub fn finish(&self, stats: ScanStats) {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Finished(stats);
    }
}

/// Records that a call does not read a directory, because the directory does not have the source.
pub fn skipped(dir: &str, source: &str) {
    ScanEntry::add(dir, source, State::Skipped);
}

/// Records the reads of finished work, part by part.
pub fn remember_all(parts: &[Part]) {
    for part in parts {
        let stats = State::Finished(part.snapshot.stats());
        ScanEntry::add(&part.dir, &part.source.name, stats);
    }
}

/// The latest scans, the oldest first.
pub fn latest() -> Vec<Record> {
    let latest = LATEST_SCANS.lock().unwrap_or_else(PoisonError::into_inner);
    let record = |shared: &Arc<Shared>| {
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (stats, note) = match &*state {
            State::Finished(stats) => (*stats, None),
            // A scan that is gone without an end never ran.
            State::Running(scan) => (
                scan.upgrade()
                    .map_or_else(ScanStats::default, |scan| scan.stats()),
                None,
            ),
            State::Skipped => (ScanStats::default(), Some(SKIPPED)),
        };
        Record {
            scan: shared.scan,
            dir: shared.dir.clone(),
            source: shared.source.clone(),
            stats,
            note,
        }
    };
    latest.iter().map(record).collect()
}
