//! What a capture has taken so far, for the screen, and how it ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts that a capture keeps while it runs. They guard no other memory.
#[derive(Debug, Default)]
pub struct Tally {
    records: AtomicU64,
    lost: AtomicU64,
    failed: AtomicBool,
}

impl Tally {
    /// Records handed to the daemon.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Records lost before they reached Loom.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The capture cannot go on, so that the recording ends.
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

/// What a capture knows at its end.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Why it ended by itself, in a sentence; else it was stopped.
    pub why: Option<String>,
    /// Sentences about the recording that are no losses.
    pub notes: Vec<String>,
}
