//! Arrival time: nanoseconds since the Unix epoch that never decrease. The TSC counts them if it is invariant.
//!
//! The monotonic count is slewed to wall time once a second. The clock follows a forward step of the wall clock at once, and absorbs a
//! backward step by running slow, by at most 500 ppm. The writer starts it above every time that the log already holds.

use std::time::{SystemTime, UNIX_EPOCH};

use super::steps::{ClockStep, ClockSteps};
use crate::log::Ticks;
use crate::types::Timestamp;

const SECOND_NS: i64 = 1_000_000_000;
const SLEW_PPM_MAX: i64 = 500;
/// A wall clock that is ahead by more than this was stepped; drift is slower.
const STEP_NS: i64 = 100_000_000;

/// The clocks that arrival time is made from.
pub trait TimeSource {
    /// A count that never decreases.
    fn ticks(&self) -> u64;
    /// Converts ticks to nanoseconds.
    fn ns_of(&self, ticks: u64) -> u64;
    /// Wall time, which may step either way.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Default)]
pub struct SystemTimeSource {
    ticks: Ticks,
}

impl TimeSource for SystemTimeSource {
    #[inline]
    fn ticks(&self) -> u64 {
        self.ticks.now()
    }

    fn ns_of(&self, ticks: u64) -> u64 {
        self.ticks.nanos(ticks)
    }

    fn wall(&self) -> Timestamp {
        // The error of a time before 1970 holds the difference. Times beyond the format's range become its extremes.
        Timestamp(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        })
    }
}

/// A tick takes `rate / 2^RATE_SHIFT` nanoseconds.
const RATE_SHIFT: u32 = 32;

/// A straight line that converts ticks of the time-stamp counter to arrival time. The clock changes it once a second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ClockLine {
    pub ticks: u64,
    /// The arrival time at `ticks`.
    pub time: Timestamp,
    /// A tick takes `rate / 2^32` nanoseconds.
    pub rate: u64,
}

/// The arrival clock of a writer.
pub struct Clock<S = SystemTimeSource> {
    source: S,
    base_ticks: u64,
    base: Timestamp,
    /// The source's own rate, and the rate after the slew: one multiplication gives the time.
    rate: u64,
    slewed_rate: u64,
    last: Timestamp,
    pub(super) steps: ClockSteps,
}

impl<S: TimeSource> Clock<S> {
    /// Starts at wall time, or just above `newest`, the newest time in the log, if that is ahead.
    pub fn start(source: S, newest: Option<Timestamp>) -> Self {
        let base = newest.map_or(source.wall(), |newest| {
            source.wall().max(Timestamp(newest.0.saturating_add(1)))
        });
        let rate = source.ns_of(1 << RATE_SHIFT);
        let mut clock = Self {
            base_ticks: source.ticks(),
            source,
            base,
            rate,
            slewed_rate: rate,
            last: base,
            steps: ClockSteps::default(),
        };
        clock.correct();
        clock
    }

    /// The time now, which is never before a time given earlier.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        let elapsed_ns = self.elapsed_ns(self.slewed_rate);
        // Time stands still when the count wraps around, in 2262.
        let now = Timestamp(self.base.0.wrapping_add(elapsed_ns));
        self.last = self.last.max(now);
        self.last
    }

    /// The line that holds until the next correction.
    fn line(&self) -> ClockLine {
        ClockLine {
            ticks: self.base_ticks,
            time: self.base,
            rate: self.slewed_rate,
        }
    }

    /// Nanoseconds since the last correction, at a given rate.
    #[inline]
    fn elapsed_ns(&self, rate: u64) -> i64 {
        let ticks = self.source.ticks().saturating_sub(self.base_ticks);
        ((u128::from(ticks) * u128::from(rate)) >> RATE_SHIFT) as i64
    }

    /// Compares with wall time once a second and sets a new slew. Returns how far wall time is ahead, in ns.
    pub fn discipline(&mut self) -> Option<i64> {
        (self.elapsed_ns(self.rate) >= SECOND_NS).then(|| self.correct())
    }

    fn correct(&mut self) -> i64 {
        let now = self.now();
        let ahead_ns = self.source.wall().0.saturating_sub(now.0);
        self.base_ticks = self.source.ticks();
        self.base = now;
        if ahead_ns > STEP_NS {
            self.base = self.source.wall().max(now);
            self.steps.add(ClockStep {
                from: now,
                to: self.base,
            });
        }
        // Corrects half of the difference in the next second. One ppm is a microsecond a second.
        let wanted_ppm = if ahead_ns > STEP_NS {
            0
        } else {
            ahead_ns / 2000
        };
        let slew_ppm = wanted_ppm.clamp(-SLEW_PPM_MAX, SLEW_PPM_MAX);
        // Rounding towards no slew keeps the limit.
        let slew = i128::from(self.rate) * i128::from(slew_ppm) / 1_000_000;
        self.slewed_rate = self.rate.saturating_add_signed(slew as i64);
        ahead_ns
    }
}

impl Clock<SystemTimeSource> {
    /// The line by which other processes convert their readings of the time-stamp counter to arrival time; `None` if this clock does not
    /// count by it.
    pub fn time_stamp_line(&self) -> Option<ClockLine> {
        let counts = self.source.ticks.are_time_stamps();
        counts.then(|| self.line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Default)]
    struct Hands {
        monotonic_ns: Cell<u64>,
        wall_ns: Cell<i64>,
    }

    impl TimeSource for &Hands {
        fn ticks(&self) -> u64 {
            self.monotonic_ns.get()
        }

        fn ns_of(&self, ticks: u64) -> u64 {
            ticks
        }

        fn wall(&self) -> Timestamp {
            Timestamp(self.wall_ns.get())
        }
    }

    impl Hands {
        fn pass(&self, monotonic_ns: u64, wall_ns: i64) {
            self.monotonic_ns
                .set(self.monotonic_ns.get() + monotonic_ns);
            self.wall_ns.set(self.wall_ns.get() + wall_ns);
        }
    }

    // G12
    // case Time: the wall clock a day back
    #[test]
    fn a_backward_step_is_absorbed_by_running_slow_and_time_never_decreases() {
        let hands = Hands::default();
        hands.wall_ns.set(1_000 * SECOND_NS);
        let mut clock = Clock::start(&hands, None);
        hands.pass(1_000_000_000, -SECOND_NS);
        let mut last = clock.now();
        for _ in 0..3_000 {
            clock.discipline();
            hands.pass(1_000_000_000, SECOND_NS);
            let now = clock.now();
            let step = now.0 - last.0;
            assert!((SECOND_NS - 500_000..=SECOND_NS).contains(&step), "{step}");
            last = now;
        }
        let wall_ns = hands.wall_ns.get();
        assert!(
            last.0 - wall_ns < 1_250_000_000,
            "half a second in 1000 s at 500 ppm: {}",
            last.0 - wall_ns
        );
    }

    // case Time: the wall clock a century ahead
    #[test]
    fn a_forward_step_is_followed() {
        let hands = Hands::default();
        let mut clock = Clock::start(&hands, None);
        hands.pass(1_000_000_000, 3_600 * SECOND_NS);
        clock.discipline();
        assert_eq!(clock.now(), Timestamp(3_600 * SECOND_NS));
        // A second has passed since the start, whatever the wall clock says.
        let hour = std::time::Duration::from_secs(3_600);
        let now = clock.now();
        assert_eq!(
            clock.steps.before(now, hour),
            Timestamp(SECOND_NS - 3_600 * SECOND_NS)
        );
    }

    #[test]
    fn the_line_gives_the_time_that_the_clock_gives() {
        let hands = Hands::default();
        let mut clock = Clock::start(&hands, None);
        for _ in 0..5 {
            hands.pass(999_950_000, SECOND_NS);
            clock.discipline();
            hands.pass(123_456, 123_456);
            let line = clock.line();
            let after = hands.monotonic_ns.get() - line.ticks;
            let after_ns = (u128::from(after) * u128::from(line.rate)) >> 32;
            assert_eq!(line.time.0 + after_ns as i64, clock.now().0);
        }
    }

    #[test]
    fn drift_is_slewed_away() {
        let hands = Hands::default();
        let mut clock = Clock::start(&hands, None);
        for _ in 0..100 {
            // The counter runs 100 ppm slow.
            hands.pass(999_900_000, SECOND_NS);
            clock.discipline();
        }
        let ahead_ns = hands.wall_ns.get() - clock.now().0;
        assert!(ahead_ns.abs() < 250_000, "{ahead_ns}");
    }

    // G12
    #[test]
    fn it_starts_above_the_newest_time_of_the_log() {
        let hands = Hands::default();
        let mut clock = Clock::start(&hands, Some(Timestamp(5_000)));
        assert_eq!(clock.now(), Timestamp(5_001));
        let mut system = Clock::start(SystemTimeSource::default(), None);
        let first = system.now();
        assert!(system.now() >= first);
    }
}
