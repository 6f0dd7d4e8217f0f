//! Time buckets, aligned as DuckDB's `time_bucket` aligns them in UTC.
//!
//! A width under a month counts from 2000-01-03 00:00 UTC (a Monday); a width of months counts from 2000-01-01.

use crate::error::{Error, Result};
use crate::types::{TimeRange, Timestamp};

const DAY_NS: i128 = 86_400_000_000_000;
const MONTH_DAYS_LEAST: i128 = 28;
const MONTHS_A_YEAR: i64 = 12;
/// 2000-01 as months since year 0.
const ORIGIN_MONTH: i64 = 2000 * MONTHS_A_YEAR;

/// The grouping of times.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Bucket {
    /// Buckets of equal width in nanoseconds. One of them begins at the origin.
    Nanos { width_ns: i64, origin_ns: i64 },
    /// Buckets of an equal number of calendar months.
    Months(u32),
}

impl Bucket {
    /// 2000-01-03 00:00 UTC, from which widths under a month count.
    pub const ORIGIN_NS: i64 = 946_857_600_000_000_000;

    /// Buckets of this width, aligned as DuckDB aligns them.
    pub const fn nanos(width_ns: i64) -> Bucket {
        Bucket::Nanos {
            width_ns,
            origin_ns: Bucket::ORIGIN_NS,
        }
    }

    /// Refuses a width that is not positive.
    pub fn validate(self) -> Result<()> {
        let positive = match self {
            Bucket::Nanos { width_ns, .. } => width_ns > 0,
            Bucket::Months(months) => months > 0,
        };
        if positive {
            return Ok(());
        }
        Err(Error::Query(
            "the bucket's width must be more than zero".to_owned(),
        ))
    }

    /// The times of the bucket that holds `ts`, cut off at the ends of `i64` nanoseconds. The bucket must be valid.
    pub fn range_of(self, ts: Timestamp) -> TimeRange {
        let (start_ns, end_ns) = self.bounds_ns(ts);
        TimeRange {
            first: saturated(start_ns),
            last: saturated(end_ns - 1),
        }
    }

    /// The start of the bucket that holds `ts`, in microseconds, which reach further back than nanoseconds. The bucket must be valid.
    pub fn start_us(self, ts: Timestamp) -> i64 {
        saturated(self.bounds_ns(ts).0.div_euclid(1000)).0
    }

    /// The start of the bucket after the one that holds `ts`, in microseconds. The bucket must be valid.
    pub fn end_us(self, ts: Timestamp) -> i64 {
        saturated(self.bounds_ns(ts).1.div_euclid(1000)).0
    }

    /// An upper limit of the number of buckets that hold a time of `time`. The bucket must be valid.
    pub fn most_in(self, time: TimeRange) -> usize {
        let width_ns = match self {
            Bucket::Nanos { width_ns, .. } => i128::from(width_ns.max(1)),
            Bucket::Months(months) => i128::from(months.max(1)) * MONTH_DAYS_LEAST * DAY_NS,
        };
        let span_ns = i128::from(time.last.0) - i128::from(time.first.0);
        usize::try_from((span_ns / width_ns).max(-2) + 2).unwrap_or(usize::MAX)
    }

    /// The start of the bucket that holds `ts`, and the start of the next one.
    fn bounds_ns(self, ts: Timestamp) -> (i128, i128) {
        match self {
            Bucket::Nanos {
                width_ns,
                origin_ns,
            } => {
                let (width_ns, origin_ns) = (i128::from(width_ns.max(1)), i128::from(origin_ns));
                let since_ns = i128::from(ts.0) - origin_ns;
                let start_ns = origin_ns + since_ns.div_euclid(width_ns) * width_ns;
                (start_ns, start_ns + width_ns)
            }
            Bucket::Months(months) => {
                let months = i64::from(months.max(1));
                let month = month_of(i128::from(ts.0).div_euclid(DAY_NS) as i64) - ORIGIN_MONTH;
                let start = ORIGIN_MONTH + month.div_euclid(months) * months;
                (month_start_ns(start), month_start_ns(start + months))
            }
        }
    }
}

fn saturated(ns: i128) -> Timestamp {
    Timestamp(ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

/// Days from 1970-01-01 to the first day of a month that is counted from year 0.
///
/// Years are counted from March, so that the leap day is the last of a year and a month's first day is a linear function, rounded.
fn month_start_day(month: i64) -> i64 {
    let from_march = month - 2;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let before_month = (153 * month + 2) / 5;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + before_month - 719_468
}

fn month_start_ns(month: i64) -> i128 {
    i128::from(month_start_day(month)) * DAY_NS
}

/// The month, counted from year 0, that holds a day counted from 1970-01-01.
fn month_of(day: i64) -> i64 {
    // The mean length of a month gives a guess that is at most one off.
    let mut month = 1970 * MONTHS_A_YEAR + (i128::from(day) * 4800).div_euclid(146_097) as i64;
    while month_start_day(month) > day {
        month -= 1;
    }
    while month_start_day(month + 1) <= day {
        month += 1;
    }
    month
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: i64 = 1_000_000_000;
    const DAY: i64 = 86_400 * SECOND_NS;

    #[test]
    fn days_and_weeks_count_from_a_monday() {
        // 2024-02-29 12:00 UTC, a Thursday.
        let noon = Timestamp(1_709_208_000 * SECOND_NS);
        let start = |width_ns| Bucket::nanos(width_ns).range_of(noon).first.0 / SECOND_NS;
        assert_eq!(start(DAY), 1_709_164_800);
        assert_eq!(start(7 * DAY), 1_708_905_600);
        assert_eq!(start(3600 * SECOND_NS), 1_709_208_000);
        assert_eq!(
            Bucket::nanos(DAY)
                .range_of(Timestamp(Bucket::ORIGIN_NS - 1))
                .last
                .0,
            Bucket::ORIGIN_NS - 1
        );
    }

    #[test]
    fn months_count_from_the_year_2000() {
        let noon = Timestamp(1_709_208_000 * SECOND_NS);
        let range = |months| Bucket::Months(months).range_of(noon);
        // 2024-02-01 and 2024-03-01, 2024-01-01 and 2024-04-01, 2024-01-01 and 2025-01-01, 2020-01-01 and 2025-01-01.
        let cases = [
            (1, 1_706_745_600, 1_709_251_200),
            (3, 1_704_067_200, 1_711_929_600),
            (12, 1_704_067_200, 1_735_689_600),
            (60, 1_577_836_800, 1_735_689_600),
        ];
        for (months, start, end) in cases {
            assert_eq!(range(months).first.0, start * SECOND_NS, "{months} months");
            assert_eq!(range(months).last.0, end * SECOND_NS - 1, "{months} months");
        }
        // 1969-12-31 is in the bucket of 5 years that begins in 1965.
        assert_eq!(
            Bucket::Months(60).range_of(Timestamp(-1)).first.0,
            -157_766_400 * SECOND_NS
        );
    }

    #[test]
    fn the_first_bucket_begins_before_the_first_nanosecond() {
        let three_days = Bucket::nanos(3 * DAY);
        let start_us = three_days.start_us(Timestamp::MIN);
        assert!(start_us < i64::MIN / 1000);
        assert_eq!((start_us - Bucket::ORIGIN_NS / 1000) % (3 * DAY / 1000), 0);
        assert_eq!(
            three_days.start_us(Timestamp(Bucket::ORIGIN_NS + 7)),
            Bucket::ORIGIN_NS / 1000
        );
    }

    #[test]
    fn a_width_of_zero_is_refused() {
        assert!(Bucket::nanos(0).validate().is_err());
        assert!(Bucket::nanos(-1).validate().is_err());
        assert!(Bucket::Months(0).validate().is_err());
        assert!(Bucket::Months(1).validate().is_ok());
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_time_and_neighbours_touch(ts: i64, width_ns in 1i64.., months in 1u32..) {
            for bucket in [Bucket::nanos(width_ns), Bucket::Months(months)] {
                let range = bucket.range_of(Timestamp(ts));
                prop_assert!(range.contains(Timestamp(ts)));
                if let Some(next) = range.last.0.checked_add(1) {
                    prop_assert_eq!(bucket.range_of(Timestamp(next)).first.0, next);
                }
                prop_assert_eq!(bucket.range_of(range.first), range);
                prop_assert_eq!(bucket.range_of(range.last), range);
            }
        }

        #[test]
        fn a_time_has_no_more_buckets_than_it_can_have(first: i64, length in 0i64..1 << 50, width_ns in 1i64 << 30..1 << 50, months in 1u32..40) {
            let time = TimeRange { first: Timestamp(first), last: Timestamp(first.saturating_add(length)) };
            for bucket in [Bucket::nanos(width_ns), Bucket::Months(months)] {
                let mut touched = 1;
                let mut range = bucket.range_of(time.first);
                while range.last < time.last {
                    range = bucket.range_of(Timestamp(range.last.0 + 1));
                    touched += 1;
                }
                prop_assert!(touched <= bucket.most_in(time), "{touched} {}", bucket.most_in(time));
            }
            prop_assert_eq!(Bucket::nanos(1).most_in(TimeRange::ALL), usize::MAX);
        }
    }
}
