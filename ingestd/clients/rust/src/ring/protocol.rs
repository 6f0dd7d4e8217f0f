//! The order of the steps that both sides of a ring take: which word is stored before which, and which is read again.
//!
//! Producer and consumer use this file, and the model check in `engine/model` compiles it over its own memory. It weakens one step at a time, and
//! each weakened protocol must fail. The steps guarantee:
//!
//! 1. The tail is stored after the words below it, so a consumer that sees the tail sees the words.
//! 2. The head is stored after the words below it were copied, and a producer that reuses their place has seen that head.
//! 3. Each mark has one side that stores it, and only grows.

use std::sync::atomic::Ordering;

/// A word that both sides read and one side stores.
pub trait Mark {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// The shared memory of a ring. Positions are bytes and multiples of 8; the words are reused in a circle.
pub trait Memory {
    type Mark: Mark;

    /// The memory ordering of each step. Rings use the defaults; the model weakens them.
    ///
    /// Pairs with `TAIL_LOAD`: the words below the tail are visible.
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
    /// Everything below it is published.
    tail: u64,
    /// The consumer's mark at the last look.
    head: u64,
}

impl Claim {
    pub fn new() -> Claim {
        Claim { tail: 0, head: 0 }
    }

    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether so many bytes are free behind the tail. This reads the consumer's mark only if the mark of the last look leaves too little space.
    #[inline]
    pub fn has_room<M: Memory>(&mut self, memory: &M, bytes: u64) -> bool {
        self.fits(memory, bytes) || self.look(memory, bytes)
    }

    #[cold]
    fn look<M: Memory>(&mut self, memory: &M, bytes: u64) -> bool {
        // A consumer cannot have taken records that are not published.
        self.head = taken(memory).min(self.tail);
        self.fits(memory, bytes)
    }

    #[inline]
    fn fits<M: Memory>(&self, memory: &M, bytes: u64) -> bool {
        self.tail + bytes <= self.head + memory.capacity_bytes()
    }

    /// Publishes so many bytes more, which were stored behind the tail.
    #[inline]
    pub fn publish<M: Memory>(&mut self, memory: &M, bytes: u64) {
        self.tail += bytes;
        memory.tail().store(self.tail, M::TAIL_STORE);
    }
}

/// The end of the published words.
#[inline]
pub fn published<M: Memory>(memory: &M) -> u64 {
    memory.tail().load(M::TAIL_LOAD)
}

/// Frees the words below `head` for the producer: they are copied.
#[inline]
pub fn give_back<M: Memory>(memory: &M, head: u64) {
    memory.head().store(head, M::HEAD_STORE);
}

/// The consumer has copied everything below it.
#[inline]
pub fn taken<M: Memory>(memory: &M) -> u64 {
    memory.head().load(M::HEAD_LOAD)
}
