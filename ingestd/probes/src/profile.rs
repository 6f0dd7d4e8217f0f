//! Samples the stacks of threads at the ticks of a clock, and when they run again.

use std::time::Duration;

use aya::include_bytes_aligned;

use crate::probe::{Hook, Payloads};
use crate::release::{Release, require_release};
use crate::{Probe, ProbeError, Selection};

/// The most functions of a stack, as in `bpf/profile.bpf.c`.
pub(crate) const FRAMES_MAX: usize = 127;
/// The bytes of a record of the programs without its stacks.
const HEAD_BYTES: usize = 72;
/// The length of a record, and its bytes.
const FRAMED_BYTES_MAX: usize = 2 + HEAD_BYTES + 2 * 8 * FRAMES_MAX;
/// The most ticks a second, of which each takes some microseconds.
pub const HZ_MAX: u32 = 10_000;
/// The threads that are off the processors at a time.
const SLOTS: u32 = 1 << 14;

/// Selects the stacks to record.
#[derive(Clone, Debug)]
pub struct Profile {
    pub selection: Selection,
    /// The ticks a second, at most `HZ_MAX`.
    pub hz: u32,
    /// The least time off the processors to record; `None`: such times are not recorded.
    pub off_min: Option<Duration>,
}

impl Profile {
    /// Attaches the programs. Nothing is recorded yet. The payloads are records for `Stacks`, after their lengths (u16).
    pub fn open(&self) -> Result<Probe, ProbeError> {
        self.selection.check()?;
        let off_ns_min = self.off_min.unwrap_or_default().as_nanos();
        let off_ns_min = u64::try_from(off_ns_min).unwrap_or(u64::MAX);
        let mut globals = self.selection.globals().to_vec();
        globals.push(("off_ns_min", off_ns_min.to_ne_bytes().to_vec()));
        let mut hooks = vec![
            (
                "clock_tick",
                Hook::Clock {
                    period_ns: self.period_ns(),
                },
            ),
            ("process_fork", Hook::Raw("sched_process_fork")),
            ("process_exec", Hook::Raw("sched_process_exec")),
            ("process_exit", Hook::Raw("sched_process_exit")),
        ];
        let mut slots = 1;
        if self.off_min.is_some() {
            // Since then the kernel gives the state of a thread that stops to the tracepoint.
            require_release("'profile --off-cpu'", Release(5, 18))?;
            hooks.push(("sched_switch", Hook::Raw("sched_switch")));
            slots = SLOTS;
        }
        let mut probe = Probe::open_sized(
            "'profile'",
            include_bytes_aligned!("../bpf/profile.o"),
            Payloads::Framed {
                bytes_max: FRAMED_BYTES_MAX,
                write: framed,
            },
            &globals,
            &[("slots", slots)],
            &hooks,
        )?;
        self.selection.fill(&mut probe)?;
        Ok(probe)
    }

    fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }

    /// Counts the threads of a disarmed probe that were off the processors when it was disarmed.
    pub fn under_way(probe: &mut Probe) -> Result<u64, ProbeError> {
        let slots = probe.hash::<u32, [u64; SLOT_WORDS]>("slots")?;
        let mut count = 0;
        for slot in slots.iter() {
            let (_, [stopped_ns, ..]) = slot?;
            count += u64::from(stopped_ns != 0);
        }
        Ok(count)
    }

    /// Counts the ticks of a disarmed probe that came too late to sample anything, as when the machine stood still.
    pub fn late(&self, probe: &Probe) -> Result<u64, ProbeError> {
        let period_ns = self.period_ns();
        let late = |[first_ns, last_ns, count]: [u64; 3]| {
            let due = (last_ns - first_ns + period_ns / 2) / period_ns;
            (due + u64::from(count > 0)).saturating_sub(count)
        };
        Ok(probe.per_cpu("ticks")?.into_iter().map(late).sum())
    }
}

/// The words of a slot in `bpf/profile.bpf.c`; the first is the time when the thread stopped, or 0.
const SLOT_WORDS: usize = HEAD_BYTES / 8 + 2 * (FRAMES_MAX + 1);

/// Writes a record with its time by the wall clock, after its length.
fn framed(at_ns: i64, rest: &[u8], out: &mut Vec<u8>) {
    let bytes = u16::try_from(8 + rest.len()).expect("the programs write short records");
    out.extend(bytes.to_le_bytes());
    out.extend(at_ns.to_le_bytes());
    out.extend(rest);
}
