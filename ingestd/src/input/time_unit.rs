//! Units of numeric times. `own_time` reads times in them, and `unlikely` finds numbers that seem to have another unit.

/// The unit of a numeric time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    /// Seconds since the Unix epoch
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl TimeUnit {
    /// The number of decimal digits below this unit, down to nanoseconds.
    pub(super) fn digits(self) -> u32 {
        match self {
            TimeUnit::S => 9,
            TimeUnit::Ms => 6,
            TimeUnit::Us => 3,
            TimeUnit::Ns => 0,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            TimeUnit::S => "seconds",
            TimeUnit::Ms => "milliseconds",
            TimeUnit::Us => "microseconds",
            TimeUnit::Ns => "nanoseconds",
        }
    }

    pub(super) fn option(self) -> &'static str {
        match self {
            TimeUnit::S => "s",
            TimeUnit::Ms => "ms",
            TimeUnit::Us => "us",
            TimeUnit::Ns => "ns",
        }
    }

    /// The coarser unit in which the number is a time from 1990 to 2100.
    pub(super) fn likelier(self, number: i64) -> Option<TimeUnit> {
        let plausible = |unit: &TimeUnit| {
            let seconds = number / 10_i64.pow(9 - unit.digits());
            unit.digits() > self.digits() && (631_152_000..4_102_444_800).contains(&seconds)
        };
        [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us]
            .into_iter()
            .find(plausible)
    }
}
