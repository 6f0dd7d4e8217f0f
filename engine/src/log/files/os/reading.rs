//! The files of every other system, for reading only: a directory that was copied or mounted there has no writer on the same machine.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::MmapRaw;

use super::{names, not_a_file};
use crate::error::{Error, IoContext, Result};
use crate::log::files::storage::{FileId, OpenMode, Storage, StorageFile};
use crate::log::sync::{AtomicU64, Ordering};

/// Counts the bytes that are read through it.
#[derive(Clone, Debug, Default)]
pub struct OsStorage {
    bytes_read: Arc<AtomicU64>,
}

impl OsStorage {
    /// A group matters only to a writer.
    pub fn new(_group: Option<u32>) -> OsStorage {
        OsStorage::default()
    }
}

/// Refuses what only a writer does.
fn refused<T>(path: &Path) -> Result<T> {
    let what = "Loom writes on Linux only, and reads a directory that was copied or mounted here";
    let source = io::Error::new(io::ErrorKind::Unsupported, what);
    Err(Error::io(path, source))
}

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        if mode != OpenMode::Read {
            return refused(path);
        }
        let about = std::fs::symlink_metadata(path).at(path)?;
        if !about.is_file() {
            let found = if about.is_symlink() {
                "a symbolic link, which Loom does not follow,"
            } else if about.is_dir() {
                "a folder"
            } else {
                "something else"
            };
            return Err(not_a_file(path, found));
        }
        Ok(Arc::new(OsFile {
            path: path.to_owned(),
            file: system::open(path).at(path)?,
            bytes_read: Arc::clone(&self.bytes_read),
        }))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        refused(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        names(path)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        refused(from)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        refused(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        refused(path)
    }

    fn file_id(&self, path: &Path) -> Result<FileId> {
        Ok(system::about(&system::open(path).at(path)?).at(path)?.id)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        refused(path)
    }

    /// No memory is shared with a writer, so this is the name of no boot.
    fn boot_id(&self) -> Result<String> {
        Ok(String::new())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
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
            match system::pread(&self.file, buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let bytes = read.at(&self.path)?;
                    self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(bytes);
                }
            }
        }
    }

    fn pwrite(&self, _bytes: &[u8], _offset: u64) -> Result<usize> {
        refused(&self.path)
    }

    fn sync(&self) -> Result<()> {
        refused(&self.path)
    }

    fn allocate(&self, _bytes: u64) -> Result<()> {
        refused(&self.path)
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        refused(&self.path)
    }

    fn bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().at(&self.path)?.len())
    }

    fn id(&self) -> Result<FileId> {
        Ok(system::about(&self.file).at(&self.path)?.id)
    }

    fn is_removed(&self) -> Result<bool> {
        Ok(system::about(&self.file).at(&self.path)?.names == 0)
    }

    fn try_lock(&self) -> Result<bool> {
        refused(&self.path)
    }

    /// A writer runs on Linux, and no lock of it is seen from here.
    fn is_locked(&self) -> Result<bool> {
        Ok(false)
    }

    fn map(&self, _bytes: usize) -> Result<Arc<MmapRaw>> {
        refused(&self.path)
    }
}

/// Returns the path of these bytes, which another system wrote, for people.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// No process here holds a lock.
pub fn runs(_pid: u32) -> Option<bool> {
    None
}

/// The state of an open file, as the system reports it.
struct About {
    id: FileId,
    /// The number of its names.
    names: u64,
}

#[cfg(unix)]
mod system {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::{About, File, FileId, Path, io};

    pub fn open(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    pub fn pread(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    pub fn about(file: &File) -> io::Result<About> {
        let about = file.metadata()?;
        Ok(About {
            id: FileId {
                device: about.dev(),
                inode: about.ino(),
            },
            names: about.nlink(),
        })
    }
}

#[cfg(windows)]
mod system {
    use std::os::windows::fs::{FileExt, OpenOptionsExt};

    use super::{About, File, FileId, Path, io};

    /// `FILE_FLAG_BACKUP_SEMANTICS`, without which Windows opens no folder.
    const FOLDERS_TOO: u32 = 0x0200_0000;

    /// `ERROR_HANDLE_EOF`.
    const END_OF_FILE: i32 = 38;

    pub fn open(path: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).custom_flags(FOLDERS_TOO).open(path)
    }

    pub fn pread(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match file.seek_read(buffer, offset) {
            // Other systems read nothing at the end of a file, without an error.
            Err(error) if error.raw_os_error() == Some(END_OF_FILE) => Ok(0),
            read => read,
        }
    }

    pub fn about(file: &File) -> io::Result<About> {
        let about = winapi_util::file::information(file)?;
        Ok(About {
            id: FileId {
                device: about.volume_serial_number(),
                inode: about.file_index(),
            },
            names: about.number_of_links(),
        })
    }
}
