//! The protocol as it is, and each way to weaken it by one ordering or one swapped step.

use loom_model::sync::atomic::{AtomicU64, Ordering, fence};

use crate::protocol::{Protocol, SharedWord};

impl SharedWord for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

/// A step that is swapped or left out, where no ordering is concerned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    None,
    /// The writer publishes the timestamp index first.
    PublishTimesFirst,
    /// The reader loads the tail of the record log first.
    LoadRecordsFirst,
    /// The writer publishes a record before it stores it.
    PublishBeforeBytes,
    /// The flusher releases a block before its segment write has returned.
    ReleaseBeforeWrite,
    /// The flusher says that a unit holds a block before it is written.
    EncodedBeforeWrite,
    /// The reader reads in units what lies above the mark.
    UnitAboveMark,
    /// The writer stores the bytes of a block's next use before it moves the head.
    BytesBeforeHead,
    /// The writer shows the flusher a tail before it shows it to readers.
    MarkBeforeTail,
    /// A cut is what one round of loads finds.
    OneRound,
    /// The reader does not look at the head after it copied what lies past the last summary.
    UnjudgedPastSummaries,
}

/// A protocol and the step that is swapped in it.
pub trait Mutant: Protocol<Word = AtomicU64> + 'static {
    const SWAP: Swap = Swap::None;
}

macro_rules! protocol {
    ($(#[$doc:meta])* $name:ident { $($item:item)* } word: $word:expr, head: $head:expr, copy: $copy:expr, swap: $swap:ident) => {
        $(#[$doc])*
        pub struct $name;

        impl Protocol for $name {
            type Word = AtomicU64;
            $($item)*

            fn fence_after_word() {
                if $word {
                    fence(Ordering::Acquire);
                }
            }

            fn fence_after_head() {
                if $head {
                    fence(Ordering::Release);
                }
            }

            fn fence_after_copy() {
                if $copy {
                    fence(Ordering::Acquire);
                }
            }
        }

        impl Mutant for $name {
            const SWAP: Swap = Swap::$swap;
        }
    };
}

protocol!(
    /// The orderings of the logs.
    Sound {}
    word: true, head: true, copy: true, swap: None
);
protocol!(
    RelaxedMarkStore { const MARK_STORE: Ordering = Ordering::Relaxed; }
    word: true, head: true, copy: true, swap: None
);
protocol!(
    RelaxedMarkLoad { const MARK_LOAD: Ordering = Ordering::Relaxed; }
    word: true, head: true, copy: true, swap: None
);
protocol!(
    RelaxedWordStore { const WORD_STORE: Ordering = Ordering::Relaxed; }
    word: true, head: true, copy: true, swap: None
);
protocol!(NoFenceAfterWord {} word: false, head: true, copy: true, swap: None);
protocol!(NoFenceAfterHead {} word: true, head: false, copy: true, swap: None);
protocol!(NoFenceAfterCopy {} word: true, head: true, copy: false, swap: None);
protocol!(PublishTimesFirst {} word: true, head: true, copy: true, swap: PublishTimesFirst);
protocol!(LoadRecordsFirst {} word: true, head: true, copy: true, swap: LoadRecordsFirst);
protocol!(PublishBeforeBytes {} word: true, head: true, copy: true, swap: PublishBeforeBytes);
protocol!(ReleaseBeforeWrite {} word: true, head: true, copy: true, swap: ReleaseBeforeWrite);
protocol!(EncodedBeforeWrite {} word: true, head: true, copy: true, swap: EncodedBeforeWrite);
protocol!(UnitAboveMark {} word: true, head: true, copy: true, swap: UnitAboveMark);
protocol!(BytesBeforeHead {} word: true, head: true, copy: true, swap: BytesBeforeHead);
protocol!(OneRound {} word: true, head: true, copy: true, swap: OneRound);
protocol!(UnjudgedPastSummaries {} word: true, head: true, copy: true, swap: UnjudgedPastSummaries);
protocol!(MarkBeforeTail {} word: true, head: true, copy: true, swap: MarkBeforeTail);
