//! Maps an input's columns to a source: defines a new source, or matches the fields of an existing one.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use loom_engine::schema::{
    BinsDef, FIELDS_MAX, FieldDef, FieldType, IndexDef, Overload, SourceDef, TimeKind,
};

use super::columns::{Column, Key, keys, merge, names, one_spelling};
use super::framer::{FieldSource, Framer};
use super::naming::{field_names, renamed};
use super::own_time::{OwnTime, TimeForm};
use super::{Interfaces, Wanted};
use crate::counted;

/// The limit of notes about columns that are left out.
const NAMED_MAX: usize = 10;

/// The user's options for CSV.
#[derive(Copy, Clone, Debug, Default)]
pub struct CsvOptions {
    /// `None` means a comma, or a tab for a `.tsv` file.
    pub delimiter: Option<u8>,
    /// The first row holds values instead of column names.
    pub no_header: bool,
}

/// The options of a load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The directory, for messages.
    pub dir: PathBuf,
    /// All files of the load, for messages; `open` sets it.
    pub(super) files: Vec<PathBuf>,
    /// The source's name.
    pub source: String,
    /// The declared or existing source; `None` makes fields of the columns of a typed format.
    pub declared: Option<SourceDef>,
    /// Columns without a field in `declared` become new fields.
    pub add_fields: bool,
    /// The column of own times; it does not become a field.
    pub ts_column: Option<String>,
    /// The form of these times.
    pub ts_form: TimeForm,
    /// The form of CSV.
    pub csv: CsvOptions,
    /// Columns that get an index with `auto` bins.
    pub indexes: Vec<String>,
    /// How to name interfaces that a capture does not name.
    pub interfaces: Interfaces,
    /// The longest payload of a record.
    pub payload_bytes_max: usize,
}

impl LoadOptions {
    pub fn new(source: impl Into<String>) -> LoadOptions {
        LoadOptions {
            dir: PathBuf::from("DIR"),
            files: Vec::new(),
            source: source.into(),
            declared: None,
            add_fields: false,
            ts_column: None,
            ts_form: TimeForm::Usual,
            csv: CsvOptions::default(),
            indexes: Vec::new(),
            interfaces: Interfaces::Unknown,
            payload_bytes_max: 65_512,
        }
    }

    /// Whether the source takes fields from the columns, so that all files are opened before the first is read.
    pub(super) fn takes_fields(&self) -> bool {
        self.declared.is_none() || self.add_fields
    }
}

/// The source of a load.
pub(super) struct Definition {
    pub def: SourceDef,
    /// The field name of each column of all files; `None` if each file is matched by itself.
    pub fields: Option<HashMap<Key, String>>,
    pub notes: Vec<String>,
}

/// Defines the source of a load, from the columns of all files if it takes fields from them.
pub(super) fn define(
    options: &LoadOptions,
    mut files: Vec<Vec<Column>>,
) -> anyhow::Result<Definition> {
    let respelled = one_spelling(&mut files);
    let files = &files;
    let mut definition = match &options.declared {
        Some(declared) if options.add_fields => extend(options, declared, &merge(files)),
        Some(declared) => Definition {
            def: declared.clone(),
            fields: None,
            notes: Vec::new(),
        },
        None => infer(options, &merge(files))?,
    };
    if let Some(fields) = &mut definition.fields {
        for (spelling, first) in respelled {
            let field = fields.get(&(first, 0)).cloned();
            fields.extend(field.map(|field| ((spelling, 0), field)));
        }
    }
    let def = &mut definition.def;
    let name = &def.name;
    if options.declared.is_none() && files.iter().all(Vec::is_empty) {
        // An input without columns should have no rows either; its reader checks that.
        return Ok(definition);
    }
    match (def.time, &options.ts_column) {
        (TimeKind::Own, None) => {
            bail!(
                "cannot load into source '{name}': its records carry their own time; name the column that holds it with --ts"
            )
        }
        (TimeKind::Arrival, Some(column)) => bail!(
            "cannot take times from column '{column}' (--ts): the time of source '{name}' is the arrival; omit --ts, or load into another \
             source"
        ),
        _ => {}
    }
    ensure!(
        !def.fields.is_empty(),
        "cannot load rows into source '{name}': it has no fields; load into another source"
    );
    for column in &options.indexes {
        let of_files = definition.fields.as_ref();
        let field = of_files.and_then(|fields| fields.get(&(column.clone(), 0)));
        let by_itself = || field_names([&**column].into_iter(), &def.fields).concat();
        let field = field.cloned().unwrap_or_else(by_itself);
        if !def.fields.iter().any(|known| known.name == field) {
            let fields: Vec<_> = def.fields.iter().map(|field| field.name.as_str()).collect();
            bail!(
                "cannot index column '{column}': source '{name}' has no such field; its fields are {}",
                fields.join(", ")
            );
        }
        if !def.indexes.iter().any(|index| index.name == field) {
            def.indexes.push(IndexDef {
                name: field.clone(),
                value: Some(field),
                filter: None,
                bins: BinsDef::Auto,
            });
        }
    }
    def.validate()?;
    Ok(definition)
}

fn infer(options: &LoadOptions, columns: &[Column]) -> anyhow::Result<Definition> {
    let ts = options.ts_column.as_deref();
    if let Some(ts) = ts.filter(|_| !columns.is_empty()) {
        let names: Vec<_> = names(columns).collect();
        ensure!(
            names.contains(&ts),
            "cannot take times from column '{ts}' (--ts): there is no such column; the columns are {}",
            names.join(", ")
        );
    }
    let named = fields_of(columns, ts, &[]);
    let count = named.len();
    ensure!(
        count <= FIELDS_MAX,
        "cannot make source '{}' of {count} columns: a source has at most {FIELDS_MAX} fields; declare those that matter with --fields",
        options.source
    );
    let def = SourceDef {
        name: options.source.clone(),
        time: if ts.is_some() {
            TimeKind::Own
        } else {
            TimeKind::Arrival
        },
        on_overload: Overload::Block,
        fields: named.iter().map(|named| named.field.clone()).collect(),
        indexes: Vec::new(),
    };
    let renames = named.iter().filter_map(Named::renamed);
    let becomes = named.iter().filter_map(|named| named.note.clone());
    Ok(Definition {
        def,
        notes: renames.chain(becomes).collect(),
        fields: Some(names_of(named)),
    })
}

/// Adds fields for new columns to an existing source. They are nullable, because existing records have no value for them.
fn extend(options: &LoadOptions, declared: &SourceDef, columns: &[Column]) -> Definition {
    let mut def = declared.clone();
    let mut notes = Vec::new();
    let named = fields_of(columns, options.ts_column.as_deref(), &declared.fields);
    for new in &named {
        if declared
            .fields
            .iter()
            .any(|known| known.name == new.field.name)
        {
            continue;
        }
        notes.extend(new.renamed());
        notes.extend(new.note.clone());
        def.fields.push(FieldDef {
            nullable: true,
            ..new.field.clone()
        });
    }
    Definition {
        def,
        notes,
        fields: Some(names_of(named)),
    }
}

/// A column and its field.
struct Named {
    key: Key,
    field: FieldDef,
    note: Option<String>,
}

impl Named {
    fn renamed(&self) -> Option<String> {
        renamed(&self.key.0, &self.field.name)
    }
}

/// The fields of the columns, without the column of times; existing fields keep their names.
fn fields_of(columns: &[Column], ts: Option<&str>, known: &[FieldDef]) -> Vec<Named> {
    let keyed = columns.iter().zip(keys(names(columns)));
    let kept: Vec<_> = keyed.filter(|(_, key)| !is_ts(key, ts)).collect();
    let names = field_names(kept.iter().map(|(column, _)| column.name.as_str()), known);
    let fields = kept.into_iter().zip(names);
    let named = |((column, key), name): ((&Column, Key), String)| Named {
        key,
        field: FieldDef {
            nullable: column.nullable,
            labels: column.labels.clone(),
            ..FieldDef::new(name, column.ty)
        },
        note: column.note.clone(),
    };
    fields.map(named).collect()
}

fn names_of(named: Vec<Named>) -> HashMap<Key, String> {
    let names = named.into_iter().map(|named| (named.key, named.field.name));
    names.collect()
}

fn is_ts((name, before): &Key, ts: Option<&str>) -> bool {
    *before == 0 && Some(name.as_str()) == ts
}

/// The mapping from the columns of one file to the fields of the source.
pub(super) struct Plan {
    pub framer: Framer,
    pub wanted: Vec<Wanted>,
    pub notes: Vec<String>,
}

impl Plan {
    pub(super) fn new(
        options: &LoadOptions,
        definition: &Definition,
        columns: &[Column],
        input: &str,
    ) -> anyhow::Result<Plan> {
        let Definition { def, fields, .. } = definition;
        let ts = options.ts_column.as_deref();
        let by_itself;
        let known = match fields {
            Some(fields) => fields,
            None => {
                by_itself = names_of(fields_of(columns, ts, &def.fields));
                &by_itself
            }
        };
        let keys = keys(names(columns));
        let field_name = |key| if is_ts(key, ts) { None } else { known.get(key) };
        let given = || self::names(columns).collect::<Vec<_>>().join(", ");
        let names: Vec<Option<&String>> = keys.iter().map(field_name).collect();
        let mut wanted = Vec::new();
        let mut fields = Vec::new();
        let is_field = |name: &&String| def.fields.iter().any(|field| field.name == **name);
        if !names.iter().flatten().any(is_field) && keys.iter().any(|key| !is_ts(key, ts)) {
            let fields: Vec<_> = def.fields.iter().map(|field| field.name.as_str()).collect();
            bail!(
                "cannot load {input} into source '{}': none of its columns ({}) is a field of it ({}); load into another source, or say how the \
                 CSV is written with --no-header or --delimiter",
                def.name,
                given(),
                fields.join(", ")
            );
        }
        for field in &def.fields {
            let column = names.iter().position(|name| *name == Some(&field.name));
            if column.is_none() && !field.nullable {
                bail!(
                    "cannot load {input} into source '{}': it has no column for field '{}', which is not nullable; its columns are {}; load into \
                     another source, whose field has `nullable = true` (--fields)",
                    def.name,
                    field.name,
                    given()
                );
            }
            fields.push(FieldSource {
                field: field.clone(),
                column: column.map(|_| wanted.len()),
            });
            wanted.extend(column.map(|column| Wanted {
                column,
                as_json: !is_text(field.ty)
                    && !matches!(field.ty, FieldType::Bytes(_) | FieldType::TimestampNs),
                empty_is_null: field.nullable || !is_text(field.ty),
            }));
        }
        let mut own_time = None;
        if let Some(ts) = ts {
            let Some(column) = columns.iter().position(|column| column.name == ts) else {
                bail!(
                    "cannot load {input}: it has no column '{ts}', which --ts names; its columns are {}",
                    given()
                );
            };
            own_time = Some(OwnTime::new(wanted.len(), ts, options.ts_form.clone()));
            wanted.push(Wanted {
                column,
                as_json: false,
                empty_is_null: true,
            });
        }
        let left_out = columns.iter().enumerate().filter_map(|(place, column)| {
            let is_used = wanted.iter().any(|wanted| wanted.column == place);
            (!is_used).then_some(&*column.name)
        });
        let notes = left_out_notes(left_out, &def.name);
        let framer = Framer::new(def, fields, own_time, options.payload_bytes_max)?;
        Ok(Plan {
            framer,
            wanted,
            notes,
        })
    }
}

/// A note for each column that is left out; above the limit one note counts the others.
fn left_out_notes<'a>(names: impl Iterator<Item = &'a str>, source: &str) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let named = names.iter().take(NAMED_MAX);
    let mut notes: Vec<String> = named
        .map(|name| {
            format!(
                "column '{name}' is left out: source '{source}' has no such field; add it with --add-fields"
            )
        })
        .collect();
    if let Some(more) = names.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let more = counted(more as u64, "more column");
        notes.push(format!(
            "{more} left out: source '{source}' has no such fields"
        ));
    }
    notes
}

fn is_text(ty: FieldType) -> bool {
    matches!(
        ty,
        FieldType::Utf8 | FieldType::Char(_) | FieldType::VarBytes
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::ipc::writer::StreamWriter;

    use crate::input::testing::{declared, fields, load, options, try_load};
    use crate::input::{Format, LoadOptions};

    #[test]
    fn a_column_of_another_case_fills_a_field() {
        let loaded = load(b"A\n1\n", Format::Csv, declared(&fields("a i64")));
        assert_eq!(loaded.lines(), ["1"]);
    }

    #[test]
    fn text_adds_no_fields() {
        let options = LoadOptions {
            add_fields: true,
            ..declared(&fields("a i64"))
        };
        let error = try_load(b"a,b\n1,2\n", Format::Csv, options).err().unwrap();
        let words = "CSV does not say their types; declare the new fields with --fields";
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn an_input_that_shares_no_column_with_the_source_is_refused() {
        let fields = fields("a i64");
        let error = try_load(b"b,c\n1,2\n", Format::Csv, declared(&fields));
        let error = error.err().unwrap().to_string();
        let words = "into source 's': none of its columns (b, c) is a field of it (a)";
        assert!(error.contains(words), "{error}");
        // Without columns there is nothing to compare.
        let nothing = load(b"", Format::Csv, declared(&fields));
        assert!(nothing.rows.is_empty() && nothing.notes.is_empty());
    }

    #[test]
    fn columns_that_are_left_out_are_named_up_to_a_number() {
        let names: Vec<String> = (0..199).map(|column| format!("c{column}")).collect();
        let csv = format!("a,{}\n1{}\n", names.join(","), ",2".repeat(199));
        let notes = load(csv.as_bytes(), Format::Csv, declared(&fields("a i64"))).notes;
        assert_eq!(notes.len(), 11, "{notes:?}");
        assert_eq!(
            notes[10],
            "189 more columns left out: source 's' has no such fields"
        );
    }

    #[test]
    fn columns_of_one_name_are_all_kept_also_where_one_holds_the_times() {
        let column = |value| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        let columns = [("t", 5), ("a", 1), ("t", 6), ("A", 2), ("a", 3)];
        let columns = columns.map(|(name, value)| (name, column(value)));
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let options = LoadOptions {
            ts_column: Some("t".to_owned()),
            ..options()
        };
        let loaded = load(&stream, Format::Arrow, options);
        assert_eq!(loaded.fields(), ["a i64", "t i64", "A_1 i64", "a_2 i64"]);
        assert_eq!(loaded.lines(), ["5|1|6|2|3"]);
        let notes = loaded.notes.iter().map(|note| note.split(':').next());
        let expected = [
            "column 'A' becomes field 'A_1'",
            "column 'a' becomes field 'a_2'",
        ];
        assert!(notes.eq(expected.map(Some)), "{:?}", loaded.notes);
    }
}
