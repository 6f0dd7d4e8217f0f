//! The values of a record, out of the columns of an export.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{self as types, DataType};

pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// `None` for NULL.
    pub(super) fn of(column: &'a dyn Array, row: usize) -> Option<Value<'a>> {
        if column.is_null(row) {
            return None;
        }
        macro_rules! number {
            ($ty:ident) => {
                column.as_primitive::<types::$ty>().value(row).into()
            };
        }
        Some(match column.data_type() {
            DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
            DataType::Int8 => Value::Int(number!(Int8Type)),
            DataType::Int16 => Value::Int(number!(Int16Type)),
            DataType::Int32 => Value::Int(number!(Int32Type)),
            DataType::Int64 => Value::Int(number!(Int64Type)),
            DataType::Timestamp(..) => Value::Int(number!(TimestampNanosecondType)),
            DataType::UInt8 => Value::Uint(number!(UInt8Type)),
            DataType::UInt16 => Value::Uint(number!(UInt16Type)),
            DataType::UInt32 => Value::Uint(number!(UInt32Type)),
            DataType::UInt64 => Value::Uint(number!(UInt64Type)),
            DataType::Float32 => Value::Double(number!(Float32Type)),
            DataType::Float64 => Value::Double(number!(Float64Type)),
            DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row)),
            DataType::Binary => Value::Bytes(column.as_binary::<i32>().value(row)),
            DataType::FixedSizeBinary(_) => Value::Bytes(column.as_fixed_size_binary().value(row)),
            other => unreachable!("an export has no column of type {other}"),
        })
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Uint(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn double(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Uint(number) => Some(*number as f64),
            Value::Double(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A record.
#[derive(Copy, Clone)]
pub(super) struct Row<'a> {
    pub batch: &'a RecordBatch,
    pub row: usize,
}

impl<'a> Row<'a> {
    pub(super) fn value(self, field: usize) -> Option<Value<'a>> {
        // The first column is the time.
        Value::of(self.batch.column(field + 1).as_ref(), self.row)
    }

    pub(super) fn integer(self, field: Option<usize>) -> Option<i64> {
        self.value(field?)?.integer()
    }

    pub(super) fn text(self, field: Option<usize>) -> Option<&'a str> {
        self.value(field?)?.text()
    }

    /// The time, unless it is before 1970.
    pub(super) fn time(self) -> Option<u64> {
        let time = Value::of(self.batch.column(0).as_ref(), self.row)?;
        u64::try_from(time.integer()?).ok()
    }
}
