//! An execution of a call and the threads that work on it, as the adapters see them.

use std::sync::Arc;

use loom_engine::query::Poll;

use super::vectors::Output;
use crate::error::Result;

/// An execution, shared by its threads.
pub trait Run: Send + Sync {
    /// The number of threads that would find work.
    fn threads(&self) -> usize {
        1
    }

    /// The progress, from 0 to 1.
    fn progress(&self) -> f64 {
        0.0
    }

    /// Creates the part of one thread.
    fn worker(self: Arc<Self>) -> Box<dyn Worker>;
}

/// One thread's part of an execution.
pub trait Worker: Send {
    /// The position of the last vector's rows among all. It never decreases, and no other thread has the same.
    fn batch(&self) -> u64 {
        0
    }

    /// Writes at most one vector of rows, and returns their number; 0 at the end.
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize>;
}
