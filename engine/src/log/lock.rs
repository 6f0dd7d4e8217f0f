//! The writer's lock on a directory: `LOCK`, held for as long as the writer lives.
//!
//! `flock` excludes a second writer. Beside it the writer holds a write lock of the open-file-description kind, because a reader can ask
//! about that one without taking anything: a reader that took even a shared `flock` for a moment could refuse a
//! writer's start. Both are released by the kernel when the writer dies, however it dies.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::storage::{OpenMode, Storage, StorageFile, is_not_found};
use super::sync::{Mutex, locked};
use crate::error::{Error, Result};

const NAME: &str = "LOCK";

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct WriterLock {
    _file: Arc<dyn StorageFile>,
}

impl WriterLock {
    pub fn take(storage: &dyn Storage, dir: &Path) -> Result<WriterLock> {
        let file = storage.open(&dir.join(NAME), OpenMode::Create)?;
        if !file.try_lock()? {
            return Err(Error::Locked {
                path: dir.to_owned(),
            });
        }
        Ok(WriterLock { _file: file })
    }
}

/// Asks whether a writer lives. Takes no lock.
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

/// Takes the lock that readers ask about; `false` if another open file holds it.
pub(super) fn mark(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    match fcntl(file, libc::F_OFD_SETLK, &mut lock) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        result => result.map(|()| true),
    }
}

/// Whether another open file holds the lock that `mark` takes.
pub(super) fn is_marked(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_RDLCK);
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn fcntl(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and `lock` is a valid, exclusive `struct flock`, which is what
    // both commands take.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
