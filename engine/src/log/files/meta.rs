//! What a directory is, and the text that says so. The files that hold it are `meta_file.rs`'s.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::checked_json;
use crate::error::{Error, Result};
use crate::log::options::check_chunk;
use crate::types::{LogKind, PerLog};

const FORMAT: u64 = 2;

/// What never changes about a directory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DirMeta {
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

impl DirMeta {
    pub fn new(chunk_bytes: u32, segment_bytes: PerLog<u64>) -> DirMeta {
        DirMeta {
            uuid: *Uuid::new_v4().as_bytes(),
            chunk_bytes,
            segment_bytes,
        }
    }

    /// What `content` says, which stands at `path`.
    pub(super) fn decode(path: &Path, content: &[u8]) -> Result<DirMeta> {
        let damaged = |what: String| Error::Damaged {
            path: path.to_owned(),
            what,
        };
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let version: Version =
            serde_json::from_slice(content).map_err(|error| damaged(error.to_string()))?;
        if version.format != FORMAT {
            return Err(Error::Format {
                path: path.to_owned(),
                found: version.format,
                supported: FORMAT,
            });
        }
        let file: File = checked_json::decode(content).map_err(damaged)?;
        check_chunk(file.chunk_bytes).map_err(|error| damaged(error.to_string()))?;
        for log in LogKind::ALL {
            let segment = file.segment_bytes[log];
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
        Ok(DirMeta {
            uuid: *uuid.as_bytes(),
            chunk_bytes,
            segment_bytes,
        })
    }

    /// The file's content, as it is written, or as it was written once, without a checksum.
    pub(super) fn text(&self, with_checksum: bool) -> Vec<u8> {
        let file = File {
            format: FORMAT,
            uuid: Uuid::from_bytes(self.uuid),
            chunk_bytes: self.chunk_bytes,
            segment_bytes: self.segment_bytes,
        };
        checked_json::encode(&file, with_checksum)
            .unwrap_or_else(|error| panic!("numbers are always JSON, but {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_was_written_with_and_without_a_checksum() {
        let meta = DirMeta::new(4096, [1 << 20, 1 << 18, 1 << 16].into());
        for with_checksum in [true, false] {
            let text = meta.text(with_checksum);
            assert_eq!(DirMeta::decode(Path::new("x"), &text).unwrap(), meta);
        }
        assert_ne!(meta.text(true), meta.text(false));
    }

    #[test]
    fn another_version_and_damage_are_told_apart() {
        let decode = |text: &str| DirMeta::decode(Path::new("x"), text.as_bytes()).unwrap_err();
        assert!(matches!(
            decode("{\"format\": 1}"),
            Error::Format { found: 1, .. }
        ));
        assert!(matches!(decode("{\"format\": 2}"), Error::Damaged { .. }));
        assert!(matches!(decode("{"), Error::Damaged { .. }));
    }
}
