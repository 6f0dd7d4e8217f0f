//! Checks that the catalog is the one that the records were written with.
//!
//! A definition is synced before any record of it is stored. So if the log holds a source that is missing from the catalog, and the
//! catalog's former length is unknown, the catalog lost lines. A writer that began with it would give the ids of lost sources to new ones.
//! If the catalog is as long as it was, the records were changed in staging, before they got a checksum.

use crate::error::{Error, Result};
use crate::format::{NodeSummary, RecordIter};
use crate::log::Opening;
use crate::schema::Catalog;
use crate::types::{ChunkNo, LogKind, SourceId};

/// Refuses a catalog without a source that an open roll-up names. Together the open roll-ups name every indexed source.
pub fn require_indexed(opening: &Opening, catalog: &Catalog, open: &[NodeSummary]) -> Result<()> {
    open.iter()
        .flat_map(|rollup| rollup.sources.iter())
        .try_for_each(|summary| require(opening, catalog, summary.source))
}

/// Refuses a catalog without the source of a record in chunk `first` or above, which has no index.
pub fn require_recorded(opening: &Opening, catalog: &Catalog, first: ChunkNo) -> Result<()> {
    let chunk_bytes = opening.meta().chunk_bytes;
    let mut chunk_no = first;
    while chunk_no.address(chunk_bytes) < opening.end(LogKind::Records) {
        // A damaged chunk is passed over later.
        if let Some(chunk) = opening.sound_chunk(chunk_no.address(chunk_bytes))?
            && let Some(source) = unknown_source(&chunk, chunk_bytes, catalog)
        {
            require(opening, catalog, source)?;
        }
        chunk_no = ChunkNo(chunk_no.0 + 1);
    }
    Ok(())
}

/// The first source of a chunk that the catalog does not define. Records behind an entry that makes no sense cannot be read.
pub fn unknown_source(chunk: &[u8], chunk_bytes: u32, catalog: &Catalog) -> Option<SourceId> {
    RecordIter::new(chunk, chunk_bytes)
        .map_while(|record| record.ok())
        .map(|record| record.source)
        .find(|source| catalog.source(*source).is_none())
}

fn require(opening: &Opening, catalog: &Catalog, source: SourceId) -> Result<()> {
    match catalog.source(source) {
        Some(_) => Ok(()),
        None => {
            let what = format!("source {source} is missing, and there are records of it");
            Err(Error::cut_catalog(opening.dir(), &what))
        }
    }
}
