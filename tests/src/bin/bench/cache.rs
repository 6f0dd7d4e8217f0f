//! Drops single files from the page cache, so that a query can be measured cold without root.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Drops a file, or all files below a folder, from the page cache.
pub fn drop_cached(path: &Path) -> Result<()> {
    let metadata = path
        .symlink_metadata()
        .with_context(|| path.display().to_string())?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path)? {
            drop_cached(&entry?.path())?;
        }
    } else if metadata.is_file() {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        // Pages that are not written yet cannot be dropped.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
