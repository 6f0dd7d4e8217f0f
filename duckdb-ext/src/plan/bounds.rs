//! One comparison of a column with a constant, as the keys of the column that may pass it. A function around the column is undone
//! step by step, each time widening the range by what that function may have rounded away.

use loom_engine::{Key, ValueRange};

use super::datum::{DATE_INFINITY, Datum, Interval};
use super::filter::Step;
use super::number::{Domain, Number, Op};

const MICRO: i128 = 1000;
const DAY: i128 = 86_400_000_000_000;
/// No time zone is further from UTC than this.
const ZONE: i128 = DAY;

/// The nanoseconds, as signed keys, of the times that compare so.
pub fn time_range(steps: &[Step], op: Op, value: &Datum) -> Option<ValueRange> {
    // The constant's place and the width of what it stands for: a TIMESTAMP is a thousand nanoseconds wide.
    let (place, unit) = match *value {
        Datum::Timestamp(micros) | Datum::TimestampTz(micros) => {
            (i128::from(micros) * MICRO, MICRO)
        }
        Datum::TimestampNs(nanos) | Datum::TimestampTzNs(nanos) => (i128::from(nanos), 1),
        Datum::Date(days) if days.unsigned_abs() == DATE_INFINITY.unsigned_abs() => {
            (i128::from(days.signum()) * i128::from(i64::MAX), 1)
        }
        Datum::Date(days) => (i128::from(days) * DAY, DAY),
        _ => return None,
    };
    let (everything_below, everything_above) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let (mut first, mut last) = match op {
        Op::Eq => (place, place + unit - 1),
        Op::Lt => (everything_below, place - 1),
        Op::Le => (everything_below, place + unit - 1),
        Op::Gt => (place + unit, everything_above),
        Op::Ge => (place, everything_above),
    };
    for step in steps.iter().rev() {
        match *step {
            Step::Timestamp | Step::TimestampTz | Step::Date => {
                first -= ZONE;
                last += ZONE;
            }
            Step::Bucket { width } => last += bucket_nanos(width)?,
            Step::Integer | Step::Float | Step::Double | Step::Decimal { .. } => return None,
        }
    }
    // The ends of time are marks for infinity: what reaches them is left open.
    let clamp = |nanos: i128| nanos.clamp(everything_below, everything_above) as i64;
    Some(ValueRange {
        min: Key::from_i64(clamp(first)),
        max: Key::from_i64(clamp(last)),
    })
}

/// At most how far the end of a bucket is from its start, a change of the clocks included.
fn bucket_nanos(width: Interval) -> Option<i128> {
    const HOUR_MICROS: i64 = 3_600_000_000;
    if width.months < 0 || width.days < 0 || width.micros < 0 {
        return None;
    }
    let days = i128::from(width.months) * 31 + i128::from(width.days);
    let clocks = match width.micros {
        _ if days > 0 => DAY,
        HOUR_MICROS.. => i128::from(HOUR_MICROS) * MICRO,
        _ => 0,
    };
    Some(days * DAY + i128::from(width.micros) * MICRO + clocks)
}

/// The keys of the values that compare so, under the functions around the column.
pub fn number_range(domain: Domain, steps: &[Step], op: Op, number: Number) -> Option<ValueRange> {
    let (mut lower, mut upper) = match op {
        Op::Eq => (Some((Op::Ge, number)), Some((Op::Le, number))),
        Op::Lt | Op::Le => (None, Some((op, number))),
        Op::Gt | Op::Ge => (Some((op, number)), None),
    };
    for (depth, step) in steps.iter().enumerate().rev() {
        let exact = integer_before(domain, steps.get(..depth)?);
        if let Some((op, number)) = &mut lower {
            (*op, *number) = widened(step, exact, *op, *number, Side::Down)?;
        }
        if let Some((op, number)) = &mut upper {
            (*op, *number) = widened(step, exact, *op, *number, Side::Up)?;
        }
    }
    let side = |bound: Option<(Op, Number)>| {
        bound.map_or(ValueRange::ALL, |(op, number)| domain.keys(op, number))
    };
    Some(side(lower).intersect(side(upper)))
}

/// Whether what a step is applied to is an integer.
fn integer_before(domain: Domain, inner: &[Step]) -> bool {
    match inner.last() {
        None => matches!(domain, Domain::Unsigned { .. } | Domain::Signed { .. }),
        Some(step) => *step == Step::Integer,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Down,
    Up,
}

/// A bound on the result of a step as one on its argument.
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
            let value = to_f64(number);
            float(if side == Side::Down {
                value.floor() - 1.0
            } else {
                value.ceil() + 1.0
            })
        }
        Step::Decimal { scale } => {
            let value = to_f64(number);
            let margin = 10f64.powi(-i32::from(scale)) + value.abs() * 1e-9;
            float(if side == Side::Down {
                value - margin
            } else {
                value + margin
            })
        }
        // Rounding to a float moves a value by less than one step of that type; the bound itself may be rounded by another.
        Step::Double => {
            let value = to_f64(number);
            float(if side == Side::Down {
                value.next_down().next_down()
            } else {
                value.next_up().next_up()
            })
        }
        Step::Float => {
            let value = to_f64(number) as f32;
            float(f64::from(if side == Side::Down {
                value.next_down().next_down()
            } else {
                value.next_up().next_up()
            }))
        }
        Step::Timestamp | Step::TimestampTz | Step::Date | Step::Bucket { .. } => None,
    }
}

fn to_f64(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
        Number::Decimal { value, scale } => format!("{value}e-{scale}").parse().unwrap_or(f64::NAN),
    }
}
