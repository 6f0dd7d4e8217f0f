//! Sets the priority of the drainer's thread.

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
