//! From the columns of an input to the fields of a source: names, types, and notes about what changes.
//!
//! Every input names its columns and the field type that keeps them; this file decides once, for all inputs, how
//! they are called in the source. Nothing here touches values.

use std::collections::{BTreeMap, HashSet};

use arrow::datatypes::DataType;
use loom_engine::schema::{FieldType, is_reserved_field};

/// A column of an input, under its own name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub name: String,
    pub ty: FieldType,
    pub nullable: bool,
    pub labels: BTreeMap<i128, String>,
    /// For the user, where the field differs from the column.
    pub note: Option<String>,
}

impl Column {
    pub(crate) fn new(name: &str, ty: FieldType, nullable: bool) -> Column {
        Column {
            name: name.to_owned(),
            ty,
            nullable,
            labels: BTreeMap::new(),
            note: None,
        }
    }

    pub(crate) fn of_arrow(name: &str, ty: &DataType, nullable: bool) -> Column {
        let (field, note) = field_of(ty);
        Column {
            note: note.map(|note| format!("column '{name}' of type {ty} becomes {note}")),
            ..Column::new(name, field, nullable || *ty == DataType::Null)
        }
    }
}

/// The field names of columns, in order, and notes about those that changed.
pub(crate) fn field_names<'a>(
    columns: impl Iterator<Item = &'a str>,
) -> (Vec<String>, Vec<String>) {
    let mut taken = HashSet::new();
    let mut names = Vec::new();
    let mut notes = Vec::new();
    for (ordinal, column) in columns.enumerate() {
        let mut name = field_name(column);
        if name.is_empty() {
            name = format!("column{ordinal}");
        }
        let base = name.clone();
        let mut copy = 0;
        while !taken.insert(name.to_lowercase()) {
            copy += 1;
            name = format!("{base}_{copy}");
        }
        if name != column {
            notes.push(format!(
                "column '{column}' becomes field '{name}': the name is reserved or taken"
            ));
        }
        names.push(name);
    }
    (names, notes)
}

/// The field name of one column by itself: reserved names get an underscore.
pub(crate) fn field_name(column: &str) -> String {
    format!(
        "{column}{}",
        if is_reserved_field(column) { "_" } else { "" }
    )
}

/// The field type that keeps an Arrow type, and what it becomes where that is not the same.
fn field_of(ty: &DataType) -> (FieldType, Option<&'static str>) {
    use DataType as A;
    let same = |ty| (ty, None);
    match ty {
        A::Boolean => same(FieldType::Bool),
        A::Int8 => same(FieldType::I8),
        A::Int16 => same(FieldType::I16),
        A::Int32 => same(FieldType::I32),
        A::Int64 => same(FieldType::I64),
        A::UInt8 => same(FieldType::U8),
        A::UInt16 => same(FieldType::U16),
        A::UInt32 => same(FieldType::U32),
        A::UInt64 => same(FieldType::U64),
        A::Float16 | A::Float32 => same(FieldType::F32),
        A::Float64 => same(FieldType::F64),
        A::Timestamp(_, _) | A::Date32 | A::Date64 => same(FieldType::TimestampNs),
        A::Duration(_) => (FieldType::I64, Some("i64 nanoseconds")),
        A::Utf8 | A::LargeUtf8 | A::Utf8View => same(FieldType::Utf8),
        A::Binary | A::LargeBinary | A::BinaryView => same(FieldType::VarBytes),
        A::FixedSizeBinary(bytes) => match u16::try_from(*bytes) {
            Ok(bytes) if bytes > 0 => same(FieldType::Bytes(bytes)),
            _ => same(FieldType::VarBytes),
        },
        A::Decimal32(digits, 0)
        | A::Decimal64(digits, 0)
        | A::Decimal128(digits, 0)
        | A::Decimal256(digits, 0)
            if *digits <= 18 =>
        {
            same(FieldType::I64)
        }
        A::Dictionary(_, values) => field_of(values),
        A::RunEndEncoded(_, values) => field_of(values.data_type()),
        _ => (FieldType::Json, Some("json: no field type keeps it")),
    }
}

/// The fields that keep the columns of several files: the union of names, each wide enough for all of them.
pub(crate) fn merge(files: &[Vec<Column>]) -> Vec<Column> {
    let mut merged: Vec<Column> = Vec::new();
    for (ordinal, file) in files.iter().enumerate() {
        for column in file {
            match merged.iter_mut().find(|known| known.name == column.name) {
                Some(known) => {
                    known.ty = wider(known.ty, column.ty);
                    known.nullable |= column.nullable;
                }
                None => merged.push(Column {
                    nullable: column.nullable || ordinal > 0,
                    ..column.clone()
                }),
            }
        }
        for known in &mut merged {
            known.nullable |= !file.iter().any(|column| column.name == known.name);
        }
    }
    merged
}

fn wider(one: FieldType, other: FieldType) -> FieldType {
    use FieldType as F;
    if one == other {
        return one;
    }
    let signed = |ty| match ty {
        F::I8 | F::U8 => Some(8),
        F::I16 | F::U16 => Some(16),
        F::I32 | F::U32 => Some(32),
        F::I64 => Some(64),
        _ => None,
    };
    let unsigned = |ty| matches!(ty, F::U8 | F::U16 | F::U32 | F::U64);
    let float = |ty| matches!(ty, F::F32 | F::F64) || signed(ty).is_some();
    if unsigned(one) && unsigned(other) {
        F::U64
    } else if signed(one).is_some() && signed(other).is_some() {
        F::I64
    } else if float(one) && float(other) {
        F::F64
    } else if matches!(one, F::VarBytes | F::Bytes(_)) && matches!(other, F::VarBytes | F::Bytes(_))
    {
        F::VarBytes
    } else {
        F::Utf8
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    #[test]
    fn reserved_and_repeated_names_change_and_are_noted() {
        let columns = ["ts", "TS_NS", "value", "Value", "", "ts_"];
        let (names, notes) = field_names(columns.into_iter());
        assert_eq!(
            names,
            ["ts_", "TS_NS_", "value", "Value_1", "column4", "ts__1"]
        );
        assert_eq!(notes.len(), 5);
        assert_eq!(
            notes[0],
            "column 'ts' becomes field 'ts_': the name is reserved or taken"
        );
    }

    #[test]
    fn types_without_a_field_type_become_json_and_are_noted() {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
        let column = Column::of_arrow("tags", &list, false);
        assert_eq!(column.ty, FieldType::Json);
        assert!(
            column
                .note
                .unwrap()
                .starts_with("column 'tags' of type List(")
        );
        assert_eq!(
            Column::of_arrow("price", &DataType::Decimal128(10, 2), false).ty,
            FieldType::Json
        );
        let whole = Column::of_arrow("n", &DataType::Decimal128(18, 0), false);
        assert_eq!((whole.ty, whole.note), (FieldType::I64, None));
        let zoned = DataType::Timestamp(TimeUnit::Second, Some("+02:00".into()));
        assert_eq!(
            Column::of_arrow("t", &zoned, false).ty,
            FieldType::TimestampNs
        );
    }

    #[test]
    fn fields_of_several_files_keep_them_all() {
        let first = vec![
            Column::new("a", FieldType::I64, false),
            Column::new("b", FieldType::U8, false),
        ];
        let second = vec![
            Column::new("a", FieldType::F64, false),
            Column::new("c", FieldType::Utf8, false),
        ];
        let merged = merge(&[first, second]);
        let fields: Vec<_> = merged
            .iter()
            .map(|column| (column.name.as_str(), column.ty, column.nullable))
            .collect();
        assert_eq!(
            fields,
            [
                ("a", FieldType::F64, false),
                ("b", FieldType::U8, true),
                ("c", FieldType::Utf8, true)
            ]
        );
    }
}
