//! Consecutive bytes of one log in one staged block, on their way into a segment.
//!
//! A chunk of the record log gets its trailer here: readers of staging ignore that place, so no published byte changes.

use super::shared::Shared;
use crate::error::Result;
use crate::format::{CHUNK_TRAILER_BYTES, seal_trailer};
use crate::log::files::storage::{StorageFile, write_at};
use crate::types::{Address, LogKind};

/// Bytes below `appended` and not yet released; of the record log whole chunks. Nobody else holds a run that overlaps.
#[derive(Copy, Clone, Debug)]
pub struct StagedRun {
    pub log: LogKind,
    pub at: Address,
    pub bytes: usize,
    /// Where it goes in its segment.
    pub offset: u64,
}

impl StagedRun {
    /// Seals the chunks, if there are any, and writes all of it.
    pub fn write(&self, shared: &Shared, file: &dyn StorageFile) -> Result<()> {
        if self.log == LogKind::Records {
            self.seal_chunks(shared);
        }
        // SAFETY: the range lies below `appended` and is not released before this run is written, so the writer stores nothing there; the trailers
        // were stored by this thread just before.
        let staged = unsafe { shared.staging.stable_bytes(self.log, self.at, self.bytes) };
        write_at(file, staged, self.offset)
    }

    fn seal_chunks(&self, shared: &Shared) {
        let chunk_bytes = shared.geometry.chunk_bytes;
        let mut chunk = self.at;
        while chunk < self.at + self.bytes as u64 {
            let trailer = {
                // SAFETY: as in `write`; the slice is gone before the trailer is stored.
                let staged = unsafe {
                    shared
                        .staging
                        .stable_bytes(self.log, chunk, chunk_bytes as usize)
                };
                seal_trailer(&shared.meta.uuid, chunk, staged)
            };
            let place = chunk + (chunk_bytes - CHUNK_TRAILER_BYTES as u64);
            shared.staging.copy_in(self.log, place, &trailer);
            chunk += chunk_bytes;
        }
    }
}
