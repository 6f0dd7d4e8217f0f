//! A number as somebody wrote it: exact where it is whole, so that bin edges of 64-bit integers are.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::types::{Key, ValueKind};

/// A whole number between `i64::MIN` and `u64::MAX`, or a float.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// `Int` where a field could hold the value, else the nearest float.
    pub fn from_i128(value: i128) -> Number {
        if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value) {
            Number::Int(value)
        } else {
            Number::Float(value as f64)
        }
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    pub fn is_finite(self) -> bool {
        self.to_f64().is_finite()
    }

    /// The least whole number at or above a finite value; saturates at 128 bits.
    pub fn ceil(self) -> i128 {
        match self {
            Number::Int(value) => value,
            Number::Float(value) => value.ceil() as i128,
        }
    }

    /// The key of the least value of `kind` at or above this number (floats: of the nearest); `None` where there is
    /// none.
    pub fn key(self, kind: ValueKind) -> Option<Key> {
        match kind {
            ValueKind::Unsigned => u64::try_from(self.ceil()).ok().map(Key::from_u64),
            ValueKind::Signed => i64::try_from(self.ceil()).ok().map(Key::from_i64),
            ValueKind::Float => Some(Key::from_f64(self.to_f64())),
        }
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
            Number::Float(value) => to.serialize_f64(value),
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
