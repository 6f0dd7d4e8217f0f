//! Converts a column of values to the bytes of a field, and lists the rows that do not fit with the reason.
//!
//! A column of the field's own type is passed on without a copy. Other columns are converted value by value. A row is refused if its value would
//! change (it is too large, has a fraction, or is not a label). Times outside the range of nanoseconds become NULL if the field is nullable, and are
//! counted.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Context, bail};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, LargeBinaryArray, LargeStringArray,
    PrimitiveArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{self as types, DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use loom_engine::schema::{FieldDef, FieldType};

use super::columns::named;
use super::nested::{Encoded, encoded};
use super::text;

/// The values of one field, one for each row.
pub(crate) struct Cells {
    pub values: Values,
    /// Rows without a value; their bytes are undefined.
    pub nulls: Option<NullBuffer>,
    /// Rows whose value does not fit the field, with the reason. They are also in `nulls`.
    pub failed: Vec<(usize, String)>,
    /// Rows whose value was changed.
    pub changes: Vec<(usize, Change)>,
}

/// A change of a value that the field cannot keep but that does not refuse the row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A time outside the range of nanoseconds became NULL.
    OutOfRange,
    /// NaN or an infinity within JSON became a string.
    NotFinite,
}

pub(crate) enum Values {
    /// Little-endian values of the field's width, one after the other.
    Fixed(Buffer),
    Var(LargeBinaryArray),
}

/// A value that cannot be cast becomes NULL, so that `failures` can name its row.
const CAST: CastOptions<'static> = CastOptions {
    safe: true,
    format_options: FormatOptions::new(),
};

/// Converts a column; an error means that no value of the column's type fits the field.
pub(crate) fn convert(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Cells> {
    let column = &plain(column)?;
    if *column.data_type() == DataType::Null {
        return Ok(nulls(column.len(), field.ty));
    }
    match field.ty {
        FieldType::U8 => primitive::<types::UInt8Type>(column, field),
        FieldType::U16 => primitive::<types::UInt16Type>(column, field),
        FieldType::U32 => primitive::<types::UInt32Type>(column, field),
        FieldType::U64 => primitive::<types::UInt64Type>(column, field),
        FieldType::I8 => primitive::<types::Int8Type>(column, field),
        FieldType::I16 => primitive::<types::Int16Type>(column, field),
        FieldType::I32 => primitive::<types::Int32Type>(column, field),
        FieldType::I64 => primitive::<types::Int64Type>(column, field),
        FieldType::F32 => primitive::<types::Float32Type>(column, field),
        FieldType::F64 => primitive::<types::Float64Type>(column, field),
        FieldType::TimestampNs => timestamps(column, field),
        FieldType::Bool => bools(column, field),
        FieldType::Char(width) => chars(column, field, usize::from(width)),
        FieldType::Bytes(width) => fixed_bytes(column, field, usize::from(width)),
        FieldType::Utf8 => {
            let texts = texts(column, field)?;
            Ok(Cells {
                changes: texts.changes,
                ..var(LargeBinaryArray::from(texts.values), texts.failed)
            })
        }
        FieldType::VarBytes => Ok(var(bytes(column)?, Vec::new())),
        FieldType::Json => json(column, field),
    }
}

fn var(values: LargeBinaryArray, failed: Vec<(usize, String)>) -> Cells {
    Cells {
        nulls: values.nulls().cloned(),
        values: Values::Var(values),
        failed,
        changes: Vec::new(),
    }
}

fn nulls(rows: usize, ty: FieldType) -> Cells {
    let values = match ty.fixed_bytes() {
        Some(width) => Values::Fixed(vec![0; rows * width].into()),
        None => Values::Var(LargeBinaryArray::new_null(rows)),
    };
    Cells {
        values,
        nulls: Some(NullBuffer::new_null(rows)),
        failed: Vec::new(),
        changes: Vec::new(),
    }
}

/// Expands dictionaries and runs.
pub(super) fn plain(column: &ArrayRef) -> anyhow::Result<ArrayRef> {
    match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        DataType::RunEndEncoded(_, values) => cast(column, values.data_type()),
        _ => Ok(Arc::clone(column)),
    }
}

pub(super) fn cast(column: &dyn Array, to: &DataType) -> anyhow::Result<ArrayRef> {
    cast_with_options(column, to, &CAST).with_context(|| {
        format!(
            "values of type {} cannot become {to}",
            named(column.data_type())
        )
    })
}

pub(super) fn is_text(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn is_bytes(ty: &DataType) -> bool {
    use DataType as A;
    matches!(
        ty,
        A::Binary | A::LargeBinary | A::BinaryView | A::FixedSizeBinary(_)
    )
}

/// A number type that can be parsed from text.
trait Number: ArrowPrimitiveType {
    fn parse(text: &str) -> Option<Self::Native>;
    fn from_label(value: i128) -> Option<Self::Native>;
    const INTEGER: bool;
}

macro_rules! integers {
    ($($ty:ident),*) => {$(
        impl Number for types::$ty {
            fn parse(text: &str) -> Option<Self::Native> {
                text::parse_integer(text)
            }
            fn from_label(value: i128) -> Option<Self::Native> {
                value.try_into().ok()
            }
            const INTEGER: bool = true;
        }
    )*};
}
integers!(
    UInt8Type, UInt16Type, UInt32Type, UInt64Type, Int8Type, Int16Type, Int32Type, Int64Type
);

macro_rules! floats {
    ($($ty:ident),*) => {$(
        impl Number for types::$ty {
            fn parse(text: &str) -> Option<Self::Native> {
                let text = match text::trimmed(text) {
                    // JSON writes these numbers as strings.
                    "\"NaN\"" => "NaN",
                    "\"Infinity\"" => "inf",
                    "\"-Infinity\"" => "-inf",
                    text => text,
                };
                let value: Self::Native = text.parse().ok()?;
                let is_beyond = text::is_beyond_float(text, value == 0.0, value.is_infinite());
                let is_kept = !is_beyond && !text::is_name(text);
                (is_kept && keeps_integer(text, value as i128, &value)).then_some(value)
            }
            fn from_label(_: i128) -> Option<Self::Native> {
                None
            }
            const INTEGER: bool = false;
        }
    )*};
}
floats!(Float32Type, Float64Type);

/// Whether the float is exactly the integer in the text, or prints as the same digits (12345678901234567000). Text in any other form is a fraction,
/// which may be rounded.
fn keeps_integer(text: &str, whole: i128, float: &impl Display) -> bool {
    const KEPT_DIGITS: usize = 7;
    let is_sign_or_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'-');
    text.len() <= KEPT_DIGITS
        || !text.bytes().all(is_sign_or_digit)
        || text.parse() == Ok(whole)
        || float.to_string() == text
}

fn primitive<T: Number>(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Cells> {
    use DataType as A;
    let ty = column.data_type();
    if *ty == T::DATA_TYPE {
        return Ok(fixed(column.as_primitive::<T>(), Vec::new()));
    }
    if is_text(ty) {
        let labels = field
            .labels
            .iter()
            .map(|(value, label)| (label.as_str(), *value));
        let labels: HashMap<&str, i128> = labels.collect();
        let label = |text: &str| match text.starts_with('"') {
            true => labels.get(serde_json::from_str::<String>(text).ok()?.as_str()),
            false => labels.get(text),
        };
        let parse = |text: &str| {
            let value = label(text).and_then(|value| T::from_label(*value));
            value.or_else(|| T::parse(text))
        };
        return from_texts::<T>(column, field, parse);
    }
    let numbers = match ty {
        A::Timestamp(_, _) | A::Date32 | A::Date64 => &cast(&nanoseconds(column)?, &A::Int64)?,
        A::Duration(_) => &cast(
            &cast(column, &A::Duration(TimeUnit::Nanosecond))?,
            &A::Int64,
        )?,
        A::Time32(_) | A::Time64(_) => {
            &cast(&cast(column, &A::Time64(TimeUnit::Nanosecond))?, &A::Int64)?
        }
        _ => column,
    };
    let values = cast(numbers, &T::DATA_TYPE)?;
    let exact = match (T::INTEGER, numbers.data_type()) {
        (_, A::Boolean) => true,
        (true, from) => from.is_integer(),
        // An f64 keeps fifteen digits exactly.
        (false, A::Decimal64(digits, _) | A::Decimal128(digits, _) | A::Decimal256(digits, _)) => {
            *digits <= 15
        }
        (false, from) => !from.is_integer(),
    };
    let changed = match exact {
        true if T::DATA_TYPE == A::Float32 => Some(misfits_of_f32(numbers, &values)?),
        true => None,
        // A cast to an integer drops a fraction and one to a float drops digits; the cast back shows it.
        false => {
            let back = distinct(&cast(&values, numbers.data_type())?, numbers)?;
            Some(back.values().clone())
        }
    };
    let is_changed = |row| changed.as_ref().is_some_and(|changed| changed.value(row));
    let is_failed = |row| values.is_null(row) || is_changed(row);
    let failed = failures(column, is_failed, field)?;
    Ok(fixed(values.as_primitive::<T>(), failed))
}

/// The rows that f32 cannot hold: numbers that are too large or too small, and inexact integers in decimals. Other digits may be rounded, as those of
/// texts.
fn misfits_of_f32(numbers: &ArrayRef, values: &ArrayRef) -> anyhow::Result<BooleanBuffer> {
    let are_decimals = numbers.data_type().is_decimal();
    let wide = cast(numbers, &DataType::Float64)?;
    let wide = wide.as_primitive::<types::Float64Type>().values();
    let narrow = values.as_primitive::<types::Float32Type>().values();
    let misfit = |(wide, narrow): (&f64, &f32)| {
        let is_too_large = narrow.is_infinite() && wide.is_finite();
        let is_too_small = *narrow == 0.0 && *wide != 0.0;
        is_too_large
            || is_too_small
            || are_decimals && wide.fract() == 0.0 && f64::from(*narrow) != *wide
    };
    Ok(wide.iter().zip(narrow).map(misfit).collect())
}

pub(super) fn fixed<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    failed: Vec<(usize, String)>,
) -> Cells {
    Cells {
        values: Values::Fixed(values.values().inner().clone()),
        nulls: values.nulls().cloned(),
        failed,
        changes: Vec::new(),
    }
}

pub(super) fn from_texts<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    field: &FieldDef,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> anyhow::Result<Cells> {
    let texts = cast(column, &DataType::LargeUtf8)?;
    let texts: &LargeStringArray = texts.as_string();
    let values: PrimitiveArray<T> = texts.iter().map(|text| parse(text?)).collect();
    let failed = failures(column, |row| values.is_null(row), field)?;
    Ok(fixed(&values, failed))
}

/// The rows whose value was lost in the conversion, with the reason.
pub(super) fn failures(
    column: &ArrayRef,
    is_failed: impl Fn(usize) -> bool,
    field: &FieldDef,
) -> anyhow::Result<Vec<(usize, String)>> {
    let nulls = column.logical_nulls();
    let mut formatter = None;
    let mut failed = Vec::new();
    for row in 0..column.len() {
        if !is_failed(row) || nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            continue;
        }
        let formatter = match &mut formatter {
            Some(formatter) => formatter,
            None => formatter.insert(ArrayFormatter::try_new(column, &CAST.format_options)?),
        };
        failed.push((row, misfit(field, formatter.value(row))));
    }
    Ok(failed)
}

fn misfit(field: &FieldDef, value: impl Display) -> String {
    let FieldDef { name, ty, .. } = field;
    let remedy = match ty {
        FieldType::Bytes(_) => "",
        _ => "; a field of type utf8 keeps it (--fields)",
    };
    format!(
        "'{}' does not fit field '{name}' of type {ty}{remedy}",
        short(value)
    )
}

/// The value of a row for a message.
pub(super) fn shown(column: &ArrayRef, row: usize) -> anyhow::Result<String> {
    let values = ArrayFormatter::try_new(column, &CAST.format_options)?;
    Ok(short(values.value(row)))
}

fn short(value: impl Display) -> String {
    let begins: String = value.to_string().chars().take(64).collect();
    begins.escape_debug().to_string().replace("\\\"", "\"")
}

fn nanoseconds(column: &ArrayRef) -> anyhow::Result<ArrayRef> {
    let zone = match column.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, zone))
}

fn timestamps(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Cells> {
    use DataType as A;
    let values = match column.data_type() {
        A::Timestamp(_, _) | A::Date32 | A::Date64 => cast(&nanoseconds(column)?, &A::Int64)?,
        ty if is_text(ty) => {
            let cells = from_texts::<types::Int64Type>(column, field, text::parse_field_time_ns)?;
            return without_far_times(cells, column, field);
        }
        // Whole decimals are nanoseconds; they may exceed 64 bits.
        ty if ty.is_integer() || matches!(ty, A::Decimal128(_, 0)) => cast(column, &A::Int64)?,
        ty => bail!(
            "values of type {} are not times; use a timestamp, a date or integer nanoseconds",
            named(ty)
        ),
    };
    let values = values.as_primitive::<types::Int64Type>();
    if field.nullable {
        let rows = 0..values.len();
        let far = rows.filter(|row| values.is_null(*row) && column.is_valid(*row));
        return Ok(Cells {
            changes: far.map(|row| (row, Change::OutOfRange)).collect(),
            ..fixed(values, Vec::new())
        });
    }
    let failed = failures(column, |row| values.is_null(row), field)?;
    Ok(fixed(values, failed))
}

/// Makes dates outside the range of nanoseconds NULL if the field is nullable.
fn without_far_times(
    mut cells: Cells,
    column: &ArrayRef,
    field: &FieldDef,
) -> anyhow::Result<Cells> {
    if !field.nullable || cells.failed.is_empty() {
        return Ok(cells);
    }
    let texts = cast(column, &DataType::LargeUtf8)?;
    let texts: &LargeStringArray = texts.as_string();
    let is_far = |(row, _): &(usize, String)| text::is_beyond_nanoseconds(texts.value(*row));
    let (far, failed): (Vec<_>, Vec<_>) = cells.failed.into_iter().partition(is_far);
    cells.failed = failed;
    let far = far.into_iter().map(|(row, _)| (row, Change::OutOfRange));
    cells.changes.extend(far);
    Ok(cells)
}

fn bools(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Cells> {
    let values: BooleanArray = match column.data_type() {
        DataType::Boolean => column.as_boolean().clone(),
        ty if is_text(ty) => {
            let texts = cast(column, &DataType::LargeUtf8)?;
            texts
                .as_string::<i64>()
                .iter()
                .map(|text| text::parse_bool(text?))
                .collect()
        }
        ty if ty.is_integer() => {
            let numbers = cast(column, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<types::Int64Type>().iter();
            numbers
                .map(|number| [false, true].get(usize::try_from(number?).ok()?).copied())
                .collect()
        }
        ty => bail!("values of type {} cannot become bool", named(ty)),
    };
    let failed = failures(column, |row| values.is_null(row), field)?;
    let bytes: Vec<u8> = values.values().iter().map(u8::from).collect();
    Ok(Cells {
        values: Values::Fixed(bytes.into()),
        nulls: values.nulls().cloned(),
        failed,
        changes: Vec::new(),
    })
}

/// Converts a column to text: text stays as it is, nested values become JSON, other values are printed by Arrow.
struct Texts {
    values: LargeStringArray,
    failed: Vec<(usize, String)>,
    changes: Vec<(usize, Change)>,
}

fn texts(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Texts> {
    let ty = column.data_type();
    if is_bytes(ty) {
        // The cast would turn invalid UTF-8 into NULL without an error; a field of type `bytes` keeps it.
        bail!(
            "values of type {} may not be text; declare the field as bytes",
            named(ty)
        );
    }
    if ty.is_nested() || matches!(ty, DataType::Interval(_)) {
        let encoded = encoded(column, &field.name)?;
        let texts = cast(&encoded.values, &DataType::LargeUtf8)?;
        return Ok(Texts {
            values: texts.as_string().clone(),
            changes: changes_of(&encoded),
            failed: encoded.failed,
        });
    }
    let texts = cast(column, &DataType::LargeUtf8)?;
    Ok(Texts {
        values: texts.as_string().clone(),
        changes: Vec::new(),
        failed: Vec::new(),
    })
}

fn changes_of(encoded: &Encoded) -> Vec<(usize, Change)> {
    let rows = encoded.not_finite.iter();
    rows.map(|row| (*row, Change::NotFinite)).collect()
}

fn bytes(column: &ArrayRef) -> anyhow::Result<LargeBinaryArray> {
    let ty = column.data_type();
    if !is_bytes(ty) && !is_text(ty) {
        bail!("values of type {} cannot become bytes", named(ty));
    }
    Ok(cast(column, &DataType::LargeBinary)?.as_binary().clone())
}

fn chars(column: &ArrayRef, field: &FieldDef, width: usize) -> anyhow::Result<Cells> {
    let texts = texts(column, field)?;
    let fits = |text: &[u8]| text.len() <= width && !text.contains(&0);
    let mut cells = padded(&LargeBinaryArray::from(texts.values), field, width, fits)?;
    cells.failed.extend(texts.failed);
    cells.changes = texts.changes;
    Ok(cells)
}

fn fixed_bytes(column: &ArrayRef, field: &FieldDef, width: usize) -> anyhow::Result<Cells> {
    padded(&bytes(column)?, field, width, |value| value.len() == width)
}

fn padded(
    values: &LargeBinaryArray,
    field: &FieldDef,
    width: usize,
    fits: impl Fn(&[u8]) -> bool,
) -> anyhow::Result<Cells> {
    let mut out = vec![0; values.len() * width];
    let mut failed = Vec::new();
    for (row, (value, cell)) in values.iter().zip(out.chunks_exact_mut(width)).enumerate() {
        let Some(value) = value else { continue };
        match cell.get_mut(..value.len()) {
            Some(cell) if fits(value) => cell.copy_from_slice(value),
            _ => failed.push((row, misfit(field, String::from_utf8_lossy(value)))),
        }
    }
    Ok(Cells {
        values: Values::Fixed(out.into()),
        nulls: values.nulls().cloned(),
        failed,
        changes: Vec::new(),
    })
}

/// Checks that text is JSON and keeps it as it is; encodes other values.
fn json(column: &ArrayRef, field: &FieldDef) -> anyhow::Result<Cells> {
    if !is_text(column.data_type()) {
        let encoded = encoded(column, &field.name)?;
        return Ok(Cells {
            changes: changes_of(&encoded),
            ..var(encoded.values, encoded.failed)
        });
    }
    let Texts {
        values, mut failed, ..
    } = texts(column, field)?;
    for (row, text) in values.iter().enumerate() {
        let Some(text) = text else { continue };
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            failed.push((row, misfit(field, text)));
        }
    }
    Ok(var(LargeBinaryArray::from(values), failed))
}

/// The column of a field that the input does not have.
pub(crate) fn missing(rows: usize) -> ArrayRef {
    new_null_array(&DataType::Null, rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::Decimal128Array;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_a_float_rounds_or_cannot_hold_is_refused() {
        let decimals = Decimal128Array::from(vec![125, 1_234_567_890_123_456_725]);
        let decimals = decimals.with_data_type(DataType::Decimal128(20, 2));
        let integers =
            PrimitiveArray::<types::Int64Type>::from(vec![5, (1 << 60) + 1, 1 << 60, i64::MAX]);
        let texts = LargeStringArray::from(vec!["inf", "1e999", "-2.5", "-1e400"]);
        let columns: [(ArrayRef, &[usize]); 3] = [
            (Arc::new(decimals), &[1]),
            (Arc::new(integers), &[1, 3]),
            (Arc::new(texts), &[1, 3]),
        ];
        for (column, refused) in columns {
            let cells = convert(&column, &FieldDef::new("f", FieldType::F64)).unwrap();
            let failed: Vec<usize> = cells.failed.iter().map(|(row, _)| *row).collect();
            assert_eq!(failed, refused, "{column:?}");
        }
    }

    #[test]
    fn a_number_that_f32_cannot_hold_is_refused_and_other_digits_are_rounded() {
        let floats = vec![0.1, 1e300, -1e39, f64::INFINITY, 1e-60, 16_777_217.0];
        let floats = PrimitiveArray::<types::Float64Type>::from(floats);
        let decimals = Decimal128Array::from(vec![1_677_721_700, 1_677_721_600, 10]);
        let decimals = decimals.with_data_type(DataType::Decimal128(15, 2));
        let integers = PrimitiveArray::<types::Int64Type>::from(vec![16_777_216, 16_777_217]);
        let columns: [(ArrayRef, &[usize]); 3] = [
            (Arc::new(floats), &[1, 2, 4]),
            (Arc::new(decimals), &[0]),
            (Arc::new(integers), &[1]),
        ];
        for (column, refused) in columns {
            let cells = convert(&column, &FieldDef::new("f", FieldType::F32)).unwrap();
            let failed: Vec<usize> = cells.failed.iter().map(|(row, _)| *row).collect();
            assert_eq!(failed, refused, "{}", column.data_type());
        }
        let parsed = <types::Float32Type as Number>::parse;
        assert_eq!(["1e300", "16777217", "1e-60"].map(parsed), [None; 3]);
        assert_eq!(["0.1", "-0.0"].map(parsed), [Some(0.1), Some(-0.0)]);
    }

    #[test]
    fn a_float_keeps_an_integer_or_refuses_it() {
        let parsed = <types::Float64Type as Number>::parse;
        for text in [
            "9007199254740993",
            "-9007199254740993",
            "123456789012345678",
            "00000000005",
            "+0.5",
            "\"5\"",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let huge = format!("1{}", "0".repeat(300));
        for text in [
            "9007199254740992",
            "12345678901234567000",
            "0.12345678901234567890123",
            "-1e300",
            &huge,
        ] {
            assert_eq!(parsed(text), text.parse().ok(), "{text}");
        }
        let parsed = <types::Float32Type as Number>::parse;
        assert_eq!(
            (parsed("16777217"), parsed("16777216")),
            (None, Some(16_777_216.0))
        );
    }

    proptest! {
        /// `columns` relies on this when it stores a decimal as f64.
        #[test]
        fn a_decimal_of_fifteen_digits_is_the_f64_nearest_to_it(
            digits in -999_999_999_999_999_i64..=999_999_999_999_999,
            fewer in 0_u32..15,
            scale in -22_i8..=22,
        ) {
            let digits = digits / 10_i64.pow(fewer);
            let nearest: f64 = format!("{digits}e{}", -i32::from(scale)).parse().unwrap();
            let decimals = Decimal128Array::from(vec![i128::from(digits)]);
            let decimals = decimals.with_data_type(DataType::Decimal128(38, scale));
            let decimals: ArrayRef = Arc::new(decimals);
            let mut columns = vec![cast(&decimals, &DataType::Decimal256(76, scale)).unwrap()];
            if scale.abs() <= 18 {
                columns.push(cast(&decimals, &DataType::Decimal64(18, scale)).unwrap());
            }
            columns.push(decimals);
            for column in columns {
                let cells = convert(&column, &FieldDef::new("f", FieldType::F64)).unwrap();
                let Values::Fixed(bytes) = cells.values else {
                    panic!("an f64 has a width");
                };
                let kept = f64::from_le_bytes(bytes.as_slice().try_into().unwrap());
                prop_assert_eq!(kept, nearest);
            }
        }
    }
}
