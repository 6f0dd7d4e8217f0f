//! Files in memory behind the engine's storage trait: a directory that costs a copy to make and nothing to throw away.
//!
//! It is for readers: nobody holds the lock, and nothing can be mapped.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loom_engine::log::storage::{FileId, OpenMode, Storage, StorageFile};
use loom_engine::{Error, Result};
use memmap2::MmapRaw;

/// Where it stands in memory.
pub const DIR: &str = "/world";

/// The name of this boot, which staging must bear.
pub const BOOT_ID: &str = "in memory";

/// What stands under a name.
#[derive(Clone, Debug)]
pub enum Entry {
    File(Arc<[u8]>),
    /// What is no regular file: a FIFO, a folder where a file should be.
    Odd,
}

/// The files of a machine, by path.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Memory {
    pub fn put(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Arc<[u8]>>) {
        self.entries.insert(path.into(), Entry::File(bytes.into()));
    }

    pub fn put_odd(&mut self, path: impl Into<PathBuf>) {
        self.entries.insert(path.into(), Entry::Odd);
    }

    pub fn remove(&mut self, path: &Path) {
        self.entries.remove(path);
    }

    pub fn get(&self, path: &Path) -> Option<&[u8]> {
        match self.entries.get(path)? {
            Entry::File(bytes) => Some(bytes),
            Entry::Odd => None,
        }
    }

    /// Writes what stands in the one directory (`world.rs`) into a folder on the disk.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let to = dir.join(path.strip_prefix(DIR).unwrap_or(path));
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder)?;
            }
            match entry {
                Entry::File(bytes) => std::fs::write(to, bytes)?,
                Entry::Odd => std::fs::create_dir_all(to)?,
            }
        }
        Ok(())
    }
}

fn failed<T>(path: &Path, kind: io::ErrorKind) -> Result<T> {
    Err(Error::io(path, kind.into()))
}

impl Storage for Memory {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        if mode != OpenMode::Read {
            return failed(path, io::ErrorKind::ReadOnlyFilesystem);
        }
        match self.entries.get(path) {
            Some(Entry::File(bytes)) => Ok(Arc::new(MemoryFile {
                path: path.to_owned(),
                bytes: Arc::clone(bytes),
            })),
            Some(Entry::Odd) => Err(Error::Damaged {
                path: path.to_owned(),
                what: "not a regular file".to_owned(),
            }),
            None => failed(path, io::ErrorKind::NotFound),
        }
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        failed(path, io::ErrorKind::ReadOnlyFilesystem)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let names: Vec<String> = self
            .entries
            .keys()
            .filter_map(|entry| entry.strip_prefix(path).ok()?.to_str())
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            return failed(path, io::ErrorKind::NotFound);
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        failed(from, io::ErrorKind::ReadOnlyFilesystem)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        failed(path, io::ErrorKind::ReadOnlyFilesystem)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        failed(path, io::ErrorKind::ReadOnlyFilesystem)
    }

    fn file_id(&self, path: &Path) -> Result<FileId> {
        Ok(file_id(path))
    }

    fn is_link(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(0)
    }

    fn boot_id(&self) -> Result<String> {
        Ok(BOOT_ID.to_owned())
    }
}

#[derive(Debug)]
struct MemoryFile {
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl MemoryFile {
    fn read_only<T>(&self) -> Result<T> {
        failed(&self.path, io::ErrorKind::ReadOnlyFilesystem)
    }
}

impl StorageFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = self.bytes.get(from..).unwrap_or_default();
        let read = there.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..read), there.get(..read)) {
            to.copy_from_slice(from);
        }
        Ok(read)
    }

    fn pwrite(&self, _bytes: &[u8], _offset: u64) -> Result<usize> {
        self.read_only()
    }

    fn sync(&self) -> Result<()> {
        self.read_only()
    }

    fn allocate(&self, _bytes: u64) -> Result<()> {
        self.read_only()
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        self.read_only()
    }

    fn bytes(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn id(&self) -> Result<FileId> {
        Ok(file_id(&self.path))
    }

    fn is_removed(&self) -> Result<bool> {
        Ok(false)
    }

    fn try_lock(&self) -> Result<bool> {
        self.read_only()
    }

    fn is_locked(&self) -> Result<bool> {
        Ok(false)
    }

    fn map(&self, _bytes: usize) -> Result<Arc<MmapRaw>> {
        self.read_only()
    }
}

/// Of the file at a path: the same each time.
pub fn file_id(path: &Path) -> FileId {
    let name = path.as_os_str().as_encoded_bytes();
    FileId {
        device: 1,
        inode: u64::from(crc32c::crc32c(name)),
    }
}
