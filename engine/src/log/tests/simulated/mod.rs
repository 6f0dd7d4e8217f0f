//! A simulated disk: a `Storage` in memory that can be made to fail, and whose machine can die between any two operations.
//!
//! `Content` is the bytes of a file, cheap to copy. `Medium` is all files and names, each with what a reader of the page cache sees and what
//! a loss of power leaves. `Disk` is the storage: it puts rules about failures before the medium, and remembers, where it is asked to, the
//! medium as it was before each operation, so that one run shows what a crash at any point of it would have left.

mod content;
mod disk;
mod medium;
mod rules;

pub(crate) use disk::{Boundary, Disk, Marks};
pub(crate) use medium::Luck;
pub(crate) use rules::{Fault, Kind, Op, Rule};

use std::path::{Path, PathBuf};

/// Where the directory stands on every simulated disk.
pub(crate) fn loom() -> PathBuf {
    PathBuf::from("/disk/loom")
}

/// Memory that the machine's processes share, gone with its power.
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
