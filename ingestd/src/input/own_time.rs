//! Converts the column of `--ts` to the own times of records.

use anyhow::{Context, bail, ensure};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Int64Type};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use loom_engine::schema::{FieldDef, FieldType};

use super::cells::{self, Cells};
use super::columns::named;
use super::text;
use super::time_unit::TimeUnit;
use super::unlikely::Unlikely;
use crate::counted::{counted, singular_or};

/// A pipe is rejected only after this many rows without a valid time, because its first rows may be damaged.
const PIPE_ROWS_MIN: usize = 16;

const BEYOND: &str = "out of range: times lie between 1677-09-21 and 2262-04-11";

/// The form of times in an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeForm {
    /// Timestamps, dates, RFC 3339, or integer nanoseconds.
    #[default]
    Usual,
    /// Numbers since the Unix epoch, with or without a fraction.
    Unit(TimeUnit),
    /// Texts in this format of `strptime`; UTC without an offset.
    Format(String),
}

/// The column of own times.
#[derive(Clone, Debug)]
pub(crate) struct OwnTime {
    /// The position in the columns of `Rows`.
    pub column: usize,
    pub name: String,
    form: TimeForm,
    unlikely: Unlikely,
    /// The number of times in 1970 that the alarm reported; 0 before it.
    noted: u64,
}

impl OwnTime {
    pub(crate) fn new(column: usize, name: &str, form: TimeForm) -> OwnTime {
        OwnTime {
            column,
            name: name.to_owned(),
            form,
            unlikely: Unlikely::default(),
            noted: 0,
        }
    }

    /// The unit of numbers; `None` for texts with a format.
    fn unit(&self) -> Option<TimeUnit> {
        match self.form {
            TimeForm::Usual => Some(TimeUnit::Ns),
            TimeForm::Unit(unit) => Some(unit),
            TimeForm::Format(_) => None,
        }
    }

    /// Counts the numbers that seem to have another unit.
    pub(crate) fn watch(&mut self, column: &ArrayRef, cells: &Cells) {
        if let Some(unit) = self.unit() {
            self.unlikely.watch(unit, column, cells);
        }
    }

    /// Warns once, as soon as times seem to have another unit.
    pub(crate) fn alarm(&mut self, input: &str) -> Option<String> {
        let (unit, (count, number, likelier)) = (self.unit()?, self.unlikely.in_1970()?);
        if self.noted > 0 {
            return None;
        }
        self.noted = count;
        Some(format!(
            "{} of column '{}' in {input} {} in 1970, read as {}; {number} looks like {}: use --ts-unit {}",
            counted(count, "time"),
            self.name,
            singular_or(count, "lies", "lie"),
            unit.name(),
            likelier.name(),
            likelier.option()
        ))
    }

    /// Returns notes about times that seem to have another unit, unless the alarm reported all of them, and resets the counts.
    pub(crate) fn take_unlikely(&mut self, input: &str) -> Vec<String> {
        let mut unlikely = std::mem::take(&mut self.unlikely);
        let noted = std::mem::take(&mut self.noted);
        if unlikely
            .in_1970()
            .is_some_and(|(count, _, _)| count == noted)
        {
            unlikely = unlikely.without_1970();
        }
        let what = format!("column '{}'", self.name);
        unlikely.notes(&what, input, "correct --ts-unit")
    }

    /// Converts to nanoseconds since the Unix epoch; an error means that the column's type cannot be a time.
    pub(crate) fn convert(&self, column: &ArrayRef) -> anyhow::Result<Cells> {
        let field = FieldDef::new(&self.name, FieldType::TimestampNs);
        let cells = self.check(column).and_then(|()| match &self.form {
            TimeForm::Usual => {
                let column = cells::plain(column)?;
                match cells::is_text(column.data_type()) {
                    true => {
                        cells::from_texts::<Int64Type>(&column, &field, text::parse_timestamp_ns)
                    }
                    false => cells::convert(&column, &field),
                }
            }
            TimeForm::Unit(unit) => numbers(&cells::plain(column)?, &field, *unit),
            TimeForm::Format(format) => {
                cells::from_texts::<Int64Type>(column, &field, |text| formatted(format, text).ok())
            }
        });
        let mut cells = cells
            .with_context(|| format!("cannot take times from column '{}' (--ts)", self.name))?;
        for (row, reason) in &mut cells.failed {
            let value = cells::shown(column, *row)?;
            let why = self.unread(column, &value);
            let why = why.unwrap_or_else(|| "not a time".to_owned());
            *reason = format!(
                "its time, column '{}', is '{value}', which is {why}",
                self.name
            );
        }
        Ok(cells)
    }

    /// Fails if the column's type cannot be a time of this form.
    fn check(&self, column: &ArrayRef) -> anyhow::Result<()> {
        let ty = match column.data_type() {
            DataType::Dictionary(_, values) => values,
            DataType::RunEndEncoded(_, values) => values.data_type(),
            ty => ty,
        };
        let is_time = matches!(
            ty,
            DataType::Timestamp(_, _) | DataType::Date32 | DataType::Date64
        );
        ensure!(
            is_time || ty.is_numeric() || cells::is_text(ty) || *ty == DataType::Null,
            "values of type {} are not times; name another column",
            named(ty)
        );
        let option = match &self.form {
            TimeForm::Usual => {
                ensure!(
                    !has_fractions(column),
                    "numbers with a fraction have no unit; name it with --ts-unit"
                );
                return Ok(());
            }
            TimeForm::Unit(_) => "--ts-unit",
            TimeForm::Format(_) => "--ts-format",
        };
        ensure!(
            !is_time,
            "values of type {ty} need no unit and no format; omit {option}"
        );
        Ok(())
    }

    /// Explains why a value is not a time, if there is more to say.
    fn unread(&self, column: &ArrayRef, value: &str) -> Option<String> {
        let value = value.trim();
        let is_beyond = match &self.form {
            TimeForm::Usual => {
                !cells::is_text(column.data_type())
                    || text::is_beyond_nanoseconds(value)
                    || value.parse::<i128>().is_ok()
            }
            TimeForm::Unit(_) => value.parse::<f64>().is_ok_and(f64::is_finite),
            TimeForm::Format(format) => {
                let why = formatted(format, value).err()?;
                return Some(format!("not a time of --ts-format '{format}': {why}"));
            }
        };
        is_beyond.then(|| BEYOND.to_owned())
    }

    /// A remedy for a column with a value that is not a time.
    fn remedy(&self, value: &str) -> String {
        let is_date =
            text::parse_timestamp_ns(value).is_some() || text::is_beyond_nanoseconds(value);
        match &self.form {
            TimeForm::Usual if value.parse::<f64>().is_ok() => {
                "numbers with a fraction have no unit; name it with --ts-unit".to_owned()
            }
            TimeForm::Usual
                if value.starts_with(['[', '{']) || text::parse_bool(value).is_some() =>
            {
                "name another column".to_owned()
            }
            TimeForm::Usual => {
                "name another column, or describe its values with --ts-unit or --ts-format"
                    .to_owned()
            }
            TimeForm::Unit(_) if is_date => "it is a date; omit --ts-unit".to_owned(),
            TimeForm::Unit(unit) => format!(
                "they are not numbers of {}; name another column, or omit --ts-unit",
                unit.name()
            ),
            TimeForm::Format(_) => "correct it, or name another column".to_owned(),
        }
    }

    /// Fails if none of the first values of an input is a time.
    pub(crate) fn look(
        &self,
        column: &ArrayRef,
        input: &str,
        is_stream: bool,
    ) -> anyhow::Result<()> {
        let name = &self.name;
        let values = column.len() - column.logical_null_count();
        let cells = self.convert(column)?;
        let Some(first) = (0..column.len()).find(|row| column.is_valid(*row)) else {
            return Ok(());
        };
        let first = cells::cast(&column.slice(first, 1), &DataType::LargeUtf8)?;
        let first = first.as_string::<i64>().value(0);
        let enough = !is_stream || values >= PIPE_ROWS_MIN;
        if cells.failed.len() == values && enough {
            let shown: String = first.chars().take(64).collect();
            let shown = shown.escape_debug();
            let how = match self.unread(column, first) {
                Some(what) => format!(", which is {what}"),
                None => format!("; {}", self.remedy(first.trim())),
            };
            let none = match values {
                1 => format!("its only value is not a time: '{shown}'"),
                _ => format!("none of its first {values} values is a time, for instance '{shown}'"),
            };
            bail!("cannot take times from column '{name}' (--ts) of {input}: {none}{how}");
        }
        Ok(())
    }
}

fn has_fractions(column: &ArrayRef) -> bool {
    use DataType as A;
    match column.data_type() {
        A::Decimal32(_, scale) | A::Decimal64(_, scale) | A::Decimal128(_, scale) => *scale != 0,
        ty => ty.is_floating(),
    }
}

/// Converts numbers of a unit, with or without a fraction.
fn numbers(column: &ArrayRef, field: &FieldDef, unit: TimeUnit) -> anyhow::Result<Cells> {
    if column.data_type().is_integer() {
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

/// Parses a text by a `strptime` format. Digits after the ninth of a fraction are dropped, as in other times.
fn formatted(format: &str, text: &str) -> anyhow::Result<i64> {
    let text = text.trim();
    let parsed = BrokenDownTime::parse(format, text);
    let parsed = match (parsed, text::nine_digits(text)) {
        (Err(_), Some(text)) => BrokenDownTime::parse(format, &text)?,
        (parsed, _) => parsed?,
    };
    ensure!(
        parsed.iana_time_zone().is_none(),
        "names of time zones (%Q) are not read; give times with an offset (%z), or convert them"
    );
    let time: Timestamp = match (parsed.timestamp(), parsed.offset()) {
        // `timestamp` of seconds since 1970 ignores a fraction that another directive read.
        (Some(time), _) => {
            let fraction = parsed.subsec_nanosecond().unwrap_or(0);
            time.checked_add(SignedDuration::from_nanos(fraction.into()))?
        }
        (None, offset) => offset
            .unwrap_or(Offset::UTC)
            .to_timestamp(parsed.to_datetime()?)?,
    };
    let ns = i64::try_from(time.as_nanosecond());
    ns.with_context(|| format!("it is {BEYOND}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, StringArray, TimestampSecondArray};

    use super::*;

    #[test]
    fn a_column_of_another_type_is_refused_with_a_remedy_that_helps() {
        let bools: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        let stamps: ArrayRef = Arc::new(TimestampSecondArray::from(vec![7]));
        let unit = TimeForm::Unit(TimeUnit::S);
        let format = TimeForm::Format("%s".to_owned());
        let not_times = "values of type Boolean are not times; name another column";
        for (column, form, words) in [
            (&bools, TimeForm::Usual, not_times),
            (&bools, unit.clone(), not_times),
            (&bools, format.clone(), not_times),
            (&stamps, unit, "need no unit and no format; omit --ts-unit"),
            (
                &stamps,
                format,
                "need no unit and no format; omit --ts-format",
            ),
        ] {
            let own_time = OwnTime::new(0, "t", form);
            let error = own_time.convert(column).err().unwrap();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }

    #[test]
    fn a_text_of_too_many_nanoseconds_is_out_of_range() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["99999999999999999999"]));
        let cells = OwnTime::new(0, "t", TimeForm::Usual)
            .convert(&texts)
            .unwrap();
        assert!(cells.failed[0].1.contains("which is out of range"));
    }
}
