//! Signals that end a subcommand cleanly. `archive`, `load` and `record` call it before anything starts that they must not interrupt.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets. A second SIGINT or SIGTERM ends the process at once.
pub(super) fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")?;
    }
    // A terminal that closes may send it twice.
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// Whether this process was started with the signal ignored, as 'nohup' does.
fn is_ignored(signal: i32) -> bool {
    // Without /proc this is unknown, and the signal is caught.
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
