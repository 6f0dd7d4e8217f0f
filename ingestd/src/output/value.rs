//! Bounds on an index's value as they are typed: numbers, labels, times or truth values.

use anyhow::{Context, bail};
use loom_engine::schema::{FieldDef, FieldType};
use loom_engine::{Key, ValueKind, ValueRange};

use crate::input::parse_timestamp_ns;

/// The values between two bounds, both included; a bound that is not given leaves its end open. A bound that the
/// field cannot hold (a fraction, a number out of its range) still lets in exactly what lies between.
pub fn parse_range(
    min: Option<&str>,
    max: Option<&str>,
    field: &FieldDef,
) -> anyhow::Result<ValueRange> {
    let kind = field.ty.kind().with_context(|| {
        format!(
            "field '{}' ({}) has no order; omit --min and --max",
            field.name, field.ty
        )
    })?;
    let bound = |text: &str| parse(text, field, kind);
    let at_least = match min.map(bound).transpose()? {
        None => ValueRange::ALL,
        Some(Typed::Key(min)) => ValueRange { min, max: Key::MAX },
        Some(Typed::Number { ceil, .. }) => at_least(kind, ceil),
    };
    let at_most = match max.map(bound).transpose()? {
        None => ValueRange::ALL,
        Some(Typed::Key(max)) => ValueRange { min: Key::MIN, max },
        Some(Typed::Number { floor, .. }) => at_most(kind, floor),
    };
    Ok(ValueRange {
        min: at_least.min.max(at_most.min),
        max: at_least.max.min(at_most.max),
    })
}

/// A bound that was understood.
enum Typed {
    Key(Key),
    /// The whole numbers around it.
    Number {
        floor: i128,
        ceil: i128,
    },
}

fn parse(text: &str, field: &FieldDef, kind: ValueKind) -> anyhow::Result<Typed> {
    let text = text.trim();
    let whole = |number| Typed::Number {
        floor: number,
        ceil: number,
    };
    if let Some(number) = field.label_value(text) {
        return Ok(whole(number));
    }
    let wrong = || {
        format!(
            "'{text}' is not a value of field '{}' ({})",
            field.name, field.ty
        )
    };
    match (field.ty, kind) {
        (FieldType::TimestampNs, _) => {
            let ns = parse_timestamp_ns(text).with_context(wrong)?;
            Ok(Typed::Key(Key::from_i64(ns)))
        }
        (FieldType::Bool, _) => match text {
            "true" | "1" => Ok(whole(1)),
            "false" | "0" => Ok(whole(0)),
            _ => bail!(wrong()),
        },
        (_, ValueKind::Float) => Ok(Typed::Key(Key::from_f64(
            text.parse().ok().with_context(wrong)?,
        ))),
        _ => match text.parse() {
            Ok(number) => Ok(whole(number)),
            Err(_) => {
                let number: f64 = text.parse().ok().with_context(wrong)?;
                if number.is_nan() {
                    bail!(wrong());
                }
                Ok(Typed::Number {
                    floor: number.floor() as i128,
                    ceil: number.ceil() as i128,
                })
            }
        },
    }
}

const NOTHING: ValueRange = ValueRange {
    min: Key::MAX,
    max: Key::MIN,
};

fn at_least(kind: ValueKind, bound: i128) -> ValueRange {
    match integer(kind, bound) {
        Ok(min) => ValueRange { min, max: Key::MAX },
        Err(Side::Below) => ValueRange::ALL,
        Err(Side::Above) => NOTHING,
    }
}

fn at_most(kind: ValueKind, bound: i128) -> ValueRange {
    match integer(kind, bound) {
        Ok(max) => ValueRange { min: Key::MIN, max },
        Err(Side::Below) => NOTHING,
        Err(Side::Above) => ValueRange::ALL,
    }
}

/// Where a number lies that no key of 64 bits stands for.
enum Side {
    Below,
    Above,
}

fn integer(kind: ValueKind, number: i128) -> Result<Key, Side> {
    let key = match kind {
        ValueKind::Signed => i64::try_from(number).ok().map(Key::from_i64),
        _ => u64::try_from(number).ok().map(Key::from_u64),
    };
    key.ok_or(if number < 0 { Side::Below } else { Side::Above })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: &str, max: &str, ty: FieldType) -> ValueRange {
        parse_range(Some(min), Some(max), &FieldDef::new("v", ty)).unwrap()
    }

    #[test]
    fn bounds_let_in_exactly_what_lies_between() {
        let unsigned = |min, max| ValueRange {
            min: Key::from_u64(min),
            max: Key::from_u64(max),
        };
        assert_eq!(range("1.5", "2.5", FieldType::U64), unsigned(2, 2));
        assert_eq!(
            range("-5", "18446744073709551615", FieldType::U64),
            unsigned(0, u64::MAX)
        );
        assert!(range("-5", "-1", FieldType::U64).is_empty());
        assert!(range("1e30", "1e31", FieldType::U64).is_empty());
        assert!(range("1e30", "1e31", FieldType::I64).is_empty());
        assert_eq!(range("-1e30", "1e30", FieldType::I8), ValueRange::ALL);
        assert_eq!(
            range("-inf", "nan", FieldType::F64).max,
            Key::from_f64(f64::NAN)
        );
        let time = range("1970-01-01T00:00:01Z", "2000000000", FieldType::TimestampNs);
        assert_eq!(time.min, Key::from_i64(1_000_000_000));
        assert_eq!(time.max, Key::from_i64(2_000_000_000));
    }

    #[test]
    fn texts_that_are_not_values_are_named() {
        let field = FieldDef::new("v", FieldType::U8);
        let error = parse_range(Some("x"), None, &field)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "'x' is not a value of field 'v' (u8)");
        assert!(parse_range(None, Some("nan"), &field).is_err());
        assert!(parse_range(None, None, &FieldDef::new("v", FieldType::Utf8)).is_err());
    }
}
