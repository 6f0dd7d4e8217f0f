//! `COPY … TO 'dir' (FORMAT loom, SOURCE 'name')`: which field takes which column, and the definition of the source if it is new.

use std::path::{Path, PathBuf};

use loom_engine::schema::{
    FieldDef, FieldType, IndexDef, PayloadEncoder, SourceDef, TimeKind, is_reserved_field,
};

use super::access::{Access, is_confined};
use super::ambient::Ambient;
use super::datum::Datum;
use super::paths::at_home;
use crate::error::{Problem, Result};

/// The name of the format.
pub const FORMAT: &str = "loom";

/// The type of a column, as far as fields distinguish it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ColumnType {
    Bool,
    Signed(u8),
    Unsigned(u8),
    /// 128 bits; a row whose number needs more than 64 bits is refused.
    Huge,
    F32,
    F64,
    Text,
    Json,
    Blob,
    /// A time since the Unix epoch; the number is the nanoseconds of its unit.
    Time(i64),
}

impl ColumnType {
    /// The field type for a new source.
    fn field(self) -> FieldType {
        match self {
            ColumnType::Bool => FieldType::Bool,
            ColumnType::Signed(1) => FieldType::I8,
            ColumnType::Signed(2) => FieldType::I16,
            ColumnType::Signed(4) => FieldType::I32,
            ColumnType::Signed(_) | ColumnType::Huge => FieldType::I64,
            ColumnType::Unsigned(1) => FieldType::U8,
            ColumnType::Unsigned(2) => FieldType::U16,
            ColumnType::Unsigned(4) => FieldType::U32,
            ColumnType::Unsigned(_) => FieldType::U64,
            ColumnType::F32 => FieldType::F32,
            ColumnType::F64 => FieldType::F64,
            ColumnType::Text => FieldType::Utf8,
            ColumnType::Json => FieldType::Json,
            ColumnType::Blob => FieldType::VarBytes,
            ColumnType::Time(_) => FieldType::TimestampNs,
        }
    }

    /// Whether an existing field can take the column; single values may still not fit.
    fn fits(self, field: FieldType) -> bool {
        use FieldType as F;
        let is_integer = matches!(
            field,
            F::U8 | F::U16 | F::U32 | F::U64 | F::I8 | F::I16 | F::I32 | F::I64
        );
        match self {
            ColumnType::Bool => field == F::Bool,
            ColumnType::Signed(_) | ColumnType::Unsigned(_) | ColumnType::Huge => {
                is_integer || matches!(field, F::F32 | F::F64)
            }
            ColumnType::F32 | ColumnType::F64 => matches!(field, F::F32 | F::F64),
            ColumnType::Text => matches!(field, F::Utf8 | F::Json | F::Char(_)),
            ColumnType::Json => matches!(field, F::Utf8 | F::Json),
            ColumnType::Blob => matches!(field, F::VarBytes | F::Bytes(_)),
            ColumnType::Time(_) => field == F::TimestampNs,
        }
    }
}

/// A column of the query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyColumn {
    pub name: String,
    pub ty: ColumnType,
}

/// The options of the statement.
#[derive(Clone, PartialEq, Debug)]
struct Options {
    source: String,
    ts: Option<String>,
    /// The nanoseconds of `TS_UNIT`, if the column of `ts` holds numbers.
    ts_unit: Option<i64>,
    indexes: Vec<String>,
    /// The columns whose values have look-ups.
    keys: Vec<String>,
    /// The columns whose words have look-ups.
    words: Vec<String>,
    add_fields: bool,
    strict: bool,
}

impl Options {
    fn of(given: &[(String, Datum)]) -> Result<Options> {
        let mut options = Options {
            source: String::new(),
            ts: None,
            ts_unit: None,
            indexes: Vec::new(),
            keys: Vec::new(),
            words: Vec::new(),
            add_fields: false,
            strict: true,
        };
        for (name, value) in given {
            let name = name.to_ascii_uppercase();
            match name.as_str() {
                "SOURCE" => options.source = text(&name, value)?,
                "TS" => options.ts = Some(text(&name, value)?),
                "TS_UNIT" => options.ts_unit = Some(unit(&text(&name, value)?)?),
                "INDEX" => options.indexes = texts(&name, value)?,
                "LOOKUP" => options.keys = texts(&name, value)?,
                "WORDS" => options.words = texts(&name, value)?,
                "ADD_FIELDS" => options.add_fields = boolean(&name, value)?,
                "STRICT" => options.strict = boolean(&name, value)?,
                _ => {
                    return Err(Problem::binder(format!(
                        "COPY (FORMAT {FORMAT}) has no option {name}; it has SOURCE, TS, TS_UNIT, INDEX, LOOKUP, WORDS, ADD_FIELDS and STRICT"
                    )));
                }
            }
        }
        if options.source.is_empty() {
            return Err(Problem::binder(format!(
                "COPY (FORMAT {FORMAT}) needs the name of the source: SOURCE 'name'"
            )));
        }
        Ok(options)
    }
}

fn text(name: &str, value: &Datum) -> Result<String> {
    match value {
        Datum::Text(text) if !text.is_empty() => Ok(text.to_string()),
        _ => Err(Problem::binder(format!(
            "option {name} takes one text, such as {name} 'x'"
        ))),
    }
}

fn texts(name: &str, value: &Datum) -> Result<Vec<String>> {
    match value {
        Datum::List(items) => items.iter().map(|item| text(name, item)).collect(),
        Datum::Struct(items) => items.iter().map(|(_, item)| text(name, item)).collect(),
        one => Ok(vec![text(name, one)?]),
    }
}

fn boolean(name: &str, value: &Datum) -> Result<bool> {
    match value {
        Datum::Bool(value) => Ok(*value),
        Datum::Int(0) => Ok(false),
        Datum::Int(1) => Ok(true),
        Datum::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Datum::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Problem::binder(format!(
            "option {name} takes true or false"
        ))),
    }
}

fn unit(text: &str) -> Result<i64> {
    match text {
        "s" => Ok(1_000_000_000),
        "ms" => Ok(1_000_000),
        "us" => Ok(1000),
        "ns" => Ok(1),
        _ => Err(Problem::binder(format!(
            "option TS_UNIT takes 's', 'ms', 'us' or 'ns', not '{text}'"
        ))),
    }
}

/// The way from the rows of a query to the payloads of a source.
pub struct CopyPlan {
    pub dir: PathBuf,
    pub def: SourceDef,
    pub encoder: PayloadEncoder,
    /// The column for each field; `None` leaves the field NULL.
    pub fields: Vec<Option<usize>>,
    /// The column with the records' own times, and the nanoseconds of its unit if it holds numbers.
    pub time: Option<(usize, i64)>,
    /// Whether a refused row ends the statement with an error.
    pub is_strict: bool,
    /// Whether fields of the source have look-ups.
    pub has_lookups: bool,
}

impl CopyPlan {
    /// # Errors
    /// The options or columns contradict each other or the existing source, or the directory may not be written.
    pub fn bind(
        dir: &str,
        columns: &[CopyColumn],
        options: &[(String, Datum)],
        ambient: &Ambient<'_>,
    ) -> Result<CopyPlan> {
        let options = Options::of(options)?;
        let dir = at_home(dir);
        if is_confined() || ambient.access != Access::All {
            return Err(Problem::Io(format!(
                "cannot write Loom directory '{}': access to files is disabled here",
                dir.display()
            )));
        }
        if dir.exists() && !dir.is_dir() {
            return Err(Problem::Io(format!(
                "'{}' is a file; name a Loom directory, or a path where one can be created",
                dir.display()
            )));
        }
        let time = options.time(columns)?;
        refuse_reserved(columns, time)?;
        let existing = loom_sink::existing(&dir, &options.source).map_err(problem)?;
        let mut def = match &existing {
            Some(existing) => options.extended(existing, columns, time)?,
            None => options.source(columns, time)?,
        };
        for name in &options.keys {
            of_option(&mut def, columns, "LOOKUP", name)?.lookup = true;
        }
        for name in &options.words {
            of_option(&mut def, columns, "WORDS", name)?.words = true;
        }
        for name in &options.indexes {
            let field = &of_option(&mut def, columns, "INDEX", name)?.name;
            let index = IndexDef::new(field, Some(field));
            def.indexes.push(index);
        }
        def.validate()?;
        let fields = def.fields.iter().map(|field| {
            let holds = |column: &CopyColumn| same(&column.name, &field.name);
            let found = columns.iter().position(holds);
            found.filter(|column| time.is_none_or(|(time, _)| time != *column))
        });
        Ok(CopyPlan {
            dir,
            encoder: PayloadEncoder::new(def.time, &def.fields)?,
            fields: fields.collect(),
            time,
            is_strict: options.strict,
            has_lookups: def.fields.iter().any(|field| field.lookup || field.words),
            def,
        })
    }
}

/// Refuses columns that SQL adds to every source, all at once, as the rows of another Loom directory have them.
fn refuse_reserved(columns: &[CopyColumn], time: Option<(usize, i64)>) -> Result<()> {
    let others = columns.iter().enumerate();
    let others = others.filter(|(at, _)| time.is_none_or(|(time, _)| time != *at));
    let reserved = others.filter(|(_, column)| is_reserved_field(&column.name));
    let names: Vec<&str> = reserved.map(|(_, column)| column.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let time = match time {
        None if names.iter().any(|name| same(name, "ts")) => {
            "; TS 'ts' makes ts the records' own times"
        }
        _ => "",
    };
    let names = names.join(", ");
    Err(Problem::binder(format!(
        "every source has columns with these names: {names}; leave them out with SELECT * EXCLUDE ({names}), or rename them{time}"
    )))
}

impl Options {
    fn time(&self, columns: &[CopyColumn]) -> Result<Option<(usize, i64)>> {
        let Some(ts) = &self.ts else {
            if self.ts_unit.is_some() {
                return Err(Problem::binder(
                    "option TS_UNIT says how to read the column of TS; give TS too",
                ));
            }
            return Ok(None);
        };
        let at = position(columns, "TS", ts)?;
        let Some(column) = columns.get(at) else {
            return Err(Problem::missing("a column"));
        };
        match (column.ty, self.ts_unit) {
            (ColumnType::Time(unit), None) => Ok(Some((at, unit))),
            (ColumnType::Signed(_) | ColumnType::Unsigned(_), Some(unit)) => Ok(Some((at, unit))),
            (ColumnType::Time(_), Some(_)) => Err(Problem::binder(format!(
                "column '{ts}' already holds times; omit TS_UNIT"
            ))),
            (ColumnType::Signed(_) | ColumnType::Unsigned(_), None) => {
                Err(Problem::binder(format!(
                    "column '{ts}' holds numbers; give their unit since 1970: TS_UNIT 's', 'ms', 'us' or 'ns'"
                )))
            }
            _ => Err(Problem::binder(format!(
                "column '{ts}' does not hold times; cast it: {ts}::TIMESTAMP_NS"
            ))),
        }
    }

    /// The definition of a new source.
    fn source(&self, columns: &[CopyColumn], time: Option<(usize, i64)>) -> Result<SourceDef> {
        let mut def = SourceDef::new(&self.source);
        if time.is_some() {
            def.time = TimeKind::Own;
        }
        def.fields = self
            .new_fields(columns, time)
            .map(|(_, field)| field)
            .collect();
        Ok(def)
    }

    /// The fields for the columns; each may be NULL.
    fn new_fields<'a>(
        &self,
        columns: &'a [CopyColumn],
        time: Option<(usize, i64)>,
    ) -> impl Iterator<Item = (&'a CopyColumn, FieldDef)> {
        let own = columns.iter().enumerate();
        let own = own.filter(move |(at, _)| time.is_none_or(|(time, _)| time != *at));
        own.map(|(_, column)| {
            let field = FieldDef::nullable(&column.name, column.ty.field());
            (column, field)
        })
    }

    /// The definition of the existing source, with the additions of the statement.
    fn extended(
        &self,
        existing: &SourceDef,
        columns: &[CopyColumn],
        time: Option<(usize, i64)>,
    ) -> Result<SourceDef> {
        let name = &self.source;
        match (existing.time, time) {
            (TimeKind::Own, None) => {
                return Err(Problem::binder(format!(
                    "the records of source '{name}' have their own times; name their column: TS 'column'"
                )));
            }
            (TimeKind::Arrival, Some(_)) => {
                return Err(Problem::binder(format!(
                    "the records of source '{name}' use arrival times; omit TS, or copy into another source"
                )));
            }
            _ => {}
        }
        let mut def = existing.clone();
        for (column, new) in self.new_fields(columns, time) {
            let field = existing
                .fields
                .iter()
                .find(|field| same(&field.name, &column.name));
            match field {
                Some(field) if column.ty.fits(field.ty) => {}
                Some(field) => {
                    return Err(Problem::binder(format!(
                        "column '{}' does not fit field '{}' of type {}; cast it in the query",
                        column.name, field.name, field.ty
                    )));
                }
                None if self.add_fields => def.fields.push(new),
                None => {
                    return Err(Problem::binder(format!(
                        "source '{name}' has no field '{}'; add it with ADD_FIELDS true, or omit the column from the query",
                        column.name
                    )));
                }
            }
        }
        for field in &existing.fields {
            let is_given = columns.iter().any(|column| same(&column.name, &field.name));
            if !is_given && !field.nullable {
                return Err(Problem::binder(format!(
                    "field '{}' of source '{name}' cannot be NULL, and the query has no such column; add the column",
                    field.name
                )));
            }
        }
        Ok(def)
    }
}

/// The names of columns and fields ignore case, as in SQL.
fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The field that an option names.
fn of_option<'a>(
    def: &'a mut SourceDef,
    columns: &[CopyColumn],
    option: &str,
    name: &str,
) -> Result<&'a mut FieldDef> {
    let mut fields = def.fields.iter_mut();
    match fields.find(|field| same(&field.name, name)) {
        Some(field) => Ok(field),
        None => position(columns, option, name).and(Err(Problem::binder(format!(
            "column '{name}' of {option} holds the times of the records, which are found without it"
        )))),
    }
}

fn position(columns: &[CopyColumn], option: &str, name: &str) -> Result<usize> {
    let found = columns.iter().position(|column| same(&column.name, name));
    found.ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        Problem::binder(format!(
            "the query has no column '{name}', which option {option} names; its columns are {}",
            names.join(", ")
        ))
    })
}

/// Turns an error of the sink into a problem of the statement.
pub fn problem(error: loom_sink::SinkError) -> Problem {
    match error {
        loom_sink::SinkError::Engine(error) => error.into(),
        other => Problem::Io(other.to_string()),
    }
}

/// Whether DuckDB gives the path of the directory itself.
pub fn is_itself(dir: &Path, given: &str) -> bool {
    at_home(given) == dir
}
