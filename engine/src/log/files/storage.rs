//! Files and system calls as the log sees them: one trait, so that a simulator can replace the operating system.
//!
//! Every error names its path. Nothing else in `log` makes a system call on a file.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapRaw;

use crate::error::{Error, IoContext, Result};
use crate::memory;

/// Modes of opening a file. None of them follows a symbolic link, and only regular files open.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; created with mode 0600 if it does not exist.
    Create,
    /// As `Create`, but it is an error if the file exists.
    CreateNew,
}

/// Distinguishes one file from any other on this machine.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// The lock of a directory, if there is one.
#[derive(Debug, Default)]
pub struct DirLock {
    _dir: Option<File>,
}

impl DirLock {
    /// The lock of an open directory.
    pub fn of(dir: File) -> DirLock {
        DirLock { _dir: Some(dir) }
    }
}

/// The file system, by path.
pub trait Storage: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>>;
    /// Creates a directory of mode 0700 unless it exists.
    fn make_dir(&self, path: &Path) -> Result<()>;
    /// The names in a directory, in no order.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// The identity of a file or a directory.
    fn file_id(&self, path: &Path) -> Result<FileId>;
    /// Takes the exclusive lock of a directory itself and holds it until the result is dropped; `None` if another holds it. A storage without such locks
    /// refuses nobody.
    fn lock_dir(&self, _path: &Path) -> Result<Option<DirLock>> {
        Ok(Some(DirLock::default()))
    }
    /// Reports whether the path is a symbolic link, which may lead anywhere.
    fn is_link(&self, path: &Path) -> Result<bool> {
        is_link(path)
    }
    /// Bytes that an ordinary user may still allocate on the file system of `path`; the greatest number if it does not count them.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Names this boot of the machine: memory that was shared under another name is gone.
    fn boot_id(&self) -> Result<String>;
    /// Bytes read so far; 0 if they are not counted.
    fn bytes_read(&self) -> u64 {
        0
    }
}

/// One open file.
pub trait StorageFile: fmt::Debug + Send + Sync {
    fn path(&self) -> &Path;
    /// Reads up to `buffer.len()` bytes; 0 means the end of the file.
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Reads as `pread` does, but only what is cached; `None` if it would wait for a disk. A storage that cannot know reads.
    fn pread_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        self.pread(buffer, offset).map(Some)
    }
    /// Announces that these bytes are read soon, so that they are fetched. This is a hint: it changes no answer and cannot fail.
    fn will_read(&self, _offset: u64, _bytes: u64) {}
    /// Writes a part of `bytes`, or all, and returns the number of bytes.
    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize>;
    /// Starts the write-back of these bytes, so that the next sync is short. This is a hint: it makes nothing durable and cannot fail.
    fn start_write_back(&self, _offset: u64, _bytes: u64) {}
    /// Makes the content durable, and the length if it grew.
    fn sync(&self) -> Result<()>;
    /// Makes the file at least `bytes` long and backs all of it with storage; unwritten bytes are zeroes.
    fn allocate(&self, bytes: u64) -> Result<()>;
    /// Backs the first `bytes` bytes with storage without a change of the length, so that writes there never fail for lack of space. Truncating the file gives
    /// back the space above. A storage that cannot do so lets a later write fail.
    fn reserve(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
    fn truncate(&self, bytes: u64) -> Result<()>;
    fn bytes(&self) -> Result<u64>;
    fn id(&self) -> Result<FileId>;
    /// Reports whether it has no name any more, so that later writes under its old name go to another file.
    fn is_removed(&self) -> Result<bool>;
    /// Takes the exclusive lock of this file until it is closed; `false` if another holds it.
    fn try_lock(&self) -> Result<bool>;
    /// Reports whether another open file holds the lock, without taking it.
    fn is_locked(&self) -> Result<bool>;
    /// Maps the first `bytes` bytes, shared and writable, with every page present.
    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>>;
}

/// Fills `buffer`, or less at the end of the file, and returns the number of bytes.
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

/// Writes all of `bytes` and completes short writes.
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

/// Reads a whole file of at most `bytes_max` bytes; `None` if it does not exist.
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

/// The suffix of a small file until it is complete.
pub const UNFINISHED_SUFFIX: &str = ".tmp";

/// Writes a small file so that it exists either whole and durable under its name, or not at all.
pub fn replace_file(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(UNFINISHED_SUFFIX);
    let temporary = PathBuf::from(temporary);
    // The sync of an earlier try may have failed, and is not repeated.
    unlink_if_present(storage, &temporary)?;
    let file = storage.open(&temporary, OpenMode::CreateNew)?;
    write_at(&*file, content, 0)?;
    file.sync()?;
    if let Err(error) = storage.rename(&temporary, path) {
        // The name of the temporary file would not help the user.
        return Err(match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::IsADirectory => {
                Error::Damaged {
                    path: path.to_owned(),
                    what: "a folder is in its place; move it away".to_owned(),
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

/// Removes a file; it is no error if it does not exist.
pub fn unlink_if_present(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.unlink(path) {
        Err(error) if is_not_found(&error) => Ok(()),
        result => result,
    }
}

pub fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Reports whether a path of the operating system is a symbolic link.
pub fn is_link(path: &Path) -> Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found.at(path)?.file_type().is_symlink()),
    }
}
