//! Ends a program with the thread that started it, even if that is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// The kernel kills the program when the thread that starts it ends, but not the program's own children.
pub fn end_with_starter(command: &mut Command) {
    let starter: Pid = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() == Some(starter) {
            Ok(())
        } else {
            Err(io::ErrorKind::Interrupted.into())
        }
    };
    // SAFETY: between fork and exec it makes two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}
