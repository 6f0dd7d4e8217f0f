//! The thread that rewrites old segments of the record log as columns, while the daemon records.
//!
//! It has the lowest priority, and the engine holds it back while the disk is behind; segments that it does not reach stay rows. It tries again after
//! a failure: the records are safe either way.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loom_engine::compact::{Compacted, Compactor};
use loom_engine::{Address, Error};

use crate::threads::join;

/// The interval between looks for segments that are old enough.
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(60);

pub(super) struct CompactorThread {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl CompactorThread {
    /// Rewrites segments that have been durable for so long. Those that are durable at the start are old enough.
    pub(super) fn start(compactor: Compactor, after: Duration) -> io::Result<CompactorThread> {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("loom-compactor".to_owned())
            .spawn({
                let stopping = Arc::clone(&stopping);
                move || Work::new(compactor, after, stopping).run()
            })?;
        Ok(CompactorThread { stopping, thread })
    }

    /// Returns within a few milliseconds of work; the segment under way stays rows.
    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        join(self.thread);
    }
}

struct Work {
    compactor: Compactor,
    after: Duration,
    stopping: Arc<AtomicBool>,
    /// Segments that end here or before are old enough.
    below: Option<Address>,
    /// Segments were durable up to this address at this time.
    seen: VecDeque<(Instant, Address)>,
}

impl Work {
    fn new(compactor: Compactor, after: Duration, stopping: Arc<AtomicBool>) -> Work {
        Work {
            compactor,
            after,
            stopping,
            below: None,
            seen: VecDeque::new(),
        }
    }

    fn run(mut self) {
        // It works without them, and then disturbs more.
        let _ = rustix::process::nice(19);
        let _ = loom_probes::idle_io();
        while !self.stopping.load(Ordering::Relaxed) {
            let pause = match self.look() {
                Ok(()) => LOOK,
                Err(error) => {
                    tracing::warn!(
                        "cannot compact: {error}; the records are safe as they are, and it tries again in {} s",
                        PAUSE.as_secs()
                    );
                    PAUSE
                }
            };
            std::thread::park_timeout(pause);
        }
    }

    /// Rewrites the segments that are old enough now, the oldest first.
    fn look(&mut self) -> Result<(), Error> {
        let durable = self.compactor.durable()?;
        let mut below = self.below.unwrap_or(durable);
        if self.seen.back().is_none_or(|(_, last)| *last < durable) {
            self.seen.push_back((Instant::now(), durable));
        }
        while let Some((_, old)) = self.seen.pop_front_if(|(at, _)| at.elapsed() >= self.after) {
            below = old;
        }
        self.below = Some(below);
        let is_wanted = || !self.stopping.load(Ordering::Relaxed);
        while let Some(compacted) = self.compactor.step(below, is_wanted)? {
            match compacted {
                Compacted::Stopped => break,
                Compacted::Failed(error) => {
                    tracing::warn!("cannot compact a segment, which stays as it is: {error}");
                }
                compacted => tracing::debug!("compacted a segment: {compacted:?}"),
            }
        }
        Ok(())
    }
}
