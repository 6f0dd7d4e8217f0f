//! A storage whose files a group may read, and so query; only the owner writes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::access::Access;
use super::storage::{DirLock, FileId, OpenMode, OsStorage, Storage, StorageFile};
use crate::error::Result;

/// The operating system's files; what is made here belongs to a group.
#[derive(Copy, Clone, Debug)]
pub struct GroupStorage {
    access: Access,
}

impl GroupStorage {
    pub fn new(group: u32) -> GroupStorage {
        GroupStorage {
            access: Access::new(Some(group)),
        }
    }
}

impl Storage for GroupStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if matches!(mode, OpenMode::Create | OpenMode::CreateNew) {
            self.access.set(path)?;
        }
        Ok(file)
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // One that is there already may be anything, as yet.
            _ => return OsStorage.make_dir(path),
        }
        OsStorage.make_dir(path)?;
        self.access.set(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        OsStorage.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        OsStorage.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        OsStorage.unlink(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        OsStorage.sync_dir(path)
    }

    fn dir_id(&self, path: &Path) -> Result<FileId> {
        OsStorage.dir_id(path)
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        OsStorage.lock_dir(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        OsStorage.free_bytes(path)
    }

    fn boot_id(&self) -> Result<String> {
        OsStorage.boot_id()
    }
}
