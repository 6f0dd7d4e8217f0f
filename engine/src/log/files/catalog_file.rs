//! The file `catalog` as bytes, and its copy `catalog.copy`.
//!
//! Lines are appended and synced one by one, first to the file and then to the copy; a torn last line is removed before anything follows it. The meaning of
//! every record depends on the catalog, so a line that one of the two lost is taken from the other, and a start makes them equal again.
//!
//! A rewriting replaces the file and then its copy. Lengths include everything that the file ever held, so they only grow: the file's own length plus the
//! length before, which its first line states.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mirrored::{FileAndCopy, MirroredFile};
use super::storage::{OpenMode, Storage, StorageFile, read_at, read_file, replace_file, write_at};
use crate::error::{Error, Result};
use crate::format::{REWRITTEN_BYTES_MAX, Rewritten, merge_lines};
use crate::log::sync::{AtomicU64, Ordering};
use crate::memory;
use crate::types::CATALOG_NAME;

pub const FILE: MirroredFile = MirroredFile {
    name: CATALOG_NAME,
    copy_name: "catalog.copy",
    bytes_max: CATALOG_BYTES_MAX,
};
/// This is far above the size of 65,000 sources of many fields. A writer keeps to it, and a reader allocates no more for the claims of a directory.
const CATALOG_BYTES_MAX: u64 = 256 << 20;

/// The decoded catalog, merged lines included, takes at most this multiple of its bytes. It is built piece by piece, so the memory is requested before.
const DECODED_TIMES: usize = 4;

/// The content of the file and of its copy.
#[derive(Debug)]
pub struct CatalogBytes {
    /// Empty if the file is missing or unreadable.
    pub file: Vec<u8>,
    /// As `file`.
    pub copy: Vec<u8>,
    /// The errors of reading the file and the copy.
    pub unreadable: [Option<Error>; 2],
}

impl CatalogBytes {
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<CatalogBytes> {
        let FileAndCopy { file, copy } = FILE.read(storage, dir);
        let held = |bytes: Result<Option<Vec<u8>>>| match bytes {
            Ok(bytes) => Ok((bytes.unwrap_or_default(), None)),
            // The file may be sound, and nothing replaces it.
            Err(error @ Error::Memory { .. }) => Err(error),
            Err(error) => Ok((Vec::new(), Some(error))),
        };
        let (copy, of_copy) = held(copy)?;
        let (file, of_file) = match held(file)? {
            (_, Some(error)) if copy.is_empty() => return Err(error),
            file => file,
        };
        let room = memory::require(file.len().max(copy.len()) * DECODED_TIMES);
        room.map_err(|refused| refused.of(dir.join(FILE.name)))?;
        Ok(CatalogBytes {
            file,
            copy,
            unreadable: [of_file, of_copy],
        })
    }

    /// Returns the whole catalog, as far as one of the two has it.
    pub fn merged(&self, uuid: &[u8; 16]) -> Cow<'_, [u8]> {
        if self.file.starts_with(&self.copy) {
            Cow::Borrowed(&self.file)
        } else {
            Cow::Owned(merge_lines(uuid, &self.file, &self.copy))
        }
    }

    pub fn into_merged(self, uuid: &[u8; 16]) -> Vec<u8> {
        match self.merged(uuid) {
            Cow::Owned(merged) => merged,
            Cow::Borrowed(_) => self.file,
        }
    }
}

/// Length of everything that the file ever held; 0 if it cannot be opened.
pub fn bytes_ever(storage: &dyn Storage, dir: &Path, uuid: &[u8; 16]) -> Result<u64> {
    let Ok(file) = storage.open(&dir.join(FILE.name), OpenMode::Read) else {
        return Ok(0);
    };
    let mut head = [0; REWRITTEN_BYTES_MAX];
    read_at(&*file, &mut head, 0)?;
    Ok(Rewritten::of(uuid, &head).bytes + file.bytes()?)
}

/// The writer's end of the file and of its copy.
#[derive(Debug)]
pub struct CatalogFile {
    storage: Arc<dyn Storage>,
    file: Arc<dyn StorageFile>,
    /// Length of the durable lines, with all lines before the last rewriting. The slots of `durable` hold it too.
    bytes: Arc<AtomicU64>,
    /// The part of that length that is not in the file any more.
    bytes_before: u64,
    /// The text that replaces the file, and may have its name already, but not durably.
    replacement: Option<Vec<u8>>,
    /// Bytes of a failed line may follow the end.
    is_torn: bool,
    copy_path: PathBuf,
    /// `None` if it could not be written: it is written again with the next line.
    copy: Option<Arc<dyn StorageFile>>,
}

impl CatalogFile {
    /// Makes the file, durably, and its copy hold `text`: the lines that verify in one of them.
    pub fn begin(
        storage: Arc<dyn Storage>,
        dir: &Path,
        uuid: &[u8; 16],
        text: &[u8],
    ) -> Result<CatalogFile> {
        let bytes_before = Rewritten::of(uuid, text).bytes;
        let file = hold(&*storage, &dir.join(FILE.name), text)?;
        let copy_path = dir.join(FILE.copy_name);
        let copy = whole(hold(&*storage, &copy_path, text));
        Ok(CatalogFile {
            file,
            bytes: Arc::new(AtomicU64::new(bytes_before + text.len() as u64)),
            bytes_before,
            replacement: None,
            is_torn: false,
            copy_path,
            copy,
            storage,
        })
    }

    /// The length, which other threads load with acquire.
    pub fn shared_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Length of the durable lines, with all lines before the last rewriting.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Length of the lines in the file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes() - self.bytes_before
    }

    /// Replaces the file by `text`, whose first line says that [`CatalogFile::bytes`] came before. The file goes first: if its copy went first and the file
    /// failed, later lines would go to the file, but a start would prefer the copy.
    ///
    /// # Errors
    /// The file is the one before, and nothing changes. If it may be either, no line is appended before the new one is durable.
    pub fn rewrite(&mut self, text: Vec<u8>) -> Result<()> {
        self.settle()?;
        require_short(text.len() as u64)?;
        self.replacement = Some(text);
        match self.settle() {
            // The name still leads to the old file.
            Err(error) if matches!(self.file.is_removed(), Ok(false)) => {
                self.replacement = None;
                Err(error)
            }
            Err(error) => {
                tracing::warn!("{error}; the catalog is written again before its next line");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Makes a rewriting durable that may not be.
    pub fn settle(&mut self) -> Result<()> {
        let Some(text) = &self.replacement else {
            return Ok(());
        };
        let path = self.file.path().to_owned();
        // A failed sync is not repeated.
        replace_file(&*self.storage, &path, text)?;
        self.file = self.storage.open(&path, OpenMode::Write)?;
        let copied = replace_file(&*self.storage, &self.copy_path, text)
            .and_then(|()| self.storage.open(&self.copy_path, OpenMode::Write));
        self.copy = whole(copied);
        self.is_torn = false;
        self.bytes_before = self.bytes();
        let bytes = self.bytes_before + text.len() as u64;
        self.bytes.store(bytes, Ordering::Release);
        self.replacement = None;
        Ok(())
    }

    /// Appends a line and syncs it. It removes a line that could not be written.
    pub fn append(&mut self, line: &str) -> Result<()> {
        self.settle()?;
        // The rest of a failed line must not follow a shorter one.
        if self.is_torn {
            self.take_back()?;
        }
        let at = self.file_bytes();
        let bytes = line.len() as u64;
        require_short(at + bytes)?;
        self.is_torn = true;
        let written = write_at(&*self.file, line.as_bytes(), at).and_then(|()| self.file.sync());
        if written.is_ok() {
            self.bytes.store(self.bytes() + bytes, Ordering::Release);
            self.is_torn = false;
            self.append_to_copy(at, line.as_bytes());
        } else if let Err(error) = self.take_back() {
            tracing::warn!("{error}; the incomplete line is removed later");
        }
        written
    }

    /// Nothing depends on the copy, so a failure here fails nothing else. It is not synced: the next start restores the lines that a loss of power takes from
    /// it.
    fn append_to_copy(&mut self, at: u64, line: &[u8]) {
        self.copy = whole(match &self.copy {
            Some(copy) => write_at(&**copy, line, at).map(|()| Arc::clone(copy)),
            None => self.copy_whole(),
        });
    }

    fn copy_whole(&self) -> Result<Arc<dyn StorageFile>> {
        // It reads the open file, because its name may be gone, and then the copy is the only one left.
        let room = memory::zeroed(self.file_bytes() as usize);
        let mut text = room.map_err(|refused| refused.of(self.file.path()))?;
        let read = read_at(&*self.file, &mut text, 0)?;
        if read < text.len() {
            let what = format!(
                "it ends at byte {read} of {}; the next start restores it from its copy",
                text.len()
            );
            return Err(Error::damaged(self.file.path(), what));
        }
        hold(&*self.storage, &self.copy_path, &text)
    }

    /// Makes the copy whole and synced at a clean stop, if possible.
    pub fn finish(&mut self) {
        if let Err(error) = self.settle() {
            tracing::warn!(
                "{error}; the catalog's file may be the one before it was rewritten, which says the same"
            );
        }
        self.copy = whole(match &self.copy {
            Some(copy) => copy.sync().map(|()| Arc::clone(copy)),
            None => self.copy_whole(),
        });
    }

    fn take_back(&mut self) -> Result<()> {
        self.file.truncate(self.file_bytes())?;
        self.is_torn = false;
        Ok(())
    }
}

fn require_short(bytes: u64) -> Result<()> {
    if bytes <= CATALOG_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "the catalog would exceed its limit of {CATALOG_BYTES_MAX} bytes; use a new directory for new definitions"
    );
    Err(Error::Schema(what))
}

/// Returns the copy, if it holds the same text as the file.
fn whole(written: Result<Arc<dyn StorageFile>>) -> Option<Arc<dyn StorageFile>> {
    written
        .inspect_err(|error| {
            tracing::warn!("{error}; the catalog has no copy until the next definition or start")
        })
        .ok()
}

/// Returns the file, open for appending, after it durably holds only `text`.
fn hold(storage: &dyn Storage, path: &Path, text: &[u8]) -> Result<Arc<dyn StorageFile>> {
    let shown = path.display();
    match read_file(storage, path, CATALOG_BYTES_MAX) {
        Ok(Some(held)) if held.starts_with(text) => {
            match keep(storage, path, text.len() as u64, held.len() as u64) {
                Ok(file) => return Ok(file),
                Err(error) => tracing::warn!("{error}; the file is written again"),
            }
        }
        Ok(Some(_)) => {
            tracing::warn!("{shown}: lines of the catalog are missing; the file is written again")
        }
        Ok(None) if text.is_empty() => {}
        Ok(None) => tracing::info!("{shown} is missing and is written again"),
        Err(error) => tracing::warn!("{error}; the file is written again"),
    }
    replace_file(storage, path, text)?;
    storage.open(path, OpenMode::Write)
}

/// Keeps the first `bytes` of the `held` bytes of a file and drops the torn line behind them.
fn keep(storage: &dyn Storage, path: &Path, bytes: u64, held: u64) -> Result<Arc<dyn StorageFile>> {
    let file = storage.open(path, OpenMode::Write)?;
    if held > bytes {
        file.truncate(bytes)?;
    }
    // A killed writer may have written its last line and not synced it.
    file.sync()?;
    Ok(file)
}
