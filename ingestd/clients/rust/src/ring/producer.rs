//! The producer's end of a ring: it pushes records, and counts those that it drops.
//!
//! One thread owns it. A push stores the record's words and then the tail, without a system call or a lock, and never waits.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::clock::ClockKind;
use super::error::{PushError, RingError};
use super::fork::Opener;
use super::layout::{
    CLOCK_OFFSET, CLOSED, CLOSED_OFFSET, DROPPED_OFFSET, MAGIC, MAGIC_OFFSET, RECORD_BYTES_MAX,
    RecordHead, VERSION, VERSION_OFFSET, WHEN_FULL_OFFSET, WORD_BYTES, WhenFull,
};
use super::memory::Shared;
use super::protocol::{Claim, Memory};

pub struct Producer {
    pub(crate) memory: Shared,
    claim: Claim,
    opener: Opener,
    pub(crate) clock: ClockKind,
    when_full: WhenFull,
    pushed: u64,
    dropped: u64,
}

/// Closes a producer's ring from another thread that has seen the end of its daemon: the next push fails.
pub struct Closer(Shared);

impl Closer {
    pub fn close(&self) {
        let closed = self.0.word(CLOSED_OFFSET);
        // A mark of the daemon has more information, so it stays.
        let _ = closed.compare_exchange(0, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Producer {
    /// Maps the ring that the daemon handed over.
    pub fn open(ring: OwnedFd) -> Result<Producer, RingError> {
        let memory = Shared::open(ring)?;
        let header = |offset| memory.word(offset).load(Ordering::Relaxed);
        if header(MAGIC_OFFSET) != MAGIC || header(VERSION_OFFSET) != VERSION {
            return Err(RingError::NotARing("its header has a different version"));
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

    /// A ring of the same kind that no daemon has. Records that are pushed there wait for the next one. It is closed to `push`.
    pub fn successor(&self) -> Result<Producer, RingError> {
        let (memory, _) = Shared::create(self.memory.capacity_bytes())?;
        memory.word(CLOSED_OFFSET).store(CLOSED, Ordering::Relaxed);
        Ok(Producer {
            memory,
            claim: Claim::new(),
            opener: self.opener,
            clock: self.clock,
            when_full: self.when_full,
            pushed: 0,
            dropped: 0,
        })
    }

    pub fn closer(&self) -> Closer {
        Closer(self.memory.clone())
    }

    /// The reaction to a full ring.
    pub fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// Pushes a record, behind a stamp of the ring's clock if its source has own time.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), PushError> {
        self.check_open()?;
        self.push_stamped(self.clock.stamp(), record)
    }

    /// As `push`, into a closed ring: a `successor`.
    #[inline(never)]
    pub fn push_waiting(&mut self, record: &[u8]) -> Result<(), PushError> {
        self.push_stamped(self.clock.stamp(), record)
    }

    /// As `push`, with an older stamp.
    #[inline(never)]
    pub(crate) fn push_again(
        &mut self,
        stamp: Option<u64>,
        record: &[u8],
    ) -> Result<(), PushError> {
        self.check_open()?;
        self.push_stamped(stamp, record)
    }

    #[inline]
    fn check_open(&self) -> Result<(), PushError> {
        let is_open = self.memory.word(CLOSED_OFFSET).load(Ordering::Relaxed) == 0;
        is_open.then_some(()).ok_or(PushError::Closed)
    }

    /// Part of each push, without a call.
    #[inline(always)]
    fn push_stamped(&mut self, stamp: Option<u64>, record: &[u8]) -> Result<(), PushError> {
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

    /// Counts a record that is dropped because the ring is full.
    #[inline]
    pub fn drop_one(&mut self) {
        self.dropped += 1;
        // The count needs no order: exact numbers come over the socket, which orders them.
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

    /// The position behind the last record.
    pub(crate) fn end(&self) -> u64 {
        self.claim.tail()
    }

    /// The records between two positions, each at the start or end of a record.
    pub(crate) fn records(&self, from: u64, to: u64) -> u64 {
        let to = to.min(self.end());
        let mut at = from;
        let mut records = 0;
        while at < to {
            let Some(head) = RecordHead::decode(self.memory.load_word(at), self.clock) else {
                break;
            };
            at += head.slot_bytes();
            records += 1;
        }
        records
    }

    /// Checks that a record of so many bytes, with its stamp, fits behind the tail.
    #[inline]
    fn claim(&mut self, stamp_bytes: usize, record_bytes: usize) -> Result<(), PushError> {
        let slot = slot_of(stamp_bytes, record_bytes)?;
        if !self.opener.is_this_process() {
            return Err(PushError::Forked);
        }
        let has_room = self.claim.has_room(&self.memory, slot);
        has_room.then_some(()).ok_or(PushError::Full)
    }

    /// Stores the bytes from a position on, and fills the last word up with zeroes.
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
    Ok(super::layout::slot_bytes(bytes) as u64)
}
