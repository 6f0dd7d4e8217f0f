//! The order of steps that live reads depend on, and nothing else: stores before other stores, and loads after other loads.
//!
//! Writer, flusher and readers take these steps through this file. The model checker in `engine/model` compiles the same file over memory of
//! its own, weakens one step at a time and must see it fail. The steps have these effects:
//!
//! 1. A tail is stored after the bytes below it, so a reader that sees the tail sees the bytes.
//! 2. The three tails are stored records first and loaded times first, so an address that is found lies below a tail that is held.
//! 3. A head is stored after the segment write below it has returned and before new bytes replace the old ones. A reader copies and then
//!    loads the head. If the head is at or below the copied bytes, they are the old ones; if it is above, the reader takes them from the segment.
//! 4. The mark over a unit of the record log is stored after the unit is written, and its block is released after that, so a reader that sees
//!    the mark finds the unit.

use std::sync::atomic::Ordering;

use crate::types::{Address, LogKind, PerLog};

/// A word that threads or processes share.
pub trait SharedWord {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// The memory order of each step. The logs use the defaults; a model weakens them.
pub trait Protocol {
    type Word: SharedWord;

    /// Stores a mark between the writer thread and the flusher thread; pairs with `MARK_LOAD`.
    const MARK_STORE: Ordering = Ordering::Release;
    /// Pairs with `MARK_STORE`, so the load sees everything that was stored or written below the mark.
    const MARK_LOAD: Ordering = Ordering::Acquire;
    /// Stores a word of the control page and its complement; pairs with `fence_after_word`.
    const WORD_STORE: Ordering = Ordering::Release;

    /// Follows the copy of a word from the control page: later reads are at least as new as the word. Pairs with `WORD_STORE`.
    fn fence_after_word();
    /// Separates a head from the bytes of the block's next use; pairs with `fence_after_copy`.
    fn fence_after_head();
    /// Separates a copy from staging and the load of the head that judges it: if the copy has a byte of the block's next use, that head lies above it. Pairs
    /// with `fence_after_head`.
    fn fence_after_copy();
}

/// Stores a word of the control page, then its complement: a reader that sees the complement sees the word and every byte that was written before it.
pub fn announce<P: Protocol>(word: &P::Word, complement: &P::Word, value: u64) {
    word.store(value, P::WORD_STORE);
    complement.store(!value, P::WORD_STORE);
}

/// Stores a mark that another thread of the writer's process loads.
pub fn set_mark<P: Protocol>(mark: &P::Word, value: Address) {
    mark.store(value.0, P::MARK_STORE);
}

pub fn mark<P: Protocol>(mark: &P::Word) -> Address {
    Address(mark.load(P::MARK_LOAD))
}

/// Gives up the bytes below `head`, which are in segments: `announce_head` stores it for readers and the flusher. Bytes of the block's next use are stored after
/// this returns.
pub fn give_up_below<P: Protocol>(head: Address, announce_head: impl FnOnce(Address)) {
    announce_head(head);
    P::fence_after_head();
}

/// Passes a unit that ends at `end`: `write` writes its bytes, then `announce` announces it to readers, then `release` lets its block be reused.
pub fn pass_unit<E>(
    end: Address,
    write: impl FnOnce() -> Result<(), E>,
    announce: impl FnOnce(Address),
    release: impl FnOnce(Address),
) -> Result<(), E> {
    write()?;
    announce(end);
    release(end);
    Ok(())
}

/// Publishes one log after the other, so that a reader that finds a reference also finds its target.
pub fn publish(mut announce_tail: impl FnMut(LogKind)) {
    for log in [LogKind::Records, LogKind::Chunks, LogKind::Times] {
        announce_tail(log);
    }
}

/// Loads a word of each log in the opposite order of publication and returns records, chunks, times.
pub fn load_tails<T, E>(mut load: impl FnMut(LogKind) -> Result<T, E>) -> Result<PerLog<T>, E> {
    let times = load(LogKind::Times)?;
    let chunks = load(LogKind::Chunks)?;
    let records = load(LogKind::Records)?;
    Ok(PerLog {
        records,
        chunks,
        times,
    })
}

/// Loads a word of each of several writers, in rounds. If two rounds agree, all words had these values at one moment between them: a word that a writer stored
/// after it had seen another's word is missing from both rounds only if that word is too. Continues while `another` allows it. Returns the words of the last
/// round, and whether they are of one moment.
pub fn load_cut<T: PartialEq, E>(
    loads: &mut [impl FnMut() -> Result<T, E>],
    mut another: impl FnMut() -> bool,
) -> Result<(Vec<T>, bool), E> {
    let mut round = || (loads.iter_mut().map(|load| load())).collect::<Result<Vec<T>, E>>();
    let mut before = round()?;
    loop {
        let words = round()?;
        let is_one_moment = words == before;
        if is_one_moment || !another() {
            return Ok((words, is_one_moment));
        }
        before = words;
    }
}

/// Copies the staged part of `[from, end)`: `copy` gets the start and copies up to `end`, `load_head` loads the head. Returns the start of the valid copy; the
/// bytes before it are in segments for good. `head` is the greatest head seen before; it is moved on.
pub fn copy_staged<P: Protocol, E>(
    from: Address,
    end: Address,
    head: &mut Address,
    mut copy: impl FnMut(Address) -> Result<(), E>,
    load_head: impl Fn() -> Result<Address, E>,
) -> Result<Address, E> {
    loop {
        let split = (*head).clamp(from, end);
        if split == end {
            return Ok(end);
        }
        copy(split)?;
        P::fence_after_copy();
        *head = load_head()?;
        if *head <= split {
            return Ok(split);
        }
    }
}
