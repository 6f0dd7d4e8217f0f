//! Constants that callers compare with a field, and the keys of the values that pass.
//!
//! The bounds of a SQL function, those of an export and the labels of a `WHERE` clause use [`FieldDef::keys`]. Numbers in a `WHERE` clause
//! use [`Domain::keys`] below it, once the functions around the column are undone.

use super::comparison::{Domain, Op};
use super::field::{FieldDef, FieldType};
use super::number::Number;
use super::ranges::RangeSet;
use crate::types::Key;

/// A constant to compare a field with.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Constant<'a> {
    Number(Number),
    /// The text that a column shows: a label, or a number without one.
    Shown(&'a str),
    /// Text that a person types: a label, a number or a truth value.
    Typed(&'a str),
}

impl FieldDef {
    /// The keys of the values `v` of this field for which `v op constant` holds. `None` if the field cannot be compared with the constant.
    /// A text that shows two numbers equals both, and is ordered by its label.
    pub fn keys(&self, op: Op, constant: Constant<'_>) -> Option<RangeSet<Key>> {
        let domain = Domain::of(self.ty)?;
        match (op, constant) {
            (_, Constant::Number(number)) => Some(domain.keys(op, number)),
            (Op::Ne, Constant::Shown(_)) => Some(self.keys(Op::Eq, constant)?.complement()),
            (_, Constant::Shown(text)) => {
                let count = if op == Op::Eq { 2 } else { 1 };
                let numbers = self.numbers_shown_as(text).take(count);
                let keys: Vec<_> = numbers.map(|number| domain.keys(op, number)).collect();
                (!keys.is_empty()).then(|| RangeSet::union(keys))
            }
            (_, Constant::Typed(text)) => Some(domain.keys(op, self.typed(domain, text.trim())?)),
        }
    }

    fn numbers_shown_as(&self, text: &str) -> impl Iterator<Item = Number> {
        let bare = text.parse().ok();
        let bare = bare.filter(|number| !self.labels.contains_key(number));
        let numbers = self.label_value(text).into_iter().chain(bare);
        numbers.map(Number::Int)
    }

    fn typed(&self, domain: Domain, text: &str) -> Option<Number> {
        if let Some(number) = self.label_value(text) {
            return Some(Number::Int(number));
        }
        if self.ty == FieldType::Bool {
            return match text {
                "true" | "1" => Some(Number::Int(1)),
                "false" | "0" => Some(Number::Int(0)),
                _ => None,
            };
        }
        let nearest: f64 = text.parse().ok()?;
        let is_word = !text.bytes().any(|byte| byte.is_ascii_digit());
        match domain {
            Domain::Unsigned { .. } | Domain::Signed { .. } => {
                let whole = text.parse().ok().map(Number::Int);
                let exact = whole.or_else(|| Number::exact(text));
                // No integer is NaN.
                (!nearest.is_nan()).then(|| exact.unwrap_or(Number::Float(nearest)))
            }
            // Digits beyond the greatest float do not mean infinity.
            Domain::F32 | Domain::F64 if nearest.is_infinite() && !is_word => None,
            // With an exponent, the number is a float of 64 bits, as in a filter.
            Domain::F32 if !text.contains(['e', 'E']) => {
                let single: f32 = text.parse().ok()?;
                let is_held = single.is_infinite() == nearest.is_infinite();
                Some(Number::Float(if is_held { single.into() } else { nearest }))
            }
            Domain::F32 | Domain::F64 => Some(Number::Float(nearest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    const OPS: [Op; 6] = [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge];
    const TYPES: [FieldType; 11] = [
        FieldType::U8,
        FieldType::U16,
        FieldType::U32,
        FieldType::U64,
        FieldType::I8,
        FieldType::I32,
        FieldType::I64,
        FieldType::Bool,
        FieldType::TimestampNs,
        FieldType::F32,
        FieldType::F64,
    ];

    /// A value of a field.
    #[derive(Copy, Clone, Debug)]
    enum Value {
        Whole(i128),
        Float(f64),
    }

    impl Value {
        /// The value of a type that some bits give.
        fn of(ty: FieldType, bits: u64) -> Value {
            match ty {
                FieldType::F32 => Value::Float(f32::from_bits(bits as u32).into()),
                FieldType::F64 => Value::Float(f64::from_bits(bits)),
                FieldType::Bool => Value::Whole((bits & 1).into()),
                _ => {
                    let i64s = (i64::MIN.into(), i64::MAX.into());
                    let (least, greatest): (i128, i128) = ty.integer_range().unwrap_or(i64s);
                    Value::Whole(least + i128::from(bits) % (greatest - least + 1))
                }
            }
        }

        fn key(self, domain: Domain) -> Key {
            match (self, domain) {
                (Value::Float(value), _) => Key::from_f64(value),
                (Value::Whole(value), Domain::Signed { .. }) => Key::from_i64(value as i64),
                (Value::Whole(value), _) => Key::from_u64(value as u64),
            }
        }

        /// A number that equals this value, or is close to it.
        fn near(self, form: u8, step: i8) -> Number {
            let floats = |mut near: f64| {
                for _ in 0..step.unsigned_abs() % 4 {
                    near = if step < 0 {
                        near.next_down()
                    } else {
                        near.next_up()
                    };
                }
                near
            };
            match (self, form % 4) {
                (Value::Whole(value), 0) => Number::Int(value + i128::from(step)),
                (Value::Whole(value), 1) => Number::Float(floats(value as f64)),
                (Value::Whole(value), 2) => Number::Float(value as f64 + f64::from(step) / 4.0),
                (Value::Whole(value), _) => Number::Decimal {
                    value: value * 1000 + i128::from(step) * 100,
                    scale: 3,
                },
                (Value::Float(value), 0 | 1) => Number::Float(floats(value)),
                (Value::Float(value), 2) if value.abs() < 1e30 => {
                    Number::Int(value as i128 + i128::from(step % 2))
                }
                (Value::Float(value), 3) if value.abs() < 1e20 => Number::Decimal {
                    value: (value * 1e6) as i128 + i128::from(step),
                    scale: 6,
                },
                (Value::Float(_), _) => Number::Decimal {
                    value: step.into(),
                    scale: 1,
                },
            }
        }

        /// The comparison by plain arithmetic, without keys. NaN is the greatest value.
        fn compare(self, number: Number, single: bool) -> Ordering {
            match (self, number) {
                (Value::Whole(value), Number::Int(other)) => value.cmp(&other),
                (
                    Value::Whole(value),
                    Number::Decimal {
                        value: other,
                        scale,
                    },
                ) => (value * 10i128.pow(scale.into())).cmp(&other),
                (Value::Whole(value), Number::Float(other)) => {
                    whole_with_float(other, value).reverse()
                }
                (Value::Float(value), Number::Int(other)) => whole_with_float(value, other),
                (Value::Float(value), Number::Float(other)) => floats(value, other),
                // Converts as DuckDB's cast does, to the width of the field.
                (
                    Value::Float(value),
                    Number::Decimal {
                        value: other,
                        scale,
                    },
                ) => {
                    let text = format!("{other}e-{scale}");
                    match single {
                        true => floats(value, text.parse::<f32>().unwrap().into()),
                        false => floats(value, text.parse().unwrap()),
                    }
                }
            }
        }
    }

    fn floats(a: f64, b: f64) -> Ordering {
        a.partial_cmp(&b)
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    /// A float with a whole number.
    fn whole_with_float(float: f64, whole: i128) -> Ordering {
        let beyond = 2f64.powi(127);
        match float {
            _ if float.is_nan() || float >= beyond => Ordering::Greater,
            _ if float < -beyond => Ordering::Less,
            _ => (float.floor() as i128)
                .cmp(&whole)
                .then(floats(float.fract().abs(), 0.0)),
        }
    }

    /// The number as a person may type it.
    fn typed(number: Number, exponent: bool) -> String {
        match number {
            Number::Int(value) => value.to_string(),
            Number::Float(value) if exponent => format!("{value:e}"),
            Number::Float(value) => format!("{value}"),
            Number::Decimal { value, scale } if exponent => format!("{value}e-{scale}"),
            Number::Decimal { value, scale } => {
                let digits = format!("{:0>1$}", value.unsigned_abs(), usize::from(scale) + 1);
                let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
                let sign = if value < 0 { "-" } else { "" };
                format!("{sign}{whole}.{fraction}")
            }
        }
    }

    proptest! {
        #[test]
        fn keys_are_those_of_the_values_that_compare_so(
            ty in 0..TYPES.len(),
            bits: u64,
            other: u64,
            (form, step, exponent) in (0u8..8, any::<i8>(), any::<bool>()),
            special in 0u8..40,
        ) {
            let field = FieldDef::new("v", TYPES[ty]);
            let domain = Domain::of(field.ty).unwrap();
            let value = Value::of(field.ty, bits);
            // The text is near the value, near another one, or one that no field holds.
            let number = match special {
                0 => Number::Float(f64::NAN),
                1 => Number::Float(f64::INFINITY),
                2 => Number::Float(f64::NEG_INFINITY),
                3 => Number::Int(i128::MAX),
                4 => Number::Int(i128::MIN),
                5 => Number::Float(-1e300),
                _ if form < 4 => value.near(form, step),
                _ => Value::of(field.ty, other).near(form, step),
            };
            let single = field.ty == FieldType::F32;
            for op in OPS {
                let keys = field.keys(op, Constant::Number(number)).unwrap();
                let holds = op.holds(value.compare(number, single));
                prop_assert_eq!(keys.contains(value.key(domain)), holds, "{:?} {:?} {:?}", value, op, number);
            }
            if field.ty == FieldType::Bool {
                return Ok(());
            }
            let text = typed(number, exponent);
            for op in OPS {
                let keys = field.keys(op, Constant::Typed(&text));
                let is_nan = matches!(number, Number::Float(number) if number.is_nan());
                prop_assert_eq!(keys.is_none(), is_nan && domain.is_integer());
                let Some(keys) = keys else {
                    continue;
                };
                let number = match (number, domain) {
                    (Number::Float(number), _) if domain.is_integer() => {
                        Number::exact(&text).unwrap_or(Number::Float(number))
                    }
                    (Number::Int(number), Domain::F32) => Number::Float((number as f32).into()),
                    (Number::Int(number), Domain::F64) => Number::Float(number as f64),
                    // The digits of a float of 64 bits are rounded to 32, and an exponent makes 64 of them.
                    (Number::Float(_), Domain::F32) => continue,
                    (Number::Decimal { .. }, Domain::F32) if exponent => continue,
                    (number, _) => number,
                };
                prop_assert_eq!(keys, domain.keys(op, number), "'{}' {:?}", text, op);
            }
        }
    }

    #[test]
    fn a_text_is_a_label_or_a_number_that_shows_so() {
        let mut field = FieldDef::new("op", FieldType::U8);
        field.labels = [(1, "GET".to_owned()), (2, "7".to_owned())].into();
        let shown = |op, text| field.keys(op, Constant::Shown(text));
        let keys = |ranges: &[(u64, u64)]| {
            Some(RangeSet::new(
                ranges.iter().map(|&(min, max)| (Key(min), Key(max))),
            ))
        };
        assert_eq!(shown(Op::Eq, "GET"), keys(&[(1, 1)]));
        assert_eq!(shown(Op::Eq, "7"), keys(&[(2, 2), (7, 7)]));
        assert_eq!(shown(Op::Ge, "9"), keys(&[(9, 255)]));
        assert_eq!(shown(Op::Le, "7"), keys(&[(0, 2)]));
        assert_eq!(shown(Op::Ne, "GET"), keys(&[(0, 0), (2, u64::MAX)]));
        assert_eq!(shown(Op::Eq, "1"), None, "it shows as its label");
        assert_eq!(shown(Op::Eq, "SET"), None);
        let typed = |text| field.keys(Op::Le, Constant::Typed(text));
        assert_eq!(typed("GET"), keys(&[(0, 1)]));
        assert_eq!(typed("1"), keys(&[(0, 1)]));
        assert_eq!(typed(" 300 "), keys(&[(0, 255)]));
        assert_eq!(typed("-1"), keys(&[]));
        assert_eq!(typed("SET"), None);
    }

    #[test]
    fn a_text_that_is_no_value_of_the_field_has_no_keys() {
        let typed = |ty, text| FieldDef::new("v", ty).keys(Op::Ge, Constant::Typed(text));
        for (ty, texts) in [
            (FieldType::U8, &["x", "", "nan", "1e", "0x10"][..]),
            (FieldType::Bool, &["2", "0.5", "yes"]),
            (FieldType::F64, &["1e400", "-1e400", "true"]),
            (FieldType::Utf8, &["1"]),
        ] {
            for text in texts {
                assert_eq!(typed(ty, text), None, "{text}");
            }
        }
        let single = Key::from_f64(0.1f32.into());
        assert_eq!(
            typed(FieldType::F32, "0.1").unwrap().hull().unwrap().0,
            single
        );
        let bool = typed(FieldType::Bool, "true").unwrap();
        assert_eq!(bool, RangeSet::from((Key(1), Key(1))));
        let all = typed(FieldType::F64, "-inf").unwrap();
        assert!(all.contains(Key::from_f64(f64::NAN)));
        let digits = format!("0.{}1", "0".repeat(400));
        assert_eq!(typed(FieldType::U8, &digits), typed(FieldType::U8, "1"));
    }
}
