//! Chooses the next window of a rule, and draws the consequence of its answer: nothing, an alert, or its end. Pure, so that the daemon, its restart and
//! `ingestd rule test` cannot differ.

use std::time::Duration;

use loom_engine::Timestamp;

/// A running daemon skips a window that ended longer ago than this and than four periods.
const LATE_NS: i64 = 1_000_000_000;
/// A restart evaluates at most this many windows that ended before it. At most half of them end after the pause began.
const CATCH_UP: i64 = 2_000;

/// The state of the condition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Normal,
    /// It holds since the window that ended at `since`, and not for long enough yet.
    Pending {
        since: Timestamp,
    },
    Firing,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Normal => "normal",
            Phase::Pending { .. } => "pending",
            Phase::Firing => "firing",
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Fires,
    Resolves,
}

/// The time in which no daemon ran.
#[derive(Copy, Clone, Debug)]
pub struct Pause {
    /// The arrival of the last record before it.
    pub from: Timestamp,
    pub to: Timestamp,
}

/// The progress of one rule.
#[derive(Clone, Debug)]
pub struct Watch {
    pub phase: Phase,
    /// Windows that were not evaluated in time.
    pub missed: u64,
    every_ns: i64,
    hold_ns: i64,
    next: Timestamp,
    /// The pause, and how long after its begin a window may end that is still evaluated, because it holds records from before the pause.
    pause: Option<(Pause, i64)>,
}

impl Watch {
    /// The first window is the one that ends next after `after`.
    pub fn new(every: Duration, hold: Duration, phase: Phase, after: Timestamp) -> Watch {
        let every_ns = nanos(every);
        Watch {
            phase,
            missed: 0,
            every_ns,
            hold_ns: nanos(hold),
            next: next_end(after, every_ns),
            pause: None,
        }
    }

    /// Skips the windows that lie wholly in a pause. Windows have the length `over`.
    pub fn skip(&mut self, pause: Pause, over: Duration) {
        let reach_ns = nanos(over).min(CATCH_UP / 2 * self.every_ns);
        self.pause = Some((pause, reach_ns));
    }

    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// The end of the window that was evaluated last.
    pub fn evaluated_to(&self) -> Timestamp {
        Timestamp(self.next.0 - self.every_ns)
    }

    /// Returns the end of the window to evaluate now, if one has ended. It counts and skips windows that are too late.
    pub fn due(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut latest = now;
        let mut late_ns = LATE_NS.max(4 * self.every_ns);
        if let Some((pause, reach_ns)) = self.pause {
            if self.next.0 - reach_ns > pause.from.0 {
                self.next = self.next.max(next_end(pause.to, self.every_ns));
                self.pause = None;
            } else {
                latest = Timestamp(pause.from.0 + reach_ns);
                late_ns = CATCH_UP.saturating_mul(self.every_ns);
            }
        }
        let oldest = Timestamp(latest.0.saturating_sub(late_ns));
        if self.next < oldest {
            let kept = next_end(oldest, self.every_ns);
            self.missed += ((kept.0 - self.next.0) / self.every_ns) as u64;
            self.next = kept;
        }
        (self.next <= now).then_some(self.next)
    }

    /// Takes the answer for the window that is due, and goes on to the next.
    pub fn step(&mut self, holds: bool) -> Option<Change> {
        let end = self.next;
        self.pass();
        let since = match (self.phase, holds) {
            (Phase::Firing, true) => return None,
            (before, false) => {
                self.phase = Phase::Normal;
                return (before == Phase::Firing).then_some(Change::Resolves);
            }
            (Phase::Normal, true) => end,
            (Phase::Pending { since }, true) => since,
        };
        if end.0 - since.0 >= self.hold_ns {
            self.phase = Phase::Firing;
            return Some(Change::Fires);
        }
        self.phase = Phase::Pending { since };
        None
    }

    /// Goes on to the next window without an answer.
    pub fn pass(&mut self) {
        self.next = Timestamp(self.next.0 + self.every_ns);
    }
}

/// Returns the least multiple of the period that is greater than `after`.
fn next_end(after: Timestamp, every_ns: i64) -> Timestamp {
    Timestamp((after.0.div_euclid(every_ns) + 1).saturating_mul(every_ns))
}

/// Converts a duration of a rule, which is at most days.
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).expect("durations of rules are limited to days")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn watch(hold_ms: u64) -> Watch {
        let every = Duration::from_millis(10);
        let hold = Duration::from_millis(hold_ms);
        Watch::new(every, hold, Phase::Normal, Timestamp(5 * MS))
    }

    #[test]
    fn windows_end_at_whole_periods() {
        let mut watch = watch(0);
        assert_eq!(watch.due(Timestamp(9 * MS)), None);
        assert_eq!(watch.due(Timestamp(10 * MS)), Some(Timestamp(10 * MS)));
        watch.step(false);
        assert_eq!(watch.due(Timestamp(19 * MS)), None);
        assert_eq!(watch.evaluated_to(), Timestamp(10 * MS));
    }

    #[test]
    fn a_rule_fires_once_it_has_held_and_resolves_once() {
        let mut watch = watch(20);
        let changes: Vec<Option<Change>> =
            [true, true, false, true, true, true, true, false, false]
                .map(|holds| watch.step(holds))
                .into();
        let (fires, resolves) = (Some(Change::Fires), Some(Change::Resolves));
        let wanted = [None, None, None, None, None, fires, None, resolves, None];
        assert_eq!(changes, wanted);
    }

    #[test]
    fn windows_that_come_too_late_are_counted() {
        let mut watch = watch(0);
        let now = Timestamp(5_000 * MS);
        assert_eq!(watch.due(now), Some(Timestamp(4_010 * MS)));
        assert_eq!(watch.missed, 400);
    }

    // case Rules: a restart, or a kill
    #[test]
    fn a_pause_is_skipped_and_the_windows_before_it_are_not() {
        let watch = watch(0);
        let pause = Pause {
            from: Timestamp(31 * MS),
            to: Timestamp(9_005 * MS),
        };
        let now = Timestamp(9_020 * MS);
        // The last windows that hold the last record end less than their length after it.
        for (over_ms, evaluated) in [
            (10, vec![10, 20, 30, 40, 9_010, 9_020]),
            (40, vec![10, 20, 30, 40, 50, 60, 70, 9_010, 9_020]),
        ] {
            let mut watch = watch.clone();
            watch.skip(pause, Duration::from_millis(over_ms));
            let mut ends = Vec::new();
            while let Some(end) = watch.due(now) {
                ends.push(end.0 / MS);
                watch.step(false);
            }
            assert_eq!((ends, watch.missed), (evaluated, 0));
        }
    }

    proptest! {
        // case Rules: a restart, or a kill
        #[test]
        fn a_restart_at_any_time_sees_each_window_once(
            answers in prop::collection::vec(any::<bool>(), 1..40), hold in 0..4u64, cut in 0..40usize,
        ) {
            let run = |watch: &mut Watch, answers: &[bool]| -> Vec<(i64, Change)> {
                (answers.iter()).filter_map(|holds| {
                    let end = watch.next().0;
                    watch.step(*holds).map(|change| (end, change))
                }).collect()
            };
            let mut whole = watch(hold * 10);
            let wanted = run(&mut whole, &answers);
            let (before, after) = answers.split_at(cut.min(answers.len()));
            let mut first = watch(hold * 10);
            let mut found = run(&mut first, before);
            let (every, hold) = (Duration::from_millis(10), Duration::from_millis(hold * 10));
            let mut second = Watch::new(every, hold, first.phase, first.evaluated_to());
            found.extend(run(&mut second, after));
            prop_assert_eq!(found, wanted);
        }
    }
}
