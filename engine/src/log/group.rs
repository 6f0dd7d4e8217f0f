//! A storage whose files a group may read, and so query; only the owner writes.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Gid, Mode};

use super::storage::{FileId, OpenMode, OsStorage, Storage, StorageFile};
use crate::error::{IoContext, Result};

/// The operating system's files; what is made here belongs to a group.
#[derive(Copy, Clone, Debug)]
pub struct GroupStorage {
    group: u32,
}

impl GroupStorage {
    pub fn new(group: u32) -> GroupStorage {
        GroupStorage { group }
    }

    fn share(&self, path: &Path, mode: Mode) -> Result<()> {
        rustix::fs::chown(path, None, Some(Gid::from_raw(self.group))).at(path)?;
        rustix::fs::chmod(path, mode).at(path)
    }
}

impl Storage for GroupStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        if matches!(mode, OpenMode::Create | OpenMode::CreateNew) {
            self.share(path, Mode::RUSR | Mode::WUSR | Mode::RGRP)?;
        }
        Ok(file)
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        OsStorage.make_dir(path)?;
        self.share(path, Mode::RWXU | Mode::RGRP | Mode::XGRP)
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

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        OsStorage.free_bytes(path)
    }

    fn boot_id(&self) -> Result<String> {
        OsStorage.boot_id()
    }
}
