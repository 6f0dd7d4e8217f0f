//! Comparisons of a field with a number as sets of keys: `v >= 5.5` over a `u8` is the keys 6 to 255. Filters of indexes, `WHERE` clauses
//! and the bounds of a query all use this.

use super::field::FieldType;
use super::number::Number;
use super::ranges::RangeSet;
use crate::types::{Key, ValueKind, ValueRange};

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
    /// The comparison with its sides swapped.
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

    /// Whether the comparison holds for two values in this order.
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

/// The values that are compared, in the order of their keys.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Domain {
    /// Unsigned integers from 0 to `greatest`.
    Unsigned {
        greatest: u64,
    },
    Signed {
        least: i64,
        greatest: i64,
    },
    /// 32-bit floats. A decimal is rounded to this width before it is compared, as DuckDB's cast does.
    F32,
    F64,
}

impl Domain {
    /// The values of a field; `None` for fields without keys.
    pub fn of(ty: FieldType) -> Option<Domain> {
        Some(match (ty, ty.integer_range(), ty.kind()?) {
            (FieldType::Bool, ..) => Domain::Unsigned { greatest: 1 },
            (FieldType::F32, ..) => Domain::F32,
            (_, Some((_, greatest)), ValueKind::Unsigned) => Domain::Unsigned {
                greatest: greatest as u64,
            },
            (_, Some((least, greatest)), ValueKind::Signed) => Domain::Signed {
                least: least as i64,
                greatest: greatest as i64,
            },
            (_, _, kind) => Domain::of_kind(kind),
        })
    }

    /// All values that keys of a kind stand for.
    pub fn of_kind(kind: ValueKind) -> Domain {
        match kind {
            ValueKind::Unsigned => Domain::Unsigned { greatest: u64::MAX },
            ValueKind::Signed => Domain::Signed {
                least: i64::MIN,
                greatest: i64::MAX,
            },
            ValueKind::Float => Domain::F64,
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Domain::Unsigned { .. } | Domain::Signed { .. })
    }

    /// The keys of the values `v` for which `v op number` holds. NaN is greater than every number and equal to itself.
    pub fn keys(self, op: Op, number: Number) -> RangeSet<Key> {
        let range = match (op, self) {
            (Op::Ne, _) => return self.keys(Op::Eq, number).complement(),
            (_, Domain::Unsigned { greatest }) => {
                let whole = integers(op, number, 0, greatest.into());
                whole.map(|(least, greatest)| ValueRange {
                    min: Key::from_u64(least as u64),
                    max: Key::from_u64(greatest as u64),
                })
            }
            (_, Domain::Signed { least, greatest }) => {
                let whole = integers(op, number, least.into(), greatest.into());
                whole.map(|(least, greatest)| ValueRange {
                    min: Key::from_i64(least as i64),
                    max: Key::from_i64(greatest as i64),
                })
            }
            (_, Domain::F32) => floats(op, number.nearest_floats(true)),
            (_, Domain::F64) => floats(op, number.nearest_floats(false)),
        };
        range.map_or_else(RangeSet::none, RangeSet::from)
    }
}

/// The integers from `least` to `greatest` that pass, both ends included.
fn integers(op: Op, number: Number, least: i128, greatest: i128) -> Option<(i128, i128)> {
    let Some((floor, ceil)) = number.nearest_integers() else {
        return matches!(op, Op::Lt | Op::Le).then_some((least, greatest));
    };
    let (from, to) = match op {
        Op::Eq if floor == ceil => (floor, floor),
        Op::Eq | Op::Ne => return None,
        Op::Lt => (least, ceil.saturating_sub(1)),
        Op::Le => (least, floor),
        Op::Gt => (floor.saturating_add(1), greatest),
        Op::Ge => (ceil, greatest),
    };
    let (from, to) = (from.max(least), to.min(greatest));
    (from <= to).then_some((from, to))
}

/// The floats that pass a comparison with a number between two floats.
fn floats(op: Op, (below, above): (f64, f64)) -> Option<ValueRange> {
    let (below, above) = (Key::from_f64(below), Key::from_f64(above));
    let (min, max) = match op {
        Op::Eq if below == above => (below, below),
        Op::Eq | Op::Ne => return None,
        Op::Lt => (Key::MIN, Key(above.0.checked_sub(1)?)),
        Op::Le => (Key::MIN, below),
        // Nothing is greater than NaN, which has the greatest key of a float.
        Op::Gt if below == Key::from_f64(f64::NAN) => return None,
        Op::Gt => (Key(below.0.checked_add(1)?), Key::MAX),
        Op::Ge => (above, Key::MAX),
    };
    Some(ValueRange { min, max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPS: [Op; 6] = [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge];

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
                let keys = domain.keys(op, Number::Float(number));
                prop_assert_eq!(keys.contains(Key::from_i64(i64::from(value))), op.holds(compare(f64::from(value), number)), "{} {:?} {}", value, op, number);
            }
        }

        #[test]
        fn integers_compare_with_decimals_exactly(value: u64, near in -3000i128..3000, scale in 0u8..5) {
            let unit = 10i128.pow(u32::from(scale));
            let decimal = i128::from(value) * unit + near;
            let domain = Domain::of(FieldType::U64).unwrap();
            for op in OPS {
                let keys = domain.keys(op, Number::Decimal { value: decimal, scale });
                prop_assert_eq!(keys.contains(Key::from_u64(value)), op.holds((i128::from(value) * unit).cmp(&decimal)));
            }
        }

        #[test]
        fn floats_compare_with_integers_exactly(value in -1i128 << 70..1i128 << 70, step in -3i32..=3) {
            // The values are near the bound and whole, so comparing integers is the oracle.
            let mut probe = value as f64;
            for _ in 0..step.abs() {
                probe = if step < 0 { probe.next_down() } else { probe.next_up() };
            }
            prop_assume!(probe.fract() == 0.0);
            for op in OPS {
                let keys = Domain::F64.keys(op, Number::Int(value));
                prop_assert_eq!(keys.contains(Key::from_f64(probe)), op.holds((probe as i128).cmp(&value)));
            }
        }

        #[test]
        fn floats_compare_with_floats(value in prop::num::f64::ANY, number in prop::num::f64::ANY) {
            for op in OPS {
                prop_assert_eq!(Domain::F64.keys(op, Number::Float(number)).contains(Key::from_f64(value)), op.holds(compare(value, number)));
                prop_assert_eq!(Domain::F64.keys(op, Number::Float(value)).contains(Key::from_f64(value)), op.holds(std::cmp::Ordering::Equal));
            }
        }
    }

    #[test]
    fn nan_is_the_greatest() {
        let nan = Key::from_f64(f64::NAN);
        let keys = |op, number| Domain::F64.keys(op, Number::Float(number));
        assert!(keys(Op::Ge, 5.0).contains(nan));
        assert!(keys(Op::Gt, f64::INFINITY).contains(nan));
        assert!(!keys(Op::Lt, f64::NAN).contains(nan));
        assert!(keys(Op::Gt, f64::NAN).is_empty());
    }

    #[test]
    fn a_decimal_is_rounded_to_the_fields_float_type() {
        let tenth = Number::Decimal { value: 1, scale: 1 };
        let single = Key::from_f64(f64::from(0.1f32));
        assert!(Domain::F64.keys(Op::Eq, tenth).contains(Key::from_f64(0.1)));
        assert!(Domain::F32.keys(Op::Le, tenth).contains(single));
        let double = Number::Float(0.1);
        assert!(!Domain::F32.keys(Op::Le, double).contains(single));
    }

    #[test]
    fn a_bound_beyond_the_field_is_empty_or_everything() {
        let domain = Domain::of(FieldType::U8).unwrap();
        assert!(domain.keys(Op::Gt, Number::Int(255)).is_empty());
        assert!(domain.keys(Op::Eq, Number::Int(-1)).is_empty());
        let all = RangeSet::from((Key(0), Key(255)));
        assert_eq!(domain.keys(Op::Lt, Number::Int(i128::MAX)), all);
        assert_eq!(domain.keys(Op::Ge, Number::Int(i128::MIN)), all);
    }

    #[test]
    fn the_domain_of_a_field_holds_its_values() {
        let signed = |least, greatest| Some(Domain::Signed { least, greatest });
        assert_eq!(Domain::of(FieldType::I16), signed(-32768, 32767));
        assert_eq!(
            Domain::of(FieldType::TimestampNs),
            signed(i64::MIN, i64::MAX)
        );
        let bool = Some(Domain::Unsigned { greatest: 1 });
        assert_eq!(Domain::of(FieldType::Bool), bool);
        assert_eq!(Domain::of(FieldType::F64), Some(Domain::F64));
        assert_eq!(Domain::of(FieldType::Char(3)), None);
    }
}
