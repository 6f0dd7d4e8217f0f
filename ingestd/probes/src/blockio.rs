//! Records requests to block devices, one record at each completion.

use aya::include_bytes_aligned;

use crate::probe::{Hook, Payloads};
use crate::{Cgroup, Probe, ProbeError};

/// The length of a payload, with the own time.
const PAYLOAD_BYTES: usize = 76;

/// The operations of requests, by the kernel's numbers.
pub const OPERATIONS: [(u8, &str); 14] = [
    (0, "read"),
    (1, "write"),
    (2, "flush"),
    (3, "discard"),
    (5, "secure erase"),
    (7, "zone append"),
    (9, "write zeroes"),
    (11, "zone open"),
    (13, "zone close"),
    (15, "zone finish"),
    (17, "zone reset"),
    (19, "zone reset all"),
    (34, "driver in"),
    (35, "driver out"),
];

/// Selects the requests to record.
#[derive(Clone, Debug, Default)]
pub struct Blockio {
    /// The major and minor number of a device; `None` for all.
    pub device: Option<(u32, u32)>,
    /// Only requests that threads in this cgroup issue, or in one below it.
    pub cgroup: Option<Cgroup>,
}

impl Blockio {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        let only_device = self.device.map_or(0, |(major, minor)| major << 20 | minor);
        let mut globals = Cgroup::globals(self.cgroup).to_vec();
        globals.push(("only_device", only_device.to_ne_bytes().to_vec()));
        Probe::open(
            "'blockio'",
            include_bytes_aligned!("../bpf/blockio.o"),
            Payloads::Fixed {
                bytes: PAYLOAD_BYTES,
            },
            &globals,
            &[
                ("rq_issue", Hook::Raw("block_rq_issue")),
                ("rq_complete", Hook::Raw("block_rq_complete")),
            ],
        )
    }

    /// Counts the pending requests of a disarmed probe.
    pub fn under_way(probe: &mut Probe) -> Result<u64, ProbeError> {
        let slots = probe.hash::<u64, [u64; 9]>("slots")?;
        Ok(slots.keys().count() as u64)
    }
}
