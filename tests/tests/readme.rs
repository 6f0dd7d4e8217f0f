//! The sessions of README.md and of the daemon's pages run as written, in a folder that has the paths that they name. Every path in the
//! documents for developers exists.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use loom_tests::command::says;
use loom_tests::machine;
use tempfile::TempDir;

/// The documents whose paths are checked.
const DOCUMENTS: [&str; 2] = ["engine/CONTRIBUTING.md", "engine/ARCHITECTURE.md"];
/// Top-level folders that a build creates and that a clone does not have.
const BUILT: [&str; 4] = ["dist", "target", ".venv", ".bench-venv"];

/// A folder that looks like a clone after `make build`.
fn clone() -> Result<TempDir> {
    let place = tempfile::tempdir()?;
    std::fs::create_dir_all(place.path().join("target/release"))?;
    symlink(
        machine::ingestd()?,
        place.path().join("target/release/ingestd"),
    )?;
    for folder in ["dist", "ingestd"] {
        symlink(machine::root().join(folder), place.path().join(folder))?;
    }
    Ok(place)
}

#[test]
fn the_session_of_the_readme_runs() -> Result<()> {
    let readme = std::fs::read_to_string(machine::root().join("README.md"))?;
    let place = clone()?;
    let session = fenced(&readme, "sh")
        .next()
        .context("README.md has no session")?;
    ensure!(
        session.starts_with("make build"),
        "the session begins with a build"
    );
    // The programs are already built, so the first step is skipped.
    let steps = session.split_once('\n').map_or("", |(_, rest)| rest);
    let said = run_session(place.path(), steps)?;
    for part in ["redis_request", "p99_99", "latency_ns"] {
        says(&said, part);
    }
    ensure!(!said.contains("Error"), "the session failed:\n{said}");
    same_answers_later(place.path(), session)?;

    let python = fenced(&readme, "python")
        .next()
        .context("README.md has no Python")?;
    let script = format!("{python}\nassert slow and all(ns > 350_000 for _, ns in slow)");
    run(place.path(), "python", &["-c", &script]).map(drop)
}

/// Runs the session's queries again on a demo that goes on, and on the directory that it leaves. Their answers differ only by chance.
fn same_answers_later(folder: &Path, session: &str) -> Result<()> {
    let queries = session
        .split_once("<<'SQL'\n")
        .and_then(|(_, rest)| rest.split_once("\nSQL"))
        .context("the session has no SQL")?
        .0;
    let demo = "target/release/ingestd demo demo.loom --seconds 60 &\nsleep 5";
    let ask = format!("duckdb -unsigned -noheader -csv <<'SQL'\n{queries}\nSQL");
    std::fs::remove_dir_all(folder.join("demo.loom"))?;
    let early = run_session(folder, &format!("{demo}\n{ask}"))?;
    let late = run(folder, "bash", &["-euc", &ask])?;
    // A line with a comma and no number is an index. Three numbers are the count, the maximum and the quantile.
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let parsed: Result<Vec<f64>, _> = line.split(',').map(str::parse).collect();
        parsed.ok().filter(|numbers| numbers.len() == 3)
    };
    let indexes = |said: &str| -> Vec<String> {
        let lines = said.lines().filter(|line| line.contains(",latency,"));
        lines.map(str::to_owned).collect()
    };
    ensure!(
        !indexes(&early).is_empty() && indexes(&early) == indexes(&late),
        "early:\n{early}\nlate:\n{late}"
    );
    let statistics = |said: &str| said.lines().find_map(numbers).context("no statistics");
    for (before, after) in statistics(&early)?.into_iter().zip(statistics(&late)?) {
        ensure!(
            (0.5..2.0).contains(&(after / before)),
            "early:\n{early}\nlate:\n{late}"
        );
    }
    Ok(())
}

#[test]
fn the_page_on_clients_records_from_python_and_finds_the_record() -> Result<()> {
    let page = std::fs::read_to_string(machine::root().join("ingestd/docs/clients.md"))?;
    let place = clone()?;
    let session = fenced(&page, "sh")
        .find(|block| block.contains("loom_client"))
        .context("the page has no session that records")?;
    let said = run_session(place.path(), session)?;
    for part in ["'stored': 2", "/pay", "9400"] {
        says(&said, part);
    }
    ensure!(!said.contains("/cart"), "180 is below 1000:\n{said}");
    Ok(())
}

// case Recording: a service, watched as README.md says
#[test]
fn the_readme_watches_a_service_under_load() -> Result<()> {
    let name = "the_readme_watches_a_service_under_load";
    let redis = ["redis-server", "redis-benchmark", "redis-cli"];
    if !machine::has(name, &redis)? || !machine::has(name, &["tcpdump", "ip", "unshare"])? {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return machine::skip(name, "recording needs root");
    }
    let readme = std::fs::read_to_string(machine::root().join("README.md"))?;
    let place = clone()?;
    let is_about_it = |block: &&str| block.contains("live.loom");
    let record = fenced(&readme, "console")
        .find(is_about_it)
        .context("README.md records no service")?;
    let queries = fenced(&readme, "sql")
        .find(is_about_it)
        .context("README.md does not ask about a service")?;
    std::fs::write(place.path().join("queries.sql"), queries)?;
    // It runs in a network of its own, where the port is free. Each query prints a line that begins with `rows`, followed by its rows.
    let steps = format!(
        r#"ip link set lo up
trap 'kill $(jobs -p); wait' EXIT
redis-server --port 6379 --bind 127.0.0.1 --save '' --enable-debug-command yes >/dev/null &
until redis-cli ping >/dev/null; do kill -0 $!; sleep 0.1; done
redis-benchmark -t get -l -q >/dev/null &
{} >recorded &
recording=$!
ask() {{ duckdb -unsigned -noheader -csv -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'" "$@"; }}
until [ "$(ask -c "SELECT count(*) = 2 AND min(records) > 10000 FROM loom_sources('live.loom') WHERE name IN ('syscall', 'packet')" 2>/dev/null)" = true ]; do kill -0 $recording; sleep 0.2; done
redis-cli config set appendfsync always
redis-cli config set appendonly yes
until [ "$(ask -c "SELECT count(*) > 0 FROM loom_scan('live.loom', 'syscall', last := INTERVAL 10 SECOND) WHERE number = 'fdatasync'")" = true ]; do kill -0 $recording; redis-cli set a b; sleep 0.2; done
redis-cli debug sleep 0.5
until [ "$(ask -c "SELECT count(*) > 0 FROM loom_scan('live.loom', 'syscall', last := INTERVAL 10 SECOND) WHERE number = 'clock_nanosleep'")" = true ]; do kill -0 $recording; sleep 0.2; done
while IFS= read -r -d ';' query; do echo rows; ask -c "$query"; done <queries.sql
kill -INT $recording
wait $recording
cat recorded
"#,
        record.trim_end()
    );
    let said = run(place.path(), "unshare", &["--net", "bash", "-euc", &steps])?;
    let answers: Vec<&str> = said.split("rows\n").skip(1).collect();
    ensure!(answers.len() == 4, "four queries:\n{said}");
    for answer in &answers {
        let first = answer.lines().next().unwrap_or_default();
        ensure!(first.contains(','), "a query has no row:\n{said}");
    }
    // The server wrote to its disk, and it slept in a command while clients waited. Its sleep is the only long one, and no idle thread hides its work.
    let [work, slowest, _, slept] = answers.as_slice() else {
        bail!("four queries:\n{said}");
    };
    ensure!(work.contains("fdatasync"), "{said}");
    for wait in ["futex", "epoll_wait", "clock_nanosleep"] {
        ensure!(!work.contains(wait) && !slowest.contains(wait), "{said}");
    }
    let slept = slept.split([',', '\n']).nth(1).unwrap_or_default();
    ensure!(slept.parse::<u64>()? >= 500_000_000, "{said}");
    ensure!(said.contains("source=syscall received="), "{said}");
    Ok(())
}

#[test]
fn duckdb_feeds_a_load_as_the_page_says() -> Result<()> {
    let page = std::fs::read_to_string(machine::root().join("ingestd/docs/load.md"))?;
    let place = clone()?;
    let pipe = fenced(&page, "sh")
        .find(|block| block.starts_with("duckdb -c \"COPY"))
        .context("the page has no pipe from DuckDB")?;
    std::fs::write(place.path().join("a.csv"), "# comment\nn,s\n1,n/a\n2,x\n")?;
    let steps = format!("export PATH=$PWD/target/release:$PATH\n{pipe}");
    let said = run(place.path(), "bash", &["-euo", "pipefail", "-c", &steps])?;
    says(&said, "received=2 stored=2 refused=0 dropped=0");
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

/// The blocks of a language, in order.
fn fenced<'a>(text: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

/// Runs the steps of a session, and stops the daemon that a reader would leave running.
fn run_session(folder: &Path, steps: &str) -> Result<String> {
    let steps = format!("{steps}\nkill %1\nwait");
    run(folder, "bash", &["-euc", &steps])
}

/// Runs a program with the tests' environment first in the path, and returns its output.
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
