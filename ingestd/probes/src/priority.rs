//! Sets priorities of threads: a high one for the drainer, a low one for background work.

/// Gives the calling thread real-time priority (SCHED_FIFO, the lowest level). Threads that it starts do not inherit it.
pub fn real_time() -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread, and the parameters live as long as the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Lets the calling thread use a disk only while no other thread does, if the disk's scheduler has priorities.
pub fn idle_io() -> std::io::Result<()> {
    const OF_A_THREAD: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    // SAFETY: 0 is the calling thread, and the call takes numbers only.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, OF_A_THREAD, 0, IDLE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
