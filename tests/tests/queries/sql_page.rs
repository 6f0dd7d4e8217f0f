//! Every example of `sql/README.md` and of the pages in `sql/docs` runs, in both DuckDB versions, and gives the answer below it. A page needs only
//! the example data of the first. A block that begins with `-- DuckDB 2.0` or `-- before DuckDB 2.0` runs in that version only.
//!
//! With `LOOM_BLESS` set, the answers of 2.0 (of 1.5 for examples that run only there) are written into the pages instead.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::duckdb::{Database, Session, Version};
use loom_tests::machine;
use loom_tests::page::{Example, examples, markdown};
use loom_tests::script::statements;

/// The directory and the files that the section *Example data* writes.
const DATA: [&str; 4] = [
    "shop.loom",
    "request.parquet",
    "syscall.parquet",
    "packet.parquet",
];

#[test]
fn the_examples_of_the_pages_run() -> Result<()> {
    let mut pages = pages()?
        .into_iter()
        .map(Page::read)
        .collect::<Result<Vec<_>>>()?;
    let count: usize = pages.iter().map(|page| page.examples.len()).sum();
    ensure!(count > 80, "the pages have lost their examples");
    for version in Version::ALL {
        let (first, others) = pages.split_first_mut().context("no page")?;
        // Each version makes the data itself, so that it does not see the other's files.
        let place = tempfile::tempdir()?;
        let mut session =
            Session::open_in(version, place.path(), Database::Memory)?.with_macros()?;
        first.run(place.path(), &mut session)?;
        functions_have_the_columns_of_their_page(&mut session)?;
        for page in others {
            let own = tempfile::tempdir()?;
            for name in DATA {
                copy(&place.path().join(name), own.path())?;
            }
            let mut session =
                Session::open_in(version, own.path(), Database::Memory)?.with_macros()?;
            session.query("SET TimeZone = 'UTC'")?;
            page.run(own.path(), &mut session)?;
        }
    }
    if std::env::var_os("LOOM_BLESS").is_some() {
        return pages.iter().try_for_each(Page::bless);
    }
    let wrong: Vec<String> = pages.into_iter().flat_map(|page| page.wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// The pages, the one with the example data first.
fn pages() -> Result<Vec<PathBuf>> {
    let sql = machine::root().join("sql");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sql.join("docs"))? {
        found.push(entry?.path());
    }
    found.sort();
    found.insert(0, sql.join("README.md"));
    Ok(found)
}

fn copy(from: &Path, into: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-r").args([from, into]).status()?;
    ensure!(copied.success(), "cannot copy {from:?}");
    Ok(())
}

struct Page {
    file: PathBuf,
    text: String,
    examples: Vec<Example>,
    /// The first version's answer for each table, by the table's first line.
    answers: BTreeMap<usize, (Range<usize>, Vec<String>)>,
    /// Answers that differ from the page.
    wrong: Vec<String>,
}

impl Page {
    fn read(file: PathBuf) -> Result<Page> {
        let text = std::fs::read_to_string(&file)?;
        Ok(Page {
            examples: examples(&text),
            text,
            file,
            answers: BTreeMap::new(),
            wrong: Vec::new(),
        })
    }

    /// Runs the examples in order in a folder that has the example data, or makes them.
    fn run(&mut self, folder: &Path, session: &mut Session) -> Result<()> {
        let version = session.version();
        for example in &self.examples {
            if !is_for(example, version) {
                continue;
            }
            let place = format!(
                "{}:{} in {}",
                self.file.display(),
                example.line,
                version.name()
            );
            let outcome = match example.language.as_str() {
                "sh" => shell(folder, &example.text).map(|()| Vec::new()),
                "sql" => ask(session, example),
                _ => continue,
            };
            let answer = outcome.with_context(|| place.clone())?;
            let Some(range) = example.table.clone() else {
                continue;
            };
            let lines = self.text.lines().skip(range.start).take(range.len());
            if !lines.eq(answer.iter().map(String::as_str)) {
                self.wrong
                    .push(format!("{place} answers\n{}", answer.join("\n")));
            }
            self.answers.entry(range.start).or_insert((range, answer));
        }
        Ok(())
    }

    /// Writes the answers into the page.
    fn bless(&self) -> Result<()> {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        for (range, answer) in self.answers.values().rev() {
            lines.splice(range.clone(), answer.iter().cloned());
        }
        std::fs::write(&self.file, lines.join("\n") + "\n")?;
        Ok(())
    }
}

/// Compares each function's columns in `sql/functions.md` with those of a call on the example data.
fn functions_have_the_columns_of_their_page(session: &mut Session) -> Result<()> {
    let page = std::fs::read_to_string(machine::root().join("sql/functions.md"))?;
    let mut checked = 0;
    for section in page.split("\n## `").skip(1) {
        let (name, rest) = section
            .split_once('(')
            .context("a heading without a call")?;
        let (parameters, rest) = rest.split_once(")`").context("an open heading")?;
        let listed = rest
            .split_once("\nColumns: ")
            .and_then(|(_, rest)| rest.split_once(".\n"))
            .context("no columns")?
            .0;
        if listed.starts_with("those of") {
            continue;
        }
        let arguments = parameters
            .split(", ")
            .filter_map(|parameter| match parameter {
                "dir" => Some("'shop.loom'"),
                "source" => Some("'request'"),
                "index" => Some("'latency_us'"),
                "metric" => Some("'none'"),
                "n" => Some("3"),
                "t_from" | "t_to" | "v_min" | "v_max" => Some("NULL"),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join(", ");
        let asked = format!("SELECT column_name FROM (DESCRIBE FROM {name}({arguments}))");
        let has = session.cells(&asked)?;
        let mut at = 0;
        for one in listed.split(", ") {
            let Some(column) = one.split('`').nth(1) else {
                continue;
            };
            let may_be_absent = !one.ends_with('`') || one.starts_with("one for each");
            match has.iter().skip(at).position(|name| name == column) {
                Some(found) => at += found + 1,
                None => ensure!(may_be_absent, "{name} has no column {column}: {has:?}"),
            }
        }
        let has_others = listed.contains("the fields");
        let count = listed
            .split(", ")
            .filter(|one| one.ends_with('`') && one.starts_with('`'));
        ensure!(has_others || has.len() >= count.count(), "{name}: {has:?}");
        ensure!(
            has_others
                || has
                    .iter()
                    .all(|column| listed.contains(&format!("`{column}`"))),
            "{name} has columns that its page omits: {has:?}"
        );
        checked += 1;
    }
    ensure!(checked > 15, "the page of functions has lost its sections");
    Ok(())
}

fn is_for(example: &Example, version: Version) -> bool {
    let first = example.text.lines().next().unwrap_or_default();
    match version.is_v2() {
        true => !first.starts_with("-- before DuckDB 2.0"),
        false => !first.starts_with("-- DuckDB 2.0"),
    }
}

/// Runs the statements, and returns the last one's answer in the form of the page.
fn ask(session: &mut Session, example: &Example) -> Result<Vec<String>> {
    let all = statements(&example.text);
    let (last, before) = all.split_last().context("a block without a statement")?;
    for statement in before {
        session.query(statement)?;
    }
    let outcome = session.query(last);
    if let Some(message) = &example.message {
        let error = outcome.err().context("it was to fail")?.to_string();
        ensure!(error.contains(message), "it fails with: {error}");
        return Ok(Vec::new());
    }
    let rows = outcome?;
    if example.table.is_none() {
        return Ok(Vec::new());
    }
    let names = match session.query(&format!("SELECT column_name FROM (DESCRIBE {last})")) {
        Ok(names) => names.into_iter().flatten().flatten().collect(),
        Err(_) => {
            // A statement that is not a query has no description; the page names its columns.
            let width = rows.first().map_or(1, Vec::len);
            vec!["result".to_owned(); width]
        }
    };
    Ok(markdown(&names, &rows))
}

/// Runs a block of shell commands that can find the built programs.
fn shell(folder: &Path, text: &str) -> Result<()> {
    let programs = machine::ingestd()?;
    let mut path = programs
        .parent()
        .context("no folder")?
        .as_os_str()
        .to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-euc", text])
        .env("PATH", path)
        .current_dir(folder)
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}: {told}");
    Ok(())
}

#[test]
fn the_pages_name_every_function_and_parameter() -> Result<()> {
    let mut text = String::new();
    for page in pages()? {
        text += &std::fs::read_to_string(page)?;
    }
    let mut session = Session::open(Version::V2)?;
    let known = session.cells(
        "SELECT DISTINCT function_name, unnest(parameters) FROM duckdb_functions() WHERE function_name LIKE 'loom!_%' ESCAPE '!'
         UNION SELECT name, name FROM duckdb_settings() WHERE name LIKE 'loom!_%' ESCAPE '!'",
    )?;
    ensure!(known.len() > 50, "DuckDB lists too few functions");
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let missing: Vec<String> = known
        .into_iter()
        .filter(|name| !words.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no page of sql/ names {missing:?}");
    Ok(())
}
