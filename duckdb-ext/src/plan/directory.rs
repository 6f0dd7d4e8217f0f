//! The Loom directories that this process has open. They are kept between queries for what the engine remembers of them (verified
//! chunks, decoded nodes), and closed when another directory has taken their path or too many are open.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::query::Directory;

use super::access::Access;
use crate::error::{Problem, Result};

/// More would keep too many files open for sessions that visit many directories. What is kept of them in memory has its own limit.
const OPEN_MAX: usize = 32;

/// Each at its canonical path. The latest used last.
static OPEN: Mutex<Vec<Arc<Directory>>> = Mutex::new(Vec::new());

pub fn open(path: &Path) -> Result<Arc<Directory>> {
    // The settings of the database were asked before; what the process is confined to is asked here too, where every directory is opened.
    Access::All.require(path)?;
    let canonical = fs::canonicalize(path).map_err(|error| {
        let path = path.display();
        Problem::Io(format!(
            "cannot open Loom directory '{path}': {error}; check the path, or create the directory with 'ingestd run {path}'"
        ))
    })?;
    if canonical.is_file() {
        let path = path.display();
        return Err(Problem::Io(format!(
            "cannot open Loom directory '{path}': it is a file; load it into a directory with 'ingestd load DIR --source NAME {path}'"
        )));
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = open
        .iter()
        .position(|directory| directory.path() == canonical);
    let directory = match known.map(|at| open.remove(at)) {
        Some(directory) if directory.is_in_place() => directory,
        _ => Directory::open(&canonical)?,
    };
    if open.len() >= OPEN_MAX {
        open.remove(0);
    }
    open.push(Arc::clone(&directory));
    Ok(directory)
}
