//! How many clients there are and what they hold: counted where it happens, read by the status. Relaxed: a count guards no memory.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) connections: AtomicU64,
    /// Rings that are open, and their memory.
    pub(super) rings: AtomicU64,
    pub(super) ring_bytes: AtomicU64,
    /// Records that producers dropped because their ring was full, since the daemon started.
    pub(super) ring_dropped: AtomicU64,
}

impl Clients {
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }

    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn ring_dropped(&self) -> u64 {
        self.ring_dropped.load(Ordering::Relaxed)
    }
}
