//! The start of a writer: it recovers the directory, and if the disk is full it may remove the oldest segments first.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::log::Opening;
use crate::log::storage::{OsStorage, Storage};

use super::boundary;
use super::options::{WhenFull, WriterOptions};
use super::recovery::IndexLogs;
use super::writer::Writer;

impl Writer {
    /// Opens a directory, or creates a missing one, and recovers what its last writer left.
    pub fn open(dir: &Path, options: WriterOptions) -> Result<Self> {
        let storage = OsStorage::new(options.log.group);
        Self::open_with(Arc::new(storage), dir, options)
    }

    /// As `open`, on a storage of the caller's.
    pub fn open_with(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: WriterOptions,
    ) -> Result<Self> {
        Self::begin(storage, dir, &options, IndexLogs::KeepSound)
    }

    /// As `open`, but rebuilds the chunk index and the timestamp index from the records, even if they are sound.
    pub fn rebuild(dir: &Path, options: WriterOptions) -> Result<Self> {
        let storage = Arc::new(OsStorage::new(options.log.group));
        Self::begin(storage, dir, &options, IndexLogs::Rebuild)
    }

    fn begin(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: &WriterOptions,
        index_logs: IndexLogs,
    ) -> Result<Self> {
        let open = || Opening::open_with(Arc::clone(&storage), dir, &options.log);
        loop {
            match (
                Self::recover(open()?, options, index_logs),
                options.when_full,
            ) {
                (Err(error), WhenFull::Evict { kept_from }) if error.is_for_space() => {
                    if !boundary::evict_oldest(open()?, kept_from)? {
                        return Err(error);
                    }
                    tracing::warn!("{error}; the oldest segment was evicted to make room");
                }
                (result, _) => return result,
            }
        }
    }
}
