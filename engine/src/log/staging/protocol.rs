//! The order of steps that live reads stand on, and nothing else: who stores what before what, and who looks again after what.
//!
//! Writer, flusher and readers take these steps through this file, and the model checker in `engine/model` compiles the same file over
//! memory of its own, where it weakens one step at a time and must see it fail. What the steps add up to:
//!
//! 1. A tail is stored after the bytes below it, so who sees the tail sees the bytes.
//! 2. The three tails are stored records first and loaded times first, so an address that is found lies below a tail that is held.
//! 3. A head is stored after the segment write below it has returned and before the bytes that take the old ones' place. Who copies and then
//!    finds the head at or below what it copied has copied the old bytes; who finds it above reads the segment, which holds them.
//! 4. The mark over a unit of the record log is stored after the unit is written, and its block is released after that: who sees the mark finds the unit.

use std::sync::atomic::Ordering;

use crate::types::{Address, LogKind, PerLog};

/// A word that threads or processes share.
pub trait SharedWord {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// How strongly each step is ordered. The logs use the defaults; a model weakens them.
pub trait Protocol {
    type Word: SharedWord;

    /// Of a mark between the writer thread and the flusher thread; pairs with `MARK_LOAD`.
    const MARK_STORE: Ordering = Ordering::Release;
    /// Pairs with `MARK_STORE`: what was stored or written below the mark before is seen.
    const MARK_LOAD: Ordering = Ordering::Acquire;
    /// Of a word in the control page and of its complement; pairs with `fence_after_word`.
    const TOLD: Ordering = Ordering::Release;

    /// After a word was copied from the control page: what is read from now on is at least as new as the word. Pairs with `TOLD`.
    fn fence_after_word();
    /// Between a head and the bytes of the block's next use; pairs with `fence_after_copy`.
    fn fence_after_head();
    /// Between a copy from staging and the head that judges it: if a byte of the block's next use was copied, the head that is loaded next
    /// lies above it. Pairs with `fence_after_head`.
    fn fence_after_copy();
}

/// Stores a word of the control page, then its complement: who sees the complement sees the word and every byte that was written before it.
pub fn tell<P: Protocol>(word: &P::Word, complement: &P::Word, value: u64) {
    word.store(value, P::TOLD);
    complement.store(!value, P::TOLD);
}

/// Stores a mark that one thread of the writer's process stores and another loads.
pub fn set_mark<P: Protocol>(mark: &P::Word, value: Address) {
    mark.store(value.0, P::MARK_STORE);
}

pub fn mark<P: Protocol>(mark: &P::Word) -> Address {
    Address(mark.load(P::MARK_LOAD))
}

/// Gives up what lies below `head`, which is in segments: `tell_head` stores it where readers and the flusher look. Bytes of the block's next
/// use are stored after this returns.
pub fn give_up_below<P: Protocol>(head: Address, tell_head: impl FnOnce(Address)) {
    tell_head(head);
    P::fence_after_head();
}

/// Passes a unit that ends at `end`: `write` has its bytes written, then `tell` shows readers that it is there, then `release` lets its block be reused.
pub fn pass_unit<E>(
    end: Address,
    write: impl FnOnce() -> Result<(), E>,
    tell: impl FnOnce(Address),
    release: impl FnOnce(Address),
) -> Result<(), E> {
    write()?;
    tell(end);
    release(end);
    Ok(())
}

/// Publishes the logs one after the other, so that whoever finds a reference finds what it refers to.
pub fn publish(mut tell_tail: impl FnMut(LogKind)) {
    for log in [LogKind::Records, LogKind::Chunks, LogKind::Times] {
        tell_tail(log);
    }
}

/// Loads a word of each log in the opposite order of publication; records, chunks, times are returned.
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

/// Loads a word of each of several writers, in rounds. Where two rounds find the same, all of the words stood so at the moment between them: what a
/// writer stored after it had seen another's word is in neither round without that word, which the second finds at the latest. Goes on while
/// `another` allows it. Returns the words of the last round, and whether they stood so at one moment.
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

/// Copies from staging what of `[from, end)` is staged: `copy` gets where to begin and copies up to `end`, `load_head` looks at the head.
/// Returns where the copy begins that holds; what lies before it is in segments for good. `head` is the greatest head seen before; it is moved on.
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
