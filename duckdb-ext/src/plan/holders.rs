//! The directories of a call that have its source. If only some of several directories have it, the call reads those, and `loom_scan_stats`
//! has a row for each of the others.

use std::path::Path;
use std::sync::Arc;

use loom_engine::Error;
use loom_engine::query::Snapshot;
use loom_engine::schema::{Source, unknown_source};

use super::access::may_look;
use super::paths::Given;
use super::quoting::list;
use super::stats;
use crate::error::{Problem, Result};

/// A directory that has the source.
pub struct Holder {
    /// The path, as rows show it.
    pub dir: String,
    pub snapshot: Snapshot,
    pub source: Arc<Source>,
}

/// The directories of a call, by whether they have the source.
pub struct Holders {
    /// In the order given; never empty.
    pub with: Vec<Holder>,
    without: Vec<String>,
    source: String,
}

impl Holders {
    /// # Errors
    /// No directory has the source.
    pub fn find(
        directories: Vec<(String, Snapshot)>,
        source: &str,
        given: &Given,
    ) -> Result<Holders> {
        let has = |snapshot: &Snapshot| snapshot.catalog().find(source).is_some();
        if !directories.iter().any(|(_, snapshot)| has(snapshot)) {
            let catalogs = directories
                .iter()
                .map(|(_, snapshot)| &**snapshot.catalog());
            let dirs = list(given.texts().iter().map(String::as_str));
            return Err(unknown(unknown_source(catalogs, source), &dirs));
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (dir, snapshot) in directories {
            match snapshot.catalog().find(source).map(Arc::clone) {
                Some(source) => with.push(Holder {
                    dir,
                    snapshot,
                    source,
                }),
                None => without.push(dir),
            }
        }
        Ok(Holders {
            with,
            without,
            source: source.to_owned(),
        })
    }

    /// The directories that an execution reads. Adds a note for each of the others.
    pub fn noted(self) -> Vec<Holder> {
        for dir in &self.without {
            stats::skipped(dir, &self.source);
        }
        self.with
    }
}

/// The error for an unknown name, with the function that lists the names; `dirs` is SQL.
pub fn unknown(error: Error, dirs: &str) -> Problem {
    match &error {
        Error::UnknownSource { name, .. } => {
            let path = Path::new(name);
            let hint = if !may_look(path) {
                ""
            } else if name.contains('/') && path.exists() {
                "; the directory comes first: (dir, source)"
            } else if path.join("loom.json").exists() {
                "; it is a Loom directory: an argument after it is missing"
            } else {
                ""
            };
            listed(&format!("{error}{hint}"), "sources", dirs)
        }
        Error::UnknownIndex { .. } => listed(&error.to_string(), "indexes", dirs),
        _ => error.into(),
    }
}

/// Adds the function that lists the names. `what` may end with a question.
fn listed(what: &str, names: &str, dirs: &str) -> Problem {
    let end = if what.ends_with('?') { "" } else { ";" };
    Problem::binder(format!(
        "{what}{end} loom_{names}({dirs}) lists the {names}"
    ))
}
