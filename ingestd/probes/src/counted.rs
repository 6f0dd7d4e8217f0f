//! Attaches a program to a static probe that has a counter: a number in the recorded program, which the kernel raises while the probe is recorded.
//! aya attaches programs without counters alone.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The type of the kernel's uprobes among its events.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PERF_EVENT: u32 = 41;
/// The bit of `perf_event_attr::config` at which the offset of the counter begins.
const COUNTER_SHIFT: u32 = 32;

/// The attributes of `linux/perf_event.h`, as far as version 1, with these names.
#[repr(C)]
struct Event {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 5],
    /// The address of the path.
    config1: u64,
    /// The offset of the place in the file.
    config2: u64,
}

/// The attributes of `BPF_LINK_CREATE`.
#[repr(C)]
struct Link {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
    cookie: u64,
}

/// The place of a static probe: the offsets in its file.
#[derive(Copy, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) counter: u64,
}

/// Attaches a program in a process, or in all, until the link is dropped.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    place: Place<'_>,
    pid: Option<u32>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let kind = std::fs::read_to_string(TYPE)?;
    let kind = kind.trim().parse().map_err(io::Error::other)?;
    let counter = u32::try_from(place.counter).map_err(io::Error::other)?;
    let path = CString::new(place.path.as_os_str().as_bytes())?;
    let event = Event {
        kind,
        size: size_of::<Event>() as u32,
        config: u64::from(counter) << COUNTER_SHIFT,
        unused: [0; 5],
        config1: path.as_ptr().addr() as u64,
        config2: place.offset,
    };
    let (pid, cpu) = match pid {
        Some(pid) => (pid.cast_signed(), -1),
        None => (-1, 0),
    };
    let flags = PERF_FLAG_FD_CLOEXEC;
    // SAFETY: The attributes have the size that they name, and they and the path live until the call returns.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const event,
            pid,
            cpu,
            -1,
            flags,
        )
    };
    let event = descriptor(event)?;
    let link = Link {
        program: program.as_raw_fd().cast_unsigned(),
        target: event.as_raw_fd().cast_unsigned(),
        kind: BPF_PERF_EVENT,
        flags: 0,
        cookie,
    };
    // SAFETY: The attributes have this size, and they live until the call returns. The kernel keeps both files open.
    let link = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const link,
            size_of::<Link>(),
        )
    };
    descriptor(link)
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: The kernel has just opened it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) })
}
