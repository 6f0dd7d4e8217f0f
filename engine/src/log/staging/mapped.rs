//! Staging in the writer: one mapped file with the control page, two tables of pending losses and two blocks of each log.
//!
//! All raw memory of `log` is handled here. Bounds come from the layout, which is fixed at creation, and are asserted; no content of the mapped file decides
//! which memory is touched.

use std::sync::Arc;

use memmap2::MmapRaw;

use super::control::{self, BLOCKS_OFFSET, DaemonWord, Header, OWNER_OFFSET, Owner, Word};
use super::protocol::{self, Protocol};
use crate::error::Result;
use crate::log::files::storage::StorageFile;
use crate::log::options::Geometry;
use crate::log::sync::{AtomicU64, Memory, Ordering};
use crate::types::{Address, LogKind, PerLog};

/// The offsets of the blocks in the file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StagingLayout {
    block_bytes: PerLog<u64>,
}

impl StagingLayout {
    /// Returns `None` for block sizes that no staging has: they may come from a file.
    pub fn new(block_bytes: PerLog<u64>) -> Option<StagingLayout> {
        let sound = block_bytes
            .iter()
            .all(|block| block.is_power_of_two() && (4096..=1 << 40).contains(block));
        sound.then_some(StagingLayout { block_bytes })
    }

    pub fn of(geometry: &Geometry) -> StagingLayout {
        StagingLayout {
            block_bytes: geometry.block_bytes,
        }
    }

    pub fn total_bytes(&self) -> u64 {
        BLOCKS_OFFSET + 2 * self.block_bytes.iter().sum::<u64>()
    }

    pub fn block(&self, log: LogKind) -> u64 {
        self.block_bytes[log]
    }

    pub fn offset(&self, log: LogKind, address: Address) -> u64 {
        let PerLog {
            records, chunks, ..
        } = self.block_bytes;
        let first = match log {
            LogKind::Records => 0,
            LogKind::Chunks => 2 * records,
            LogKind::Times => 2 * (records + chunks),
        };
        BLOCKS_OFFSET + first + address.0 % (2 * self.block(log))
    }

    /// Bytes from an address to the end of its block.
    pub fn run_bytes(&self, log: LogKind, address: Address) -> u64 {
        self.block(log) - address.0 % self.block(log)
    }
}

/// The mapped file. The writer thread stores bytes, tails, heads and begins; the flusher stores flushed and durable.
#[derive(Debug)]
pub struct Staging {
    map: Arc<MmapRaw>,
    layout: StagingLayout,
    /// Stays open while the writer lives, for the lock.
    _file: Arc<dyn StorageFile>,
}

impl Staging {
    /// Maps a new file, which must be fully allocated, and writes its header and the daemon's words. It records the owner if the file's lock is held.
    pub fn create(
        file: &Arc<dyn StorageFile>,
        header: &Header,
        owner: Option<&Owner>,
        layout: StagingLayout,
    ) -> Result<Staging> {
        let bytes = layout.total_bytes() as usize;
        let staging = Staging {
            map: file.map(bytes)?,
            layout,
            _file: Arc::clone(file),
        };
        assert_eq!(
            staging.map.len(),
            bytes,
            "a mapping has the length that was asked for"
        );
        let header = header.encode();
        store_words(
            staging.words(0, header.len() / 8),
            header.as_chunks::<8>().0,
        );
        if let Some(owner) = owner {
            let owner = owner.encode();
            let words = staging.words(OWNER_OFFSET, owner.len() / 8);
            store_words(words, owner.as_chunks::<8>().0);
        }
        for word in DaemonWord::ALL {
            staging.announce_daemon(word, 0);
        }
        Ok(staging)
    }

    pub fn layout(&self) -> StagingLayout {
        self.layout
    }

    /// Announces a word of a log to readers. Only one thread stores each word.
    pub fn announce(&self, log: LogKind, word: Word, value: Address) {
        let at = control::word_offset(log, word);
        protocol::announce::<Memory>(self.word(at), self.word(at + 8), value.0);
    }

    /// Announces a word of the daemon to readers.
    pub fn announce_daemon(&self, word: DaemonWord, value: u64) {
        let at = control::daemon_offset(word);
        protocol::announce::<Memory>(self.word(at), self.word(at + 8), value);
    }

    /// Stores the table of pending losses with that number beside the one before it, and then announces it to readers. Only the writer thread calls this.
    pub fn store_losses(&self, number: u64, table: &[u8]) {
        let words = self.words(control::loss_table_offset(number), table.len() / 8);
        // The new table is stored after the number of the one before: a reader that copies a byte of the new table and loads the number again sees that number.
        // Pairs with the fence in `Attachment::losses`.
        Memory::fence_after_head();
        store_words(words, table.as_chunks::<8>().0);
        self.announce_daemon(DaemonWord::LossTable, number);
    }

    /// Stores bytes of a log with relaxed word stores, many of them past the cache; the caller calls `settle` before it publishes them. They must stay in one
    /// block, with address and length multiples of 8.
    pub fn copy_in(&self, log: LogKind, address: Address, bytes: &[u8]) {
        assert!(
            address.0.is_multiple_of(8)
                && bytes.len().is_multiple_of(8)
                && bytes.len() as u64 <= self.layout.run_bytes(log, address),
            "{} bytes at {address} of the {log} are whole words of one block",
            bytes.len()
        );
        let words = self.words(self.layout.offset(log, address), bytes.len() / 8);
        if bytes.len() >= PAST_CACHE_BYTES_MIN {
            store_past_cache(words, bytes.as_chunks::<8>().0);
        } else {
            store_words(words, bytes.as_chunks::<8>().0);
        }
    }

    /// Orders everything that `copy_in` stored before later stores. It must be called before each mark that covers the bytes, and after a head before the bytes
    /// that follow it, because release alone does not order stores past the cache.
    #[inline]
    pub fn settle(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }

    /// Loads bytes of a log with relaxed word loads. They must stay in one block, and the address must be a multiple of 8. A caller that may race with the
    /// reuse of the block must load the head afterwards.
    pub fn copy_out(&self, log: LogKind, address: Address, buffer: &mut [u8]) {
        assert!(
            buffer.len() as u64 <= self.layout.run_bytes(log, address),
            "{} bytes at {address} of the {log} are of one block",
            buffer.len()
        );
        let words = self.words(self.layout.offset(log, address), buffer.len().div_ceil(8));
        for (word, bytes) in words.iter().zip(buffer.chunks_mut(8)) {
            let loaded = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes
                .iter_mut()
                .zip(loaded)
                .for_each(|(byte, loaded)| *byte = loaded);
        }
    }

    /// Borrows the bytes of a log from `address`, which must stay in one block.
    ///
    /// # Safety
    ///
    /// Until the slice is dropped no thread of this process may store into that range: it must lie below the appended end and at or above the bytes that the
    /// flusher released. The address must be a multiple of 8.
    pub unsafe fn stable_bytes(&self, log: LogKind, address: Address, bytes: usize) -> &[u8] {
        assert!(
            bytes as u64 <= self.layout.run_bytes(log, address),
            "{bytes} bytes at {address} of the {log} are of one block"
        );
        let words = self.words(self.layout.offset(log, address), bytes.div_ceil(8));
        // SAFETY: `words` borrows that many initialised, mapped bytes; the caller promises that they do not change. Another process that
        // may write the file has this user's rights over this process's memory anyway.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes) }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        let [word] = self.words(offset, 1) else {
            unreachable!("one word was asked for");
        };
        word
    }

    /// Borrows the words from an offset in the file, which must be a multiple of 8.
    fn words(&self, offset: u64, words: usize) -> &[AtomicU64] {
        let end = offset + 8 * words as u64;
        assert!(
            offset.is_multiple_of(8) && end <= self.map.len() as u64,
            "words {offset} to {end} lie in the {} bytes of staging",
            self.map.len()
        );
        // SAFETY: the range lies in the mapping, which lives as long as `self`, and is aligned: mappings begin on a page. The file was
        // allocated in full and is never made shorter while it is mapped, so every page is there. All access by this process is through
        // these atomics, or through `stable_bytes` while nobody stores.
        unsafe {
            std::slice::from_raw_parts(
                self.map
                    .as_mut_ptr()
                    .add(offset as usize)
                    .cast::<AtomicU64>(),
                words,
            )
        }
    }
}

/// From this length on stores go past the cache, because the flusher reads the bytes long after they would have left it.
const PAST_CACHE_BYTES_MIN: usize = 1024;

/// The naive form of storing.
fn store_words(words: &[AtomicU64], bytes: &[[u8; 8]]) {
    for (word, bytes) in words.iter().zip(bytes) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

// Miri does not support stores past the cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store_past_cache(words: &[AtomicU64], bytes: &[[u8; 8]]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    // Pairs of words lie at multiples of 16 behind an odd word. The odd word and the rest of a line are stored by themselves.
    let (words, _) = words.split_at(bytes.len().min(words.len()));
    let head = usize::from(!words.as_ptr().addr().is_multiple_of(16)).min(words.len());
    let (odd, words) = words.split_at(head);
    let (odd_bytes, bytes) = bytes.split_at(head);
    store_words(odd, odd_bytes);
    let (lines, rest) = words.as_chunks::<8>();
    let (line_bytes, rest_bytes) = bytes.as_chunks::<8>();
    for (line, bytes) in lines.iter().zip(line_bytes) {
        let (line, bytes) = (line.as_ptr(), bytes.as_ptr());
        for pair in 0..4 {
            // SAFETY: both pointers are valid for four times 16 bytes, and the target is a multiple of 16. Readers wait for a mark before they read there, and
            // `settle` orders the store before every mark.
            unsafe {
                let bytes = _mm_loadu_si128(bytes.cast::<__m128i>().add(pair));
                _mm_stream_si128(line.cast::<__m128i>().cast_mut().add(pair), bytes);
            }
        }
    }
    store_words(rest, rest_bytes);
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn store_past_cache(words: &[AtomicU64], bytes: &[[u8; 8]]) {
    store_words(words, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_past_the_cache_equal_plain_ones() {
        for words in 0..40 {
            let bytes: Vec<u8> = (0..8 * words).map(|i| (i * 7 + 3) as u8).collect();
            let [plain, past]: [Vec<AtomicU64>; 2] =
                std::array::from_fn(|_| (0..41).map(AtomicU64::new).collect());
            store_words(&plain, bytes.as_chunks::<8>().0);
            store_past_cache(&past, bytes.as_chunks::<8>().0);
            let values = |words: &[AtomicU64]| {
                words
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed))
                    .collect::<Vec<u64>>()
            };
            assert_eq!(values(&plain), values(&past));
        }
    }

    #[test]
    fn blocks_alternate_and_do_not_overlap() {
        let layout = StagingLayout::new([1 << 16, 1 << 14, 1 << 13].into()).unwrap();
        let offset = |log, address| layout.offset(log, Address(address));
        assert_eq!(offset(LogKind::Records, 0), BLOCKS_OFFSET);
        assert_eq!(
            offset(LogKind::Records, (1 << 16) + 8),
            BLOCKS_OFFSET + (1 << 16) + 8
        );
        assert_eq!(offset(LogKind::Records, 2 << 16), BLOCKS_OFFSET);
        assert_eq!(offset(LogKind::Chunks, 0), BLOCKS_OFFSET + (2 << 16));
        assert_eq!(
            offset(LogKind::Times, 3 << 13),
            BLOCKS_OFFSET + (2 << 16) + (2 << 14) + (1 << 13)
        );
        assert_eq!(
            layout.total_bytes(),
            BLOCKS_OFFSET + 2 * ((1 << 16) + (1 << 14) + (1 << 13))
        );
        assert_eq!(layout.run_bytes(LogKind::Times, Address((1 << 13) - 8)), 8);
        assert_eq!(StagingLayout::new([0, 4096, 4096].into()), None);
        assert_eq!(StagingLayout::new([u64::MAX, 4096, 4096].into()), None);
    }
}
