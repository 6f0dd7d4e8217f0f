//! Stops a query at the caller's wish: the operators call a closure between chunks and between nodes.
//!
//! The closure may be costly (it may cross into another program), so it is called at most once in a few milliseconds.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The least time between two calls. A query must stop within 10 ms.
const INTERVAL: Duration = Duration::from_millis(4);
/// The number of steps between two readings of the clock. A step takes some microseconds.
const STEPS: u32 = 16;

/// Checks whether the query must end. It belongs to one call on one thread.
pub struct Poll<'a> {
    interrupted: Option<&'a dyn Fn() -> bool>,
    asked: Cell<Instant>,
    steps: Cell<u32>,
}

impl<'a> Poll<'a> {
    /// `interrupted` returns true when the query must end.
    pub fn new(interrupted: &'a dyn Fn() -> bool) -> Self {
        Poll {
            interrupted: Some(interrupted),
            asked: Cell::new(Instant::now()),
            steps: Cell::new(0),
        }
    }

    /// For a query that cannot be interrupted.
    pub fn never() -> Self {
        Poll {
            interrupted: None,
            asked: Cell::new(Instant::now()),
            steps: Cell::new(0),
        }
    }

    /// To be called for each step of work.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the closure returns true.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        self.ask()
    }

    fn ask(&self) -> Result<()> {
        let Some(interrupted) = self.interrupted else {
            return Ok(());
        };
        let now = Instant::now();
        if now.duration_since(self.asked.get()) < INTERVAL {
            return Ok(());
        }
        self.asked.set(now);
        if interrupted() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_ends_soon_after_the_closure_says_so_and_not_before() {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let poll = Poll::new(&interrupted);
        let started = Instant::now();
        while poll.check().is_ok() {}
        assert_eq!(asked.get(), 3);
        assert!(started.elapsed() >= 3 * INTERVAL);
        assert!((0..1000).all(|_| Poll::never().check().is_ok()));
    }
}
