//! `loom.json`: the identity of a directory, written when it is created and never changed.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::mirrored::{Mirrored, MirroredFile, decode_checked};
use super::storage::{Storage, is_not_found};
use crate::error::{Error, Result};
use crate::format::UNIT_CHUNKS;
use crate::log::options::{check_chunk, segment_bytes_max};
use crate::types::{LogKind, PerLog};

/// The format of new directories. Those of format 4 are read and written on; their units do not share strings.
const FORMAT: u64 = 5;
const FORMAT_LEAST: u64 = 4;

/// The constants of a directory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "File", try_from = "File")]
pub struct DirMeta {
    pub format: u64,
    pub uuid: [u8; 16],
    pub chunk_bytes: u32,
    /// File sizes of the three logs.
    pub segment_bytes: PerLog<u64>,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u64,
    uuid: Uuid,
    chunk_bytes: u32,
    segment_bytes: PerLog<u64>,
}

impl Mirrored for DirMeta {
    const FILE: MirroredFile = MirroredFile {
        name: "loom.json",
        copy_name: "loom.json.copy",
        bytes_max: 64 << 10,
    };
    const IS_REPLACED: bool = false;
    const REMEDY: &'static str =
        "restore loom.json and loom.json.copy from a backup of this directory; they never change";

    fn decode(path: &Path, text: &[u8]) -> Result<DirMeta> {
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let version: Version = serde_json::from_slice(text)
            .map_err(|error| Error::damaged(path, error.to_string()))?;
        if !(FORMAT_LEAST..=FORMAT).contains(&version.format) {
            return Err(Error::Format {
                path: path.to_owned(),
                found: version.format,
                supported: FORMAT_LEAST..=FORMAT,
            });
        }
        decode_checked(text).map_err(|what| Error::damaged(path, what))
    }
}

impl DirMeta {
    pub fn new(chunk_bytes: u32, segment_bytes: PerLog<u64>) -> DirMeta {
        DirMeta {
            format: FORMAT,
            uuid: *Uuid::new_v4().as_bytes(),
            chunk_bytes,
            segment_bytes,
        }
    }

    /// Reports whether rows may share strings in units of this directory.
    pub fn shares_strings(&self) -> bool {
        self.format > FORMAT_LEAST
    }

    /// Addresses of a unit of the record log.
    pub fn unit_bytes(&self) -> u64 {
        UNIT_CHUNKS * u64::from(self.chunk_bytes)
    }

    /// Identifies the directory: no other has it.
    pub fn id(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    /// Reads the identity of a directory, which must be one of Loom's.
    pub fn require(storage: &dyn Storage, dir: &Path) -> Result<DirMeta> {
        let what = match DirMeta::load(storage, dir) {
            Ok(Some(meta)) => return Ok(meta),
            Ok(None)
                if storage
                    .file_id(dir)
                    .is_err_and(|error| is_not_found(&error)) =>
            {
                "it does not exist".to_owned()
            }
            Ok(None) => format!("it holds no {}", Self::FILE.name),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {
                "it is a file".to_owned()
            }
            Err(error) => return Err(error),
        };
        Err(Error::NotLoom {
            path: dir.to_owned(),
            what,
        })
    }
}

impl From<DirMeta> for File {
    fn from(meta: DirMeta) -> File {
        File {
            format: meta.format,
            uuid: Uuid::from_bytes(meta.uuid),
            chunk_bytes: meta.chunk_bytes,
            segment_bytes: meta.segment_bytes,
        }
    }
}

impl TryFrom<File> for DirMeta {
    type Error = String;

    fn try_from(file: File) -> Result<DirMeta, String> {
        check_chunk(file.chunk_bytes).map_err(|error| error.to_string())?;
        for log in LogKind::ALL {
            let segment = file.segment_bytes[log];
            let part = match log {
                LogKind::Records => UNIT_CHUNKS * u64::from(file.chunk_bytes),
                LogKind::Chunks | LogKind::Times => u64::from(file.chunk_bytes),
            };
            let most = segment_bytes_max(log, file.chunk_bytes);
            if segment == 0 || !segment.is_multiple_of(part) || segment > most {
                return Err(format!(
                    "segment_bytes of the {log} is {segment}, not a multiple of {part} up to {most}"
                ));
            }
        }
        Ok(DirMeta {
            format: file.format,
            uuid: *file.uuid.as_bytes(),
            chunk_bytes: file.chunk_bytes,
            segment_bytes: file.segment_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    #[test]
    fn a_directory_identifies_itself() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            DirMeta::load(&OsStorage::default(), dir.path()).unwrap(),
            None
        );
        let meta = DirMeta::new(4096, [1 << 20, 1 << 18, 1 << 16].into());
        meta.store(&OsStorage::default(), dir.path()).unwrap();
        assert_eq!(
            DirMeta::require(&OsStorage::default(), dir.path()).unwrap(),
            meta
        );
    }

    #[test]
    fn a_folder_that_is_not_a_directory_of_loom_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (path, why) in [
            (dir.path().to_owned(), "it holds no loom.json"),
            (dir.path().join("nowhere"), "it does not exist"),
            (file, "it is a file"),
        ] {
            let error = DirMeta::require(&OsStorage::default(), &path)
                .unwrap_err()
                .to_string();
            let expected = format!("{} is not a Loom directory: {why}", path.display());
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn another_version_and_damage_give_different_errors() {
        let decode = |text: &str| DirMeta::decode(Path::new("x"), text.as_bytes()).unwrap_err();
        assert!(matches!(
            decode("{\"format\": 3}"),
            Error::Format { found: 3, .. }
        ));
        let newer = decode("{\"format\": 6}").to_string();
        let expected = "x has format version 6, this build reads versions 4 to 5; install a release of Loom as new as the one that wrote it";
        assert_eq!(newer, expected);
        for known in ["{\"format\": 4}", "{\"format\": 5}"] {
            assert!(matches!(decode(known), Error::Damaged { .. }));
        }
        assert!(matches!(decode("{"), Error::Damaged { .. }));
    }
}
