//! The keys of a column that can pass one comparison with a constant. Functions around the column are undone one by one; each widens the
//! range by what it may have rounded away.

use loom_engine::schema::{Domain, Number, Op, RangeSet};
use loom_engine::{Key, ValueRange};

use super::clause::Step;
use super::datum::{DATE_INFINITY, Datum, Interval, TIMESTAMP_INFINITY};

const MICRO: i128 = 1000;
const HOUR: i128 = 3_600_000_000_000;
const DAY: i128 = 24 * HOUR;
/// The greatest distance of a time zone from UTC.
const ZONE: i128 = DAY;

/// The times that pass the comparison, as signed keys of nanoseconds.
pub fn time_range(steps: &[Step], op: Op, value: &Datum) -> Option<ValueRange> {
    // The first nanosecond of the constant, and its width: a TIMESTAMP is a thousand nanoseconds wide.
    let (place, unit) = match *value {
        Datum::Timestamp(micros) | Datum::TimestampTz(micros)
            if micros.unsigned_abs() == TIMESTAMP_INFINITY.unsigned_abs() =>
        {
            (infinity(micros.signum()), 1)
        }
        Datum::Timestamp(micros) | Datum::TimestampTz(micros) => {
            (i128::from(micros) * MICRO, MICRO)
        }
        Datum::TimestampNs(nanos) | Datum::TimestampTzNs(nanos) => (i128::from(nanos), 1),
        Datum::Date(days) if days.unsigned_abs() == DATE_INFINITY.unsigned_abs() => {
            (infinity(days.signum().into()), 1)
        }
        Datum::Date(days) => (i128::from(days) * DAY, DAY),
        _ => return None,
    };
    let (everything_below, everything_above) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (mut first, mut last) = match op {
        // All times lie between the infinities, also the nanoseconds that are stored at their marks and below.
        Op::Ge | Op::Gt if place == infinity(-1) => (everything_below, everything_above),
        Op::Le | Op::Lt if place == infinity(1) => (everything_below, everything_above),
        Op::Eq => (place, place + unit - 1),
        Op::Lt => (everything_below, place - 1),
        Op::Le => (everything_below, place + unit - 1),
        Op::Gt => (place + unit, everything_above),
        Op::Ge => (place, everything_above),
        Op::Ne => return None,
    };
    for step in steps.iter().rev() {
        match *step {
            Step::Timestamp | Step::TimestampTz | Step::Date => {
                first -= ZONE;
                last += ZONE;
            }
            Step::Bucket { width } => {
                let days = width.months != 0 || width.days != 0;
                let clocks = if days { DAY } else { 0 };
                first -= clocks;
                last += width_nanos(width)? + clocks;
            }
            Step::Truncate { width } => {
                let clocks = clocks_nanos(width, place);
                first -= clocks;
                last += width_nanos(width)? + clocks;
            }
            Step::Integer | Step::Float | Step::Double | Step::Decimal { .. } => return None,
        }
    }
    // The ends of time stand for infinity, so a range that reaches them is open.
    let clamp = |nanos: i128| nanos.clamp(everything_below, everything_above) as i64;
    Some(ValueRange {
        min: Key::from_i64(clamp(first)),
        max: Key::from_i64(clamp(last)),
    })
}

/// The nanoseconds that stand for infinity.
fn infinity(sign: i64) -> i128 {
    i128::from(sign) * i128::from(i64::MAX)
}

/// The longest duration of a bucket if the clock never changes.
fn width_nanos(width: Interval) -> Option<i128> {
    if width.months < 0 || width.days < 0 || width.micros < 0 {
        return None;
    }
    let days = i128::from(width.months) * 31 + i128::from(width.days);
    Some(days * DAY + i128::from(width.micros) * MICRO)
}

/// The distance of the start of a unit from its place by a clock that never changes. When a clock goes back, one hour occurs twice, and
/// DuckDB takes the start of the second for that of the first, so the result lies after its argument. The session's clock does not cut
/// shorter units.
fn clocks_nanos(width: Interval, at: i128) -> i128 {
    /// Since this time, clocks have gone back by at most three hours; before it, by up to a day.
    const TAME: i128 = 366 * DAY;
    if width.months == 0 && width.days == 0 && i128::from(width.micros) * MICRO < HOUR {
        0
    } else if width.months > 0 || width.days > 0 || at < TAME {
        DAY
    } else {
        3 * HOUR
    }
}

/// The keys of the values that pass the comparison, through the functions around the column.
pub fn number_keys(
    domain: Domain,
    steps: &[Step],
    op: Op,
    number: Number,
) -> Option<RangeSet<Key>> {
    let (mut lower, mut upper) = match op {
        Op::Eq => (Some((Op::Ge, number)), Some((Op::Le, number))),
        Op::Lt | Op::Le => (None, Some((op, number))),
        Op::Gt | Op::Ge => (Some((op, number)), None),
        Op::Ne => return None,
    };
    // Whether the argument of each step is an integer.
    let mut from_integer = vec![domain.is_integer()];
    from_integer.extend(steps.iter().map(|step| *step == Step::Integer));
    for (step, from_integer) in steps.iter().zip(from_integer).rev() {
        if let Some((op, number)) = &mut lower {
            (*op, *number) = widened(step, from_integer, *op, *number, Side::Down)?;
        }
        if let Some((op, number)) = &mut upper {
            (*op, *number) = widened(step, from_integer, *op, *number, Side::Up)?;
        }
    }
    let bounds = [lower, upper].into_iter().flatten();
    Some(RangeSet::intersection(
        bounds.map(|(op, number)| domain.keys(op, number)),
    ))
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Down,
    Up,
}

/// The bound on the argument of a step that follows from a bound on its result.
fn widened(
    step: &Step,
    from_integer: bool,
    op: Op,
    number: Number,
    side: Side,
) -> Option<(Op, Number)> {
    let closed = if side == Side::Down { Op::Ge } else { Op::Le };
    let float = |value: f64| Some((closed, Number::Float(value)));
    match *step {
        Step::Integer | Step::Decimal { .. } if from_integer => Some((op, number)),
        Step::Integer => {
            let value = number.to_f64();
            float(if side == Side::Down {
                value.floor() - 1.0
            } else {
                value.ceil() + 1.0
            })
        }
        Step::Decimal { scale } => {
            let value = number.to_f64();
            let margin = 10f64.powi(-i32::from(scale)) + value.abs() * 1e-9;
            float(if side == Side::Down {
                value - margin
            } else {
                value + margin
            })
        }
        // Rounding to a float moves a value by less than one step of that type; the bound itself may have been rounded by another step.
        Step::Double => {
            let value = number.to_f64();
            float(if side == Side::Down {
                value.next_down().next_down()
            } else {
                value.next_up().next_up()
            })
        }
        Step::Float => {
            let value = number.to_f64() as f32;
            float(f64::from(if side == Side::Down {
                value.next_down().next_down()
            } else {
                value.next_up().next_up()
            }))
        }
        Step::Timestamp
        | Step::TimestampTz
        | Step::Date
        | Step::Bucket { .. }
        | Step::Truncate { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(steps: &[Step], op: Op, value: Datum, nanos: i128) -> bool {
        let range = time_range(steps, op, &value).unwrap();
        range.contains(Key::from_i64(nanos as i64))
    }

    #[test]
    fn an_hour_that_is_there_twice_is_not_pruned() {
        // In New York the clock went back at 06:00 UTC; DuckDB truncates 05:30 to 06:00.
        let six = 1_699_164_000_000_000_i64;
        let half_past_five = i128::from(six) * MICRO - HOUR / 2;
        let hour = Step::Truncate {
            width: Interval {
                months: 0,
                days: 0,
                micros: 3_600_000_000,
            },
        };
        for op in [Op::Eq, Op::Ge, Op::Gt, Op::Le] {
            assert!(holds(&[hour], op, Datum::TimestampTz(six), half_past_five) || op == Op::Gt);
        }
        let hour_after = i128::from(six) * MICRO + HOUR;
        assert!(holds(&[hour], Op::Eq, Datum::TimestampTz(six), hour_after));
        assert!(!holds(
            &[hour],
            Op::Eq,
            Datum::TimestampTz(six),
            hour_after + 4 * HOUR
        ));
    }

    #[test]
    fn the_marks_of_infinity_are_one_nanosecond() {
        let micros = |sign: i64| Datum::Timestamp(sign * TIMESTAMP_INFINITY);
        let (least, negative, greatest) = (i64::MIN.into(), infinity(-1), infinity(1));
        for datum in [micros(-1), Datum::TimestampNs(-i64::MAX)] {
            assert!(holds(&[], Op::Eq, datum.clone(), negative));
            assert!(holds(&[], Op::Le, datum.clone(), negative));
            assert!(holds(&[], Op::Ge, datum.clone(), least));
            assert!(holds(&[], Op::Gt, datum.clone(), 0));
            assert!(!holds(&[], Op::Le, datum, 0));
        }
        assert!(holds(&[], Op::Eq, micros(1), greatest));
        assert!(holds(&[], Op::Lt, micros(1), greatest));
        assert!(!holds(&[], Op::Ge, micros(1), 0));
    }
}
