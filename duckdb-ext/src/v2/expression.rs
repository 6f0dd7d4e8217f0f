//! Converts bound expressions of C API v2 to clauses. Anything that is not understood becomes [`Clause::Opaque`]. No error here can fail a
//! query, because DuckDB checks every row itself.

use duckdb_neo::expression::{Expression, ExpressionType};
use duckdb_neo::logical_type::LogicalTypeID;
use duckdb_neo::types::DecimalSignature;
use loom_engine::schema::{Case, Op};

use super::value::datum;
use crate::plan::clause::{Clause, Rounded, Step, Term};
use crate::plan::datum::{Datum, Interval};
use crate::plan::formatted::formatted;
use crate::plan::regular;

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
    /// Whether the session's years are Gregorian.
    pub gregorian: bool,
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
            ExpressionType::CompareEqual => self.comparison(expression, Op::Eq),
            ExpressionType::CompareNotEqual => self.comparison(expression, Op::Ne),
            ExpressionType::CompareNotDistinctFrom => self.distinct(expression, Op::Eq),
            ExpressionType::CompareDistinctFrom => self.distinct(expression, Op::Ne),
            ExpressionType::CompareLessThan => self.comparison(expression, Op::Lt),
            ExpressionType::CompareLessThanOrEqualTo => self.comparison(expression, Op::Le),
            ExpressionType::CompareGreaterThan => self.comparison(expression, Op::Gt),
            ExpressionType::CompareGreaterThanOrEqualTo => self.comparison(expression, Op::Ge),
            ExpressionType::CompareBetween => self.between(expression),
            ExpressionType::CompareIn => self.one_of(expression),
            ExpressionType::CompareNotIn => negated(self.one_of(expression)?),
            ExpressionType::OperatorIsNull => self.null(expression, true),
            ExpressionType::OperatorIsNotNull => self.null(expression, false),
            ExpressionType::BoundFunction => self
                .contained(expression)
                .or_else(|| self.matched(expression))
                .or_else(|| self.not_a_number(expression)),
            ExpressionType::BoundColumnRef => self.flag(expression, true),
            ExpressionType::OperatorNot => {
                let child = expression.child(0).ok()?;
                let list = || match child.expression_type().ok()? {
                    ExpressionType::CompareIn => self.one_of(&child),
                    ExpressionType::BoundFunction => self.contained(&child),
                    _ => None,
                };
                self.flag(&child, false).or_else(|| negated(list()?))
            }
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
        let (side, op, value) = sides(expression, op)?;
        let (term, value) = match (self.term(&side), &value) {
            (Some(term), _) => (term, value),
            (None, Datum::Text(text)) => self.printed(&side, text)?,
            (None, _) => return None,
        };
        Some(Clause::compare(term, op, value))
    }

    /// A comparison that takes NULL for a value.
    fn distinct(&self, expression: &Expression<'_>, op: Op) -> Option<Clause> {
        let (side, op, value) = sides(expression, op)?;
        let term = self.term(&side)?;
        let is_equal = op == Op::Eq;
        if value.is_null() {
            return Some(Clause::Null {
                term,
                is_null: is_equal,
            });
        }
        let compared = Clause::compare(term.clone(), op, value);
        Some(match is_equal {
            true => compared,
            false => Clause::Or(vec![
                compared,
                Clause::Null {
                    term,
                    is_null: true,
                },
            ]),
        })
    }

    fn null(&self, expression: &Expression<'_>, is_null: bool) -> Option<Clause> {
        let term = self.term(&expression.child(0).ok()?)?;
        Some(Clause::Null { term, is_null })
    }

    /// A term that `strftime` prints, as a comparison with the time that a text names.
    fn printed(&self, expression: &Expression<'_>, text: &str) -> Option<(Term, Datum)> {
        if expression.expression_type().ok()? != ExpressionType::BoundFunction
            || expression.function_name().ok()? != "strftime"
        {
            return None;
        }
        let Datum::Text(format) = constant(&expression.child(1).ok()?)? else {
            return None;
        };
        let (micros, width) = formatted(&format, text)?;
        let mut term = self.term(&expression.child(0).ok()?)?;
        // The session's clock, and what the format leaves out.
        term.steps
            .extend([Step::Timestamp, Step::Truncate { width }]);
        Some((term, Datum::Timestamp(micros)))
    }

    fn not_a_number(&self, expression: &Expression<'_>) -> Option<Clause> {
        if expression.function_name().ok()? != "isnan" {
            return None;
        }
        let term = self.term(&expression.child(0).ok()?)?;
        Some(Clause::compare(term, Op::Eq, Datum::Float(f64::NAN)))
    }

    /// A text that begins with a constant, or contains some: by a function, or by what LIKE, GLOB and regular expressions say beside wildcards.
    fn matched(&self, expression: &Expression<'_>) -> Option<Clause> {
        let name = expression.function_name().ok()?;
        let Datum::Text(pattern) = constant(&expression.child(1).ok()?)? else {
            return None;
        };
        let (mut case, text) = cased(expression.child(0).ok()?)?;
        let term = self.term(&text)?;
        let parts: Vec<String> = match name.as_str() {
            "prefix" | "starts_with" | "^@" | "suffix" | "ends_with" | "contains" => vec![pattern],
            "~~" => pattern.split(['%', '_']).map(str::to_owned).collect(),
            "~~*" => {
                case = Case::Insensitive;
                pattern.split(['%', '_']).map(str::to_owned).collect()
            }
            "~~~" => {
                let plain = pattern.split(['[', '\\']).next()?;
                plain.split(['*', '?']).map(str::to_owned).collect()
            }
            "regexp_matches" | "regexp_full_match" => {
                case = Case::Insensitive;
                let options = expression.child(2).ok();
                // With the option `l` the pattern is a text.
                match options.map(|options| constant(&options)) {
                    None => {}
                    Some(Some(Datum::Text(options))) if !options.contains('l') => {}
                    Some(_) => return None,
                }
                regular::parts(&pattern)?
            }
            _ => return None,
        };
        let starts = matches!(
            name.as_str(),
            "prefix" | "starts_with" | "^@" | "~~" | "~~~"
        );
        let start = parts.first().filter(|_| starts && case == Case::Sensitive);
        let start = start.map(|text| Clause::Prefix {
            term: term.clone(),
            text: text.clone(),
        });
        let contained = parts.iter().map(|part| Clause::Contains {
            term: term.clone(),
            part: part.clone(),
            case,
        });
        Some(Clause::And(start.into_iter().chain(contained).collect()))
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
        let (inner, steps) = match expression.expression_type().ok()? {
            ExpressionType::BoundColumnRef => {
                let column = (self.column)(expression.reference_index().ok()?)?;
                return Some(Term {
                    column,
                    steps: Vec::new(),
                });
            }
            ExpressionType::OperatorCast => {
                (expression.child(0).ok()?, vec![cast_step(expression)?])
            }
            ExpressionType::BoundFunction => self.function_steps(expression)?,
            _ => return None,
        };
        let mut term = self.term_at(&inner, depth + 1)?;
        term.steps.extend(steps);
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

/// The text inside of `lower` and `upper`, which take its case away.
fn cased(mut text: Expression<'_>) -> Option<(Case, Expression<'_>)> {
    let mut case = Case::Sensitive;
    while text.expression_type().ok()? == ExpressionType::BoundFunction
        && matches!(
            text.function_name().ok()?.as_str(),
            "lower" | "lcase" | "upper" | "ucase"
        )
    {
        case = Case::Insensitive;
        text = text.child(0).ok()?;
    }
    Some((case, text))
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

/// The side of a comparison that is no constant, the comparison seen from it, and the constant.
fn sides<'a>(expression: &Expression<'a>, op: Op) -> Option<(Expression<'a>, Op, Datum)> {
    let (left, right) = (expression.child(0).ok()?, expression.child(1).ok()?);
    match (constant(&left), constant(&right)) {
        (None, Some(value)) => Some((left, op, value)),
        (Some(value), None) => Some((right, op.mirrored(), value)),
        _ => None,
    }
}

fn negated(list: Clause) -> Option<Clause> {
    match list {
        Clause::In { term, values } => Some(Clause::not_in(term, values)),
        _ => None,
    }
}

/// The types of arguments that a function may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Single,
    Date,
    Time,
}

fn kind(expression: &Expression<'_>) -> Option<Kind> {
    Some(match expression.return_type().ok()?.id().ok()? {
        LogicalTypeID::TinyInt
        | LogicalTypeID::SmallInt
        | LogicalTypeID::Integer
        | LogicalTypeID::BigInt
        | LogicalTypeID::HugeInt
        | LogicalTypeID::UTinyInt
        | LogicalTypeID::USmallInt
        | LogicalTypeID::UInteger
        | LogicalTypeID::UBigInt
        | LogicalTypeID::UHugeInt
        | LogicalTypeID::Decimal
        | LogicalTypeID::Double => Kind::Number,
        LogicalTypeID::Float => Kind::Single,
        LogicalTypeID::Date => Kind::Date,
        LogicalTypeID::Timestamp
        | LogicalTypeID::TimestampNs
        | LogicalTypeID::TimestampMs
        | LogicalTypeID::TimestampSec
        | LogicalTypeID::TimestampTz
        | LogicalTypeID::TimestampTzNs => Kind::Time,
        _ => return None,
    })
}

/// Whether a constant can be a factor: its products and their margins are then normal numbers.
fn is_factor(number: f64) -> bool {
    (1e-30..1e30).contains(&number.abs())
}

impl Reader<'_> {
    /// The argument of a monotone function, and the steps from it to the result.
    fn function_steps<'a>(
        &self,
        expression: &Expression<'a>,
    ) -> Option<(Expression<'a>, Vec<Step>)> {
        let name = expression.function_name().ok()?;
        let (first, second) = match expression.child_count().ok()? {
            1 => (expression.child(0).ok()?, None),
            2 | 3 => (expression.child(0).ok()?, Some(expression.child(1).ok()?)),
            _ => return None,
        };
        let Some(second) = second else {
            let step = self.step_of_one(&name, expression, &first)?;
            return Some((first, vec![step]));
        };
        if name == "time_bucket" {
            let Datum::Interval(width) = constant(&first)? else {
                return None;
            };
            let bucket = Step::Bucket { width };
            let third = expression.child(2).ok();
            let steps = match third.map(|third| constant(&third)) {
                None => vec![bucket],
                // A time zone.
                Some(Some(Datum::Text(_))) => vec![bucket, Step::TimestampTz],
                // An offset, without which the time is cut, and which is added again. Months cut days off.
                Some(Some(Datum::Interval(by))) => {
                    let back = Step::Shift {
                        by: negated_interval(by)?,
                    };
                    vec![back, bucket, Step::Shift { by }]
                }
                // An origin.
                Some(Some(_)) => vec![bucket],
                Some(None) => return None,
            };
            return Some((second, steps));
        }
        if expression.child_count().ok()? != 2 {
            return None;
        }
        match (constant(&first), constant(&second)) {
            (Some(value), None) => {
                let steps = self.steps_after(&name, expression, &value, &second)?;
                Some((second, steps))
            }
            (None, Some(value)) => {
                let steps = steps_before(&name, expression, &first, &value)?;
                Some((first, steps))
            }
            _ => None,
        }
    }

    fn step_of_one(
        &self,
        name: &str,
        expression: &Expression<'_>,
        argument: &Expression<'_>,
    ) -> Option<Step> {
        let rounded = rounded(expression)?;
        match (name, kind(argument)?) {
            ("-", Kind::Number | Kind::Single) => Some(Step::Multiply {
                number: -1.0,
                rounded,
            }),
            ("floor" | "ceil" | "ceiling" | "round" | "trunc", Kind::Number | Kind::Single) => {
                Some(Step::Near {
                    distance: 1.0,
                    rounded,
                })
            }
            (name, Kind::Time | Kind::Date) => self.part_of_time(name),
            _ => None,
        }
    }

    /// A part of a time that is a number and never decreases.
    fn part_of_time(&self, name: &str) -> Option<Step> {
        let epoch = |unit_ns| Some(Step::Epoch { unit_ns });
        match name {
            "epoch" => epoch(1_000_000_000),
            "epoch_ms" => epoch(1_000_000),
            "epoch_us" => epoch(1000),
            "epoch_ns" => epoch(1),
            "year" if self.gregorian => Some(Step::Year),
            _ => None,
        }
    }

    /// The steps of a function whose first argument is a constant.
    fn steps_after(
        &self,
        name: &str,
        expression: &Expression<'_>,
        value: &Datum,
        argument: &Expression<'_>,
    ) -> Option<Vec<Step>> {
        match (name, value) {
            ("date_trunc" | "datetrunc", Datum::Text(unit)) => Some(vec![Step::Truncate {
                width: unit_width(unit)?,
            }]),
            ("timezone", Datum::Text(_)) => Some(vec![Step::TimestampTz]),
            ("date_part" | "datepart", Datum::Text(part)) => {
                kind(argument).filter(|kind| matches!(kind, Kind::Time | Kind::Date))?;
                let part = match part.to_ascii_lowercase().as_str() {
                    "epoch" => "epoch",
                    "year" | "years" => "year",
                    _ => return None,
                };
                Some(vec![self.part_of_time(part)?])
            }
            ("-", _) => {
                kind(argument).filter(|kind| matches!(kind, Kind::Number | Kind::Single))?;
                let rounded = rounded(expression)?;
                let number = finite(value)?;
                let negated = Step::Multiply {
                    number: -1.0,
                    rounded,
                };
                Some(vec![negated, Step::Add { number, rounded }])
            }
            // These two commute.
            ("+" | "*", _) => steps_before(name, expression, argument, value),
            _ => None,
        }
    }
}

/// The floats in which a function computes.
fn rounded(expression: &Expression<'_>) -> Option<Rounded> {
    match kind(expression)? {
        Kind::Single => Some(Rounded::Single),
        _ => Some(Rounded::Double),
    }
}

fn finite(value: &Datum) -> Option<f64> {
    let number = value.number()?.to_f64();
    number.is_finite().then_some(number)
}

fn negated_interval(by: Interval) -> Option<Interval> {
    Some(Interval {
        months: by.months.checked_neg()?,
        days: by.days.checked_neg()?,
        micros: by.micros.checked_neg()?,
    })
}

/// The steps of a function whose second argument is a constant.
fn steps_before(
    name: &str,
    expression: &Expression<'_>,
    argument: &Expression<'_>,
    value: &Datum,
) -> Option<Vec<Step>> {
    let rounded = rounded(expression)?;
    match (kind(argument)?, value) {
        (Kind::Time | Kind::Date, Datum::Interval(by)) => {
            let by = match name {
                "+" => *by,
                "-" => negated_interval(*by)?,
                _ => return None,
            };
            Some(vec![Step::Shift { by }])
        }
        (Kind::Date, Datum::Int(days)) => {
            let days = i32::try_from(*days).ok()?;
            let days = match name {
                "+" => days,
                "-" => days.checked_neg()?,
                _ => return None,
            };
            let (months, micros) = (0, 0);
            let by = Interval {
                months,
                days,
                micros,
            };
            Some(vec![Step::Shift { by }])
        }
        (Kind::Time | Kind::Date, _) => None,
        (Kind::Number | Kind::Single, value) => {
            let number = finite(value)?;
            let times = |number| is_factor(number).then_some(Step::Multiply { number, rounded });
            let near = |distance| Step::Near { distance, rounded };
            Some(match name {
                "+" => vec![Step::Add { number, rounded }],
                "-" => vec![Step::Add {
                    number: -number,
                    rounded,
                }],
                "*" => vec![times(number)?],
                "/" => vec![times(1.0 / number)?],
                "//" => vec![times(1.0 / number)?, near(1.0)],
                // With fewer digits DuckDB makes 0 of an infinity.
                "round" if (0.0..=15.0).contains(&number) => vec![near(10f64.powf(-number))],
                _ => return None,
            })
        }
    }
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
