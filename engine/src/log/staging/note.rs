//! The note `staging` of a directory, which names its staging file while a writer runs, and the note's copy `staging.copy`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::log::files::checked_json;
use crate::log::files::storage::{FileId, Storage, read_file, replace_file, unlink_if_present};

pub const NAME: &str = "staging";
pub const COPY_NAME: &str = "staging.copy";
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// What the note says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagingNote {
    /// The staging file; a relative path counts from the directory.
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
    pub directory_device: u64,
    pub directory_inode: u64,
    pub uuid: Uuid,
    pub epoch: u64,
    pub boot_id: String,
}

impl StagingNote {
    /// What the note says, or where it is damaged, its copy; `None` where no writer runs and the last one stopped cleanly.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<StagingNote>> {
        match held(storage, &dir.join(NAME)) {
            Ok(note) => Ok(note),
            Err(error) => match held(storage, &dir.join(COPY_NAME)) {
                Ok(Some(note)) => Ok(Some(note)),
                _ => Err(with_remedy(error)),
            },
        }
    }

    /// Whether the note is damaged, or its copy while it is there; then what is wrong.
    pub fn damaged_files(storage: &dyn Storage, dir: &Path) -> Vec<(PathBuf, Error)> {
        let is_there = !matches!(held(storage, &dir.join(NAME)), Ok(None));
        [NAME, COPY_NAME]
            .map(|name| dir.join(name))
            .into_iter()
            .filter(|_| is_there)
            .filter_map(|path| held(storage, &path).err().map(|error| (path, error)))
            .collect()
    }

    /// The copy first: it is never of an older epoch than the note.
    pub fn write(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let text =
            checked_json::encode(self, true).map_err(|error| Error::io(&path, error.into()))?;
        replace_file(storage, &dir.join(COPY_NAME), &text)?;
        replace_file(storage, &path, &text)
    }

    /// After a clean stop. Without the note nobody looks at its copy.
    pub fn remove(storage: &dyn Storage, dir: &Path) -> Result<()> {
        unlink_if_present(storage, &dir.join(NAME))?;
        unlink_if_present(storage, &dir.join(COPY_NAME))
    }

    /// Whether it speaks of this directory, not of one that this is a copy of, and of this boot.
    pub fn is_of(&self, storage: &dyn Storage, dir: &Path, uuid: &[u8; 16]) -> Result<bool> {
        let directory = FileId {
            device: self.directory_device,
            inode: self.directory_inode,
        };
        Ok(self.uuid.as_bytes() == uuid
            && directory == storage.dir_id(dir)?
            && self.boot_id == storage.boot_id()?)
    }
}

/// What a file says, if it is there.
fn held(storage: &dyn Storage, path: &Path) -> Result<Option<StagingNote>> {
    let Some(content) = read_file(storage, path, NOTE_BYTES_MAX)? else {
        return Ok(None);
    };
    checked_json::decode(&content)
        .map(Some)
        .map_err(|what| Error::Damaged {
            path: path.to_owned(),
            what: format!("it does not say where staging is ({what})"),
        })
}

fn with_remedy(error: Error) -> Error {
    match error {
        Error::Damaged { path, what } => Error::Damaged {
            path,
            what: format!(
                "{what}, nor does its copy; while no writer runs, move it away: what staging alone held is then lost, and told as a gap"
            ),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    fn note() -> StagingNote {
        StagingNote {
            path: PathBuf::from("/dev/shm/loom"),
            device: 1,
            inode: 2,
            directory_device: 3,
            directory_inode: 4,
            uuid: Uuid::from_bytes([5; 16]),
            epoch: 9,
            boot_id: "boot".to_owned(),
        }
    }

    #[test]
    fn the_copy_serves_where_the_note_is_damaged_and_not_where_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (storage, note) = (&OsStorage, note());
        let [path, copy] = [NAME, COPY_NAME].map(|name| dir.path().join(name));
        let read = || StagingNote::read(storage, dir.path());
        assert_eq!(read().unwrap(), None);
        note.write(storage, dir.path()).unwrap();
        assert_eq!(read().unwrap().unwrap(), note);
        let text = std::fs::read(&path).unwrap();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                for hit in [&path, &copy] {
                    std::fs::write(hit, &flipped).unwrap();
                    assert_eq!(read().unwrap().unwrap(), note, "{at}");
                    let damaged = StagingNote::damaged_files(storage, dir.path());
                    assert!(damaged.iter().all(|(path, _)| path == hit));
                    std::fs::write(hit, &text).unwrap();
                }
            }
        }
        for path in [&path, &copy] {
            std::fs::write(path, &text[1..]).unwrap();
        }
        let error = read().unwrap_err().to_string();
        assert!(error.contains("move it away"), "{error}");
        assert_eq!(StagingNote::damaged_files(storage, dir.path()).len(), 2);
        std::fs::write(&copy, &text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read().unwrap(), None);
        StagingNote::remove(storage, dir.path()).unwrap();
        assert!(!copy.exists());
    }
}
