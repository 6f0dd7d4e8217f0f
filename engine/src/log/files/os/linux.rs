//! The files of Linux, where Loom writes and reads.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Pid, test_kill_process};

use super::{names, not_a_file};
use crate::error::{Error, IoContext, Result};
use crate::log::files::access::Access;
use crate::log::files::storage::{
    DirLock, FileId, OpenMode, Storage, StorageFile, is_link, write_at,
};
use crate::log::sync::{AtomicU64, Ordering};
use crate::proven;

/// Counts the bytes that are read through it.
#[derive(Clone, Debug, Default)]
pub struct OsStorage {
    /// The access of new files; `None`: only the owner.
    access: Option<Access>,
    bytes_read: Arc<AtomicU64>,
}

impl OsStorage {
    /// With a group, its members may read and so query new files; only the owner writes.
    pub fn new(group: Option<u32>) -> OsStorage {
        OsStorage {
            access: group.map(|group| Access::new(Some(group))),
            bytes_read: Arc::default(),
        }
    }

    fn share(&self, path: &Path) -> Result<()> {
        self.access.map_or(Ok(()), |access| access.set(path))
    }
}

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        // Without O_NONBLOCK a FIFO in a file's place would block for ever; regular files ignore it.
        let common = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let access = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::Write => OFlags::RDWR,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        let file = rustix::fs::open(path, common | access, Mode::RUSR | Mode::WUSR);
        let file = File::from(file.map_err(|errno| not_opened(path, errno.into()))?);
        match FileType::from_raw_mode(rustix::fs::fstat(&file).at(path)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(not_a_file(path, "a folder")),
            _ => return Err(not_a_file(path, "something else")),
        }
        if matches!(mode, OpenMode::Create | OpenMode::CreateNew) {
            self.share(path)?;
        }
        Ok(Arc::new(OsFile {
            path: path.to_owned(),
            file,
            bytes_read: Arc::clone(&self.bytes_read),
        }))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            // An existing one may be anything; later steps check it.
            Err(Errno::EXIST) => Ok(()),
            result => result.at(path).and_then(|()| self.share(path)),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        names(path)
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

    fn file_id(&self, path: &Path) -> Result<FileId> {
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
            // Some network file systems lock only files that are open for writing, which a directory never is.
            Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Ok(Some(DirLock::default()))
            }
            result => {
                result.at(path)?;
                Ok(Some(DirLock::of(File::from(dir))))
            }
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let stat = rustix::fs::statvfs(path).at(path)?;
        // Some file systems in user space do not count their blocks.
        if stat.f_blocks == 0 {
            return Ok(u64::MAX);
        }
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn boot_id(&self) -> Result<String> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        Ok(std::fs::read_to_string(path).at(path)?.trim().to_owned())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).at(path)
}

/// Returns the error of a file that could not be opened: damage, if something else has taken its place.
fn not_opened(path: &Path, source: io::Error) -> Error {
    let is_link = || matches!(is_link(path), Ok(true));
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        // A path with a cycle of links gives the same error.
        Some(Errno::LOOP) if is_link() => {
            not_a_file(path, "a symbolic link, which Loom does not follow,")
        }
        Some(Errno::ISDIR) => not_a_file(path, "a folder"),
        _ => Error::io(path, source),
    }
}

#[derive(Debug)]
struct OsFile {
    path: PathBuf,
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl StorageFile for OsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                read => {
                    let bytes = read.at(&self.path)?;
                    self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
            }
        }
    }

    fn pread_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        let bytes = IoSliceMut::new(buffer);
        match rustix::io::preadv2(&self.file, &mut [bytes], offset, ReadWriteFlags::NOWAIT) {
            Ok(bytes) => {
                self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(Some(bytes))
            }
            Err(Errno::AGAIN) => Ok(None),
            // A file system that cannot say so is read as if all were cached. An error is that of the second read.
            Err(_) => self.pread(buffer, offset).map(Some),
        }
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        // A file system that takes no advice can still be read.
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
                result => return result.at(&self.path),
            }
        }
    }

    fn start_write_back(&self, offset: u64, bytes: u64) {
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
            return;
        };
        let fd = self.file.as_raw_fd();
        // SAFETY: the call takes an open file and numbers, and touches no memory. It fails on a file system that does not take the hint.
        let _taken =
            unsafe { libc::sync_file_range(fd, offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).at(&self.path)
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        match self.fallocate(FallocateFlags::empty(), bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.fill(bytes),
            result => result.at(&self.path),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        match self.fallocate(FallocateFlags::KEEP_SIZE, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => result.at(&self.path),
        }
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, bytes).at(&self.path)
    }

    fn bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.file).at(&self.path)?;
        Ok(u64::try_from(stat.st_size).expect("no file has a negative length"))
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
                mark(&self.file).at(&self.path)
            }
        }
    }

    fn is_locked(&self) -> Result<bool> {
        is_marked(&self.file).at(&self.path)
    }

    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>> {
        let map = MmapOptions::new().len(bytes).populate().map_raw(&self.file);
        map.map(Arc::new).at(&self.path)
    }
}

impl OsFile {
    fn fallocate(&self, flags: FallocateFlags, bytes: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, 0, bytes) {
                Err(Errno::INTR) => {}
                result if bytes > 0 => return result,
                _ => return Ok(()),
            }
        }
    }

    /// Replaces `fallocate` on file systems without it: writes zeroes past the present end.
    fn fill(&self, bytes: u64) -> Result<()> {
        static ZEROES: [u8; 65536] = [0; 65536];
        let mut end = self.bytes()?;
        while end < bytes {
            let piece = (bytes - end).min(ZEROES.len() as u64) as usize;
            write_at(self, proven::at(&ZEROES, ..piece), end)?;
            end += piece as u64;
        }
        Ok(())
    }
}

/// Takes the lock that readers query; `false` if another open file holds it.
fn mark(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    match fcntl(file, libc::F_OFD_SETLK, &mut lock) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        result => result.map(|()| true),
    }
}

/// Reports whether another open file holds the lock that `mark` takes.
fn is_marked(file: &File) -> io::Result<bool> {
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
    // SAFETY: the descriptor stays open while `file` is borrowed, and `lock` is a valid, exclusive `struct flock`, as both commands require.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns the path of these bytes.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Reports whether a process runs; `None` if no process has this number.
pub fn runs(pid: u32) -> Option<bool> {
    let process = Pid::from_raw(i32::try_from(pid).ok()?)?;
    Some(test_kill_process(process) != Err(Errno::SRCH))
}
