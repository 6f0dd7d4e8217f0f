//! The sizes by which questions divide their work.
//!
//! A directory is opened with them. Tests use sizes so small that little data already has several parts.

use super::contrast::frequent::{CONTRAST_SHARE, CONTRAST_VALUES_MOST, FrequentLimits};

#[derive(Copy, Clone, Debug)]
pub(crate) struct Tuning {
    /// Chunks that the caller's thread reads before others help. Reading them takes several times as long as starting a thread.
    pub alone_chunks: usize,
    /// The least bytes of chunks that a thread takes at a time.
    pub claim_bytes: u32,
    /// The most memory for counts by bin of a group of buckets.
    pub bin_bytes_most: usize,
    /// The most values that are collected at once, of 8 bytes each.
    pub keys_most: u64,
    /// Up to this many sources are searched one by one in a node, and in a unit, which is read whole if more are wanted.
    pub sources_few: usize,
    /// The most different values of a field that a contrast counts in one descent.
    pub contrast: FrequentLimits,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            alone_chunks: 48,
            claim_bytes: 1 << 20,
            bin_bytes_most: 64 << 20,
            keys_most: 4 << 20,
            sources_few: 16,
            contrast: FrequentLimits {
                most: CONTRAST_VALUES_MOST,
                kept: CONTRAST_SHARE,
            },
        }
    }
}
