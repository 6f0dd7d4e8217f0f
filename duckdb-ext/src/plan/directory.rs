//! The Loom directories that this process has open. They are kept between queries for what the engine remembers of them
//! (verified chunks, decoded nodes), and given up when another directory has taken their path or too many are open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::query::Directory;

use crate::error::{Problem, Result};

/// More would keep too many files and caches open for sessions that visit many directories.
const OPEN_MAX: usize = 32;

/// Which directory stands at a path: the device and inode of the file that each is written once with.
type Identity = (u64, u64, i64);

struct Opened {
    path: PathBuf,
    identity: Identity,
    directory: Arc<Directory>,
}

/// The latest used last.
static OPEN: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

pub fn open(path: &Path) -> Result<Arc<Directory>> {
    let canonical = fs::canonicalize(path).map_err(|error| {
        let path = path.display();
        Problem::Io(format!("{path}: {error}; give the path of a Loom directory, such as 'ingestd run' or 'ingestd load' makes"))
    })?;
    if canonical.is_file() {
        let path = path.display();
        return Err(Problem::Io(format!(
            "{path} is a file, and no Loom directory; 'ingestd load DIR {path}' makes a directory of what Loom can load"
        )));
    }
    let Ok(metadata) = fs::metadata(canonical.join("loom.json")) else {
        // The engine says what is wrong, and with which directory.
        return Ok(Directory::open(&canonical)?);
    };
    let identity = (metadata.dev(), metadata.ino(), metadata.ctime());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = open.iter().position(|opened| opened.path == canonical) {
        let opened = open.remove(at);
        if opened.identity == identity {
            let directory = Arc::clone(&opened.directory);
            open.push(opened);
            return Ok(directory);
        }
    }
    let directory = Directory::open(&canonical)?;
    if open.len() >= OPEN_MAX {
        open.remove(0);
    }
    open.push(Opened {
        path: canonical,
        identity,
        directory: Arc::clone(&directory),
    });
    Ok(directory)
}
