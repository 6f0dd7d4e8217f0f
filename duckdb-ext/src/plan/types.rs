//! The SQL types of parameters and columns. An adapter turns each into a logical type of its API.

use std::borrow::Cow;

use loom_engine::schema::{
    ALERT_STATES, ALERTS_SOURCE, FieldDef, FieldType, RULE_STATES, RULES_SOURCE,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Huge,
    Text,
    /// One of at most 256 texts, stored as its position.
    Enum(&'static [&'static str]),
    Blob,
    TimestampTz,
    TimestampNs,
    Interval,
    Any,
    TimestampTzList,
    F64List,
    TextList,
    /// A map from texts to texts.
    TextMap,
}

impl SqlType {
    /// The bytes of one entry of a flat vector; 0 for types that no column has.
    pub fn width(self) -> usize {
        match self {
            SqlType::Bool | SqlType::I8 | SqlType::U8 | SqlType::Enum(_) => 1,
            SqlType::I16 | SqlType::U16 => 2,
            SqlType::I32 | SqlType::U32 | SqlType::F32 => 4,
            SqlType::I64
            | SqlType::U64
            | SqlType::F64
            | SqlType::TimestampTz
            | SqlType::TimestampNs => 8,
            SqlType::Huge
            | SqlType::Text
            | SqlType::Blob
            | SqlType::Interval
            | SqlType::TextMap => 16,
            SqlType::Any | SqlType::TimestampTzList | SqlType::F64List | SqlType::TextList => 0,
        }
    }

    /// The name in SQL.
    pub fn name(self) -> Cow<'static, str> {
        let name = match self {
            SqlType::Enum(texts) => return Cow::Owned(format!("ENUM('{}')", texts.join("', '"))),
            SqlType::Bool => "BOOLEAN",
            SqlType::I8 => "TINYINT",
            SqlType::I16 => "SMALLINT",
            SqlType::I32 => "INTEGER",
            SqlType::I64 => "BIGINT",
            SqlType::U8 => "UTINYINT",
            SqlType::U16 => "USMALLINT",
            SqlType::U32 => "UINTEGER",
            SqlType::U64 => "UBIGINT",
            SqlType::F32 => "FLOAT",
            SqlType::F64 => "DOUBLE",
            SqlType::Huge => "HUGEINT",
            SqlType::Text => "VARCHAR",
            SqlType::Blob => "BLOB",
            SqlType::TimestampTz => "TIMESTAMPTZ",
            SqlType::TimestampNs => "TIMESTAMP_NS",
            SqlType::Interval => "INTERVAL",
            SqlType::Any => "ANY",
            SqlType::TimestampTzList => "TIMESTAMPTZ[]",
            SqlType::F64List => "DOUBLE[]",
            SqlType::TextList => "VARCHAR[]",
            SqlType::TextMap => "MAP(VARCHAR, VARCHAR)",
        };
        Cow::Borrowed(name)
    }

    pub fn is_string(self) -> bool {
        matches!(self, SqlType::Text | SqlType::Blob)
    }
}

/// The column type of a field of a source.
pub fn of_field(source: &str, field: &FieldDef) -> SqlType {
    if field.labels.is_empty() {
        return of_numbers(field.ty);
    }
    let closed: &[&str] = match (source, field.name.as_str()) {
        (ALERTS_SOURCE, "state") => &ALERT_STATES,
        (RULES_SOURCE, "state") => &RULE_STATES,
        _ => &[],
    };
    // A later daemon may write labels that this list does not have.
    let is_closed = |label: &String| closed.contains(&label.as_str());
    match field.labels.values().all(is_closed) {
        true => SqlType::Enum(closed),
        false => SqlType::Text,
    }
}

/// The type of a field's plain values, and of its `min`, `max` and quantiles.
pub fn of_numbers(ty: FieldType) -> SqlType {
    match ty {
        FieldType::U8 => SqlType::U8,
        FieldType::U16 => SqlType::U16,
        FieldType::U32 => SqlType::U32,
        FieldType::U64 => SqlType::U64,
        FieldType::I8 => SqlType::I8,
        FieldType::I16 => SqlType::I16,
        FieldType::I32 => SqlType::I32,
        FieldType::I64 => SqlType::I64,
        FieldType::F32 => SqlType::F32,
        FieldType::F64 => SqlType::F64,
        FieldType::Bool => SqlType::Bool,
        FieldType::TimestampNs => SqlType::TimestampNs,
        FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => SqlType::Text,
        FieldType::Bytes(_) | FieldType::VarBytes => SqlType::Blob,
    }
}
