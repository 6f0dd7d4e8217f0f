//! Records processes that begin, execute programs and end.

use aya::include_bytes_aligned;

use crate::framed::{self, take};
use crate::probe::{Hook, Payloads};
use crate::{Probe, ProbeError, Selection};

/// The most bytes of a path and of arguments, as in `bpf/process.bpf.c`.
const PATH_BYTES: usize = 256;
const ARGS_BYTES: usize = 1024;
/// The longest payload with its length. Replacing a byte that is not UTF-8 takes three.
const PAYLOAD_BYTES_MAX: usize = 128 + 3 * (PATH_BYTES + ARGS_BYTES);
/// The number of a signal in a status; the next bit says that the process dumped its memory.
const SIGNAL_MASK: u32 = 0x7f;

/// The events, as in `bpf/process.bpf.c`.
pub const EVENTS: [(u8, &str); 3] = [(0, "fork"), (1, "exec"), (2, "exit")];

/// Selects the processes to record.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    pub selection: Selection,
}

impl Processes {
    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        self.selection.check()?;
        let mut probe = Probe::open(
            "'process'",
            include_bytes_aligned!("../bpf/process.o"),
            Payloads::Framed {
                bytes_max: PAYLOAD_BYTES_MAX,
                write: payload,
            },
            &self.selection.globals(),
            &[
                ("process_fork", Hook::Raw("sched_process_fork")),
                ("process_exec", Hook::Raw("sched_process_exec")),
                ("process_exit", Hook::Raw("sched_process_exit")),
            ],
        )?;
        self.selection.fill(&mut probe)?;
        Ok(probe)
    }
}

/// Writes a payload of the source `process` after its length.
fn payload(at_ns: i64, mut rest: &[u8], out: &mut Vec<u8>) {
    let cgroup: [u8; 8] = take(&mut rest);
    let lived_ns: [u8; 8] = take(&mut rest);
    let [pid, ppid]: [[u8; 4]; 2] = [take(&mut rest), take(&mut rest)];
    let status = u32::from_ne_bytes(take(&mut rest));
    let event = u32::from_ne_bytes(take(&mut rest));
    let comm: [u8; 16] = take(&mut rest);
    let is_exit = event == 2;
    let signal = status & SIGNAL_MASK;
    let (mut path, mut args) = (String::new(), String::new());
    let is_exec = event == 1;
    if is_exec {
        let lengths: [[u8; 4]; 2] = [take(&mut rest), take(&mut rest)];
        let [path_bytes, args_bytes] = lengths.map(|bytes| u32::from_ne_bytes(bytes) as usize);
        let room: [u8; PATH_BYTES] = take(&mut rest);
        path = text(room.get(..path_bytes));
        let room: [u8; ARGS_BYTES] = take(&mut rest);
        args = text(room.get(..args_bytes))
            .trim_end_matches('\0')
            .replace('\0', " ");
    }
    let nulls = [
        !is_exit,
        !is_exit || signal != 0,
        !is_exit || signal == 0,
        !is_exec,
        !is_exec,
    ];
    let fixed: [&[u8]; 8] = [
        &[event as u8],
        &pid,
        &ppid,
        &comm,
        &cgroup,
        &lived_ns,
        &[(status >> 8) as u8],
        &[signal as u8],
    ];
    framed::payload(out, at_ns, nulls, &fixed, [&path, &args]);
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.expect("the programs write less than there is room for"))
        .into_owned()
}
