//! A field: a named, typed part of a payload. Its type decides its bytes, its key and its SQL column.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::names::{check_name, is_reserved_field, nearest, shown};
use crate::error::{Error, Result};
use crate::types::ValueKind;

/// The most labels that one field can have.
pub const LABELS_MAX: usize = 65_536;
/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 1024;
/// The most bytes of a series: its labels' names and values.
pub const SERIES_BYTES_MAX: usize = 4096;

/// The meaning of a field's bytes. Integers and floats are little-endian.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum FieldType {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// One byte, 0 or 1.
    Bool,
    /// `i64` nanoseconds since the Unix epoch.
    TimestampNs,
    /// Text of at most this many bytes, padded with NUL.
    Char(u16),
    /// Exactly this many bytes.
    Bytes(u16),
    /// Text of any length.
    Utf8,
    /// Bytes of any length.
    VarBytes,
    /// JSON text of any length.
    Json,
}

impl FieldType {
    /// The width in bytes; `None` if the length varies.
    pub const fn fixed_bytes(self) -> Option<usize> {
        match self {
            FieldType::U8 | FieldType::I8 | FieldType::Bool => Some(1),
            FieldType::U16 | FieldType::I16 => Some(2),
            FieldType::U32 | FieldType::I32 | FieldType::F32 => Some(4),
            FieldType::U64 | FieldType::I64 | FieldType::F64 | FieldType::TimestampNs => Some(8),
            FieldType::Char(bytes) | FieldType::Bytes(bytes) => Some(bytes as usize),
            FieldType::Utf8 | FieldType::VarBytes | FieldType::Json => None,
        }
    }

    /// The kind of value to which keys decode; `None` for types without keys, which cannot be an index's value.
    pub const fn kind(self) -> Option<ValueKind> {
        match self {
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 | FieldType::Bool => {
                Some(ValueKind::Unsigned)
            }
            FieldType::I8
            | FieldType::I16
            | FieldType::I32
            | FieldType::I64
            | FieldType::TimestampNs => Some(ValueKind::Signed),
            FieldType::F32 | FieldType::F64 => Some(ValueKind::Float),
            FieldType::Char(_)
            | FieldType::Bytes(_)
            | FieldType::Utf8
            | FieldType::VarBytes
            | FieldType::Json => None,
        }
    }

    /// The least and greatest value of an integer type that may have labels: all but bool and timestamps.
    pub const fn integer_range(self) -> Option<(i128, i128)> {
        match self {
            FieldType::U8 => Some((0, u8::MAX as i128)),
            FieldType::U16 => Some((0, u16::MAX as i128)),
            FieldType::U32 => Some((0, u32::MAX as i128)),
            FieldType::U64 => Some((0, u64::MAX as i128)),
            FieldType::I8 => Some((i8::MIN as i128, i8::MAX as i128)),
            FieldType::I16 => Some((i16::MIN as i128, i16::MAX as i128)),
            FieldType::I32 => Some((i32::MIN as i128, i32::MAX as i128)),
            FieldType::I64 => Some((i64::MIN as i128, i64::MAX as i128)),
            _ => None,
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FieldType::U8 => "u8",
            FieldType::U16 => "u16",
            FieldType::U32 => "u32",
            FieldType::U64 => "u64",
            FieldType::I8 => "i8",
            FieldType::I16 => "i16",
            FieldType::I32 => "i32",
            FieldType::I64 => "i64",
            FieldType::F32 => "f32",
            FieldType::F64 => "f64",
            FieldType::Bool => "bool",
            FieldType::TimestampNs => "timestamp_ns",
            FieldType::Char(bytes) => return write!(f, "char[{bytes}]"),
            FieldType::Bytes(bytes) => return write!(f, "bytes[{bytes}]"),
            FieldType::Utf8 => "utf8",
            FieldType::VarBytes => "bytes",
            FieldType::Json => "json",
        })
    }
}

impl From<FieldType> for String {
    fn from(ty: FieldType) -> String {
        ty.to_string()
    }
}

impl TryFrom<String> for FieldType {
    type Error = Error;

    fn try_from(text: String) -> Result<FieldType> {
        text.parse()
    }
}

impl FromStr for FieldType {
    type Err = Error;

    fn from_str(text: &str) -> Result<FieldType> {
        Ok(match text {
            "u8" => FieldType::U8,
            "u16" => FieldType::U16,
            "u32" => FieldType::U32,
            "u64" => FieldType::U64,
            "i8" => FieldType::I8,
            "i16" => FieldType::I16,
            "i32" => FieldType::I32,
            "i64" => FieldType::I64,
            "f32" => FieldType::F32,
            "f64" => FieldType::F64,
            "bool" => FieldType::Bool,
            "timestamp_ns" => FieldType::TimestampNs,
            "utf8" => FieldType::Utf8,
            "bytes" => FieldType::VarBytes,
            "json" => FieldType::Json,
            _ => return sized_type(text),
        })
    }
}

/// `char[N]` and `bytes[N]`.
fn sized_type(text: &str) -> Result<FieldType> {
    let sized = |name: &str| -> Option<u16> {
        let bytes = text
            .strip_prefix(name)?
            .strip_prefix('[')?
            .strip_suffix(']')?;
        let digits_only = bytes.bytes().all(|b| b.is_ascii_digit());
        bytes.parse().ok().filter(|&n| n > 0 && digits_only)
    };
    sized("char").map(FieldType::Char).or_else(|| sized("bytes").map(FieldType::Bytes)).ok_or_else(
        || {
            Error::schema(format!(
                "unknown field type '{}'; use u8, u16, u32, u64, i8, i16, i32, i64, f32, \
                 f64, bool, timestamp_ns, char[N], bytes[N] (N from 1 to 65535), utf8, bytes or json",
                shown(text, 40)
            ))
        },
    )
}

/// A field as it is declared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldDef {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: FieldType,
    #[serde(default, skip_serializing_if = "is_false")]
    pub nullable: bool,
    /// Names for some values of an integer. TOML and JSON write the numbers as strings.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        with = "label_keys"
    )]
    pub labels: BTreeMap<i128, String>,
    /// The labels of the time series whose values the field holds, with the metric's name as `__name__`; empty for other fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, String>,
    /// Look-ups tell in which units of the log the field has a key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lookup: bool,
    /// Look-ups tell in which units of the log a text of the field has a word.
    #[serde(default, skip_serializing_if = "is_false")]
    pub words: bool,
}

impl FieldDef {
    /// About how many bytes the field takes in a line of the catalog.
    pub fn line_bytes(&self) -> u64 {
        let labels = self.series.iter();
        let labels = labels.map(|(name, text)| 6 + name.len() + text.len());
        (64 + self.name.len() + labels.sum::<usize>()) as u64
    }

    /// A field that is never NULL and has no labels.
    pub fn new(name: impl Into<String>, ty: FieldType) -> FieldDef {
        FieldDef {
            name: name.into(),
            ty,
            nullable: false,
            labels: BTreeMap::new(),
            series: BTreeMap::new(),
            lookup: false,
            words: false,
        }
    }

    /// A field without labels that may be NULL.
    pub fn nullable(name: impl Into<String>, ty: FieldType) -> FieldDef {
        FieldDef {
            nullable: true,
            ..FieldDef::new(name, ty)
        }
    }

    /// The number that a label stands for.
    pub fn label_value(&self, label: &str) -> Option<i128> {
        self.labels
            .iter()
            .find(|(_, text)| *text == label)
            .map(|(&value, _)| value)
    }

    /// The number that shows as this text: that of a label, or a number without one.
    pub fn value_of_text(&self, text: &str) -> Option<i128> {
        let bare = || text.parse().ok();
        let bare = || bare().filter(|number| !self.labels.contains_key(number));
        self.label_value(text).or_else(bare)
    }

    pub(super) fn check(&self) -> Result<()> {
        check_name("field", &self.name)?;
        let name = &self.name;
        if is_reserved_field(name) {
            return Err(Error::schema(format!(
                "a field may not be called '{name}'; the name is reserved for a column of every source"
            )));
        }
        if matches!(self.ty, FieldType::Char(0) | FieldType::Bytes(0)) {
            return Err(Error::schema(format!(
                "field '{name}' has the type {}, which has no bytes",
                self.ty
            )));
        }
        self.check_series()?;
        self.check_lookup()?;
        self.check_labels()
    }

    fn check_lookup(&self) -> Result<()> {
        let FieldDef { name, ty, .. } = self;
        match ty {
            ty if self.words && *ty != FieldType::Utf8 => Err(Error::schema(format!(
                "field '{name}' is {ty}; only utf8 has words"
            ))),
            FieldType::F32 | FieldType::F64 | FieldType::Bool | FieldType::Json if self.lookup => {
                Err(Error::schema(format!(
                    "field '{name}' is {ty}; a look-up takes integers, times, texts and bytes"
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_series(&self) -> Result<()> {
        let FieldDef {
            name, ty, series, ..
        } = self;
        if !series.is_empty() && *ty != FieldType::F64 {
            return Err(Error::schema(format!(
                "field '{name}' is {ty}; only f64 holds a series"
            )));
        }
        let bytes = series
            .iter()
            .map(|(label, value)| label.len() + value.len());
        if bytes.sum::<usize>() > SERIES_BYTES_MAX {
            return Err(Error::schema(format!(
                "field '{name}': the labels of its series take more than {SERIES_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }

    fn check_labels(&self) -> Result<()> {
        let FieldDef {
            name, ty, labels, ..
        } = self;
        if labels.is_empty() {
            return Ok(());
        }
        let Some((least, greatest)) = ty.integer_range() else {
            return Err(Error::schema(format!(
                "field '{name}' is {ty}; only integers have labels"
            )));
        };
        if labels.len() > LABELS_MAX {
            return Err(Error::schema(format!(
                "field '{name}' has more than {LABELS_MAX} labels"
            )));
        }
        let mut seen = HashSet::with_capacity(labels.len());
        for (&value, label) in labels {
            if !(least..=greatest).contains(&value) {
                return Err(Error::schema(format!(
                    "field '{name}': the label of {value} lies outside {ty} ({least} to {greatest})"
                )));
            }
            if label.len() > LABEL_BYTES_MAX {
                return Err(Error::schema(format!(
                    "field '{name}': the label of {value} has more than {LABEL_BYTES_MAX} bytes"
                )));
            }
            if !seen.insert(label.as_str()) {
                return Err(Error::schema(format!(
                    "field '{name}': the label '{}' stands for more than one number",
                    shown(label, 40)
                )));
            }
        }
        Ok(())
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Serializes labels, which numbers key, for TOML and JSON, where keys are strings.
pub(super) mod label_keys {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        labels: &BTreeMap<i128, String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(
            labels
                .iter()
                .map(|(value, label)| (value.to_string(), label)),
        )
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<i128, String>, D::Error> {
        let mut labels = BTreeMap::new();
        for (key, label) in BTreeMap::<String, String>::deserialize(from)? {
            let value: i128 = key.parse().map_err(|_| {
                D::Error::custom(format!(
                    "labels are written {{ NUMBER = \"LABEL\" }}; {key:?} is not a number"
                ))
            })?;
            if labels.insert(value, label).is_some() {
                return Err(D::Error::custom(format!(
                    "the number {value} has two labels"
                )));
            }
        }
        Ok(labels)
    }
}

/// Finds a field by its name; the error suggests others.
pub(super) fn find_field<'a>(fields: &'a [FieldDef], name: &str) -> Result<(usize, &'a FieldDef)> {
    if let Some(found) = fields
        .iter()
        .enumerate()
        .find(|(_, field)| field.name == name)
    {
        return Ok(found);
    }
    let near = nearest(name, fields.iter().map(|field| field.name.as_str()));
    let hint = match near.first() {
        Some(field) => format!("; did you mean '{field}'?"),
        None => String::new(),
    };
    Err(Error::schema(format!(
        "there is no field '{}'{hint}",
        shown(name, 64)
    )))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any field type, with small sizes.
    pub fn any_type() -> impl Strategy<Value = FieldType> {
        prop_oneof![
            8 => prop::sample::select(vec![
                FieldType::U8, FieldType::U16, FieldType::U32, FieldType::U64,
                FieldType::I8, FieldType::I16, FieldType::I32, FieldType::I64,
                FieldType::F32, FieldType::F64, FieldType::Bool, FieldType::TimestampNs,
            ]),
            1 => (1u16..20).prop_map(FieldType::Char),
            1 => (1u16..20).prop_map(FieldType::Bytes),
            3 => prop::sample::select(vec![FieldType::Utf8, FieldType::VarBytes, FieldType::Json]),
        ]
    }

    proptest! {
        #[test]
        fn a_type_is_read_as_it_is_written(ty in any_type()) {
            prop_assert_eq!(ty.to_string().parse::<FieldType>().unwrap(), ty);
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = text.parse::<FieldType>();
        }
    }

    #[test]
    fn types_without_bytes_and_unknown_ones_are_refused() {
        for bad in [
            "char",
            "char[0]",
            "char[65536]",
            "char[+5]",
            "bytes[",
            "int",
            "U8",
            "char[ 5]",
        ] {
            let message = bad.parse::<FieldType>().unwrap_err().to_string();
            assert!(
                message.starts_with("unknown field type"),
                "{bad}: {message}"
            );
        }
        assert_eq!(
            "char[65535]".parse::<FieldType>().unwrap(),
            FieldType::Char(65535)
        );
    }

    #[test]
    fn labels_are_keyed_by_strings() {
        let json = r#"{"name":"op","type":"i8","labels":{"-1":"NONE","2":"SET"}}"#;
        let field: FieldDef = serde_json::from_str(json).unwrap();
        assert_eq!(field.label_value("SET"), Some(2));
        assert_eq!(field.label_value("GET"), None);
        assert_eq!(serde_json::to_string(&field).unwrap(), json);
        let bad =
            serde_json::from_str::<FieldDef>(r#"{"name":"op","type":"u8","labels":{"x":"GET"}}"#);
        assert!(
            bad.unwrap_err()
                .to_string()
                .contains("\"x\" is not a number")
        );
        let twice = r#"{"name":"op","type":"u8","labels":{"1":"GET","01":"SET"}}"#;
        assert!(serde_json::from_str::<FieldDef>(twice).is_err());
    }

    #[test]
    fn labels_must_fit_and_differ() {
        let check = |ty, labels: &[(i128, &str)]| {
            let labels = labels
                .iter()
                .map(|(value, label)| (*value, (*label).to_owned()))
                .collect();
            FieldDef {
                labels,
                ..FieldDef::new("op", ty)
            }
            .check()
        };
        assert!(check(FieldType::U8, &[(0, "GET"), (255, "SET")]).is_ok());
        assert!(check(FieldType::U8, &[(256, "GET")]).is_err());
        assert!(check(FieldType::I8, &[(-129, "GET")]).is_err());
        assert!(check(FieldType::U64, &[(u64::MAX.into(), "GET")]).is_ok());
        assert!(check(FieldType::F64, &[(1, "GET")]).is_err());
        assert!(check(FieldType::Bool, &[(1, "yes")]).is_err());
        assert!(check(FieldType::U8, &[(1, "GET"), (2, "GET")]).is_err());
    }

    #[test]
    fn reserved_names_are_refused_in_any_case() {
        for name in ["ts", "TS_NS", "Addr", "source", "dir"] {
            assert!(
                FieldDef::new(name, FieldType::U8).check().is_err(),
                "{name}"
            );
        }
    }
}
