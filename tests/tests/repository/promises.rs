//! The tests that show each promise: a comment above a test names its promises, and `engine/TESTING.md` is printed from these tags.
//!
//! A tag is a line `// G1, G9` or `// case Disk: short write` directly above a test (`#` in Python and SQL tests). The test fails for a
//! promise or a case without a test, for a tag that names neither, and for a tag that is not above a test. With `LOOM_BLESS` set the page
//! is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::command::table;
use loom_tests::machine::root;

/// Each promise, from G1 on.
const PROMISES: [&str; 13] = [
    "a record whose `sync` returned survives the daemon's death at any instant",
    "a crash of the host loses a suffix of the record log, never a hole: at most `durability` and the flush in progress",
    "with `durability = \"batch\"` an acknowledged record survives a crash of the host too",
    "SIGTERM under load loses nothing",
    "a snapshot is exact: every record below its position, none torn, doubled or missing",
    "readers never block, slow or corrupt the writer",
    "damage is detected, reported and confined to its unit, in staging and the tail to its chunk",
    "no file and no bytes from the network cause a panic, unbounded memory or a hang, in the daemon or in DuckDB",
    "every loss is counted and can be queried; received = stored + refused + dropped, also after a kill; after a crash of the host, an unknown number is NULL",
    "a failed fsync never yields a durable acknowledgement",
    "the index logs can be rebuilt from the record log; indexed, unindexed and naive answers agree",
    "arrival time never decreases across restarts, reboots and changes of the clock",
    "memory and disk stay within the configured limits",
];

/// The section of each case, the case, and its required outcome.
const CASES: &str = r"
Crash | in mid-payload | invisible, no hole
Crash | published, not answered | readable
Crash | at a block switch | nothing lost or torn
Crash | between the index logs | the timestamp index is rebuilt
Crash | in recovery, again and again | the same records each time
Crash | in a start, or in a stop, at any operation | no loss
Crash | while a segment is created | no hole, no harm
Crash | stale staging | never used
Disk | full at the start | refused
Disk | full in mid-flush | the policy applies until there is room
Disk | EIO on write | continues in another segment
Disk | EIO on fsync | written again as a new generation
Disk | short write | completed
Disk | EMFILE | connections wait
Disk | EDQUOT | treated as a full disk
Disk | EFBIG | treated as a full disk
Disk | remounted read-only | queries continue, syncs fail
Disk | a segment deleted underneath | reported
Disk | the directory moved, removed or replaced | reported until a restart
Disk | an fsync of five seconds | producers wait, then the policy applies
Corruption | a flipped byte | reported, confined to its unit, or to its chunk in the tail
Corruption | truncation | reported
Corruption | a damaged staging, a damaged or lost catalog or loom.json | the copy is used, a start repairs
Corruption | a catalog that lost lines, or all of it, and its copy too | a start is refused
Corruption | durable lost or of no use | reported by `check`
Corruption | damaged index logs at a start | rebuilt as needed
Corruption | a tail of zeroes | reported
Corruption | swapped pages | reported
Corruption | a segment of another directory | never verifies
Corruption | lengths of 0 and 2^64-1 | an error, or no harm
Corruption | chain links astray | an error, or no harm
Corruption | bins that do not ascend or are not numbers | refused, in the catalog too
Corruption | another version | refused by name
Corruption | no file in a segment's place | an error, no wait
Corruption | very many tiny segments | read in bounded memory
Concurrency | a reader stopped over several recycles | exact
Concurrency | staging cut short under a reader | an error, no signal
Concurrency | two writers | the second is refused
Concurrency | restart under an open reader | it attaches again
Concurrency | retention under a long scan | an error, no disk pinned
Concurrency | a cut of several directories | no effect without its cause
Concurrency | snapshots around a block switch | exact
Concurrency | fork after open | both read on
Time | the wall clock a day back | absorbed; more needs `--accept-clock`
Time | the wall clock a century ahead | followed
Time | another time since boot | no effect
Time | equal times | all present, in log order
Time | own times of 0, negative, far ahead | kept; retention by arrival
Network and input | half frames | earlier complete ones are kept
Network and input | a configuration that the next start would refuse | SIGHUP refuses all of it
Network and input | slow clients | do not stall others
Network and input | very many connections | further ones get an error with the limit
Network and input | a wrong user | refused
Network and input | strange names | refused, never a path
Network and input | a record longer than a chunk | refused with the limit
Network and input | very many sources | capped
Network and input | a catalog that is rewritten | the old or the new one, complete
Network and input | malformed rows and packets | reported, the rest is kept
Network and input | bytes that unpack to far more than they weigh | refused, the rest is kept
Recording | events of the kernel | recorded or counted as lost
Recording | filters in the kernel | across fork and exec
Recording | losses in the kernel | counted in their own stage
Recording | something that is missing | one message, and no directory is created
Recording | a program or a daemon that ends | earlier records are kept
Recording | a service, watched as README.md says | rows for each query
Recording | objects and sources | the same bytes
Recording | over its budget | the shortest events are left out, and each is counted
Help | a word to complete | in bash, zsh and fish
Help | a page of the manual | for each command and key
Help | a key of the configuration | equal to the code
Help | a link of a page | has a target
Overload | producers faster than the disk | wait, or count drops
Overload | a flusher slower than ingest for a minute | the policy and the sum of records hold
Rules | a condition over a window | exact by arrival
Rules | a restart, or a kill | continues, no alert twice
Rules | a source or an index that is missing or closed | one alert
Rules | actions that fail, hang, fork or write without end | ended and recorded
Rules | pins | complete or absent, within the budget
Rules | a pin that ends the daemon each time | abandoned, with an alert
Rules | retention or damage under a pin | waits, with a limit
Rules | a pin after a step of the clock | has the right span
Rules | who may read a pin | readers of the directory
Rules | a pin by hand | whole or refused, within the budget, for the daemon's user and root alone
Rules | rules over the socket | kept, without actions
Metrics | a scrape | one record for each group, with one time
Metrics | the configuration | mistakes are reported; TLS, tokens
Metrics | labels | select exactly
Metrics | the same target in Prometheus | the same samples, rates
Metrics | targets that answer nothing, half a line, without end, or something else | a failed scrape, with the reason
Metrics | series that are always new | limited, counted, reported
Metrics | logs and spans over OTLP | a row each, with all attributes
Metrics | data points over OTLP | named as in Prometheus
Metrics | [otlp] | mistakes are reported; TLS, a token
Metrics | requests that are cut, nested deep, packed bombs, too long, of another format or path | an error, counted
Metrics | records and points out of bounds, series that are always new | refused without the others
Metrics | points out of order, sent again, after a restart | stored once
Metrics | a log that takes nothing, a thousand connections | senders retry
Metrics | clocks of targets | kept within limits
SQL | loom_heat | exact counts, stable edges
SQL | loom_rate | exact counts
SQL | loom_why | exact counts, in bounded memory
SQL | filter of a question | exactly the matching records
SQL | loom_top | exact, from few chunks
SQL | loom_estimate | at least the amount that is read
SQL | points, partial, WHERE bucket | whole round buckets
SQL | dir | other directories are not read
SQL | COPY … TO | in order, refusals counted
SQL | the views of sources and indexes | are consistent, read little
Archive | killed at any step | nothing lost or twice
Archive | read while both are written | each record once
Archive | every type and name | returns unchanged
Archive | retention is faster | a gap, or retention waits if required
Archive | damage, and reads that fail | a gap with a reason
Archive | what stands for the records | read back, with checksums
Archive | long names | a folder that fits
Archive | a full disk | the next run continues
Archive | another directory's, or not whole | refused
";

const HEAD: &str = "# Promises and their tests

Printed from the tags above the tests by `LOOM_BLESS=1 cargo test --release --locked --workspace --test repository promises`; do not edit it. To find the tests of a
line, search for its tag: `git grep -n '// G4'`, `git grep -n 'case Disk: short write'`. [CONTRIBUTING.md](CONTRIBUTING.md) says how to run them.
";

/// Folders with tests. Folders that are not the project's are skipped.
const FOLDERS: [&str; 5] = ["engine", "ingestd", "duckdb-ext", "tests", "sql"];
const SKIPPED: [&str; 4] = ["target", "corpus", "node_modules", "__pycache__"];

/// The files that hold the tests of a tag.
type Shown = BTreeMap<String, BTreeSet<String>>;

/// Reads the tags of all files below a folder.
fn collect(folder: &Path, shown: &mut Shown, faults: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() {
            if !SKIPPED.contains(&&*name) && !name.starts_with('.') {
                collect(&path, shown, faults)?;
            }
        } else if ["rs", "py", "test"]
            .iter()
            .any(|end| name.ends_with(&format!(".{end}")))
        {
            let text = std::fs::read_to_string(&path).with_context(|| name.to_string())?;
            let path = path.strip_prefix(root())?.display().to_string();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let tags = tags(line);
                let test = lines
                    .iter()
                    .skip(at)
                    .find(|line| self::tags(line).is_empty());
                if !tags.is_empty()
                    && !path.ends_with(".test")
                    && !test.is_some_and(|it| begins_test(it))
                {
                    faults.push(format!("{path}:{}: no test stands below '{line}'", at + 1));
                }
                for tag in tags {
                    shown.entry(tag).or_default().insert(path.clone());
                }
            }
        }
    }
    Ok(())
}

/// The promises, or the case, in a line.
fn tags(line: &str) -> Vec<String> {
    let Some(said) = line.strip_prefix("// ").or_else(|| line.strip_prefix("# ")) else {
        return Vec::new();
    };
    if let Some(case) = said.strip_prefix("case ") {
        return vec![case.to_owned()];
    }
    let is_promise = |word: &&str| {
        let number = word.strip_prefix('G').unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let words: Vec<&str> = said.split(", ").collect();
    if !words.iter().all(is_promise) {
        return Vec::new();
    }
    words.into_iter().map(str::to_owned).collect()
}

/// True for an attribute, a function of Python, or a macro's line that begins a test.
fn begins_test(line: &str) -> bool {
    let is_made = || {
        line.split_once(": ")
            .is_some_and(|(name, _)| !name.contains(' '))
            && line.ends_with(';')
    };
    line == "#[test]" || line.starts_with("def ") || is_made()
}

/// The end of a file's path that no other file with tests has.
fn short<'a>(path: &'a str, all: &BTreeSet<&str>) -> &'a str {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    let starts = stem.rmatch_indices('/').map(|(at, _)| at + 1);
    let suffixes = starts.filter_map(|at| stem.get(at..).zip(path.get(at - 1..)));
    let mut unique =
        suffixes.filter(|(_, end)| all.iter().filter(|other| other.ends_with(end)).count() == 1);
    unique.next().map_or(stem, |(short, _)| short)
}

/// Each promise and case, in order: its section, its tag, its name, and the required outcome.
fn owed() -> Vec<(&'static str, String, String, &'static str)> {
    let promises = PROMISES.iter().zip(1..).map(|(owed, number)| {
        let name = format!("G{number}");
        ("Promises", name.clone(), name, *owed)
    });
    let cases = table::<3>(CASES).into_iter().map(|[section, case, owed]| {
        let tag = format!("{section}: {case}");
        (section, tag, case.to_owned(), owed)
    });
    promises.chain(cases).collect()
}

fn page(shown: &Shown) -> String {
    let all: BTreeSet<&str> = shown.values().flatten().map(String::as_str).collect();
    let mut page = HEAD.to_owned();
    let mut last = "";
    for (section, tag, name, owed) in owed() {
        if section != last {
            let _ = write!(
                page,
                "\n## {section}\n\n| | outcome | tests |\n|---|---|---|\n"
            );
            last = section;
        }
        let files = shown.get(&tag).into_iter().flatten();
        let files: Vec<&str> = files.map(|path| short(path, &all)).collect();
        let _ = writeln!(page, "| {name} | {owed} | {} |", files.join(", "));
    }
    page
}

#[test]
fn every_promise_and_case_has_a_test_and_every_tag_names_one() -> Result<()> {
    let (mut shown, mut faults) = (Shown::new(), Vec::new());
    for folder in FOLDERS {
        collect(&root().join(folder), &mut shown, &mut faults)?;
    }
    let known: BTreeSet<String> = owed().into_iter().map(|(_, tag, ..)| tag).collect();
    let found: BTreeSet<String> = shown.keys().cloned().collect();
    faults.extend(
        known
            .difference(&found)
            .map(|tag| format!("no test shows '{tag}'")),
    );
    faults.extend(found.difference(&known).map(|tag| {
        let files = shown.get(tag).into_iter().flatten();
        format!("'{tag}' is no promise and no case: {files:?}")
    }));
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    let path = root().join("engine/TESTING.md");
    let page = page(&shown);
    if std::env::var_os("LOOM_BLESS").is_some() {
        std::fs::write(&path, &page)?;
    }
    ensure!(
        std::fs::read_to_string(&path)? == page,
        "{} differs from the tags; set LOOM_BLESS=1 to write it",
        path.display()
    );
    Ok(())
}

#[test]
fn a_tag_is_the_whole_line_and_stands_above_a_test() {
    assert_eq!(tags("// G1, G13"), ["G1", "G13"]);
    assert_eq!(tags("# case Disk: full, or not"), ["Disk: full, or not"]);
    assert!(tags("// G1 says that").is_empty() && tags("// Gaps").is_empty());
    assert!(
        begins_test("#[test]") && begins_test("def main():") && begins_test("name: One in Two;")
    );
    assert!(!begins_test("let name = 1;"));
}
