//! A snapshot: what a query reads up to, taken once (paper §4.5). Clones see the same.

use std::sync::Arc;

use super::counters::ScanStats;
use super::directory::Directory;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot_logs::SnapshotLogs;
use super::value::Value;
use crate::error::{Error, Result};
use crate::schema::{Catalog, Index, Source};
use crate::types::{Address, IndexId, LogKind, SourceId};

/// One instant of a directory: every record below its position, and none at or past it.
#[derive(Clone)]
pub struct Snapshot {
    directory: Arc<Directory>,
    catalog: Arc<Catalog>,
    logs: Arc<SnapshotLogs>,
}

impl Snapshot {
    pub(super) fn new(
        directory: Arc<Directory>,
        catalog: Arc<Catalog>,
        logs: SnapshotLogs,
    ) -> Snapshot {
        Snapshot {
            directory,
            catalog,
            logs: Arc::new(logs),
        }
    }

    /// The end of the record log as this snapshot sees it; the same position later gives the same records, while they are retained.
    pub fn position(&self) -> u64 {
        self.logs.position().0
    }

    /// Whether the position is one that a writer can have published: none lies inside a record.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn ends_between_records(&self) -> Result<bool> {
        let (logs, position) = (&self.logs, self.logs.position());
        let chunk = position.chunk(logs.chunk_bytes());
        if position == logs.tail(LogKind::Records) || position == chunk.address(logs.chunk_bytes())
        {
            return Ok(true);
        }
        let mut cursor = ChunkCursor::new(logs.counted_apart());
        cursor.load(chunk)?;
        Ok(position.0.is_multiple_of(8) && !cursor.cuts_a_record()?)
    }

    /// The lowest address retained when it was taken.
    pub fn begin(&self) -> Address {
        self.logs.begin(LogKind::Records)
    }

    pub fn chunk_bytes(&self) -> u32 {
        self.logs.chunk_bytes()
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// What this snapshot's operators did together; scans count apart.
    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    /// # Errors
    /// No source has this name; the nearest names are in the error.
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        match self.catalog.find(name) {
            Some(source) => Ok(Arc::clone(source)),
            None => Err(self.catalog.unknown_source(name)),
        }
    }

    /// # Errors
    /// No source has this id.
    pub fn source_by_id(&self, source: SourceId) -> Result<Arc<Source>> {
        match self.catalog.source(source) {
            Some(source) => Ok(Arc::clone(source)),
            None => Err(Error::Query(format!("there is no source with id {source}"))),
        }
    }

    /// # Errors
    /// No source has an index with this id.
    pub fn index(&self, index: IndexId) -> Result<Arc<Index>> {
        self.catalog
            .index(index)
            .cloned()
            .ok_or_else(|| Error::Query(format!("there is no index with id {index}")))
    }

    pub(super) fn index_of(&self, source: SourceId, index: IndexId) -> Result<Arc<Index>> {
        let index = self.index(index)?;
        if index.source == source {
            return Ok(index);
        }
        Err(Error::Query(format!(
            "index '{}' belongs to another source",
            index.name
        )))
    }

    /// What an index of the source computes.
    pub(super) fn value_of(&self, source: SourceId, index: IndexId) -> Result<Arc<Value>> {
        let index = self.index_of(source, index)?;
        let function = self.directory.function(index.id);
        if index.is_native() && function.is_none() {
            return Err(Error::Query(format!(
                "index '{}' is computed by a function of the program that defined it; give that function to the directory",
                index.name
            )));
        }
        Ok(Arc::new(Value::new(index, function)))
    }

    pub(super) fn logs(&self) -> &Arc<SnapshotLogs> {
        &self.logs
    }
}
