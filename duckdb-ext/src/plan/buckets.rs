//! The window and the buckets of a call: `bucket` or `points`, `partial`, and the limits that a `WHERE` clause sets on the column `bucket`.

use loom_engine::query::Bucket;
use loom_engine::schema::{Op, RangeSet};
use loom_engine::{TimeRange, Timestamp, ValueRange};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::bucket;
use super::clause::{Clause, Offered};
use super::monotone::time_range;
use super::part::Part;
use super::selection::{Selection, newest};
use super::time::TimeArguments;
use crate::error::{Problem, Result};

/// The default of `points` in functions that always have buckets.
pub const POINTS_DEFAULT: u64 = 300;

/// The declared number of the column `bucket`.
const COLUMN: usize = 0;

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;

/// The requested buckets.
#[derive(Clone, Copy)]
enum Width {
    /// No buckets; the whole window gives one row.
    Whole,
    Given(Bucket),
    /// The narrowest round bucket that gives at most this number of rows.
    Points(u64),
}

pub struct Buckets {
    times: TimeArguments,
    width: Width,
    partial: bool,
    pub offered: Offered,
}

/// The most separate ranges of buckets. A clause that lets more through is read from the first to the last, because each range costs a
/// search.
const RANGES_MAX: usize = 64;

/// The times that an execution reads, and its buckets.
#[derive(Clone)]
pub struct Window {
    /// The times of the buckets that the `WHERE` clause keeps.
    pub kept: RangeSet<Timestamp>,
    /// The window of the parameters, of which a `WHERE` clause may keep less.
    pub asked: TimeRange,
    pub bucket: Option<Bucket>,
}

impl Window {
    /// The window of a call that always has buckets.
    pub fn bucketed(&self) -> (TimeRange, Bucket) {
        let bucket = self.bucket.expect("the call was bound with points");
        (self.time(), bucket)
    }

    /// The range from the first time that is read to the last.
    pub fn time(&self) -> TimeRange {
        hull(&self.kept)
    }
}

impl Buckets {
    /// `points` is the default if the call gives neither `bucket` nor `points`; `None` means one row.
    pub fn bind(arguments: &Arguments, points: Option<u64>) -> Result<Buckets> {
        let times = arguments.times()?;
        times.range(None)?;
        let width = match (bucket::of(arguments)?, arguments.count("points")?) {
            (Some(_), Some(_)) => {
                return Err(Problem::binder(
                    "bucket and points both choose the buckets; give one of them",
                ));
            }
            (Some(bucket), None) => Width::Given(bucket),
            (None, Some(0)) => {
                return Err(Problem::binder("points must be 1 or more"));
            }
            (None, Some(points)) => Width::Points(points),
            (None, None) => points.map_or(Width::Whole, Width::Points),
        };
        let partial = arguments.boolean("partial")?.unwrap_or(true);
        if !partial && matches!(width, Width::Whole) {
            return Err(Problem::binder(
                "partial omits buckets, but the call has none; give bucket or points",
            ));
        }
        Ok(Buckets {
            times,
            width,
            partial,
            offered: Offered::none(),
        })
    }

    pub fn is_bucketed(&self) -> bool {
        !matches!(self.width, Width::Whole)
    }

    /// The window of one execution. Fails if the call asks for a complete window and records of it are missing.
    pub fn now(
        &self,
        selection: &Selection,
        parts: &[Part],
        ambient: &Ambient<'_>,
    ) -> Result<Window> {
        let mut time = self.times.range(newest(parts, &self.times)?)?;
        let bucket = match self.width {
            Width::Whole => None,
            Width::Given(bucket) => Some(bucket),
            Width::Points(points) => Some(round(points, held(time, parts)?)),
        };
        if let Some(bucket) = bucket
            && !self.partial
        {
            time = whole_buckets(bucket, time, parts)?;
        }
        let asked = time;
        let mut kept = RangeSet::from(asked);
        if let Some(bucket) = bucket {
            kept = kept.intersect(&buckets_of(&self.offered.get(), bucket));
        }
        selection.require_complete(parts, &kept, ambient)?;
        Ok(Window {
            kept,
            asked,
            bucket,
        })
    }
}

/// The window; where it is open, it ends with the source's records.
fn held(time: TimeRange, parts: &[Part]) -> Result<TimeRange> {
    if time.first > Timestamp::MIN && time.last < Timestamp::MAX {
        return Ok(time);
    }
    let mut held = TimeRange::EMPTY;
    for part in parts {
        let totals = part.totals()?;
        if let (Some(first), Some(last)) = (totals.first_ts, totals.last_ts) {
            held.first = held.first.min(first);
            held.last = held.last.max(last);
        }
    }
    Ok(TimeRange {
        first: match time.first {
            Timestamp::MIN => held.first,
            first => first,
        },
        last: match time.last {
            Timestamp::MAX => held.last,
            last => last,
        },
    })
}

/// The narrowest round bucket of which at most `points` touch the window.
fn round(points: u64, time: TimeRange) -> Bucket {
    let small = (0..9).flat_map(|digits| [1, 2, 5].map(|first| first * 10i64.pow(digits)));
    let seconds = [1, 2, 5, 10, 15, 30].map(|count| count * SECOND_NS);
    let minutes = [1, 2, 5, 10, 15, 30].map(|count| count * MINUTE_NS);
    let hours = [1, 2, 3, 6, 12].map(|count| count * HOUR_NS);
    let days = [1, 2, 7, 14].map(|count| count * DAY_NS);
    // Buckets shorter than a microsecond would begin at the same microsecond.
    let nanos = small
        .filter(|width| *width >= 1000)
        .chain(seconds)
        .chain(minutes)
        .chain(hours)
        .chain(days);
    let months = [1, 3, 6, 12, 60, 120, 600].map(Bucket::Months);
    let widest = Bucket::Months(12_000);
    let mut widths = nanos.map(Bucket::nanos).chain(months);
    widths
        .find(|bucket| time.is_empty() || touched(*bucket, time) <= i128::from(points))
        .unwrap_or(widest)
}

/// The number of buckets that touch the window, or one or two more if buckets have different lengths.
fn touched(bucket: Bucket, time: TimeRange) -> i128 {
    let (first, last) = (bucket.range_of(time.first), bucket.range_of(time.last));
    let length = |range: TimeRange| i128::from(range.last.0) - i128::from(range.first.0) + 1;
    let whole = TimeRange {
        first: first.first,
        last: last.last,
    };
    let shortest = match bucket {
        Bucket::Nanos { .. } => length(first).max(length(last)),
        Bucket::Months(months) => i128::from(months) * 28 * i128::from(DAY_NS),
    };
    (length(whole) + shortest - 1) / shortest
}

/// Removes the buckets that the window cuts, the newest one, and one from which retention has removed records.
fn whole_buckets(bucket: Bucket, time: TimeRange, parts: &[Part]) -> Result<TimeRange> {
    let mut kept = time;
    let from = bucket.range_of(time.first);
    if time.first > Timestamp::MIN && from.first < time.first {
        kept.first = after(from);
    }
    let to = bucket.range_of(time.last);
    if time.last < Timestamp::MAX && to.last > time.last {
        kept.last = before(to);
    }
    let mut newest = None;
    for part in parts {
        newest = newest.max(part.newest()?);
        let oldest = match part.source.own_time() {
            _ if part.snapshot.begin().0 == 0 => None,
            true => part.totals()?.first_ts,
            false => part.snapshot.oldest_ts()?,
        };
        if let Some(oldest) = oldest {
            kept.first = kept.first.max(after(bucket.range_of(oldest)));
        }
    }
    if let Some(newest) = newest {
        kept.last = kept.last.min(before(bucket.range_of(newest)));
    }
    Ok(kept)
}

fn after(bucket: TimeRange) -> Timestamp {
    Timestamp(bucket.last.0.saturating_add(1))
}

fn before(bucket: TimeRange) -> Timestamp {
    Timestamp(bucket.first.0.saturating_sub(1))
}

/// The times of the buckets that a clause may let through.
fn buckets_of(clause: &Clause, bucket: Bucket) -> RangeSet<Timestamp> {
    let cut = |time: Timestamp| bucket.range_of(time);
    let starts = starts_of(clause);
    let whole = starts.ranges().iter().map(|&(first, last)| TimeRange {
        first: match first {
            Timestamp::MIN => first,
            first => cut(first).first,
        },
        last: match last {
            Timestamp::MAX => last,
            last => cut(last).last,
        },
    });
    let whole = RangeSet::new(whole);
    match whole.ranges().len() {
        ..=RANGES_MAX => whole,
        _ => hull(&whole).into(),
    }
}

/// The range from the first time of a set to the last.
fn hull(times: &RangeSet<Timestamp>) -> TimeRange {
    let hull = times.hull();
    hull.map_or(TimeRange::EMPTY, |(first, last)| TimeRange { first, last })
}

/// The starts of the buckets that a clause may let through.
fn starts_of(clause: &Clause) -> RangeSet<Timestamp> {
    let starts =
        |range: Option<ValueRange>| range.map_or_else(RangeSet::all, |keys| times(keys).into());
    match clause {
        Clause::And(parts) => RangeSet::intersection(parts.iter().map(starts_of)),
        Clause::Or(parts) => RangeSet::union(parts.iter().map(starts_of)),
        Clause::Compare { term, op, value } if term.column == COLUMN => {
            starts(time_range(&term.steps, true, *op, value))
        }
        Clause::In { term, values } if term.column == COLUMN => {
            let found = values.iter().filter(|value| !value.is_null());
            let found = found.map(|value| time_range(&term.steps, true, Op::Eq, value));
            RangeSet::union(found.map(starts))
        }
        Clause::Compare { .. }
        | Clause::In { .. }
        | Clause::NotIn { .. }
        | Clause::Null { .. }
        | Clause::Prefix { .. }
        | Clause::Contains { .. }
        | Clause::Opaque => RangeSet::all(),
    }
}

fn times(keys: ValueRange) -> TimeRange {
    TimeRange {
        first: Timestamp(keys.min.to_i64()),
        last: Timestamp(keys.max.to_i64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clause::Term;
    use crate::plan::datum::Datum;

    fn window(first_ns: i64, last_ns: i64) -> TimeRange {
        TimeRange {
            first: Timestamp(first_ns),
            last: Timestamp(last_ns),
        }
    }

    // case SQL: points, partial, WHERE bucket
    #[test]
    fn points_choose_the_narrowest_round_bucket() {
        let hour = window(0, HOUR_NS - 1);
        let width = |points, time| round(points, time);
        assert_eq!(width(300, hour), Bucket::nanos(15 * SECOND_NS));
        assert_eq!(width(360, hour), Bucket::nanos(10 * SECOND_NS));
        assert_eq!(width(60, hour), Bucket::nanos(MINUTE_NS));
        // A window that begins within a minute touches one more.
        let late = window(SECOND_NS, HOUR_NS + SECOND_NS - 1);
        assert_eq!(width(60, late), Bucket::nanos(2 * MINUTE_NS));
        assert_eq!(width(12, window(0, 365 * DAY_NS)), Bucket::Months(3));
        assert_eq!(width(300, TimeRange::EMPTY), Bucket::nanos(1000));
        assert_eq!(width(1, TimeRange::ALL), Bucket::Months(12_000));
        for points in [1, 2, 7, 100, 1000] {
            for length in [1, 999, 60 * SECOND_NS, 400 * DAY_NS] {
                let time = window(123_456_789, 123_456_789 + length);
                let bucket = round(points, time);
                assert!(
                    touched(bucket, time) <= i128::from(points) || bucket == Bucket::Months(12_000)
                );
            }
        }
    }

    // case SQL: points, partial, WHERE bucket
    #[test]
    fn a_clause_on_the_bucket_is_rounded_outward_to_whole_buckets() {
        let bucket = Bucket::nanos(MINUTE_NS);
        let compare = |op, seconds: i64| Clause::Compare {
            term: Term {
                column: COLUMN,
                steps: Vec::new(),
            },
            op,
            value: Datum::TimestampTz(seconds * 1_000_000),
        };
        let between = Clause::And(vec![compare(Op::Ge, 90), compare(Op::Lt, 300)]);
        // 60 s to 300 s: the bucket that 90 s cuts may be let through, that of 300 s may not.
        assert_eq!(
            buckets_of(&between, bucket),
            window(MINUTE_NS, 5 * MINUTE_NS - 1).into()
        );
        let one_of = |starts: &[i64]| {
            let parts = starts.iter().map(|start| compare(Op::Eq, *start));
            buckets_of(&Clause::Or(parts.collect()), bucket)
        };
        let minute = |first: i64| window(first * MINUTE_NS, (first + 1) * MINUTE_NS - 1);
        assert_eq!(one_of(&[180, 60]), RangeSet::new([minute(1), minute(3)]));
        let many: Vec<i64> = (0..=64).map(|at| at * 120).collect();
        assert_eq!(one_of(&many[..64]).ranges().len(), 64);
        assert_eq!(one_of(&many), window(0, 129 * MINUTE_NS - 1).into());
        let elsewhere = Clause::And(vec![Clause::Opaque, compare(Op::Gt, 60)]);
        assert_eq!(hull(&buckets_of(&elsewhere, bucket)).last, Timestamp::MAX);
        assert!(buckets_of(&Clause::Or(Vec::new()), bucket).is_empty());
    }
}
