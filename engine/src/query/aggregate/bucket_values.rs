//! Accumulates values by time bucket: count, sum, extremes, and if asked for, counts by bin.
//!
//! Values come one by one from records, or many at once from nodes that lie in one bucket.

use std::collections::BTreeMap;

use super::bucket::Bucket;
use crate::error::{Error, Result};
use crate::format::RangeTotals;
use crate::proven::{at, at_mut};
use crate::schema::BinMap;
use crate::types::{Key, Sum, TimeRange, Timestamp, ValueKind, ValueRange};

/// More buckets than this are refused: their rows alone would take a gigabyte.
pub(crate) const BUCKETS_MOST: usize = 1 << 22;

pub(crate) fn too_many_buckets() -> Error {
    Error::Query(format!(
        "more than {BUCKETS_MOST} buckets hold values; give a wider bucket or a shorter time"
    ))
}

/// Count, sum and extremes of some values of one index.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Totals {
    pub count: u64,
    pub sum: Sum,
    /// Least and greatest; empty if there is no value.
    pub range: ValueRange,
}

impl Totals {
    pub fn zero(kind: ValueKind) -> Totals {
        Totals {
            count: 0,
            sum: Sum::zero(kind),
            range: ValueRange::EMPTY,
        }
    }

    /// The totals of integers that are stored as distances from the key `first`.
    pub fn behind(kind: ValueKind, first: Key, totals: &RangeTotals) -> Totals {
        if totals.count == 0 {
            return Totals::zero(kind);
        }
        let mut sum = Sum::of_keys(kind, &[first]);
        if let Sum::Int(first) = &mut sum {
            *first = *first * i128::from(totals.count) + totals.sum as i128;
        }
        Totals {
            count: totals.count,
            sum,
            range: ValueRange {
                min: Key(first.0 + totals.least),
                max: Key(first.0 + totals.greatest),
            },
        }
    }

    #[inline]
    pub fn add_key(&mut self, kind: ValueKind, key: Key) {
        self.count += 1;
        self.sum.add_key(kind, key);
        self.range.min = self.range.min.min(key);
        self.range.max = self.range.max.max(key);
    }

    /// As `add_key`, for many keys.
    fn add_keys(&mut self, kind: ValueKind, keys: &[Key]) {
        if kind == ValueKind::Float {
            return keys.iter().for_each(|key| self.add_key(kind, *key));
        }
        self.count += keys.len() as u64;
        self.sum.merge(&Sum::of_keys(kind, keys));
        self.range.min = keys.iter().copied().fold(self.range.min, Key::min);
        self.range.max = keys.iter().copied().fold(self.range.max, Key::max);
    }

    /// Adds the totals that a node gives. Returns false if they are of another kind of value.
    pub fn add(&mut self, other: &Totals) -> bool {
        let same = matches!(
            (&self.sum, &other.sum),
            (Sum::Int(_), Sum::Int(_)) | (Sum::Float { .. }, Sum::Float { .. })
        );
        if same {
            self.count = self.count.saturating_add(other.count);
            self.sum.merge(&other.sum);
            self.range.min = self.range.min.min(other.range.min);
            self.range.max = self.range.max.max(other.range.max);
        }
        same
    }
}

/// The values of one bucket.
pub(crate) struct BucketValues {
    pub time: TimeRange,
    pub totals: Totals,
    /// Counts by bin; empty if they are not asked for.
    pub bins: Vec<u64>,
    /// Count, sum and extremes by bin; empty if they are not asked for.
    pub bin_totals: Vec<Totals>,
}

/// The details that are kept for each bin, besides the totals.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum BinDetail {
    Nothing,
    /// The number of values.
    Bins,
    /// The number of values, their sums and extremes.
    BinTotals,
}

impl BinDetail {
    /// Memory that a bin of a bucket takes.
    pub fn bin_bytes(self) -> usize {
        match self {
            BinDetail::Nothing => 1,
            BinDetail::Bins => size_of::<u64>(),
            BinDetail::BinTotals => size_of::<Totals>(),
        }
    }
}

impl BucketValues {
    /// Adds what a node gives for a bin. Returns false if the index has no such bin or the sum is of another kind of value.
    pub fn add_bin_totals(&mut self, bin: u16, totals: &Totals) -> bool {
        let known = self.bin_totals.get_mut(usize::from(bin));
        known.is_some_and(|sum| sum.add(totals))
    }

    /// Adds the count that a node gives for a bin. Returns false if the index has no such bin.
    pub fn add_bin(&mut self, bin: u16, count: u64) -> bool {
        let known = self.bins.get_mut(usize::from(bin));
        known.is_some_and(|sum| {
            *sum = sum.saturating_add(count);
            true
        })
    }
}

pub(crate) struct ValuesByBucket {
    bucket: Option<Bucket>,
    kind: ValueKind,
    bin_count: usize,
    detail: BinDetail,
    buckets: Vec<BucketValues>,
    by_start: BTreeMap<Timestamp, usize>,
    latest: usize,
}

impl ValuesByBucket {
    pub fn new(bucket: Option<Bucket>, bins: &BinMap, detail: BinDetail) -> ValuesByBucket {
        let blank = ValuesByBucket {
            bucket,
            kind: bins.kind(),
            bin_count: bins.len(),
            detail,
            buckets: Vec::new(),
            by_start: BTreeMap::new(),
            latest: 0,
        };
        blank.fork()
    }

    /// An empty set with the same buckets and bins.
    pub fn fork(&self) -> ValuesByBucket {
        let mut values = ValuesByBucket {
            buckets: Vec::new(),
            by_start: BTreeMap::new(),
            latest: 0,
            ..*self
        };
        if values.bucket.is_none() {
            values.push(TimeRange::ALL);
        }
        values
    }

    /// Adds the values of another set with the same buckets and bins.
    ///
    /// # Errors
    /// There are more buckets than one answer may have.
    pub fn absorb(&mut self, other: ValuesByBucket) -> Result<()> {
        for part in other.buckets {
            let bucket = self.bucket_at(part.time.first)?;
            let is_same_kind = bucket.totals.add(&part.totals);
            assert!(is_same_kind, "{:?} of a fork", part.totals.sum);
            for (sum, count) in bucket.bins.iter_mut().zip(part.bins) {
                *sum = sum.saturating_add(count);
            }
            for (sum, totals) in bucket.bin_totals.iter_mut().zip(&part.bin_totals) {
                sum.add(totals);
            }
        }
        Ok(())
    }

    pub fn detail(&self) -> BinDetail {
        self.detail
    }

    /// Whether all times of `times`, which must not be empty, fall in one bucket.
    pub fn is_one_bucket(&self, times: TimeRange) -> bool {
        match self.bucket {
            None => true,
            Some(bucket) => bucket.range_of(times.first).covers(times),
        }
    }

    /// The bucket that holds `ts`.
    ///
    /// # Errors
    /// There are more buckets than one answer may have.
    #[inline]
    pub fn bucket_at(&mut self, ts: Timestamp) -> Result<&mut BucketValues> {
        let holds = |bucket: &BucketValues| bucket.time.contains(ts);
        if !self.buckets.get(self.latest).is_some_and(holds) {
            self.latest = self.find(ts)?;
        }
        Ok(at_mut(&mut self.buckets, self.latest))
    }

    /// Adds one value.
    #[inline]
    pub fn add_key(&mut self, ts: Timestamp, key: Key, bins: &BinMap) -> Result<()> {
        let (kind, detail) = (self.kind, self.detail);
        let bucket = self.bucket_at(ts)?;
        bucket.totals.add_key(kind, key);
        match detail {
            BinDetail::Nothing => {}
            BinDetail::Bins => *at_mut(&mut bucket.bins, usize::from(bins.bin(key))) += 1,
            BinDetail::BinTotals => {
                let bin = usize::from(bins.bin(key));
                at_mut(&mut bucket.bin_totals, bin).add_key(kind, key);
            }
        }
        Ok(())
    }

    /// Adds values that are all of one bucket.
    pub fn add_keys(&mut self, ts: Timestamp, keys: &[Key], bins: &BinMap) -> Result<()> {
        let (kind, detail) = (self.kind, self.detail);
        let bucket = self.bucket_at(ts)?;
        bucket.totals.add_keys(kind, keys);
        match detail {
            BinDetail::Nothing => {}
            BinDetail::Bins => keys
                .iter()
                .for_each(|key| *at_mut(&mut bucket.bins, usize::from(bins.bin(*key))) += 1),
            BinDetail::BinTotals => keys.iter().for_each(|key| {
                let bin = usize::from(bins.bin(*key));
                at_mut(&mut bucket.bin_totals, bin).add_key(kind, *key);
            }),
        }
        Ok(())
    }

    /// The buckets that hold a value, by time.
    pub fn into_buckets(mut self) -> Vec<BucketValues> {
        self.buckets
            .sort_unstable_by_key(|bucket| bucket.time.first);
        if self.bucket.is_some() {
            self.buckets.retain(|bucket| bucket.totals.count > 0);
        }
        self.buckets
    }

    #[cold]
    fn find(&mut self, ts: Timestamp) -> Result<usize> {
        let before = self.by_start.range(..=ts).next_back();
        if let Some((_, &nearest)) = before
            && at(&self.buckets, nearest).time.contains(ts)
        {
            return Ok(nearest);
        }
        if self.buckets.len() == BUCKETS_MOST {
            return Err(too_many_buckets());
        }
        let time = match self.bucket {
            Some(bucket) => bucket.range_of(ts),
            None => TimeRange::ALL,
        };
        Ok(self.push(time))
    }

    fn push(&mut self, time: TimeRange) -> usize {
        let at = self.buckets.len();
        self.buckets.push(BucketValues {
            time,
            totals: Totals::zero(self.kind),
            bins: match self.detail {
                BinDetail::Bins => vec![0; self.bin_count],
                _ => Vec::new(),
            },
            bin_totals: match self.detail {
                BinDetail::BinTotals => vec![Totals::zero(self.kind); self.bin_count],
                _ => Vec::new(),
            },
        });
        self.by_start.insert(time.first, at);
        at
    }
}
