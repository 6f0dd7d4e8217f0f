//! The clock that stamps a producer's records, and the conversion of its ticks into the log's time.

use rustix::time::{ClockId, clock_gettime};

/// The stamp that a producer puts before each record as its own time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ClockKind {
    /// No stamp: the source's records have their arrival time.
    None = 0,
    /// Nanoseconds since the Unix epoch, `CLOCK_REALTIME`.
    Realtime = 1,
    /// Ticks of the invariant time-stamp counter, which the daemon converts.
    TimeStampCounter = 2,
}

impl ClockKind {
    /// `None` for a clock that this machine does not have, or this version does not know.
    pub fn of_word(word: u64) -> Option<ClockKind> {
        match word {
            0 => Some(ClockKind::None),
            1 => Some(ClockKind::Realtime),
            2 if cfg!(target_arch = "x86_64") => Some(ClockKind::TimeStampCounter),
            _ => None,
        }
    }

    /// The stamp of a record that is pushed now, in the unit of this clock.
    #[inline]
    pub(crate) fn stamp(self) -> Option<u64> {
        match self {
            ClockKind::None => None,
            ClockKind::TimeStampCounter => Some(time_stamp()),
            ClockKind::Realtime => {
                let time = clock_gettime(ClockId::Realtime);
                Some((time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64)
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    unreachable!("only x86-64 has rings with this clock")
}

/// A straight line from ticks to time, which is accurate near `ticks`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    pub ticks: u64,
    /// The log's time at `ticks`, in nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// A tick takes `rate / 2^32` nanoseconds.
    pub rate: u64,
}

impl Calibration {
    /// The time at a count of ticks, before or after. A result out of range becomes the extreme, because a ring may contain any count.
    #[inline]
    pub fn time_ns(&self, ticks: u64) -> i64 {
        let after = ticks.wrapping_sub(self.ticks) as i64;
        let after_ns = (i128::from(after) * i128::from(self.rate)) >> 32;
        let time_ns = i128::from(self.time_ns) + after_ns;
        time_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_before_and_after_the_calibration_are_on_its_line() {
        let line = Calibration {
            ticks: 1_000_000,
            time_ns: 5_000,
            rate: 1 << 31,
        };
        assert_eq!(line.time_ns(1_000_000), 5_000);
        assert_eq!(line.time_ns(1_000_100), 5_050);
        assert_eq!(line.time_ns(999_900), 4_950);
    }

    #[test]
    fn any_count_of_ticks_has_a_time() {
        for ticks in [0, 1, u64::MAX / 2, u64::MAX] {
            for (time_ns, rate) in [(i64::MIN, u64::MAX), (i64::MAX, u64::MAX), (0, 0)] {
                Calibration {
                    ticks: 7,
                    time_ns,
                    rate,
                }
                .time_ns(ticks);
            }
        }
    }
}
