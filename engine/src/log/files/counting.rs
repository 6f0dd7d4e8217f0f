//! A storage that counts what is read through it: the one place where a reader's bytes are counted.

use std::path::Path;
use std::sync::Arc;

use memmap2::MmapRaw;

use super::storage::{DirLock, FileId, OpenMode, Storage, StorageFile};
use crate::error::Result;
use crate::log::sync::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub struct CountingStorage {
    inner: Arc<dyn Storage>,
    bytes_read: Arc<AtomicU64>,
}

impl CountingStorage {
    pub fn new(inner: Arc<dyn Storage>) -> CountingStorage {
        CountingStorage {
            inner,
            bytes_read: Arc::new(AtomicU64::new(0)),
        }
    }

    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

impl Storage for CountingStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(CountingFile {
            inner,
            bytes_read: Arc::clone(&self.bytes_read),
        }))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        self.inner.make_dir(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.inner.unlink(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }

    fn dir_id(&self, path: &Path) -> Result<FileId> {
        self.inner.dir_id(path)
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        self.inner.lock_dir(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.inner.free_bytes(path)
    }

    fn boot_id(&self) -> Result<String> {
        self.inner.boot_id()
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn StorageFile>,
    bytes_read: Arc<AtomicU64>,
}

impl StorageFile for CountingFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = self.inner.pread(buffer, offset)?;
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        self.inner.will_read(offset, bytes);
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.inner.pwrite(bytes, offset)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        self.inner.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.inner.truncate(bytes)
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn id(&self) -> Result<FileId> {
        self.inner.id()
    }

    fn is_removed(&self) -> Result<bool> {
        self.inner.is_removed()
    }

    fn try_lock(&self) -> Result<bool> {
        self.inner.try_lock()
    }

    fn is_locked(&self) -> Result<bool> {
        self.inner.is_locked()
    }

    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>> {
        self.inner.map(bytes)
    }
}
