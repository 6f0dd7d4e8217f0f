//! The rows of `loom_why` about the other sources: their rates and the quantiles of their values, in the window and before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom_engine::query::{
    AggregateSpec, Bucket, CountSpec, Poll, Predicate, Quantile, RecordCounts, Snapshot,
    aggregate_together,
};
use loom_engine::schema::{FieldType, Index, Source};
use loom_engine::{Key, TimeRange, Timestamp, ValueKind, ValueRange};

use super::part::Part;
use super::why_score::of_counts;
use crate::error::Result;

/// A window, and its length.
#[derive(Copy, Clone)]
pub struct Window {
    pub time: TimeRange,
    pub seconds: f64,
}

/// The windows that are compared.
#[derive(Copy, Clone)]
pub struct Windows {
    pub now: TimeRange,
    /// The one of the same length before it; `None` if the window has no end.
    pub before: Option<Window>,
}

impl Window {
    /// The part from the oldest record on; `None` if nothing of the window is there.
    fn recorded(self, oldest: Option<Timestamp>) -> Option<Window> {
        let TimeRange { first, last } = self.time;
        match oldest {
            Some(oldest) if oldest > last => None,
            Some(oldest) if oldest > first => Some(Window {
                time: TimeRange {
                    first: oldest,
                    last,
                },
                seconds: last.0.saturating_sub(oldest.0).saturating_add(1) as f64 / 1e9,
            }),
            _ => Some(self),
        }
    }
}

/// The time from which on all directories have records. Before it there may have been records that retention removed, or no daemon.
fn oldest(parts: &[Part]) -> Result<Option<Timestamp>> {
    let mut oldest = None;
    for part in parts {
        let totals = part.snapshot.totals()?;
        let of_part = totals.values().filter_map(|totals| totals.first_ts).min();
        oldest = oldest.max(of_part);
    }
    Ok(oldest)
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
    let recorded = match windows.before {
        Some(before) => before.recorded(oldest(parts)?),
        None => None,
    };
    let length = windows.before.map(|before| before.seconds);
    let mut rows = Vec::with_capacity(sources.len());
    for (name, held) in sources {
        let asked = Asked {
            held: &held,
            index: index_of(&held),
            threads,
            poll,
        };
        let records = asked.records(windows.now)?;
        let before = match recorded {
            Some(window) => Some((window, asked.records(window.time)?)),
            None => None,
        };
        let score = length.zip(before).map(|(length, (window, before))| {
            let share = length / (length + window.seconds);
            of_counts(records, before, share, compared)
        });
        rows.push(SourceRow {
            index: asked.index.map(|index| index.name.clone()),
            records,
            records_before: before.map(|(_, records)| records),
            rate: length.map(|seconds| records as f64 / seconds),
            rate_before: before.map(|(window, records)| records as f64 / window.seconds),
            score: score.unwrap_or(0.0),
            quantiles: asked.quantiles(windows.now)?,
            quantiles_before: match recorded {
                Some(window) => asked.quantiles(window.time)?,
                None => [None; 2],
            },
            source: name,
        });
    }
    rows.sort_by(|one, other| other.score.total_cmp(&one.score));
    Ok(rows)
}

/// The first index of numbers without labels, preferably one without a filter; `None` if the directories define it differently.
fn index_of(held: &[Held]) -> Option<&Index> {
    let (_, first) = held.first()?;
    let is_number = |index: &&Arc<Index>| {
        let value = first.value_of(index);
        value.is_some_and(|field| field.labels.is_empty() && field.ty != FieldType::Bool)
    };
    let mut indexes = first.indexes.iter().filter(is_number);
    let of_all = indexes.clone().find(|index| index.filter().is_none());
    let index = of_all.or_else(|| indexes.next())?;
    let agrees = |(_, source): &Held| {
        let other = source.index(&index.name);
        other.is_some_and(|other| {
            let of = |index: &Index| {
                (
                    index.def.value.clone(),
                    index.def.filter.clone(),
                    index.kind,
                )
            };
            of(other) == of(index)
        })
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
