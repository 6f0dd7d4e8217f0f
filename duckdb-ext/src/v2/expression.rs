//! Converts bound expressions of C API v2 to clauses. Anything that is not understood becomes [`Clause::Opaque`]. No error here can fail a
//! query, because DuckDB checks every row itself.

use duckdb_neo::expression::{Expression, ExpressionType};
use duckdb_neo::logical_type::LogicalTypeID;
use duckdb_neo::types::DecimalSignature;
use loom_engine::schema::Op;

use super::value::datum;
use crate::plan::clause::{Clause, Step, Term};
use crate::plan::datum::{Datum, Interval};

/// The deepest tree that is read, because the walk is recursive.
const DEPTH_MAX: usize = 64;
/// The length up to which every list is read.
const CHILDREN_LEAST: u64 = 1000;
/// An interrupt is checked once in this many children.
const CHILDREN_POLL: usize = 64;

/// Reads predicates over one scan.
pub struct Reader<'a> {
    /// Maps a reference to its declared column.
    pub column: &'a dyn Fn(usize) -> Option<usize>,
    /// About how many records the scan would read without pruning. To reach a child of an expression, DuckDB walks from the first one, so
    /// reading a list takes a number of steps that is the square of its length. A list is read if these are fewer than the records.
    pub records: u64,
    /// Whether the user has interrupted the query.
    pub stop: &'a dyn Fn() -> bool,
}

impl Reader<'_> {
    /// Reads one predicate, as far as it can be read.
    pub fn read(&self, expression: &Expression<'_>) -> Clause {
        self.filter(expression, 0).unwrap_or(Clause::Opaque)
    }

    fn children_max(&self) -> usize {
        self.records.isqrt().max(CHILDREN_LEAST) as usize
    }

    /// The clause; `None` if the expression is not understood.
    fn filter(&self, expression: &Expression<'_>, depth: usize) -> Option<Clause> {
        if depth > DEPTH_MAX {
            return None;
        }
        let parts = || -> Option<Vec<Clause>> {
            let part = |child: &Expression<'_>| self.filter(child, depth + 1);
            self.children(expression, 0, |child| {
                Some(part(child).unwrap_or(Clause::Opaque))
            })
        };
        match expression.expression_type().ok()? {
            ExpressionType::ConjunctionAnd => parts().map(Clause::And),
            ExpressionType::ConjunctionOr => parts().map(Clause::Or),
            ExpressionType::CompareEqual | ExpressionType::CompareNotDistinctFrom => {
                self.comparison(expression, Op::Eq)
            }
            ExpressionType::CompareLessThan => self.comparison(expression, Op::Lt),
            ExpressionType::CompareLessThanOrEqualTo => self.comparison(expression, Op::Le),
            ExpressionType::CompareGreaterThan => self.comparison(expression, Op::Gt),
            ExpressionType::CompareGreaterThanOrEqualTo => self.comparison(expression, Op::Ge),
            ExpressionType::CompareBetween => self.between(expression),
            ExpressionType::CompareIn => self.one_of(expression),
            ExpressionType::BoundFunction => self.contained(expression),
            ExpressionType::BoundColumnRef => self.flag(expression, true),
            ExpressionType::OperatorNot => self.flag(&expression.child(0).ok()?, false),
            _ => None,
        }
    }

    /// The children from `first` on; `None` if there are too many.
    fn children<T>(
        &self,
        expression: &Expression<'_>,
        first: usize,
        read: impl Fn(&Expression<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = expression.child_count().ok()?;
        if count > self.children_max() {
            return None;
        }
        (first..count)
            .map(|at| {
                if at % CHILDREN_POLL == 0 && (self.stop)() {
                    return None;
                }
                read(&expression.child(at).ok()?)
            })
            .collect()
    }

    /// A boolean column used as a condition.
    fn flag(&self, expression: &Expression<'_>, value: bool) -> Option<Clause> {
        if expression.expression_type().ok()? != ExpressionType::BoundColumnRef {
            return None;
        }
        Some(Clause::compare(
            self.term(expression)?,
            Op::Eq,
            Datum::Bool(value),
        ))
    }

    fn comparison(&self, expression: &Expression<'_>, op: Op) -> Option<Clause> {
        let (left, right) = (expression.child(0).ok()?, expression.child(1).ok()?);
        let is_distinct_from =
            expression.expression_type().ok()? == ExpressionType::CompareNotDistinctFrom;
        let (term, op, value) = match (constant(&left), constant(&right)) {
            (None, Some(value)) => (self.term(&left)?, op, value),
            (Some(value), None) => (self.term(&right)?, op.mirrored(), value),
            _ => return None,
        };
        if value.is_null() && is_distinct_from {
            return None;
        }
        Some(Clause::compare(term, op, value))
    }

    /// DuckDB does not say whether the ends are included, so both count as included.
    fn between(&self, expression: &Expression<'_>) -> Option<Clause> {
        let subject = self.term(&expression.child(0).ok()?)?;
        let end = |at: usize, op| match expression.child(at).ok().and_then(|child| constant(&child))
        {
            Some(value) => Clause::compare(subject.clone(), op, value),
            None => Clause::Opaque,
        };
        Some(Clause::And(vec![end(1, Op::Ge), end(2, Op::Le)]))
    }

    fn one_of(&self, expression: &Expression<'_>) -> Option<Clause> {
        let term = self.term(&expression.child(0).ok()?)?;
        let values = self.children(expression, 1, constant)?;
        Some(Clause::In { term, values })
    }

    /// `column IN list` with the list as one value, which is a call of `contains`.
    fn contained(&self, expression: &Expression<'_>) -> Option<Clause> {
        let name = expression.function_name().ok()?;
        let is_contains = matches!(
            name.as_str(),
            "contains" | "list_contains" | "list_has" | "array_contains" | "array_has"
        );
        if !is_contains || expression.child_count().ok()? != 2 {
            return None;
        }
        let Datum::List(values) = constant(&expression.child(0).ok()?)? else {
            return None;
        };
        let term = self.term(&expression.child(1).ok()?)?;
        Some(Clause::In { term, values })
    }

    /// A column, or a monotone function of one.
    fn term(&self, expression: &Expression<'_>) -> Option<Term> {
        self.term_at(expression, 0)
    }

    fn term_at(&self, expression: &Expression<'_>, depth: usize) -> Option<Term> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (inner, step) = match expression.expression_type().ok()? {
            ExpressionType::BoundColumnRef => {
                let column = (self.column)(expression.reference_index().ok()?)?;
                return Some(Term {
                    column,
                    steps: Vec::new(),
                });
            }
            ExpressionType::OperatorCast => (expression.child(0).ok()?, cast_step(expression)?),
            ExpressionType::BoundFunction => function_step(expression)?,
            _ => return None,
        };
        let mut term = self.term_at(&inner, depth + 1)?;
        term.steps.push(step);
        Some(term)
    }
}

fn constant(expression: &Expression<'_>) -> Option<Datum> {
    match expression.expression_type().ok()? {
        ExpressionType::ValueConstant => {
            datum(&expression.get_constant_value().ok()?, &|| false).ok()
        }
        _ => None,
    }
}

fn cast_step(expression: &Expression<'_>) -> Option<Step> {
    let ty = expression.return_type().ok()?;
    match ty.id().ok()? {
        LogicalTypeID::TinyInt
        | LogicalTypeID::SmallInt
        | LogicalTypeID::Integer
        | LogicalTypeID::BigInt
        | LogicalTypeID::HugeInt
        | LogicalTypeID::UTinyInt
        | LogicalTypeID::USmallInt
        | LogicalTypeID::UInteger
        | LogicalTypeID::UBigInt
        | LogicalTypeID::UHugeInt => Some(Step::Integer),
        LogicalTypeID::Float => Some(Step::Float),
        LogicalTypeID::Double => Some(Step::Double),
        LogicalTypeID::Decimal => DecimalSignature::from_logical_type(&ty)
            .ok()
            .map(|signature| Step::Decimal {
                scale: signature.scale,
            }),
        LogicalTypeID::Timestamp
        | LogicalTypeID::TimestampNs
        | LogicalTypeID::TimestampMs
        | LogicalTypeID::TimestampSec => Some(Step::Timestamp),
        LogicalTypeID::TimestampTz | LogicalTypeID::TimestampTzNs => Some(Step::TimestampTz),
        LogicalTypeID::Date => Some(Step::Date),
        _ => None,
    }
}

/// Reads `time_bucket(width, x)` and `date_trunc(unit, x)`: the argument, and the width of a bucket. `x AT TIME ZONE zone` counts as a
/// cast.
fn function_step<'a>(expression: &Expression<'a>) -> Option<(Expression<'a>, Step)> {
    if expression.child_count().ok()? != 2 {
        return None;
    }
    let step = match (
        expression.function_name().ok()?.as_str(),
        constant(&expression.child(0).ok()?)?,
    ) {
        ("time_bucket", Datum::Interval(width)) => Step::Bucket { width },
        ("date_trunc" | "datetrunc", Datum::Text(unit)) => Step::Truncate {
            width: unit_width(&unit)?,
        },
        ("timezone", Datum::Text(_)) => Step::Timestamp,
        _ => return None,
    };
    Some((expression.child(1).ok()?, step))
}

/// The longest duration of a unit of `date_trunc`.
fn unit_width(unit: &str) -> Option<Interval> {
    let width = |months, days, micros| {
        Some(Interval {
            months,
            days,
            micros,
        })
    };
    let unit = unit.to_ascii_lowercase();
    match unit.strip_suffix('s').unwrap_or(&unit) {
        "millennium" | "millennia" => width(12_000, 0, 0),
        "century" | "centurie" => width(1200, 0, 0),
        "decade" => width(120, 0, 0),
        "year" | "isoyear" => width(13, 0, 0),
        "quarter" => width(3, 0, 0),
        "month" => width(1, 0, 0),
        "week" => width(0, 7, 0),
        "day" => width(0, 1, 0),
        "hour" => width(0, 0, 3_600_000_000),
        "minute" => width(0, 0, 60_000_000),
        "second" => width(0, 0, 1_000_000),
        "millisecond" => width(0, 0, 1000),
        "microsecond" => width(0, 0, 1),
        _ => None,
    }
}
