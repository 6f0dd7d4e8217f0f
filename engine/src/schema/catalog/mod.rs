//! The catalog: all sources and indexes that a directory ever had, and the events that created it.
//!
//! The writer requests a change; the catalog checks and applies it, and returns the events to append to the file. Readers replay the file.
//! Both use `apply`, so a replayed catalog equals the writer's. An id belongs to one name for ever. A rewritten catalog says the same in
//! fewer events about the records that the log retains, and omits the rest. A clone shares all data and is free; the first change after it
//! copies what is shared.

mod apply;
mod canonical;
mod change;
mod entry;
mod event;
mod line;
mod trial;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

pub use entry::Source;
pub use event::Event;
pub use line::{decode_catalog, decode_whole_catalog, encode_line};
use trial::Trials;

use super::index::Index;
use super::label_index::LabelIndex;
use super::names::hint;
use crate::error::{Error, Result};
use crate::format::Rewritten;
use crate::types::{
    ALERTS_SOURCE, Address, IndexId, LOSSES_SOURCE, METRICS_SOURCE, RULES_SOURCE, SourceId,
};

/// The most sources of a directory, closed and forgotten ones included.
pub const SOURCES_MAX: usize = 65_000;
/// The most indexes of a source, closed ones included.
const INDEXES_EVER_MAX: usize = 4096;
/// The most fields of all layouts and edges of all bins together, which limits the memory that a catalog can claim.
const PARTS_MAX: usize = 1 << 23;

/// The sources and indexes of a directory.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The source with id n is at position n - 1.
    sources: Arc<Vec<Arc<Source>>>,
    ids: Arc<HashMap<String, SourceId>>,
    /// The source of the index with id n is at position n - 1.
    index_sources: Arc<Vec<SourceId>>,
    rewritten: Rewritten,
    event_count: u64,
    latest_at: Address,
    parts: usize,
    trials: Trials,
    /// Built on first use; any event discards it.
    label_index: OnceLock<Arc<LabelIndex>>,
}

/// The error for a name that no source of these catalogs has.
pub fn unknown_source<'a>(catalogs: impl IntoIterator<Item = &'a Catalog>, name: &str) -> Error {
    let hint = match name {
        METRICS_SOURCE => {
            "a running daemon writes it, unless its [metrics] interval is \"0s\"".to_owned()
        }
        LOSSES_SOURCE => {
            "no loss has a record yet; the function loom_losses lists losses of every kind"
                .to_owned()
        }
        ALERTS_SOURCE | RULES_SOURCE => {
            "a daemon writes it once it has a rule; add one with 'ingestd rule add'".to_owned()
        }
        _ => {
            let sources = catalogs.into_iter().flat_map(Catalog::sources);
            let mut met = HashSet::new();
            let names = sources.map(|source| source.name.as_str());
            let known: Vec<&str> = names.filter(|name| met.insert(*name)).collect();
            hint(name, "sources", known.iter().copied())
        }
    };
    Error::UnknownSource {
        name: name.to_owned(),
        hint,
    }
}

impl Catalog {
    pub fn new() -> Catalog {
        Catalog::default()
    }

    /// An empty catalog, whose events follow the first line of a rewritten file.
    fn following(rewritten: Rewritten) -> Catalog {
        Catalog {
            event_count: match rewritten.lines {
                0 => 0,
                lines => lines + 1,
            },
            rewritten,
            ..Catalog::default()
        }
    }

    /// All sources, ascending by id, including closed ones but not forgotten ones.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> + Clone {
        self.sources.iter().filter(|source| !source.is_forgotten())
    }

    /// The source with an id, including forgotten ones, of which only the name is known.
    pub fn source(&self, id: SourceId) -> Option<&Arc<Source>> {
        self.sources.get(usize::from(id.0).checked_sub(1)?)
    }

    /// The source with a name, open or closed.
    pub fn find(&self, name: &str) -> Option<&Arc<Source>> {
        self.find_even_forgotten(name)
            .filter(|source| !source.is_forgotten())
    }

    /// The source with a name, open, closed or forgotten.
    pub fn find_even_forgotten(&self, name: &str) -> Option<&Arc<Source>> {
        self.source(*self.ids.get(name)?)
    }

    /// An index of any source, open or closed.
    pub fn index(&self, id: IndexId) -> Option<&Arc<Index>> {
        let position = usize::try_from(id.0).ok()?.checked_sub(1)?;
        let indexes = &self.source(*self.index_sources.get(position)?)?.indexes;
        indexes.get(indexes.binary_search_by_key(&id, |index| index.id).ok()?)
    }

    /// The fields that hold each time series.
    pub fn label_index(&self) -> &Arc<LabelIndex> {
        self.label_index
            .get_or_init(|| Arc::new(LabelIndex::of(self.sources())))
    }

    /// The error for an unknown source.
    pub fn unknown_source(&self, name: &str) -> Error {
        unknown_source([self], name)
    }

    /// The number of the file's next line: all events of this catalog and of those that it was rewritten from.
    pub fn event_count(&self) -> u64 {
        self.event_count
    }

    /// The bytes that the file ever held before its last rewriting.
    pub fn bytes_before(&self) -> u64 {
        self.rewritten.bytes
    }

    /// Records below this address are no longer described: their sources may be forgotten and their layouts gone.
    pub fn forgotten_below(&self) -> Address {
        self.rewritten.forgotten_below
    }

    /// The greatest `at` of all events. New records must lie at or above it, also after a crash that lost the records below.
    pub fn latest_at(&self) -> Address {
        self.latest_at
    }

    fn known(&self, id: SourceId) -> Result<&Arc<Source>> {
        self.source(id)
            .ok_or_else(|| Error::schema(format!("there is no source with the id {id}")))
    }

    fn known_open(&self, id: SourceId) -> Result<&Arc<Source>> {
        let source = self.known(id)?;
        if source.is_open() {
            return Ok(source);
        }
        Err(Error::SourceClosed {
            name: source.name.clone(),
        })
    }

    fn known_index(&self, id: IndexId) -> Result<&Arc<Index>> {
        self.index(id)
            .ok_or_else(|| Error::schema(format!("there is no index with the id {id}")))
    }
}

#[cfg(test)]
mod canonical_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial_tests;
