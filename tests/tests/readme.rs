//! README.md's first session and its Python lines run as they stand there, in a folder where the paths that they name exist.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::machine;

#[test]
fn the_session_of_the_readme_runs() -> Result<()> {
    let readme = std::fs::read_to_string(machine::root().join("README.md"))?;
    let place = tempfile::tempdir()?;
    std::fs::create_dir_all(place.path().join("target/release"))?;
    symlink(
        machine::ingestd()?,
        place.path().join("target/release/ingestd"),
    )?;
    symlink(machine::root().join("dist"), place.path().join("dist"))?;

    let session = fenced(&readme, "sh").context("README.md has no session")?;
    ensure!(
        session.starts_with("make build"),
        "the session begins with a build"
    );
    // What is built is there already; the daemon is stopped where a reader would leave it running.
    let steps = session.split_once('\n').map_or("", |(_, rest)| rest);
    let said = run(
        place.path(),
        "bash",
        &["-euc", &format!("{steps}\nkill %1\nwait")],
    )?;
    for part in ["redis_request", "p99_99", "latency_ns"] {
        ensure!(
            said.contains(part),
            "{part} is not in what the session printed:\n{said}"
        );
    }
    ensure!(!said.contains("Error"), "the session failed:\n{said}");

    let python = fenced(&readme, "python").context("README.md has no Python")?;
    run(
        place.path(),
        "python",
        &[
            "-c",
            &format!("{python}\nassert all(ns > 5_000_000 for _, ns in slow)"),
        ],
    )?;
    Ok(())
}

/// The first block of a language.
fn fenced<'a>(text: &'a str, language: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("```{language}\n"))?;
    Some(after.split_once("```")?.0)
}

/// Runs a program with the tests' environment before all others, and gives all that it printed.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let environment = machine::root().join(".venv/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", environment.display()))
        .output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(
        output.status.success(),
        "{program} ended with {}:\n{said}",
        output.status
    );
    Ok(said)
}
