//! The oracle: every record of the raw chunks, in log order, filtered and sorted the plainest way.

use std::path::Path;
use std::sync::Arc;

use crate::format::RecordIter;
use crate::log::LogReader;
use crate::query::{Bucket, Predicate};
use crate::schema::{Filter, Layout, decode_catalog};
use crate::types::{
    Address, IndexId, Key, LogKind, SourceId, Sum, TimeRange, Timestamp, ValueRange,
};

#[derive(Clone, Debug)]
pub struct Record {
    pub source: SourceId,
    pub arrival: Timestamp,
    pub ts: Timestamp,
    pub address: Address,
    pub payload: Vec<u8>,
    pub layout: Arc<Layout>,
    /// The record's key for each index of its source, covered or not.
    pub keys: Vec<(IndexId, Option<Key>)>,
}

impl Record {
    /// The first byte behind it.
    pub fn end(&self) -> Address {
        self.address + 8 + self.payload.len().next_multiple_of(8) as u64
    }

    /// The first field of a `metric`, behind one byte of null bits.
    pub fn kind(&self) -> u8 {
        self.payload[1]
    }

    pub fn key(&self, index: IndexId) -> Option<Key> {
        self.keys.iter().find(|(id, _)| *id == index)?.1
    }

    /// Whether it passes a filter, if there is one.
    pub fn passes(&self, filter: Option<&Filter>) -> bool {
        filter.is_none_or(|filter| filter.matches(&self.layout, &self.payload))
    }

    pub fn matches(&self, predicate: &Predicate) -> bool {
        match predicate {
            Predicate::All => true,
            Predicate::Nothing => false,
            Predicate::Time(times) => times.contains(self.ts),
            Predicate::Value(index, keys) => self.key(*index).is_some_and(|key| keys.contains(key)),
            Predicate::Fields(expr) => expr.matches(&self.layout, &self.payload),
            Predicate::And(sides) => sides.iter().all(|side| self.matches(side)),
            Predicate::Or(sides) => sides.iter().any(|side| self.matches(side)),
        }
    }
}

/// Every published record of a directory.
pub fn read_records(dir: &Path) -> Vec<Record> {
    let reader = LogReader::open(dir).unwrap();
    let tails = reader.tails().unwrap();
    let (catalog, _, _) =
        decode_catalog(&reader.meta().uuid, &reader.catalog_bytes().unwrap()).unwrap();
    let chunk_bytes = reader.meta().chunk_bytes;
    let mut records = Vec::new();
    let mut base = tails.begin.records;
    while base < tails.tail.records {
        let length = (tails.tail.records.0 - base.0).min(chunk_bytes.into());
        let mut bytes = vec![0; length as usize];
        reader.read(LogKind::Records, base, &mut bytes).unwrap();
        for raw in RecordIter::new(&bytes, chunk_bytes) {
            let raw = raw.unwrap();
            let source = catalog.source(raw.source).unwrap();
            let layout = source.layout_at(base);
            records.push(Record {
                source: raw.source,
                arrival: raw.arrival,
                ts: layout.own_time(raw.payload).unwrap_or(raw.arrival),
                address: base + u64::from(raw.offset),
                payload: raw.payload.to_vec(),
                layout: Arc::clone(layout),
                keys: source
                    .indexes
                    .iter()
                    .map(|index| (index.id, index.key(layout, raw.payload)))
                    .collect(),
            });
        }
        base += u64::from(chunk_bytes);
    }
    records
}

/// The aggregates of one bucket, naively.
#[derive(Clone, Debug)]
pub struct OracleRow {
    pub bucket: Option<Timestamp>,
    /// Ascending.
    pub keys: Vec<Key>,
}

impl OracleRow {
    /// `max(1, ceil(q n))` from the digits of q.
    pub fn quantile(&self, q: f64) -> Option<Key> {
        let text = format!("{q}");
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        let numerator: u128 = format!("{whole}{decimals}").parse().unwrap();
        let denominator = 10u128.pow(decimals.len() as u32);
        let rank = (numerator * self.keys.len() as u128)
            .div_ceil(denominator)
            .max(1);
        self.keys.get(rank as usize - 1).copied()
    }

    /// Sum of integers, exact.
    pub fn int_sum(&self, signed: bool) -> i128 {
        let value = |key: &Key| {
            if signed {
                i128::from(key.to_i64())
            } else {
                i128::from(key.to_u64())
            }
        };
        self.keys.iter().map(value).sum()
    }

    /// Whether a float sum is right, within 1e-12 of the sum of magnitudes.
    pub fn is_float_sum(&self, found: f64) -> bool {
        let values: Vec<f64> = self.keys.iter().map(|key| key.to_f64()).collect();
        let sum: f64 = values.iter().sum();
        let magnitudes: f64 = values.iter().map(|value| value.abs()).sum();
        if sum.is_finite() {
            (sum - found).abs() <= 1e-12 * magnitudes
        } else {
            sum == found || sum.is_nan() && found.is_nan()
        }
    }

    pub fn has_sum(&self, found: &Sum, signed: bool) -> bool {
        match found {
            Sum::Int(sum) => *sum == self.int_sum(signed),
            Sum::Float { .. } => self.is_float_sum(found.to_f64()),
        }
    }
}

/// The values of an index, by bucket.
pub fn aggregate<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    source: SourceId,
    index: IndexId,
    time: TimeRange,
    value: ValueRange,
    bucket: Option<Bucket>,
) -> Vec<OracleRow> {
    let mut values: Vec<(Option<Timestamp>, Key)> = records
        .into_iter()
        .filter(|record| record.source == source && time.contains(record.ts))
        .filter_map(|record| {
            let key = record.key(index).filter(|key| value.contains(*key))?;
            Some((bucket.map(|bucket| bucket.range_of(record.ts).first), key))
        })
        .collect();
    values.sort_unstable();
    if bucket.is_none() {
        let keys = values.into_iter().map(|(_, key)| key).collect();
        return vec![OracleRow { bucket: None, keys }];
    }
    values
        .chunk_by(|a, b| a.0 == b.0)
        .map(|group| OracleRow {
            bucket: group[0].0,
            keys: group.iter().map(|(_, key)| *key).collect(),
        })
        .collect()
}
