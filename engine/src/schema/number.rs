//! A number from a configuration, a filter or SQL: exact if it is whole or a decimal.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::types::{Key, ValueKind};

/// The most digits that 128 bits can always hold.
pub(super) const DIGITS_MAX: usize = 38;

#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Number {
    Int(i128),
    /// `value / 10^scale`; the scale is at most 38.
    Decimal {
        value: i128,
        scale: u8,
    },
    Float(f64),
}

impl Number {
    /// `Int` if a field can hold the value, else the nearest float.
    pub fn from_i128(value: i128) -> Number {
        if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value) {
            Number::Int(value)
        } else {
            Number::Float(value as f64)
        }
    }

    /// Parses a literal such as `-1.5e3` for comparison with integers. It is exact within 128 bits and the nearest float beyond them;
    /// `None` if it has more than 38 digits.
    pub fn exact(text: &str) -> Option<Number> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, saturating_exponent(exponent)),
            None => (text, 0),
        };
        let unsigned = mantissa.trim_start_matches(['-', '+']);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        let digits = match digits.trim_start_matches('0') {
            "" => return Some(Number::Int(0)),
            digits if digits.len() > DIGITS_MAX => return None,
            digits => digits,
        };
        let magnitude: i128 = digits.parse().ok()?;
        let value = if mantissa.starts_with('-') {
            -magnitude
        } else {
            magnitude
        };
        let exponent = exponent.saturating_sub(fraction.len() as i64);
        if exponent == 0 {
            return Some(Number::Int(value));
        }
        if let Ok(scale) = u8::try_from(exponent.saturating_neg())
            && usize::from(scale) <= DIGITS_MAX
        {
            return Some(Number::Decimal { value, scale });
        }
        let power = u32::try_from(exponent).ok();
        let power = power.and_then(|exponent| 10i128.checked_pow(exponent));
        if let Some(product) = power.and_then(|power| value.checked_mul(power)) {
            return Some(Number::Int(product));
        }
        let nearest: f64 = text.parse().ok()?;
        Some(match nearest == 0.0 {
            // The value is so close to zero that this one compares with every integer in the same way.
            true => Number::Decimal {
                value: value.signum(),
                scale: DIGITS_MAX as u8,
            },
            false => Number::Float(nearest),
        })
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Decimal { .. } => self.nearest_floats(false).0,
            Number::Float(value) => value,
        }
    }

    pub fn is_finite(self) -> bool {
        self.to_f64().is_finite()
    }

    /// The greatest integer at or below, and the least at or above; they saturate at 128 bits. `None` for NaN.
    pub fn nearest_integers(self) -> Option<(i128, i128)> {
        match self {
            Number::Int(value) => Some((value, value)),
            Number::Decimal { value, scale } => {
                let unit = 10i128.checked_pow(scale.into())?;
                let floor = value.div_euclid(unit);
                Some((floor, floor + i128::from(value.rem_euclid(unit) != 0)))
            }
            Number::Float(value) if value.is_nan() => None,
            Number::Float(value) => Some((value.floor() as i128, value.ceil() as i128)),
        }
    }

    /// The greatest float at or below, and the least at or above. A decimal is first rounded to a float, of 32 bits if `single`.
    pub(super) fn nearest_floats(self, single: bool) -> (f64, f64) {
        match self {
            Number::Int(value) => floats_around(value),
            Number::Decimal { value, scale } => {
                let text = format!("{value}e-{scale}");
                let nearest = match single {
                    true => text.parse::<f32>().map(f64::from),
                    false => text.parse::<f64>(),
                };
                let nearest = nearest.expect("digits and an exponent are a float");
                (nearest, nearest)
            }
            Number::Float(value) => (value, value),
        }
    }

    /// The key of the least value of `kind` at or above this number, or for floats of the nearest; `None` if there is none.
    pub fn key(self, kind: ValueKind) -> Option<Key> {
        let ceil = || Some(self.nearest_integers()?.1);
        match kind {
            ValueKind::Unsigned => u64::try_from(ceil()?).ok().map(Key::from_u64),
            ValueKind::Signed => i64::try_from(ceil()?).ok().map(Key::from_i64),
            ValueKind::Float => Some(Key::from_f64(self.to_f64())),
        }
    }
}

fn saturating_exponent(text: &str) -> i64 {
    match text.parse::<i64>() {
        Ok(exponent) => exponent,
        Err(_) if text.starts_with('-') => i64::MIN,
        Err(_) => i64::MAX,
    }
}

fn floats_around(value: i128) -> (f64, f64) {
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

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::Int(value.into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Int(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Float(value)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(value) => value.fmt(f),
            Number::Decimal { .. } => self.to_f64().fmt(f),
            Number::Float(value) => value.fmt(f),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Number::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => to.serialize_i64(value),
                (_, Ok(value)) => to.serialize_u64(value),
                _ => to.serialize_f64(value as f64),
            },
            _ => to.serialize_f64(self.to_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        from.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(value.into())
    }

    fn visit_i128<E>(self, value: i128) -> Result<Number, E> {
        Ok(Number::from_i128(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Number, E> {
        Ok(i128::try_from(value).map_or(Number::Float(value as f64), Number::from_i128))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        Ok(Number::Float(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn whole_numbers_of_64_bits_are_exact() {
        for json in [
            "-9223372036854775808",
            "18446744073709551615",
            "9007199254740993",
            "0",
        ] {
            let number: Number = serde_json::from_str(json).unwrap();
            assert!(matches!(number, Number::Int(_)), "{json}");
            assert_eq!(serde_json::to_string(&number).unwrap(), json);
            let table = format!("x = {json}");
            let table: BTreeMap<String, Number> = toml::from_str(&table).unwrap();
            assert_eq!(table["x"], number);
        }
        assert_eq!(Number::from_i128(1 << 64), Number::Float(2f64.powi(64)));
    }

    #[test]
    fn a_literal_beyond_128_bits_is_the_nearest_float() {
        for (text, wanted) in [
            ("1e308", 1e308),
            ("-1.5e200", -1.5e200),
            ("1e-300", 1e-300),
            ("-12.5e-100", -12.5e-100),
            ("5e-324", 5e-324),
        ] {
            assert_eq!(Number::exact(text), Some(Number::Float(wanted)), "{text}");
        }
        assert_eq!(Number::exact("1e38"), Some(Number::Int(10i128.pow(38))));
        let least = Number::Decimal {
            value: 1,
            scale: 38,
        };
        assert_eq!(Number::exact("1e-38"), Some(least));
        assert_eq!(Number::exact("0e999"), Some(Number::Int(0)));
        let odd = (1 << 53) + 1;
        assert_eq!(Number::exact(&odd.to_string()), Some(Number::Int(odd)));
        let beyond = Number::exact("-1e99999999999999999999");
        assert_eq!(beyond, Some(Number::Float(f64::NEG_INFINITY)));
        assert_eq!(Number::exact("1e-99999999999999999999"), Some(least));
    }

    #[test]
    fn keys_are_rounded_up_for_integers_and_to_the_nearest_for_floats() {
        let key = |number: f64, kind| Number::Float(number).key(kind);
        assert_eq!(key(1.25, ValueKind::Unsigned), Some(Key::from_u64(2)));
        assert_eq!(key(-1.25, ValueKind::Signed), Some(Key::from_i64(-1)));
        assert_eq!(key(-0.5, ValueKind::Unsigned), Some(Key::from_u64(0)));
        assert_eq!(key(-1.0, ValueKind::Unsigned), None);
        assert_eq!(key(1e30, ValueKind::Signed), None);
        assert_eq!(key(-0.0, ValueKind::Float), Some(Key::from_f64(0.0)));
        let odd = Number::Int((1 << 53) + 1);
        assert_eq!(
            odd.key(ValueKind::Float),
            Some(Key::from_f64(9007199254740992.0))
        );
    }
}
