//! Waiting for threads of the daemon to end. Each has a name, and one that panicked does not keep the others from ending in good order.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval between checks of a thread whose end is waited for within limits.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn join(thread: JoinHandle<()>) {
    let handle = thread.thread().clone();
    if thread.join().is_err() {
        let name = handle.name().expect("each thread of the daemon has a name");
        tracing::error!("the thread {name} has panicked; report this, with the lines above");
    }
}

/// Waits for threads to end, no longer than `patience` for all of them. A thread that still runs then is left alone.
pub(crate) fn join_within(patience: Duration, threads: impl IntoIterator<Item = JoinHandle<()>>) {
    let began = Instant::now();
    for thread in threads {
        while !thread.is_finished() && began.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
        if thread.is_finished() {
            join(thread);
        }
    }
}
