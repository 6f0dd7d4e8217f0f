//! The one place that the log takes its atomics, fences and locks from.
//!
//! Everything in `log` that two threads or two processes share goes through these names, so a model checker replaces them here
//! and nowhere else.

pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`; what it guards is valid after a panic too, since every holder replaces whole values.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
