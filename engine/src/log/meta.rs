//! `loom.json`: what a directory is, written once.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::options::check_chunk;
use super::storage::{Storage, read_file, replace_file};
use crate::error::{Error, Result};
use crate::types::LogKind;

pub const NAME: &str = "loom.json";
const FORMAT: u64 = 2;
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What never changes about a directory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DirMeta {
    pub uuid: [u8; 16],
    pub chunk_bytes: u32,
    /// File sizes of the three logs.
    pub segment_bytes: [u64; 3],
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u64,
    uuid: Uuid,
    chunk_bytes: u32,
    segment_bytes: [u64; 3],
}

impl DirMeta {
    pub fn new(chunk_bytes: u32, segment_bytes: [u64; 3]) -> DirMeta {
        DirMeta {
            uuid: *Uuid::new_v4().as_bytes(),
            chunk_bytes,
            segment_bytes,
        }
    }

    /// `None` where the directory holds no `loom.json`.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<DirMeta>> {
        let path = dir.join(NAME);
        let Some(content) = read_file(storage, &path, FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let damaged = |what: String| Error::Damaged {
            path: path.clone(),
            what,
        };
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let version: Version =
            serde_json::from_slice(&content).map_err(|error| damaged(error.to_string()))?;
        if version.format != FORMAT {
            return Err(Error::Format {
                path,
                found: version.format,
                supported: FORMAT,
            });
        }
        let file: File =
            serde_json::from_slice(&content).map_err(|error| damaged(error.to_string()))?;
        check_chunk(file.chunk_bytes).map_err(|error| damaged(error.to_string()))?;
        for (segment, log) in file.segment_bytes.into_iter().zip(LogKind::ALL) {
            if segment == 0 || segment % u64::from(file.chunk_bytes) != 0 {
                return Err(damaged(format!(
                    "segments of {segment} bytes for the {log}"
                )));
            }
        }
        let File {
            uuid,
            chunk_bytes,
            segment_bytes,
            ..
        } = file;
        Ok(Some(DirMeta {
            uuid: *uuid.as_bytes(),
            chunk_bytes,
            segment_bytes,
        }))
    }

    /// The same, for a directory that must be one of Loom's.
    pub fn require(storage: &dyn Storage, dir: &Path) -> Result<DirMeta> {
        DirMeta::read(storage, dir)?.ok_or_else(|| Error::NotLoom {
            path: dir.to_owned(),
            what: format!("it holds no {NAME}"),
        })
    }

    pub fn write(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let file = File {
            format: FORMAT,
            uuid: Uuid::from_bytes(self.uuid),
            chunk_bytes: self.chunk_bytes,
            segment_bytes: self.segment_bytes,
        };
        let mut text =
            serde_json::to_vec_pretty(&file).map_err(|error| Error::io(&path, error.into()))?;
        text.push(b'\n');
        replace_file(storage, &path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    #[test]
    fn a_directory_says_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DirMeta::read(&OsStorage, dir.path()).unwrap(), None);
        let meta = DirMeta::new(4096, [1 << 20, 1 << 18, 1 << 16]);
        meta.write(&OsStorage, dir.path()).unwrap();
        assert_eq!(DirMeta::require(&OsStorage, dir.path()).unwrap(), meta);
    }

    #[test]
    fn another_version_and_damage_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(dir.path().join(NAME), text).unwrap();
            DirMeta::read(&OsStorage, dir.path()).unwrap_err()
        };
        assert!(matches!(
            read("{\"format\": 1}"),
            Error::Format { found: 1, .. }
        ));
        assert!(matches!(read("{\"format\": 2}"), Error::Damaged { .. }));
        assert!(matches!(read("{"), Error::Damaged { .. }));
    }
}
