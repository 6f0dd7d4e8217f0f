//! From the columns of an input to the fields of a source: names, types, and notes about what changes.
//!
//! Every input names its columns and the field type that keeps them; this file decides once, for all inputs, how
//! they are called in the source. Nothing here touches values.

use std::collections::{BTreeMap, HashMap, HashSet};

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

    /// `digits` is how many the values of a decimal have, where that is known to be fewer than its type allows.
    pub(crate) fn of_arrow(
        name: &str,
        ty: &DataType,
        nullable: bool,
        digits: Option<u8>,
    ) -> Column {
        let (field, note) = field_of(ty, digits.unwrap_or(u8::MAX));
        Column {
            note: note.map(|note| format!("column '{name}' of type {ty} becomes {note}")),
            ..Column::new(name, field, nullable || *ty == DataType::Null)
        }
    }
}

/// A column of an input: its name, and how many columns of that name stand before it.
pub(crate) type Key = (String, usize);

/// The keys of columns, in order.
pub(crate) fn keys<'a>(columns: impl Iterator<Item = &'a str>) -> Vec<Key> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let key = |name: &'a str| {
        let before = seen.entry(name).or_default();
        *before += 1;
        (name.to_owned(), *before - 1)
    };
    columns.map(key).collect()
}

/// The field names of columns, in order.
pub(crate) fn field_names<'a>(columns: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut names = Vec::new();
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
        names.push(name);
    }
    names
}

/// For the user, where a field is not called as its column.
pub(crate) fn renamed(column: &str, field: &str) -> Option<String> {
    (column != field).then(|| {
        format!("column '{column}' becomes field '{field}': the name is reserved or taken")
    })
}

/// The field name of one column by itself: reserved names get an underscore.
pub(crate) fn field_name(column: &str) -> String {
    format!(
        "{column}{}",
        if is_reserved_field(column) { "_" } else { "" }
    )
}

/// The field type that keeps an Arrow type, and what it becomes where that is not the same.
fn field_of(ty: &DataType, digits: u8) -> (FieldType, Option<&'static str>) {
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
        A::Decimal32(most, scale)
        | A::Decimal64(most, scale)
        | A::Decimal128(most, scale)
        | A::Decimal256(most, scale) => decimal(digits.min(*most), *scale),
        A::Dictionary(_, values) => field_of(values, digits),
        A::RunEndEncoded(_, values) => field_of(values.data_type(), digits),
        _ => (FieldType::Json, Some("json: no field type keeps it")),
    }
}

/// A decimal of 15 digits comes out of an f64 as it went in, if the power of ten is exact too.
fn decimal(digits: u8, scale: i8) -> (FieldType, Option<&'static str>) {
    match scale {
        0 if digits <= 18 => (FieldType::I64, None),
        -22..=22 if digits <= 15 => (FieldType::F64, Some("f64, which keeps its digits")),
        _ => (
            FieldType::Json,
            Some("json: it may have more digits than the 15 that f64 keeps"),
        ),
    }
}

/// The fields that keep the columns of several files: the union of names, each wide enough for all of them. Columns that have one name in
/// one file stay apart.
pub(crate) fn merge(files: &[Vec<Column>]) -> Vec<Column> {
    let mut merged: Vec<Column> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for (ordinal, file) in files.iter().enumerate() {
        let mut given = HashSet::new();
        for (column, key) in file.iter().zip(keys(names(file))) {
            let place = *places.entry(key).or_insert(merged.len());
            given.insert(place);
            match merged.get_mut(place) {
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
        for (place, known) in merged.iter_mut().enumerate() {
            known.nullable |= !given.contains(&place);
        }
    }
    merged
}

/// The names of columns, in order.
pub(crate) fn names(columns: &[Column]) -> impl Iterator<Item = &str> {
    columns.iter().map(|column| column.name.as_str())
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
        let names = field_names(columns.into_iter());
        assert_eq!(
            names,
            ["ts_", "TS_NS_", "value", "Value_1", "column4", "ts__1"]
        );
        let notes = columns.iter().zip(&names);
        let notes: Vec<_> = notes
            .filter_map(|(column, field)| renamed(column, field))
            .collect();
        assert_eq!(notes.len(), 5);
        assert_eq!(
            notes[0],
            "column 'ts' becomes field 'ts_': the name is reserved or taken"
        );
    }

    #[test]
    fn types_without_a_field_type_become_json_and_are_noted() {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
        let column = Column::of_arrow("tags", &list, false, None);
        assert_eq!(column.ty, FieldType::Json);
        assert!(
            column
                .note
                .unwrap()
                .starts_with("column 'tags' of type List(")
        );
        let zoned = DataType::Timestamp(TimeUnit::Second, Some("+02:00".into()));
        assert_eq!(
            Column::of_arrow("t", &zoned, false, None).ty,
            FieldType::TimestampNs
        );
    }

    #[test]
    fn a_decimal_becomes_a_number_that_keeps_its_digits_or_json() {
        for (most, scale, digits, expected) in [
            (18, 0, None, FieldType::I64),
            (19, 0, None, FieldType::Json),
            (38, 0, Some(18), FieldType::I64),
            (15, 2, None, FieldType::F64),
            (15, -22, None, FieldType::F64),
            (15, 23, None, FieldType::Json),
            (16, 2, None, FieldType::Json),
            (38, 10, Some(15), FieldType::F64),
        ] {
            let ty = DataType::Decimal128(most, scale);
            let column = Column::of_arrow("price", &ty, false, digits);
            assert_eq!(column.ty, expected, "{ty} of {digits:?} digits");
            assert_eq!(column.note.is_none(), expected == FieldType::I64);
        }
    }

    #[test]
    fn columns_of_one_name_stay_apart_and_meet_those_of_other_files() {
        let column = |ty| Column::new("a", ty, false);
        let first = vec![column(FieldType::I64), column(FieldType::Utf8)];
        let merged = merge(&[first, vec![column(FieldType::F64)]]);
        let fields: Vec<_> = merged.iter().map(|c| (c.ty, c.nullable)).collect();
        assert_eq!(fields, [(FieldType::F64, false), (FieldType::Utf8, true)]);
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
