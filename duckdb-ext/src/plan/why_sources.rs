//! The rows of `loom_why` about the other sources: their rates and the quantiles of their values, in the window and before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom_engine::query::{
    AggregateSpec, Bucket, CountSpec, Poll, Predicate, Quantile, RecordCounts, Snapshot,
    aggregate_together,
};
use loom_engine::schema::{FieldType, Index, Source};
use loom_engine::{Key, TimeRange, ValueKind, ValueRange};

use super::part::Part;
use super::why_score::of_counts;
use crate::error::Result;

/// The windows that are compared.
#[derive(Copy, Clone)]
pub struct Windows {
    pub now: TimeRange,
    /// The one before it, and the length of each in seconds; `None` if the window has no end.
    pub before: Option<(TimeRange, f64)>,
}

/// A row about another source.
pub struct SourceRow {
    pub source: String,
    pub index: Option<String>,
    pub records: u64,
    pub records_before: Option<u64>,
    pub rate: Option<f64>,
    pub rate_before: Option<f64>,
    pub score: f64,
    /// The median and the 99th percentile.
    pub quantiles: [Option<f64>; 2],
    pub quantiles_before: [Option<f64>; 2],
}

type Held = (Snapshot, Arc<Source>);

/// A row for each other source of the directories, the greatest score first.
pub fn rows(
    parts: &[Part],
    windows: Windows,
    threads: usize,
    poll: &Poll<'_>,
) -> Result<Vec<SourceRow>> {
    let mut sources: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for part in parts {
        let others = part.snapshot.catalog().sources();
        for source in others.filter(|source| source.name != part.source.name) {
            let held = sources.entry(source.name.clone()).or_default();
            held.push((part.snapshot.clone(), Arc::clone(source)));
        }
    }
    let compared = sources.len() as f64;
    let mut rows = Vec::with_capacity(sources.len());
    for (name, held) in sources {
        let asked = Asked {
            held: &held,
            index: index_of(&held),
            threads,
            poll,
        };
        let records = asked.records(windows.now)?;
        let before = match windows.before {
            Some((before, seconds)) => Some((asked.records(before)?, before, seconds)),
            None => None,
        };
        rows.push(SourceRow {
            index: asked.index.map(|index| index.name.clone()),
            records,
            records_before: before.map(|(records, ..)| records),
            rate: before.map(|(_, _, seconds)| records as f64 / seconds),
            rate_before: before.map(|(before, _, seconds)| before as f64 / seconds),
            score: before.map_or(0.0, |(before, ..)| of_counts(records, before, compared)),
            quantiles: asked.quantiles(windows.now)?,
            quantiles_before: match before {
                Some((_, before, _)) => asked.quantiles(before)?,
                None => [None; 2],
            },
            source: name,
        });
    }
    rows.sort_by(|one, other| other.score.total_cmp(&one.score));
    Ok(rows)
}

/// The first index of numbers without a filter and without labels, if the directories agree on it.
fn index_of(held: &[Held]) -> Option<&Index> {
    let (_, first) = held.first()?;
    let is_plain = |index: &&Arc<Index>| {
        let value = first.value_of(index);
        let is_number =
            value.is_some_and(|field| field.labels.is_empty() && field.ty != FieldType::Bool);
        is_number && index.filter().is_none()
    };
    let index = first.indexes.iter().find(is_plain)?;
    let agrees = |(_, source): &Held| {
        let other = source.index(&index.name);
        other.is_some_and(|other| other.def.value == index.def.value && other.kind == index.kind)
    };
    held.iter().all(agrees).then_some(index)
}

/// Another source, in all directories that have it.
struct Asked<'a> {
    held: &'a [Held],
    index: Option<&'a Index>,
    threads: usize,
    poll: &'a Poll<'a>,
}

impl Asked<'_> {
    fn records(&self, time: TimeRange) -> Result<u64> {
        let asked = self.held.iter();
        let asked = asked.map(|(snapshot, source)| (snapshot, source.id, &Predicate::All));
        let spec = CountSpec {
            time,
            bucket: Bucket::nanos(i64::MAX),
            threads: self.threads,
        };
        let mut counts = RecordCounts::new(&asked.collect::<Vec<_>>(), spec)?;
        let mut records = 0;
        while let Some(rows) = counts.next(self.poll)? {
            records += rows.iter().map(|row| row.count).sum::<u64>();
        }
        Ok(records)
    }

    fn quantiles(&self, time: TimeRange) -> Result<[Option<f64>; 2]> {
        let Some(index) = self.index else {
            return Ok([None; 2]);
        };
        let quantiles = vec![Quantile::new(0.5)?, Quantile::new(0.99)?];
        let asked = self.held.iter().filter_map(|(snapshot, source)| {
            let spec = AggregateSpec {
                source: source.id,
                index: source.index(&index.name)?.id,
                time,
                value: ValueRange::ALL,
                filter: Predicate::All,
                bucket: None,
                quantiles: quantiles.clone(),
                approx: false,
                threads: self.threads,
            };
            Some((snapshot.clone(), spec))
        });
        let rows = aggregate_together(&asked.collect::<Vec<_>>(), self.poll)?;
        let number = |key: Key| match index.kind {
            ValueKind::Unsigned => key.to_u64() as f64,
            ValueKind::Signed => key.to_i64() as f64,
            ValueKind::Float => key.to_f64(),
        };
        let found = rows.first().map(|row| row.quantiles.as_slice());
        Ok(match found {
            Some([median, greatest]) => [median.map(number), greatest.map(number)],
            _ => [None; 2],
        })
    }
}
