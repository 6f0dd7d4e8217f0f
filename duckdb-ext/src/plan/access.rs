//! Decides which directories a call may read. All paths of a call are checked here before a file is opened.
//!
//! A Loom directory consists of files outside the database, so Loom may not read where DuckDB's own readers may not. A process that serves
//! other users is confined to the directories of `LOOM_SERVED`. The variable is read once, when the extension loads; no setting and no
//! statement changes it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{Problem, Result};

/// The variable that lists the directories of a confined process, one a line.
const SERVED_VARIABLE: &str = "LOOM_SERVED";

/// The canonical paths of a confined process; `None` if the process is not confined.
static SERVED: OnceLock<Option<Vec<PathBuf>>> = OnceLock::new();

/// Reads `LOOM_SERVED`. It is called when the extension loads, before anything is registered.
///
/// # Errors
/// The variable lists a directory that does not exist, or none at all; then the extension does not load.
pub fn confine() -> Result<()> {
    if SERVED.get().is_none() {
        // Another extension file that loads at the same time reads the same value.
        let _ = SERVED.set(served_by(std::env::var_os(SERVED_VARIABLE))?);
    }
    Ok(())
}

pub fn is_confined() -> bool {
    served().is_some()
}

/// Whether a path may be looked at, so that neither an error nor a hint reveals the content of another directory.
pub fn may_look(path: &Path) -> bool {
    served().is_none() || Access::All.allows(path)
}

fn served() -> Option<&'static [PathBuf]> {
    SERVED.get()?.as_deref()
}

fn served_by(value: Option<OsString>) -> Result<Option<Vec<PathBuf>>> {
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().ok_or_else(|| {
        Problem::Io(format!(
            "cannot confine Loom: {SERVED_VARIABLE} is not UTF-8; name directories in UTF-8, one a line"
        ))
    })?;
    let canonical = |line: &str| {
        std::fs::canonicalize(line).map_err(|error| {
            Problem::Io(format!(
                "cannot confine Loom to '{line}', which {SERVED_VARIABLE} names: {error}; name directories that exist, one a line"
            ))
        })
    };
    let lines = text.split('\n');
    lines.map(canonical).collect::<Result<_>>().map(Some)
}

/// The access that the settings of a database allow. A confined process also requires that it serves the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    All,
    /// The directories that lie in one of these folders, or are one of them.
    Within(Vec<PathBuf>),
}

impl Access {
    /// The access by the settings that list folders in a database without external access. A folder that does not exist allows nothing.
    pub fn within<'a>(folders: impl Iterator<Item = &'a str>) -> Access {
        let real = folders.filter_map(|folder| std::fs::canonicalize(folder).ok());
        Access::Within(real.collect())
    }

    /// Links are resolved first, so none leads out of a folder.
    pub fn allows(&self, path: &Path) -> bool {
        self.allows_beside(served(), path)
    }

    fn allows_beside(&self, served: Option<&[PathBuf]>, path: &Path) -> bool {
        if *self == Access::All && served.is_none() {
            return true;
        }
        std::fs::canonicalize(path).is_ok_and(|real| {
            let is_open = match self {
                Access::All => true,
                Access::Within(folders) => folders.iter().any(|folder| real.starts_with(folder)),
            };
            is_open && served.is_none_or(|served| served.contains(&real))
        })
    }

    /// # Errors
    /// The path may not be read, whether it exists or not.
    pub fn require(&self, path: &Path) -> Result<()> {
        if self.allows(path) {
            return Ok(());
        }
        let why = match served() {
            Some(_) => "this process serves other directories only; ask the host that serves it",
            None => {
                "access to files is disabled by the setting enable_external_access; add it to loom_directories before that"
            }
        };
        Err(Problem::Io(format!(
            "cannot read Loom directory '{}': {why}",
            path.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_allows_what_lies_in_it_and_no_link_leads_out() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["open/a.loom", "open2", "shut/b.loom"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        symlink(path("shut/b.loom"), path("open/link.loom")).unwrap();
        let open = path("open").display().to_string();
        let access = Access::within([open.as_str(), "/no/such/folder"].into_iter());
        let allowed = |name: &str| access.allows(&path(name));
        assert!(allowed("open/a.loom") && allowed("open") && allowed("open2/../open/a.loom"));
        for refused in [
            "open2",
            "shut/b.loom",
            "open/link.loom",
            "open/../shut/b.loom",
            "open/none",
        ] {
            assert!(!allowed(refused), "{refused}");
        }
        assert!(Access::All.allows(&path("shut")));
        assert!(!Access::within(std::iter::empty()).allows(&path("open")));
    }

    #[test]
    fn a_confined_process_reads_the_directories_it_serves_and_nothing_beside_or_within_them() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["a.loom/pins", "b.loom", "c.loom"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        symlink(path("a.loom"), path("to_a.loom")).unwrap();
        symlink(path("c.loom"), path("to_c.loom")).unwrap();
        let value = |names: &[&str]| {
            let paths: Vec<_> = names
                .iter()
                .map(|name| path(name).display().to_string())
                .collect();
            OsString::from(paths.join("\n"))
        };
        let served = served_by(Some(value(&["to_a.loom", "b.loom"]))).unwrap();
        let allowed =
            |access: &Access, name: &str| access.allows_beside(served.as_deref(), &path(name));
        for name in ["a.loom", "to_a.loom", "b.loom", "c.loom/../b.loom"] {
            assert!(allowed(&Access::All, name), "{name}");
        }
        for name in [
            "c.loom",
            "to_c.loom",
            "a.loom/pins",
            "a.loom/../c.loom",
            "",
            "*.loom",
        ] {
            assert!(!allowed(&Access::All, name), "{name}");
        }
        let open = Access::Within(vec![fs::canonicalize(path("b.loom")).unwrap()]);
        assert!(allowed(&open, "b.loom") && !allowed(&open, "a.loom"));
        assert_eq!(served_by(None), Ok(None));
        for names in [vec!["a.loom", "gone.loom"], vec!["a.loom\n"]] {
            assert!(served_by(Some(value(&names))).is_err(), "{names:?}");
        }
        assert!(served_by(Some(OsString::new())).is_err());
        assert!(served_by(Some(OsString::from_vec(vec![0xFF]))).is_err());
    }
}
