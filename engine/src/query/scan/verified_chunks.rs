//! The chunks of a directory that this process has verified, so that each checksum is computed once, and single records from them.
//!
//! Pages of bits are allocated when one of their chunks is verified, so memory follows the chunks that were read and not the claims of a file. The records of
//! all directories share bounded memory: reading a record again takes a system call, which costs many times a look-up here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::log::Keeper;
use crate::proven::at;
use crate::query::shared_cache::{Kept, SharedCache};
use crate::types::{Address, ChunkNo};

const WORDS: usize = 64;
const PAGE_CHUNKS: u64 = WORDS as u64 * 64;

/// The usual bytes of a record with its overhead.
pub(in crate::query) const RECORD_BYTES_USUAL: u64 = 200;

type Page = Arc<[AtomicU64; WORDS]>;

/// The records of all keepers.
pub(crate) type SharedRecords = SharedCache<Address, Arc<[u8]>>;

impl Kept for Arc<[u8]> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// One keeper, which returns its records when it is dropped.
pub(crate) struct VerifiedChunks {
    pages: RwLock<HashMap<u64, Page>>,
    keeper: Keeper,
    records: Arc<SharedRecords>,
}

impl Drop for VerifiedChunks {
    fn drop(&mut self) {
        self.records.forget(self.keeper);
    }
}

impl VerifiedChunks {
    pub fn of(keeper: Keeper, records: Arc<SharedRecords>) -> VerifiedChunks {
        VerifiedChunks {
            pages: RwLock::default(),
            keeper,
            records,
        }
    }

    /// Returns the record at an address, if it was kept.
    pub fn record(&self, address: Address) -> Option<Arc<[u8]>> {
        self.records.get(self.keeper, address)
    }

    pub fn keep_record(&self, address: Address, record: &[u8]) {
        self.records.insert(self.keeper, address, record.into());
    }

    pub fn contains(&self, chunk: ChunkNo) -> bool {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let Some(page) = pages.get(&(chunk.0 / PAGE_CHUNKS)) else {
            return false;
        };
        let (word, bit) = place(chunk);
        // Relaxed: the bit is about bytes that never change, and guards no memory.
        at(page.as_slice(), word).load(Ordering::Relaxed) & bit != 0
    }

    pub fn insert(&self, chunk: ChunkNo) {
        let number = chunk.0 / PAGE_CHUNKS;
        let found = {
            let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
            pages.get(&number).cloned()
        };
        let page = found.unwrap_or_else(|| {
            let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
            let page = pages
                .entry(number)
                .or_insert_with(|| Arc::new([const { AtomicU64::new(0) }; WORDS]));
            Arc::clone(page)
        });
        let (word, bit) = place(chunk);
        at(page.as_slice(), word).fetch_or(bit, Ordering::Relaxed);
    }
}

fn place(chunk: ChunkNo) -> (usize, u64) {
    let within = chunk.0 % PAGE_CHUNKS;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inserted_chunks_are_verified() {
        let records = Arc::new(SharedCache::of_bytes(0, RECORD_BYTES_USUAL));
        let verified = VerifiedChunks::of(Keeper::unique(), records);
        let inserted = [0, 63, 64, 4095, 4096, 1 << 50];
        for chunk in inserted {
            verified.insert(ChunkNo(chunk));
        }
        for chunk in (0..9000).chain([1 << 50, (1 << 50) + 1]) {
            assert_eq!(
                verified.contains(ChunkNo(chunk)),
                inserted.contains(&chunk),
                "chunk {chunk}"
            );
        }
    }
}
