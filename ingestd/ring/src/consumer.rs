//! The daemon's end of a ring: creates it, takes records out, and gives their place back.
//!
//! The other side may be anybody who may use the socket. So its marks are checked, each word is read once, and what the consumer stores in
//! the ring it never reads back.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::clock::{Calibration, ClockKind};
use crate::error::{Broken, RingError};
use crate::layout::{
    CALIBRATION_OFFSET, CAPACITY_OFFSET, CLOCK_OFFSET, CLOSED_OFFSET, DROPPED_OFFSET, MAGIC, MAGIC_OFFSET, RecordHead, VERSION, VERSION_OFFSET, WHEN_FULL_OFFSET,
    WORD_BYTES, WhenFull,
};
use crate::memory::Shared;
use crate::protocol::{self, Memory};

pub struct Consumer {
    memory: Shared,
    /// All below it is copied.
    head: u64,
    /// What was published when the consumer looked last; checked.
    published: u64,
    calibration: Option<Calibration>,
    dropped: u64,
    created: Instant,
}

/// What a look at the next record gave.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many bytes stand in the buffer now.
    Record(usize),
    /// The next record has so many bytes, and the buffer fewer.
    NoRoom(usize),
    /// All that was published at the last look is taken.
    Empty,
}

impl Consumer {
    /// Creates a ring and the descriptor to hand over. With a calibration, the producer stamps with the time-stamp counter. A capacity of 0 is
    /// the default.
    pub fn create(
        capacity_bytes: u64,
        calibration: Option<Calibration>,
        when_full: WhenFull,
    ) -> Result<(Consumer, OwnedFd), RingError> {
        let (memory, descriptor) = Shared::create(capacity_bytes)?;
        let mut consumer = Consumer {
            memory,
            head: 0,
            published: 0,
            calibration: None,
            dropped: 0,
            created: Instant::now(),
        };
        if let Some(calibration) = calibration {
            consumer.calibrate(calibration);
        }
        for (offset, word) in [
            (CAPACITY_OFFSET, consumer.memory.capacity_bytes()),
            (CLOCK_OFFSET, consumer.clock() as u64),
            (WHEN_FULL_OFFSET, when_full as u64),
            (VERSION_OFFSET, VERSION),
            (MAGIC_OFFSET, MAGIC),
        ] {
            consumer.store(offset, word);
        }
        Ok((consumer, descriptor))
    }

    /// Room for records, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.memory.capacity_bytes()
    }

    /// Whether the producer stamps with ticks that need a calibration.
    pub fn needs_calibration(&self) -> bool {
        self.calibration.is_some()
    }

    /// Converts ticks along this line from now on, and leaves it in the ring for whoever finds the ring after a crash.
    pub fn calibrate(&mut self, calibration: Calibration) {
        self.calibration = Some(calibration);
        let Calibration {
            ticks,
            time_ns,
            rate,
        } = calibration;
        for (at, word) in [ticks, time_ns as u64, rate].into_iter().enumerate() {
            self.store(CALIBRATION_OFFSET + WORD_BYTES * at, word);
        }
    }

    /// Looks how far the producer has come; returns the position where its records end.
    pub fn look(&mut self) -> Result<u64, Broken> {
        let tail = protocol::published(&self.memory);
        let capacity = self.memory.capacity_bytes();
        let possible = tail.checked_sub(self.head).is_some_and(|bytes| bytes <= capacity);
        if !possible || tail < self.published || !tail.is_multiple_of(WORD_BYTES as u64) {
            return Err(Broken::Tail {
                tail,
                head: self.head,
                capacity,
            });
        }
        self.published = tail;
        Ok(tail)
    }

    /// Copies the next record below the last look into the front of `buffer`, its ticks turned into time.
    #[inline]
    pub fn take(&mut self, buffer: &mut [u8]) -> Result<Taken, Broken> {
        let at = self.head;
        if at == self.published {
            return Ok(Taken::Empty);
        }
        let word = self.memory.load_word(at);
        let head = RecordHead::decode(word, self.clock()).ok_or(Broken::Head { at, word })?;
        let (bytes, published) = (head.slot_bytes(), self.published - at);
        if bytes > published {
            return Err(Broken::Length {
                at,
                bytes,
                published,
            });
        }
        let record_bytes = usize::from(head.bytes);
        let Some(record) = buffer.get_mut(..record_bytes) else {
            return Ok(Taken::NoRoom(record_bytes));
        };
        self.copy_record(at + WORD_BYTES as u64, record);
        if let Some(calibration) = self.calibration.filter(|_| head.has_ticks)
            && let Some(time) = record.first_chunk_mut()
        {
            let ticks = u64::from_le_bytes(*time);
            *time = calibration.time_ns(ticks).to_le_bytes();
        }
        self.head = at + bytes;
        Ok(Taken::Record(record_bytes))
    }

    /// Gives the place of all that was taken back to the producer; returns the position up to which everything is taken.
    pub fn give_back(&mut self) -> u64 {
        protocol::give_back(&self.memory, self.head);
        self.head
    }

    /// How many records the producer has dropped since the last call.
    pub fn dropped(&mut self) -> Result<u64, Broken> {
        let claimed = self.memory.word(DROPPED_OFFSET).load(Ordering::Relaxed);
        let before = self.dropped;
        // No producer drops more than one in a nanosecond: so the sums of a ledger hold for as long as a daemon runs.
        let elapsed_ns = u64::try_from(self.created.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if claimed < before || claimed > elapsed_ns {
            return Err(Broken::Dropped {
                claimed,
                before,
                elapsed_ns,
            });
        }
        self.dropped = claimed;
        Ok(claimed - before)
    }

    /// Refuses further pushes. What was published before a look that follows is still taken.
    pub fn close(&mut self) {
        self.store(CLOSED_OFFSET, 1);
    }

    fn clock(&self) -> ClockKind {
        match self.calibration {
            Some(_) => ClockKind::TimeStampCounter,
            None => ClockKind::Realtime,
        }
    }

    fn store(&self, offset: usize, word: u64) {
        self.memory
            .word(offset)
            .store(word, Ordering::Relaxed);
    }

    /// Copies the words from a position on; each is loaded once.
    #[inline]
    fn copy_record(&self, at: u64, record: &mut [u8]) {
        let mut at = at;
        let (words, rest) = record.as_chunks_mut::<WORD_BYTES>();
        for word in words {
            *word = self.memory.load_word(at).to_ne_bytes();
            at += WORD_BYTES as u64;
        }
        if !rest.is_empty() {
            let last = self.memory.load_word(at).to_ne_bytes();
            for (byte, of_last) in rest.iter_mut().zip(last) {
                *byte = of_last;
            }
        }
    }
}
