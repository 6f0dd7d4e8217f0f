//! The writer's lock on a directory: `LOCK`, held while the writer lives.
//!
//! `flock` excludes a second writer. The writer also holds a write lock of the open-file-description kind, because a reader can query that one without taking a
//! lock: a reader that took even a shared `flock` for a moment could refuse a writer's start. The directory itself is locked too, because someone may remove
//! the file, and the next writer would create and lock another one. The kernel releases all locks when the writer dies, however it dies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::os;
use super::storage::{DirLock, OpenMode, Storage, StorageFile, is_not_found, read_at, write_at};
use crate::error::{Error, LockHolder, Result};
use crate::log::sync::{Mutex, locked};

pub const NAME: &str = "LOCK";
/// The time for which a lock of another holder is tried again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct WriterLock {
    _file: Arc<dyn StorageFile>,
    _dir: DirLock,
}

impl WriterLock {
    pub fn take(storage: &dyn Storage, dir: &Path) -> Result<WriterLock> {
        let file = storage.open(&dir.join(NAME), OpenMode::Create)?;
        let take = || {
            let taken = file.try_lock()?;
            Ok::<_, Error>(if taken { storage.lock_dir(dir)? } else { None })
        };
        let mut taken = take()?;
        let since = Instant::now();
        // A process forked by some writer shares the lock until it executes its own program, even after that writer has ended.
        while taken.is_none() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
            taken = take()?;
        }
        let Some(of_dir) = taken else {
            return Err(Error::Locked {
                path: dir.to_owned(),
                holder: holder(&*file),
            });
        };
        // This is only for people: a start continues if it cannot be written.
        let named = file
            .truncate(0)
            .and_then(|()| write_at(&*file, format!("{}\n", std::process::id()).as_bytes(), 0));
        if let Err(error) = named {
            tracing::debug!("{error}");
        }
        Ok(WriterLock {
            _file: file,
            _dir: of_dir,
        })
    }
}

/// Returns the lock's holder according to the file.
fn holder(file: &dyn StorageFile) -> LockHolder {
    let named = || {
        let mut text = [0; 16];
        let read = read_at(file, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..read)?).ok()?;
        let pid: u32 = text.trim_end().parse().ok()?;
        Some((pid, os::runs(pid)?))
    };
    match named() {
        None => LockHolder::Unknown,
        Some((pid, true)) => LockHolder::Named(pid),
        Some((pid, false)) => LockHolder::NotNamed(pid),
    }
}

/// Asks whether a writer lives, without taking a lock.
#[derive(Debug)]
pub struct LockWatch {
    path: PathBuf,
    file: Mutex<Option<Arc<dyn StorageFile>>>,
}

impl LockWatch {
    pub fn new(dir: &Path) -> LockWatch {
        LockWatch {
            path: dir.join(NAME),
            file: Mutex::new(None),
        }
    }

    /// A directory without the file, such as a copy, has no writer yet.
    pub fn is_held(&self, storage: &dyn Storage) -> Result<bool> {
        let mut file = locked(&self.file);
        if file.is_none() {
            *file = match storage.open(&self.path, OpenMode::Read) {
                Err(error) if is_not_found(&error) => None,
                file => Some(file?),
            };
        }
        file.as_ref().map_or(Ok(false), |file| file.is_locked())
    }
}
