//! Records system calls, one record at each return.

use std::time::Duration;

use aya::include_bytes_aligned;
use syscalls::Sysno;

use crate::probe::{Hook, Payloads};
use crate::{Probe, ProbeError, Selection};

/// The length of a payload, with the own time.
const PAYLOAD_BYTES: usize = 68;
/// The offsets of the first argument and the number of a call in the kernel's `pt_regs`.
#[cfg(target_arch = "x86_64")]
const OFFSETS: [u32; 2] = [112, 120];
#[cfg(target_arch = "aarch64")]
const OFFSETS: [u32; 2] = [272, 280];

/// Selects the calls to record. An empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Syscalls {
    pub selection: Selection,
    pub numbers: Vec<u16>,
    pub latency_min: Duration,
}

/// Replaces a number that exceeds two bytes; `bpf/syscalls.bpf.c` has the same value.
pub const NUMBER_UNKNOWN: u16 = 0xFFFF;
impl Syscalls {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        self.selection.check()?;
        let by_number = u32::from(!self.numbers.is_empty()).to_ne_bytes();
        let latency_ns_min = u64::try_from(self.latency_min.as_nanos()).unwrap_or(u64::MAX);
        let [arg0_offset, number_offset] = OFFSETS;
        let mut globals = self.selection.globals().to_vec();
        globals.extend([
            ("by_number", by_number.to_vec()),
            ("latency_ns_min", latency_ns_min.to_ne_bytes().to_vec()),
            ("arg0_offset", arg0_offset.to_ne_bytes().to_vec()),
            ("number_offset", number_offset.to_ne_bytes().to_vec()),
        ]);
        let mut probe = Probe::open(
            "'syscalls'",
            include_bytes_aligned!("../bpf/syscalls.o"),
            Payloads::Fixed {
                bytes: PAYLOAD_BYTES,
            },
            &globals,
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
        self.selection.fill(&mut probe)?;
        Ok(probe)
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

pub fn number_of(name: &str) -> Option<u16> {
    let number = name.parse::<Sysno>().ok()?;
    u16::try_from(number.id()).ok()
}

/// The numbers and names of all system calls of this architecture.
pub fn numbers() -> impl Iterator<Item = (u16, &'static str)> {
    let known = Sysno::iter();
    known.filter_map(|number| Some((u16::try_from(number.id()).ok()?, number.name())))
}
