//! Lists the staging files in a folder with their directories and living writers, for people who decide about those without a writer.
//!
//! Nothing here removes a file. A killed writer's file may hold records that exist nowhere else, and the next start on its directory recovers them.

use std::path::{Path, PathBuf};

use super::control::{OWNER_BYTES, OWNER_OFFSET, Owner};
use super::name::StagingName;
use crate::error::Result;
use crate::log::files::os::OsStorage;
use crate::log::files::storage::{FileId, OpenMode, Storage, is_not_found, read_at};

/// A staging file and its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagingFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// UUID of the directory.
    pub uuid: [u8; 16],
    pub directory: FileId,
    /// Path of the directory when its writer started, if recorded.
    pub dir: Option<PathBuf>,
    pub holder: Holder,
}

/// The process that holds a staging file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Its writer, which lives.
    Writer,
    /// Nobody: it is an orphan.
    Nobody,
    /// This process cannot see the holder, for this reason.
    Unknown(String),
}

impl StagingFile {
    /// Returns the path of its directory, if it is still there.
    pub fn dir_in_place(&self) -> Option<&Path> {
        let dir = self.dir.as_deref()?;
        let there = OsStorage::default().file_id(dir).ok();
        (there == Some(self.directory)).then_some(dir)
    }
}

/// Lists the staging files of a folder by name.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn staging_files(folder: &Path) -> Result<Vec<StagingFile>> {
    let storage = OsStorage::default();
    let mut names = storage.list(folder)?;
    names.sort();
    let found = names.iter().filter_map(|text| {
        let name = StagingName::parse(text)?;
        let path = folder.join(text);
        let about = std::fs::symlink_metadata(&path).ok()?;
        let (dir, holder) = match look(&storage, &path) {
            Ok(Some(found)) => found,
            // Its writer has stopped in the meantime.
            Ok(None) => return None,
            Err(error) => (None, Holder::Unknown(error.to_string())),
        };
        Some(StagingFile {
            path,
            bytes: about.len(),
            uuid: name.uuid.into_bytes(),
            directory: name.directory,
            dir,
            holder,
        })
    });
    Ok(found.collect())
}

/// Returns the directory's path and the holder; `None` if the file is gone.
fn look(storage: &OsStorage, path: &Path) -> Result<Option<(Option<PathBuf>, Holder)>> {
    let file = match storage.open(path, OpenMode::Read) {
        Err(error) if is_not_found(&error) => return Ok(None),
        file => file?,
    };
    let mut bytes = [0; OWNER_BYTES];
    read_at(&*file, &mut bytes, OWNER_OFFSET)?;
    let Some(Owner { dir }) = Owner::decode(&bytes) else {
        let why = "it does not say whose it is; an older build may have made it";
        return Ok(Some((None, Holder::Unknown(why.to_owned()))));
    };
    // A writer locks the file before it records its owner, and keeps the lock until it has ended.
    let holder = match file.is_locked()? {
        true => Holder::Writer,
        false if file.is_removed()? => return Ok(None),
        false => Holder::Nobody,
    };
    Ok(Some((dir, holder)))
}
