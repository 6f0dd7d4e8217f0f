//! Whether this process opened a ring or is a fork of the one that did. Two producers on one ring would overwrite each other's records.
//!
//! The kernel empties one page in every child, so the check is one load without a system call.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use super::layout::PAGE_BYTES;

/// The process that opened something.
#[derive(Copy, Clone)]
pub struct Opener {
    mark: &'static AtomicU64,
    process: u64,
}

impl Opener {
    /// This process.
    pub fn this_process() -> Result<Opener> {
        static PAGE: OnceLock<Result<&'static AtomicU64>> = OnceLock::new();
        let mark = (*PAGE.get_or_init(emptied_in_children))?;
        // The page has 0 before the first call, and in a child.
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(u64::from(std::process::id()), Ordering::Relaxed);
        }
        Ok(Opener {
            mark,
            process: mark.load(Ordering::Relaxed),
        })
    }

    /// False in a fork of that process.
    #[inline]
    pub fn is_this_process(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == self.process
    }
}

fn emptied_in_children() -> Result<&'static AtomicU64> {
    // SAFETY: the kernel chooses a place for a new mapping of whole pages, which is never unmapped. It is zeroed and aligned, and all access is
    // through the atomic. The advice only makes a child see zeroes.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let page = mmap_anonymous(null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE)?;
        madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork)?;
        Ok(&*page.cast::<AtomicU64>())
    }
}
