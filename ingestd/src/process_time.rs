//! The processor time of this process, for its own metrics and for the budget of a recording.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time that this process has taken.
pub fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a process takes no negative time")
}
