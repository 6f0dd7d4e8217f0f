//! Resolves names and literals to fields, keys and bytes, and reports type errors.
//!
//! Literals are converted exactly: `x < 3.5` over an integer is `x <= 3`, `x = 3.5` never holds, and a literal beyond the field's range
//! makes the comparison always or never true. Over an f32 a literal is rounded to its width, unless it has an exponent, which makes it an
//! f64, as in DuckDB.

use super::expr::Expr;
use super::grammar::{Literal, Node};
use crate::error::{Error, Result};
use crate::format::Case;
use crate::schema::comparison::{Domain, Op};
use crate::schema::field::{FieldDef, FieldType, find_field};
use crate::schema::names::{is_reserved_field, nearest, shown};
use crate::schema::number::{DIGITS_MAX, Number};
use crate::schema::ranges::RangeSet;
use crate::types::Key;

pub(super) fn resolve(node: &Node, fields: &[FieldDef]) -> Result<Expr> {
    let each = |nodes: &[Node]| -> Result<Vec<Expr>> {
        nodes.iter().map(|node| resolve(node, fields)).collect()
    };
    Ok(match node {
        Node::All(nodes) => Expr::All(each(nodes)?),
        Node::Any(nodes) => Expr::Any(each(nodes)?),
        Node::Not(node) => resolve(node, fields)?.negated(),
        Node::Null { field } => Expr::Null {
            field: Column::find(fields, field)?.field,
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
        Node::Like { field, pattern } => Column::find(fields, field)?.like(pattern)?,
        Node::Contains { field, part } => Column::find(fields, field)?.contains(part)?,
    })
}

/// The field that is tested.
#[derive(Copy, Clone)]
struct Column<'a> {
    field: usize,
    def: &'a FieldDef,
}

impl<'a> Column<'a> {
    fn find(fields: &'a [FieldDef], name: &str) -> Result<Column<'a>> {
        let (field, def) = find_field(fields, name).map_err(|error| match is_reserved_field(name) {
            true => Error::schema(format!(
                "'{}' is not a field, and a filter tests fields; bound times with t_from, t_to or last",
                shown(name, 64)
            )),
            false => error,
        })?;
        Ok(Column { field, def })
    }

    fn flag(self) -> Result<Expr> {
        if self.def.ty != FieldType::Bool {
            return Err(Error::schema(format!(
                "'{}' is {}, not bool; compare it with a value",
                self.def.name, self.def.ty
            )));
        }
        self.compare(Op::Eq, &Literal::Bool(true))
    }

    fn compare(self, op: Op, value: &Literal) -> Result<Expr> {
        let field = self.field;
        Ok(match self.def.ty.kind() {
            None => Expr::Bytes {
                field,
                op,
                bytes: self.bytes_of(value)?,
            },
            // All keys of the kind are used, so NOT is the complement.
            Some(kind) => Expr::Keys {
                field,
                keys: Domain::of_kind(kind).keys(op, self.number(op, value)?),
            },
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
        let keys = tests.into_iter().filter_map(|test| match test {
            Expr::Keys { keys, .. } => Some(keys),
            _ => None,
        });
        Ok(Expr::Keys {
            field: self.field,
            keys: RangeSet::<Key>::union(keys),
        })
    }

    /// Whether a text is equal to the pattern, or begins with what stands before its `%`.
    fn like(self, pattern: &str) -> Result<Expr> {
        self.require_text("LIKE")?;
        let (start, op) = match pattern.strip_suffix('%') {
            Some(start) => (start, Op::Ge),
            None => (pattern, Op::Eq),
        };
        if start.contains(['%', '_']) {
            return Err(Error::schema(format!(
                "LIKE '{}' has wildcards in its middle; a filter takes one % at the end, such as 'abc%', or CONTAINS 'abc'",
                shown(pattern, 64)
            )));
        }
        let compared = |op, bytes| Expr::Bytes {
            field: self.field,
            op,
            bytes,
        };
        let from = compared(op, start.as_bytes().to_vec());
        // UTF-8 has no byte 255, so the last byte can grow.
        let mut after = start.as_bytes().to_vec();
        match after.last_mut().filter(|_| op == Op::Ge) {
            Some(last) => {
                *last += 1;
                Ok(Expr::All(vec![from, compared(Op::Lt, after)]))
            }
            None => Ok(from),
        }
    }

    fn contains(self, part: &str) -> Result<Expr> {
        self.require_text("CONTAINS")?;
        Ok(Expr::Contains {
            field: self.field,
            part: part.to_owned(),
            case: Case::Sensitive,
            is_in: true,
        })
    }

    fn require_text(self, what: &str) -> Result<()> {
        let FieldDef { name, ty, .. } = self.def;
        match ty {
            FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => Ok(()),
            _ => Err(Error::schema(format!(
                "'{name}' is {ty}, and {what} takes a text; use comparisons or IN"
            ))),
        }
    }

    /// The number that the field is compared with.
    fn number(self, op: Op, value: &Literal) -> Result<Number> {
        match (self.def.ty, value) {
            (FieldType::Bool, &Literal::Bool(value)) => Ok(Number::Int(value.into())),
            (FieldType::Bool, Literal::Text(_)) | (_, Literal::Bool(_)) => {
                Err(self.mismatch(value))
            }
            (FieldType::F32, Literal::Number(text)) if !text.contains(['e', 'E']) => {
                self.float(text.parse::<f32>())
            }
            (FieldType::F32 | FieldType::F64, Literal::Number(text)) => {
                self.float(text.parse::<f64>())
            }
            (FieldType::F32 | FieldType::F64, Literal::Text(text)) => {
                let special = ["nan", "inf", "-inf"].contains(&text.to_ascii_lowercase().as_str());
                match text.parse::<f64>() {
                    Ok(value) if special => Ok(Number::Float(value)),
                    _ => Err(self.mismatch(value)),
                }
            }
            (_, Literal::Number(text)) => Number::exact(text).ok_or_else(|| {
                Error::schema(format!(
                    "the number {} has more than {DIGITS_MAX} digits",
                    shown(text, 64)
                ))
            }),
            (_, Literal::Text(text)) => self.label(op, text),
        }
    }

    fn float<F: Into<f64>, E>(self, value: Result<F, E>) -> Result<Number> {
        match value.map(Into::into) {
            Ok(value) if value.is_finite() => Ok(Number::Float(value)),
            _ => Err(Error::schema(format!(
                "'{}' is {}, which cannot hold a number of this size",
                self.def.name, self.def.ty
            ))),
        }
    }

    /// A label stands for its number; a number in quotes without a label stands for itself, as SQL shows it.
    fn label(self, op: Op, text: &str) -> Result<Number> {
        let FieldDef { name, labels, .. } = self.def;
        if labels.is_empty() {
            return Err(self.mismatch(&Literal::Text(text.to_owned())));
        }
        let Some(value) = self.def.value_of_text(text) else {
            let near = nearest(text, labels.values().map(String::as_str));
            let hint = match near.first() {
                Some(label) => format!("; did you mean '{label}'?"),
                None => String::new(),
            };
            return Err(Error::schema(format!(
                "'{name}' has no label '{}'{}",
                shown(text, 64),
                hint
            )));
        };
        match op {
            Op::Eq | Op::Ne => Ok(Number::Int(value)),
            _ => Err(Error::schema(format!(
                "labels have no order; compare '{name}' with a number instead of '{}'",
                shown(text, 64)
            ))),
        }
    }

    fn bytes_of(self, value: &Literal) -> Result<Vec<u8>> {
        match (value, self.def.ty) {
            (Literal::Text(text), FieldType::Bytes(_) | FieldType::VarBytes) => unescape(text)
                .ok_or_else(|| {
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

/// Parses bytes as DuckDB writes them: `\xNN` for any byte, other characters for themselves.
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
