//! Converts values and types of C API v2.

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

/// An interrupt is checked once in this many items of a list.
const ITEMS_POLL: usize = 4096;

/// Reads a value of any type; `stop` says whether the user has interrupted the query.
pub fn datum(value: &Value, stop: &dyn Fn() -> bool) -> Result<Datum> {
    read(value, stop).map_err(problem)
}

/// Reads a value from texts to texts: the values of a MAP or STRUCT are converted to text, unless they are nested. Other values are read as
/// they are.
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
            // The children of a MAP are keys and values in turn.
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
    /// The value as a datum, by way of the binding's type.
    macro_rules! of {
        ($type:ty, $datum:expr) => {
            Ok(value.get::<$type>()?.map_or(Datum::Null, $datum))
        };
    }
    match ty.id()? {
        LogicalTypeID::Boolean => of!(bool, Datum::Bool),
        LogicalTypeID::TinyInt => of!(i8, |value| Datum::Int(value.into())),
        LogicalTypeID::SmallInt => of!(i16, |value| Datum::Int(value.into())),
        LogicalTypeID::Integer => of!(i32, |value| Datum::Int(value.into())),
        LogicalTypeID::BigInt => of!(i64, |value| Datum::Int(value.into())),
        LogicalTypeID::HugeInt => of!(i128, Datum::Int),
        LogicalTypeID::UTinyInt => of!(u8, |value| Datum::Int(value.into())),
        LogicalTypeID::USmallInt => of!(u16, |value| Datum::Int(value.into())),
        LogicalTypeID::UInteger => of!(u32, |value| Datum::Int(value.into())),
        LogicalTypeID::UBigInt => of!(u64, |value| Datum::Int(value.into())),
        LogicalTypeID::UHugeInt => match value.get::<u128>()?.map(i128::try_from) {
            Some(Ok(value)) => Ok(Datum::Int(value)),
            _ => other(),
        },
        LogicalTypeID::Float => of!(f32, |value| Datum::Float(value.into())),
        LogicalTypeID::Double => of!(f64, Datum::Float),
        LogicalTypeID::Decimal => of!(DecimalValue, |decimal| Datum::Decimal {
            value: decimal.value,
            scale: decimal.scale,
        }),
        LogicalTypeID::Varchar => of!(String, Datum::Text),
        LogicalTypeID::Blob => of!(BlobValue, |value| Datum::Blob(value.0)),
        LogicalTypeID::Timestamp => of!(TimestampValue, |value| Datum::Timestamp(value.0)),
        LogicalTypeID::TimestampSec => of!(TimestampSecValue, |value| {
            Datum::Timestamp(to_micros(value.0, 1_000_000))
        }),
        LogicalTypeID::TimestampMs => of!(TimestampMsValue, |value| {
            Datum::Timestamp(to_micros(value.0, 1000))
        }),
        LogicalTypeID::TimestampNs => of!(TimestampNsValue, |value| Datum::TimestampNs(value.0)),
        LogicalTypeID::TimestampTz => of!(TimestampTzValue, |value| Datum::TimestampTz(value.0)),
        LogicalTypeID::TimestampTzNs => {
            of!(TimestampTzNsValue, |value| Datum::TimestampTzNs(value.0))
        }
        LogicalTypeID::Date => of!(DateValue, |value| Datum::Date(value.0)),
        LogicalTypeID::Interval => of!(IntervalValue, |value| Datum::Interval(Interval {
            months: value.months,
            days: value.days,
            micros: value.micros,
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
        // The children of a MAP are keys and values in turn.
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

/// DuckDB's type for a SQL type.
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
