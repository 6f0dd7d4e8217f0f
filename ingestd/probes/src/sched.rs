//! Records when threads run and wait, one record when a run ends.

use std::time::Duration;

use aya::include_bytes_aligned;

use crate::probe::{Hook, Payloads};
use crate::release::{Release, require_release};
use crate::{Probe, ProbeError, Selection};

/// The length of a payload, with the own time.
const PAYLOAD_BYTES: usize = 80;
/// The words of a slot in `bpf/sched.bpf.c`; the first is the time since which a thread runs, or 0.
type Slot = [u64; 7];

/// The reasons why a thread stops, as in `bpf/sched.bpf.c`.
pub const REASONS: [(u8, &str); 6] = [
    (0, "preempted"),
    (1, "sleeps"),
    (2, "blocked"),
    (3, "stopped"),
    (4, "ended"),
    (5, "idle"),
];

/// Selects the runs to record.
#[derive(Clone, Debug, Default)]
pub struct Sched {
    pub selection: Selection,
    /// The least time off the processors before a run.
    pub off_min: Duration,
}

impl Sched {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        // Since then the kernel gives the state of a thread that stops to the tracepoint.
        require_release("'sched'", Release(5, 18))?;
        self.selection.check()?;
        let off_ns_min = u64::try_from(self.off_min.as_nanos()).unwrap_or(u64::MAX);
        let mut globals = self.selection.globals().to_vec();
        globals.push(("off_ns_min", off_ns_min.to_ne_bytes().to_vec()));
        let mut probe = Probe::open(
            "'sched'",
            include_bytes_aligned!("../bpf/sched.o"),
            Payloads::Fixed {
                bytes: PAYLOAD_BYTES,
            },
            &globals,
            &[
                ("sched_switch", Hook::Raw("sched_switch")),
                ("sched_waking", Hook::Raw("sched_waking")),
                ("sched_wakeup", Hook::Raw("sched_wakeup")),
                ("sched_wakeup_new", Hook::Raw("sched_wakeup_new")),
                ("process_fork", Hook::Raw("sched_process_fork")),
                ("process_exec", Hook::Raw("sched_process_exec")),
                ("process_exit", Hook::Raw("sched_process_exit")),
            ],
        )?;
        self.selection.fill(&mut probe)?;
        Ok(probe)
    }

    /// Counts the threads of a disarmed probe that ran when it was disarmed.
    pub fn under_way(probe: &mut Probe) -> Result<u64, ProbeError> {
        let slots = probe.hash::<u32, Slot>("slots")?;
        let mut count = 0;
        for slot in slots.iter() {
            let (_, [running_ns, ..]) = slot?;
            count += u64::from(running_ns != 0);
        }
        Ok(count)
    }
}
