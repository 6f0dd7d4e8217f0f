//! Counts times that seem to have another unit than the one they were read in. `own_time` counts those of `--ts`, and `framer` those of fields.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::cells::{self, Cells, Values};
use super::text;
use super::time_unit::TimeUnit;
use crate::counted::{counted, singular_or};

/// The beginning of the year 2200 in nanoseconds.
const NS_OF_2200: i64 = 7_258_118_400_000_000_000;
/// No greater number seems to have a coarser unit than nanoseconds.
const LIKELY_MAX: i64 = 4_102_444_800_000_000;

/// The counts for one column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unlikely {
    in_1970: u64,
    far: u64,
    /// The first of those in 1970, and its likely unit.
    first: Option<(i64, TimeUnit)>,
}

impl Unlikely {
    /// Counts the unlikely times of a column, which were read in this unit.
    pub(crate) fn watch(&mut self, unit: TimeUnit, column: &ArrayRef, cells: &Cells) {
        let Values::Fixed(values) = &cells.values else {
            return;
        };
        if !is_plain(column) {
            return;
        }
        let nanos = 10_i64.pow(unit.digits());
        for (row, ns) in values.typed_data::<i64>().iter().enumerate() {
            let number = ns / nanos;
            if *ns < NS_OF_2200 && !(0..LIKELY_MAX).contains(&number)
                || cells.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            {
                continue;
            }
            let likelier = unit.likelier(number);
            // A text of a date is not a number.
            if likelier.is_none() && *ns < NS_OF_2200 || !is_number(column, row) {
                continue;
            }
            match likelier {
                Some(likelier) => {
                    self.in_1970 += 1;
                    self.first.get_or_insert((number, likelier));
                }
                None => self.far += 1,
            }
        }
    }

    /// The number of times in 1970, the first of them and its likely unit; `None` if there is none.
    pub(crate) fn in_1970(&self) -> Option<(u64, i64, TimeUnit)> {
        let (number, likelier) = self.first?;
        Some((self.in_1970, number, likelier))
    }

    /// Resets the count of times in 1970.
    pub(crate) fn without_1970(self) -> Unlikely {
        Unlikely {
            far: self.far,
            ..Unlikely::default()
        }
    }

    /// Notes about the times. `what` names their column, `remedy` says what to do if they are wrong.
    pub(crate) fn notes(&self, what: &str, input: &str, remedy: &str) -> Vec<String> {
        let places = [
            (self.in_1970, "in 1970"),
            (self.far, "behind the year 2200"),
        ];
        let found = places.into_iter().filter(|(count, _)| *count > 0);
        let note = |(count, place)| {
            let times = counted(count, "time");
            let lie = singular_or(count, "lies", "lie");
            format!("{times} of {what} in {input} {lie} {place}; if that is wrong, {remedy}")
        };
        found.map(note).collect()
    }
}

/// Whether the numbers of a column have no unit of their own.
fn is_plain(column: &ArrayRef) -> bool {
    let ty = column.data_type();
    ty.is_numeric() && !ty.is_temporal() || cells::is_text(ty)
}

/// Whether the value of a row is a number by itself.
fn is_number(column: &ArrayRef, row: usize) -> bool {
    if !cells::is_text(column.data_type()) {
        return true;
    }
    let text = cells::cast(&column.slice(row, 1), &DataType::LargeUtf8);
    text.is_ok_and(|text| text::parse_decimal(text.as_string::<i64>().value(0), 0).is_some())
}
