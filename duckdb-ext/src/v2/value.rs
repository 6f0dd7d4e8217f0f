//! Values and types of C API v2 as ours.

use duckdb_neo::Parameters;
use duckdb_neo::connection::FFILink;
use duckdb_neo::logical_type::{LogicalType, LogicalTypeID};
use duckdb_neo::types::{
    BlobValue, DateValue, DecimalValue, IntervalValue, TimestampMsValue, TimestampNsValue,
    TimestampSecValue, TimestampTzNsValue, TimestampTzValue, TimestampValue,
};
use duckdb_neo::value::Value;

use super::errors::{error, problem};
use crate::error::{Problem, Result};
use crate::plan::datum::{Datum, Interval, to_micros};
use crate::plan::types::SqlType;

/// An interrupt is looked for once in so many items of a list.
const ITEMS_POLL: usize = 4096;

/// Reads a value, whatever its type; `stop` says whether the user has asked for the query to end.
pub fn datum(value: &Value, stop: &dyn Fn() -> bool) -> Result<Datum> {
    read(value, stop).map_err(problem)
}

/// Reads a value that is to hold texts by texts: a MAP or STRUCT with its values as texts, unless they hold values themselves; anything else as it is.
pub fn texts_by_text(value: &Value, link: &impl FFILink, stop: &dyn Fn() -> bool) -> Result<Datum> {
    let as_type = |value: &Value, ty: SqlType| value.cast(link, &logical_type(link, ty)?);
    let texts = || -> duckdb_neo::Result<Datum> {
        if value.is_null()? {
            return Ok(Datum::Null);
        }
        let ty = value.logical_type()?;
        match ty.id()? {
            LogicalTypeID::Struct => (0..value.child_count()?)
                .map(|at| {
                    let (name, _) = ty.get_param(at)?;
                    let child = value.get_child(at)?;
                    let text = match is_nested(&child)? {
                        true => read(&child, stop)?,
                        false => read(&as_type(&child, SqlType::Text)?, stop)?,
                    };
                    Ok((name.to_owned(), text))
                })
                .collect::<duckdb_neo::Result<_>>()
                .map(Datum::Struct),
            // Its children are keys and values in turns.
            LogicalTypeID::Map if value.child_count()? > 1 && is_nested(&value.get_child(1)?)? => {
                read(value, stop)
            }
            LogicalTypeID::Map => read(&as_type(value, SqlType::TextMap)?, stop),
            _ => match as_type(value, SqlType::TextMap) {
                Ok(map) => read(&map, stop),
                Err(_) => read(value, stop),
            },
        }
    };
    texts().map_err(problem)
}

fn is_nested(value: &Value) -> duckdb_neo::Result<bool> {
    let id = value.logical_type()?.id()?;
    Ok(matches!(
        id,
        LogicalTypeID::List | LogicalTypeID::Array | LogicalTypeID::Map | LogicalTypeID::Struct
    ))
}

fn read(value: &Value, stop: &dyn Fn() -> bool) -> duckdb_neo::Result<Datum> {
    if value.is_null()? {
        return Ok(Datum::Null);
    }
    let ty = value.logical_type()?;
    let other = || ty.to_text().map(Datum::Other);
    let some = |datum: Option<Datum>| Ok(datum.unwrap_or(Datum::Null));
    match ty.id()? {
        LogicalTypeID::Boolean => some(value.get::<bool>()?.map(Datum::Bool)),
        LogicalTypeID::TinyInt => some(value.get::<i8>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::SmallInt => some(value.get::<i16>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::Integer => some(value.get::<i32>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::BigInt => some(value.get::<i64>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::HugeInt => some(value.get::<i128>()?.map(Datum::Int)),
        LogicalTypeID::UTinyInt => some(value.get::<u8>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::USmallInt => some(value.get::<u16>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::UInteger => some(value.get::<u32>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::UBigInt => some(value.get::<u64>()?.map(|value| Datum::Int(value.into()))),
        LogicalTypeID::UHugeInt => match value.get::<u128>()?.map(i128::try_from) {
            Some(Ok(value)) => Ok(Datum::Int(value)),
            _ => other(),
        },
        LogicalTypeID::Float => some(value.get::<f32>()?.map(|value| Datum::Float(value.into()))),
        LogicalTypeID::Double => some(value.get::<f64>()?.map(Datum::Float)),
        LogicalTypeID::Decimal => {
            let decimal = value.get::<DecimalValue>()?;
            some(decimal.map(|decimal| Datum::Decimal {
                value: decimal.value,
                scale: decimal.scale,
            }))
        }
        LogicalTypeID::Varchar => some(value.get::<String>()?.map(Datum::Text)),
        LogicalTypeID::Blob => some(value.get::<BlobValue>()?.map(|value| Datum::Blob(value.0))),
        LogicalTypeID::Timestamp => some(
            value
                .get::<TimestampValue>()?
                .map(|value| Datum::Timestamp(value.0)),
        ),
        LogicalTypeID::TimestampSec => some(
            value
                .get::<TimestampSecValue>()?
                .map(|value| Datum::Timestamp(to_micros(value.0, 1_000_000))),
        ),
        LogicalTypeID::TimestampMs => some(
            value
                .get::<TimestampMsValue>()?
                .map(|value| Datum::Timestamp(to_micros(value.0, 1000))),
        ),
        LogicalTypeID::TimestampNs => some(
            value
                .get::<TimestampNsValue>()?
                .map(|value| Datum::TimestampNs(value.0)),
        ),
        LogicalTypeID::TimestampTz => some(
            value
                .get::<TimestampTzValue>()?
                .map(|value| Datum::TimestampTz(value.0)),
        ),
        LogicalTypeID::TimestampTzNs => some(
            value
                .get::<TimestampTzNsValue>()?
                .map(|value| Datum::TimestampTzNs(value.0)),
        ),
        LogicalTypeID::Date => some(value.get::<DateValue>()?.map(|value| Datum::Date(value.0))),
        LogicalTypeID::Interval => some(value.get::<IntervalValue>()?.map(|value| {
            Datum::Interval(Interval {
                months: value.months,
                days: value.days,
                micros: value.micros,
            })
        })),
        LogicalTypeID::List | LogicalTypeID::Array | LogicalTypeID::Tuple => (0..value
            .child_count()?)
            .map(|at| {
                if at % ITEMS_POLL == ITEMS_POLL - 1 && stop() {
                    return Err(error(Problem::Interrupted));
                }
                read(&value.get_child(at)?, stop)
            })
            .collect::<duckdb_neo::Result<_>>()
            .map(Datum::List),
        // Its children are keys and values in turns.
        LogicalTypeID::Map => (0..value.child_count()? / 2)
            .map(|at| {
                let item = |at| read(&value.get_child(at)?, stop);
                Ok((item(2 * at)?, item(2 * at + 1)?))
            })
            .collect::<duckdb_neo::Result<_>>()
            .map(Datum::Map),
        LogicalTypeID::Struct => (0..value.child_count()?)
            .map(|at| {
                let (name, _) = ty.get_param(at)?;
                Ok((name.to_owned(), read(&value.get_child(at)?, stop)?))
            })
            .collect::<duckdb_neo::Result<_>>()
            .map(Datum::Struct),
        _ => other(),
    }
}

/// DuckDB's type for one of ours.
pub fn logical_type(link: &impl FFILink, ty: SqlType) -> duckdb_neo::Result<LogicalType> {
    let simple = |id| link.logical_type_create_from_id(id, Parameters::None);
    match ty {
        SqlType::Bool => simple(LogicalTypeID::Boolean),
        SqlType::I8 => simple(LogicalTypeID::TinyInt),
        SqlType::I16 => simple(LogicalTypeID::SmallInt),
        SqlType::I32 => simple(LogicalTypeID::Integer),
        SqlType::I64 => simple(LogicalTypeID::BigInt),
        SqlType::U8 => simple(LogicalTypeID::UTinyInt),
        SqlType::U16 => simple(LogicalTypeID::USmallInt),
        SqlType::U32 => simple(LogicalTypeID::UInteger),
        SqlType::U64 => simple(LogicalTypeID::UBigInt),
        SqlType::F32 => simple(LogicalTypeID::Float),
        SqlType::F64 => simple(LogicalTypeID::Double),
        SqlType::Huge => simple(LogicalTypeID::HugeInt),
        SqlType::Text => simple(LogicalTypeID::Varchar),
        SqlType::Enum(_) => LogicalType::from_text(link, &ty.name()),
        SqlType::Blob => simple(LogicalTypeID::Blob),
        SqlType::TimestampTz => simple(LogicalTypeID::TimestampTz),
        SqlType::TimestampNs => simple(LogicalTypeID::TimestampNs),
        SqlType::Interval => simple(LogicalTypeID::Interval),
        SqlType::Any => simple(LogicalTypeID::Any),
        SqlType::TimestampTzList => list_of(link, SqlType::TimestampTz),
        SqlType::F64List => list_of(link, SqlType::F64),
        SqlType::TextList => list_of(link, SqlType::Text),
        SqlType::TextMap => {
            let text = Value::from_logical_type(link, &logical_type(link, SqlType::Text)?)?;
            link.logical_type_create("MAP", Parameters::positional(&[&text, &text]))
        }
    }
}

fn list_of(link: &impl FFILink, item: SqlType) -> duckdb_neo::Result<LogicalType> {
    let item = Value::from_logical_type(link, &logical_type(link, item)?)?;
    link.logical_type_create("LIST", Parameters::positional(&[&item]))
}
