//! An archive beside its directory: what `ingestd archive` wrote, as the half of a view that holds the records below the address which it had reached.
//!
//! The manifest is read once, when the view is made. The archiver only adds files with records at or past that address, so the view goes on meaning
//! the same records, each once.

use std::fs;
use std::path::{Path, PathBuf};

use loom_engine::query::Directory;
use loom_engine::schema::Source;
use serde::Deserialize;

use super::ambient::Ambient;
use super::attach::{identifier, literal};
use super::columns::{self, Column};
use super::paths::at_home;
use super::types::SqlType;
use crate::error::{Problem, Result};

const NAME: &str = "_manifest.json";
/// What `ingestd archive` writes.
const FORMAT: u64 = 1;

/// The files of an archive, and up to where each source stands in them.
pub struct Archive {
    path: PathBuf,
    sources: Vec<ArchivedSource>,
}

#[derive(Deserialize)]
struct Manifest {
    format: u64,
    directory: Origin,
    sources: Vec<ArchivedSource>,
}

#[derive(Deserialize)]
struct Origin {
    uuid: String,
    path: PathBuf,
}

#[derive(Deserialize)]
struct ArchivedSource {
    name: String,
    path: String,
    position: u64,
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
    /// The archive of the directory at a path.
    pub fn open(given: &str, directory: &Directory, ambient: &Ambient<'_>) -> Result<Archive> {
        let path = std::path::absolute(at_home(given));
        let path = path
            .map_err(|error| Problem::Io(format!("cannot resolve the path '{given}': {error}")))?;
        ambient.access.require(&path)?;
        if given.contains(['*', '?', '[']) {
            return Err(Problem::binder(format!(
                "archive: '{given}' holds a character that DuckDB takes for a glob; rename the folder"
            )));
        }
        let file = path.join(NAME);
        let unreadable = |why: &dyn std::fmt::Display| {
            Problem::Io(format!(
                "cannot read '{}': {why}; 'ingestd archive DIR --to PATH' writes an archive",
                file.display()
            ))
        };
        let text = fs::read(&file).map_err(|error| unreadable(&error))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        if manifest.format != FORMAT {
            return Err(unreadable(&format_args!(
                "it has format {}, and this extension knows format {FORMAT}",
                manifest.format
            )));
        }
        let uuid = directory.uuid().to_string();
        if manifest.directory.uuid != uuid {
            return Err(Problem::binder(format!(
                "'{}' is the archive of '{}' (UUID {}), not of '{}' ({uuid}); give the archive of this directory",
                path.display(),
                manifest.directory.path.display(),
                manifest.directory.uuid,
                directory.path().display(),
            )));
        }
        let archive = Archive {
            path,
            sources: manifest.sources,
        };
        archive.require_files()?;
        Ok(archive)
    }

    fn require_files(&self) -> Result<()> {
        let mut files = self.sources.iter().flat_map(|source| &source.files);
        let missing = files.find(|file| !self.path.join(&file.path).is_file());
        match missing {
            None => Ok(()),
            Some(file) => Err(Problem::Io(format!(
                "'{}' names '{}', which is missing; restore the file from a backup",
                self.path.join(NAME).display(),
                file.path
            ))),
        }
    }

    /// The query of a source's records in the archive and in the directory, none of them twice, with the columns of `loom_scan`; `None` where the
    /// archive has no record of it.
    pub fn query(&self, source: &Source, dir: &Path) -> Option<String> {
        let archived = self.sources.iter().find(|known| known.name == source.name);
        let archived = archived.filter(|archived| !archived.files.is_empty())?;
        let columns = columns::of_fields(&source.fields);
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
            position = archived.position,
        ))
    }
}

impl ArchivedSource {
    /// A field, from the archive's column: as `loom_scan` shows it.
    fn column(&self, column: &Column, source: &Source) -> String {
        let name = identifier(&column.name);
        let ty = column.ty.name();
        if source.fields.is_empty() {
            return name;
        }
        match self.fields.iter().find(|known| known.field == column.name) {
            // Defined after the latest run of the archiver.
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
