//! Measures the processor time of programs in the kernel, where that is permitted.

use std::os::fd::OwnedFd;

use aya::sys::{Stats, enable_stats};

/// While it exists, the kernel measures each run of every program, which takes some ten nanoseconds.
#[derive(Debug)]
pub struct MeasuredPrograms {
    _asked: Option<OwnedFd>,
}

impl MeasuredPrograms {
    /// `None`: this process may not ask for it, which takes CAP_SYS_ADMIN, and the machine does not do it anyway.
    pub fn ask() -> Option<MeasuredPrograms> {
        match enable_stats(Stats::RunTime) {
            Ok(asked) => Some(MeasuredPrograms {
                _asked: Some(asked),
            }),
            Err(_) => MeasuredPrograms::of_machine(),
        }
    }

    /// The measurement that the machine has turned on already.
    pub fn of_machine() -> Option<MeasuredPrograms> {
        let setting = std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").ok()?;
        (setting.trim() == "1").then_some(MeasuredPrograms { _asked: None })
    }
}
