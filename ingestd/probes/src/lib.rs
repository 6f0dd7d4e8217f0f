//! Captures events of a machine with eBPF programs at tracepoints and functions, drains their records, and reads packets of capture files.
//!
//! The programs are C (`bpf/`) and stored with their objects, so that a build needs no compiler for them; `./build` compiles them, and a test
//! compares them. A program writes each record as the payload of its source, beginning with the own time; the loader only converts that time to the
//! wall clock. Nothing here knows a Loom directory: `ingestd::record` takes the payloads, and `ingestd::input` the packets.

mod binary;
mod blockio;
mod capabilities;
pub mod capture;
mod cgroups;
mod clock;
mod counted;
mod counts;
mod error;
mod framed;
mod function;
mod measured;
mod names;
mod namespace;
mod operand;
mod pagecache;
mod priority;
mod probe;
mod process;
mod profile;
mod release;
mod sched;
mod selection;
mod stacks;
mod starter;
mod symbols;
mod syscalls;
mod tcp;
mod usdt;

pub use blockio::{Blockio, OPERATIONS};
pub use capabilities::{Capability, drop_all_except, require};
pub use cgroups::Cgroups;
pub use clock::Clock;
pub use counts::Counts;
pub use error::ProbeError;
pub use function::{ARGS_MAX, Argument, Function, ValueType};
pub use measured::MeasuredPrograms;
pub use pagecache::Pagecache;
pub use priority::real_time;
pub use probe::{BATCH_BYTES, Probe, TICK};
pub use process::{EVENTS, Processes};
pub use profile::{HZ_MAX, Profile};
pub use sched::{REASONS, Sched};
pub use selection::{Cgroup, NAME_BYTES_MAX, Selection};
pub use stacks::Stacks;
pub use starter::end_with_starter;
pub use symbols::{FUNCTIONS_MAX, FoundFunction, Target};
pub use syscalls::{NUMBER_UNKNOWN, Syscalls, number_of, numbers};
pub use tcp::{TCP_EVENTS, TCP_STATES, Tcp};
