//! Counts of the clients and what they hold, changed where it happens and read by the status. Relaxed: a count guards no memory.

use std::sync::atomic::AtomicU64;

#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) connections: AtomicU64,
    /// Rings that are open, and their memory.
    pub(super) rings: AtomicU64,
    pub(super) ring_bytes: AtomicU64,
    /// Records that producers dropped because their ring was full, since the daemon started.
    pub(super) ring_dropped: AtomicU64,
}
