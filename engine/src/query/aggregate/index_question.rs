//! A question that an aggregate or a histogram asks of one snapshot's index, prepared for its descents.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::query::predicate::{Predicate, Test};
use crate::query::scan::ask::Ask;
use crate::query::scan::source_reader::SourceReader;
use crate::query::scan::unit_pruning::UnitPruning;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::query::value::Value;
use crate::schema::{BinMap, RangeSet, Source, TimeKind};
use crate::types::{Address, ChunkNo, IndexId, Key, SourceId, TimeRange, ValueKind, ValueRange};

/// An index in one snapshot, and the records whose values are asked for.
#[derive(Copy, Clone)]
pub struct IndexAsked<'a> {
    pub snapshot: &'a Snapshot,
    pub source: SourceId,
    pub index: IndexId,
    pub filter: &'a Predicate,
}

/// The wanted values of one snapshot, and the bins by which they are counted.
pub(crate) struct IndexQuestion {
    pub logs: Arc<SnapshotLogs>,
    pub source: Arc<Source>,
    pub value: Arc<Value>,
    /// Only records that pass its test count.
    units: UnitPruning,
    pub keys: ValueRange,
    /// `keys` as a test of the field that holds the value, if it is an integer and not all keys are wanted. Packed integers are compared
    /// without unpacking.
    pub field_keys: Vec<(usize, RangeSet<Key>)>,
    /// Records below this address are ignored.
    pub after: Address,
    /// The bins by which values are counted: those of the first snapshot's index.
    pub bins: BinMap,
    /// Whether `bins` are also this snapshot's bins, so that its nodes hold counts by them.
    pub shares_bins: bool,
}

impl IndexQuestion {
    /// Prepares the same question for each snapshot.
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
                    "the index has different kinds of values in two directories; query them one by one"
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
            let filter = snapshot.test_of(source, filter)?;
            let (logs, source) = (snapshot.logs(), snapshot.source_by_id(source)?);
            questions.push(IndexQuestion {
                logs: Arc::clone(logs),
                units: UnitPruning::new(logs, &source, filter),
                source,
                shares_bins: bins == *value.bins(),
                bins,
                value,
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

    /// Only records that pass this filter count.
    pub fn filter(&self) -> &Test {
        self.units.test()
    }

    /// Whether no record in some chunks passes the filter, as far as that is known without their nodes. These answer filters of index values for less.
    pub fn is_outside(&self, chunks: Range<ChunkNo>) -> bool {
        self.filter().needs_records() && self.units.is_outside(chunks)
    }

    /// Whether only some records are wanted, so that each must be tested.
    pub fn is_filtered(&self) -> bool {
        !matches!(self.filter(), Test::All)
    }

    /// Reads the columns needed to find the wanted values, and the times if `shows_times`.
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
        SourceReader::new(&self.source, ask, self.filter().clone(), times, self.after)
    }

    /// The arrival times of all records that have a `ts` in `time`.
    pub fn arrivals(&self, time: TimeRange) -> TimeRange {
        match self.source.time {
            TimeKind::Arrival => time,
            TimeKind::Own => TimeRange::ALL,
        }
    }
}
