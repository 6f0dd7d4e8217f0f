//! The sizes by which questions cut their work into parts.
//!
//! Directories are opened with them. Tests open theirs with sizes so small that little data already has several parts.

#[derive(Copy, Clone, Debug)]
pub(crate) struct Tuning {
    /// Chunks that the caller's thread reads before others help: these take several times what it costs to begin a thread.
    pub alone_chunks: usize,
    /// A thread takes at least so many bytes of chunks at a time.
    pub claim_bytes: u32,
    /// Counts by bin of a group of buckets take at most this.
    pub bin_bytes_most: usize,
    /// At most so many values are collected at once, of 8 bytes each.
    pub keys_most: u64,
    /// So many sources are looked for one by one: in a node, and in a unit, which is read whole if more are wanted of it.
    pub sources_few: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            alone_chunks: 48,
            claim_bytes: 1 << 20,
            bin_bytes_most: 64 << 20,
            keys_most: 4 << 20,
            sources_few: 16,
        }
    }
}
