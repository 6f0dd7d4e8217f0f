//! The counter for arrival times: the processor's time-stamp counter if it is steady, else the monotonic clock.
//!
//! `quanta` chooses one and knows the length of a tick. This file reads the time-stamp counter inline, because a call would cost a tenth of the time of a
//! record.

/// A count that never decreases.
#[derive(Debug)]
pub struct Ticks {
    clock: quanta::Clock,
    in_line: bool,
}

impl Default for Ticks {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        let before = time_stamp();
        let called = clock.raw();
        let in_line = (before..=time_stamp()).contains(&called) && before > 0;
        Ticks { clock, in_line }
    }
}

impl Ticks {
    #[inline]
    pub fn now(&self) -> u64 {
        if self.in_line {
            time_stamp()
        } else {
            self.clock.raw()
        }
    }

    /// Reports whether they are those of the time-stamp counter, which every process of the machine reads alike.
    pub fn are_time_stamps(&self) -> bool {
        self.in_line
    }

    pub fn nanos(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(0, ticks)
    }
}

/// Reads the time-stamp counter; 0 on kinds of processors where not all have one.
#[inline]
fn time_stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_pass_as_the_monotonic_clock_does() {
        let ticks = Ticks::default();
        for ticks in [ticks.clone_with(true), ticks] {
            let (began, first) = (std::time::Instant::now(), ticks.now());
            while began.elapsed().as_millis() < 50 {}
            let counted_ns = ticks.nanos(ticks.now() - first);
            let passed_ns = began.elapsed().as_nanos() as u64;
            assert!(
                counted_ns.abs_diff(passed_ns) < passed_ns / 20,
                "{counted_ns} ns were counted of {passed_ns}"
            );
        }
    }

    impl Ticks {
        /// Clones it with the other way of reading the same count.
        fn clone_with(&self, called: bool) -> Ticks {
            Ticks {
                clock: self.clock.clone(),
                in_line: self.in_line && !called,
            }
        }
    }
}
