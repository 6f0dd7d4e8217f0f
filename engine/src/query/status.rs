//! The state of a directory: whether its writer is alive, the positions of its logs, and their content.

use super::directory::Directory;
use crate::error::Result;
use crate::log::{DaemonWords, RecordSegments};
use crate::types::{Address, PerLog};

/// The state of a directory at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub uuid: [u8; 16],
    pub chunk_bytes: u32,
    /// The sizes of the segments of the three logs.
    pub segment_bytes: PerLog<u64>,
    /// Grows with each start of a writer.
    pub epoch: u64,
    /// The writer's report of itself, and the positions of each log.
    pub writer: DaemonWords,
    /// The sizes of the segments of the record log.
    pub record_segments: RecordSegments,
    /// The published end of the record log.
    pub position: Address,
    /// The lowest retained address of the record log.
    pub begin: Address,
    /// Chunks below the position.
    pub chunks: u64,
    pub summarised_chunks: u64,
    pub sources: u64,
    pub indexes: u64,
    /// Sources that take records.
    pub open_sources: u64,
    pub open_indexes: u64,
}

impl Directory {
    /// The bytes that the segments of all logs take on the disk, according to their files.
    ///
    /// # Errors
    /// The system refuses access to a file.
    pub fn segment_bytes(&self) -> Result<u64> {
        self.reader().segment_bytes()
    }

    /// # Errors
    /// As [`Directory::snapshot`].
    pub fn status(self: &std::sync::Arc<Self>) -> Result<Status> {
        let writer = self.reader().daemon()?;
        let snapshot = self.snapshot()?;
        let logs = snapshot.logs();
        let (mut sources, mut indexes, mut open_sources, mut open_indexes) = (0, 0, 0, 0);
        for source in snapshot.catalog().sources() {
            sources += 1;
            open_sources += u64::from(source.is_open());
            for index in source.indexes.iter().filter(|index| !index.is_native()) {
                indexes += 1;
                open_indexes += u64::from(index.is_open());
            }
        }
        Ok(Status {
            uuid: *logs.uuid(),
            chunk_bytes: logs.chunk_bytes(),
            segment_bytes: self.reader().meta().segment_bytes,
            epoch: logs.epoch(),
            writer,
            record_segments: self.reader().record_segments()?,
            position: logs.position(),
            begin: snapshot.begin(),
            chunks: logs.chunks(),
            summarised_chunks: logs.summarised_chunks().0
                - logs.first_chunk().0.min(logs.summarised_chunks().0),
            sources,
            indexes,
            open_sources,
            open_indexes,
        })
    }
}
