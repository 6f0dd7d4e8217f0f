//! The PID namespace of this process, whose ids are used in filters and records.

use std::os::unix::fs::MetadataExt;

use crate::ProbeError;

/// The inode of the initial namespace, in every kernel.
const INITIAL: u64 = 0xEFFF_FFFC;

/// The device and inode of the namespace; zeroes for the initial one, which has all processes.
pub(crate) fn namespace() -> [u64; 2] {
    // Kernels without namespaces have only one.
    let Ok(file) = std::fs::metadata("/proc/self/ns/pid") else {
        return [0, 0];
    };
    if file.ino() == INITIAL {
        return [0, 0];
    }
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    [u64::from(major) << 20 | u64::from(minor), file.ino()]
}

/// Fails if `/proc` has the ids of another namespace than the programs.
pub(crate) fn require_own_proc() -> Result<(), ProbeError> {
    let own = std::fs::read_link("/proc/self").ok();
    let own = own.and_then(|link| link.to_str()?.parse::<u32>().ok());
    match own {
        Some(pid) if pid == std::process::id() => Ok(()),
        _ => Err(ProbeError::ForeignProc),
    }
}

/// The process of a thread or process; `None` if no thread has this id.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
