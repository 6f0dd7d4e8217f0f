//! A simulated disk: a `Storage` in memory that can be made to fail, and whose machine can die between any two operations.
//!
//! `Content` is the bytes of a file and cheap to copy. `Medium` is all files and names, both as the page cache shows them and as a loss of power leaves them.
//! `Disk` is the storage: it applies rules about failures and, on request, records the medium before each operation, so that one run covers a crash at each of
//! its points.

mod content;
mod disk;
mod medium;
mod rules;

pub(crate) use disk::{Boundary, Disk, Marks};
pub(crate) use medium::Luck;
pub(crate) use rules::{Fault, Kind, Op, Rule};

use std::path::{Path, PathBuf};

/// The path of the directory on every simulated disk.
pub(crate) fn loom() -> PathBuf {
    PathBuf::from("/disk/loom")
}

/// Memory that the machine's processes share; a loss of power erases it.
pub(crate) fn shared_memory() -> PathBuf {
    PathBuf::from("/shm")
}

pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;

fn is_volatile(path: &Path) -> bool {
    path.starts_with(shared_memory())
}
