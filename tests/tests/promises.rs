//! `engine/TESTING.md` is a table of promises and cases: each has its row, and every test that a row names exists.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::machine::root;

const PROMISES: usize = 13;

/// The cases that must have a row, by section.
const CASES: [(&str, &[&str]); 12] = [
    (
        "Crash",
        &[
            "in mid-payload",
            "published, not answered",
            "at a block switch",
            "between the index logs",
            "in recovery, again and again",
            "in a start, or in a stop, at any operation",
            "while a segment is created",
            "while a segment becomes columns",
            "stale staging",
        ],
    ),
    (
        "Disk",
        &[
            "full at the start",
            "full in mid-flush",
            "EIO on write",
            "EIO on fsync",
            "short write",
            "EMFILE",
            "EDQUOT",
            "EFBIG",
            "remounted read-only",
            "a segment deleted underneath",
            "the directory moved, removed or replaced",
            "an fsync of five seconds",
        ],
    ),
    (
        "Corruption",
        &[
            "a flipped byte",
            "truncation",
            "a damaged `staging`, a damaged or lost `catalog` or `loom.json`",
            "a catalog that lost lines, or all of it, and its copy too",
            "`durable` lost or of no use",
            "damaged index logs at a start",
            "a tail of zeroes",
            "swapped pages",
            "a segment of another directory",
            "lengths of 0 and 2^64-1",
            "chain links astray",
            "bins that do not ascend or are no numbers",
            "another version",
            "no file in a segment's place",
            "very many tiny segments",
        ],
    ),
    (
        "Concurrency",
        &[
            "a reader stopped over several recycles",
            "staging cut short under a reader",
            "two writers",
            "restart under an open reader",
            "retention under a long scan",
            "a cut of several directories",
            "snapshots around a block switch",
            "fork after open",
        ],
    ),
    (
        "Time",
        &[
            "the wall clock a day back",
            "the wall clock a century ahead",
            "another time since boot",
            "equal times",
            "own times of 0, negative, far ahead",
        ],
    ),
    (
        "Network and input",
        &[
            "half frames",
            "a configuration that the next start would refuse",
            "slow clients",
            "very many connections",
            "a wrong user",
            "strange names",
            "a record longer than a chunk",
            "very many sources",
            "malformed rows and packets",
            "bytes that unpack to far more than they weigh",
        ],
    ),
    (
        "Help",
        &[
            "a word to complete",
            "a page of the manual",
            "a key of the configuration",
            "a link of a page",
        ],
    ),
    (
        "Overload",
        &[
            "producers faster than the disk",
            "a flusher slower than ingest for a minute",
        ],
    ),
    (
        "Rules",
        &[
            "a condition over a window",
            "a restart, or a kill",
            "a source or an index that is missing or closed",
            "actions that fail, hang, fork or write without end",
            "pins",
            "a pin that ends the daemon each time",
            "retention or damage under a pin",
            "a pin after a step of the clock",
            "who may read a pin",
            "rules over the socket",
        ],
    ),
    (
        "Metrics",
        &[
            "a scrape",
            "the configuration",
            "labels",
            "the same target in Prometheus",
            "targets that answer nothing, half a line, without end, or something else",
            "series that are always new",
            "logs and spans over OTLP",
            "data points over OTLP",
            "`[otlp]`",
            "requests that are cut, nested deep, packed bombs, too long, of another format or path",
            "records and points out of bounds, series that are always new",
            "points out of order, sent again, after a restart",
            "a log that takes nothing, a thousand connections",
            "clocks of targets",
        ],
    ),
    (
        "SQL",
        &[
            "`loom_heat`",
            "`loom_rate`",
            "`filter` of a question",
            "`loom_top`",
            "`loom_estimate`",
            "`points`, `partial`, `WHERE bucket`",
            "`dir`",
            "`COPY … TO`",
            "the views of sources and indexes",
        ],
    ),
    (
        "Archive",
        &[
            "killed at any step",
            "read while both are written",
            "every type and name",
            "retention is faster",
            "damage, and reads that fail",
            "what stands for the records",
            "long names",
            "a full disk",
            "another directory's, or not whole",
        ],
    ),
];

/// The rows of the first table of a section, without the lines that head it.
fn rows<'a>(page: &'a str, section: &str) -> Result<Vec<Vec<&'a str>>> {
    let (_, after) = page
        .split_once(&format!("\n## {section}\n"))
        .with_context(|| format!("no section '{section}'"))?;
    let body = after.split("\n## ").next().unwrap_or_default();
    let lines = body
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    Ok(lines
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect())
}

/// What stands in backquotes in a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The text of a file, or of all files of a folder.
fn text(path: &Path) -> std::io::Result<String> {
    if !path.is_dir() {
        return std::fs::read_to_string(path);
    }
    std::fs::read_dir(path)?
        .map(|entry| std::fs::read_to_string(entry?.path()))
        .collect()
}

/// The files of the first table: their names, and what they hold.
fn files(page: &str) -> Result<BTreeMap<&str, String>> {
    let mut files = BTreeMap::new();
    for row in rows(page, "Files")? {
        let [name, path, _] = row.as_slice() else {
            anyhow::bail!("not three cells: {row:?}");
        };
        let [name, path] = [name, path].map(|cell| cell.trim_matches('`'));
        let text = text(&root().join(path)).with_context(|| path.to_owned())?;
        ensure!(
            files.insert(name, text).is_none(),
            "'{name}' is there twice"
        );
    }
    Ok(files)
}

/// True where the file holds a test of this name, or a line of a macro that makes one.
fn holds(text: &str, test: &str) -> bool {
    text.contains(&format!("fn {test}(")) || text.contains(&format!("    {test}: "))
}

/// What is wrong with a row that is to say which tests show something.
fn faults(row: &[&str], files: &BTreeMap<&str, String>) -> Vec<String> {
    let [case, owed, tests] = row else {
        return vec![format!("not three cells: {row:?}")];
    };
    let named = quoted(tests);
    let mut faults = Vec::new();
    if named.is_empty() || owed.is_empty() {
        faults.push(format!("{case}: a row that shows nothing"));
    }
    for name in named {
        let (file, test) = name.split_once("::").unwrap_or((name, ""));
        match files.get(file) {
            None => faults.push(format!("{case}: '{file}' is not among the files")),
            Some(_) if test.is_empty() => {}
            Some(text) if holds(text, test) => {}
            Some(_) => faults.push(format!("{case}: {file} has no test '{test}'")),
        }
    }
    faults
}

#[test]
fn every_promise_and_case_has_a_row_and_every_test_named_exists() -> Result<()> {
    let page = std::fs::read_to_string(root().join("engine/TESTING.md"))?;
    let files = files(&page)?;
    let promises: Vec<String> = (1..=PROMISES).map(|number| format!("G{number}")).collect();
    let wanted = promises.iter().map(String::as_str).collect::<Vec<_>>();
    let mut faulty = Vec::new();
    for (section, wanted) in [("Promises", wanted.as_slice())].into_iter().chain(CASES) {
        let rows = rows(&page, section)?;
        let found: Vec<&str> = rows.iter().filter_map(|row| row.first().copied()).collect();
        if found != wanted {
            faulty.push(format!("{section}: the rows are {found:?}, not {wanted:?}"));
        }
        faulty.extend(rows.iter().flat_map(|row| faults(row, &files)));
    }
    ensure!(
        faulty.is_empty(),
        "engine/TESTING.md:\n{}",
        faulty.join("\n")
    );
    // A file of which no test is named is named whole, in its own row and another.
    let is_used = |name: &&&str| {
        let whole = page.matches(&format!("`{name}`")).count() > 1;
        whole || page.contains(&format!("`{name}::")) || **name == "soak"
    };
    let unused: Vec<_> = files.keys().filter(|name| !is_used(name)).collect();
    ensure!(unused.is_empty(), "files that no row names: {unused:?}");
    Ok(())
}
