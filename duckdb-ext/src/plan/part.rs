//! One directory's share of a call: its source at one instant, and the values of an index that were asked for.

use std::sync::Arc;

use loom_engine::query::{Predicate, Snapshot};
use loom_engine::schema::{Index, RangeSet, Source};
use loom_engine::{IndexId, Key, SourceId, ValueRange};

use crate::error::{Problem, Result};

/// The source in one directory, at one instant.
pub struct Part {
    /// The directory's path as text.
    pub dir: String,
    pub snapshot: Snapshot,
    pub source: Arc<Source>,
    pub chosen: Chosen,
}

/// What an operator over an index is asked of, one for each directory.
pub fn indexed(parts: &[Part]) -> Result<Vec<(&Snapshot, SourceId, IndexId)>> {
    let asked = parts.iter().map(|part| {
        let index = part.chosen.required_index()?.id;
        Ok((&part.snapshot, part.source.id, index))
    });
    asked.collect()
}

/// An index by name, and which of its values are asked for.
pub struct Chosen {
    pub index: Option<Arc<Index>>,
    /// None where no bound was given: then the rows need no value.
    pub keys: Option<RangeSet<Key>>,
}

impl Chosen {
    /// The rows within the bounds.
    pub fn predicate(&self) -> Predicate {
        match (&self.index, &self.keys) {
            (Some(index), Some(keys)) => Predicate::keys(index.id, keys.clone()),
            _ => Predicate::All,
        }
    }

    /// The bounds as one range.
    pub fn range(&self) -> ValueRange {
        match self.keys.as_ref().map(RangeSet::hull) {
            None => ValueRange::ALL,
            Some(None) => ValueRange::EMPTY,
            Some(Some((min, max))) => ValueRange { min, max },
        }
    }

    /// The index, which must have values; `else_do` says what to use where it has none.
    pub fn required_values(&self, else_do: &str) -> Result<&Arc<Index>> {
        let index = self.required_index()?;
        if index.value_field().is_none() {
            return Err(Problem::binder(format!(
                "index '{}' has no values, it only counts records; {else_do}",
                index.name
            )));
        }
        Ok(index)
    }

    pub fn required_index(&self) -> Result<&Arc<Index>> {
        self.index
            .as_ref()
            .ok_or_else(|| Problem::binder("index must be given, and must not be NULL"))
    }
}
