//! The units of times that are numbers. `own_time` reads times in them, and `unlikely` looks for numbers that seem to be in another.

/// What a number of time counts.
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
    /// How many decimal digits of it are nanoseconds.
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

    /// The coarser unit in which a number of this unit is a time of these decades, 1990 to 2100.
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
