//! Recognises Loom's own files and folders of a directory by the names that FORMAT.md lists.
//!
//! A directory may hold other files, and its owner may have linked a file into it. Nothing else is touched here, and nothing through a link, because whoever
//! chose the directory did not choose the link's target.

use std::io;
use std::path::Path;

use super::meta::DirMeta;
use super::mirrored::Mirrored;
use super::storage::{Storage, UNFINISHED_SUFFIX, is_not_found, unlink_if_present};
use super::{catalog_file, durable, lock, tail_file};
use crate::error::{Error, Result};
use crate::log::staging::note::StagingNote;
use crate::types::LogKind;

pub(super) const FILE_NAMES: [&str; 9] = [
    DirMeta::FILE.name,
    DirMeta::FILE.copy_name,
    catalog_file::FILE.name,
    catalog_file::FILE.copy_name,
    durable::NAME,
    tail_file::NAME,
    StagingNote::FILE.name,
    StagingNote::FILE.copy_name,
    lock::NAME,
];
/// These names may also occur in a directory without a log: a killed daemon's socket, and the content of a file system's root.
const PASSING_NAMES: [&str; 2] = ["ingest.sock", "lost+found"];

/// Refuses a directory with another use, before anything in it changes.
pub fn refuse_foreign(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let refused = |what: String| {
        Err(Error::NotLoom {
            path: dir.to_owned(),
            what,
        })
    };
    let names = match storage.list(dir) {
        Err(error) if is_not_found(&error) => return Ok(()),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
            return refused(
                "it is a file; give a directory, which is created if it does not exist".to_owned(),
            );
        }
        names => names?,
    };
    // A log without its description is refused later under the lock, when no other process can be about to write one.
    let is_begun = |name: &String| {
        name == DirMeta::FILE.name || LogKind::ALL.into_iter().any(|log| name == log.dir_name())
    };
    if names.iter().any(is_begun) {
        return Ok(());
    }
    let is_own = |name: &&String| {
        let renamed = name.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(name);
        FILE_NAMES.contains(&renamed) || PASSING_NAMES.contains(&renamed)
    };
    match names.iter().filter(|name| !is_own(name)).min() {
        None => Ok(()),
        Some(name) => refused(format!(
            "it holds no {}, but '{name}', which is not Loom's; give an empty directory, or one that does not exist",
            DirMeta::FILE.name
        )),
    }
}

/// Removes unfinished files of a killed writer, which never counted under their names. The caller holds the lock.
pub fn remove_unfinished(storage: &dyn Storage, dir: &Path) -> Result<()> {
    for name in storage.list(dir)? {
        let stem = name.strip_suffix(UNFINISHED_SUFFIX);
        if stem.is_some_and(|stem| FILE_NAMES.contains(&stem)) {
            unlink_if_present(storage, &dir.join(name))?;
        }
    }
    Ok(())
}
