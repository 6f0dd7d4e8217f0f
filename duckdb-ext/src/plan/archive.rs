//! The archive of a directory, as one half of a view: it holds the records below the address that `ingestd archive` has reached.
//!
//! The manifest is read once, when the view is made. The archiver only adds files with records at or above that address, so the view keeps
//! its meaning and shows each record once.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use loom_engine::format::sealed_objects;
use loom_engine::log::storage::{OsStorage, read_file};
use loom_engine::query::Directory;
use loom_engine::schema::Source;
use serde::Deserialize;

use super::ambient::Ambient;
use super::columns::{self, Column};
use super::paths::at_home;
use super::quoting::{identifier, literal};
use super::types::SqlType;
use crate::error::{Problem, Result};

const MANIFEST: &str = "_manifest.jsonl";
const POSITION: &str = "_position.json";
/// Enough for the names of many millions of files.
const TEXT_BYTES_MAX: u64 = 4 << 30;
/// The format that `ingestd archive` writes.
const FORMAT: u64 = 2;

/// The files of an archive, and the address up to which it holds each source.
pub struct Archive {
    path: PathBuf,
    position: Position,
    sources: HashMap<String, ArchivedSource>,
}

/// The first line of the manifest.
#[derive(Deserialize)]
struct Header {
    format: u64,
    directory: Origin,
}

#[derive(Deserialize)]
struct Origin {
    uuid: String,
    path: PathBuf,
}

/// A later line: the files that a commit added to a source. Lines without a source repeat what the position says.
#[derive(Deserialize)]
struct Commit {
    source: Option<String>,
    #[serde(default)]
    path: String,
    #[serde(default)]
    fields: Vec<ArchivedField>,
    #[serde(default)]
    files: Vec<ArchivedFile>,
}

/// The address up to which sources are archived: one for each source in `apart`, and one for all others.
#[derive(Deserialize)]
struct Position {
    reached: u64,
    apart: HashMap<String, u64>,
}

#[derive(Default)]
struct ArchivedSource {
    path: String,
    fields: Vec<ArchivedField>,
    files: Vec<ArchivedFile>,
}

#[derive(Deserialize)]
struct ArchivedField {
    field: String,
    column: String,
    exact_ns: Option<String>,
}

#[derive(Deserialize)]
struct ArchivedFile {
    path: String,
}

impl Archive {
    /// Opens the archive of a directory.
    pub fn open(given: &str, directory: &Directory, ambient: &Ambient<'_>) -> Result<Archive> {
        let path = std::path::absolute(at_home(given));
        let path = path
            .map_err(|error| Problem::Io(format!("cannot resolve the path '{given}': {error}")))?;
        ambient.access.require(&path)?;
        if given.contains(['*', '?', '[']) {
            return Err(Problem::binder(format!(
                "archive: '{given}' contains a character that DuckDB reads as a glob; rename the folder"
            )));
        }
        // The position is read first, so the manifest that is read after it has all files below it.
        let position = objects(&path.join(POSITION), |_, object| {
            serde_json::from_slice::<Position>(object)
        })?;
        let position = position.into_iter().next();
        let position = position.ok_or_else(|| unreadable(&path.join(POSITION), &"it is empty"))?;
        let file = path.join(MANIFEST);
        let mut header = None;
        let mut sources: HashMap<String, ArchivedSource> = HashMap::new();
        objects(&file, |line, object| {
            if line == 0 {
                header = Some(serde_json::from_slice::<Header>(object)?);
                return Ok(());
            }
            let commit: Commit = serde_json::from_slice(object)?;
            if let Some(name) = commit.source {
                let source = sources.entry(name).or_default();
                source.path = commit.path;
                source.files.extend(commit.files);
                if !commit.fields.is_empty() {
                    source.fields = commit.fields;
                }
            }
            Ok(())
        })?;
        let header = header.ok_or_else(|| unreadable(&file, &"it is empty"))?;
        if header.format != FORMAT {
            return Err(unreadable(
                &file,
                &format_args!(
                    "it has format {}, and this extension knows format {FORMAT}",
                    header.format
                ),
            ));
        }
        let uuid = directory.uuid().to_string();
        if header.directory.uuid != uuid {
            return Err(Problem::binder(format!(
                "'{}' is the archive of '{}' (UUID {}), not of '{}' ({uuid}); give the archive of this directory",
                path.display(),
                header.directory.path.display(),
                header.directory.uuid,
                directory.path().display(),
            )));
        }
        let archive = Archive {
            path,
            position,
            sources,
        };
        archive.require_files()?;
        Ok(archive)
    }

    fn require_files(&self) -> Result<()> {
        let mut files = self.sources.values().flat_map(|source| &source.files);
        let missing = files.find(|file| !self.path.join(&file.path).is_file());
        match missing {
            None => Ok(()),
            Some(file) => Err(Problem::Io(format!(
                "'{}' names '{}', which is missing; restore the file from a backup",
                self.path.join(MANIFEST).display(),
                file.path
            ))),
        }
    }

    fn position_of(&self, source: &str) -> u64 {
        let apart = self.position.apart.get(source).copied();
        apart.unwrap_or(self.position.reached)
    }

    /// The query for the records of a source in archive and directory, each once, with the columns of `loom_scan`. Returns `None` if the
    /// archive has no file of the source.
    pub fn query(&self, source: &Source, dir: &Path) -> Option<String> {
        let archived = self.sources.get(&source.name);
        let archived = archived.filter(|archived| !archived.files.is_empty())?;
        let columns = columns::of_source(&source.name, &source.fields);
        let dir = literal(&dir.display().to_string());
        let name = literal(&source.name);
        let cold: Vec<String> = columns
            .iter()
            .map(|column| match column.name.as_str() {
                "source" => format!("{name} AS source"),
                "ts" | "ts_ns" => column.name.clone(),
                "addr" => "addr::UBIGINT AS addr".to_owned(),
                "dir" => format!("{dir} AS dir"),
                _ => archived.column(column, source),
            })
            .collect();
        let hot: Vec<String> = columns
            .iter()
            .map(|column| identifier(&column.name))
            .collect();
        let files = self.path.join(&archived.path).join("*/*/*.parquet");
        Some(format!(
            "SELECT {} FROM read_parquet({}, union_by_name = true, hive_partitioning = false) WHERE addr < {position} \
             UNION ALL SELECT {} FROM loom_scan({dir}, {name}, after := {position})",
            cold.join(", "),
            literal(&files.display().to_string()),
            hot.join(", "),
            position = self.position_of(&source.name),
        ))
    }
}

/// The lines of a file of the archive; each carries its own checksum.
fn objects<T>(
    path: &Path,
    mut decode: impl FnMut(u64, &[u8]) -> serde_json::Result<T>,
) -> Result<Vec<T>> {
    let text = read_file(&OsStorage::default(), path, TEXT_BYTES_MAX)
        .map_err(|error| unreadable(path, &error))?
        .ok_or_else(|| unreadable(path, &"no such file"))?;
    let wrong = |line: u64, what: &dyn Display| {
        unreadable(path, &format_args!("line {}: {what}", line + 1))
    };
    (0..)
        .zip(sealed_objects(&text))
        .map(|(line, object)| {
            let object = object.map_err(|what| wrong(line, &what))?;
            decode(line, &object).map_err(|what| wrong(line, &what))
        })
        .collect()
}

fn unreadable(path: &Path, why: &dyn Display) -> Problem {
    Problem::Io(format!(
        "cannot read '{}': {why}; 'ingestd archive DIR --to PATH' writes an archive",
        path.display()
    ))
}

impl ArchivedSource {
    /// Selects a field from the archive's column, with the type that `loom_scan` shows.
    fn column(&self, column: &Column, source: &Source) -> String {
        let name = identifier(&column.name);
        let ty = column.ty.name();
        if source.fields.is_empty() {
            return name;
        }
        match self.fields.iter().find(|known| known.field == column.name) {
            // The field was defined after the last run of the archiver.
            None => format!("NULL::{ty} AS {name}"),
            Some(field) => match &field.exact_ns {
                Some(exact) if column.ty == SqlType::TimestampNs => {
                    format!("make_timestamp_ns({}) AS {name}", identifier(exact))
                }
                _ => format!("{}::{ty} AS {name}", identifier(&field.column)),
            },
        }
    }
}
