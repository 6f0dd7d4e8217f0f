//! An execution of a call and the threads that work on it, as the adapters see them.

use std::sync::Arc;

use loom_engine::query::Poll;

use super::vectors::Output;
use crate::error::Result;

/// An execution, shared by its threads.
pub trait Run: Send + Sync {
    /// Threads that would find something to do.
    fn threads(&self) -> usize {
        1
    }

    /// From 0 to 1.
    fn progress(&self) -> f64 {
        0.0
    }

    /// One thread's part.
    fn worker(self: Arc<Self>) -> Box<dyn Worker>;
}

/// One thread's part of an execution.
pub trait Worker: Send {
    /// The place of the last vector's rows among all: it never decreases, and no other thread has the same.
    fn batch(&self) -> u64 {
        0
    }

    /// Writes up to a vector of rows. 0: there are no more.
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize>;
}
