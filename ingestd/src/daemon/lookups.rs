//! The thread that builds look-ups. It reads as every reader does, and never holds the writer thread up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use loom_engine::Error;
use loom_engine::log::Access;
use loom_engine::query::{Directory, Lookups, Poll};

use super::DaemonError;
use crate::threads::join;

/// The interval between searches for units without look-ups.
const LOOK: Duration = Duration::from_secs(1);

/// The thread. It ends with [`LookupsThread::stop`].
pub(super) struct LookupsThread {
    thread: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
}

impl LookupsThread {
    pub(super) fn start(
        dir: &Path,
        directory: Arc<Directory>,
        group: Option<u32>,
    ) -> Result<LookupsThread, DaemonError> {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("loom-lookups".to_owned())
            .spawn({
                let stopping = Arc::clone(&stopping);
                let lookups = Lookups::of(directory, Access::new(group));
                move || build(lookups, &stopping)
            })
            .map_err(|source| DaemonError::Io {
                path: dir.to_owned(),
                source,
            })?;
        Ok(LookupsThread { thread, stopping })
    }

    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        join(self.thread);
    }
}

fn build(mut lookups: Lookups, stopping: &AtomicBool) {
    let stops = || stopping.load(Ordering::SeqCst);
    let mut trouble = None;
    while !stops() {
        match lookups.build_next(&Poll::new(&stops)) {
            Ok(true) => continue,
            Ok(false) => trouble = None,
            Err(Error::Interrupted) => return,
            Err(error) => {
                let error = error.to_string();
                // A lasting error is logged once.
                if trouble.as_ref() != Some(&error) {
                    tracing::warn!("no look-ups are built: {error}");
                }
                trouble = Some(error);
            }
        }
        std::thread::park_timeout(LOOK);
    }
}
