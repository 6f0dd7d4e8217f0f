//! The times that records bring themselves: what the values of the column of `--ts` mean.

use anyhow::{Context, bail, ensure};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Int64Type};
use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;
use loom_engine::schema::{FieldDef, FieldType};

use super::cells::{self, Cells};
use super::text;
use crate::counted;

/// A pipe whose first rows have damaged times is not given up before so many came.
const PIPE_ROWS_MIN: usize = 16;

/// How times are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeForm {
    /// Timestamps, dates, RFC 3339, or integers of nanoseconds.
    #[default]
    Usual,
    /// Numbers since the Unix epoch, with or without a fraction.
    Unit(TimeUnit),
    /// Texts that `strptime` reads with this format; UTC where they have no offset.
    Format(String),
}

/// What a number of time counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    /// Seconds since the Unix epoch
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl TimeUnit {
    /// How many decimal digits of it are nanoseconds.
    fn digits(self) -> u32 {
        match self {
            TimeUnit::S => 9,
            TimeUnit::Ms => 6,
            TimeUnit::Us => 3,
            TimeUnit::Ns => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            TimeUnit::S => "seconds",
            TimeUnit::Ms => "milliseconds",
            TimeUnit::Us => "microseconds",
            TimeUnit::Ns => "nanoseconds",
        }
    }

    fn option(self) -> &'static str {
        match self {
            TimeUnit::S => "s",
            TimeUnit::Ms => "ms",
            TimeUnit::Us => "us",
            TimeUnit::Ns => "ns",
        }
    }

    /// The unit in which a number is a time of these decades, 1990 to 2100.
    fn likely(number: i64) -> Option<TimeUnit> {
        let plausible = |unit: &TimeUnit| {
            let seconds = number / 10_i64.pow(9 - unit.digits());
            (631_152_000..4_102_444_800).contains(&seconds)
        };
        [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us]
            .into_iter()
            .find(plausible)
    }
}

/// The column of own times.
#[derive(Clone, Debug)]
pub(crate) struct OwnTime {
    /// Position among the columns of `Rows`.
    pub column: usize,
    pub name: String,
    pub form: TimeForm,
}

impl OwnTime {
    /// Nanoseconds since the Unix epoch; an error means that no value of the column's type is a time.
    pub(crate) fn convert(&self, column: &ArrayRef) -> anyhow::Result<Cells> {
        let field = FieldDef::new(&self.name, FieldType::TimestampNs);
        let cells = match &self.form {
            TimeForm::Usual => cells::convert(column, &field),
            TimeForm::Unit(unit) => {
                cells::plain(column).and_then(|column| numbers(&column, &field, *unit))
            }
            TimeForm::Format(format) => {
                cells::from_texts::<Int64Type>(column, &field, |text| formatted(format, text).ok())
            }
        };
        cells.with_context(|| format!("cannot take times from column '{}' (--ts)", self.name))
    }

    /// Looks at the first values of an input: an error if none is a time, a note if they look like times of another unit.
    pub(crate) fn look(
        &self,
        column: &ArrayRef,
        input: &str,
        is_stream: bool,
    ) -> anyhow::Result<Option<String>> {
        let name = &self.name;
        let values = column.len() - column.logical_null_count();
        let cells = self.convert(column)?;
        let Some(first) = (0..column.len()).find(|row| column.is_valid(*row)) else {
            return Ok(None);
        };
        let first = cells::cast(&column.slice(first, 1), &DataType::LargeUtf8)?;
        let first = first.as_string::<i64>().value(0);
        let enough = !is_stream || values >= PIPE_ROWS_MIN;
        if cells.failed.len() == values && enough {
            let shown: String = first.chars().take(64).collect();
            let how = match &self.form {
                TimeForm::Usual => {
                    "name another column, or describe its values with --ts-unit or --ts-format"
                        .to_owned()
                }
                TimeForm::Unit(unit) => {
                    format!("they are no numbers of {}; correct --ts-unit", unit.name())
                }
                TimeForm::Format(format) => match formatted(format, first) {
                    Err(why) => format!("--ts-format '{format}' does not read them: {why}"),
                    Ok(_) => format!("--ts-format '{format}' does not read them"),
                },
            };
            bail!(
                "cannot take times from column '{name}' (--ts) of {input}: none of {} is a time, for instance '{}'; {how}",
                counted(values as u64, "value"),
                shown.escape_debug()
            );
        }
        let is_usual = self.form == TimeForm::Usual;
        let number = first
            .trim()
            .parse()
            .ok()
            .filter(|_| is_usual && is_plain(column));
        let unit = number.and_then(TimeUnit::likely);
        Ok(unit.map(|unit| {
            format!(
                "the times of column '{name}' are read as nanoseconds and lie in 1970; {first} looks like {}: use --ts-unit {}",
                unit.name(),
                unit.option()
            )
        }))
    }
}

/// Whether its numbers have no unit of their own.
fn is_plain(column: &ArrayRef) -> bool {
    let ty = column.data_type();
    ty.is_integer() || cells::is_text(ty)
}

/// Numbers of a unit, with or without a fraction.
fn numbers(column: &ArrayRef, field: &FieldDef, unit: TimeUnit) -> anyhow::Result<Cells> {
    let ty = column.data_type();
    ensure!(
        cells::is_text(ty) || ty.is_numeric() && !ty.is_temporal() || *ty == DataType::Null,
        "values of type {ty} are no numbers of {}; omit --ts-unit",
        unit.name()
    );
    if ty.is_integer() {
        let factor = 10_i64.pow(unit.digits());
        let whole = cells::cast(column, &DataType::Int64)?;
        let whole = whole.as_primitive::<Int64Type>().iter();
        let values: PrimitiveArray<Int64Type> =
            whole.map(|value| value?.checked_mul(factor)).collect();
        let failed = cells::failures(column, |row| values.is_null(row), field)?;
        return Ok(cells::fixed(&values, failed));
    }
    cells::from_texts::<Int64Type>(column, field, |text| {
        text::parse_decimal(text, unit.digits())
    })
}

/// The time of a text by a `strptime` format.
fn formatted(format: &str, text: &str) -> anyhow::Result<i64> {
    let parsed = BrokenDownTime::parse(format, text.trim())?;
    let time: Timestamp = match (parsed.timestamp(), parsed.offset()) {
        (Some(time), _) => time,
        (None, offset) => offset
            .unwrap_or(Offset::UTC)
            .to_timestamp(parsed.to_datetime()?)?,
    };
    let ns = i64::try_from(time.as_nanosecond());
    ns.context("it is out of range: a record's time lies between 1677 and 2262")
}
