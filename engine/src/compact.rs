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

pub struct Compactor {
    reader: LogReader,
    compaction: Compaction,
}

impl Compactor {
    /// Of a directory that this process writes, or that nobody does.
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

    /// How many segments `step` has yet to rewrite.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn waiting(&self) -> Result<u64> {
        let (begin, durable) = self.bounds()?;
        Ok(self.compaction.candidates(begin, durable)?.len() as u64)
    }

    /// What may be rewritten lies between the two.
    fn bounds(&self) -> Result<(Address, Address)> {
        let tails = self.reader.tails()?;
        let durable = self.reader.daemon()?.logs.records.durable;
        Ok((tails.begin.records, durable))
    }

    /// Rewrites the oldest segment that is durable to its end and is rows. `None`: there is none. It asks `is_wanted` every few milliseconds.
    ///
    /// # Errors
    /// Files that cannot be read or written; the rows stay.
    pub fn step(&mut self, is_wanted: impl Fn() -> bool) -> Result<Option<Compacted>> {
        let (begin, durable) = self.bounds()?;
        let Some(&first) = self.compaction.candidates(begin, durable)?.first() else {
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
