//! The parts of the house style that a machine can check: every Rust file of the workspace is read as text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use loom_tests::machine::root;

use super::circles::circles;

/// The files that may contain `unsafe`. A folder ends in a slash.
const UNSAFE_ALLOWED: [&str; 15] = [
    "engine/src/log/",
    "engine/src/format/columns/bits.rs",
    "engine/model/src/ring.rs",
    "ingestd/clients/c/",
    "ingestd/clients/rust/src/ring/",
    "ingestd/src/daemon/peer_user.rs",
    "duckdb-ext/src/exec/vectors.rs",
    "duckdb-ext/src/exec/memory.rs",
    "duckdb-ext/src/v1/",
    "duckdb-ext/src/v2/call.rs",
    "duckdb-ext/src/v2/dictionary.rs",
    "duckdb-ext/src/v2/host.rs",
    "duckdb-ext/src/v2/vectors.rs",
    "engine/fuzz/duckdb/src/host.rs",
    "ingestd/probes/",
];

/// The modules of the engine, and those that each may not name.
const MODULES_APART: [(&str, &[&str]); 5] = [
    (
        "engine/src/format/",
        &["log", "nodes", "ingest", "query", "schema", "check"],
    ),
    (
        "engine/src/log/",
        &["nodes", "ingest", "query", "schema", "check"],
    ),
    ("engine/src/nodes/", &["ingest", "query", "schema", "check"]),
    ("engine/src/ingest/", &["query", "check"]),
    ("engine/src/query/", &["ingest", "check"]),
];

/// Beginnings of comments that make a clause without a verb, and words that have a plainer one.
const CLAUSES: [&str; 4] = ["What ", "Who ", "Whose ", "Whoever "];
const WORDS: [&str; 5] = ["anew", "became of", "for want of", "by and by", "but for"];

/// Code lines of one file, without tests and comments.
const CODE_LINES_MAX: usize = 600;

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The lines above the file's test module without comments, numbered from 1. A file that is all tests has none.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests_only = self.path.contains("/src/") && self.path.contains("/tests/");
        self.text
            .lines()
            .take(if tests_only { 0 } else { usize::MAX })
            .enumerate()
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
            .map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()))
            .filter(|(_, line)| !line.trim().is_empty())
    }
}

fn sources() -> Result<Vec<Source>> {
    let mut found = Vec::new();
    for package in ["engine", "ingestd", "duckdb-ext", "tests"] {
        collect(&root().join(package), &mut found)?;
    }
    assert!(found.len() > 10, "the sources were not found");
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            let built = path.ends_with("target") || path.ends_with("corpus");
            if !built {
                collect(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let path = path.strip_prefix(root())?.display().to_string();
            found.push(Source { path, text });
        }
    }
    Ok(())
}

/// Fails with all `offences` at once, one in each line.
fn none(offences: &[String], rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n{}", offences.join("\n"));
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|found| found == word)
}

#[test]
fn every_file_opens_with_what_it_owns() -> Result<()> {
    let bare: Vec<String> = sources()?
        .into_iter()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| source.path)
        .collect();
    none(&bare, "a file opens with //!");
    Ok(())
}

#[test]
fn comments_are_plain_sentences() -> Result<()> {
    let mut offences = Vec::new();
    for source in sources()? {
        for (at, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            let is_clause = CLAUSES.iter().any(|begin| comment.starts_with(begin));
            let is_odd = WORDS.iter().any(|words| comment.contains(words));
            if is_clause || is_odd {
                offences.push(format!("{}:{}: {comment}", source.path, at + 1));
            }
        }
    }
    none(&offences, "a comment is a sentence, or a noun phrase");
    Ok(())
}

#[test]
fn unsafe_stands_only_where_it_is_allowed() -> Result<()> {
    let mut offences = Vec::new();
    for source in sources()? {
        let allowed = UNSAFE_ALLOWED
            .iter()
            .any(|place| source.path.starts_with(place));
        if allowed || source.path == "tests/tests/repository/style.rs" {
            continue;
        }
        for (at, line) in source.code().filter(|(_, line)| has_word(line, "unsafe")) {
            offences.push(format!("{}:{at}: {}", source.path, line.trim()));
        }
    }
    none(&offences, "unsafe outside the files that may hold it");
    Ok(())
}

#[test]
fn lints_are_excepted_with_a_reason_and_never_silently() -> Result<()> {
    let mut offences = Vec::new();
    for source in sources()? {
        let text = source.text.replace(char::is_whitespace, "");
        if text.contains(concat!("#[", "allow(")) || text.contains(concat!("#![", "allow(")) {
            offences.push(format!("{}: allow", source.path));
        }
        let exceptions = text.split(concat!("[", "expect(")).skip(1);
        for exception in exceptions.filter(|after| {
            !after
                .split(")]")
                .next()
                .unwrap_or_default()
                .contains("reason=")
        }) {
            offences.push(format!(
                "{}: {}",
                source.path,
                exception.chars().take(60).collect::<String>()
            ));
        }
    }
    none(
        &offences,
        "an exception from a lint is an #[expect(.., reason = \"..\")]",
    );
    Ok(())
}

#[test]
fn nothing_is_left_for_later() -> Result<()> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("HA", "CK"),
        concat!("unimple", "mented"),
    ];
    let mut offences = Vec::new();
    for source in sources()? {
        for (at, line) in source.text.lines().enumerate() {
            if words.iter().any(|word| has_word(line, word))
                || line.contains(concat!("#[", "ignore"))
            {
                offences.push(format!("{}:{}: {}", source.path, at + 1, line.trim()));
            }
        }
    }
    none(&offences, "unfinished work or a skipped test");
    Ok(())
}

#[test]
fn a_file_stays_short_enough_to_read() -> Result<()> {
    let long: Vec<String> = sources()?
        .into_iter()
        .map(|source| (source.code().count(), source.path))
        .filter(|(lines, _)| *lines > CODE_LINES_MAX)
        .map(|(lines, path)| format!("{path}: {lines} lines of code"))
        .collect();
    none(&long, "a noun a file");
    Ok(())
}

#[test]
fn modules_of_the_engine_look_only_downwards() -> Result<()> {
    let mut offences = Vec::new();
    for source in sources()? {
        for (module, forbidden) in MODULES_APART
            .iter()
            .filter(|(module, _)| source.path.starts_with(module))
        {
            for (at, line) in source.code() {
                let named = |other: &&&str| {
                    line.contains(&format!("crate::{other}")) || grouped(line, other)
                };
                if let Some(other) = forbidden.iter().find(named) {
                    offences.push(format!("{}:{at}: {module} names {other}", source.path));
                }
            }
        }
    }
    none(
        &offences,
        "a module names one that stands above or beside it",
    );
    Ok(())
}

#[test]
fn files_form_no_circle() -> Result<()> {
    let sources = sources()?;
    let mut crates: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for source in &sources {
        let Some((package, below)) = source.path.split_once("/src/") else {
            continue;
        };
        // A folder of `bin` is a crate of its own.
        let program = below.strip_prefix("bin/").and_then(|it| it.split_once('/'));
        let (folder, file) = match program {
            Some((_, file)) => source.path.split_at(source.path.len() - file.len()),
            None => source.path.split_at(package.len() + "/src/".len()),
        };
        let is_test = file
            .split('/')
            .any(|part| ["tests", "tests.rs"].contains(&part));
        if !is_test {
            let files = crates.entry(folder.trim_end_matches('/')).or_default();
            files.insert(file, &source.text);
        }
    }
    let found: Vec<String> = crates
        .iter()
        .flat_map(|(folder, files)| {
            let files = files.iter().map(|(path, text)| (*path, *text));
            let found = circles(files).into_iter();
            found.map(move |circle| format!("{folder}: {}", circle.join(", ")))
        })
        .collect();
    none(&found, "files import each other in a circle");
    Ok(())
}

/// True for `use crate::{…, other::…}`.
fn grouped(line: &str, other: &str) -> bool {
    line.trim_start().starts_with("use crate::{") && has_word(line, other)
}
