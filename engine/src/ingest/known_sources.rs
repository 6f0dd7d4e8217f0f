//! Whether the catalog is the one that the records were written with.
//!
//! A definition is synced before any record of it is stored. So where the log holds a source and the catalog does not, the catalog lost lines, even if nothing says
//! how long it was; a writer that began with it would give the ids of lost sources to new ones.

use crate::error::{Error, Result};
use crate::format::{NodeSummary, RecordIter};
use crate::log::Opening;
use crate::schema::Catalog;
use crate::types::{ChunkNo, LogKind, SourceId};

/// Refuses a catalog without a source that one of the open roll-ups names: together they name all that is indexed.
pub fn require_indexed(opening: &Opening, catalog: &Catalog, open: &[NodeSummary]) -> Result<()> {
    open.iter()
        .flat_map(|rollup| rollup.sources.iter())
        .try_for_each(|summary| require(opening, catalog, summary.source))
}

/// Refuses a catalog without the source of a record in chunk `first` or above, where there is no index.
pub fn require_recorded(opening: &Opening, catalog: &Catalog, first: ChunkNo) -> Result<()> {
    let chunk_bytes = opening.meta().chunk_bytes;
    let mut chunk_no = first;
    while chunk_no.address(chunk_bytes) < opening.end(LogKind::Records) {
        // A damaged chunk is passed over later, and one with an entry that makes no sense, from there on.
        if let Some(chunk) = opening.sound_chunk(chunk_no.address(chunk_bytes))? {
            RecordIter::new(&chunk, chunk_bytes)
                .map_while(|record| record.ok())
                .try_for_each(|record| require(opening, catalog, record.source))?;
        }
        chunk_no = ChunkNo(chunk_no.0 + 1);
    }
    Ok(())
}

fn require(opening: &Opening, catalog: &Catalog, source: SourceId) -> Result<()> {
    match catalog.source(source) {
        Some(_) => Ok(()),
        None => {
            let what = format!("source {source} is missing, of which there are records");
            Err(Error::cut_catalog(opening.dir(), &what))
        }
    }
}
