//! The share of a core that rules may take. After they took more, they wait, and windows that are too late by then are missed.
//!
//! The rules of the configuration have one budget and those that clients added another, so that no client can keep a configured rule from its windows.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The rules of the configuration may take a quarter of a core.
const CONFIGURED: u32 = 4;
/// All rules that were added together may take a tenth.
const ADDED: u32 = 10;
/// Time that was not taken in the latest span of this length may be taken at once.
const SAVED: Duration = Duration::from_secs(2);

pub(super) struct Budgets {
    pub(super) configured: Budget,
    pub(super) added: Budget,
}

impl Budgets {
    pub(super) fn new(now: Instant) -> Budgets {
        Budgets {
            configured: Budget::new(CONFIGURED, now),
            added: Budget::new(ADDED, now),
        }
    }

    /// The budget of the rules that were added, or of those of the configuration.
    pub(super) fn of(&mut self, is_added: bool) -> &mut Budget {
        match is_added {
            true => &mut self.added,
            false => &mut self.configured,
        }
    }
}

/// One n-th of a core.
pub(super) struct Budget {
    part: u32,
    /// The rules wait until then.
    paid_until: Instant,
}

impl Budget {
    fn new(part: u32, now: Instant) -> Budget {
        Budget {
            part,
            paid_until: now,
        }
    }

    /// The time until the budget has something left.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.paid_until.saturating_duration_since(now)
    }

    /// Counts time of a core that rules took.
    pub(super) fn take(&mut self, cpu: Duration, now: Instant) {
        let saved = now.checked_sub(SAVED).unwrap_or(now);
        self.paid_until = self.paid_until.max(saved) + cpu * self.part;
    }
}

/// The CPU time of this thread, which on a busy machine is less than the time that has passed.
pub(super) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's time is positive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_a_part_of_the_time_and_a_little_is_saved() {
        let begin = Instant::now();
        let mut budget = Budget::new(ADDED, begin);
        let (mut now, mut taken) = (begin, Duration::ZERO);
        while now < begin + Duration::from_secs(100) {
            if budget.wait(now).is_zero() {
                let cpu = Duration::from_millis(7);
                budget.take(cpu, now);
                taken += cpu;
            }
            now += Duration::from_millis(1);
        }
        let most = Duration::from_secs(10) + (SAVED / ADDED) + Duration::from_millis(7);
        assert!(taken <= most && taken > Duration::from_secs(9), "{taken:?}");
        now += Duration::from_secs(3600);
        budget.take(Duration::from_secs(1), now);
        assert_eq!(budget.wait(now), Duration::from_secs(8));
    }
}
