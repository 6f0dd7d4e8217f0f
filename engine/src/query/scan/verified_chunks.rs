//! Which chunks this process has verified, so that each checksum is computed once, and single records that it read of them.
//!
//! Pages of bits, made when a chunk of theirs is verified: memory follows what was read, not what a file claims. Records are kept in bounded memory: to
//! read one again takes a system call, many times what it takes to find it here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::proven::at;
use crate::types::{Address, ChunkNo};

const WORDS: usize = 64;
const PAGE_CHUNKS: u64 = WORDS as u64 * 64;

const RECORD_BYTES_MAX: u64 = 16 << 20;
/// What a record costs beside its bytes, about.
const ENTRY_BYTES: u64 = 96;
/// With what it costs; how many records are expected follows from it.
const RECORD_BYTES_USUAL: u64 = 192;
/// Each has its own lock and its part of the memory.
const SHARDS: usize = 4;

type Page = Arc<[AtomicU64; WORDS]>;

/// Belongs to one epoch of a directory: after lost staging, addresses may hold other records.
pub(crate) struct VerifiedChunks {
    pages: RwLock<HashMap<u64, Page>>,
    records: Cache<Address, Arc<[u8]>, RecordWeight>,
}

impl Default for VerifiedChunks {
    fn default() -> VerifiedChunks {
        let options = OptionsBuilder::new()
            .weight_capacity(RECORD_BYTES_MAX)
            .estimated_items_capacity((RECORD_BYTES_MAX / RECORD_BYTES_USUAL) as usize)
            .shards(SHARDS)
            .build()
            .expect("both capacities are given");
        VerifiedChunks {
            pages: RwLock::default(),
            records: Cache::with_options(
                options,
                RecordWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }
}

#[derive(Clone)]
struct RecordWeight;

impl Weighter<Address, Arc<[u8]>> for RecordWeight {
    fn weight(&self, _: &Address, record: &Arc<[u8]>) -> u64 {
        record.len() as u64 + ENTRY_BYTES
    }
}

impl VerifiedChunks {
    /// The record at an address, if it was kept.
    pub fn record(&self, address: Address) -> Option<Arc<[u8]>> {
        self.records.get(&address)
    }

    /// Keeps a record of a verified chunk.
    pub fn keep_record(&self, address: Address, record: &[u8]) {
        self.records.insert(address, record.into());
    }

    pub fn contains(&self, chunk: ChunkNo) -> bool {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let Some(page) = pages.get(&(chunk.0 / PAGE_CHUNKS)) else {
            return false;
        };
        let (word, bit) = place(chunk);
        // Relaxed: the bit says something of bytes that never change, and guards no memory.
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
    fn records_are_kept_in_bounded_memory() {
        let verified = VerifiedChunks::default();
        let most = RECORD_BYTES_MAX / RECORD_BYTES_USUAL;
        let record = |nth: u64| vec![nth as u8; (RECORD_BYTES_USUAL - ENTRY_BYTES) as usize];
        let address = |nth: u64| Address(nth * 100);
        for nth in 0..2 * most {
            verified.keep_record(address(nth), &record(nth));
        }
        let kept = |nth: &u64| {
            let found = verified.record(address(*nth));
            found.is_some_and(|found| {
                assert_eq!(*found, *record(*nth));
                true
            })
        };
        let kept = (0..2 * most).filter(kept).count() as u64;
        assert!((most / 2..=most).contains(&kept), "{kept} of {most}");
        assert!(verified.record(Address(1)).is_none());
    }

    #[test]
    fn only_what_was_inserted_is_verified() {
        let verified = VerifiedChunks::default();
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
