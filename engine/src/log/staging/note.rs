//! The note `staging` of a directory, which names its staging file while a writer runs, and its copy `staging.copy`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Result;
use crate::log::files::mirrored::{Mirrored, MirroredFile};
use crate::log::files::storage::{FileId, Storage};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagingNote {
    /// The staging file; a relative path starts at the directory.
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
    pub directory_device: u64,
    pub directory_inode: u64,
    pub uuid: Uuid,
    pub epoch: u64,
    pub boot_id: String,
}

impl Mirrored for StagingNote {
    const FILE: MirroredFile = MirroredFile {
        name: "staging",
        copy_name: "staging.copy",
        bytes_max: 64 << 10,
    };
    const IS_REPLACED: bool = true;
    const REMEDY: &'static str = "its copy is damaged too: stop the daemon if one runs, and move both away; \
        what staging alone held is then lost and listed as a gap";
}

impl StagingNote {
    /// Reports whether the note is of this directory, not of the original of a copy, and of this boot.
    pub fn is_of(&self, storage: &dyn Storage, dir: &Path, uuid: &[u8; 16]) -> Result<bool> {
        let directory = FileId {
            device: self.directory_device,
            inode: self.directory_inode,
        };
        Ok(self.uuid.as_bytes() == uuid
            && directory == storage.file_id(dir)?
            && self.boot_id == storage.boot_id()?)
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

    // case Corruption: a damaged staging, a damaged or lost catalog or loom.json
    #[test]
    fn the_copy_serves_where_the_note_is_damaged_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (storage, note) = (&OsStorage::default(), note());
        let [path, copy] = ["staging", "staging.copy"].map(|name| dir.path().join(name));
        let read = || StagingNote::load(storage, dir.path());
        assert_eq!(read().unwrap(), None);
        note.store(storage, dir.path()).unwrap();
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
                    assert!(damaged.len() == 1 && damaged[0].0 == *hit, "{damaged:?}");
                    std::fs::write(hit, &text).unwrap();
                }
            }
        }
        for path in [&path, &copy] {
            std::fs::write(path, &text[1..]).unwrap();
        }
        let error = read().unwrap_err().to_string();
        assert!(error.contains("move both away"), "{error}");
        assert_eq!(StagingNote::damaged_files(storage, dir.path()).len(), 2);
        std::fs::write(&copy, &text).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read().unwrap().unwrap(), note);
        StagingNote::FILE.remove(storage, dir.path()).unwrap();
        assert!(!copy.exists() && read().unwrap().is_none());
    }
}
