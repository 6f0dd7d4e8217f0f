//! Measures the time that a server computes without a pause.
//!
//! Quack has no limit for a question. One that never ends keeps the server busy for good, so a server that has computed longer than its limit
//! without a second of rest is ended.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// A second in which a server computes less is a rest.
const REST: Duration = Duration::from_millis(50);

/// A tick of the fields of proc(5): Linux's USER_HZ is 100 on x86-64 and on arm64.
const TICK_MS: u64 = 10;

/// The CPU time of a process, read once a second.
pub(super) struct Cpu {
    pid: u32,
    /// CPU time at the last look.
    total: Option<Duration>,
    busy: Duration,
}

impl Cpu {
    pub(super) fn of(pid: u32) -> Cpu {
        Cpu {
            pid,
            total: None,
            busy: Duration::ZERO,
        }
    }

    /// CPU time since the last rest, or since the first look; call it once a second.
    pub(super) fn busy(&mut self) -> anyhow::Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid);
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let total = cpu_time(&stat).with_context(|| format!("{path} has another form: {stat}"))?;
        self.add(total);
        Ok(self.busy)
    }

    fn add(&mut self, total: Duration) {
        let used = total.saturating_sub(self.total.unwrap_or(total));
        self.total = Some(total);
        self.busy = if used < REST {
            Duration::ZERO
        } else {
            self.busy + used
        };
    }
}

/// The sum of the fields `utime` and `stime` of proc(5), which count ticks.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * TICK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_rest_begins_the_count_again() {
        let mut cpu = Cpu::of(0);
        let mut busy_ms = |total_ms| {
            cpu.add(Duration::from_millis(total_ms));
            cpu.busy.as_millis()
        };
        assert_eq!(busy_ms(7000), 0);
        assert_eq!(busy_ms(8000), 1000);
        assert_eq!(busy_ms(9900), 2900);
        assert_eq!(busy_ms(9949), 0);
        assert_eq!(busy_ms(9999), 50);
    }

    #[test]
    fn the_time_of_a_process_grows_while_it_computes() {
        let now = || cpu_time(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let before = now();
        while now() < before + Duration::from_millis(50) {
            std::hint::black_box((0..1_000_000u64).fold(0, |sum, i| sum ^ std::hint::black_box(i)));
        }
    }
}
