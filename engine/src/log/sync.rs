//! The atomics, fences and locks of the log, all in one place.
//!
//! Everything in `log` that two threads or two processes share goes through these names; the orderings of live reads are in `protocol.rs`, which a model
//! checker compiles over memory of its own.

pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use std::sync::atomic::fence;

use super::staging::protocol::{Protocol, SharedWord};

/// The protocol over this machine's memory.
pub struct Memory;

impl SharedWord for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

impl Protocol for Memory {
    type Word = AtomicU64;

    fn fence_after_word() {
        fence(Ordering::Acquire);
    }

    fn fence_after_head() {
        fence(Ordering::Release);
    }

    fn fence_after_copy() {
        fence(Ordering::Acquire);
    }
}

/// Locks `mutex`; the guarded value is valid after a panic too, since every holder replaces whole values.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
