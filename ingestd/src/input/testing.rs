//! Helpers for the tests of inputs: they load bytes as a file and decode the payloads.

use std::io::Write;
use std::path::PathBuf;

use loom_engine::schema::{FieldType, Layout, SourceDef, TimeKind, parse_sources};
pub(crate) use loom_tests::command::fields;

use super::{Format, Input, InputBatch, LoadOptions, open};

/// The result of a load.
pub(crate) struct Loaded {
    pub def: SourceDef,
    /// The own time, if there is one, and the fields; NULL is `None`, bytes are hexadecimal.
    pub rows: Vec<Vec<Option<String>>>,
    pub refused: Vec<(u64, String)>,
    pub notes: Vec<String>,
}

impl Loaded {
    /// The rows as lines, NULL as `-`.
    pub fn lines(&self) -> Vec<String> {
        let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "-".to_owned());
        let line = |row: &Vec<Option<String>>| row.iter().map(cell).collect::<Vec<_>>().join("|");
        self.rows.iter().map(line).collect()
    }

    /// Each field as `name type`, with a question mark if it is nullable.
    pub fn fields(&self) -> Vec<String> {
        let nullable = |nullable| if nullable { "?" } else { "" };
        let fields = self.def.fields.iter();
        fields
            .map(|f| format!("{} {}{}", f.name, f.ty, nullable(f.nullable)))
            .collect()
    }
}

pub(crate) fn options() -> LoadOptions {
    LoadOptions::new("s")
}

/// Options with a declared source `s`.
pub(crate) fn declared(fields: &str) -> LoadOptions {
    let toml = format!("[[source]]\nname = \"s\"\n{fields}");
    LoadOptions {
        declared: parse_sources(&toml).unwrap().pop(),
        ..options()
    }
}

pub(crate) fn load(bytes: &[u8], format: Format, options: LoadOptions) -> Loaded {
    try_load(bytes, format, options).unwrap()
}

pub(crate) fn try_load(
    bytes: &[u8],
    format: Format,
    options: LoadOptions,
) -> anyhow::Result<Loaded> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(bytes)?;
    let path: PathBuf = file.path().to_owned();
    read_all(open(&[path], Some(format), options)?)
}

/// Loads several files, in order.
pub(crate) fn load_files(
    files: &[impl AsRef<[u8]>],
    format: Format,
    options: LoadOptions,
) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    let path = |(number, bytes)| {
        let path = dir.path().join(format!("file{number}"));
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let paths: Vec<PathBuf> = files.iter().enumerate().map(path).collect();
    read_all(open(&paths, Some(format), options).unwrap()).unwrap()
}

pub(crate) fn read_all(mut input: Input) -> anyhow::Result<Loaded> {
    let mut loaded = Loaded {
        def: input.source().clone(),
        rows: Vec::new(),
        refused: Vec::new(),
        notes: Vec::new(),
    };
    while let Some(batch) = input.next_batch()? {
        loaded.rows.extend(payloads(&loaded.def, &batch));
        loaded.refused.extend(batch.refused);
        loaded.notes.extend(batch.notes);
    }
    Ok(loaded)
}

/// Decodes a batch, and checks it against its layout.
pub(crate) fn payloads(def: &SourceDef, batch: &InputBatch) -> Vec<Vec<Option<String>>> {
    let layout = Layout::new(def.time, &def.fields).unwrap();
    let mut rest = batch.bytes.as_slice();
    let mut rows = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (payload, after) = after.split_at(usize::from(u16::from_le_bytes(*length)));
        rest = after;
        layout.validate(payload).unwrap();
        let mut row = Vec::new();
        if def.time == TimeKind::Own {
            row.push(layout.own_time(payload).map(|time| time.0.to_string()));
        }
        for (field, slot) in layout.slots().iter().enumerate() {
            row.push(
                layout
                    .bytes(field, payload)
                    .map(|bytes| shown(slot.ty, bytes)),
            );
        }
        rows.push(row);
    }
    assert_eq!(rows.len() as u64, batch.rows);
    rows
}

fn shown(ty: FieldType, bytes: &[u8]) -> String {
    macro_rules! number {
        ($ty:ty) => {
            <$ty>::from_le_bytes(bytes.try_into().unwrap()).to_string()
        };
    }
    match ty {
        FieldType::U8 => number!(u8),
        FieldType::U16 => number!(u16),
        FieldType::U32 => number!(u32),
        FieldType::U64 => number!(u64),
        FieldType::I8 => number!(i8),
        FieldType::I16 => number!(i16),
        FieldType::I32 => number!(i32),
        FieldType::I64 | FieldType::TimestampNs => number!(i64),
        FieldType::F32 => number!(f32),
        FieldType::F64 => number!(f64),
        FieldType::Bool => (bytes == [1]).to_string(),
        FieldType::Char(_) => String::from_utf8(bytes.to_vec())
            .unwrap()
            .trim_end_matches('\0')
            .to_owned(),
        FieldType::Utf8 | FieldType::Json => String::from_utf8(bytes.to_vec()).unwrap(),
        FieldType::Bytes(_) | FieldType::VarBytes => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
    }
}
