//! The forward steps of the wall clock that arrival time followed. Without them the age of a record would not be the time that has passed.
//!
//! A step makes every earlier record look older than it is, and retention by age would remove all of them at once.

use std::time::Duration;

use crate::types::Timestamp;

/// Older steps are merged beyond this number.
const STEPS_MAX: usize = 64;

/// A jump of arrival time from one time to another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClockStep {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// The steps that are known, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockSteps(Vec<ClockStep>);

impl ClockStep {
    /// The length of the jump.
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.to.0.saturating_sub(self.from.0).max(0) as u64)
    }

    /// The arrival time of a record of age `age` at `now`. The jumps of `steps`, oldest first, do not count as time that has passed.
    pub fn time_before(steps: &[ClockStep], now: Timestamp, age: Duration) -> Timestamp {
        let mut left_ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let mut time = now.0;
        for step in steps.iter().rev() {
            let since_ns = time.saturating_sub(step.to.0).max(0);
            if left_ns <= since_ns {
                break;
            }
            left_ns -= since_ns;
            time = time.min(step.from.0);
        }
        Timestamp(time.saturating_sub(left_ns))
    }
}

impl ClockSteps {
    /// Takes over the steps that earlier writers followed, in any order.
    pub fn restore(&mut self, mut earlier: Vec<ClockStep>) {
        earlier.append(&mut self.0);
        earlier.sort_by_key(|step| step.to);
        earlier.into_iter().for_each(|step| self.add(step));
    }

    /// Adds the latest step. If there are too many, the oldest two become one with the time between them, so a record can only seem
    /// younger.
    pub fn add(&mut self, step: ClockStep) {
        self.0.push(step);
        if self.0.len() > STEPS_MAX {
            let oldest = self.0.remove(0);
            if let Some(second) = self.0.first_mut() {
                second.from = oldest.from;
            }
        }
    }

    pub fn last(&self) -> Option<ClockStep> {
        self.0.last().copied()
    }

    /// The arrival time of a record of age `age` at `now`. Jumps do not count as time that has passed.
    pub fn before(&self, now: Timestamp, age: Duration) -> Timestamp {
        ClockStep::time_before(&self.0, now, age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(of: &[(i64, i64)]) -> Vec<ClockStep> {
        let step = |(from, to): &(i64, i64)| ClockStep {
            from: Timestamp(*from),
            to: Timestamp(*to),
        };
        of.iter().map(step).collect()
    }

    fn steps(of: &[(i64, i64)]) -> ClockSteps {
        let mut steps = ClockSteps::default();
        steps.restore(list(of));
        steps
    }

    #[test]
    fn the_time_of_a_step_does_not_pass() {
        let steps = steps(&[(500, 900), (100, 400)]);
        for (age, wanted) in [
            (0, 1000),
            (99, 901),
            (100, 900),
            (101, 499),
            (200, 400),
            (250, 50),
        ] {
            let found = steps.before(Timestamp(1000), Duration::from_nanos(age));
            assert_eq!(found, Timestamp(wanted), "{age}");
        }
        let ever = steps.before(Timestamp(1000), Duration::MAX);
        assert!(ever.0 < 0);
    }

    #[test]
    fn many_steps_are_kept_in_little_and_only_make_records_younger() {
        let many: Vec<(i64, i64)> = (0..1000).map(|n| (n * 100, n * 100 + 50)).collect();
        let (all, kept) = (many.len() as i64, steps(&many));
        assert_eq!(kept.0.len(), STEPS_MAX);
        let now = Timestamp(all * 100);
        for age in [10, 1000, 3000, 5000, 40_000] {
            let exact = ClockSteps(list(&many)).before(now, Duration::from_nanos(age));
            assert!(
                kept.before(now, Duration::from_nanos(age)) <= exact,
                "{age}"
            );
        }
    }
}
