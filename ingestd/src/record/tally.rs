//! The counts of a running capture, for the screen, and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The counts of a running capture. Relaxed order suffices, because they guard no other memory.
#[derive(Debug, Default)]
pub struct Tally {
    records: AtomicU64,
    lost: AtomicU64,
    sampled: AtomicU64,
    failed: AtomicBool,
    /// The processor time of its programs in the kernel.
    program_ns: AtomicU64,
    /// The least time of an event that is recorded, if its events take time.
    least_ns: Option<AtomicU64>,
    /// The least time that the user asked for.
    asked_ns: u64,
}

/// The least time if a recording without one is over its budget.
const LEAST_NS: u64 = 1_000;
/// A budget never leaves out longer events than this: they are too few to cost much.
const LEAST_NS_MAX: u64 = 100_000_000;

impl Tally {
    /// The tally of a capture that records events from this time on, if they take time.
    pub(super) fn new(least: Option<Duration>) -> Tally {
        let ns = least.map(|least| u64::try_from(least.as_nanos()).unwrap_or(u64::MAX));
        Tally {
            least_ns: ns.map(AtomicU64::new),
            asked_ns: ns.unwrap_or(0),
            ..Tally::default()
        }
    }

    /// Records left out to save time.
    pub fn sampled(&self) -> u64 {
        self.sampled.load(Ordering::Relaxed)
    }

    pub(super) fn program_time(&self) -> Duration {
        Duration::from_nanos(self.program_ns.load(Ordering::Relaxed))
    }

    pub(super) fn set_program_time(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.program_ns.store(ns, Ordering::Relaxed);
    }

    /// The least time of an event that is recorded.
    pub(super) fn least(&self) -> Duration {
        let ns = self.least_ns.as_ref();
        Duration::from_nanos(ns.map_or(0, |ns| ns.load(Ordering::Relaxed)))
    }

    /// Doubles the least time, if events take time and it is not great already. Returns it then.
    pub(super) fn double_least(&self) -> Option<Duration> {
        let ns = self.least_ns.as_ref()?;
        let least = ns.load(Ordering::Relaxed);
        if least >= LEAST_NS_MAX {
            return None;
        }
        let doubled = (2 * least).max(LEAST_NS);
        ns.store(doubled, Ordering::Relaxed);
        Some(Duration::from_nanos(doubled))
    }

    /// Whether the least time was doubled and not halved again.
    pub(super) fn is_narrowed(&self) -> bool {
        self.least() > Duration::from_nanos(self.asked_ns)
    }

    /// Takes one doubling of the least time back, if there is one. Returns it then.
    pub(super) fn halve_least(&self) -> Option<Duration> {
        let ns = self.least_ns.as_ref().filter(|_| self.is_narrowed())?;
        let halved = ns.load(Ordering::Relaxed) / 2;
        let least = if halved < LEAST_NS {
            self.asked_ns
        } else {
            halved.max(self.asked_ns)
        };
        ns.store(least, Ordering::Relaxed);
        Some(Duration::from_nanos(least))
    }

    /// Records passed to the daemon.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Records lost before they reached Loom.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the capture has failed, so that the recording must end.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn add_lost(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn add_sampled(&self, records: u64) {
        self.sampled.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// The end of a capture.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// A sentence that says why it ended by itself; `None` if it was stopped.
    pub why: Option<String>,
    /// Notes about the recording that are not losses.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_doubles_up_to_a_bound_and_comes_back_by_the_same_steps() {
        let tally = Tally::new(Some(Duration::ZERO));
        let all: Vec<u64> = std::iter::from_fn(|| tally.double_least())
            .map(|least| least.as_nanos() as u64)
            .collect();
        assert_eq!(all.get(..3), Some(&[1_000, 2_000, 4_000][..]));
        assert_eq!(all.last(), Some(&131_072_000));
        let back = std::iter::from_fn(|| tally.halve_least());
        let back: Vec<u64> = back.map(|least| least.as_nanos() as u64).collect();
        let before = all.iter().rev().skip(1).chain(&[0]);
        assert!(back.iter().eq(before), "{back:?}");
        assert!(!tally.is_narrowed());
        for asked in [300, 1_500, 3_000_000] {
            let asked = Duration::from_nanos(asked);
            let tally = Tally::new(Some(asked));
            assert_eq!(tally.halve_least(), None);
            let [first, _] = [(); 2].map(|()| tally.double_least().unwrap());
            assert_eq!(tally.halve_least(), Some(first));
            assert_eq!(tally.halve_least(), Some(asked));
            assert_eq!((tally.halve_least(), tally.is_narrowed()), (None, false));
        }
        let long = Tally::new(Some(Duration::MAX));
        assert_eq!(
            (long.double_least(), Tally::new(None).double_least()),
            (None, None)
        );
    }
}
