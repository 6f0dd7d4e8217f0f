//! Converts the kernel's CLOCK_MONOTONIC to wall time, which records carry.
//!
//! The offset is measured again every second, because the wall clock may step or be slewed.

use rustix::time::{ClockId, clock_gettime};

/// The number of readings, of which the fastest counts.
const BRACKETS: usize = 200;

/// The difference of wall time and monotonic time, and its error.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    pub offset_ns: i64,
    pub error_ns: u64,
}

impl Clock {
    /// Measures the difference.
    pub fn take() -> Clock {
        let mut best = Clock {
            offset_ns: 0,
            error_ns: u64::MAX,
        };
        for _ in 0..BRACKETS {
            let before = nanos(ClockId::Monotonic);
            let wall = nanos(ClockId::Realtime);
            let after = nanos(ClockId::Monotonic);
            let half = (after - before) / 2;
            if half.unsigned_abs() < best.error_ns {
                best = Clock {
                    offset_ns: wall - before - half,
                    // One is added because the half was rounded down.
                    error_ns: half.unsigned_abs() + 1,
                };
            }
        }
        best
    }

    /// Wall time in nanoseconds since the Unix epoch.
    pub fn wall_ns(self, monotonic_ns: i64) -> i64 {
        monotonic_ns.wrapping_add(self.offset_ns)
    }
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monotonic_time_becomes_the_wall_time_of_the_same_moment() {
        let clock = Clock::take();
        let before = nanos(ClockId::Realtime);
        let mapped = clock.wall_ns(nanos(ClockId::Monotonic));
        let after = nanos(ClockId::Realtime);
        let error = i64::try_from(clock.error_ns).unwrap();
        assert!(mapped >= before - error && mapped <= after + error);
        assert!(clock.error_ns < 100_000, "{clock:?}");
    }
}
