//! The offsets in a ring, and the meaning of the word before each record. `PROTOCOL.md` has the same tables.
//!
//! Positions are bytes since the ring was created. They only grow; a record is at its position modulo the capacity.

use super::clock::ClockKind;
use super::error::RingError;

/// The first page, which the daemon wrote before it handed the ring over.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LOOMRING");
pub const VERSION: u64 = 1;
pub const MAGIC_OFFSET: usize = 0;
pub const VERSION_OFFSET: usize = 8;
pub const CAPACITY_OFFSET: usize = 16;
pub const CLOCK_OFFSET: usize = 24;
pub const WHEN_FULL_OFFSET: usize = 32;

/// The unit of this layout, whatever the length of the machine's pages.
pub const PAGE_BYTES: usize = 4096;
/// The second page, which only the consumer writes. Words that change at different times are on different cache lines.
pub const HEAD_OFFSET: usize = PAGE_BYTES;
pub const CLOSED_OFFSET: usize = PAGE_BYTES + 64;
pub const CALIBRATION_OFFSET: usize = PAGE_BYTES + 128;
pub const STORING_OFFSET: usize = PAGE_BYTES + 192;
pub const DROPPED_TAKEN_OFFSET: usize = PAGE_BYTES + 256;
pub const RUN_OFFSET: usize = PAGE_BYTES + 320;
pub const TAKEN_RECORDS_OFFSET: usize = PAGE_BYTES + 384;
/// The third page, which only the producer writes, like the records after it.
pub const TAIL_OFFSET: usize = 2 * PAGE_BYTES;
pub const DROPPED_OFFSET: usize = 2 * PAGE_BYTES + 64;
pub const RECORDS_OFFSET: usize = 3 * PAGE_BYTES;

/// The space for records.
pub const CAPACITY_BYTES_MIN: u64 = 64 << 10;
pub const CAPACITY_BYTES_MAX: u64 = 64 << 20;
pub const CAPACITY_BYTES_DEFAULT: u64 = 8 << 20;

/// The longest record that a ring takes; the log has the same limit.
pub const RECORD_BYTES_MAX: usize = 65_528;
pub const WORD_BYTES: usize = 8;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "words of a ring are little-endian"
);
const _: () = assert!(slot_bytes(RECORD_BYTES_MAX) <= CAPACITY_BYTES_MIN as usize);

/// *Closed*: the daemon takes no further records.
pub const CLOSED: u64 = 1;
/// *Closed*: the daemon has let go of the ring, and changes nothing in it any more.
pub const LET_GO: u64 = 2;
/// *Closed*: as `LET_GO`, and the ring's memory is freed apart from the machine's page with this word. Records that were pushed too late are lost.
pub const EMPTIED: u64 = 3;

/// The reaction of a producer to a full ring, from the source's `on_overload`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum WhenFull {
    Wait = 0,
    Drop = 1,
}

impl WhenFull {
    pub fn of_word(word: u64) -> Option<WhenFull> {
        [WhenFull::Wait, WhenFull::Drop]
            .into_iter()
            .find(|known| *known as u64 == word)
    }
}

/// The requested capacity; 0 is the default.
pub fn capacity_of(asked: u64) -> Result<u64, RingError> {
    let bytes = if asked == 0 {
        CAPACITY_BYTES_DEFAULT
    } else {
        asked
    };
    let sound =
        bytes.is_power_of_two() && (CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&bytes);
    sound.then_some(bytes).ok_or(RingError::Capacity(asked))
}

/// How many bytes a record of that length takes: its word, and its bytes up to a whole word.
pub const fn slot_bytes(record_bytes: usize) -> usize {
    WORD_BYTES + record_bytes.next_multiple_of(WORD_BYTES)
}

/// The word before a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Length of the record with its stamp.
    pub bytes: u16,
}

impl RecordHead {
    #[inline]
    pub fn encode(self) -> u64 {
        u64::from(self.bytes)
    }

    /// `None` if no producer writes such a word.
    #[inline]
    pub fn decode(word: u64, clock: ClockKind) -> Option<RecordHead> {
        let head = RecordHead { bytes: word as u16 };
        let bytes = usize::from(head.bytes);
        let has_stamp = clock == ClockKind::None || bytes >= WORD_BYTES;
        (head.encode() == word && bytes <= RECORD_BYTES_MAX && has_stamp).then_some(head)
    }

    #[inline]
    pub fn slot_bytes(self) -> u64 {
        slot_bytes(usize::from(self.bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_is_a_record_or_nothing(word: u64) {
            for word in [word, word & 0x1_FFFF, word & 0x3_FFFF] {
                for clock in [ClockKind::None, ClockKind::Realtime] {
                    if let Some(head) = RecordHead::decode(word, clock) {
                        prop_assert_eq!(head.encode(), word);
                        prop_assert!(head.slot_bytes() >= 8 + u64::from(head.bytes));
                        prop_assert!(head.slot_bytes() <= CAPACITY_BYTES_MIN);
                    }
                }
            }
        }
    }

    #[test]
    fn a_capacity_is_a_power_of_two_within_the_limits() {
        assert_eq!(capacity_of(0).unwrap(), CAPACITY_BYTES_DEFAULT);
        assert_eq!(capacity_of(1 << 20).unwrap(), 1 << 20);
        for wrong in [1, 4096, (1 << 20) + 8, 1 << 27, u64::MAX] {
            assert!(
                matches!(capacity_of(wrong), Err(RingError::Capacity(asked)) if asked == wrong)
            );
        }
    }
}
