//! The order of steps that a ring stands on, and nothing else: who stores what before what, and who looks again after what.
//!
//! Producer and consumer take their steps through this file, and the model check in `engine/model` compiles the same file over memory of its
//! own, where it weakens one step at a time and must see it fail. What the steps add up to:
//!
//! 1. The tail is stored after the words below it, so a consumer that sees the tail sees the words.
//! 2. The head is stored after the words below it were copied, and a producer that reuses their place has seen that head.
//! 3. Each mark has one side that stores it, and only grows.

use std::sync::atomic::Ordering;

/// A word that both sides share and one of them stores.
pub trait Mark {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// The shared memory of a ring. Positions are bytes, multiples of 8; the words of a ring come round.
pub trait Memory {
    type Mark: Mark;

    /// How strongly each step is ordered. Rings use the defaults; a model weakens them.
    ///
    /// Pairs with `TAIL_LOAD`: the words below the tail are seen.
    const TAIL_STORE: Ordering = Ordering::Release;
    const TAIL_LOAD: Ordering = Ordering::Acquire;
    /// Pairs with `HEAD_LOAD`: the words below the head are copied.
    const HEAD_STORE: Ordering = Ordering::Release;
    const HEAD_LOAD: Ordering = Ordering::Acquire;

    fn capacity_bytes(&self) -> u64;
    fn tail(&self) -> &Self::Mark;
    fn head(&self) -> &Self::Mark;
    fn store_word(&self, at: u64, word: u64);
    fn load_word(&self, at: u64) -> u64;
}

/// The producer's view.
pub struct Claim {
    /// All below it is published.
    tail: u64,
    /// The consumer's mark as it was seen last.
    head: u64,
}

impl Claim {
    pub fn new() -> Claim {
        Claim { tail: 0, head: 0 }
    }

    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether so many bytes are free behind the tail. Looks at the consumer's mark only if the one seen last leaves too little.
    #[inline]
    pub fn has_room<M: Memory>(&mut self, memory: &M, bytes: u64) -> bool {
        self.fits(memory, bytes) || self.look(memory, bytes)
    }

    #[cold]
    fn look<M: Memory>(&mut self, memory: &M, bytes: u64) -> bool {
        // No consumer has taken what is not published.
        self.head = taken(memory).min(self.tail);
        self.fits(memory, bytes)
    }

    #[inline]
    fn fits<M: Memory>(&self, memory: &M, bytes: u64) -> bool {
        self.tail + bytes <= self.head + memory.capacity_bytes()
    }

    /// Shows the consumer so many bytes more, which were stored behind the tail.
    #[inline]
    pub fn publish<M: Memory>(&mut self, memory: &M, bytes: u64) {
        self.tail += bytes;
        memory.tail().store(self.tail, M::TAIL_STORE);
    }
}

/// Where the published words end.
#[inline]
pub fn published<M: Memory>(memory: &M) -> u64 {
    memory.tail().load(M::TAIL_LOAD)
}

/// Gives the place of the words below `head` back to the producer: they are copied.
#[inline]
pub fn give_back<M: Memory>(memory: &M, head: u64) {
    memory.head().store(head, M::HEAD_STORE);
}

/// Below it the consumer has copied everything.
#[inline]
pub fn taken<M: Memory>(memory: &M) -> u64 {
    memory.head().load(M::HEAD_LOAD)
}
