//! Times from SQL as ranges of nanoseconds: a microsecond becomes the thousand nanoseconds that it stands for, infinities become the ends
//! of time, and months follow the calendar in UTC.

use loom_engine::query::Predicate;
use loom_engine::schema::RangeSet;
use loom_engine::{TimeRange, Timestamp};

use super::datum::Interval;
use crate::error::{Problem, Result};

const DAY_NANOS: i128 = 86_400_000_000_000;

/// The time arguments of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimeArguments {
    /// Microseconds; the window is `[t_from, t_to)`.
    pub t_from: Option<i64>,
    pub t_to: Option<i64>,
    /// The length of a window that ends with the newest visible record, inclusive, or with the current time.
    pub last: Option<Interval>,
    /// The middles of the windows `[t - width, t + width)`, in microseconds.
    pub around: Option<Vec<i64>>,
    pub width: Option<Interval>,
}

impl TimeArguments {
    /// The range of `t_from`, `t_to` and `last`.
    pub fn range(&self, newest: Option<Timestamp>) -> Result<TimeRange> {
        let from = self.t_from.map_or(i128::from(i64::MIN), nanos_wide);
        let to = self.t_to.map_or(i128::from(i64::MAX) + 1, nanos_wide);
        let mut range = half_open(from, to);
        if let Some(last) = self.last {
            let Some(newest) = newest else {
                return Ok(TimeRange::EMPTY);
            };
            let first = Timestamp(shifted(newest.0, last, -1)?);
            if first > newest {
                return Err(Problem::binder(
                    "last must not be negative; give a positive INTERVAL",
                ));
            }
            range = range.intersect(TimeRange {
                first,
                last: newest,
            });
        }
        Ok(range)
    }

    /// The windows of `around`; `None` if it is not given.
    pub fn windows(&self) -> Result<Option<RangeSet<Timestamp>>> {
        let (middles, width) = match (&self.around, self.width) {
            (None, None) => return Ok(None),
            (Some(middles), Some(width)) => (middles, width),
            (Some(_), None) => {
                return Err(Problem::binder(
                    "around needs width, an INTERVAL: it reads the windows [t - width, t + width)",
                ));
            }
            (None, Some(_)) => {
                return Err(Problem::binder(
                    "width needs around, a list of TIMESTAMPTZ: it reads the windows [t - width, t + width)",
                ));
            }
        };
        let mut windows = Vec::with_capacity(middles.len());
        for &middle in middles {
            let middle = nanos_wide(middle);
            let from = shifted_wide(middle, width, -1)?;
            let to = shifted_wide(middle, width, 1)?;
            if from > to {
                return Err(Problem::binder(
                    "width must not be negative; give a positive INTERVAL",
                ));
            }
            windows.push(half_open(from, to));
        }
        Ok(Some(RangeSet::new(windows)))
    }

    /// The windows within the range, or the range itself.
    pub fn spans(&self, newest: Option<Timestamp>) -> Result<RangeSet<Timestamp>> {
        let range = RangeSet::from(self.range(newest)?);
        Ok(match self.windows()? {
            None => range,
            Some(windows) => windows.intersect(&range),
        })
    }

    /// All time arguments as one predicate.
    pub fn predicate(&self, newest: Option<Timestamp>) -> Result<Predicate> {
        Ok(Predicate::times(self.spans(newest)?))
    }
}

/// Microseconds as nanoseconds. The result may lie beyond the ends of time; those of infinities do.
fn nanos_wide(micros: i64) -> i128 {
    i128::from(micros) * 1000
}

/// The times from `from`, inclusive, to `to`, exclusive, both in nanoseconds.
fn half_open(from: i128, to: i128) -> TimeRange {
    let first = from.max(i64::MIN.into());
    let last = (to - 1).min(i64::MAX.into());
    if first > last {
        return TimeRange::EMPTY;
    }
    TimeRange {
        first: Timestamp(first as i64),
        last: Timestamp(last as i64),
    }
}

pub fn now() -> Timestamp {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// Microseconds as nanoseconds; times that do not fit become the end of time.
pub fn nanos(micros: i64) -> i64 {
    micros.saturating_mul(1000)
}

/// The microsecond that holds a time, also before 1970.
#[inline]
pub fn micros(nanos: i64) -> i64 {
    match u64::try_from(nanos) {
        // An unsigned division takes half the time, and nearly all times are positive.
        Ok(nanos) => (nanos / 1000) as i64,
        Err(_) => nanos.div_euclid(1000),
    }
}

/// `time` plus an interval (`sign` 1) or minus it (`sign` -1). Months follow the calendar, and the result stops at the ends of time.
pub fn shifted(time: i64, interval: Interval, sign: i64) -> Result<i64> {
    let total = shifted_wide(time.into(), interval, sign)?;
    Ok(i64::try_from(total).unwrap_or(if total < 0 { i64::MIN } else { i64::MAX }))
}

/// The same, but the result may pass the ends of time.
fn shifted_wide(time: i128, interval: Interval, sign: i64) -> Result<i128> {
    let mut shifted = time;
    if interval.months != 0 {
        let months = i64::from(interval.months) * sign;
        let moved = jiff::Timestamp::from_nanosecond(shifted).and_then(|time| {
            let span = jiff::Span::new().try_months(months)?;
            time.to_zoned(jiff::tz::TimeZone::UTC).checked_add(span)
        });
        shifted = moved
            .map_err(|error| {
                Problem::binder(format!(
                    "an INTERVAL of {months} months ends outside the calendar: {error}; give a shorter one"
                ))
            })?
            .timestamp()
            .as_nanosecond();
    }
    let rest = i128::from(interval.days) * DAY_NANOS + i128::from(interval.micros) * 1000;
    Ok(shifted + rest * i128::from(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::datum::TIMESTAMP_INFINITY;

    const SECOND: i64 = 1_000_000_000;

    fn interval(months: i32, days: i32, micros: i64) -> Interval {
        Interval {
            months,
            days,
            micros,
        }
    }

    #[test]
    fn a_window_is_half_open_in_microseconds() {
        let arguments = TimeArguments {
            t_from: Some(10),
            t_to: Some(12),
            ..Default::default()
        };
        let range = arguments.range(None).unwrap();
        assert_eq!(
            range,
            TimeRange {
                first: Timestamp(10_000),
                last: Timestamp(11_999)
            }
        );
        assert_eq!(
            TimeArguments::default().predicate(None).unwrap(),
            Predicate::All
        );
    }

    #[test]
    fn infinities_are_no_bound() {
        let arguments = TimeArguments {
            t_from: Some(-TIMESTAMP_INFINITY),
            t_to: Some(TIMESTAMP_INFINITY),
            ..Default::default()
        };
        assert_eq!(arguments.range(None).unwrap(), TimeRange::ALL);
        let never = TimeArguments {
            t_to: Some(-TIMESTAMP_INFINITY),
            ..Default::default()
        };
        assert_eq!(never.predicate(None).unwrap(), Predicate::Nothing);
    }

    #[test]
    fn last_counts_back_from_the_newest_record_and_includes_it() {
        let arguments = TimeArguments {
            last: Some(interval(0, 0, 2_000_000)),
            ..Default::default()
        };
        let newest = Timestamp(10 * SECOND + 5);
        let range = arguments.range(Some(newest)).unwrap();
        assert_eq!(
            range,
            TimeRange {
                first: Timestamp(8 * SECOND + 5),
                last: newest
            }
        );
        assert_eq!(arguments.predicate(None).unwrap(), Predicate::Nothing);
        let negative = TimeArguments {
            last: Some(interval(0, -1, 0)),
            ..Default::default()
        };
        assert!(negative.range(Some(newest)).is_err());
    }

    #[test]
    fn windows_are_united() {
        let arguments = TimeArguments {
            around: Some(vec![100, 10, 14, 16]),
            width: Some(interval(0, 0, 2)),
            ..Default::default()
        };
        let range = |first, last| TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        let expected = RangeSet::new([range(8_000, 17_999), range(98_000, 101_999)]);
        assert_eq!(arguments.windows().unwrap(), Some(expected));
        let without_width = TimeArguments {
            around: Some(vec![1]),
            ..Default::default()
        };
        assert!(without_width.windows().is_err());
        let none = TimeArguments {
            around: Some(vec![]),
            width: Some(interval(0, 0, 2)),
            ..Default::default()
        };
        assert_eq!(none.predicate(None).unwrap(), Predicate::Nothing);
    }

    #[test]
    fn beyond_the_ends_of_time_no_record_is_cut_off_and_none_let_in() {
        let year_2400 = 13_569_465_600_000_000;
        let range = |t_from, t_to| {
            let given = TimeArguments {
                t_from,
                t_to,
                ..Default::default()
            };
            given.range(None).unwrap()
        };
        assert_eq!(range(None, Some(year_2400)), TimeRange::ALL);
        assert!(range(Some(year_2400), None).is_empty());
        assert!(range(None, Some(-year_2400)).is_empty());
        let windows = |middle| {
            let given = TimeArguments {
                around: Some(vec![middle]),
                width: Some(interval(0, 0, 20_000)),
                ..Default::default()
            };
            given.windows().unwrap().unwrap()
        };
        let (_, last) = windows(i64::MAX / 1000).hull().unwrap();
        let (first, _) = windows(i64::MIN / 1000).hull().unwrap();
        assert_eq!((first, last), (Timestamp::MIN, Timestamp::MAX));
        assert!(windows(year_2400).is_empty() && windows(TIMESTAMP_INFINITY).is_empty());
    }

    #[test]
    fn months_go_by_the_calendar() {
        // 2024-03-31 minus one month is the last day of February.
        let march_31 = 1_711_843_200 * SECOND;
        let february_29 = 1_709_164_800 * SECOND;
        assert_eq!(
            shifted(march_31, interval(1, 0, 0), -1).unwrap(),
            february_29
        );
        assert_eq!(shifted(i64::MAX, interval(0, 1, 0), 1).unwrap(), i64::MAX);
    }

    #[test]
    fn microseconds_round_down_before_1970() {
        assert_eq!(micros(-1), -1);
        assert_eq!(micros(-1000), -1);
        assert_eq!(micros(-1001), -2);
        assert_eq!(micros(1999), 1);
    }
}
