//! The values of a column that can pass one comparison with a constant. Functions around the column are undone one by one; each widens the
//! bounds by what it may have rounded away.

use loom_engine::schema::{Domain, Number, Op, RangeSet};
use loom_engine::{Key, ValueRange};

use super::clause::{Rounded, Step};
use super::datum::{DATE_INFINITY, Datum, Interval, TIMESTAMP_INFINITY};

const MICRO: i128 = 1000;
const HOUR: i128 = 3_600_000_000_000;
const DAY: i128 = 24 * HOUR;
/// The longest unit of a type of times.
const SECOND: i128 = 1_000_000_000;

/// The times that pass the comparison, as signed keys of nanoseconds. `is_zoned`: the column is of type TIMESTAMPTZ, which the session's clock
/// shows.
pub fn time_range(steps: &[Step], is_zoned: bool, op: Op, value: &Datum) -> Option<ValueRange> {
    let clock = Clock {
        is_zoned: is_zoned || steps.contains(&Step::TimestampTz),
    };
    let to_number = |step: &Step| matches!(step, Step::Epoch { .. } | Step::Year);
    let times = match steps.iter().position(to_number) {
        Some(nth) => {
            let (of_time, of_number) = (steps.get(..nth)?, steps.get(nth + 1..)?);
            let bounds = undone(of_number, false, op, value.number()?)?;
            let times = clock.numbered(steps.get(nth)?, bounds)?;
            clock.before(of_time, times, None)?
        }
        None => {
            let place = Place::of(value)?;
            clock.before(steps, place.times(op)?, Some(place))?
        }
    };
    // The ends of time stand for infinity, so a range that reaches them is open.
    let clamp = |nanos: i128| nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    Some(ValueRange {
        min: Key::from_i64(times.first.map_or(i64::MIN, clamp)),
        max: Key::from_i64(times.last.map_or(i64::MAX, clamp)),
    })
}

/// Times in nanoseconds; an end that is `None` is open.
#[derive(Clone, Copy)]
struct Times {
    first: Option<i128>,
    last: Option<i128>,
}

/// The place of a constant: its first nanosecond, and its width. A TIMESTAMP is a thousand nanoseconds wide.
#[derive(Clone, Copy)]
struct Place {
    at: i128,
    unit: i128,
}

impl Place {
    fn of(value: &Datum) -> Option<Place> {
        let (at, unit) = match *value {
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
        Some(Place { at, unit })
    }

    fn times(self, op: Op) -> Option<Times> {
        let Place { at, unit } = self;
        let (first, last) = match op {
            // All times lie between the infinities, also the nanoseconds that are stored at their marks and below.
            Op::Ge | Op::Gt if at == infinity(-1) => (None, None),
            Op::Le | Op::Lt if at == infinity(1) => (None, None),
            Op::Eq => (Some(at), Some(at + unit - 1)),
            Op::Lt => (None, Some(at - 1)),
            Op::Le => (None, Some(at + unit - 1)),
            Op::Gt => (Some(at + unit), None),
            Op::Ge => (Some(at), None),
            Op::Ne => return None,
        };
        Some(Times { first, last })
    }
}

/// The nanoseconds that stand for infinity.
fn infinity(sign: i64) -> i128 {
    i128::from(sign) * i128::from(i64::MAX)
}

/// The session's clock, or one that shows UTC and never changes.
#[derive(Clone, Copy)]
struct Clock {
    is_zoned: bool,
}

impl Clock {
    /// A duration that only the session's clock adds.
    fn off(self, nanos: i128) -> i128 {
        if self.is_zoned { nanos } else { 0 }
    }

    /// The greatest distance of a time zone from UTC.
    fn zone(self) -> i128 {
        self.off(DAY)
    }

    /// The times from which the steps lead to some times. `constant` is the place that the last result is compared with.
    fn before(self, steps: &[Step], mut times: Times, constant: Option<Place>) -> Option<Times> {
        let is_finite = constant.is_none_or(|place| place.at.abs() != infinity(1));
        let zone = self.zone();
        for (nth, step) in steps.iter().enumerate().rev() {
            let is_last = nth + 1 == steps.len();
            // The result less the argument is no less than the first, and no more than the second.
            let (least, most) = match *step {
                Step::Timestamp | Step::TimestampTz => (-zone - SECOND, zone + SECOND),
                // The constant that a date is compared with is a day wide by itself.
                Step::Date if is_last && constant.is_some() => (-zone, zone),
                Step::Date => (-zone - DAY, zone),
                Step::Bucket { width } => {
                    let days = width.months != 0 || width.days != 0;
                    let clocks = self.off(if days { DAY } else { 0 });
                    (-width_nanos(width)? - clocks, clocks)
                }
                Step::Truncate { width } => {
                    let at = times.first.or(times.last).unwrap_or(0);
                    let clocks = self.off(clocks_nanos(width, at));
                    (-width_nanos(width)? - clocks, clocks)
                }
                // An infinity stays where it is.
                Step::Shift { by } if is_finite => self.shifts(by),
                _ => return None,
            };
            times.first = times.first.map(|first| first - most);
            times.last = times.last.map(|last| last - least);
        }
        Some(times)
    }

    /// The least and the greatest duration of an interval.
    fn shifts(self, by: Interval) -> (i128, i128) {
        let months = |days: i128| i128::from(by.months) * days;
        let exact = i128::from(by.days) * DAY + i128::from(by.micros) * MICRO;
        let days = by.months != 0 || by.days != 0;
        let clocks = self.off(if days { DAY } else { 0 });
        (
            months(28).min(months(31)) * DAY + exact - clocks,
            months(28).max(months(31)) * DAY + exact + clocks,
        )
    }

    /// The times whose number lies within some bounds.
    fn numbered(self, step: &Step, bounds: Bounds) -> Option<Times> {
        let finite = |bound: Option<(Op, Number)>| {
            let (op, number) = bound?;
            Some((op, number.to_f64())).filter(|(_, number)| number.is_finite())
        };
        let (lower, upper) = (finite(bounds.lower), finite(bounds.upper));
        Some(match *step {
            Step::Epoch { unit_ns } => {
                // A time is rounded to a microsecond before it is a number, and the number perhaps to a whole one.
                let unit = unit_ns as f64;
                // No time lies beyond.
                let nanos = |number: f64| (number * unit).clamp(-1e19, 1e19);
                let margin = |nanos: f64| nanos.abs() * 1e-15 + unit + 2e3;
                Times {
                    first: lower.map(|(_, least)| (nanos(least) - margin(nanos(least))) as i128),
                    last: upper.map(|(_, most)| (nanos(most) + margin(nanos(most))) as i128),
                }
            }
            Step::Year => {
                let first = lower.map(|(op, year)| match op {
                    Op::Gt => year.floor() + 1.0,
                    _ => year.ceil(),
                });
                let last = upper.map(|(op, year)| match op {
                    Op::Lt => year.ceil() - 1.0,
                    _ => year.floor(),
                });
                Times {
                    first: first.map(|year| start_of(year) - self.zone()),
                    last: last.map(|year| start_of(year + 1.0) - 1 + self.zone()),
                }
            }
            _ => return None,
        })
    }
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

/// The first nanosecond of a Gregorian year, or of the first or last one that nanoseconds reach.
fn start_of(year: f64) -> i128 {
    let first = jiff::civil::date(year.clamp(1600.0, 2300.0) as i16, 1, 1);
    let days = first.since(jiff::civil::date(1970, 1, 1));
    days.map_or(0, |days| i128::from(days.get_days()) * DAY)
}

/// The keys of the values that pass the comparison, through the functions around the column.
pub fn number_keys(
    domain: Domain,
    steps: &[Step],
    op: Op,
    number: Number,
) -> Option<RangeSet<Key>> {
    let bounds = undone(steps, domain.is_integer(), op, number)?;
    let of_numbers = [bounds.lower, bounds.upper].into_iter().flatten();
    let keys = RangeSet::intersection(of_numbers.map(|(op, number)| domain.keys(op, number)));
    let nan = domain.keys(Op::Ge, Number::Float(f64::NAN));
    Some(match bounds.has_nan {
        true => RangeSet::union([keys, nan]),
        false => keys.intersect(&nan.complement()),
    })
}

/// The numbers that pass.
#[derive(Clone, Copy)]
struct Bounds {
    /// Compared with `>` or `>=`.
    lower: Option<(Op, Number)>,
    /// Compared with `<` or `<=`.
    upper: Option<(Op, Number)>,
    /// NaN, which every function turns into itself, passes.
    has_nan: bool,
}

/// The arguments of the first step that pass.
fn undone(steps: &[Step], of_integer: bool, op: Op, number: Number) -> Option<Bounds> {
    let is_nan = number.to_f64().is_nan();
    let lower = match op {
        Op::Eq | Op::Ge => Some((Op::Ge, number)),
        Op::Gt => Some((Op::Gt, number)),
        Op::Lt | Op::Le => None,
        Op::Ne => return None,
    };
    let upper = match op {
        // Every number is less than NaN.
        _ if is_nan => None,
        Op::Eq | Op::Le => Some((Op::Le, number)),
        Op::Lt => Some((Op::Lt, number)),
        _ => None,
    };
    let has_nan = match op {
        Op::Ge => true,
        Op::Gt => !is_nan,
        Op::Eq | Op::Le => is_nan,
        _ => false,
    };
    let mut bounds = Bounds {
        lower,
        upper,
        has_nan,
    };
    // Whether the argument of each step is an integer.
    let mut from_integer = vec![of_integer];
    from_integer.extend(steps.iter().map(|step| *step == Step::Integer));
    for (step, from_integer) in steps.iter().zip(from_integer).rev() {
        match step {
            Step::Integer | Step::Decimal { .. } if from_integer => {}
            Step::Timestamp
            | Step::TimestampTz
            | Step::Date
            | Step::Bucket { .. }
            | Step::Truncate { .. }
            | Step::Shift { .. }
            | Step::Epoch { .. }
            | Step::Year => return None,
            step => bounds = bounds.before(step),
        }
    }
    Some(bounds)
}

impl Bounds {
    /// The bounds of the argument of a step.
    fn before(self, step: &Step) -> Bounds {
        let greatest = match step {
            Step::Float
            | Step::Add {
                rounded: Rounded::Single,
                ..
            }
            | Step::Multiply {
                rounded: Rounded::Single,
                ..
            }
            | Step::Near {
                rounded: Rounded::Single,
                ..
            } => f64::from(f32::MAX),
            _ => f64::MAX,
        };
        let number = |(_, number): (Op, Number)| number.to_f64();
        // A result beyond the greatest number is infinite, and an argument that is infinite leads to no other.
        let lower = self
            .lower
            .map(number)
            .filter(|least| *least > f64::NEG_INFINITY || least.is_nan());
        let upper = self.upper.map(number).filter(|most| *most < f64::INFINITY);
        let mut least = lower.map(|least| argument(step, at_most(least, greatest)));
        let mut most = upper.map(|most| argument(step, most.max(-greatest)));
        if matches!(step, Step::Multiply { number, .. } if *number < 0.0) {
            (least, most) = (most, least);
        }
        Bounds {
            lower: least.map(|(least, _)| (Op::Ge, Number::Float(at_most(least, f64::MAX)))),
            upper: most.map(|(_, most)| (Op::Le, Number::Float(most.max(f64::MIN)))),
            has_nan: self.has_nan,
        }
    }
}

/// The lesser of two numbers; NaN if the first is.
fn at_most(number: f64, most: f64) -> f64 {
    if number > most { most } else { number }
}

/// The least and the greatest argument that a step may turn into a number.
fn argument(step: &Step, result: f64) -> (f64, f64) {
    let around = |middle: f64, margin: f64| match margin.is_finite() {
        true => (middle - margin, middle + margin),
        false => (f64::NEG_INFINITY, f64::INFINITY),
    };
    match *step {
        Step::Integer => (result.floor() - 1.0, result.ceil() + 1.0),
        Step::Decimal { scale } => {
            around(result, 10f64.powi(-i32::from(scale)) + result.abs() * 1e-9)
        }
        // Rounding to a float moves a value by less than one step of that type; the bound itself may have been rounded by another step.
        Step::Double => (result.next_down().next_down(), result.next_up().next_up()),
        Step::Float => {
            let result = result as f32;
            (
                result.next_down().next_down().into(),
                result.next_up().next_up().into(),
            )
        }
        Step::Add { number, rounded } => {
            around(result - number, rounded.margin(result.abs() + number.abs()))
        }
        Step::Multiply { number, rounded } => around(
            result / number,
            rounded.margin(result.abs()) / number.abs() + (result / number).abs() * 1e-15,
        ),
        Step::Near { distance, rounded } => around(result, distance + rounded.margin(result.abs())),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

impl Rounded {
    /// More than what is rounded away of numbers up to this one, in several operations.
    fn margin(self, number: f64) -> f64 {
        match self {
            Rounded::Single => number * 1e-6 + 1e-44,
            Rounded::Double => number * 2e-15 + 1e-322,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holds(steps: &[Step], op: Op, value: Datum, nanos: i128) -> bool {
        let range = time_range(steps, true, op, &value).unwrap();
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

    /// Numbers of all sizes, and those where functions bend.
    fn numbers() -> impl Strategy<Value = f64> {
        prop_oneof![
            prop::num::f64::ANY,
            -1e6..1e6,
            (-40i32..40).prop_map(|power| 2f64.powi(power)),
            prop::sample::select(vec![
                0.0,
                -0.5,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::MAX,
                f64::MIN,
                f64::MIN_POSITIVE,
                f64::from(f32::MAX),
                1e-45,
            ]),
        ]
    }

    /// A step with its function.
    fn steps() -> impl Strategy<Value = Step> {
        let rounded = || prop::sample::select(vec![Rounded::Single, Rounded::Double]);
        let factors = (-30.0..30.0, any::<bool>())
            .prop_map(|(power, negative)| 10f64.powf(power) * if negative { -1.0 } else { 1.0 });
        prop_oneof![
            (-1e9..1e9, rounded()).prop_map(|(number, rounded)| Step::Add { number, rounded }),
            (factors, rounded()).prop_map(|(number, rounded)| Step::Multiply { number, rounded }),
            rounded().prop_map(|rounded| Step::Near {
                distance: 1.0,
                rounded
            }),
            Just(Step::Float),
            Just(Step::Double),
        ]
    }

    fn result(step: &Step, x: f64) -> f64 {
        let single = |x: f64| f64::from(x as f32);
        match *step {
            Step::Add { number, rounded } => match rounded {
                Rounded::Single => f64::from(x as f32 + number as f32),
                Rounded::Double => x + number,
            },
            Step::Multiply { number, rounded } => match rounded {
                Rounded::Single => f64::from(x as f32 * number as f32),
                Rounded::Double => x * number,
            },
            Step::Near { rounded, .. } => match rounded {
                Rounded::Single => single(x).ceil(),
                Rounded::Double => x.floor(),
            },
            Step::Float => single(x),
            _ => x,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn no_argument_is_lost_whose_result_passes(x in numbers(), steps in prop::collection::vec(steps(), 0..4), constant in numbers(), near in -2i32..=2, is_near: bool) {
            // In floats of 32 bits, arguments are such floats too.
            let single = |step: &Step| matches!(step, Step::Add { rounded: Rounded::Single, .. } | Step::Multiply { rounded: Rounded::Single, .. } | Step::Near { rounded: Rounded::Single, .. });
            let mut all = Vec::new();
            for step in steps {
                if single(&step) {
                    all.push(Step::Float);
                }
                all.push(step);
            }
            let of = all.iter().fold(x, |x, step| result(step, x));
            let mut constant = if is_near { of } else { constant };
            for _ in 0..near.abs() {
                constant = if near < 0 { constant.next_down() } else { constant.next_up() };
            }
            let order = of.partial_cmp(&constant).unwrap_or_else(|| of.is_nan().cmp(&constant.is_nan()));
            for op in [Op::Eq, Op::Lt, Op::Le, Op::Gt, Op::Ge] {
                let keys = number_keys(Domain::F64, &all, op, Number::Float(constant)).unwrap();
                prop_assert!(!op.holds(order) || keys.contains(Key::from_f64(x)), "{:?}: {} of {} {:?} {}", all, of, x, op, constant);
            }
        }

        #[test]
        fn whole_numbers_are_kept_through_a_division(x: u64, divisor in 1u64..1_000_000_000_000, slack in -1i64..=1) {
            let steps = [Step::Double, Step::Multiply { number: 1.0 / divisor as f64, rounded: Rounded::Double }];
            let quotient = x as f64 / divisor as f64;
            let constant = quotient + slack as f64;
            let domain = Domain::Unsigned { greatest: u64::MAX };
            for op in [Op::Eq, Op::Lt, Op::Le, Op::Gt, Op::Ge] {
                let keys = number_keys(domain, &steps, op, Number::Float(constant)).unwrap();
                let passes = op.holds(quotient.partial_cmp(&constant).unwrap());
                prop_assert!(!passes || keys.contains(Key(x)), "{} / {} {:?} {}", x, divisor, op, constant);
            }
        }
    }

    #[test]
    fn a_function_leaves_little_more_than_what_passes() {
        let millis = [
            Step::Double,
            Step::Multiply {
                number: 1e-6,
                rounded: Rounded::Double,
            },
        ];
        let domain = Domain::Unsigned { greatest: u64::MAX };
        let keys = number_keys(domain, &millis, Op::Gt, Number::Float(5.0)).unwrap();
        assert!(keys.contains(Key(5_000_000)) && !keys.contains(Key(4_999_998)));
        let less = [
            Step::Multiply {
                number: -1.0,
                rounded: Rounded::Double,
            },
            Step::Add {
                number: 10.0,
                rounded: Rounded::Double,
            },
        ];
        let keys = number_keys(Domain::F64, &less, Op::Gt, Number::Int(7)).unwrap();
        let holds = |x: f64| keys.contains(Key::from_f64(x));
        assert!(holds(2.9) && holds(-1e300) && holds(f64::NAN) && !holds(3.1));
    }

    #[test]
    fn parts_of_times_bound_them() {
        let day = 86_400_000_000_000_i128;
        let seconds = [Step::Epoch {
            unit_ns: 1_000_000_000,
        }];
        let is_in = |steps: &[Step], op, value: Datum, nanos| holds(steps, op, value, nanos);
        assert!(is_in(
            &seconds,
            Op::Ge,
            Datum::Float(100.0),
            100_000_000_000
        ));
        assert!(!is_in(
            &seconds,
            Op::Ge,
            Datum::Float(100.0),
            98_000_000_000
        ));
        let year = |op, nanos| is_in(&[Step::Year], op, Datum::Int(1971), nanos);
        assert!(year(Op::Eq, 366 * day) && year(Op::Eq, 729 * day) && !year(Op::Eq, 732 * day));
        assert!(!year(Op::Le, 732 * day) && year(Op::Gt, 730 * day) && !year(Op::Gt, 728 * day));
        let hour = [Step::Shift {
            by: Interval {
                months: 0,
                days: 0,
                micros: 3_600_000_000,
            },
        }];
        let noon = || Datum::TimestampTz(43_200_000_000);
        assert!(
            is_in(&hour, Op::Eq, noon(), 11 * HOUR) && !is_in(&hour, Op::Ge, noon(), 11 * HOUR - 1)
        );
        assert!(
            is_in(&hour, Op::Ge, noon(), infinity(1)) && is_in(&hour, Op::Le, noon(), infinity(-1))
        );
    }
}
