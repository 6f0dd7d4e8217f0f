//! The file `catalog` as bytes: lines are appended and synced one by one, and a torn last line is cut before anything follows it.

use std::path::Path;
use std::sync::Arc;

use super::storage::{OpenMode, Storage, StorageFile, is_not_found, read_file, write_at};
use super::sync::{AtomicU64, Ordering};
use crate::error::{Error, Result};

pub const NAME: &str = "catalog";
/// Far above what 65,000 sources of many fields take.
const CATALOG_BYTES_MAX: u64 = 1 << 30;

/// All bytes of the catalog; empty where there is none yet.
pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Vec<u8>> {
    Ok(read_file(storage, &dir.join(NAME), CATALOG_BYTES_MAX)?.unwrap_or_default())
}

/// Length of the catalog.
pub fn bytes(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    match storage.open(&dir.join(NAME), OpenMode::Read) {
        Err(error) if is_not_found(&error) => Ok(0),
        file => file?.bytes(),
    }
}

/// The writer's end of the file.
#[derive(Debug)]
pub struct CatalogFile {
    file: Arc<dyn StorageFile>,
    /// Length of the lines that are durable. The slots of `durable` tell it too.
    bytes: Arc<AtomicU64>,
    /// Bytes of a line that failed may stand past the end.
    is_torn: bool,
}

impl CatalogFile {
    pub fn open(storage: &dyn Storage, dir: &Path) -> Result<CatalogFile> {
        let file = storage.open(&dir.join(NAME), OpenMode::Create)?;
        storage.sync_dir(dir)?;
        let bytes = file.bytes()?;
        Ok(CatalogFile {
            file,
            bytes: Arc::new(AtomicU64::new(bytes)),
            is_torn: false,
        })
    }

    /// The length, to be loaded with acquire by other threads.
    pub fn shared_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Appends a line and syncs it. A line that failed to be written is taken back.
    pub fn append(&mut self, line: &str) -> Result<()> {
        // What is left of a line that could not be taken back must not follow a shorter one.
        if self.is_torn {
            self.take_back()?;
        }
        self.is_torn = true;
        let written =
            write_at(&*self.file, line.as_bytes(), self.bytes()).and_then(|()| self.file.sync());
        if written.is_ok() {
            self.bytes
                .store(self.bytes() + line.len() as u64, Ordering::Release);
            self.is_torn = false;
        } else if let Err(error) = self.take_back() {
            tracing::warn!("{error}; the line that failed is taken back later");
        }
        written
    }

    fn take_back(&mut self) -> Result<()> {
        self.file.truncate(self.bytes())?;
        self.is_torn = false;
        Ok(())
    }

    /// Keeps the first `bytes` bytes, which are the lines that verify, durably.
    pub fn cut(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.bytes() {
            let what = format!("it ends at byte {}, short of byte {bytes}", self.bytes());
            return Err(Error::Damaged {
                path: self.file.path().to_owned(),
                what,
            });
        }
        if bytes < self.bytes() {
            self.file.truncate(bytes)?;
            self.bytes.store(bytes, Ordering::Release);
        }
        // A writer that was killed may have written its last line and not synced it.
        self.file.sync()
    }
}
