//! The worked examples in `sql/`, over the demonstration's data, in both DuckDB versions, find the hidden cases.

use std::path::Path;

use anyhow::{Context, Result};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Database, Row, Session, Version};
use loom_tests::machine;
use serde::Deserialize;

/// One hidden case, as the demonstration writes it down.
#[derive(Deserialize)]
struct Needle {
    packet: u64,
    syscall: u64,
    request: u64,
}

#[test]
fn the_scripts_find_what_the_demonstration_hid() -> Result<()> {
    let place = tempfile::tempdir()?;
    let truth = place.path().join("truth");
    ingestd([
        "demo".as_ref(),
        place.path().join("demo.loom").as_os_str(),
        "--seconds".as_ref(),
        "8".as_ref(),
        "--rate".as_ref(),
        "100000".as_ref(),
        "--truth".as_ref(),
        truth.as_os_str(),
    ])?;
    let needles: Vec<Needle> = std::fs::read_to_string(truth)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    assert_eq!(needles.len(), 6);
    let expected: Vec<Vec<u64>> = needles
        .iter()
        .map(|needle| vec![needle.request, needle.syscall, needle.packet])
        .collect();
    for version in Version::ALL {
        let rows = run("drilldown.sql", version, place.path())?;
        let found: Vec<_> = rows.iter().map(numbers).collect::<Result<_>>()?;
        assert_eq!(found, expected, "{}", version.name());
        let rows = run("one_statement.sql", version, place.path())?;
        let [source, _, read] = rows[0].as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!(source.as_deref(), Some("syscall"));
        // On a busy machine some chunks may hold only other sources.
        let holding = "SELECT count(*)::VARCHAR FROM loom_chunks('demo.loom', source := 'syscall')";
        let holding = Session::open_in(version, place.path(), Database::Memory)?.value(holding)?;
        assert_eq!(
            read.as_deref(),
            Some(&*holding),
            "one statement reads it all"
        );
    }
    Ok(())
}

/// The rows of a script's last statement.
fn run(script: &str, version: Version, folder: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(machine::root().join("sql").join(script))?;
    let mut session = Session::open_in(version, folder, Database::Memory)?;
    session
        .script(&text)
        .with_context(|| format!("{script} in {}", version.name()))
}

fn numbers(row: &Row) -> Result<Vec<u64>> {
    row.iter()
        .map(|value| Ok(value.as_deref().context("NULL")?.parse()?))
        .collect()
}
