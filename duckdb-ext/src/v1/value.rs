//! Converts values and types of C API v1. A value is tested for NULL first, because the API's conversions throw on NULL, and an exception
//! must not pass through Rust.

use std::ffi::{CStr, CString, c_char};

use duckdb::ffi;

use crate::error::{Problem, Result};
use crate::plan::datum::{Datum, Interval, to_micros};
use crate::plan::types::SqlType;

/// An owned value.
pub struct OwnedValue(ffi::duckdb_value);

impl Drop for OwnedValue {
    fn drop(&mut self) {
        // SAFETY: the value is owned, and destroyed once.
        unsafe { ffi::duckdb_destroy_value(&mut self.0) };
    }
}

impl OwnedValue {
    /// Returns `None` if DuckDB gave no value.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a live value that nobody else destroys.
    pub unsafe fn new(raw: ffi::duckdb_value) -> Option<OwnedValue> {
        (!raw.is_null()).then_some(OwnedValue(raw))
    }

    pub fn of_text(text: &str) -> OwnedValue {
        // SAFETY: the text is live for the call, which copies as many bytes as the length says.
        OwnedValue(unsafe {
            ffi::duckdb_create_varchar_length(text.as_ptr().cast(), text.len() as u64)
        })
    }

    pub fn raw(&self) -> ffi::duckdb_value {
        self.0
    }

    pub fn datum(&self) -> Result<Datum> {
        self.read(false)
    }

    /// Reads a value from texts to texts: the values of a MAP or STRUCT are converted to text, unless they are nested.
    pub fn texts_by_text(&self) -> Result<Datum> {
        self.read(true)
    }

    /// A value inside a MAP or STRUCT.
    fn held(raw: ffi::duckdb_value, as_text: bool) -> Result<Datum> {
        // SAFETY: DuckDB gave the value to us.
        match unsafe { OwnedValue::new(raw) } {
            None => Ok(Datum::Null),
            Some(held) => match held.datum()? {
                kept @ (Datum::Null | Datum::List(_) | Datum::Map(_) | Datum::Struct(_)) => {
                    Ok(kept)
                }
                _ if as_text => held.text().map(Datum::Text),
                kept => Ok(kept),
            },
        }
    }

    fn read(&self, as_text: bool) -> Result<Datum> {
        // SAFETY: the value is live.
        if unsafe { ffi::duckdb_is_null_value(self.0) } {
            return Ok(Datum::Null);
        }
        // SAFETY: the value is live and not NULL, so it has a type, which it keeps owning.
        let ty = unsafe { ffi::duckdb_get_type_id(ffi::duckdb_get_value_type(self.0)) };
        /// Calls a getter of integers.
        macro_rules! integer {
            ($get:ident) => {
                Datum::Int(ffi::$get(self.0).into())
            };
        }
        // SAFETY: each getter is asked of a live, non-NULL value of the very type that it reads.
        let datum = unsafe {
            match ty {
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_BOOLEAN => Datum::Bool(ffi::duckdb_get_bool(self.0)),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TINYINT => integer!(duckdb_get_int8),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_SMALLINT => integer!(duckdb_get_int16),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_INTEGER => integer!(duckdb_get_int32),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_BIGINT => integer!(duckdb_get_int64),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_UTINYINT => integer!(duckdb_get_uint8),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_USMALLINT => integer!(duckdb_get_uint16),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_UINTEGER => integer!(duckdb_get_uint32),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_UBIGINT => integer!(duckdb_get_uint64),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_HUGEINT => {
                    Datum::Int(wide(ffi::duckdb_get_hugeint(self.0)))
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_UHUGEINT => {
                    let value = ffi::duckdb_get_uhugeint(self.0);
                    match i64::try_from(value.upper) {
                        Ok(upper) => Datum::Int(wide(ffi::duckdb_hugeint {
                            lower: value.lower,
                            upper,
                        })),
                        Err(_) => Datum::Other("UHUGEINT".to_owned()),
                    }
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_FLOAT => {
                    Datum::Float(ffi::duckdb_get_float(self.0).into())
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_DOUBLE => Datum::Float(ffi::duckdb_get_double(self.0)),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_DECIMAL => {
                    let decimal = ffi::duckdb_get_decimal(self.0);
                    Datum::Decimal {
                        value: wide(decimal.value),
                        scale: decimal.scale,
                    }
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_VARCHAR => Datum::Text(self.text()?),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP => {
                    Datum::Timestamp(ffi::duckdb_get_timestamp(self.0).micros)
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_S => Datum::Timestamp(to_micros(
                    ffi::duckdb_get_timestamp_s(self.0).seconds,
                    1_000_000,
                )),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_MS => {
                    Datum::Timestamp(to_micros(ffi::duckdb_get_timestamp_ms(self.0).millis, 1000))
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_NS => {
                    Datum::TimestampNs(ffi::duckdb_get_timestamp_ns(self.0).nanos)
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_TZ => {
                    Datum::TimestampTz(ffi::duckdb_get_timestamp_tz(self.0).micros)
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_DATE => Datum::Date(ffi::duckdb_get_date(self.0).days),
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_INTERVAL => {
                    let interval = ffi::duckdb_get_interval(self.0);
                    Datum::Interval(Interval {
                        months: interval.months,
                        days: interval.days,
                        micros: interval.micros,
                    })
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_LIST => {
                    let count = ffi::duckdb_get_list_size(self.0);
                    let items = (0..count).map(|at| {
                        match OwnedValue::new(ffi::duckdb_get_list_child(self.0, at)) {
                            Some(item) => item.datum(),
                            None => Ok(Datum::Null),
                        }
                    });
                    Datum::List(items.collect::<Result<_>>()?)
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_MAP => {
                    let item = |raw| OwnedValue::held(raw, as_text);
                    let entries = (0..ffi::duckdb_get_map_size(self.0)).map(|at| {
                        let key = item(ffi::duckdb_get_map_key(self.0, at))?;
                        Ok((key, item(ffi::duckdb_get_map_value(self.0, at))?))
                    });
                    Datum::Map(entries.collect::<Result<_>>()?)
                }
                ffi::DUCKDB_TYPE_DUCKDB_TYPE_STRUCT => {
                    let ty = ffi::duckdb_get_value_type(self.0);
                    let count = ffi::duckdb_struct_type_child_count(ty);
                    let fields = (0..count).map(|at| {
                        let name = owned_text(ffi::duckdb_struct_type_child_name(ty, at))
                            .ok_or_else(|| Problem::missing("the name of a field"))?;
                        let child = ffi::duckdb_get_struct_child(self.0, at);
                        Ok((name, OwnedValue::held(child, as_text)?))
                    });
                    Datum::Struct(fields.collect::<Result<_>>()?)
                }
                other => Datum::Other(format!("DuckDB's type {other}")),
            }
        };
        Ok(datum)
    }

    fn text(&self) -> Result<String> {
        // SAFETY: the value is live and not NULL; its text is ours to free.
        let text = unsafe { owned_text(ffi::duckdb_get_varchar(self.0)) };
        text.ok_or_else(|| Problem::missing("the text of an argument"))
    }
}

/// Copies and frees a text of DuckDB; `None` without one.
///
/// # Safety
///
/// `text` is null, or a live text that ends in NUL and that nobody else frees.
unsafe fn owned_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises; it is freed once, after the copy.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        ffi::duckdb_free(text.cast());
        Some(owned)
    }
}

fn wide(value: ffi::duckdb_hugeint) -> i128 {
    i128::from(value.upper) << 64 | i128::from(value.lower)
}

/// An owned logical type.
pub struct LogicalType(ffi::duckdb_logical_type);

impl Drop for LogicalType {
    fn drop(&mut self) {
        // SAFETY: the type is owned, and destroyed once.
        unsafe { ffi::duckdb_destroy_logical_type(&mut self.0) };
    }
}

impl LogicalType {
    pub fn raw(&self) -> ffi::duckdb_logical_type {
        self.0
    }

    pub fn of(ty: SqlType) -> LogicalType {
        // SAFETY: the ids are those of types without parameters.
        let simple = |id| LogicalType(unsafe { ffi::duckdb_create_logical_type(id) });
        match ty {
            SqlType::Bool => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_BOOLEAN),
            SqlType::I8 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_TINYINT),
            SqlType::I16 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_SMALLINT),
            SqlType::I32 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_INTEGER),
            SqlType::I64 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_BIGINT),
            SqlType::U8 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_UTINYINT),
            SqlType::U16 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_USMALLINT),
            SqlType::U32 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_UINTEGER),
            SqlType::U64 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_UBIGINT),
            SqlType::F32 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_FLOAT),
            SqlType::F64 => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_DOUBLE),
            SqlType::Huge => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_HUGEINT),
            SqlType::Text => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_VARCHAR),
            SqlType::Enum(texts) => {
                let texts = texts
                    .iter()
                    .map(|text| CString::new(*text).expect("no text of an ENUM has a NUL"));
                let texts: Vec<CString> = texts.collect();
                let mut names: Vec<*const c_char> =
                    texts.iter().map(|text| text.as_ptr()).collect();
                // SAFETY: as many texts as the length says are live for the call, which copies them.
                LogicalType(unsafe {
                    ffi::duckdb_create_enum_type(names.as_mut_ptr(), names.len() as u64)
                })
            }
            SqlType::Blob => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_BLOB),
            SqlType::TimestampTz => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_TZ),
            SqlType::TimestampNs => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_TIMESTAMP_NS),
            SqlType::Interval => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_INTERVAL),
            SqlType::Any => simple(ffi::DUCKDB_TYPE_DUCKDB_TYPE_ANY),
            SqlType::TimestampTzList => LogicalType::list(SqlType::TimestampTz),
            SqlType::F64List => LogicalType::list(SqlType::F64),
            SqlType::TextList => LogicalType::list(SqlType::Text),
            SqlType::TextMap => {
                let text = LogicalType::of(SqlType::Text);
                // SAFETY: the type of keys and values is live; the map's type copies it.
                LogicalType(unsafe { ffi::duckdb_create_map_type(text.raw(), text.raw()) })
            }
        }
    }

    fn list(item: SqlType) -> LogicalType {
        let item = LogicalType::of(item);
        // SAFETY: the item's type is live; the list's type copies it.
        LogicalType(unsafe { ffi::duckdb_create_list_type(item.raw()) })
    }
}
