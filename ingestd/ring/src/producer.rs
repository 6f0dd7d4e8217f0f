//! The producer's end of a ring: pushes records, and counts those that it drops.
//!
//! One thread owns it. A push stores the record's words and then the tail; it makes no system call, takes no lock and never waits.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crate::clock::ClockKind;
use crate::error::{PushError, RingError};
use crate::fork::Opener;
use crate::layout::{
    CLOCK_OFFSET, CLOSED_OFFSET, DROPPED_OFFSET, MAGIC, MAGIC_OFFSET, RECORD_BYTES_MAX, RecordHead,
    VERSION, VERSION_OFFSET, WHEN_FULL_OFFSET, WORD_BYTES, WhenFull,
};
use crate::memory::Shared;
use crate::protocol::{self, Claim, Memory};

pub struct Producer {
    memory: Shared,
    claim: Claim,
    opener: Opener,
    clock: ClockKind,
    when_full: WhenFull,
    pushed: u64,
    dropped: u64,
}

impl Producer {
    /// Maps the ring that the daemon handed over.
    pub fn open(ring: OwnedFd) -> Result<Producer, RingError> {
        let memory = Shared::open(ring)?;
        let header = |offset| memory.word(offset).load(Ordering::Relaxed);
        if header(MAGIC_OFFSET) != MAGIC || header(VERSION_OFFSET) != VERSION {
            return Err(RingError::NotARing("its header is of another version"));
        }
        let clock = ClockKind::of_word(header(CLOCK_OFFSET))
            .ok_or(RingError::NotARing("its clock is not known"))?;
        let when_full = WhenFull::of_word(header(WHEN_FULL_OFFSET))
            .ok_or(RingError::NotARing("its policy for overload is not known"))?;
        let opener = Opener::this_process().map_err(|error| RingError::Map(error.into()))?;
        Ok(Producer {
            memory,
            claim: Claim::new(),
            opener,
            clock,
            when_full,
            pushed: 0,
            dropped: 0,
        })
    }

    /// What to do with a record that finds the ring full.
    pub fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// Pushes a record, behind a stamp of the ring's clock if its source has own time.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), PushError> {
        let stamp = self.clock.stamp();
        let stamp_bytes = if stamp.is_some() { WORD_BYTES } else { 0 };
        let bytes = stamp_bytes + record.len();
        self.claim(stamp_bytes, record.len())?;
        let head = RecordHead {
            bytes: bytes as u16,
        };
        let mut at = self.claim.tail();
        for word in [Some(head.encode()), stamp].into_iter().flatten() {
            self.memory.store_word(at, word);
            at += WORD_BYTES as u64;
        }
        self.store_record(at, record);
        self.claim.publish(&self.memory, head.slot_bytes());
        self.pushed += 1;
        Ok(())
    }

    /// Counts a record that found the ring full and is dropped.
    #[inline]
    pub fn drop_one(&mut self) {
        self.dropped += 1;
        // A count needs no order: what must be exact is asked over the socket, which orders it.
        self.memory
            .word(DROPPED_OFFSET)
            .store(self.dropped, Ordering::Relaxed);
    }

    /// Records pushed into the ring.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Records counted as dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether this process itself opened the ring; false in a fork.
    pub fn is_own(&self) -> bool {
        self.opener.is_this_process()
    }

    /// Records that the daemon has not taken. Exact once the daemon is gone or has closed the ring.
    pub fn untaken(&self) -> u64 {
        let tail = self.claim.tail();
        let mut at = protocol::taken(&self.memory).min(tail);
        let mut records = 0;
        while at < tail {
            let word = self.memory.load_word(at);
            let Some(head) = RecordHead::decode(word, self.clock) else {
                break;
            };
            at += head.slot_bytes();
            records += 1;
        }
        records
    }

    /// Makes sure that a record of so many bytes, and its stamp, may be stored behind the tail.
    #[inline]
    fn claim(&mut self, stamp_bytes: usize, record_bytes: usize) -> Result<(), PushError> {
        let slot = slot_of(stamp_bytes, record_bytes)?;
        if !self.opener.is_this_process() {
            return Err(PushError::Forked);
        }
        if self.memory.word(CLOSED_OFFSET).load(Ordering::Relaxed) != 0 {
            return Err(PushError::Closed);
        }
        let has_room = self.claim.has_room(&self.memory, slot);
        has_room.then_some(()).ok_or(PushError::Full)
    }

    /// Stores the bytes from a position on; the last word is filled up with zeroes.
    #[inline]
    fn store_record(&self, at: u64, record: &[u8]) {
        let (words, rest) = record.as_chunks::<WORD_BYTES>();
        let mut at = at;
        for word in words {
            self.memory.store_word(at, u64::from_ne_bytes(*word));
            at += WORD_BYTES as u64;
        }
        if !rest.is_empty() {
            let mut last = [0; WORD_BYTES];
            for (byte, of_rest) in last.iter_mut().zip(rest) {
                *byte = *of_rest;
            }
            self.memory.store_word(at, u64::from_ne_bytes(last));
        }
    }
}

#[inline]
fn slot_of(stamp_bytes: usize, record_bytes: usize) -> Result<u64, PushError> {
    let bytes = stamp_bytes + record_bytes;
    if bytes > RECORD_BYTES_MAX {
        return Err(PushError::TooLong {
            bytes: record_bytes,
            limit: RECORD_BYTES_MAX - stamp_bytes,
        });
    }
    Ok(crate::layout::slot_bytes(bytes) as u64)
}
