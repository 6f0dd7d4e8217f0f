//! The compactor: rewrites what is old of the record log as columns, with what the catalog says of the payloads.
//!
//! Whoever writes a directory runs it, on a thread of its own. It reads as every reader does, and waits for nobody.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::Template;
pub use crate::log::Compacted;
use crate::log::storage::{OsStorage, Storage};
use crate::log::{Compaction, LogReader};
use crate::schema::{Catalog, Pieces, decode_whole_catalog};
use crate::types::{Address, SourceId};

/// Works on one directory.
pub struct Compactor {
    reader: LogReader,
    compaction: Compaction,
}

impl Compactor {
    /// Of a directory that nobody writes; [`Writer::compactor`](crate::ingest::Writer::compactor) has one beside it.
    ///
    /// # Errors
    /// Not a Loom directory, or files that cannot be read.
    pub fn open(dir: &Path, storage: OsStorage) -> Result<Compactor> {
        Compactor::open_with(Arc::new(storage), dir)
    }

    pub(crate) fn open_with(storage: Arc<dyn Storage>, dir: &Path) -> Result<Compactor> {
        let reader = LogReader::open_with(Arc::clone(&storage), dir)?;
        let compaction = Compaction::of(&storage, reader.dir(), *reader.meta());
        Ok(Compactor { reader, compaction })
    }

    pub(crate) fn beside(reader: LogReader, compaction: Compaction) -> Compactor {
        Compactor { reader, compaction }
    }

    /// The end of the segments that are on stable storage and are written no more. Where the last writer has closed the directory, that is all of them.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn durable(&self) -> Result<Address> {
        let durable = self.reader.daemon()?.logs.records.durable;
        let segment_bytes = self.reader.meta().segment_bytes.records;
        Ok(match self.reader.is_closed()? {
            true => durable.align_up(segment_bytes),
            false => durable.align_down(segment_bytes),
        })
    }

    /// The segments that [`step`](Self::step) has yet to rewrite.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn waiting(&self, below: Address) -> Result<Vec<Address>> {
        let begin = self.reader.tails()?.begin.records;
        self.compaction.candidates(begin, below)
    }

    /// Writes the directories at the end of column segments again that are damaged. It opens each segment.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn mend(&self) -> Result<()> {
        self.compaction.mend()
    }

    /// Rewrites the oldest segment that ends at `below` or before and is rows. `None`: there is none. What lies at [`durable`](Self::durable) or above is
    /// never to be rewritten. It asks `is_wanted` every few milliseconds.
    ///
    /// # Errors
    /// The disk is full, or the catalog or the list of segments cannot be read.
    pub fn step(
        &mut self,
        below: Address,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<Compacted>> {
        let Some(&first) = self.waiting(below)?.first() else {
            return Ok(None);
        };
        let bytes = self.reader.catalog_bytes()?;
        let (dir, uuid) = (self.reader.dir(), &self.reader.meta().uuid);
        let least = self.reader.catalog_bytes_least()?;
        let (catalog, ..) = decode_whole_catalog(dir, uuid, &bytes, least)?;
        let compacted = self.compaction.compact(
            first,
            |source, chunk| template_of(&catalog, source, chunk),
            is_wanted,
        )?;
        Ok(Some(compacted))
    }
}

/// How a source's payloads are taken apart in the chunk at an address. Those of a source that nobody knows are any bytes.
fn template_of(catalog: &Catalog, source: SourceId, chunk: Address) -> Template {
    match catalog.source(source) {
        Some(known) => Pieces::of(source, known.layout_at(chunk)).into_template(),
        None => Template {
            source,
            pieces: Vec::new(),
            has_rest: true,
        },
    }
}
