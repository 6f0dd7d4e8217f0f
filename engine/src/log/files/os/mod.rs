//! The operating system's files: the storage of every directory outside the simulator. Linux writes and reads; every other system reads.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
pub mod reading;

use std::path::Path;

use crate::error::{Error, IoContext, Result};

#[cfg(target_os = "linux")]
pub use linux::{OsStorage, path_of, runs};
#[cfg(not(target_os = "linux"))]
pub use reading::{OsStorage, path_of, runs};

/// The names in a directory; one that is not UTF-8 is none of Loom's.
fn names(path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).at(path)? {
        names.extend(entry.at(path)?.file_name().into_string());
    }
    Ok(names)
}

/// Reports something else in a file's place, which Loom does not touch.
fn not_a_file(path: &Path, found: &str) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        what: format!(
            "{found} is in place of the file: move it away, and restore the file if you have it"
        ),
    }
}
