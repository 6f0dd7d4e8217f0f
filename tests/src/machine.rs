//! The paths on this machine: the checkout, the built programs, the Python environment of the tests, and the other installed programs.
//!
//! A test that needs a missing program reports that and passes. If `CI` is set, it fails instead.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The root of the checkout.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The built `ingestd`: the one that `INGESTD` names, otherwise the one beside the running test.
pub fn ingestd() -> Result<PathBuf> {
    let path = match std::env::var_os("INGESTD") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe()?;
            let release = test.ancestors().find(|dir| dir.ends_with("release"));
            release
                .context("the test does not stand in a release directory")?
                .join("ingestd")
        }
    };
    ensure!(
        path.exists(),
        "{} is not built; run 'make build'",
        path.display()
    );
    Ok(path)
}

/// The built library for C programs, beside `ingestd`.
pub fn client_library() -> Result<PathBuf> {
    let path = ingestd()?.with_file_name("libloom_client.so");
    ensure!(
        path.exists(),
        "{} is not built; run 'make build'",
        path.display()
    );
    Ok(path)
}

/// The Python of the tests' environment, which holds the newest DuckDB 2.
pub fn python() -> Result<PathBuf> {
    environment("python")
}

/// The folder of the tests' environment that holds Python's package of an earlier DuckDB 2.
pub fn earlier_duckdb(release: &str) -> Result<PathBuf> {
    let path = root().join(format!(".venv/duckdb-{release}"));
    ensure!(
        path.exists(),
        "{} is missing; run 'make test' once, which makes it",
        path.display()
    );
    Ok(path)
}

/// The command line of DuckDB 1 in the tests' environment.
pub fn duckdb_cli() -> Result<PathBuf> {
    environment("duckdb")
}

fn environment(program: &str) -> Result<PathBuf> {
    let path = root().join(".venv/bin").join(program);
    ensure!(
        path.exists(),
        "{} is missing; run 'make test' once, which makes it",
        path.display()
    );
    Ok(path)
}

/// True if all `programs` are installed. Otherwise reports the missing one, and fails if `CI` is set.
pub fn has(test: &str, programs: &[&str]) -> Result<bool> {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !on_path(program))
        .collect();
    if missing.is_empty() {
        return Ok(true);
    }
    skip(test, &format!("{} is not installed", missing.join(", ")))?;
    Ok(false)
}

/// Reports that `test` did not run, and why. Fails if `CI` is set.
pub fn skip(test: &str, reason: &str) -> Result<()> {
    if std::env::var_os("CI").is_some() {
        bail!("{test} was skipped, and CI skips nothing: {reason}");
    }
    println!("skipped: {test}: {reason}");
    Ok(())
}

/// The free bytes on the file system of a path.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

fn on_path(program: &str) -> bool {
    let finder = Command::new("sh")
        .arg("-c")
        .arg(format!("command -v {program}"))
        .output();
    finder.is_ok_and(|found| found.status.success())
}
