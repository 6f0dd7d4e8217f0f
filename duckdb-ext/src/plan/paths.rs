//! The Loom directories of a call: a path, a glob or a list of them, from the argument, the setting or the environment. Each execution
//! matches globs again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use loom_engine::Error;
use loom_engine::log::storage::{OsStorage, Storage};

use super::access::{Access, is_confined};
use super::ambient::Ambient;
use super::directory;
use crate::error::{Problem, Result};

/// The paths and globs as given; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given(Vec<String>);

impl Given {
    /// # Errors
    /// There is no path, or an empty one.
    pub fn new(given: Vec<String>) -> Result<Given> {
        if given.is_empty() {
            return Err(Problem::binder(
                "dir is an empty list; give the path of at least one Loom directory",
            ));
        }
        if given.iter().any(String::is_empty) {
            return Err(Problem::binder(
                "dir is an empty text; give the path of a Loom directory",
            ));
        }
        Ok(Given(given))
    }

    /// The same paths made absolute, so they stay valid if the process changes its working directory.
    pub fn absolute(&self) -> Result<Given> {
        let absolute = |given: &String| {
            let path = std::path::absolute(at_home(given)).map_err(|error| {
                Problem::Io(format!("cannot resolve the path '{given}': {error}"))
            })?;
            Ok(path.display().to_string())
        };
        Ok(Given(self.0.iter().map(absolute).collect::<Result<_>>()?))
    }

    pub fn texts(&self) -> &[String] {
        &self.0
    }

    /// The directories, each once, in the order given; those of a glob in the order of their names.
    ///
    /// # Errors
    /// A path may not be read, a glob matches no Loom directory, two directories are copies of each other, or the user interrupts.
    pub fn paths(&self, ambient: &Ambient<'_>) -> Result<Vec<PathBuf>> {
        distinct(self.named(ambient)?)
    }

    fn named(&self, ambient: &Ambient<'_>) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for given in &self.0 {
            let path = at_home(given);
            // A name with glob characters that exists is used as it is. A confined process does not search.
            if !given.contains(['*', '?', '[']) || is_confined() || path.exists() {
                ambient.access.require(&path)?;
                paths.push(path);
            } else {
                paths.extend(matches(given, &path, ambient)?);
            }
        }
        Ok(paths)
    }
}

/// Removes paths to a directory that an earlier path leads to, so its records count once.
fn distinct(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    if paths.len() < 2 {
        return Ok(paths);
    }
    let mut places = HashMap::new();
    let mut kept = Vec::new();
    for path in paths {
        let uuid = directory::open(&path)?.uuid();
        // The same, whichever links and mounts the path follows.
        let place = OsStorage::default().file_id(&path)?;
        match places.entry(uuid) {
            Entry::Vacant(new) => {
                new.insert((place, path.clone()));
                kept.push(path);
            }
            Entry::Occupied(known) if known.get().0 == place => {}
            Entry::Occupied(known) => {
                let (_, first) = known.get();
                return Err(Problem::binder(format!(
                    "cannot read '{}' and '{}' together: one is a copy of the other, both have the UUID {uuid}; give one of them",
                    first.display(),
                    path.display()
                )));
            }
        }
    }
    Ok(kept)
}

/// The Loom directories that a glob matches; at least one.
fn matches(given: &str, pattern: &Path, ambient: &Ambient<'_>) -> Result<Vec<PathBuf>> {
    let walk = glob::glob(&pattern.to_string_lossy())
        .map_err(|error| Problem::binder(format!("dir: '{given}' is not a glob: {error}")))?;
    let mut found = 0;
    let mut directories = Vec::new();
    for path in walk {
        if (ambient.stop)() {
            return Err(Problem::Interrupted);
        }
        let path =
            path.map_err(|error| Problem::Io(format!("cannot search '{given}': {error}")))?;
        if !ambient.access.allows(&path) {
            continue;
        }
        found += 1;
        if is_loom(&path)? {
            directories.push(path);
        }
    }
    if found == 0 && ambient.access != Access::All {
        ambient.access.require(pattern)?;
    }
    match (found, directories.is_empty()) {
        (0, _) => Err(Problem::Io(format!(
            "no path matches '{given}'; give the path of a Loom directory, or a glob that matches one"
        ))),
        (found, true) => Err(Problem::Io(format!(
            "'{given}' matches {found} {}, but none is a Loom directory (which has a file loom.json); give the path of one",
            if found == 1 { "path" } else { "paths" }
        ))),
        _ => Ok(directories),
    }
}

/// Whether a path is a Loom directory. An unreadable one is an error, because its records would be missing silently.
fn is_loom(path: &Path) -> Result<bool> {
    let file = path.join("loom.json");
    match std::fs::metadata(&file) {
        Ok(_) => Ok(true),
        Err(source) if source.kind() == ErrorKind::PermissionDenied => {
            Err(Error::io(file, source).into())
        }
        // Another process removed it during the search, or it is a dangling link.
        Err(_) if !path.exists() => Err(Problem::Io(format!(
            "cannot open Loom directory '{}': it was listed but does not exist; run the statement again, or remove the link",
            path.display()
        ))),
        Err(_) => Ok(false),
    }
}

/// Replaces a leading `~` with the user's home directory.
pub fn at_home(given: &str) -> PathBuf {
    let path = PathBuf::from(given);
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ambient(stop: &dyn Fn() -> bool) -> Ambient<'_> {
        Ambient {
            file: "duckdb-v1",
            views_grow: true,
            loom_dir: &|| None,
            stop,
            threads: &|| 1,
            access: Access::All,
        }
    }

    fn given(paths: &[&str]) -> Given {
        Given::new(paths.iter().map(|path| (*path).to_owned()).collect()).unwrap()
    }

    #[test]
    fn a_glob_is_the_loom_directories_that_it_matches_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.loom", "a.loom", "c.txt"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["a.loom", "b.loom"] {
            fs::write(root.join(name).join("loom.json"), "{}").unwrap();
        }
        let text = |name: &str| root.join(name).display().to_string();
        let names = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|name| text(name)).collect();
            Given(patterns).named(&ambient(&|| false))
        };
        let expected = |names: &[&str]| Ok(names.iter().map(|name| root.join(name)).collect());
        assert_eq!(names(&["*"]), expected(&["a.loom", "b.loom"]));
        assert_eq!(
            names(&["b.loom", "?.loom"]),
            expected(&["b.loom", "a.loom", "b.loom"])
        );
        assert!(
            names(&["*.txt"])
                .unwrap_err()
                .to_string()
                .contains("matches 1 path")
        );
        assert!(
            names(&["*.csv"])
                .unwrap_err()
                .to_string()
                .contains("no path matches")
        );
        assert_eq!(names(&["no such"]), expected(&["no such"]));
        std::os::unix::fs::symlink("/no/such", root.join("gone.loom")).unwrap();
        let gone = names(&["*"]).unwrap_err().to_string();
        assert!(gone.contains("gone.loom': it was listed"), "{gone}");
        fs::remove_file(root.join("gone.loom")).unwrap();
        assert_eq!(
            Given(vec![text("*")]).paths(&ambient(&|| true)),
            Err(Problem::Interrupted)
        );
    }

    #[test]
    fn an_empty_path_is_refused() {
        assert!(Given::new(Vec::new()).is_err());
        assert!(Given::new(vec!["x".into(), String::new()]).is_err());
        assert_eq!(
            given(&["/x"]).paths(&ambient(&|| false)),
            Ok(vec!["/x".into()])
        );
    }
}
