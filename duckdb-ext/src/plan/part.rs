//! The part of a call that concerns one directory: its source at one instant, and the requested values of an index.

use std::sync::{Arc, OnceLock};

use loom_engine::query::{
    AggregateSpec, Bucket, IndexAsked, Poll, Predicate, Quantile, Snapshot, SourceTotals,
};
use loom_engine::schema::{Index, RangeSet, Source};
use loom_engine::{Error, IndexId, Key, TimeRange, Timestamp, ValueRange};

use crate::error::{Problem, Result};

/// The source in one directory, at one instant.
pub struct Part {
    /// The directory's path as text.
    pub dir: String,
    pub snapshot: Snapshot,
    pub source: Arc<Source>,
    pub chosen: Chosen,
    totals: OnceLock<SourceTotals>,
}

impl Part {
    pub fn new(dir: String, snapshot: Snapshot, source: Arc<Source>, chosen: Chosen) -> Part {
        Part {
            dir,
            snapshot,
            source,
            chosen,
            totals: OnceLock::new(),
        }
    }

    /// The totals of the source. The first call computes them.
    pub fn totals(&self) -> Result<SourceTotals> {
        if let Some(totals) = self.totals.get() {
            return Ok(*totals);
        }
        let totals = self.snapshot.source_totals(self.source.id)?;
        Ok(*self.totals.get_or_init(|| totals))
    }

    /// Fails if records of the source are known to be missing in one of the spans.
    pub fn require_complete(&self, spans: &RangeSet<Timestamp>, poll: &Poll<'_>) -> Result<()> {
        for &(first, last) in spans.ranges() {
            let span = TimeRange { first, last };
            let complete = self.snapshot.require_complete(self.source.id, span, poll);
            complete.map_err(|error| match error {
                Error::Incomplete { .. } => Problem::input(format!("'{}': {error}", self.dir)),
                error => error.into(),
            })?;
        }
        Ok(())
    }

    /// The time of the newest record of the directory. For a source with its own times, which do not compare with arrivals, it is that of
    /// the source.
    pub fn newest(&self) -> Result<Option<Timestamp>> {
        match self.source.own_time() {
            true => Ok(self.totals()?.last_ts),
            false => Ok(self.snapshot.newest_ts()?),
        }
    }
}

/// The input of an operator over an index, one entry for each directory.
pub fn indexed(parts: &[Part]) -> Result<Vec<IndexAsked<'_>>> {
    let asked = parts.iter().map(|part| {
        Ok(IndexAsked {
            snapshot: &part.snapshot,
            source: part.source.id,
            index: part.chosen.required_index()?.id,
            filter: &part.chosen.filter,
        })
    });
    asked.collect()
}

/// The parameters of an aggregate that all directories share.
pub struct Aggregated<'a> {
    pub time: TimeRange,
    pub bucket: Option<Bucket>,
    pub quantiles: &'a [Quantile],
    pub approx: bool,
    pub threads: usize,
}

impl Aggregated<'_> {
    pub fn of(&self, parts: &[Part]) -> Result<Vec<(Snapshot, AggregateSpec)>> {
        let asked = parts.iter().map(|part| {
            let spec = AggregateSpec {
                source: part.source.id,
                index: part.chosen.required_index()?.id,
                time: self.time,
                value: part.chosen.range(),
                filter: part.chosen.filter.clone(),
                bucket: self.bucket,
                quantiles: self.quantiles.to_vec(),
                approx: self.approx,
                threads: self.threads,
            };
            Ok((part.snapshot.clone(), spec))
        });
        asked.collect()
    }
}

/// The requested records: by an index, by its values, and by a filter.
pub struct Chosen {
    pub index: Option<Arc<Index>>,
    /// `None` without bounds; then rows need no value.
    pub keys: Option<RangeSet<Key>>,
    pub filter: Predicate,
}

impl Chosen {
    /// The rows that lie within the bounds and match the filter.
    pub fn predicate(&self) -> Predicate {
        let within = match (&self.index, &self.keys) {
            (Some(index), Some(keys)) => Predicate::keys(index.id, keys.clone()),
            _ => Predicate::All,
        };
        Predicate::and([within, self.filter.clone()])
    }

    /// The index, if it has a filter, which then applies.
    pub fn index_filters(&self) -> Vec<IndexId> {
        let index = self.index.iter();
        let filtered = index.filter(|index| index.filter().is_some());
        filtered.map(|index| index.id).collect()
    }

    /// The bounds as one range.
    pub fn range(&self) -> ValueRange {
        match self.keys.as_ref().map(RangeSet::hull) {
            None => ValueRange::ALL,
            Some(None) => ValueRange::EMPTY,
            Some(Some((min, max))) => ValueRange { min, max },
        }
    }

    /// The index, which must have values; `else_do` is the advice in the error.
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
