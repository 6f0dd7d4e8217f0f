//! From names and literals to fields, keys and bytes. Here a filter's mistakes in types are found.
//!
//! Literals are converted exactly: `x < 3.5` over an integer is `x <= 3`, `x = 3.5` is never true, and one beyond the
//! field's range is always or never so. Over an f32 a literal is rounded to its width, unless it is written with an
//! exponent, which makes it an f64: as in DuckDB.

use super::expr::{Expr, KeyRanges, Op};
use super::grammar::{Literal, Node};
use crate::error::{Error, Result};
use crate::schema::field::{FieldDef, FieldType};
use crate::schema::index::find_field;
use crate::schema::names::{nearest, shown};
use crate::types::{Key, ValueKind, ValueRange};

/// More digits than 128 bits can hold.
const DIGITS_MAX: usize = 38;

pub(super) fn resolve(node: &Node, fields: &[FieldDef]) -> Result<Expr> {
    let each = |nodes: &[Node]| -> Result<Vec<Expr>> {
        nodes.iter().map(|node| resolve(node, fields)).collect()
    };
    Ok(match node {
        Node::All(nodes) => Expr::All(each(nodes)?),
        Node::Any(nodes) => Expr::Any(each(nodes)?),
        Node::Not(node) => resolve(node, fields)?.negated(),
        Node::Null { field } => Expr::Null {
            field: find_field(fields, field)?.0,
            is_null: true,
        },
        Node::Flag { field } => Column::find(fields, field)?.flag()?,
        Node::Compare { field, op, value } => Column::find(fields, field)?.compare(*op, value)?,
        Node::In { field, values } => Column::find(fields, field)?.one_of(values)?,
        Node::Between { field, from, to } => {
            let column = Column::find(fields, field)?;
            Expr::All(vec![
                column.compare(Op::Ge, from)?,
                column.compare(Op::Le, to)?,
            ])
        }
    })
}

/// A field that a test is about.
#[derive(Copy, Clone)]
struct Column<'a> {
    field: usize,
    def: &'a FieldDef,
}

impl<'a> Column<'a> {
    fn find(fields: &'a [FieldDef], name: &str) -> Result<Column<'a>> {
        let (field, def) = find_field(fields, name)?;
        if def.ty.fixed_bytes().is_none() {
            return Err(Error::schema(format!(
                "'{name}' is {}, of variable length; a filter tests only fields of fixed width",
                def.ty
            )));
        }
        Ok(Column { field, def })
    }

    fn flag(self) -> Result<Expr> {
        if self.def.ty != FieldType::Bool {
            return Err(Error::schema(format!(
                "'{}' is {}, not bool; compare it with something",
                self.def.name, self.def.ty
            )));
        }
        self.compare(Op::Eq, &Literal::Bool(true))
    }

    fn compare(self, op: Op, value: &Literal) -> Result<Expr> {
        let field = self.field;
        if matches!(self.def.ty, FieldType::Char(_) | FieldType::Bytes(_)) {
            return Ok(Expr::Bytes {
                field,
                op,
                bytes: self.bytes_of(value)?,
            });
        }
        Ok(Expr::Keys {
            field,
            ranges: self.keys(op, value)?,
        })
    }

    fn one_of(self, values: &[Literal]) -> Result<Expr> {
        let tests: Vec<Expr> = values
            .iter()
            .map(|value| self.compare(Op::Eq, value))
            .collect::<Result<_>>()?;
        if self.def.ty.kind().is_none() {
            return Ok(Expr::Any(tests));
        }
        let ranges = tests.iter().flat_map(|test| match test {
            Expr::Keys { ranges, .. } => ranges.ranges(),
            _ => &[],
        });
        Ok(Expr::Keys {
            field: self.field,
            ranges: KeyRanges::union(ranges.copied()),
        })
    }

    /// The keys that compare so with the literal.
    fn keys(self, op: Op, value: &Literal) -> Result<KeyRanges> {
        match (self.def.ty, value) {
            (FieldType::Bool, &Literal::Bool(value)) => {
                Ok(keys_around(op, Key::from_u64(value.into())))
            }
            (FieldType::Bool, Literal::Text(_)) | (_, Literal::Bool(_)) => {
                Err(self.mismatch(value))
            }
            (FieldType::F32, Literal::Number(text)) if !text.contains(['e', 'E']) => {
                self.float_keys(op, text.parse::<f32>())
            }
            (FieldType::F32 | FieldType::F64, Literal::Number(text)) => {
                self.float_keys(op, text.parse::<f64>())
            }
            (FieldType::F32 | FieldType::F64, Literal::Text(text)) => {
                let special = ["nan", "inf", "-inf"].contains(&text.to_ascii_lowercase().as_str());
                match text.parse::<f64>() {
                    Ok(value) if special => Ok(keys_around(op, Key::from_f64(value))),
                    _ => Err(self.mismatch(value)),
                }
            }
            (_, Literal::Number(text)) => self.integer_keys(op, text),
            (_, Literal::Text(text)) => self.label_keys(op, text),
        }
    }

    fn float_keys<F: Into<f64>, E>(self, op: Op, value: Result<F, E>) -> Result<KeyRanges> {
        match value.map(Into::into) {
            Ok(value) if value.is_finite() => Ok(keys_around(op, Key::from_f64(value))),
            _ => Err(Error::schema(format!(
                "'{}' is {}, which cannot hold so great a number",
                self.def.name, self.def.ty
            ))),
        }
    }

    fn integer_keys(self, op: Op, text: &str) -> Result<KeyRanges> {
        let Some(Decimal { floor, whole }) = Decimal::parse(text) else {
            return Err(Error::schema(format!(
                "the number {} has more than {DIGITS_MAX} digits",
                shown(text, 64)
            )));
        };
        let kind = self.def.ty.kind().unwrap_or(ValueKind::Unsigned);
        let above = floor.saturating_add(1);
        let ceil = if whole { floor } else { above };
        Ok(match op {
            Op::Lt => KeyRanges::union([at_most(kind, ceil.saturating_sub(1))]),
            Op::Le => KeyRanges::union([at_most(kind, floor)]),
            Op::Gt => KeyRanges::union([at_least(kind, above)]),
            Op::Ge => KeyRanges::union([at_least(kind, ceil)]),
            Op::Eq if !whole => KeyRanges::default(),
            Op::Eq => KeyRanges::union([at_least(kind, floor).intersect(at_most(kind, floor))]),
            Op::Ne => self.integer_keys(Op::Eq, text)?.complement(),
        })
    }

    /// A label stands for its number; a number in quotes for itself where it has no label, as SQL shows it.
    fn label_keys(self, op: Op, text: &str) -> Result<KeyRanges> {
        let FieldDef { name, labels, .. } = self.def;
        if labels.is_empty() {
            return Err(self.mismatch(&Literal::Text(text.to_owned())));
        }
        let unlabelled = || {
            text.parse()
                .ok()
                .filter(|value| !labels.contains_key(value))
        };
        let Some(value) = self.def.label_value(text).or_else(unlabelled) else {
            let near = nearest(text, labels.values().map(String::as_str));
            let hint = near
                .first()
                .map(|label| format!("; did you mean '{label}'?"));
            return Err(Error::schema(format!(
                "'{name}' has no label '{}'{}",
                shown(text, 64),
                hint.unwrap_or_default()
            )));
        };
        match op {
            Op::Eq | Op::Ne => self.integer_keys(op, &value.to_string()),
            _ => Err(Error::schema(format!(
                "labels have no order; compare '{name}' with a number instead of '{}'",
                shown(text, 64)
            ))),
        }
    }

    fn bytes_of(self, value: &Literal) -> Result<Vec<u8>> {
        match (value, self.def.ty) {
            (Literal::Text(text), FieldType::Bytes(_)) => unescape(text).ok_or_else(|| {
                Error::schema(format!(
                    "'{}': bytes are written 'ab\\x00\\xFF'; a backslash is \\x5C",
                    shown(text, 64)
                ))
            }),
            (Literal::Text(text), _) => Ok(text.clone().into_bytes()),
            _ => Err(self.mismatch(value)),
        }
    }

    fn mismatch(self, value: &Literal) -> Error {
        let value = match value {
            Literal::Number(text) => format!("the number {}", shown(text, 64)),
            Literal::Text(text) => format!("the text '{}'", shown(text, 64)),
            Literal::Bool(value) => value.to_string(),
        };
        let FieldDef { name, ty, .. } = self.def;
        let without = if ty.integer_range().is_some() {
            " without labels"
        } else {
            ""
        };
        Error::schema(format!(
            "'{name}' is {ty}{without} and cannot be compared with {value}"
        ))
    }
}

/// The keys that compare so with a key.
fn keys_around(op: Op, key: Key) -> KeyRanges {
    let below = key.0.checked_sub(1).map(|max| ValueRange {
        min: Key::MIN,
        max: Key(max),
    });
    let above = key.0.checked_add(1).map(|min| ValueRange {
        min: Key(min),
        max: Key::MAX,
    });
    let same = Some(ValueRange { min: key, max: key });
    KeyRanges::union(
        match op {
            Op::Eq => [same, None],
            Op::Ne => [below, above],
            Op::Lt => [below, None],
            Op::Le => [below, same],
            Op::Gt => [above, None],
            Op::Ge => [same, above],
        }
        .into_iter()
        .flatten(),
    )
}

fn at_least(kind: ValueKind, bound: i128) -> ValueRange {
    match integer_key(kind, bound) {
        Ok(min) => ValueRange { min, max: Key::MAX },
        Err(std::cmp::Ordering::Less) => ValueRange::ALL,
        Err(_) => ValueRange::EMPTY,
    }
}

fn at_most(kind: ValueKind, bound: i128) -> ValueRange {
    match integer_key(kind, bound) {
        Ok(max) => ValueRange { min: Key::MIN, max },
        Err(std::cmp::Ordering::Less) => ValueRange::EMPTY,
        Err(_) => ValueRange::ALL,
    }
}

/// The key of a whole number, or on which side of all keys it lies.
fn integer_key(kind: ValueKind, value: i128) -> Result<Key, std::cmp::Ordering> {
    let key = match kind {
        ValueKind::Unsigned => u64::try_from(value).ok().map(Key::from_u64),
        _ => i64::try_from(value).ok().map(Key::from_i64),
    };
    key.ok_or_else(|| value.cmp(&0))
}

/// A decimal number as far as integers can tell it apart.
struct Decimal {
    /// The greatest whole number at or below it; saturates.
    floor: i128,
    whole: bool,
}

impl Decimal {
    /// `None` where it has more than 38 digits.
    fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, saturating_exponent(exponent)),
            None => (text, 0),
        };
        let negative = mantissa.starts_with('-');
        let unsigned = mantissa.trim_start_matches(['-', '+']);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > DIGITS_MAX {
            return None;
        }
        let magnitude = if digits.is_empty() {
            0
        } else {
            digits.parse::<i128>().ok()?
        };
        let value = if negative { -magnitude } else { magnitude };
        let scale = exponent.saturating_sub(fraction.len() as i64);
        Some(Decimal::scaled(value, scale))
    }

    fn scaled(value: i128, scale: i64) -> Decimal {
        let power = u32::try_from(scale.unsigned_abs())
            .ok()
            .and_then(|n| 10i128.checked_pow(n));
        let limit = if value < 0 { i128::MIN } else { i128::MAX };
        match (value, power) {
            (0, _) => Decimal {
                floor: 0,
                whole: true,
            },
            (_, None) if scale < 0 => Decimal {
                floor: value.signum().min(0),
                whole: false,
            },
            (_, None) => Decimal {
                floor: limit,
                whole: true,
            },
            (_, Some(power)) if scale < 0 => Decimal {
                floor: value.div_euclid(power),
                whole: value % power == 0,
            },
            (_, Some(power)) => Decimal {
                floor: value.checked_mul(power).unwrap_or(limit),
                whole: true,
            },
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

/// Bytes as DuckDB writes them: `\xNN` for any byte, other characters for themselves.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let hex = part.strip_prefix('x')?.get(..2)?;
        let digits_only = hex.bytes().all(|b| b.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(hex, 16).ok().filter(|_| digits_only)?);
        bytes.extend_from_slice(part.get(3..)?.as_bytes());
    }
    Some(bytes)
}
