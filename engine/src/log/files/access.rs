//! Which files and folders of a directory are Loom's own, by the names that FORMAT.md lists, and who may read them.
//!
//! A directory may hold what is not Loom's, and its owner may have linked a file of theirs into it: nothing else is touched here, and
//! nothing through a link, for whoever chooses a directory did not choose what it leads to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::segment::SegmentName;
use super::storage::{Storage, UNFINISHED_SUFFIX, is_not_found, unlink_if_present};
use super::{catalog_file, durable, lock, meta_file};
use crate::error::{Error, IoContext, Result};
use crate::log::staging::note;
use crate::types::LogKind;

const FILE_NAMES: [&str; 8] = [
    meta_file::NAME,
    meta_file::COPY_NAME,
    catalog_file::NAME,
    catalog_file::COPY_NAME,
    durable::NAME,
    note::NAME,
    note::COPY_NAME,
    lock::NAME,
];
/// What may stand in a directory that nobody wrote a log to yet, too: a killed daemon's socket, and what the root of a file system holds.
const PASSING_NAMES: [&str; 2] = ["ingest.sock", "lost+found"];

/// Refuses a directory that somebody uses for something else, before anything in it changes.
pub fn refuse_foreign(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let refused = |what: String| {
        Err(Error::NotLoom {
            path: dir.to_owned(),
            what,
        })
    };
    let names = match storage.list(dir) {
        Err(error) if is_not_found(&error) => return Ok(()),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
            return refused(
                "it is a file; name a directory, which is made where it does not exist".to_owned(),
            );
        }
        names => names?,
    };
    // A log without its description is refused under the lock, when nobody can be about to write one.
    let is_begun = |name: &String| {
        name == meta_file::NAME || LogKind::ALL.into_iter().any(|log| name == log.dir_name())
    };
    if names.iter().any(is_begun) {
        return Ok(());
    }
    let is_own = |name: &&String| {
        let renamed = name.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(name);
        FILE_NAMES.contains(&renamed) || PASSING_NAMES.contains(&name.as_str())
    };
    match names.iter().filter(|name| !is_own(name)).min() {
        None => Ok(()),
        Some(name) => refused(format!(
            "it holds no {}, but '{name}', which is not Loom's; name an empty directory, or one that does not exist yet",
            meta_file::NAME
        )),
    }
}

/// Removes files that a writer which was killed had not finished: under their names they never counted. The caller holds the lock.
pub fn remove_unfinished(storage: &dyn Storage, dir: &Path) -> Result<()> {
    for name in storage.list(dir)? {
        let stem = name.strip_suffix(UNFINISHED_SUFFIX);
        if stem.is_some_and(|stem| FILE_NAMES.contains(&stem)) {
            unlink_if_present(storage, &dir.join(name))?;
        }
    }
    Ok(())
}

/// Who may read what Loom keeps: the owner alone, or a group too.
#[derive(Copy, Clone, Debug)]
pub struct Access {
    gid: Gid,
    is_shared: bool,
}

impl Access {
    /// Without a group, the owner alone.
    pub fn new(group: Option<u32>) -> Access {
        Access {
            gid: group.map_or_else(rustix::process::getegid, Gid::from_raw),
            is_shared: group.is_some(),
        }
    }

    /// Gives the directory and Loom's own files and folders in it their modes and group; what could not be is returned.
    pub fn set_all(&self, dir: &Path) -> Vec<Error> {
        let mut failed = Vec::new();
        // The directory is the one thing that a person named, perhaps by a link.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty()).at(dir);
        let folder = match opened.and_then(|folder| self.set_open(&folder, dir).map(|()| folder)) {
            Ok(folder) => folder,
            Err(error) => return vec![error],
        };
        for name in FILE_NAMES {
            failed.extend(self.set_in(&folder, name, &dir.join(name)).err());
        }
        for log in LogKind::ALL {
            let path = dir.join(log.dir_name());
            let segments = self
                .set_folder(&folder, log.dir_name(), &path)
                .and_then(|segments| {
                    segments.map_or(Ok(()), |list| self.set_segments(&list, &path, &mut failed))
                });
            failed.extend(segments.err());
        }
        failed
    }

    /// One file or folder that Loom made, by its path.
    pub fn set(&self, path: &Path) -> Result<()> {
        self.set_in(rustix::fs::CWD, path, path)
    }

    /// The files that are segments, in one of the three folders.
    fn set_segments(&self, folder: &OwnedFd, path: &Path, failed: &mut Vec<Error>) -> Result<()> {
        for entry in Dir::read_from(folder).at(path)? {
            let entry = entry.at(path)?;
            if let Ok(name) = entry.file_name().to_str()
                && SegmentName::parse(name).is_some()
            {
                failed.extend(self.set_in(folder, name, &path.join(name)).err());
            }
        }
        Ok(())
    }

    /// One of the three folders, opened; `None` where there is none, or something else has its name.
    fn set_folder(&self, parent: &OwnedFd, name: &str, path: &Path) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            folder => {
                let folder = folder.at(path)?;
                self.set_open(&folder, path)?;
                Ok(Some(folder))
            }
        }
    }

    fn set_in(
        &self,
        folder: impl AsFd,
        name: impl rustix::path::Arg + Copy,
        path: &Path,
    ) -> Result<()> {
        let found = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            found => found.at(path)?,
        };
        // Opening a device could do something.
        if self.is_set(&found) || wanted(&found, self.is_shared).is_none() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, name, flags, Mode::empty()).at(path)?;
        self.set_open(&file, path)
    }

    fn set_open(&self, file: &OwnedFd, path: &Path) -> Result<()> {
        let found = rustix::fs::fstat(file).at(path)?;
        let Some(mode) = wanted(&found, self.is_shared).filter(|_| !self.is_set(&found)) else {
            return Ok(());
        };
        if is_file(&found) && found.st_nlink > 1 {
            tracing::warn!(
                "{} has {} names (hard links), so its mode and group stay as they are; put a copy in its place",
                path.display(),
                found.st_nlink
            );
            return Ok(());
        }
        let own = || rustix::fs::fchown(file, None, Some(self.gid)).at(path);
        let restrict = || rustix::fs::fchmod(file, mode).at(path);
        // In no moment may a group read that is not the one.
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

/// The mode of a file or a folder; nothing else has one of Loom's.
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
