//! Gives a directory and everything of Loom's in it their mode and group.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::access::Access;
use super::own_files::FILE_NAMES;
use super::segment::SegmentName;
use crate::error::{Error, IoContext, Result};
use crate::types::{LOOKUPS_NAME, LogKind, lookup_of_name};

impl Access {
    /// Gives the directory and Loom's own files and folders in it their modes and group, and returns the failures.
    pub fn set_all(&self, dir: &Path) -> Vec<Error> {
        let mut failed = Vec::new();
        // The directory is the only path that a person named, perhaps by a link.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty()).at(dir);
        let folder = match opened.and_then(|folder| self.set_open(&folder, dir).map(|()| folder)) {
            Ok(folder) => folder,
            Err(error) => return vec![error],
        };
        for name in FILE_NAMES {
            failed.extend(self.set_in(&folder, name, &dir.join(name)).err());
        }
        let is_segment = |name: &str| SegmentName::parse(name).is_some();
        let logs = LogKind::ALL.map(|log| (log.dir_name(), &is_segment as &dyn Fn(&str) -> bool));
        let is_lookup = |name: &str| lookup_of_name(name).is_some();
        let lookups = (LOOKUPS_NAME, &is_lookup as &dyn Fn(&str) -> bool);
        for (name, is_own) in logs.into_iter().chain([lookups]) {
            let path = dir.join(name);
            let files = self.set_folder(&folder, name, &path).and_then(|list| {
                list.map_or(Ok(()), |list| {
                    self.set_files(&list, &path, is_own, &mut failed)
                })
            });
            failed.extend(files.err());
        }
        failed
    }

    /// Sets Loom's own files in one of the folders.
    fn set_files(
        &self,
        folder: &OwnedFd,
        path: &Path,
        is_own: impl Fn(&str) -> bool,
        failed: &mut Vec<Error>,
    ) -> Result<()> {
        for entry in Dir::read_from(folder).at(path)? {
            let entry = entry.at(path)?;
            if let Ok(name) = entry.file_name().to_str()
                && is_own(name)
            {
                failed.extend(self.set_in(folder, name, &path.join(name)).err());
            }
        }
        Ok(())
    }

    /// Sets and opens one of the folders; `None` if it is missing or something else has its name.
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
}
