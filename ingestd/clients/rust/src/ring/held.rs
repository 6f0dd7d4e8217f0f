//! A ring whose daemon is gone, which its producer holds: each record that the log does not have goes into the next daemon's ring, once.
//!
//! The ring belongs to this process now, which moves the marks that the daemon left. If a mark is impossible, the records count as lost.

use std::sync::atomic::Ordering;

use super::clock::ClockKind;
use super::error::PushError;
use super::layout::{
    CLOSED_OFFSET, DROPPED_TAKEN_OFFSET, EMPTIED, HEAD_OFFSET, LET_GO, RUN_OFFSET, RecordHead,
    STORING_OFFSET, TAKEN_RECORDS_OFFSET, WORD_BYTES,
};
use super::producer::Producer;
use super::protocol::Memory;

/// Records of a ring that no daemon will get; the ledger of the next daemon gets their numbers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The daemon was killed while it stored them: the log may have them or not.
    pub unsure: u64,
    /// They were dropped because the ring was full, and no daemon has counted them.
    pub dropped: u64,
}

impl Left {
    pub fn add(&mut self, other: Left) {
        self.unsure += other.unsure;
        self.dropped += other.dropped;
    }
}

impl Producer {
    /// Whether the ring's daemon changes nothing in it any more: it has let go of the ring, or another daemon made `next`; a directory has one daemon
    /// at a time.
    pub fn is_final(&self, next: &Producer) -> bool {
        self.mark(CLOSED_OFFSET) >= LET_GO || self.mark(RUN_OFFSET) != next.mark(RUN_OFFSET)
    }

    /// Whether no daemon ever had the ring.
    pub fn is_successor(&self) -> bool {
        self.mark(RUN_OFFSET) == 0
    }

    /// Takes over the marks that the daemon left in a final ring, and returns the records that are lost. The records between the marks can be handed
    /// over.
    pub fn settle(&mut self) -> Left {
        let end = self.end();
        let (head, storing) = (self.mark(HEAD_OFFSET), self.mark(STORING_OFFSET).min(end));
        let (unsure, rest) = if self.mark(CLOSED_OFFSET) == EMPTIED {
            // Its records may be zeroes by now, but the count is known.
            let taken = self.mark(TAKEN_RECORDS_OFFSET);
            self.set(TAKEN_RECORDS_OFFSET, self.pushed());
            (self.pushed().saturating_sub(taken), end)
        } else {
            (self.records(head, storing), storing.max(head).min(end))
        };
        let dropped = self
            .dropped()
            .saturating_sub(self.mark(DROPPED_TAKEN_OFFSET));
        self.set(HEAD_OFFSET, rest);
        self.set(DROPPED_TAKEN_OFFSET, self.dropped());
        Left { unsure, dropped }
    }

    /// Records that the log does not have yet. The number is exact if the ring is final.
    pub fn untaken(&self) -> u64 {
        if self.mark(CLOSED_OFFSET) == EMPTIED {
            return self
                .pushed()
                .saturating_sub(self.mark(TAKEN_RECORDS_OFFSET));
        }
        self.records(self.mark(HEAD_OFFSET), self.end())
    }

    /// Hands over the records of a settled ring in their order, until this ring is empty, or `next` takes no more, which is an error. Returns how
    /// many were lost.
    pub fn hand_over(&mut self, next: &mut Producer) -> Result<u64, PushError> {
        let end = self.end();
        let mut at = self.mark(HEAD_OFFSET).min(end);
        let mut record = Vec::new();
        while at < end {
            let head = RecordHead::decode(self.memory.load_word(at), self.clock);
            let Some(head) = head.filter(|_| self.clock == next.clock) else {
                self.set(HEAD_OFFSET, end);
                return Ok(self.records(at, end).max(1));
            };
            record.clear();
            let words = usize::from(head.bytes).div_ceil(WORD_BYTES) as u64;
            for word in 1..=words {
                let word = self.memory.load_word(at + word * WORD_BYTES as u64);
                record.extend_from_slice(&word.to_le_bytes());
            }
            record.truncate(head.bytes.into());
            let (stamp, rest) = match record.split_first_chunk() {
                Some((stamp, rest)) if next.clock != ClockKind::None => {
                    (Some(u64::from_le_bytes(*stamp)), rest)
                }
                _ => (None, &record[..]),
            };
            next.push_again(stamp, rest)?;
            at += head.slot_bytes();
            self.set(HEAD_OFFSET, at);
        }
        Ok(0)
    }

    fn mark(&self, offset: usize) -> u64 {
        self.memory.word(offset).load(Ordering::Acquire)
    }

    fn set(&self, offset: usize, word: u64) {
        self.memory.word(offset).store(word, Ordering::Release);
    }
}
