//! The Loom directories that this process has open. They stay open between queries, because the engine keeps verified chunks and decoded
//! nodes of them. A directory is closed if another one has taken its path, or if too many are open.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::query::Directory;

use super::access::Access;
use crate::error::{Problem, Result};

/// A session may visit many directories, and each keeps files open. The memory for what was read has its own limit.
const OPEN_MAX: usize = 32;

/// Each directory at its canonical path, the last used one last.
static OPEN: Mutex<Vec<Arc<Directory>>> = Mutex::new(Vec::new());

pub fn open(path: &Path) -> Result<Arc<Directory>> {
    // The caller has checked the settings of the database; what the process is confined to is also checked here, where every directory is
    // opened.
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
