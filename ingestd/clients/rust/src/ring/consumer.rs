//! The daemon's end of a ring: it creates the ring, takes records out, and frees their space.
//!
//! Anybody who may use the socket may be the other side. Therefore the consumer checks its marks, reads each word once, and never reads back a word
//! that it stored itself.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, UNIX_EPOCH};

use super::clock::{Calibration, ClockKind};
use super::error::{Broken, RingError};
use super::layout::{
    CALIBRATION_OFFSET, CAPACITY_OFFSET, CLOCK_OFFSET, CLOSED, CLOSED_OFFSET, DROPPED_OFFSET,
    DROPPED_TAKEN_OFFSET, EMPTIED, LET_GO, MAGIC, MAGIC_OFFSET, PAGE_BYTES, RECORD_BYTES_MAX,
    RECORDS_OFFSET, RUN_OFFSET, RecordHead, STORING_OFFSET, TAIL_OFFSET as TAIL_PAGE,
    TAKEN_RECORDS_OFFSET, VERSION, VERSION_OFFSET, WHEN_FULL_OFFSET, WORD_BYTES, WhenFull,
    slot_bytes,
};
use super::memory::Shared;
use super::protocol::{self, Memory};

/// The stamp that the producer puts before its records, and its conversion into time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stamps {
    None,
    Realtime,
    Ticks(Calibration),
}

/// The ways in which a daemon lets go of a ring.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its client is gone while the daemon goes on, so the memory is not kept.
    OfClient,
    /// The daemon stops. Its next run gets the records from the client that were pushed too late: one at most.
    OfDaemon,
}

/// Records that were copied out of a ring at one time, on their way into the log. Their space is freed once the log has published them, so after a
/// crash the ring still has all records that may be missing in the log.
pub struct Taken {
    lent: Arc<Lent>,
    head: u64,
    dropped: u64,
}

impl Taken {
    /// From here on the log may have the records.
    pub fn storing(&self) {
        self.lent.store(STORING_OFFSET, self.head);
        // The mark comes first, so after a kill a record in the log always has its mark.
        fence(Ordering::SeqCst);
    }

    /// The log has the records: frees their space for the producer.
    pub fn stored(self) {
        self.lent.store(DROPPED_TAKEN_OFFSET, self.dropped);
        self.lent.stored.store(self.head, Ordering::Relaxed);
        protocol::give_back(&self.lent.memory, self.head);
    }
}

/// A ring's memory. The consumer and all records on their way into the log hold it together, and the last of them lets go of it.
struct Lent {
    memory: Shared,
    /// The log has published everything below it.
    stored: AtomicU64,
    ended: OnceLock<Ended>,
}

/// How the consumer ended, and the position and number of the records that it had taken.
struct Ended {
    ending: Ending,
    taken: u64,
    records: u64,
}

impl Lent {
    fn store(&self, offset: usize, word: u64) {
        self.memory.word(offset).store(word, Ordering::Relaxed);
    }

    /// The end of the consumer, if it has ended and the log has all records that it took. Otherwise the client can still hand over everything.
    fn ended(&self) -> Option<&Ended> {
        let stored = self.stored.load(Ordering::Relaxed);
        self.ended.get().filter(|ended| ended.taken == stored)
    }

    /// Frees the memory of all records, except the part that a running push may still write.
    fn keep_one_push(&self, taken: u64) {
        let page = PAGE_BYTES as u64;
        let first = taken / page * page;
        // A page beyond is enough for small records that are still on their way from the producer's processor.
        let end = (taken + slot_bytes(RECORD_BYTES_MAX) as u64).next_multiple_of(page) + page;
        let free = self.memory.capacity_bytes().saturating_sub(end - first);
        self.memory.give_records_back(end, free);
    }

    fn keep_nothing(&self, records: u64) {
        self.store(TAKEN_RECORDS_OFFSET, records);
        // The mark comes first: a reader that finds an empty page then finds the reason too.
        self.let_go(EMPTIED);
        self.memory.give_back(0, PAGE_BYTES);
        let rest = RECORDS_OFFSET - TAIL_PAGE + self.memory.capacity_bytes() as usize;
        self.memory.give_back(TAIL_PAGE, rest);
    }

    fn let_go(&self, mark: u64) {
        let closed = self.memory.word(CLOSED_OFFSET);
        closed.store(mark, Ordering::Release);
    }
}

impl Drop for Lent {
    /// Another process may keep the memory mapped for ever, so the part that is not needed is freed.
    fn drop(&mut self) {
        match self.ended() {
            Some(ended) if ended.ending == Ending::OfClient => self.keep_nothing(ended.records),
            Some(ended) => {
                self.keep_one_push(ended.taken);
                self.let_go(LET_GO);
            }
            None => self.let_go(LET_GO),
        }
    }
}

/// A number that differs between two runs of a daemon on one machine.
fn run() -> u64 {
    static RUN: OnceLock<u64> = OnceLock::new();
    *RUN.get_or_init(|| {
        let now = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        now as u64 ^ u64::from(std::process::id()).rotate_right(22)
    })
}

pub struct Consumer {
    lent: Arc<Lent>,
    /// The same memory, without the indirection.
    memory: Shared,
    /// Everything below it is copied; that is so many records.
    head: u64,
    records: u64,
    /// The checked tail of the consumer's last look.
    published: u64,
    stamps: Stamps,
    dropped: u64,
    created: Instant,
}

impl Consumer {
    /// Creates a ring, and the descriptor to hand over. A capacity of 0 is the default.
    pub fn create(
        capacity_bytes: u64,
        stamps: Stamps,
        when_full: WhenFull,
    ) -> Result<(Consumer, OwnedFd), RingError> {
        let (memory, descriptor) = Shared::create(capacity_bytes)?;
        let mut consumer = Consumer {
            memory: memory.clone(),
            lent: Arc::new(Lent {
                memory,
                stored: AtomicU64::new(0),
                ended: OnceLock::new(),
            }),
            head: 0,
            records: 0,
            published: 0,
            stamps,
            dropped: 0,
            created: Instant::now(),
        };
        if let Stamps::Ticks(calibration) = stamps {
            consumer.calibrate(calibration);
        }
        for (offset, word) in [
            (CAPACITY_OFFSET, consumer.capacity_bytes()),
            (CLOCK_OFFSET, consumer.clock() as u64),
            (WHEN_FULL_OFFSET, when_full as u64),
            (RUN_OFFSET, run()),
            (VERSION_OFFSET, VERSION),
            (MAGIC_OFFSET, MAGIC),
        ] {
            consumer.lent.store(offset, word);
        }
        Ok((consumer, descriptor))
    }

    /// The space for records, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.memory.capacity_bytes()
    }

    /// Converts ticks along this line from now on, and leaves it in the ring for the client that holds the ring after a crash. Rings with other
    /// stamps need no line.
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
            self.lent.store(CALIBRATION_OFFSET + WORD_BYTES * at, word);
        }
    }

    /// Reads the producer's tail, and returns the position where its records end.
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

    /// Copies the record that `next` found, with its ticks turned into time, and goes on behind it.
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
        self.records += 1;
    }

    /// The position up to which everything is taken.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// All records that were taken so far, whose space is freed once the log has them.
    pub fn batch(&self) -> Taken {
        Taken {
            lent: Arc::clone(&self.lent),
            head: self.head,
            dropped: self.dropped,
        }
    }

    /// How many records the producer has dropped since the last call.
    pub fn dropped(&mut self) -> Result<u64, Broken> {
        let claimed = self.memory.word(DROPPED_OFFSET).load(Ordering::Relaxed);
        let before = self.dropped;
        // A producer drops at most one record in a nanosecond. The limit keeps the sums of a ledger from overflowing while a daemon runs.
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

    /// Refuses further pushes. A later look still takes the records that were published before.
    pub fn close(&mut self) {
        self.lent.store(CLOSED_OFFSET, CLOSED);
        // The look that follows comes after the mark, so few records are pushed behind it.
        fence(Ordering::SeqCst);
    }

    /// Ends the ring: its memory is let go of once the log has all records that were taken.
    pub fn end(self, ending: Ending) {
        let ended = self.lent.ended.set(Ended {
            ending,
            taken: self.head,
            records: self.records,
        });
        assert!(ended.is_ok(), "a ring ends once");
    }

    fn clock(&self) -> ClockKind {
        match self.stamps {
            Stamps::None => ClockKind::None,
            Stamps::Realtime => ClockKind::Realtime,
            Stamps::Ticks(_) => ClockKind::TimeStampCounter,
        }
    }

    /// Copies the words from a position on, and loads each once.
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
