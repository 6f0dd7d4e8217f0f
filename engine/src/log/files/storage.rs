//! Files and system calls as the log sees them: one trait, so that a simulator can stand in for the operating system.
//!
//! Every error names its path. Nothing else in `log` makes a system call on a file.

use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::lock;
use crate::error::{Error, IoContext, Result};
use crate::log::sync::{AtomicBool, Ordering};

/// How a file is opened. None of them follows a symbolic link, and only regular files open.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write through the page cache.
    Write,
    /// An existing file, to write past the page cache where the file system can; offsets, lengths and memory are then multiples of 4096.
    WriteDirect,
    /// To read and write; made, with mode 0600, where it does not exist.
    Create,
    /// As `Create`, but it is an error if the file exists.
    CreateNew,
}

/// What tells one file from any other on this machine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// The lock of a directory, where there is one.
#[derive(Debug, Default)]
pub struct DirLock {
    _dir: Option<OwnedFd>,
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
    fn dir_id(&self, path: &Path) -> Result<FileId>;
    /// Takes the exclusive lock of a directory itself, held for as long as what is returned; `None` if another holds it. A storage without such
    /// locks refuses nobody.
    fn lock_dir(&self, _path: &Path) -> Result<Option<DirLock>> {
        Ok(Some(DirLock::default()))
    }
    /// Whether a symbolic link stands there, which may lead anywhere.
    fn is_link(&self, path: &Path) -> Result<bool> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(found.at(path)?.file_type().is_symlink()),
        }
    }
    /// Bytes that an ordinary user may still allocate on the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Names this boot of the machine: memory that was shared under another name is gone.
    fn boot_id(&self) -> Result<String>;
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
        let what = format!("it has {bytes} bytes, more than the {bytes_max} that it can have");
        return Err(Error::Damaged {
            path: path.to_owned(),
            what,
        });
    }
    let mut content = vec![0; bytes as usize];
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

/// Removes a file; that it does not exist is no error.
pub fn unlink_if_present(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.unlink(path) {
        Err(error) if is_not_found(&error) => Ok(()),
        result => result,
    }
}

pub fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// The operating system's files.
#[derive(Copy, Clone, Debug, Default)]
pub struct OsStorage;

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        // Without O_NONBLOCK a FIFO in a file's place would block for ever; regular files ignore it.
        let common = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let access = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::WriteDirect => OFlags::RDWR | OFlags::DIRECT,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let open = |flags| rustix::fs::open(path, common | flags, Mode::RUSR | Mode::WUSR);
        let (file, direct) = match open(access) {
            Err(Errno::INVAL) if mode == OpenMode::WriteDirect => (open(OFlags::RDWR), false),
            file => (file, mode == OpenMode::WriteDirect),
        };
        let file = File::from(file.map_err(|errno| not_opened(path, errno.into()))?);
        match FileType::from_raw_mode(rustix::fs::fstat(&file).at(path)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(not_a_file(path, "a folder")),
            _ => return Err(not_a_file(path, "something else")),
        }
        Ok(Arc::new(OsFile {
            path: path.to_owned(),
            file,
            direct: AtomicBool::new(direct),
        }))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            result => result.at(path),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).at(path)? {
            // A name that is not UTF-8 is none of Loom's.
            if let Ok(name) = entry.at(path)?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        rustix::fs::rename(from, to).at(from)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        rustix::fs::unlink(path).at(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        rustix::fs::fsync(open_dir(path)?).at(path)
    }

    fn dir_id(&self, path: &Path) -> Result<FileId> {
        let stat = rustix::fs::stat(path).at(path)?;
        Ok(FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        let dir = open_dir(path)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            // Some network file systems lock what is open for writing alone, which no directory is.
            Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Ok(Some(DirLock::default()))
            }
            result => {
                result.at(path)?;
                Ok(Some(DirLock { _dir: Some(dir) }))
            }
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let stat = rustix::fs::statvfs(path).at(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn boot_id(&self) -> Result<String> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        Ok(std::fs::read_to_string(path).at(path)?.trim().to_owned())
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).at(path)
}

/// The error of a file that could not be opened: damage, where something else stands in its place.
pub fn not_opened(path: &Path, source: io::Error) -> Error {
    let is_link = || OsStorage.is_link(path).unwrap_or(false);
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        // A path that goes round in links gives the same error.
        Some(Errno::LOOP) if is_link() => {
            not_a_file(path, "a symbolic link, which Loom follows nowhere,")
        }
        Some(Errno::ISDIR) => not_a_file(path, "a folder"),
        _ => Error::io(path, source),
    }
}

/// What Loom finds where a file should be is left alone.
fn not_a_file(path: &Path, found: &str) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        what: format!(
            "{found} stands in place of the file: move it away, and put the file itself there if it still exists"
        ),
    }
}

#[derive(Debug)]
struct OsFile {
    path: PathBuf,
    file: File,
    /// Whether writes go past the page cache. Only the thread that writes this file reads or clears it.
    direct: AtomicBool,
}

impl StorageFile for OsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                result => return result.at(&self.path),
            }
        }
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        // A file system that takes no advice is read all the same.
        let _taken = rustix::fs::fadvise(
            &self.file,
            offset,
            NonZeroU64::new(bytes),
            rustix::fs::Advice::WillNeed,
        );
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        loop {
            match rustix::io::pwrite(&self.file, bytes, offset) {
                Err(Errno::INTR) => {}
                // Some file systems take the flag at open and refuse the write. A write that was cut short leaves an odd rest, too.
                Err(Errno::INVAL) if self.direct.swap(false, Ordering::Relaxed) => {
                    let flags = rustix::fs::fcntl_getfl(&self.file).at(&self.path)?;
                    rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT).at(&self.path)?;
                }
                result => return result.at(&self.path),
            }
        }
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).at(&self.path)
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.fill(bytes),
                result => return result.at(&self.path),
            }
        }
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, bytes).at(&self.path)
    }

    fn bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.file).at(&self.path)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn id(&self) -> Result<FileId> {
        let stat = rustix::fs::fstat(&self.file).at(&self.path)?;
        Ok(FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn is_removed(&self) -> Result<bool> {
        Ok(rustix::fs::fstat(&self.file).at(&self.path)?.st_nlink == 0)
    }

    fn try_lock(&self) -> Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            result => {
                result.at(&self.path)?;
                lock::mark(&self.file).at(&self.path)
            }
        }
    }

    fn is_locked(&self) -> Result<bool> {
        lock::is_marked(&self.file).at(&self.path)
    }

    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>> {
        let map = MmapOptions::new().len(bytes).populate().map_raw(&self.file);
        map.map(Arc::new).at(&self.path)
    }
}

impl OsFile {
    /// What `fallocate` does, for file systems that lack it: zeroes are written past the present end.
    fn fill(&self, bytes: u64) -> Result<()> {
        static ZEROES: [u8; 65536] = [0; 65536];
        let mut end = self.bytes()?;
        while end < bytes {
            let piece = ZEROES
                .len()
                .min(usize::try_from(bytes - end).unwrap_or(usize::MAX));
            write_at(self, ZEROES.get(..piece).unwrap_or(&ZEROES), end)?;
            end += piece as u64;
        }
        Ok(())
    }
}
