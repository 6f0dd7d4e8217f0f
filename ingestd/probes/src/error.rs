//! The errors of recording from the kernel.

use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ProbeError {
    #[error(
        "{what} needs {missing}, which this process does not have; run it as root, or give the file the capability with 'setcap'"
    )]
    Capability { what: String, missing: String },
    #[error("the kernel has no {feature} ({detail}); use Linux 5.8 or later with BPF and BTF")]
    Kernel {
        feature: &'static str,
        detail: String,
    },
    #[error("{what} needs Linux {least} or later, and this kernel is {release}")]
    Release {
        what: &'static str,
        least: String,
        release: String,
    },
    #[error("the kernel's tracepoint {tracepoint} is not readable ({detail}); {remedy}")]
    Tracefs {
        tracepoint: String,
        remedy: &'static str,
        detail: String,
    },
    #[error("cannot record the cgroup '{}': {detail}; give a folder such as /sys/fs/cgroup/system.slice", path.display())]
    Cgroup { path: PathBuf, detail: String },
    #[error("cannot record '{what}': {detail}")]
    Function { what: String, detail: String },
    #[error("cannot load the program '{program}' into the kernel: {detail}")]
    Program { program: String, detail: String },
    #[error("cannot record process {0}: no process has this id")]
    NoProcess(u32),
    #[error(
        "cannot record process {tid}: it is a thread of process {pid}; give --pid {pid}, which records all its threads"
    )]
    Thread { tid: u32, pid: u32 },
    #[error(
        "cannot record processes by --pid or --comm: /proc is missing or shows another PID namespace; mount it with 'mount -t proc proc /proc'"
    )]
    ForeignProc,
    #[error("cannot read or write a map of the kernel: {0}")]
    Map(#[from] aya::maps::MapError),
    #[error("cannot read the counts of the kernel: {0}")]
    Counts(std::io::Error),
}
