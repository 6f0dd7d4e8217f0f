//! The columns of an input: their names, the field types that keep them, and notes about what changes.
//!
//! Every reader lists its columns; this file merges those of several files. `naming` chooses the field names. Values are not read here.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::datatypes::DataType;
use loom_engine::schema::FieldType;

/// A column of an input, with its name in the input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub name: String,
    pub ty: FieldType,
    pub nullable: bool,
    /// The column has no values, so another file may decide its type.
    pub is_blank: bool,
    pub labels: BTreeMap<i128, String>,
    /// A note for the user if the field differs from the column.
    pub note: Option<String>,
}

impl Column {
    pub(crate) fn new(name: &str, ty: FieldType, nullable: bool) -> Column {
        Column {
            name: name.to_owned(),
            ty,
            nullable,
            is_blank: false,
            labels: BTreeMap::new(),
            note: None,
        }
    }

    /// `digits` is the greatest number of digits in a decimal column, if it is known to be less than the type's precision.
    pub(crate) fn of_arrow(
        name: &str,
        ty: &DataType,
        nullable: bool,
        digits: Option<u8>,
    ) -> Column {
        let (field, note) = field_of(ty, digits.unwrap_or(u8::MAX));
        Column {
            note: note.map(|note| format!("column '{name}' of type {ty} becomes {note}")),
            is_blank: *ty == DataType::Null,
            ..Column::new(name, field, nullable || *ty == DataType::Null)
        }
    }
}

/// The name of a type in messages, without details of the memory layout.
pub(super) fn named(ty: &DataType) -> String {
    let name = ty.to_string();
    name.replace("Utf8View", "Utf8")
        .replace("BinaryView", "Binary")
}

impl Column {
    /// Widens the type so that it also keeps the values of this column of another file.
    fn widen(&mut self, other: &Column) {
        self.nullable |= other.nullable;
        if self.is_blank || other.is_blank {
            if self.is_blank {
                (self.ty, self.note) = (other.ty, other.note.clone());
                self.is_blank = other.is_blank;
            }
            return;
        }
        let ty = wider(self.ty, other.ty);
        if ty == FieldType::Utf8 && (self.ty != ty || other.ty != ty) {
            self.note = Some(format!(
                "column '{}' becomes utf8: it is {} in one file and {} in another",
                self.name, self.ty, other.ty
            ));
        } else if ty != self.ty || self.note.is_none() {
            self.note = other.note.clone().filter(|_| ty == other.ty);
        }
        self.ty = ty;
    }
}

/// Identifies a column: its name, and the number of earlier columns with the same name.
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

/// The field type for an Arrow type, and a description if the value changes.
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

/// An f64 returns a decimal of 15 digits unchanged, if its power of ten is exact too.
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

/// Gives columns of several files that differ only in case the spelling of the first, unless one file has several of them. Returns each other
/// spelling with the first one.
pub(crate) fn one_spelling(files: &mut [Vec<Column>]) -> Vec<(String, String)> {
    let mut first: HashMap<String, String> = HashMap::new();
    let mut apart = HashSet::new();
    for file in &*files {
        let mut given = HashSet::new();
        for name in names(file) {
            let lower = name.to_lowercase();
            first
                .entry(lower.clone())
                .or_insert_with(|| name.to_owned());
            if !given.insert(lower.clone()) {
                apart.insert(lower);
            }
        }
    }
    let mut respelled = Vec::new();
    for column in files.iter_mut().flatten() {
        let lower = column.name.to_lowercase();
        if let Some(first) = first.get(&lower).filter(|_| !apart.contains(&lower))
            && *first != column.name
        {
            let spelling = std::mem::replace(&mut column.name, first.clone());
            respelled.push((spelling, first.clone()));
        }
    }
    respelled
}

/// Merges the columns of several files by name into types that keep all values. Columns with the same name in one file stay apart.
pub(crate) fn merge(files: &[Vec<Column>]) -> Vec<Column> {
    let mut merged: Vec<Column> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for (ordinal, file) in files.iter().enumerate() {
        let mut given = HashSet::new();
        for (column, key) in file.iter().zip(keys(names(file))) {
            let place = *places.entry(key).or_insert(merged.len());
            given.insert(place);
            match merged.get_mut(place) {
                Some(known) => known.widen(column),
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
    fn a_note_is_true_of_the_type_that_keeps_all_files() {
        let decimal = |digits| DataType::Decimal128(digits, 2);
        let of = |ty: &DataType| vec![Column::of_arrow("x", ty, true, None)];
        let note = |files: &[Vec<Column>]| merge(files).remove(0).note;
        let [short, long] = [of(&decimal(10)), of(&decimal(38))];
        let unlike = note(&[short.clone(), long]).unwrap();
        assert_eq!(
            unlike,
            "column 'x' becomes utf8: it is f64 in one file and json in another"
        );
        let floats = of(&DataType::Float64);
        let alike = note(&[floats.clone(), short.clone()]).unwrap();
        assert!(
            alike.contains("becomes f64, which keeps its digits"),
            "{alike}"
        );
        assert_eq!(note(&[floats, of(&DataType::Int64)]), None);
    }

    #[test]
    fn a_column_without_values_has_the_type_that_another_file_gives_it() {
        let blank = || Column {
            is_blank: true,
            ..Column::new("x", FieldType::Utf8, true)
        };
        let numbers = || Column::new("x", FieldType::I64, false);
        let merged = |files: [Column; 3]| merge(&files.map(|column| vec![column])).remove(0);
        for files in [
            [blank(), numbers(), blank()],
            [numbers(), blank(), numbers()],
            [blank(), blank(), numbers()],
        ] {
            let column = merged(files);
            assert_eq!((column.ty, column.nullable), (FieldType::I64, true));
            assert_eq!((column.note, column.is_blank), (None, false));
        }
        assert!(merged([blank(), blank(), blank()]).is_blank);
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
