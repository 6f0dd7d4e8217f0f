//! README.md's first session and its Python lines run as written, in a folder where the paths that they name exist. Every path in the
//! documents for developers exists.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::machine;

/// The documents whose paths are checked.
const DOCUMENTS: [&str; 2] = ["README.md", "engine/ARCHITECTURE.md"];
/// Top-level folders that a build makes, and that a clone does not have.
const BUILT: [&str; 4] = ["dist", "target", ".venv", ".bench-venv"];

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
            &format!("{python}\nassert slow and all(ns > 350_000 for _, ns in slow)"),
        ],
    )?;
    Ok(())
}

#[test]
fn every_path_that_a_document_names_exists() -> Result<()> {
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(machine::root().join(document))?;
        let paths = paths(&text);
        ensure!(
            paths.len() > 10,
            "{document} names too few paths: {paths:?}"
        );
        let absent = paths
            .into_iter()
            .filter(|path| !machine::root().join(path).exists());
        missing.extend(absent.map(|path| format!("{document}: {path}")));
    }
    ensure!(missing.is_empty(), "no such path:\n{}", missing.join("\n"));
    Ok(())
}

/// The words in code spans that have a slash and begin with a top-level folder of the repository.
fn paths(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    let spans = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    spans
        .flat_map(str::split_whitespace)
        .filter(|word| {
            word.split_once('/').is_some_and(|(folder, _)| {
                !folder.is_empty()
                    && !BUILT.contains(&folder)
                    && machine::root().join(folder).is_dir()
            })
        })
        .collect()
}

#[test]
fn a_path_is_a_word_of_a_code_span_below_a_top_level_folder() {
    let text = "`engine/x.rs`, engine/y.rs, `a/b`, `run tests/z.sh 1/2`\n```sh\ncat `engine/no`\n```\n`target/release/ingestd` `sql/` `/engine/x`";
    let found: Vec<_> = paths(text).into_iter().collect();
    assert_eq!(found, ["engine/x.rs", "sql/", "tests/z.sh"]);
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
