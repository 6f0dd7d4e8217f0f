//! The daemon's end of a ring: creates it, takes records out, and gives their place back.
//!
//! The other side may be anybody who may use the socket. So its marks are checked, each word is read once, and what the consumer stores in
//! the ring it never reads back.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::broken::Broken;
use crate::clock::{Calibration, ClockKind};
use crate::error::RingError;
use crate::layout::{
    CALIBRATION_OFFSET, CAPACITY_OFFSET, CLOCK_OFFSET, CLOSED_OFFSET, DROPPED_OFFSET, MAGIC,
    MAGIC_OFFSET, RecordHead, VERSION, VERSION_OFFSET, WHEN_FULL_OFFSET, WORD_BYTES, WhenFull,
};
use crate::memory::Shared;
use crate::protocol::{self, Memory};

/// What the producer puts before its records, and how it becomes time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stamps {
    None,
    Realtime,
    Ticks(Calibration),
}

pub struct Consumer {
    memory: Shared,
    /// All below it is copied.
    head: u64,
    /// What was published when the consumer looked last; checked.
    published: u64,
    stamps: Stamps,
    dropped: u64,
    created: Instant,
}

impl Consumer {
    /// Creates a ring and the descriptor to hand over. A capacity of 0 is the default.
    pub fn create(
        capacity_bytes: u64,
        stamps: Stamps,
        when_full: WhenFull,
    ) -> Result<(Consumer, OwnedFd), RingError> {
        let (memory, descriptor) = Shared::create(capacity_bytes)?;
        let mut consumer = Consumer {
            memory,
            head: 0,
            published: 0,
            stamps,
            dropped: 0,
            created: Instant::now(),
        };
        if let Stamps::Ticks(calibration) = stamps {
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

    /// Converts ticks along this line from now on, and leaves it in the ring for whoever finds the ring after a crash. Rings with other stamps
    /// need none.
    pub fn calibrate(&mut self, calibration: Calibration) {
        let Stamps::Ticks(line) = &mut self.stamps else {
            return;
        };
        *line = calibration;
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
        let possible = tail
            .checked_sub(self.head)
            .is_some_and(|bytes| bytes <= capacity);
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

    /// The next record below the last look; `None` if all of them are taken.
    #[inline]
    pub fn next(&self) -> Result<Option<RecordHead>, Broken> {
        let at = self.head;
        if at == self.published {
            return Ok(None);
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
        Ok(Some(head))
    }

    /// Copies the record that `next` found, its ticks turned into time, and goes on behind it.
    ///
    /// # Panics
    /// `record` has not the length of that record.
    #[inline]
    pub fn take(&mut self, head: RecordHead, record: &mut [u8]) {
        assert_eq!(record.len(), usize::from(head.bytes), "the record's length");
        self.copy_record(self.head + WORD_BYTES as u64, record);
        if let Stamps::Ticks(calibration) = self.stamps
            && let Some(time) = record.first_chunk_mut()
        {
            let ticks = u64::from_le_bytes(*time);
            *time = calibration.time_ns(ticks).to_le_bytes();
        }
        self.head += head.slot_bytes();
    }

    /// The position up to which everything is taken.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Gives the place of all that was taken back to the producer.
    pub fn give_back(&mut self) {
        protocol::give_back(&self.memory, self.head);
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
        match self.stamps {
            Stamps::None => ClockKind::None,
            Stamps::Realtime => ClockKind::Realtime,
            Stamps::Ticks(_) => ClockKind::TimeStampCounter,
        }
    }

    fn store(&self, offset: usize, word: u64) {
        self.memory.word(offset).store(word, Ordering::Relaxed);
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
