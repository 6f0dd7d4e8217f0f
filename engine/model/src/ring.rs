//! A ring of two words; a producer and a consumer, who take their steps through the ring's protocol.
//!
//! The words are not atomic here, so the checker also fails where a word is stored while it may still be copied, or copied while it may still
//! be stored: in the ring itself both are relaxed and would show as wrong bytes only on some processors.

use std::marker::PhantomData;

use loom_model::cell::UnsafeCell;
use loom_model::sync::Arc;
use loom_model::sync::atomic::{AtomicU64, Ordering};
use loom_model::thread;

use crate::ring_protocol::{Claim, Mark, Memory, give_back, published};

/// The protocol as it is, or one step of it weakened.
pub trait Mutant: Send + Sync + 'static {
    const TAIL_STORE: Ordering = Ordering::Release;
    const TAIL_LOAD: Ordering = Ordering::Acquire;
    const HEAD_STORE: Ordering = Ordering::Release;
    const HEAD_LOAD: Ordering = Ordering::Acquire;
    const SWAP: Swap = Swap::None;
}

/// A step that is swapped or left out, where no ordering is concerned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    None,
    /// The producer publishes a word before it stores it.
    PublishBeforeWord,
    /// The consumer gives the place of a word back before it copies it.
    GiveBackBeforeCopy,
    /// The producer stores without a look at the room.
    NoRoomNeeded,
}

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident { $($item:item)* })*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl Mutant for $name {
            $($item)*
        }
    )*};
}

mutants! {
    /// The orderings of the rings.
    Sound {}
    RelaxedTailStore { const TAIL_STORE: Ordering = Ordering::Relaxed; }
    RelaxedTailLoad { const TAIL_LOAD: Ordering = Ordering::Relaxed; }
    RelaxedHeadStore { const HEAD_STORE: Ordering = Ordering::Relaxed; }
    RelaxedHeadLoad { const HEAD_LOAD: Ordering = Ordering::Relaxed; }
    PublishBeforeWord { const SWAP: Swap = Swap::PublishBeforeWord; }
    GiveBackBeforeCopy { const SWAP: Swap = Swap::GiveBackBeforeCopy; }
    NoRoomNeeded { const SWAP: Swap = Swap::NoRoomNeeded; }
}

const WORD_BYTES: u64 = 8;
/// More words than the ring holds, so that a place is used twice.
const PUSHED: u64 = 3;

struct Ring<M> {
    words: [UnsafeCell<u64>; 2],
    tail: AtomicU64,
    head: AtomicU64,
    mutant: PhantomData<M>,
}

// SAFETY: the checker fails a run in which two threads may use a word at once.
unsafe impl<M: Mutant> Sync for Ring<M> {}

impl<M> Ring<M> {
    fn cell(&self, at: u64) -> &UnsafeCell<u64> {
        &self.words[(at / WORD_BYTES % 2) as usize]
    }
}

impl Mark for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

impl<M: Mutant> Memory for Ring<M> {
    type Mark = AtomicU64;

    const TAIL_STORE: Ordering = M::TAIL_STORE;
    const TAIL_LOAD: Ordering = M::TAIL_LOAD;
    const HEAD_STORE: Ordering = M::HEAD_STORE;
    const HEAD_LOAD: Ordering = M::HEAD_LOAD;

    fn capacity_bytes(&self) -> u64 {
        self.words.len() as u64 * WORD_BYTES
    }

    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }

    fn head(&self) -> &AtomicU64 {
        &self.head
    }

    fn store_word(&self, at: u64, word: u64) {
        // SAFETY: the checker has seen that nobody else uses the word now.
        self.cell(at).with_mut(|place| unsafe { *place = word });
    }

    fn load_word(&self, at: u64) -> u64 {
        // SAFETY: the checker has seen that nobody stores the word now.
        self.cell(at).with(|place| unsafe { *place })
    }
}

/// The content of a position: no two are equal.
fn expected(at: u64) -> u64 {
    100 + at
}

/// One run: everything that is pushed is taken, in order.
pub fn run<M: Mutant>() {
    let ring = Arc::new(Ring::<M> {
        words: [UnsafeCell::new(0), UnsafeCell::new(0)],
        tail: AtomicU64::new(0),
        head: AtomicU64::new(0),
        mutant: PhantomData,
    });
    let producer = thread::spawn({
        let ring = Arc::clone(&ring);
        move || produce(&ring)
    });
    consume(&ring);
    producer.join().expect("the producer does not panic");
}

fn produce<M: Mutant>(ring: &Ring<M>) {
    let mut claim = Claim::new();
    for _ in 0..PUSHED {
        while M::SWAP != Swap::NoRoomNeeded && !claim.has_room(ring, WORD_BYTES) {
            thread::yield_now();
        }
        let at = claim.tail();
        if M::SWAP == Swap::PublishBeforeWord {
            claim.publish(ring, WORD_BYTES);
            ring.store_word(at, expected(at));
        } else {
            ring.store_word(at, expected(at));
            claim.publish(ring, WORD_BYTES);
        }
    }
}

fn consume<M: Mutant>(ring: &Ring<M>) {
    let mut head = 0;
    while head < PUSHED * WORD_BYTES {
        let tail = published(ring);
        if head == tail {
            thread::yield_now();
        }
        if M::SWAP == Swap::GiveBackBeforeCopy {
            give_back(ring, tail);
        }
        while head < tail {
            let word = ring.load_word(head);
            assert_eq!(
                word,
                expected(head),
                "the word at {head} is what was pushed there"
            );
            head += WORD_BYTES;
        }
        give_back(ring, head);
    }
}
