//! What an input's columns become in a source: a definition for a new source, or a match with the one that is there.

use anyhow::{bail, ensure};
use loom_engine::schema::{BinsDef, FieldDef, FieldType, IndexDef, Overload, SourceDef, TimeKind};

use super::Wanted;
use super::columns::{Column, field_name, field_names, merge};
use super::csv::CsvOptions;
use super::framer::{FieldSource, Framer};
use super::own_time::{OwnTime, TimeForm};

/// What a load is to do.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The source's name.
    pub source: String,
    /// The source as declared or as it exists; inferred where there is none.
    pub declared: Option<SourceDef>,
    /// The column of own times, which is then no field.
    pub ts_column: Option<String>,
    /// How times are written there.
    pub ts_form: TimeForm,
    /// How CSV is written.
    pub csv: CsvOptions,
    /// Columns that get an index of their name with `auto` bins.
    pub indexes: Vec<String>,
    /// The longest payload of a record.
    pub payload_bytes_max: usize,
}

impl LoadOptions {
    pub fn new(source: impl Into<String>) -> LoadOptions {
        LoadOptions {
            source: source.into(),
            declared: None,
            ts_column: None,
            ts_form: TimeForm::Usual,
            csv: CsvOptions::default(),
            indexes: Vec::new(),
            payload_bytes_max: 65_512,
        }
    }

    /// The columns that a reader without a schema of its own should look for.
    pub(super) fn declared_names(&self) -> Option<Vec<String>> {
        let declared = self.declared.as_ref()?;
        let fields = declared.fields.iter().map(|field| field.name.clone());
        Some(fields.chain(self.ts_column.clone()).collect())
    }
}

/// The source to load into, from the columns of all files, and notes about them.
pub(super) fn define(
    options: &LoadOptions,
    files: &[Vec<Column>],
) -> anyhow::Result<(SourceDef, Vec<String>)> {
    let (mut def, notes) = match &options.declared {
        Some(declared) => (declared.clone(), Vec::new()),
        None => infer(options, &merge(files))?,
    };
    let name = &def.name;
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
        let field = field_name(column);
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
    Ok((def, notes))
}

fn infer(options: &LoadOptions, columns: &[Column]) -> anyhow::Result<(SourceDef, Vec<String>)> {
    let ts = options.ts_column.as_deref();
    if columns.is_empty() {
        bail!(
            "cannot infer the fields of source '{}': the input has no rows; declare them with --fields",
            options.source
        );
    }
    if let Some(ts) = ts {
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        ensure!(
            names.contains(&ts),
            "cannot take times from column '{ts}' (--ts): there is no such column; the columns are {}",
            names.join(", ")
        );
    }
    let kept: Vec<_> = columns
        .iter()
        .filter(|column| Some(column.name.as_str()) != ts)
        .collect();
    let (names, mut notes) = field_names(kept.iter().map(|column| column.name.as_str()));
    notes.extend(kept.iter().filter_map(|column| column.note.clone()));
    let fields = kept.iter().zip(names).map(|(column, name)| FieldDef {
        name,
        ty: column.ty,
        nullable: column.nullable,
        labels: column.labels.clone(),
    });
    let def = SourceDef {
        name: options.source.clone(),
        time: if ts.is_some() {
            TimeKind::Own
        } else {
            TimeKind::Arrival
        },
        on_overload: Overload::Block,
        fields: fields.collect(),
        indexes: Vec::new(),
    };
    Ok((def, notes))
}

/// How the columns of one file fill the fields of a source.
pub(super) struct Plan {
    pub framer: Framer,
    pub wanted: Vec<Wanted>,
    pub notes: Vec<String>,
}

impl Plan {
    pub(super) fn new(
        options: &LoadOptions,
        def: &SourceDef,
        columns: &[Column],
        input: &str,
    ) -> anyhow::Result<Plan> {
        let ts = options.ts_column.as_deref();
        let is_ts = |column: &&Column| Some(column.name.as_str()) == ts;
        let (names, _) = field_names(
            columns
                .iter()
                .filter(|column| !is_ts(column))
                .map(|c| c.name.as_str()),
        );
        let mut names = names.into_iter();
        let names: Vec<Option<String>> = columns
            .iter()
            .map(|column| if is_ts(&column) { None } else { names.next() })
            .collect();
        let mut wanted = Vec::new();
        let mut fields = Vec::new();
        for field in &def.fields {
            let column = names
                .iter()
                .position(|name| name.as_ref() == Some(&field.name));
            if column.is_none() && !field.nullable {
                let given: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
                bail!(
                    "cannot load {input} into source '{}': it has no column for field '{}', which is not nullable; its columns are {}",
                    def.name,
                    field.name,
                    given.join(", ")
                );
            }
            fields.push(FieldSource {
                field: field.clone(),
                column: column.map(|_| wanted.len()),
            });
            wanted.extend(column.map(|column| Wanted {
                column,
                as_json: field.ty == FieldType::Json,
                empty_is_null: field.nullable || !is_text(field.ty),
            }));
        }
        let mut own_time = None;
        if let Some(ts) = ts {
            let Some(column) = columns.iter().position(|column| column.name == ts) else {
                let given: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
                bail!(
                    "cannot load {input}: it has no column '{ts}', which --ts names; its columns are {}",
                    given.join(", ")
                );
            };
            own_time = Some(OwnTime {
                column: wanted.len(),
                name: ts.to_owned(),
                form: options.ts_form.clone(),
            });
            wanted.push(Wanted {
                column,
                as_json: false,
                empty_is_null: true,
            });
        }
        let left_out = names.iter().enumerate().filter_map(|(column, name)| {
            let used = wanted.iter().any(|wanted| wanted.column == column);
            name.as_ref().filter(|_| !used)
        });
        let notes = left_out.map(|name| {
            let source = &def.name;
            format!("column '{name}' is left out: source '{source}' has no such field")
        });
        let notes = notes.collect();
        let framer = Framer::new(def, fields, own_time, options.payload_bytes_max)?;
        Ok(Plan {
            framer,
            wanted,
            notes,
        })
    }
}

fn is_text(ty: FieldType) -> bool {
    matches!(
        ty,
        FieldType::Utf8 | FieldType::Char(_) | FieldType::VarBytes
    )
}
