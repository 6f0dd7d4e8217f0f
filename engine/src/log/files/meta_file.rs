//! `loom.json`, written once, and its copy `loom.json.copy`, which serves where the file does not verify.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::durable;
use super::meta::DirMeta;
use super::storage::{Storage, is_not_found, read_file, replace_file};
use crate::error::{Error, Result};

pub const NAME: &str = "loom.json";
pub const COPY_NAME: &str = "loom.json.copy";
const FILE_BYTES_MAX: u64 = 64 << 10;

impl DirMeta {
    /// What `loom.json` says, or where that does not verify, its copy; `None` where the directory holds neither.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<DirMeta>> {
        let copy = held(storage, &dir.join(COPY_NAME)).ok().flatten();
        match (held(storage, &dir.join(NAME)), copy) {
            // One of them is another directory's: `durable` proves which is not.
            (Ok(Some(meta)), Some(copy))
                if meta != copy
                    && durable::read(storage, dir, &meta.uuid)?.is_none()
                    && durable::read(storage, dir, &copy.uuid)?.is_some() =>
            {
                Ok(Some(copy))
            }
            (Ok(Some(meta)), _) | (_, Some(meta)) => Ok(Some(meta)),
            (other, None) => other.map_err(with_remedy),
        }
    }

    /// Whether `loom.json` or its copy is as a writer leaves them that makes copies.
    pub fn is_proven(&self, storage: &dyn Storage, dir: &Path) -> bool {
        let proven = self.text(true);
        [NAME, COPY_NAME].iter().any(|name| {
            matches!(read_file(storage, &dir.join(name), FILE_BYTES_MAX), Ok(Some(held)) if held == proven)
        })
    }

    /// The same, for a directory that must be one of Loom's.
    pub fn require(storage: &dyn Storage, dir: &Path) -> Result<DirMeta> {
        let what = match DirMeta::read(storage, dir) {
            Ok(Some(meta)) => return Ok(meta),
            Ok(None) if storage.dir_id(dir).is_err_and(|error| is_not_found(&error)) => {
                "it does not exist".to_owned()
            }
            Ok(None) => format!("it holds no {NAME}"),
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

    /// Which of `loom.json` and its copy do not hold what they should, and why. There may be no copy yet.
    pub fn damaged_files(&self, storage: &dyn Storage, dir: &Path) -> Vec<(PathBuf, String)> {
        let sound = [self.text(true), self.text(false)];
        let is_proven = self.is_proven(storage, dir);
        let what = |path: &Path, is_copy| match read_file(storage, path, FILE_BYTES_MAX) {
            Ok(Some(held)) if sound.contains(&held) => None,
            Ok(None) if is_copy && !is_proven => None,
            Ok(None) => Some("it is gone".to_owned()),
            Ok(Some(held)) => Some(match DirMeta::decode(path, &held) {
                Err(Error::Damaged { what, .. }) => what,
                Ok(other) if other != *self => "it is another directory's".to_owned(),
                _ => "it is not as it was written".to_owned(),
            }),
            Err(error) => Some(error.what()),
        };
        [(NAME, false), (COPY_NAME, true)]
            .map(|(name, is_copy)| (dir.join(name), is_copy))
            .into_iter()
            .filter_map(|(path, is_copy)| what(&path, is_copy).map(|what| (path, what)))
            .collect()
    }

    /// Writes `loom.json`, and its copy as far as that can be done, where they do not hold what they should.
    pub fn write(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        self.write_file(storage, &dir.join(NAME))?;
        if let Err(error) = self.write_file(storage, &dir.join(COPY_NAME)) {
            tracing::warn!("{error}; {NAME} is without a copy until the next start");
        }
        Ok(())
    }

    fn write_file(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        let text = self.text(true);
        match read_file(storage, path, FILE_BYTES_MAX) {
            Ok(Some(held)) if held == text => return Ok(()),
            Ok(Some(held)) if held != self.text(false) => {
                tracing::warn!("{} was damaged and is written anew", path.display());
            }
            Err(error) => tracing::warn!("{error}; the file is written anew"),
            Ok(_) => {}
        }
        replace_file(storage, path, &text)
    }
}

fn with_remedy(error: Error) -> Error {
    match error {
        Error::Damaged { path, what } => Error::Damaged {
            path,
            what: format!("{what}; put a whole copy of the file in its place, it never changes"),
        },
        other => other,
    }
}

/// What a file says, if it is there.
fn held(storage: &dyn Storage, path: &Path) -> Result<Option<DirMeta>> {
    read_file(storage, path, FILE_BYTES_MAX)?
        .map(|content| DirMeta::decode(path, &content))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    #[test]
    fn a_directory_says_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DirMeta::read(&OsStorage, dir.path()).unwrap(), None);
        let meta = DirMeta::new(4096, [1 << 20, 1 << 18, 1 << 16].into());
        meta.write(&OsStorage, dir.path()).unwrap();
        assert_eq!(DirMeta::require(&OsStorage, dir.path()).unwrap(), meta);
    }

    #[test]
    fn what_is_no_directory_of_loom_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (path, why) in [
            (dir.path().to_owned(), "it holds no loom.json"),
            (dir.path().join("nowhere"), "it does not exist"),
            (file, "it is a file"),
        ] {
            let error = DirMeta::require(&OsStorage, &path).unwrap_err().to_string();
            let told = format!("{} is not a Loom directory: {why}", path.display());
            assert_eq!(error, told);
        }
    }

    #[test]
    fn the_copy_serves_where_the_file_does_not_verify() {
        let dir = tempfile::tempdir().unwrap();
        let meta = DirMeta::new(4096, [1 << 20, 1 << 18, 1 << 16].into());
        meta.write(&OsStorage, dir.path()).unwrap();
        let [path, copy] = [NAME, COPY_NAME].map(|name| dir.path().join(name));
        let text = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::read(&copy).unwrap(), text);
        for (hit, other) in [(&path, &copy), (&copy, &path)] {
            for at in 0..text.len() {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << (at % 8);
                for damaged in [&flipped[..], &text[..at]] {
                    std::fs::write(hit, damaged).unwrap();
                    assert_eq!(DirMeta::require(&OsStorage, dir.path()).unwrap(), meta);
                    let told = meta.damaged_files(&OsStorage, dir.path());
                    assert!(told.len() == 1 && told[0].0 == *hit, "{at}: {told:?}");
                }
            }
            meta.write(&OsStorage, dir.path()).unwrap();
            assert_eq!(std::fs::read(hit).unwrap(), text);
            assert_eq!(std::fs::read(other).unwrap(), text);
        }
        assert!(meta.damaged_files(&OsStorage, dir.path()).is_empty());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(DirMeta::require(&OsStorage, dir.path()).unwrap(), meta);
    }

    #[test]
    fn a_file_without_a_checksum_and_a_copy_is_sound() {
        let dir = tempfile::tempdir().unwrap();
        let meta = DirMeta::new(4096, [1 << 20; 3].into());
        std::fs::write(dir.path().join(NAME), meta.text(false)).unwrap();
        assert_eq!(DirMeta::require(&OsStorage, dir.path()).unwrap(), meta);
        assert!(meta.damaged_files(&OsStorage, dir.path()).is_empty());
    }
}
