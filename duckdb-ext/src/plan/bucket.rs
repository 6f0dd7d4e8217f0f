//! The parameter and the column `bucket`: an interval becomes the engine's buckets of time.

use loom_engine::Timestamp;
use loom_engine::query::Bucket;

use super::arguments::Arguments;
use super::columns::{Column, columns as declared};
use super::datum::Interval;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

const DAY_NANOS: i64 = 86_400_000_000_000;

/// The buckets; `None` if the call gives none.
pub fn of(arguments: &Arguments) -> Result<Option<Bucket>> {
    arguments.interval("bucket")?.map(bucket_of).transpose()
}

/// The value of the column `bucket`, in a row whose values begin at `first`.
pub fn cell(bucket: Option<Bucket>, first: Option<Timestamp>) -> Option<Cell> {
    let start_us = bucket?.start_us(first?);
    Some(Cell::Int(start_us.into()))
}

/// The columns of a function whose first one is `bucket` where there are buckets.
pub fn columns(bucketed: bool, others: &[(&str, SqlType)]) -> Vec<Column> {
    let bucket = bucketed.then_some(("bucket", SqlType::TimestampTz));
    declared(&[bucket.as_slice(), others].concat())
}

fn bucket_of(interval: Interval) -> Result<Bucket> {
    let nanos = i64::from(interval.days)
        .checked_mul(DAY_NANOS)
        .zip(interval.micros.checked_mul(1000))
        .and_then(|(days, rest)| days.checked_add(rest))
        .ok_or_else(|| {
            Problem::binder("bucket takes at most 106751 days; give a longer one in months")
        })?;
    match (u32::try_from(interval.months), nanos) {
        (Ok(0), 1..) => Ok(Bucket::nanos(nanos)),
        (Ok(months @ 1..), 0) => Ok(Bucket::Months(months)),
        _ => Err(Problem::binder(
            "bucket takes a positive INTERVAL of months, or one of days and smaller units, as time_bucket does",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_of_months_or_of_less() {
        let bucket = |months, days, micros| {
            bucket_of(Interval {
                months,
                days,
                micros,
            })
        };
        assert_eq!(bucket(0, 1, 5).unwrap(), Bucket::nanos(DAY_NANOS + 5000));
        assert_eq!(bucket(3, 0, 0).unwrap(), Bucket::Months(3));
        for refused in [
            bucket(1, 1, 0),
            bucket(0, 0, 0),
            bucket(0, -1, 0),
            bucket(-1, 0, 0),
            bucket(0, i32::MAX, 0),
        ] {
            assert!(refused.is_err());
        }
    }
}
