//! The pages of the repository: every link has a target, and the tables of keys agree with the code.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ingestd::config::{KeyDefault, key_tables};
use loom_tests::machine::root;

/// The beginnings of the names of packages, up to the version.
const PACKAGES: [&str; 3] = ["loom_duckdb-", "loom_", "loom-"];
/// The version of every crate of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The pages with tables of keys, and the configuration table of the keys that do not name one.
const KEYS: [(&str, &str); 4] = [
    ("ingestd/docs/operations.md", ""),
    ("ingestd/docs/rules.md", "[[rule]]"),
    ("ingestd/docs/metrics.md", "[[scrape]]"),
    ("ingestd/docs/otlp.md", "[otlp]"),
];

// case Help: a link of a page
#[test]
fn no_link_and_no_anchor_of_a_page_is_dead() -> Result<()> {
    let pages = pages()?;
    ensure!(pages.iter().any(|page| page == "README.md"), "{pages:?}");
    let checked = Command::new("python3")
        .arg("ingestd/packaging/pages.py")
        .args(pages)
        .current_dir(root())
        .output()?;
    ensure!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    Ok(())
}

#[test]
fn pages_and_changes_name_this_version() -> Result<()> {
    let changes = std::fs::read_to_string(root().join("engine/CHANGELOG.md"))?;
    let newest = changes.lines().find_map(|line| line.strip_prefix("## "));
    assert_eq!(newest, Some(VERSION));
    let mut named = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(root().join(&page))?;
        for version in PACKAGES
            .into_iter()
            .flat_map(|name| text.split(name).skip(1))
        {
            if version.starts_with(|first: char| first.is_ascii_digit()) {
                ensure!(
                    version.starts_with(VERSION),
                    "{page}: {version:.20} is not {VERSION}"
                );
                named += 1;
            }
        }
    }
    ensure!(named > 0, "no page names a package");
    Ok(())
}

fn pages() -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "*.md"])
        .current_dir(root())
        .output()?;
    Ok(String::from_utf8(listed.stdout)?
        .lines()
        .map(str::to_owned)
        .collect())
}

// case Help: a key of the configuration
#[test]
fn the_tables_of_keys_are_those_of_the_code() -> Result<()> {
    let mut described = BTreeSet::new();
    for (page, table) in KEYS {
        let text = std::fs::read_to_string(root().join(page))?;
        let (_, rows) = text
            .split_once("| key | default | meaning |\n|---|---|---|\n")
            .with_context(|| format!("{page} has no table of keys"))?;
        for row in rows.lines().take_while(|line| line.starts_with('|')) {
            for key in keys(row, table).with_context(|| format!("{page}: {row}"))? {
                ensure!(
                    described.insert(key.clone()),
                    "{page}: {key:?} stands twice"
                );
            }
        }
    }
    let known: BTreeSet<Key> = key_tables()
        .into_iter()
        .flat_map(|table| {
            table.keys.into_iter().map(move |key| {
                let default = match key.default {
                    KeyDefault::Required => "required",
                    KeyDefault::Is(value) => value,
                };
                [table.heading, key.name, default].map(str::to_owned)
            })
        })
        .collect();
    let differ: Vec<_> = described.symmetric_difference(&known).collect();
    ensure!(
        differ.is_empty(),
        "only in the pages or in the code: {differ:#?}"
    );
    Ok(())
}

/// The table, the name and the default of a key.
type Key = [String; 3];

/// The keys of a row such as "| `[log] chunk`, `segment` | `"64KiB"`, `"256MiB"` | sizes |". A row about a whole table has none.
fn keys(row: &str, table: &str) -> Option<Vec<Key>> {
    let mut cells = row.trim_start_matches("| ").split(" | ");
    let (names, defaults) = (cells.next()?, cells.next()?.replace('`', ""));
    let mut table = table;
    let mut found = Vec::new();
    for span in names.split('`').skip(1).step_by(2) {
        let name = match span.rsplit_once("] ") {
            Some((before, name)) => {
                table = span.get(..=before.len())?;
                name
            }
            None if span.starts_with('[') => continue,
            None => span,
        };
        found.push((table, name));
    }
    // One default for each key, or one for all of them.
    let each: Vec<&str> = defaults.split(", ").collect();
    let default = |at: usize| match each.len() == found.len() {
        true => each.get(at).copied(),
        false => Some(defaults.as_str()),
    };
    let keys = found
        .iter()
        .enumerate()
        .map(|(at, (table, name))| Some([*table, *name, default(at)?].map(str::to_owned)));
    keys.collect()
}

#[test]
fn a_row_has_a_default_for_each_key_or_one_for_all() {
    let of = |row: &str| keys(row, "[t]").map(|keys| keys.concat().join(" "));
    let log = "| `[log] chunk`, `segment` | `\"1\"`, `\"2\"` | sizes |";
    assert_eq!(
        of(log).as_deref(),
        Some("[log] chunk \"1\" [log] segment \"2\"")
    );
    assert_eq!(
        of("| `a`, `b` | none | x |").as_deref(),
        Some("[t] a none [t] b none")
    );
    assert_eq!(of("| `[[rule]]` | none | x |").as_deref(), Some(""));
}
