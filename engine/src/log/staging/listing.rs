//! The staging files in a folder: whose each is, and whether its writer lives. For people, who decide about those without a writer.
//!
//! Nothing here removes one. A killed writer's file may hold records that are nowhere else, and the next start on its directory takes them in.

use std::path::{Path, PathBuf};

use super::control::{OWNER_BYTES, OWNER_OFFSET, Owner};
use super::name::StagingName;
use crate::error::Result;
use crate::log::files::os_storage::OsStorage;
use crate::log::files::storage::{FileId, OpenMode, Storage, is_not_found, read_at};

/// A staging file, and the directory that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagingFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// Of the directory.
    pub uuid: [u8; 16],
    pub directory: FileId,
    /// Where its writer had the directory, if it said so.
    pub dir: Option<PathBuf>,
    pub holder: Holder,
}

/// Who has a staging file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Its writer, which lives.
    Writer,
    /// Nobody: it is an orphan.
    Nobody,
    /// This process cannot see who has it, and why.
    Unknown(String),
}

impl StagingFile {
    /// Where its directory stands, if it does where its writer had it.
    pub fn dir_in_place(&self) -> Option<&Path> {
        let dir = self.dir.as_deref()?;
        let there = OsStorage::default().file_id(dir).ok();
        (there == Some(self.directory)).then_some(dir)
    }
}

/// Those in a folder, by name.
///
/// # Errors
/// The folder cannot be read.
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
            // Its writer has stopped meanwhile.
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

/// Where the writer had the directory, and who has the file; `None` if it is gone.
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
    // A writer locks the file before it says whose it is, and keeps the lock until it has ended.
    let holder = match file.is_locked()? {
        true => Holder::Writer,
        false if file.is_removed()? => return Ok(None),
        false => Holder::Nobody,
    };
    Ok(Some((dir, holder)))
}
