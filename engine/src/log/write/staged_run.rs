//! Consecutive bytes of an index log in one staged block, on their way into a segment.

use super::shared::Shared;
use crate::error::Result;
use crate::log::files::storage::{StorageFile, write_at};
use crate::types::{Address, LogKind};

/// Bytes below `appended` and not yet released.
#[derive(Copy, Clone, Debug)]
pub struct StagedRun {
    pub log: LogKind,
    pub at: Address,
    pub bytes: usize,
    /// Offset in its segment.
    pub offset: u64,
}

impl StagedRun {
    pub fn write(&self, shared: &Shared, file: &dyn StorageFile) -> Result<()> {
        // SAFETY: the range lies below `appended` and is not released before this run is written, so the writer stores nothing there.
        let staged = unsafe { shared.staging.stable_bytes(self.log, self.at, self.bytes) };
        write_at(file, staged, self.offset)
    }
}
