//! The files of a directory by their paths in it, before they are written into a folder to be looked at.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
enum Entry {
    File(Arc<[u8]>),
    /// A folder where a file should be.
    Odd,
}

#[derive(Clone, Debug, Default)]
pub struct Files {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Files {
    /// Every file below a folder.
    pub fn read(dir: &Path) -> io::Result<Files> {
        let mut files = Files::default();
        files.put_all(dir, Path::new(""))?;
        Ok(files)
    }

    fn put_all(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.put_all(&entry.path(), &to)?;
            } else {
                self.put(to, fs::read(entry.path())?);
            }
        }
        Ok(())
    }

    pub fn put(&mut self, path: impl Into<PathBuf>, bytes: impl Into<Arc<[u8]>>) {
        self.entries.insert(path.into(), Entry::File(bytes.into()));
    }

    pub fn put_odd(&mut self, path: impl Into<PathBuf>) {
        self.entries.insert(path.into(), Entry::Odd);
    }

    pub fn remove(&mut self, path: &Path) {
        self.entries.remove(path);
    }

    pub fn get(&self, path: &Path) -> Option<&[u8]> {
        match self.entries.get(path)? {
            Entry::File(bytes) => Some(bytes),
            Entry::Odd => None,
        }
    }

    pub fn write(&self, dir: &Path) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let to = dir.join(path);
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            match entry {
                Entry::File(bytes) => fs::write(to, bytes)?,
                Entry::Odd => fs::create_dir_all(to)?,
            }
        }
        Ok(())
    }
}

/// Has `make` write a directory to a path where there is nothing, `look` at it, and removes it.
pub fn in_folder<T>(
    make: impl FnOnce(&Path) -> io::Result<()>,
    look: impl FnOnce(&Path) -> T,
) -> T {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("loom-fuzz-{}-{number}", std::process::id()));
    let fail = |error: io::Error| -> ! { panic!("{}: {error}", dir.display()) };
    make(&dir).unwrap_or_else(|error| fail(error));
    let seen = look(&dir);
    fs::remove_dir_all(&dir).unwrap_or_else(|error| fail(error));
    seen
}
