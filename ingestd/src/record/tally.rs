//! The counts of a running capture, for the screen, and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counts of a running capture. Relaxed order suffices, because they guard no other memory.
#[derive(Debug, Default)]
pub struct Tally {
    records: AtomicU64,
    lost: AtomicU64,
    failed: AtomicBool,
}

impl Tally {
    /// Records passed to the daemon.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Records lost before they reached Loom.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the capture has failed, so that the recording must end.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn add_lost(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// The end of a capture.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// A sentence that says why it ended by itself; `None` if it was stopped.
    pub why: Option<String>,
    /// Notes about the recording that are not losses.
    pub notes: Vec<String>,
}
