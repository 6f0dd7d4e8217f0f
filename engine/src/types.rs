//! The quantities and names that every other module uses: addresses, ids, times, keys and sums.
//!
//! Each is a type of its own, so no signature holds a pair of bare integers. Keys have the order of their values (FORMAT.md, *Keys*), so all pruning compares
//! plain `u64`s.

use std::fmt;
use std::ops::{Add, AddAssign, Index, IndexMut};

use serde::{Deserialize, Serialize};

/// The catalog's file in a directory.
pub const CATALOG_NAME: &str = "catalog";
/// The folder of look-ups in a directory. Each is named by the first address of its units.
pub const LOOKUPS_NAME: &str = "lookups";
/// The built-in source of losses.
pub const LOSSES_SOURCE: &str = "loom_losses";
/// The built-in source of a daemon's metrics.
pub const METRICS_SOURCE: &str = "loom_metrics";
/// The built-in source of alerts.
pub const ALERTS_SOURCE: &str = "loom_alerts";
/// The built-in source of the progress of rules.
pub const RULES_SOURCE: &str = "loom_rules";
/// The states of alerts: all labels of the field `state` of `loom_alerts`, by their numbers from 1.
pub const ALERT_STATES: [&str; 9] = [
    "firing",
    "resolved",
    "failed",
    "acted",
    "action failed",
    "pinned",
    "pin failed",
    "pinning",
    "clock stepped",
];
/// The states of rules: all labels of the field `state` of `loom_rules`, by their numbers from 0.
pub const RULE_STATES: [&str; 3] = ["normal", "pending", "firing"];

/// A byte position in a log, counted from 0 and never reused.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Address(pub u64);

impl Address {
    pub const ZERO: Address = Address(0);
    /// This lies above every byte that a log can hold.
    pub const MAX: Address = Address(u64::MAX);

    /// The chunk that holds this byte of the record log.
    pub const fn chunk(self, chunk_bytes: u32) -> ChunkNo {
        ChunkNo(self.0 / chunk_bytes as u64)
    }

    /// The greatest multiple of `unit_bytes` at or below this address.
    pub const fn align_down(self, unit_bytes: u64) -> Address {
        Address(self.0 - self.0 % unit_bytes)
    }

    /// The least multiple of `unit_bytes` at or above this address.
    pub const fn align_up(self, unit_bytes: u64) -> Address {
        Address(self.0.next_multiple_of(unit_bytes))
    }
}

impl Add<u64> for Address {
    type Output = Address;

    fn add(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

impl AddAssign<u64> for Address {
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The ordinal of a chunk of the record log: its address divided by the chunk size.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ChunkNo(pub u64);

impl ChunkNo {
    /// The address of the chunk's first byte. It saturates, because ordinals may come from foreign bytes.
    pub const fn address(self, chunk_bytes: u32) -> Address {
        Address(self.0.saturating_mul(chunk_bytes as u64))
    }

    /// The end of the consecutive chunks that begin with this one and continue in `following`.
    pub fn row_end(self, following: impl Iterator<Item = ChunkNo>) -> ChunkNo {
        let expected = self.0.saturating_add(1);
        let follow = following.zip(expected..);
        let length = follow
            .take_while(|(next, expected)| next.0 == *expected)
            .count();
        ChunkNo(expected.saturating_add(length as u64))
    }
}

impl fmt::Display for ChunkNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a source, from 1; 0 is filler in the record log. Never reused.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u16);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an index, unique in its directory and never reused.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexId(pub u32);

impl fmt::Display for IndexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Nanoseconds since the Unix epoch.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    pub const MAX: Timestamp = Timestamp(i64::MAX);
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A span of time, **closed** at both ends; empty where `first > last`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TimeRange {
    pub first: Timestamp,
    pub last: Timestamp,
}

impl TimeRange {
    pub const ALL: TimeRange = TimeRange {
        first: Timestamp::MIN,
        last: Timestamp::MAX,
    };
    pub const EMPTY: TimeRange = TimeRange {
        first: Timestamp::MAX,
        last: Timestamp::MIN,
    };

    /// The closed range that holds the same times as the half-open `[from, to)`.
    pub const fn half_open(from: Timestamp, to: Timestamp) -> TimeRange {
        match to.0.checked_sub(1) {
            Some(last) => TimeRange {
                first: from,
                last: Timestamp(last),
            },
            None => TimeRange::EMPTY,
        }
    }

    /// The first time after it; `None` if there is none.
    pub const fn end(self) -> Timestamp {
        Timestamp(self.last.0.saturating_add(1))
    }

    pub const fn is_empty(self) -> bool {
        self.first.0 > self.last.0
    }

    #[inline]
    pub const fn contains(self, time: Timestamp) -> bool {
        self.first.0 <= time.0 && time.0 <= self.last.0
    }

    pub const fn covers(self, other: TimeRange) -> bool {
        other.is_empty() || (self.first.0 <= other.first.0 && other.last.0 <= self.last.0)
    }

    pub fn overlaps(self, other: TimeRange) -> bool {
        !self.intersect(other).is_empty()
    }

    pub fn intersect(self, other: TimeRange) -> TimeRange {
        TimeRange {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        }
    }
}

/// An index value as a number whose order is the value's order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u64);

/// The sign bit of an `i64` or `f64`.
const SIGN: u64 = 1 << 63;
/// Every NaN becomes this one: quiet and positive.
const NAN_BITS: u64 = 0x7FF8_0000_0000_0000;

impl Key {
    /// At or below every key.
    pub const MIN: Key = Key(0);
    /// At or above every key.
    pub const MAX: Key = Key(u64::MAX);

    #[inline]
    pub const fn from_u64(value: u64) -> Key {
        Key(value)
    }

    #[inline]
    pub const fn from_i64(value: i64) -> Key {
        Key(value as u64 ^ SIGN)
    }

    /// -0.0 becomes 0.0, and every NaN becomes the greatest key of a float.
    #[inline]
    pub const fn from_f64(value: f64) -> Key {
        let bits = if value.is_nan() {
            NAN_BITS
        } else if value == 0.0 {
            0
        } else {
            value.to_bits()
        };
        Key(if bits & SIGN == 0 { bits | SIGN } else { !bits })
    }

    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn to_i64(self) -> i64 {
        (self.0 ^ SIGN) as i64
    }

    #[inline]
    pub const fn to_f64(self) -> f64 {
        f64::from_bits(if self.0 & SIGN == 0 {
            !self.0
        } else {
            self.0 ^ SIGN
        })
    }
}

/// A range of keys, **closed** at both ends; empty where `min > max`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueRange {
    pub min: Key,
    pub max: Key,
}

impl ValueRange {
    pub const ALL: ValueRange = ValueRange {
        min: Key::MIN,
        max: Key::MAX,
    };
    pub const EMPTY: ValueRange = ValueRange {
        min: Key::MAX,
        max: Key::MIN,
    };

    pub const fn is_empty(self) -> bool {
        self.min.0 > self.max.0
    }

    #[inline]
    pub const fn contains(self, key: Key) -> bool {
        self.min.0 <= key.0 && key.0 <= self.max.0
    }

    pub const fn covers(self, other: ValueRange) -> bool {
        other.is_empty() || (self.min.0 <= other.min.0 && other.max.0 <= self.max.0)
    }

    pub fn overlaps(self, other: ValueRange) -> bool {
        !self.intersect(other).is_empty()
    }

    pub fn intersect(self, other: ValueRange) -> ValueRange {
        ValueRange {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        }
    }
}

/// One of the three hybrid logs of a directory.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LogKind {
    Records = 0,
    /// The chunk index: summaries and roll-ups.
    Chunks = 1,
    /// The timestamp index: one entry for each node.
    Times = 2,
}

impl LogKind {
    /// All three, in the order in which they are published.
    pub const ALL: [LogKind; 3] = [LogKind::Records, LogKind::Chunks, LogKind::Times];

    /// Its folder in a Loom directory.
    pub const fn dir_name(self) -> &'static str {
        match self {
            LogKind::Records => "records",
            LogKind::Chunks => "chunks",
            LogKind::Times => "times",
        }
    }
}

impl fmt::Display for LogKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogKind::Records => "record log",
            LogKind::Chunks => "chunk index",
            LogKind::Times => "timestamp index",
        })
    }
}

/// One `T` for each of the three logs; in JSON a list of three.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(
    from = "[T; 3]",
    into = "[T; 3]",
    bound = "T: Clone + Serialize + serde::de::DeserializeOwned"
)]
pub struct PerLog<T> {
    pub records: T,
    pub chunks: T,
    pub times: T,
}

impl<T> PerLog<T> {
    /// Calls `make` for each log, in the order of publication.
    pub fn new(make: impl FnMut(LogKind) -> T) -> PerLog<T> {
        LogKind::ALL.map(make).into()
    }

    /// As `new`, up to the first error.
    pub fn try_new<E>(mut make: impl FnMut(LogKind) -> Result<T, E>) -> Result<PerLog<T>, E> {
        Ok(PerLog {
            records: make(LogKind::Records)?,
            chunks: make(LogKind::Chunks)?,
            times: make(LogKind::Times)?,
        })
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> PerLog<U> {
        <[T; 3]>::from(self).map(f).into()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.records, &self.chunks, &self.times].into_iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        [&mut self.records, &mut self.chunks, &mut self.times].into_iter()
    }
}

impl<T> From<[T; 3]> for PerLog<T> {
    fn from([records, chunks, times]: [T; 3]) -> PerLog<T> {
        PerLog {
            records,
            chunks,
            times,
        }
    }
}

impl<T> From<PerLog<T>> for [T; 3] {
    fn from(each: PerLog<T>) -> [T; 3] {
        [each.records, each.chunks, each.times]
    }
}

impl<T> IntoIterator for PerLog<T> {
    type Item = T;
    type IntoIter = std::array::IntoIter<T, 3>;

    fn into_iter(self) -> Self::IntoIter {
        <[T; 3]>::from(self).into_iter()
    }
}

impl<T> Index<LogKind> for PerLog<T> {
    type Output = T;

    #[inline]
    fn index(&self, log: LogKind) -> &T {
        match log {
            LogKind::Records => &self.records,
            LogKind::Chunks => &self.chunks,
            LogKind::Times => &self.times,
        }
    }
}

impl<T> IndexMut<LogKind> for PerLog<T> {
    #[inline]
    fn index_mut(&mut self, log: LogKind) -> &mut T {
        match log {
            LogKind::Records => &mut self.records,
            LogKind::Chunks => &mut self.chunks,
            LogKind::Times => &mut self.times,
        }
    }
}

/// The type of an index's values, which decides the decoding of keys and the arithmetic of sums.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    Unsigned,
    Signed,
    Float,
}

/// A sum of index values: exact for integers, compensated (Neumaier) for floats.
///
/// Infinities and NaN add as in IEEE 754 and DuckDB: the compensation counts only while the sum is finite.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Sum {
    Int(i128),
    Float { sum: f64, compensation: f64 },
}

impl Sum {
    pub const fn zero(kind: ValueKind) -> Sum {
        match kind {
            ValueKind::Unsigned | ValueKind::Signed => Sum::Int(0),
            ValueKind::Float => Sum::Float {
                sum: 0.0,
                compensation: 0.0,
            },
        }
    }

    pub const fn zero_alike(&self) -> Sum {
        match self {
            Sum::Int(_) => Sum::zero(ValueKind::Signed),
            Sum::Float { .. } => Sum::zero(ValueKind::Float),
        }
    }

    #[inline]
    pub fn add_key(&mut self, kind: ValueKind, key: Key) {
        match kind {
            ValueKind::Unsigned => self.add_int(i128::from(key.to_u64())),
            ValueKind::Signed => self.add_int(i128::from(key.to_i64())),
            ValueKind::Float => self.add_float(key.to_f64()),
        }
    }

    /// The sum of fewer than 2^32 keys of one kind, as `add_key` computes it one by one.
    pub fn of_keys(kind: ValueKind, keys: &[Key]) -> Sum {
        match kind {
            ValueKind::Unsigned => Sum::Int(total(keys)),
            // A key is the value plus 2^63.
            ValueKind::Signed => Sum::Int(total(keys) - ((keys.len() as i128) << 63)),
            ValueKind::Float => {
                let mut sum = Sum::zero(kind);
                keys.iter().for_each(|key| sum.add_float(key.to_f64()));
                sum
            }
        }
    }

    /// Adds a sum of the same kind. Sums in foreign bytes may exceed 128 bits; these wrap.
    #[inline]
    pub fn merge(&mut self, other: &Sum) {
        match *other {
            Sum::Int(value) => self.add_int(value),
            Sum::Float { sum, compensation } => {
                self.add_float(sum);
                self.add_float(compensation);
            }
        }
    }

    /// The value, rounded to the nearest float.
    pub fn to_f64(&self) -> f64 {
        match *self {
            Sum::Int(value) => value as f64,
            Sum::Float { sum, compensation } if sum.is_finite() => sum + compensation,
            // The sign of a NaN depends on the order of additions.
            Sum::Float { sum, .. } if sum.is_nan() => f64::NAN,
            Sum::Float { sum, .. } => sum,
        }
    }

    #[inline]
    fn add_int(&mut self, value: i128) {
        match self {
            Sum::Int(sum) => *sum = sum.wrapping_add(value),
            Sum::Float { .. } => self.add_float(value as f64),
        }
    }

    /// Adds a value to a sum of floats.
    ///
    /// # Panics
    /// Panics if the sum is of integers.
    #[inline]
    pub fn add_float(&mut self, value: f64) {
        let Sum::Float { sum, compensation } = self else {
            unreachable!("the float {value} is added to a sum of integers");
        };
        let total = *sum + value;
        if total.is_finite() {
            *compensation += if sum.abs() >= value.abs() {
                (*sum - total) + value
            } else {
                (value - total) + *sum
            };
        }
        *sum = total;
    }
}

/// The sum of the keys as numbers, half by half, so that no addition carries.
#[inline]
fn total(keys: &[Key]) -> i128 {
    let (lower, upper) = keys.iter().fold((0u64, 0u64), |(lower, upper), key| {
        (lower + (key.0 & 0xFFFF_FFFF), upper + (key.0 >> 32))
    });
    (i128::from(upper) << 32) + i128::from(lower)
}

/// Returns the first address of the units that a file is the look-up of; `None` for other names.
pub fn lookup_of_name(name: &str) -> Option<Address> {
    let is_number = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|_| is_number).map(Address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sum_of_many_is_that_of_one_by_one(keys in prop::collection::vec(prop_oneof![any::<u64>(), 0..9u64, u64::MAX - 3..], 0..40)) {
            let keys: Vec<Key> = keys.into_iter().map(Key).collect();
            for kind in [ValueKind::Unsigned, ValueKind::Signed] {
                let mut sum = Sum::zero(kind);
                keys.iter().for_each(|key| sum.add_key(kind, *key));
                prop_assert_eq!(Sum::of_keys(kind, &keys), sum);
            }
        }

        #[test]
        fn key_order_is_value_order_for_unsigned(a: u64, b: u64) {
            prop_assert_eq!(a.cmp(&b), Key::from_u64(a).cmp(&Key::from_u64(b)));
            prop_assert_eq!(Key::from_u64(a).to_u64(), a);
        }

        #[test]
        fn key_order_is_value_order_for_signed(a: i64, b: i64) {
            prop_assert_eq!(a.cmp(&b), Key::from_i64(a).cmp(&Key::from_i64(b)));
            prop_assert_eq!(Key::from_i64(a).to_i64(), a);
        }

        #[test]
        fn key_order_is_value_order_for_floats(a in prop::num::f64::ANY, b in prop::num::f64::ANY) {
            let (x, y) = (Key::from_f64(a), Key::from_f64(b));
            match a.partial_cmp(&b) {
                Some(order) => prop_assert_eq!(order, x.cmp(&y)),
                None => prop_assert_eq!(a.is_nan().cmp(&b.is_nan()), x.cmp(&y)),
            }
            prop_assert!(x.to_f64() == a || a.is_nan() && x.to_f64().is_nan());
        }

        #[test]
        fn a_float_sum_is_within_a_part_in_1e15_of_the_magnitudes(values in prop::collection::vec(-1e9f64..1e9, 0..200)) {
            let mut sum = Sum::zero(ValueKind::Float);
            let mut exact = 0i128;
            for value in &values {
                let whole = (value * 1024.0).trunc();
                exact += whole as i128;
                sum.add_key(ValueKind::Float, Key::from_f64(whole / 1024.0));
            }
            prop_assert_eq!(sum.to_f64(), exact as f64 / 1024.0);
        }
    }

    #[test]
    fn zeroes_are_one_key_and_nan_is_the_greatest() {
        assert_eq!(Key::from_f64(-0.0), Key::from_f64(0.0));
        assert_eq!(Key::from_f64(-f64::NAN), Key::from_f64(f64::NAN));
        assert!(Key::from_f64(f64::NAN) > Key::from_f64(f64::INFINITY));
        assert!(Key::from_f64(f64::NEG_INFINITY) > Key::MIN);
    }

    #[test]
    fn infinities_add_as_in_ieee_754() {
        let sum_of = |values: &[f64]| {
            let mut sum = Sum::zero(ValueKind::Float);
            values
                .iter()
                .for_each(|&value| sum.add_key(ValueKind::Float, Key::from_f64(value)));
            let mut merged = Sum::zero(ValueKind::Float);
            merged.merge(&sum);
            assert_eq!(merged.to_f64().to_bits(), sum.to_f64().to_bits());
            sum.to_f64()
        };
        assert_eq!(sum_of(&[1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert_eq!(sum_of(&[f64::NEG_INFINITY, 1e300, 1.0]), f64::NEG_INFINITY);
        assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(sum_of(&[f64::NAN, 1.0]).is_nan());
        assert_eq!(sum_of(&[1e16, 1.0, -1e16]), 1.0);
    }

    #[test]
    fn half_open_ranges_leave_out_their_end() {
        let range = TimeRange::half_open(Timestamp(5), Timestamp(7));
        assert!(range.contains(Timestamp(5)) && range.contains(Timestamp(6)));
        assert!(!range.contains(Timestamp(7)));
        assert!(TimeRange::half_open(Timestamp(5), Timestamp(5)).is_empty());
        assert!(TimeRange::half_open(Timestamp::MIN, Timestamp::MIN).is_empty());
    }

    #[test]
    fn ranges_cover_and_overlap() {
        let range = |first, last| TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        assert!(range(1, 9).covers(range(1, 9)) && !range(1, 9).covers(range(0, 9)));
        assert!(range(1, 9).covers(TimeRange::EMPTY) && !TimeRange::EMPTY.covers(range(1, 1)));
        assert!(range(1, 9).overlaps(range(9, 12)) && !range(1, 9).overlaps(range(10, 12)));
        assert!(!range(1, 9).overlaps(TimeRange::EMPTY));
        let keys = |min, max| ValueRange {
            min: Key(min),
            max: Key(max),
        };
        assert!(ValueRange::ALL.covers(keys(0, u64::MAX)) && keys(1, 9).overlaps(keys(9, 9)));
        assert!(ValueRange::EMPTY.is_empty() && !ValueRange::EMPTY.contains(Key(3)));
    }

    #[test]
    fn addresses_align_to_chunks() {
        assert_eq!(Address(65_537).chunk(65_536), ChunkNo(1));
        assert_eq!(ChunkNo(2).address(65_536), Address(131_072));
        assert_eq!(Address(65_537).align_up(65_536), Address(131_072));
        assert_eq!(Address(65_537).align_down(65_536), Address(65_536));
        assert_eq!(ChunkNo(u64::MAX).address(4096), Address::MAX);
    }
}
