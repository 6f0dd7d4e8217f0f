//! What a filter says, resolved: each test names a field by number and holds keys or bytes.
//!
//! NOT is gone: it is pushed down to the tests, which stand for TRUE only. So a record matches in SQL's three-valued
//! logic exactly if it matches here in two-valued logic, where a test of a NULL does not hold.

use crate::types::{Key, ValueRange};

/// A comparison.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    /// The comparison with its sides exchanged.
    pub fn mirrored(self) -> Op {
        match self {
            Op::Lt => Op::Gt,
            Op::Le => Op::Ge,
            Op::Gt => Op::Lt,
            Op::Ge => Op::Le,
            Op::Eq | Op::Ne => self,
        }
    }

    /// The comparison that holds where this one does not.
    pub fn negated(self) -> Op {
        match self {
            Op::Eq => Op::Ne,
            Op::Ne => Op::Eq,
            Op::Lt => Op::Ge,
            Op::Le => Op::Gt,
            Op::Gt => Op::Le,
            Op::Ge => Op::Lt,
        }
    }

    /// Whether it holds of two things that compare so.
    #[inline]
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Op::Eq => order.is_eq(),
            Op::Ne => order.is_ne(),
            Op::Lt => order.is_lt(),
            Op::Le => order.is_le(),
            Op::Gt => order.is_gt(),
            Op::Ge => order.is_ge(),
        }
    }
}

/// A test of a record, true or not true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// The field is not NULL and its key lies in one of the ranges.
    Keys { field: usize, ranges: KeyRanges },
    /// The field, a `char` or `bytes`, is not NULL and compares so with the bytes. A `char` ends at its first NUL.
    Bytes {
        field: usize,
        op: Op,
        bytes: Vec<u8>,
    },
    /// The field is NULL, or is not NULL.
    Null { field: usize, is_null: bool },
    /// All hold; true of none.
    All(Vec<Expr>),
    /// At least one holds; false of none.
    Any(Vec<Expr>),
}

impl Expr {
    /// Whether it holds of every record of which so much is known: `known` gives the keys that a field can have where
    /// it is known not to be NULL.
    pub fn implied_by(&self, known: &impl Fn(usize) -> Option<KeyRanges>) -> bool {
        match self {
            Expr::Keys { field, ranges } => known(*field)
                .is_some_and(|keys| keys.ranges().iter().all(|&range| ranges.covers(range))),
            Expr::Bytes { .. } => false,
            Expr::Null { field, is_null } => !is_null && known(*field).is_some(),
            Expr::All(tests) => tests.iter().all(|test| test.implied_by(known)),
            Expr::Any(tests) => tests.iter().any(|test| test.implied_by(known)),
        }
    }

    /// The test that is TRUE where SQL's NOT of this one is. A NULL makes neither true.
    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Keys { field, ranges } => Expr::Keys {
                field,
                ranges: ranges.complement(),
            },
            Expr::Bytes { field, op, bytes } => Expr::Bytes {
                field,
                op: op.negated(),
                bytes,
            },
            Expr::Null { field, is_null } => Expr::Null {
                field,
                is_null: !is_null,
            },
            Expr::All(tests) => Expr::Any(tests.into_iter().map(Expr::negated).collect()),
            Expr::Any(tests) => Expr::All(tests.into_iter().map(Expr::negated).collect()),
        }
    }
}

/// A set of keys: closed ranges, ascending, that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyRanges(Vec<ValueRange>);

impl KeyRanges {
    /// The keys that lie in any of the ranges.
    pub fn union(ranges: impl IntoIterator<Item = ValueRange>) -> KeyRanges {
        let mut ranges: Vec<ValueRange> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.min);
        let mut merged: Vec<ValueRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.min.0 <= last.max.0.saturating_add(1) => {
                    last.max = last.max.max(range.max);
                }
                _ => merged.push(range),
            }
        }
        KeyRanges(merged)
    }

    /// The keys that lie in none of the ranges.
    pub fn complement(&self) -> KeyRanges {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(Key::MIN);
        for range in &self.0 {
            if let (Some(min), Some(max)) = (next, range.min.0.checked_sub(1)) {
                gaps.push(ValueRange { min, max: Key(max) });
            }
            next = range.max.0.checked_add(1).map(Key);
        }
        gaps.extend(next.map(|min| ValueRange { min, max: Key::MAX }));
        KeyRanges::union(gaps)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[ValueRange] {
        &self.0
    }

    /// Whether a key lies in one of the ranges.
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        if let [range] = self.0.as_slice() {
            return range.contains(key);
        }
        let after = self.0.partition_point(|range| range.max < key);
        self.0.get(after).is_some_and(|range| range.min <= key)
    }

    /// Whether all keys of a range lie in these.
    pub fn covers(&self, range: ValueRange) -> bool {
        range.is_empty() || self.0.iter().any(|own| own.covers(range))
    }
}
