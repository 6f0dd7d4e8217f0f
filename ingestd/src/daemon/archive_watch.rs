//! Reads in a thread of its own how far the archive reaches: a folder on another machine may not answer, and recording must not wait for it.
//!
//! The writer thread asks again and again, and goes by the latest answer: an archive only grows, so an older answer keeps more.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::output::archive::Archived;

/// A slower answer is a reason to warn.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct ArchiveWatch {
    path: PathBuf,
    requests: Sender<()>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// `None` before the first answer.
    answer: Option<Result<Archived, String>>,
    /// The time of the question that is not answered yet.
    asked: Option<Instant>,
}

pub(super) struct Known {
    pub answer: Option<Result<Archived, String>>,
    /// Says why it is old or missing.
    pub delay: Option<String>,
}

impl ArchiveWatch {
    /// Watches the archive of the directory with this UUID.
    pub(super) fn start(path: &Path, uuid: String) -> std::io::Result<ArchiveWatch> {
        let (requests, asked) = bounded(1);
        let shared = Arc::<Mutex<Shared>>::default();
        // Nobody joins it: it may never return from the folder. It ends when its `ArchiveWatch` is dropped.
        std::thread::Builder::new()
            .name("loom-archive".to_owned())
            .spawn({
                let (path, shared) = (path.to_owned(), Arc::clone(&shared));
                move || answer(&path, &uuid, &asked, &shared)
            })?;
        Ok(ArchiveWatch {
            path: path.to_owned(),
            requests,
            shared,
        })
    }

    /// Asks again, and returns the latest answer at once.
    pub(super) fn ask(&self) -> Known {
        let mut shared = lock(&self.shared);
        // A waiting question asks for the same. A thread that has panicked has left its answer.
        if let Ok(()) | Err(TrySendError::Disconnected(())) = self.requests.try_send(()) {
            shared.asked.get_or_insert_with(Instant::now);
        }
        let silent = shared.asked.map(|asked| asked.elapsed());
        let silent = silent.filter(|silent| *silent > PATIENCE);
        Known {
            answer: shared.answer.clone(),
            delay: silent.map(|silent| {
                format!(
                    "the archive '{}' has not answered for {} s",
                    self.path.display(),
                    silent.as_secs()
                )
            }),
        }
    }
}

fn answer(path: &Path, uuid: &str, asked: &Receiver<()>, shared: &Mutex<Shared>) {
    let mut archived = Archived::default();
    while asked.recv().is_ok() {
        let looked = archived.look(path, uuid);
        let looked = looked.map_err(|error| format!("{error:#}"));
        let mut shared = lock(shared);
        shared.answer = Some(looked.map(|()| archived.clone()));
        shared.asked = None;
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
