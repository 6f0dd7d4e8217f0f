//! Counts a query's work: nodes opened, chunks pruned and read, bytes read. Its threads share the counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one query at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanStats {
    /// Summaries and roll-ups that were read.
    pub nodes_opened: u64,
    /// Chunks that lie below the snapshot's position and are retained.
    pub chunks_total: u64,
    /// Chunks that were passed over or answered without being read.
    pub chunks_pruned: u64,
    /// Those of them that were passed over because no row in their units is wanted by the zones of its fields, whether or not they hold the source.
    pub chunks_outside_zones: u64,
    /// Chunks of which at least one record was read.
    pub chunks_read: u64,
    /// Bytes read from the three logs.
    pub bytes_read: u64,
}

impl ScanStats {
    /// The share of the log that the scan has passed, from 0 to 1.
    pub fn progress(&self) -> f64 {
        match self.chunks_total {
            0 => 1.0,
            total => (self.chunks_pruned + self.chunks_read) as f64 / total as f64,
        }
    }
}

/// The running counts. They are independent of each other, so relaxed additions suffice.
#[derive(Debug, Default)]
pub(crate) struct ScanCounters {
    nodes_opened: AtomicU64,
    chunks_total: AtomicU64,
    chunks_read: AtomicU64,
    chunks_passed: AtomicU64,
    chunks_outside_zones: AtomicU64,
    bytes_read: AtomicU64,
}

impl ScanCounters {
    pub fn node_opened(&self) {
        self.nodes_opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one more pass over this many chunks begins.
    pub fn chunks_begun(&self, chunks: u64) {
        self.chunks_total.fetch_max(chunks, Ordering::Relaxed);
    }

    /// Notes that the walk has passed this many chunks, read or not.
    pub fn chunks_passed(&self, chunks: u64) {
        self.chunks_passed.fetch_max(chunks, Ordering::Relaxed);
    }

    pub fn chunk_read(&self) {
        self.chunks_read(1);
    }

    pub fn chunks_read(&self, chunks: u64) {
        self.chunks_read.fetch_add(chunks, Ordering::Relaxed);
    }

    /// So many chunks are not read, because of the zones of their units.
    pub fn chunks_outside_zones(&self, chunks: u64) {
        self.chunks_outside_zones
            .fetch_add(chunks, Ordering::Relaxed);
    }

    pub fn bytes_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds the counts of another part of the same query.
    pub fn absorb(&self, other: &ScanCounters) {
        let stats = other.stats();
        self.nodes_opened
            .fetch_add(stats.nodes_opened, Ordering::Relaxed);
        self.chunks_read
            .fetch_add(stats.chunks_read, Ordering::Relaxed);
        self.bytes_read
            .fetch_add(stats.bytes_read, Ordering::Relaxed);
        self.chunks_outside_zones(stats.chunks_outside_zones);
        self.chunks_begun(stats.chunks_total);
        self.chunks_passed(stats.chunks_read + stats.chunks_pruned);
    }

    pub fn stats(&self) -> ScanStats {
        let chunks_read = self.chunks_read.load(Ordering::Relaxed);
        let passed = self.chunks_passed.load(Ordering::Relaxed);
        ScanStats {
            nodes_opened: self.nodes_opened.load(Ordering::Relaxed),
            chunks_total: self.chunks_total.load(Ordering::Relaxed),
            chunks_pruned: passed.saturating_sub(chunks_read),
            chunks_outside_zones: self.chunks_outside_zones.load(Ordering::Relaxed),
            chunks_read,
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
        }
    }
}
