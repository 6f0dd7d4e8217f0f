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
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let reader = LogReader::open_with(Arc::clone(&storage), dir)?;
        let compaction = Compaction::of(&storage, reader.dir(), *reader.meta());
        Ok(Compactor { reader, compaction })
    }

    pub(crate) fn beside(reader: LogReader, compaction: Compaction) -> Compactor {
        Compactor { reader, compaction }
    }

    /// The end of the segments that are on stable storage whole.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn durable(&self) -> Result<Address> {
        let durable = self.reader.daemon()?.logs.records.durable;
        Ok(durable.align_down(self.reader.meta().segment_bytes.records))
    }

    /// The segments that [`step`](Self::step) has yet to rewrite.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn waiting(&self, below: Address) -> Result<Vec<Address>> {
        let begin = self.reader.tails()?.begin.records;
        self.compaction.candidates(begin, below)
    }

    /// Rewrites the oldest segment that ends at `below` or before and is rows. `None`: there is none. What lies at [`durable`](Self::durable) or above is
    /// never to be rewritten. It asks `is_wanted` every few milliseconds.
    ///
    /// # Errors
    /// Files that cannot be read or written; the rows stay.
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
