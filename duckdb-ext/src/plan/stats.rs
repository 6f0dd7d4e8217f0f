//! What the latest scans of this process opened, pruned and read: the rows of `loom_scan_stats`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use loom_engine::query::{Scan, ScanStats};

use super::part::Part;

/// Scans that are remembered.
const LATEST: usize = 256;

#[derive(Clone)]
pub struct Record {
    /// Counted from 1 in this process.
    pub scan: u64,
    pub dir: String,
    pub source: String,
    pub stats: ScanStats,
    pub note: Option<&'static str>,
}

/// Of a directory that a call names and does not read.
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

/// One scan's place among the latest.
pub struct ScanEntry(Arc<Shared>);

impl ScanEntry {
    /// Remembers a scan as long as it runs, and then what it came to.
    pub fn begin(dir: &str, source: &str, scan: &Arc<Scan>) -> ScanEntry {
        ScanEntry::add(dir, source, State::Running(Arc::downgrade(scan)))
    }

    /// Remembers work that has no scan to ask: what it came to is said by [`ScanEntry::finish`], as often as it changes.
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

/// Remembers work that is done already.
pub fn remember(dir: &str, source: &str, stats: ScanStats) {
    ScanEntry::add(dir, source, State::Finished(stats));
}

/// Remembers that a directory was passed over, because it does not have the source.
pub fn skipped(dir: &str, source: &str) {
    ScanEntry::add(dir, source, State::Skipped);
}

/// Remembers what the snapshots of some parts came to.
pub fn remember_all(parts: &[Part]) {
    for part in parts {
        remember(&part.dir, &part.source.name, part.snapshot.stats());
    }
}

/// The latest scans, the oldest first.
pub fn latest() -> Vec<Record> {
    let latest: Vec<Arc<Shared>> = LATEST_SCANS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .cloned()
        .collect();
    latest
        .iter()
        .map(|shared| {
            let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            let (stats, note) = match &*state {
                State::Finished(stats) => (*stats, None),
                // Gone without an end: it never ran.
                State::Running(scan) => match scan.upgrade() {
                    Some(scan) => (scan.stats(), None),
                    None => (ScanStats::default(), None),
                },
                State::Skipped => (ScanStats::default(), Some(SKIPPED)),
            };
            Record {
                scan: shared.scan,
                dir: shared.dir.clone(),
                source: shared.source.clone(),
                stats,
                note,
            }
        })
        .collect()
}
