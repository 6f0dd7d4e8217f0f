//! Read access to Loom's files: the mode and the group of one file or folder.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{IoContext, Result};

/// The owner alone may read, or a group too.
#[derive(Copy, Clone, Debug)]
pub struct Access {
    gid: Gid,
    is_shared: bool,
}

impl Access {
    /// Without a group, only the owner may read.
    pub fn new(group: Option<u32>) -> Access {
        Access {
            gid: group.map_or_else(rustix::process::getegid, Gid::from_raw),
            is_shared: group.is_some(),
        }
    }

    /// Returns the access of the Loom directory itself.
    ///
    /// # Errors
    /// Fails if the directory cannot be found.
    pub fn of_directory(dir: &Path) -> Result<Access> {
        let found = rustix::fs::stat(dir).at(dir)?;
        let is_shared = found.st_mode & 0o040 != 0;
        Ok(Access::new(is_shared.then_some(found.st_gid)))
    }

    /// Sets the access of one of Loom's files or folders by its path.
    pub fn set(&self, path: &Path) -> Result<()> {
        self.set_in(rustix::fs::CWD, path, path)
    }

    /// Does the same for a name in an open folder.
    pub(super) fn set_in(
        &self,
        folder: impl AsFd,
        name: impl rustix::path::Arg + Copy,
        path: &Path,
    ) -> Result<()> {
        let found = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            found => found.at(path)?,
        };
        // Opening a device could have an effect.
        if self.is_set(&found) || wanted(&found, self.is_shared).is_none() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, name, flags, Mode::empty()).at(path)?;
        self.set_open(&file, path)
    }

    pub(super) fn set_open(&self, file: &OwnedFd, path: &Path) -> Result<()> {
        let found = rustix::fs::fstat(file).at(path)?;
        let Some(mode) = wanted(&found, self.is_shared).filter(|_| !self.is_set(&found)) else {
            return Ok(());
        };
        if is_file(&found) && found.st_nlink > 1 {
            tracing::warn!(
                "{} has {} names (hard links), so its mode and group are not changed; replace it by a copy",
                path.display(),
                found.st_nlink
            );
            return Ok(());
        }
        let own = || rustix::fs::fchown(file, None, Some(self.gid)).at(path);
        let restrict = || rustix::fs::fchmod(file, mode).at(path);
        // At no moment may a wrong group read.
        if self.is_shared {
            own().and_then(|()| restrict())
        } else {
            restrict().and_then(|()| own())
        }
    }

    fn is_set(&self, found: &Stat) -> bool {
        found.st_gid == self.gid.as_raw()
            && wanted(found, self.is_shared)
                .is_some_and(|mode| Mode::from_raw_mode(found.st_mode) == mode)
    }
}

/// Returns the mode for a file or a folder; `None` for anything else.
fn wanted(found: &Stat, is_shared: bool) -> Option<Mode> {
    let mode = match (FileType::from_raw_mode(found.st_mode), is_shared) {
        (FileType::Directory, true) => 0o750,
        (FileType::Directory, false) => 0o700,
        (FileType::RegularFile, true) => 0o640,
        (FileType::RegularFile, false) => 0o600,
        _ => return None,
    };
    Some(Mode::from_raw_mode(mode))
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}
