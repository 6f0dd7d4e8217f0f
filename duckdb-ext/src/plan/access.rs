//! Which directories a call may read. A Loom directory is files outside the database: where DuckDB's own readers may not read, neither may we.

use std::path::{Path, PathBuf};

use crate::error::{Problem, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    All,
    /// What lies in one of these folders, or is one of them.
    Within(Vec<PathBuf>),
}

impl Access {
    /// Of the settings that name folders in a database without external access. A folder that does not exist holds nothing.
    pub fn within<'a>(folders: impl Iterator<Item = &'a str>) -> Access {
        let real = folders.filter_map(|folder| std::fs::canonicalize(folder).ok());
        Access::Within(real.collect())
    }

    /// Links are followed first, so none leads out of a folder.
    pub fn allows(&self, path: &Path) -> bool {
        match self {
            Access::All => true,
            Access::Within(folders) => std::fs::canonicalize(path)
                .is_ok_and(|real| folders.iter().any(|folder| real.starts_with(folder))),
        }
    }

    /// # Errors
    /// A path that may not be read, whether it exists or not.
    pub fn require(&self, path: &Path) -> Result<()> {
        if self.allows(path) {
            return Ok(());
        }
        Err(Problem::Io(format!(
            "cannot read Loom directory '{}': access to files is disabled by the setting enable_external_access; add it to loom_directories before that",
            path.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
}
