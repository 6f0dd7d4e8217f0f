//! Wall time and CPU time of a piece of work.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The cost of a piece of work.
#[derive(Copy, Clone, Debug, Default)]
pub struct Cost {
    pub wall: Duration,
    /// CPU time of the thread that did the work.
    pub thread_cpu: Duration,
    /// CPU time of all threads of this process.
    pub process_cpu: Duration,
}

impl Cost {
    /// CPU time of the thread for each record.
    pub fn as_nanos_a_record(&self, records: u64) -> f64 {
        self.thread_cpu.as_nanos() as f64 / records as f64
    }
}

pub struct Stopwatch {
    wall: Instant,
    thread_cpu: Duration,
    process_cpu: Duration,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch {
            wall: Instant::now(),
            thread_cpu: read(ClockId::ThreadCPUTime),
            process_cpu: read(ClockId::ProcessCPUTime),
        }
    }

    pub fn cost(&self) -> Cost {
        Cost {
            wall: self.wall.elapsed(),
            thread_cpu: read(ClockId::ThreadCPUTime).saturating_sub(self.thread_cpu),
            process_cpu: read(ClockId::ProcessCPUTime).saturating_sub(self.process_cpu),
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}
