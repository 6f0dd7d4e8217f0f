//! The user's DuckDB: its program, its version, and its extensions.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::quoted;

/// The versions for which Quack exists. Another version needs an entry here.
const WITH_QUACK: [&str; 2] = ["1.5.4", "1.5.5"];
const LATEST: &str = "1.5.5";
/// The folder in which the packages have Loom's file for these versions, relative to the program.
const BESIDE: &str = "../lib/loom/duckdb-v1";

/// Finds DuckDB's command line, of a version that has Quack: the program that is given, else `duckdb` of PATH.
pub(super) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => in_path("duckdb").with_context(|| {
            format!("there is no 'duckdb' in PATH; install DuckDB {LATEST}, or give its path with --duckdb")
        })?,
    };
    let name = path.display();
    // A script would stand between DuckDB and the limits and signals that are for it.
    let mut magic = [0; 4];
    File::open(&path)
        .and_then(|mut file| file.read(&mut magic))
        .with_context(|| {
            format!("cannot open the DuckDB command line '{name}'; give its path with --duckdb")
        })?;
    if &magic != b"\x7fELF" {
        bail!(
            "'{name}' is a script and not DuckDB itself; give its path with --duckdb, of PyPI's package that of \
                 duckdb_cli/duckdb in site-packages"
        );
    }
    let said = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run '{name}'"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.split_whitespace().next().unwrap_or_default();
    if !WITH_QUACK.contains(&version.trim_start_matches('v')) {
        bail!(
            "'{name}' is version '{version}', for which Quack has no build (it has for {}); \
                 install DuckDB {LATEST}, and give its path with --duckdb",
            WITH_QUACK.join(", ")
        );
    }
    Ok(path)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The statements that load Loom, httpfs and Quack from a folder of `folders`. Otherwise Loom is in the package, and the others are in DuckDB's
/// own folder.
pub(super) fn loads(folders: &[PathBuf]) -> anyhow::Result<String> {
    let beside = env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join(BESIDE)));
    if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
        bail!(
            "--extensions '{}' is not a folder; give one that has files of extensions, such as loom.duckdb_extension",
            folder.display()
        );
    }
    let mut statements = String::new();
    for name in ["loom", "httpfs", "quack"] {
        let file = format!("{name}.duckdb_extension");
        let beside = beside.iter().filter(|_| name == "loom");
        let places = folders.iter().chain(beside);
        let mut paths = places.map(|folder| folder.join(&file));
        match paths.find(|path| path.is_file()) {
            Some(path) => statements.push_str(&format!("LOAD {};\n", quoted_path(&path)?)),
            None if name == "loom" => bail!(
                "{file} is missing; give the folder that has Loom's file for DuckDB 1.2 and later (duckdb-v1) with --extensions"
            ),
            None => statements.push_str(&format!("LOAD {name};\n")),
        }
    }
    Ok(statements)
}

/// A path as a constant of SQL.
pub(super) fn quoted_path(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| {
        format!(
            "the path '{}' is not UTF-8; DuckDB needs one that is",
            path.display()
        )
    })?;
    Ok(quoted(text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn extensions_are_loaded_from_the_folders_that_are_given() {
        let place = tempfile::tempdir().unwrap();
        let folders = [place.path().join("it's"), place.path().join("b")];
        for (folder, name) in [(0, "loom"), (1, "loom"), (1, "quack")] {
            fs::create_dir_all(&folders[folder]).unwrap();
            fs::write(folders[folder].join(format!("{name}.duckdb_extension")), "").unwrap();
        }
        let root = place.path().display();
        let expected = format!(
            "LOAD '{root}/it''s/loom.duckdb_extension';\nLOAD httpfs;\nLOAD '{root}/b/quack.duckdb_extension';\n"
        );
        assert_eq!(loads(&folders).unwrap(), expected);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named() {
        let refusal = loads(&["/nowhere/at-all".into()]).unwrap_err().to_string();
        assert!(
            refusal.contains("--extensions '/nowhere/at-all' is not a folder; give one"),
            "{refusal}"
        );
    }

    #[test]
    fn without_the_file_of_loom_the_remedy_is_named() {
        let refusal = loads(&[]).unwrap_err().to_string();
        assert!(
            refusal.contains("loom.duckdb_extension is missing; give the folder"),
            "{refusal}"
        );
    }

    #[test]
    fn a_script_a_missing_program_and_another_one_are_named() {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("duckdb");
        fs::write(&script, "#!/bin/sh\necho v1.5.5\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for (path, refusal) in [
            (
                script.as_path(),
                "is a script and not DuckDB itself; give its path",
            ),
            (
                Path::new("/nowhere/duckdb"),
                "cannot open the DuckDB command line '/nowhere/duckdb'",
            ),
            (
                Path::new("/bin/true"),
                "for which Quack has no build (it has for 1.5.4, 1.5.5)",
            ),
        ] {
            let error = find(Some(path)).err().unwrap().to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
