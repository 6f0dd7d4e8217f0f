//! What the descents of an aggregate or a histogram ask of one snapshot's index, prepared.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::query::predicate::{Predicate, Test};
use crate::query::scan::ask::Ask;
use crate::query::scan::source_reader::SourceReader;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::query::value::Value;
use crate::schema::{BinMap, RangeSet, Source, TimeKind};
use crate::types::{Address, IndexId, Key, SourceId, TimeRange, ValueKind, ValueRange};

/// An index in one snapshot, and the records whose values are asked for.
#[derive(Copy, Clone)]
pub struct IndexAsked<'a> {
    pub snapshot: &'a Snapshot,
    pub source: SourceId,
    pub index: IndexId,
    pub filter: &'a Predicate,
}

/// Which values of one snapshot are wanted, and how they are counted.
pub(crate) struct IndexQuestion {
    pub logs: Arc<SnapshotLogs>,
    pub source: Arc<Source>,
    pub value: Arc<Value>,
    /// Of the records that pass it.
    pub filter: Test,
    pub keys: ValueRange,
    /// The same of the field that is the value, if it is an integer and not all keys are wanted: packed numbers are compared as they are.
    pub field_keys: Vec<(usize, RangeSet<Key>)>,
    /// Records below it are not seen.
    pub after: Address,
    /// The bins that values are counted by: those of the first snapshot's index.
    pub bins: BinMap,
    /// Whether they are this snapshot's too, so that its nodes hold counts by bin.
    pub shares_bins: bool,
}

impl IndexQuestion {
    /// The same question to each snapshot.
    ///
    /// # Errors
    /// No snapshot, an unknown index, or indexes of several kinds of value.
    pub fn prepare(asked: &[IndexAsked<'_>], keys: ValueRange) -> Result<Vec<IndexQuestion>> {
        let mut questions: Vec<IndexQuestion> = Vec::with_capacity(asked.len());
        for &IndexAsked {
            snapshot,
            source,
            index,
            filter,
        } in asked
        {
            let value = snapshot.value_of(source, index)?;
            let bins = match questions.first() {
                None => value.bins().clone(),
                Some(first) => first.bins.clone(),
            };
            if bins.kind() != value.kind() {
                return Err(Error::Query(
                    "the index has another kind of value in each of two directories; query them one by one"
                        .to_owned(),
                ));
            }
            let is_whole = value.kind() != ValueKind::Float;
            let field_keys = match value.plain_field() {
                Some(field) if is_whole && keys != ValueRange::ALL => {
                    vec![(field, RangeSet::from(keys))]
                }
                _ => Vec::new(),
            };
            questions.push(IndexQuestion {
                logs: Arc::clone(snapshot.logs()),
                source: snapshot.source_by_id(source)?,
                shares_bins: bins == *value.bins(),
                bins,
                value,
                filter: snapshot.test_of(source, filter)?,
                keys,
                field_keys,
                after: Address::ZERO,
            });
        }
        if questions.is_empty() {
            return Err(Error::Query("there is nothing to aggregate".to_owned()));
        }
        Ok(questions)
    }

    /// Whether only some records are asked for, so that each must be looked at.
    pub fn is_filtered(&self) -> bool {
        !matches!(self.filter, Test::All)
    }

    /// Reads the records that may have wanted values, as far as it takes to find these; and their times, if they are wanted.
    pub fn rows(
        &self,
        times: TimeRange,
        shows_times: bool,
        keys: &[(usize, RangeSet<Key>)],
    ) -> SourceReader {
        let ask = Ask {
            times: shows_times,
            keys: keys.to_vec(),
            ..self.value.ask()
        };
        SourceReader::new(&self.source, ask, self.filter.clone(), times, self.after)
    }

    /// Arrival times outside which no record has a `ts` in `time`.
    pub fn arrivals(&self, time: TimeRange) -> TimeRange {
        match self.source.time {
            TimeKind::Arrival => time,
            TimeKind::Own => TimeRange::ALL,
        }
    }
}
