//! The time without a daemon: how long a client puts up with it, and when it looks for the next one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a client puts up with it, unless its options say otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between the first looks; each pause is twice as long as the one before.
const PAUSE_LEAST: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// How often a sleeper looks whether it is to stop.
const NAP: Duration = Duration::from_millis(20);

#[derive(Copy, Clone)]
pub(super) struct Absence {
    since: Instant,
    next_look: Instant,
    pause: Duration,
}

impl Absence {
    /// One that begins now, with a look.
    pub(super) fn begin() -> Absence {
        let now = Instant::now();
        Absence {
            since: now,
            next_look: now,
            pause: PAUSE_LEAST,
        }
    }

    pub(super) fn is_longer_than(&self, patience: Duration) -> bool {
        self.since.elapsed() > patience
    }

    pub(super) fn is_look_due(&self) -> bool {
        Instant::now() >= self.next_look
    }

    pub(super) fn looked_in_vain(&mut self) {
        self.next_look = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MOST);
    }

    pub(super) fn sleep_until_look(&self) {
        std::thread::sleep(self.until_look());
    }

    /// The same, but at most a moment longer than until `stop` is set.
    pub(super) fn sleep_until_look_or(&self, stop: &AtomicBool) {
        while !self.is_look_due() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(self.until_look().min(NAP));
        }
    }

    fn until_look(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }
}
