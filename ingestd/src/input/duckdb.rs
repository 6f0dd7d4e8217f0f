//! The commands by which DuckDB loads files whose format does not define the types of its columns.
//!
//! `format` and `json` show them in messages, because DuckDB detects types better than `load` could.

use std::path::Path;

use super::blocks::is_stream;
use super::compression::inner_name;
use super::own_time::TimeForm;
use super::plan::LoadOptions;
use crate::quoted;

/// The statement for DuckDB 2, which stores the rows itself. `function` reads the format of the file.
pub(super) fn copy_statement(options: &LoadOptions, path: &Path, function: &str) -> String {
    let mut words = format!("SOURCE {}", quoted(&options.source));
    if let Some(ts) = &options.ts_column {
        words += &format!(", TS {}", quoted(ts));
    }
    if let TimeForm::Unit(unit) = options.ts_form {
        words += &format!(", TS_UNIT '{}'", unit.option());
    }
    let indexes: Vec<String> = options.indexes.iter().map(|index| quoted(index)).collect();
    if !indexes.is_empty() {
        words += &format!(", INDEX ({})", indexes.join(", "));
    }
    let (select, dir) = (
        select(options, path, function),
        options.dir.to_string_lossy(),
    );
    format!("COPY ({select}) TO {} (FORMAT loom, {words})", quoted(&dir))
}

/// The command for DuckDB 1, which passes the rows with their types to `ingestd load`.
pub(super) fn copy_pipe(options: &LoadOptions, path: &Path, function: &str) -> String {
    let mut words = format!(
        "{} --source {}",
        word(&options.dir.to_string_lossy()),
        word(&options.source)
    );
    if let Some(ts) = &options.ts_column {
        words += &format!(" --ts {}", word(ts));
    }
    if let TimeForm::Unit(unit) = options.ts_form {
        words += &format!(" --ts-unit {}", unit.option());
    }
    for index in &options.indexes {
        words += &format!(" --index {}", word(index));
    }
    let mut select = select(options, path, function);
    for special in ['\\', '"', '$', '`'] {
        select = select.replace(special, &format!("\\{special}"));
    }
    format!(
        "duckdb -c \"COPY ({select}) TO '/dev/stdout' (FORMAT parquet)\" | ingestd load {words} --format parquet -"
    )
}

/// The extension of a file that DuckDB cannot decompress.
pub(super) fn packed(path: &Path) -> Option<&str> {
    let suffix = path.extension()?.to_str()?;
    ["bz2", "xz"].contains(&suffix).then_some(suffix)
}

/// The query that reads this file and the others of its kind, decompressed if DuckDB cannot do that itself.
fn select(options: &LoadOptions, path: &Path, function: &str) -> String {
    let is_alike = |file: &&Path| inner_name(file).extension() == inner_name(path).extension();
    let name = |file: &Path| match file {
        _ if is_stream(file) => quoted("/dev/stdin"),
        _ if packed(file).is_some() => quoted(&file.with_extension("").to_string_lossy()),
        _ => quoted(&file.to_string_lossy()),
    };
    let files = options.files.iter().map(|file| &**file).filter(is_alike);
    let mut arguments = match files.map(name).collect::<Vec<_>>().as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    if function == "read_csv" {
        if let Some(delimiter) = options.csv.delimiter {
            let shown = match delimiter {
                b'\t' => "\\t".to_owned(),
                _ => char::from(delimiter).to_string(),
            };
            arguments += &format!(", delim = {}", quoted(&shown));
        }
        if options.csv.no_header {
            arguments += ", header = false";
        }
    }
    format!("SELECT * FROM {function}({arguments})")
}

/// Quotes a word of a shell command if necessary.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
