//! The columns of `loom_scan`: `source`, `ts`, `ts_ns`, the source's fields, `addr`, `dir`. `source` is first because `count(*)` reads the
//! first column alone, and `source` is known without reading a record.

use loom_engine::schema::FieldDef;

use super::types::{SqlType, of_field};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub ty: SqlType,
}

impl Column {
    pub fn new(name: impl Into<String>, ty: SqlType) -> Column {
        Column {
            name: name.into(),
            ty,
        }
    }
}

pub fn columns(declared: &[(&str, SqlType)]) -> Vec<Column> {
    declared
        .iter()
        .map(|(name, ty)| Column::new(*name, *ty))
        .collect()
}

/// The content of a column of `loom_scan`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Source,
    Ts,
    TsNs,
    /// The field of this number.
    Field(usize),
    /// The whole payload of a raw source.
    Payload,
    Addr,
    Dir,
    /// A column that DuckDB made up; nothing is written into it.
    Unknown,
}

/// The number of columns before the fields.
const BEFORE_FIELDS: usize = 3;

/// The declared columns of a source with these fields.
pub fn of_source(source: &str, fields: &[FieldDef]) -> Vec<Column> {
    let mut columns = vec![
        Column::new("source", SqlType::Text),
        Column::new("ts", SqlType::TimestampTz),
        Column::new("ts_ns", SqlType::I64),
    ];
    debug_assert_eq!(columns.len(), BEFORE_FIELDS);
    if fields.is_empty() {
        columns.push(Column::new("payload", SqlType::Blob));
    }
    columns.extend(
        fields
            .iter()
            .map(|field| Column::new(&field.name, of_field(source, field))),
    );
    columns.push(Column::new("addr", SqlType::U64));
    columns.push(Column::new("dir", SqlType::Text));
    columns
}

/// The content of the column of this number, in a source that was bound with `fields` fields.
pub fn shown(column: usize, fields: usize) -> Shown {
    let middle = fields.max(1);
    match column {
        0 => Shown::Source,
        1 => Shown::Ts,
        2 => Shown::TsNs,
        _ if column < BEFORE_FIELDS + middle => {
            if fields == 0 {
                Shown::Payload
            } else {
                Shown::Field(column - BEFORE_FIELDS)
            }
        }
        _ if column == BEFORE_FIELDS + middle => Shown::Addr,
        _ if column == BEFORE_FIELDS + middle + 1 => Shown::Dir,
        _ => Shown::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_numbered_as_declared() {
        let shown_of = |fields: usize| {
            (0..fields.max(1) + 6)
                .map(|column| shown(column, fields))
                .collect::<Vec<_>>()
        };
        use Shown::*;
        assert_eq!(
            shown_of(2),
            [Source, Ts, TsNs, Field(0), Field(1), Addr, Dir, Unknown]
        );
        assert_eq!(shown_of(0), [Source, Ts, TsNs, Payload, Addr, Dir, Unknown]);
    }
}
