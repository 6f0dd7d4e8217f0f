//! Predicates put together in their simplest form, and lists of ranges kept short.

use std::collections::HashSet;

use loom_engine::ValueRange;
use loom_engine::query::Predicate;
use loom_engine::schema::KeyRanges;

/// A predicate over summaries is evaluated at each node: longer lists of ranges are joined where they lie closest.
pub const RANGES_MAX: usize = 256;

/// All of the parts; what is always true is left out.
pub fn and(parts: impl Iterator<Item = Predicate>) -> Predicate {
    let mut kept = Vec::new();
    for part in parts {
        match part {
            Predicate::All => {}
            Predicate::Nothing => return Predicate::Nothing,
            other => kept.push(other),
        }
    }
    only(kept, Predicate::All, Predicate::And)
}

/// At least one of the parts; none at all is never true.
pub fn or(parts: impl Iterator<Item = Predicate>) -> Predicate {
    let mut kept = Vec::new();
    for part in parts {
        match part {
            Predicate::Nothing => {}
            Predicate::All => return Predicate::All,
            other => kept.push(other),
        }
    }
    only(kept, Predicate::Nothing, Predicate::Or)
}

fn only(
    mut parts: Vec<Predicate>,
    none: Predicate,
    many: impl Fn(Vec<Predicate>) -> Predicate,
) -> Predicate {
    match (parts.pop(), parts.is_empty()) {
        (None, _) => none,
        (Some(part), true) => part,
        (Some(part), false) => {
            parts.push(part);
            many(parts)
        }
    }
}

/// The ranges, or fewer that hold them all: the widest gaps stay.
pub fn few(keys: &KeyRanges) -> Vec<ValueRange> {
    let ranges = keys.ranges();
    if ranges.len() <= RANGES_MAX {
        return ranges.to_vec();
    }
    let gaps = ranges.windows(2).map(|pair| match pair {
        [a, b] => b.min.0 - a.max.0,
        _ => 0,
    });
    let mut widest: Vec<(u64, usize)> = gaps.zip(1..).collect();
    widest.sort_unstable_by_key(|&(gap, _)| std::cmp::Reverse(gap));
    widest.truncate(RANGES_MAX - 1);
    let starts: HashSet<usize> = widest.into_iter().map(|(_, at)| at).collect();
    let mut few: Vec<ValueRange> = Vec::with_capacity(RANGES_MAX);
    for (at, range) in ranges.iter().enumerate() {
        match few.last_mut() {
            Some(last) if !starts.contains(&at) => last.max = range.max,
            _ => few.push(*range),
        }
    }
    few
}
