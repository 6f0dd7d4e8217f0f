//! The small files of a directory, each with a copy that replaces it when it is damaged or missing.
//!
//! `loom.json` and the note `staging` are JSON whose last member is a checksum of the others. The catalog grows line by line and has a writer of its own
//! (`catalog_file.rs`). All of them are read here.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::storage::{Storage, read_file, replace_file, unlink_if_present};
use crate::error::{Error, Result};
use crate::format::crc32c;

/// A file and its copy, by name.
#[derive(Copy, Clone, Debug)]
pub struct MirroredFile {
    pub name: &'static str,
    pub copy_name: &'static str,
    pub bytes_max: u64,
}

/// The content of both; `None` if one is missing.
pub struct FileAndCopy {
    pub file: Result<Option<Vec<u8>>>,
    pub copy: Result<Option<Vec<u8>>>,
}

impl MirroredFile {
    /// Reads the copy first, because a growing file already held the copy's content by then.
    pub fn read(&self, storage: &dyn Storage, dir: &Path) -> FileAndCopy {
        let read = |name| read_file(storage, &dir.join(name), self.bytes_max);
        let copy = read(self.copy_name);
        FileAndCopy {
            file: read(self.name),
            copy,
        }
    }

    /// Returns those that do not exist.
    pub fn missing(&self, storage: &dyn Storage, dir: &Path) -> Vec<PathBuf> {
        let FileAndCopy { file, copy } = self.read(storage, dir);
        [(self.name, file), (self.copy_name, copy)]
            .into_iter()
            .filter(|(_, held)| matches!(held, Ok(None)))
            .map(|(name, _)| dir.join(name))
            .collect()
    }

    /// Removes the file first, because readers begin with it.
    pub fn remove(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        unlink_if_present(storage, &dir.join(self.name))?;
        unlink_if_present(storage, &dir.join(self.copy_name))
    }
}

/// A value that a mirrored file holds as JSON.
pub trait Mirrored: Serialize + DeserializeOwned + PartialEq {
    const FILE: MirroredFile;
    /// The file is replaced while readers look: the two may then differ, or one be missing.
    const IS_REPLACED: bool;
    /// The remedy if neither of the two verifies.
    const REMEDY: &'static str;

    /// Decodes `text`, the content of the file at `path`.
    fn decode(path: &Path, text: &[u8]) -> Result<Self> {
        decode_checked(text).map_err(|what| Error::damaged(path, what))
    }

    /// Reads the file or, if it is damaged or missing, its copy; `None` if the directory has neither.
    fn load(storage: &dyn Storage, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(Self::FILE.name);
        let file = held::<Self>(storage, &path);
        if Self::IS_REPLACED && matches!(file, Ok(Some(_))) {
            return file;
        }
        let copy = held::<Self>(storage, &dir.join(Self::FILE.copy_name));
        match (file, copy) {
            (Ok(Some(file)), Ok(Some(copy))) if file != copy => {
                let what = format!("it and its copy differ; {}", Self::REMEDY);
                Err(Error::damaged(&path, what))
            }
            (Ok(Some(value)), _) | (_, Ok(Some(value))) => Ok(Some(value)),
            (Ok(None), Ok(None)) => Ok(None),
            (Err(Error::Damaged { path, what }), _) | (_, Err(Error::Damaged { path, what })) => {
                Err(Error::damaged(&path, format!("{what}; {}", Self::REMEDY)))
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Stores the value durably in both files: the copy first, so that one of them is always whole.
    fn store(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let text = encode_checked(self);
        for name in [Self::FILE.copy_name, Self::FILE.name] {
            let path = dir.join(name);
            match held::<Self>(storage, &path) {
                Ok(Some(held)) if held == *self => continue,
                Err(error) => tracing::warn!("{error}; the file is written again"),
                Ok(_) => {}
            }
            replace_file(storage, &path, &text)?;
        }
        Ok(())
    }

    /// Returns the damaged files with the reasons. The directory holds the value.
    fn damaged_files(storage: &dyn Storage, dir: &Path) -> Vec<(PathBuf, String)> {
        let [path, copy_path] = [Self::FILE.name, Self::FILE.copy_name].map(|name| dir.join(name));
        let [file, copy] = [&path, &copy_path].map(|path| held::<Self>(storage, path));
        let differ = matches!((&file, &copy), (Ok(Some(file)), Ok(Some(copy))) if file != copy);
        let what = |found: Result<Option<Self>>| match found {
            Err(error) => Some(error.what()),
            Ok(None) if !Self::IS_REPLACED => Some("it is missing".to_owned()),
            Ok(Some(_)) if differ && !Self::IS_REPLACED => {
                Some("it and its copy differ".to_owned())
            }
            Ok(_) => None,
        };
        [(path, file), (copy_path, copy)]
            .into_iter()
            .filter_map(|(path, found)| what(found).map(|what| (path, what)))
            .collect()
    }
}

/// Returns the value of a file, if it exists and is byte for byte as written.
fn held<T: Mirrored>(storage: &dyn Storage, path: &Path) -> Result<Option<T>> {
    let Some(text) = read_file(storage, path, T::FILE.bytes_max)? else {
        return Ok(None);
    };
    let value = T::decode(path, &text)?;
    if encode_checked(&value) != text {
        return Err(Error::damaged(
            path,
            "it has other bytes than a writer writes",
        ));
    }
    Ok(Some(value))
}

#[derive(Serialize, Deserialize)]
struct Checked<T> {
    #[serde(flatten)]
    value: T,
    /// CRC-32C of the other members as JSON without white space.
    checksum: u32,
}

/// Encodes the value as readable JSON and a newline.
fn encode_checked<T: Serialize>(value: &T) -> Vec<u8> {
    let checksum = checksum_of(value);
    let mut text = serde_json::to_vec_pretty(&Checked { value, checksum })
        .expect("numbers and texts are always JSON");
    text.push(b'\n');
    text
}

/// Returns the value, or the fault.
pub fn decode_checked<T: Serialize + DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let Checked { value, checksum } =
        serde_json::from_slice::<Checked<T>>(text).map_err(|error| error.to_string())?;
    if checksum == checksum_of(&value) {
        Ok(value)
    } else {
        Err("its checksum does not match".to_owned())
    }
}

fn checksum_of<T: Serialize>(value: &T) -> u32 {
    let text = serde_json::to_vec(value).expect("numbers and texts are always JSON");
    crc32c(&[&text])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    #[derive(Serialize, Deserialize, PartialEq, Clone, Debug)]
    struct Fixed {
        name: String,
        sizes: [u64; 2],
    }

    impl Mirrored for Fixed {
        const FILE: MirroredFile = MirroredFile {
            name: "fixed",
            copy_name: "fixed.copy",
            bytes_max: 4096,
        };
        const IS_REPLACED: bool = false;
        const REMEDY: &'static str = "put it back";
    }

    fn fixed() -> Fixed {
        Fixed {
            name: "a".to_owned(),
            sizes: [u64::MAX, 7],
        }
    }

    #[test]
    fn a_flipped_bit_is_seen_or_says_the_same() {
        let value = fixed();
        let text = encode_checked(&value);
        assert_eq!(decode_checked::<Fixed>(&text), Ok(value.clone()));
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(other) = decode_checked::<Fixed>(&flipped) {
                    assert_eq!(other, value, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_text_without_a_checksum_is_damaged() {
        let error = decode_checked::<Fixed>(br#"{"name":"b","sizes":[1,2]}"#).unwrap_err();
        assert!(error.contains("checksum"), "{error}");
        assert!(decode_checked::<Fixed>(b"{").is_err());
    }

    // case Corruption: a damaged staging, a damaged or lost catalog or loom.json
    #[test]
    fn the_copy_serves_where_the_file_does_not_verify() {
        let dir = tempfile::tempdir().unwrap();
        let (storage, dir, value) = (&OsStorage::default(), dir.path(), fixed());
        assert_eq!(Fixed::load(storage, dir).unwrap(), None);
        value.store(storage, dir).unwrap();
        let [path, copy] = ["fixed", "fixed.copy"].map(|name| dir.join(name));
        let text = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::read(&copy).unwrap(), text);
        assert!(Fixed::damaged_files(storage, dir).is_empty());
        for (hit, other) in [(&path, &copy), (&copy, &path)] {
            for at in 0..text.len() {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << (at % 8);
                for damaged in [&flipped[..], &text[..at]] {
                    std::fs::write(hit, damaged).unwrap();
                    assert_eq!(Fixed::load(storage, dir).unwrap().unwrap(), value);
                    let damaged = Fixed::damaged_files(storage, dir);
                    assert!(
                        damaged.len() == 1 && damaged[0].0 == *hit,
                        "{at}: {damaged:?}"
                    );
                }
            }
            std::fs::remove_file(hit).unwrap();
            assert_eq!(Fixed::load(storage, dir).unwrap().unwrap(), value);
            assert_eq!(Fixed::damaged_files(storage, dir)[0].0, *hit);
            value.store(storage, dir).unwrap();
            assert_eq!(std::fs::read(hit).unwrap(), text);
            assert_eq!(std::fs::read(other).unwrap(), text);
        }
    }

    #[test]
    fn two_files_that_verify_and_differ_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (storage, dir, value) = (&OsStorage::default(), dir.path(), fixed());
        value.store(storage, dir).unwrap();
        let other = Fixed {
            name: "b".to_owned(),
            ..value
        };
        std::fs::write(dir.join("fixed"), encode_checked(&other)).unwrap();
        let error = Fixed::load(storage, dir).unwrap_err().to_string();
        assert!(
            error.contains("it and its copy differ; put it back"),
            "{error}"
        );
        assert_eq!(Fixed::damaged_files(storage, dir).len(), 2);
    }
}
