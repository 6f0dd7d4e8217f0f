//! Files and system calls as the log sees them: one trait, so that a simulator can stand in for the operating system.
//!
//! Every error names its path. Nothing else in `log` makes a system call on a file.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapRaw;

use crate::error::{Error, IoContext, Result};
use crate::memory;

/// How a file is opened. None of them follows a symbolic link, and only regular files open.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made, with mode 0600, where it does not exist.
    Create,
    /// As `Create`, but it is an error if the file exists.
    CreateNew,
}

/// What distinguishes one file from any other on this machine.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// The lock of a directory, where there is one.
#[derive(Debug, Default)]
pub struct DirLock {
    pub(super) _dir: Option<OwnedFd>,
}

/// The file system, by path.
pub trait Storage: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>>;
    /// Makes a directory of mode 0700 unless it exists.
    fn make_dir(&self, path: &Path) -> Result<()>;
    /// The names in a directory, in no order.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Of a file or a directory.
    fn file_id(&self, path: &Path) -> Result<FileId>;
    /// Takes the exclusive lock of a directory itself, held for as long as what is returned; `None` if another holds it. A storage without such
    /// locks refuses nobody.
    fn lock_dir(&self, _path: &Path) -> Result<Option<DirLock>> {
        Ok(Some(DirLock::default()))
    }
    /// Whether a symbolic link stands there, which may lead anywhere.
    fn is_link(&self, path: &Path) -> Result<bool> {
        is_link(path)
    }
    /// Bytes that an ordinary user may still allocate on the file system that holds `path`; the most there are if that does not count them.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Names this boot of the machine: memory that was shared under another name is gone.
    fn boot_id(&self) -> Result<String>;
    /// Bytes read so far; 0 where nobody counts them.
    fn bytes_read(&self) -> u64 {
        0
    }
}

/// One open file.
pub trait StorageFile: fmt::Debug + Send + Sync {
    fn path(&self) -> &Path;
    /// Reads up to `buffer.len()` bytes; 0 means the end of the file.
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Says that these bytes are read soon, so that they are fetched meanwhile. A hint: it changes no answer, and cannot fail.
    fn will_read(&self, _offset: u64, _bytes: u64) {}
    /// Writes a part of `bytes`, or all, and returns how much.
    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize>;
    /// Has the medium begin with what was written there, so that the next sync is short. A hint: it makes nothing durable, and cannot fail.
    fn start_write_back(&self, _offset: u64, _bytes: u64) {}
    /// Makes the content durable, and the length where it grew.
    fn sync(&self) -> Result<()>;
    /// Makes the file at least `bytes` long with all of it backed by storage, zeroes where nothing was written.
    fn allocate(&self, bytes: u64) -> Result<()>;
    fn truncate(&self, bytes: u64) -> Result<()>;
    fn bytes(&self) -> Result<u64>;
    fn id(&self) -> Result<FileId>;
    /// Whether it has no name any more: what is written from now on under its old one is not in it.
    fn is_removed(&self) -> Result<bool>;
    /// Takes the exclusive lock of this file for as long as it stays open; `false` if another holds it.
    fn try_lock(&self) -> Result<bool>;
    /// Whether another open file holds the lock. Takes nothing.
    fn is_locked(&self) -> Result<bool>;
    /// Maps the first `bytes` bytes, shared and writable, every page present.
    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>>;
}

/// Reads all of `buffer` or, at the end of the file, less; returns how much.
pub fn read_at(file: &dyn StorageFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.pread(rest, offset + done as u64)? {
            0 => break,
            bytes => done += bytes,
        }
    }
    Ok(done)
}

/// Writes all of `bytes`, a short write completed.
pub fn write_at(file: &dyn StorageFile, bytes: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.pwrite(rest, offset + done as u64)? {
            0 => return Err(Error::io(file.path(), io::ErrorKind::WriteZero.into())),
            bytes => done += bytes,
        }
    }
    Ok(())
}

/// The whole of a file of at most `bytes_max` bytes; `None` if it does not exist.
pub fn read_file(storage: &dyn Storage, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let file = match storage.open(path, OpenMode::Read) {
        Err(error) if is_not_found(&error) => return Ok(None),
        file => file?,
    };
    let bytes = file.bytes()?;
    if bytes > bytes_max {
        let what = format!("it has {bytes} bytes; the limit is {bytes_max}");
        return Err(Error::Damaged {
            path: path.to_owned(),
            what,
        });
    }
    let room = memory::zeroed(bytes as usize);
    let mut content = room.map_err(|refused| refused.of(path))?;
    let read = read_at(&*file, &mut content, 0)?;
    content.truncate(read);
    Ok(Some(content))
}

/// What follows the name of a small file until all of it is there.
pub const UNFINISHED_SUFFIX: &str = ".tmp";

/// Writes a small file so that it is either wholly there under its name, durably, or not at all.
pub fn replace_file(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(UNFINISHED_SUFFIX);
    let temporary = PathBuf::from(temporary);
    // What an earlier try left may have failed to be synced, and is not synced again.
    unlink_if_present(storage, &temporary)?;
    let file = storage.open(&temporary, OpenMode::CreateNew)?;
    write_at(&*file, content, 0)?;
    file.sync()?;
    if let Err(error) = storage.rename(&temporary, path) {
        // The name of a file that nobody knows says little.
        return Err(match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::IsADirectory => {
                Error::Damaged {
                    path: path.to_owned(),
                    what: "a folder stands in its place; move it away".to_owned(),
                }
            }
            other => other,
        });
    }
    match path.parent() {
        Some(parent) => storage.sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes a file; one that does not exist is not an error.
pub fn unlink_if_present(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.unlink(path) {
        Err(error) if is_not_found(&error) => Ok(()),
        result => result,
    }
}

pub fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Whether a symbolic link stands at a path of the operating system's.
pub fn is_link(path: &Path) -> Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found.at(path)?.file_type().is_symlink()),
    }
}
