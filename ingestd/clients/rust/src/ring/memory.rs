//! The mapped pages of a ring as atomic words. No other code accesses memory that another process shares.
//!
//! No value that is read from the ring decides which address is accessed: offsets come from [`layout`](super::layout) and from positions modulo the
//! capacity.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{MemfdFlags, SealFlags};

use super::error::RingError;
use super::layout::{
    CAPACITY_OFFSET, HEAD_OFFSET, RECORDS_OFFSET, TAIL_OFFSET, WORD_BYTES, capacity_of,
};
use super::protocol::{Mark, Memory};

#[derive(Clone)]
pub struct Shared {
    map: Arc<MmapRaw>,
    /// The start of the mapping. It is outside the mapping, so no store of a word can change it, as the compiler sees.
    base: *mut u8,
    /// A power of two; the mapping holds so many bytes from `RECORDS_OFFSET` on.
    capacity_bytes: u64,
}

// SAFETY: the pointer is that of the mapping beside it, which any thread may hold, and all access is through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn of(map: MmapRaw, capacity_bytes: u64) -> Shared {
        Shared {
            base: map.as_mut_ptr(),
            map: Arc::new(map),
            capacity_bytes,
        }
    }

    /// A new ring, zeroed and allocated in full. Nobody can change its length.
    pub fn create(capacity_bytes: u64) -> Result<(Shared, OwnedFd), RingError> {
        let capacity_bytes = capacity_of(capacity_bytes)?;
        let bytes = RECORDS_OFFSET as u64 + capacity_bytes;
        let sealed = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = rustix::fs::memfd_create("loom-ring", flags)?;
            // The file is never sparse, because access to a missing page could raise a signal.
            rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
            rustix::fs::fcntl_add_seals(
                &memory,
                SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
            )?;
            Ok(memory)
        };
        let memory = sealed().map_err(|error: rustix::io::Errno| RingError::Create {
            bytes,
            source: error.into(),
        })?;
        let file = File::from(memory);
        let shared = Shared::of(map(&file, bytes as usize)?, capacity_bytes);
        Ok((shared, file.into()))
    }

    /// Maps a ring that another process created.
    pub fn open(memory: OwnedFd) -> Result<Shared, RingError> {
        let seals = rustix::fs::fcntl_get_seals(&memory)
            .map_err(|_| RingError::NotARing("it is not a memfd"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RingError::NotARing("it is not sealed against shrinking"));
        }
        let file = File::from(memory);
        let bytes = file.metadata().map_err(RingError::Map)?.len();
        let capacity_bytes = bytes
            .checked_sub(RECORDS_OFFSET as u64)
            .filter(|capacity| *capacity > 0 && capacity_of(*capacity).is_ok())
            .ok_or(RingError::NotARing("its length is not that of a ring"))?;
        let shared = Shared::of(map(&file, bytes as usize)?, capacity_bytes);
        if shared.word(CAPACITY_OFFSET).load(Ordering::Relaxed) != capacity_bytes {
            return Err(RingError::NotARing("its header names another capacity"));
        }
        Ok(shared)
    }

    /// Frees the memory of a range of the mapping in every process that maps it, as far as it has whole pages of this machine. They read as zeroes from
    /// then on.
    pub fn give_back(&self, from: usize, bytes: usize) {
        let pages = whole_pages(from..from + bytes, rustix::param::page_size());
        if pages.is_empty() {
            return;
        }
        // SAFETY: the call checks that the range lies in the mapping. All access by this process is through atomics, so nothing assumes that the
        // words keep their values.
        let given_back = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::Remove, pages.start, pages.len())
        };
        given_back.expect("a memfd takes pages of its mapping back");
    }

    /// As `give_back`, for so many bytes of records from a position on.
    pub fn give_records_back(&self, at: u64, bytes: u64) {
        let place = at & (self.capacity_bytes - 1);
        let to_end = bytes.min(self.capacity_bytes - place);
        self.give_back(RECORDS_OFFSET + place as usize, to_end as usize);
        self.give_back(RECORDS_OFFSET, (bytes - to_end) as usize);
    }

    /// A word of the first three pages.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(WORD_BYTES) && offset < RECORDS_OFFSET,
            "{offset} is a word of the ring's first pages"
        );
        // SAFETY: the mapping is at least `RECORDS_OFFSET` bytes long and begins on a page, so the word lies in it and is aligned. The memfd
        // is sealed against shrinking, so the page stays. All access by this process is through these atomics.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    /// The word of the records at a position.
    #[inline]
    fn record_word(&self, at: u64) -> &AtomicU64 {
        let place = at & (self.capacity_bytes - 1) & !(WORD_BYTES as u64 - 1);
        // SAFETY: the place is a multiple of 8 below the capacity, and the mapping holds that many bytes from `RECORDS_OFFSET`, a multiple of
        // 8, on. The memfd is sealed against shrinking, so the page stays. All access by this process is through these atomics.
        unsafe {
            &*self
                .base
                .add(RECORDS_OFFSET + place as usize)
                .cast::<AtomicU64>()
        }
    }
}

/// The pages that lie in a range of a mapping as a whole. A machine's pages may be longer than those of the layout, so one may also hold bytes that stay.
fn whole_pages(range: Range<usize>, page_bytes: usize) -> Range<usize> {
    range.start.next_multiple_of(page_bytes)..range.end / page_bytes * page_bytes
}

fn map(file: &File, bytes: usize) -> Result<MmapRaw, RingError> {
    let map = MmapOptions::new().len(bytes).map_raw(file);
    let map = map.map_err(|error: io::Error| RingError::Map(error))?;
    assert_eq!(
        map.len(),
        bytes,
        "a mapping has the length that was asked for"
    );
    Ok(map)
}

impl Mark for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

impl Memory for Shared {
    type Mark = AtomicU64;

    #[inline]
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    #[inline]
    fn tail(&self) -> &AtomicU64 {
        self.word(TAIL_OFFSET)
    }

    #[inline]
    fn head(&self) -> &AtomicU64 {
        self.word(HEAD_OFFSET)
    }

    // Relaxed: the marks order the words.
    #[inline]
    fn store_word(&self, at: u64, word: u64) {
        self.record_word(at).store(word, Ordering::Relaxed);
    }

    #[inline]
    fn load_word(&self, at: u64) -> u64 {
        self.record_word(at).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_page_is_freed_if_all_its_bytes_are(from in 0..40usize, units in 0..200usize, shift in 12..=16u32) {
            // The layout's pages are the units.
            let (unit, page) = (4096, 1usize << shift);
            let range = from * unit..(from + units) * unit;
            let freed = whole_pages(range.clone(), page);
            for at in (0..300 * unit).step_by(page) {
                let is_whole = (at..at + page).step_by(unit).all(|at| range.contains(&at));
                prop_assert_eq!(freed.contains(&at), is_whole, "{} in {:?}", at, range);
            }
        }
    }
}
