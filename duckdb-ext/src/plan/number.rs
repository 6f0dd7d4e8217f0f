//! Numbers from SQL as ranges of keys: `v >= 5.5` over a `u8` is the keys 6 to 255. Exact for integers of any width and for
//! decimals; over a float field a decimal is first rounded to the field's type, as DuckDB's own cast does.

use loom_engine::schema::FieldType;
use loom_engine::{Key, ValueRange};

use super::datum::Datum;

/// A comparison of a column (left) with a constant (right).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    /// The same comparison with its sides exchanged.
    pub fn flipped(self) -> Op {
        match self {
            Op::Eq => Op::Eq,
            Op::Lt => Op::Gt,
            Op::Le => Op::Ge,
            Op::Gt => Op::Lt,
            Op::Ge => Op::Le,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(i128),
    Decimal { value: i128, scale: u8 },
    Float(f64),
}

impl Number {
    /// None where the datum is no number.
    pub fn of(datum: &Datum) -> Option<Number> {
        match *datum {
            Datum::Bool(value) => Some(Number::Int(i128::from(value))),
            Datum::Int(value) => Some(Number::Int(value)),
            Datum::Float(value) => Some(Number::Float(value)),
            Datum::Decimal { value, scale } => Some(Number::Decimal { value, scale }),
            _ => None,
        }
    }

    /// The greatest integer at or below and the least at or above. None for NaN.
    fn neighbours(self) -> Option<(i128, i128)> {
        match self {
            Number::Int(value) => Some((value, value)),
            Number::Decimal { value, scale } => {
                let unit = 10i128.checked_pow(u32::from(scale))?;
                let floor = value.div_euclid(unit);
                Some((floor, floor + i128::from(value.rem_euclid(unit) != 0)))
            }
            // The casts saturate, which is what a bound beyond every integer field needs.
            Number::Float(value) if !value.is_nan() => {
                Some((value.floor() as i128, value.ceil() as i128))
            }
            Number::Float(_) => None,
        }
    }

    /// The greatest float at or below and the least at or above, in the type of the field.
    fn float_neighbours(self, domain: Domain) -> (f64, f64) {
        match self {
            Number::Float(value) => (value, value),
            Number::Int(value) => int_neighbours(value),
            Number::Decimal { value, scale } => {
                let text = format!("{value}e-{scale}");
                let nearest = match domain {
                    Domain::F32 => text.parse::<f32>().map(f64::from),
                    _ => text.parse::<f64>(),
                };
                let nearest = nearest.unwrap_or(f64::NAN);
                (nearest, nearest)
            }
        }
    }
}

fn int_neighbours(value: i128) -> (f64, f64) {
    const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0; // 2^127
    let nearest = value as f64;
    if nearest >= BEYOND || nearest as i128 > value {
        (nearest.next_down(), nearest)
    } else if (nearest as i128) < value {
        (nearest, nearest.next_up())
    } else {
        (nearest, nearest)
    }
}

/// The values that a field can hold, in the terms in which its keys compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    Unsigned { greatest: u64 },
    Signed { least: i64, greatest: i64 },
    F32,
    F64,
}

impl Domain {
    /// None for fields without keys.
    pub fn of(ty: FieldType) -> Option<Domain> {
        let unsigned = |greatest| Some(Domain::Unsigned { greatest });
        let signed = |least, greatest| Some(Domain::Signed { least, greatest });
        match ty {
            FieldType::U8 => unsigned(u64::from(u8::MAX)),
            FieldType::U16 => unsigned(u64::from(u16::MAX)),
            FieldType::U32 => unsigned(u64::from(u32::MAX)),
            FieldType::U64 => unsigned(u64::MAX),
            FieldType::Bool => unsigned(1),
            FieldType::I8 => signed(i64::from(i8::MIN), i64::from(i8::MAX)),
            FieldType::I16 => signed(i64::from(i16::MIN), i64::from(i16::MAX)),
            FieldType::I32 => signed(i64::from(i32::MIN), i64::from(i32::MAX)),
            FieldType::I64 | FieldType::TimestampNs => signed(i64::MIN, i64::MAX),
            FieldType::F32 => Some(Domain::F32),
            FieldType::F64 => Some(Domain::F64),
            FieldType::Char(_)
            | FieldType::Bytes(_)
            | FieldType::Utf8
            | FieldType::VarBytes
            | FieldType::Json => None,
        }
    }

    /// The keys of the values `v` for which `v op number` holds.
    pub fn keys(self, op: Op, number: Number) -> ValueRange {
        match self {
            Domain::Unsigned { greatest } => {
                let range = int_range(op, number, 0, i128::from(greatest));
                keys_of(range, |value| Key::from_u64(value as u64))
            }
            Domain::Signed { least, greatest } => {
                let range = int_range(op, number, i128::from(least), i128::from(greatest));
                keys_of(range, |value| Key::from_i64(value as i64))
            }
            Domain::F32 | Domain::F64 => float_range(op, number.float_neighbours(self)),
        }
    }
}

fn keys_of(range: Option<(i128, i128)>, key: impl Fn(i128) -> Key) -> ValueRange {
    match range {
        Some((least, greatest)) => ValueRange {
            min: key(least),
            max: key(greatest),
        },
        None => ValueRange::EMPTY,
    }
}

/// The integers from `least` to `greatest` that compare so; both ends included. None where there are none.
fn int_range(op: Op, number: Number, least: i128, greatest: i128) -> Option<(i128, i128)> {
    // NaN is greater than every number.
    let Some((floor, ceil)) = number.neighbours() else {
        return matches!(op, Op::Lt | Op::Le).then_some((least, greatest));
    };
    let (from, to) = match op {
        Op::Eq if floor == ceil => (floor, floor),
        Op::Eq => return None,
        Op::Lt => (least, ceil.saturating_sub(1)),
        Op::Le => (least, floor),
        Op::Gt => (floor.saturating_add(1), greatest),
        Op::Ge => (ceil, greatest),
    };
    let (from, to) = (from.max(least), to.min(greatest));
    (from <= to).then_some((from, to))
}

fn float_range(op: Op, (below, above): (f64, f64)) -> ValueRange {
    let (below, above) = (Key::from_f64(below), Key::from_f64(above));
    match op {
        Op::Eq if below == above => ValueRange {
            min: below,
            max: below,
        },
        Op::Eq => ValueRange::EMPTY,
        Op::Lt => match above.0.checked_sub(1) {
            Some(max) => ValueRange {
                min: Key::MIN,
                max: Key(max),
            },
            None => ValueRange::EMPTY,
        },
        Op::Le => ValueRange {
            min: Key::MIN,
            max: below,
        },
        // Nothing is greater than NaN, whose key is the greatest that a float has.
        Op::Gt if below == Key::from_f64(f64::NAN) => ValueRange::EMPTY,
        Op::Gt => ValueRange {
            min: Key(below.0.saturating_add(1)),
            max: Key::MAX,
        },
        Op::Ge => ValueRange {
            min: above,
            max: Key::MAX,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPS: [Op; 5] = [Op::Eq, Op::Lt, Op::Le, Op::Gt, Op::Ge];

    fn holds(op: Op, order: std::cmp::Ordering) -> bool {
        match op {
            Op::Eq => order.is_eq(),
            Op::Lt => order.is_lt(),
            Op::Le => order.is_le(),
            Op::Gt => order.is_gt(),
            Op::Ge => order.is_ge(),
        }
    }

    /// NaN is the greatest and equal to itself, as in DuckDB.
    fn compare(a: f64, b: f64) -> std::cmp::Ordering {
        a.partial_cmp(&b)
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    proptest! {
        #[test]
        fn integers_compare_with_floats_as_floats(value: i8, half in -300i32..300, special in 0u8..8) {
            let number = match special { 0 => f64::NAN, 1 => f64::INFINITY, 2 => f64::NEG_INFINITY, 3 => 1e40, _ => f64::from(half) / 2.0 };
            let domain = Domain::of(FieldType::I8).unwrap();
            for op in OPS {
                let range = domain.keys(op, Number::Float(number));
                prop_assert_eq!(range.contains(Key::from_i64(i64::from(value))), holds(op, compare(f64::from(value), number)), "{} {:?} {}", value, op, number);
            }
        }

        #[test]
        fn integers_compare_with_decimals_exactly(value: u64, near in -3000i128..3000, scale in 0u8..5) {
            let unit = 10i128.pow(u32::from(scale));
            let decimal = i128::from(value) * unit + near;
            let domain = Domain::of(FieldType::U64).unwrap();
            for op in OPS {
                let range = domain.keys(op, Number::Decimal { value: decimal, scale });
                prop_assert_eq!(range.contains(Key::from_u64(value)), holds(op, (i128::from(value) * unit).cmp(&decimal)));
            }
        }

        #[test]
        fn floats_compare_with_integers_exactly(value in -1i128 << 70..1i128 << 70, step in -3i32..=3) {
            // Values near the bound, each a whole number, so that the comparison of integers is the truth.
            let mut probe = value as f64;
            for _ in 0..step.abs() {
                probe = if step < 0 { probe.next_down() } else { probe.next_up() };
            }
            prop_assume!(probe.fract() == 0.0);
            for op in OPS {
                let range = Domain::F64.keys(op, Number::Int(value));
                prop_assert_eq!(range.contains(Key::from_f64(probe)), holds(op, (probe as i128).cmp(&value)));
            }
        }

        #[test]
        fn floats_compare_with_floats(value in prop::num::f64::ANY, number in prop::num::f64::ANY) {
            for op in OPS {
                prop_assert_eq!(Domain::F64.keys(op, Number::Float(number)).contains(Key::from_f64(value)), holds(op, compare(value, number)));
                prop_assert_eq!(Domain::F64.keys(op, Number::Float(value)).contains(Key::from_f64(value)), holds(op, std::cmp::Ordering::Equal));
            }
        }
    }

    #[test]
    fn nan_is_the_greatest() {
        let nan = Key::from_f64(f64::NAN);
        assert!(Domain::F64.keys(Op::Ge, Number::Float(5.0)).contains(nan));
        assert!(
            Domain::F64
                .keys(Op::Gt, Number::Float(f64::INFINITY))
                .contains(nan)
        );
        assert!(
            !Domain::F64
                .keys(Op::Lt, Number::Float(f64::NAN))
                .contains(nan)
        );
        assert!(Domain::F64.keys(Op::Gt, Number::Float(f64::NAN)).is_empty());
    }

    #[test]
    fn a_decimal_is_rounded_to_the_fields_float_type() {
        let tenth = Number::Decimal { value: 1, scale: 1 };
        assert!(Domain::F64.keys(Op::Eq, tenth).contains(Key::from_f64(0.1)));
        assert!(
            Domain::F32
                .keys(Op::Le, tenth)
                .contains(Key::from_f64(f64::from(0.1f32)))
        );
        assert!(
            !Domain::F32
                .keys(Op::Le, Number::Float(0.1))
                .contains(Key::from_f64(f64::from(0.1f32)))
        );
    }

    #[test]
    fn a_bound_beyond_the_field_is_empty_or_everything() {
        let domain = Domain::of(FieldType::U8).unwrap();
        assert!(domain.keys(Op::Gt, Number::Int(255)).is_empty());
        assert!(domain.keys(Op::Eq, Number::Int(-1)).is_empty());
        let all = ValueRange {
            min: Key(0),
            max: Key(255),
        };
        assert_eq!(domain.keys(Op::Lt, Number::Int(i128::MAX)), all);
        assert_eq!(domain.keys(Op::Ge, Number::Int(i128::MIN)), all);
    }
}
