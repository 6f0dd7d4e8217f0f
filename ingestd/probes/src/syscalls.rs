//! Records system calls, one record at each return.

use std::time::Duration;

use aya::include_bytes_aligned;
use syscalls::Sysno;

use crate::namespace::{process_of, require_own_proc};
use crate::probe::Hook;
use crate::{Probe, ProbeError};

/// The length of a payload, with the own time.
const PAYLOAD_BYTES: usize = 60;
/// The offsets of the first argument and the number of a call in the kernel's `pt_regs`.
#[cfg(target_arch = "x86_64")]
const OFFSETS: [u32; 2] = [112, 120];
#[cfg(target_arch = "aarch64")]
const OFFSETS: [u32; 2] = [272, 280];

/// Selects the calls to record. An empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Syscalls {
    pub pids: Vec<u32>,
    /// Names of processes or threads; all threads of such a process are recorded.
    pub names: Vec<String>,
    pub numbers: Vec<u16>,
    /// Also record the processes that a recorded one starts.
    pub follow: bool,
    pub latency_min: Duration,
}

/// The longest name of a task in the kernel, without the NUL.
pub const NAME_BYTES_MAX: usize = 15;
/// Replaces a number that exceeds two bytes; `bpf/syscalls.bpf.c` has the same value.
pub const NUMBER_UNKNOWN: u16 = 0xFFFF;
/// The reasons why a process is recorded, as in `bpf/syscalls.bpf.c`.
const BY_PID: u32 = 1;
const BY_NAME: u32 = 2;

impl Syscalls {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        if !self.pids.is_empty() || !self.names.is_empty() {
            require_own_proc()?;
        }
        let flag = |set: bool| u32::from(set).to_ne_bytes();
        let latency_ns_min = u64::try_from(self.latency_min.as_nanos()).unwrap_or(u64::MAX);
        let [arg0_offset, number_offset] = OFFSETS;
        let mut probe = Probe::open(
            "'syscalls'",
            include_bytes_aligned!("../bpf/syscalls.o"),
            PAYLOAD_BYTES,
            &[
                ("by_process", &flag(!self.pids.is_empty())),
                ("by_name", &flag(!self.names.is_empty())),
                ("by_number", &flag(!self.numbers.is_empty())),
                ("follow", &flag(self.follow)),
                ("latency_ns_min", &latency_ns_min.to_ne_bytes()),
                ("arg0_offset", &arg0_offset.to_ne_bytes()),
                ("number_offset", &number_offset.to_ne_bytes()),
            ],
            &[
                ("sys_enter", Hook::Raw("sys_enter")),
                ("sys_exit", Hook::Raw("sys_exit")),
                ("process_fork", Hook::Raw("sched_process_fork")),
                ("process_exec", Hook::Raw("sched_process_exec")),
                ("process_exit", Hook::Raw("sched_process_exit")),
            ],
        )?;
        let mut numbers = probe.hash::<u64, u32>("numbers")?;
        for number in &self.numbers {
            numbers.insert(u64::from(*number), 1, 0)?;
        }
        let names: Vec<_> = self.names.iter().map(|name| kernel_name(name)).collect();
        let mut map = probe.hash::<[u8; 16], u32>("names")?;
        for name in &names {
            map.insert(name, 1, 0)?;
        }
        let mut processes = probe.hash::<u32, u32>("processes")?;
        for pid in processes_named(&names) {
            processes.insert(pid, BY_NAME, 0)?;
        }
        for pid in &self.pids {
            processes.insert(pid, BY_PID, 0)?;
            match process_of(*pid) {
                Some(process) if process == *pid => {}
                Some(process) => {
                    return Err(ProbeError::Thread {
                        tid: *pid,
                        pid: process,
                    });
                }
                None => return Err(ProbeError::NoProcess(*pid)),
            }
        }
        Ok(probe)
    }

    /// Whether all processes that were selected by id, and those that followed them, have ended.
    pub fn is_over(probe: &mut Probe) -> Result<bool, ProbeError> {
        Ok(probe.hash::<u32, u32>("processes")?.keys().next().is_none())
    }

    /// Counts the pending calls of a disarmed probe.
    pub fn under_way(probe: &mut Probe) -> Result<u64, ProbeError> {
        let slots = probe.hash::<u32, [u64; 3]>("slots")?;
        let mut count = 0;
        for slot in slots.iter() {
            let (_, [entered_ns, _, _]) = slot?;
            count += u64::from(entered_ns != 0);
        }
        Ok(count)
    }
}

/// A name in the kernel's form.
fn kernel_name(name: &str) -> [u8; 16] {
    let mut kept = [0; 16];
    for (place, byte) in kept.iter_mut().take(NAME_BYTES_MAX).zip(name.bytes()) {
        *place = byte;
    }
    kept
}

/// The processes that now have a thread with one of these names.
fn processes_named(names: &[[u8; 16]]) -> Vec<u32> {
    if names.is_empty() {
        return Vec::new();
    }
    let ids = |path: String| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let is_named = |path: String| {
        // A thread that has ended has no name.
        let name = std::fs::read_to_string(path).unwrap_or_default();
        names.contains(&kernel_name(name.trim_end_matches('\n')))
    };
    ids("/proc".to_owned())
        .filter(|pid| {
            ids(format!("/proc/{pid}/task"))
                .any(|tid| is_named(format!("/proc/{pid}/task/{tid}/comm")))
        })
        .collect()
}

pub fn number_of(name: &str) -> Option<u16> {
    let number = name.parse::<Sysno>().ok()?;
    u16::try_from(number.id()).ok()
}

/// The numbers and names of all system calls of this architecture.
pub fn numbers() -> impl Iterator<Item = (u16, &'static str)> {
    let known = Sysno::iter();
    known.filter_map(|number| Some((u16::try_from(number.id()).ok()?, number.name())))
}
