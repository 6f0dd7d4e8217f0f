//! The same rows as CSV, JSON lines, Parquet and Arrow IPC, from a file and from standard input. For every format, Loom holds the same rows
//! as DuckDB reads from the file itself.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_tests::command::declared;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;

const ROWS: u32 = 3000;
const TABLE: &str = "CREATE TABLE plain AS SELECT
    i::BIGINT AS number, (i * 37 % 1000 - 500)::BIGINT AS small, (i % 977) / 8 AS ratio, i % 3 = 0 AS flag,
    CASE WHEN i % 10 = 3 THEN NULL ELSE 'name, \"' || i || '\"' END AS word
    FROM range(3000) AS numbers(i)";

/// The fields of the columns, which Parquet and Arrow fill too.
const FIELDS: &str = "number i64, small i64, ratio f64, flag bool, word utf8?";

/// A format of `load`, the suffix of its files, and how DuckDB writes it, if it can.
const FORMATS: [(&str, &str, &str); 4] = [
    ("csv", "csv", "FORMAT csv, HEADER true"),
    ("json", "jsonl", "FORMAT json"),
    ("parquet", "parquet", "FORMAT parquet, ROW_GROUP_SIZE 2048"),
    ("arrow", "arrow", ""),
];

#[test]
fn every_format_gives_the_rows_of_its_file() -> Result<()> {
    let place = tempfile::tempdir()?;
    let mut session = Session::open(Version::V2)?;
    session.query(TABLE)?;
    for (format, ending, copy) in FORMATS {
        let file = place.path().join(format!("rows.{ending}"));
        if copy.is_empty() {
            arrow_file(&place.path().join("rows.parquet"), &file)?;
        } else {
            session
                .query(&format!("COPY plain TO '{}' ({copy})", file.display()))
                .context(format)?;
        }
    }
    for (format, ending, _) in FORMATS {
        let file = place.path().join(format!("rows.{ending}"));
        let named = place.path().join(format!("{format}.loom"));
        load(
            &named,
            &[file
                .as_os_str()
                .to_str()
                .context("a path that is no text")?],
            Stdio::null(),
        )?;
        hold(&mut session, &named).with_context(|| format!("{format} from a file"))?;
        let piped = place.path().join(format!("{format}-piped.loom"));
        load(
            &piped,
            &["--format", format, "-"],
            File::open(&file)?.into(),
        )?;
        hold(&mut session, &piped).with_context(|| format!("{format} from standard input"))?;
    }
    Ok(())
}

fn arrow_file(parquet: &Path, arrow: &Path) -> Result<()> {
    let mut command = Command::new(machine::python()?);
    command
        .arg(machine::root().join("tests/src/arrow_file.py"))
        .arg(parquet)
        .arg(arrow);
    ensure!(command.status()?.success(), "{command:?} failed");
    Ok(())
}

fn load(dir: &Path, arguments: &[&str], input: Stdio) -> Result<()> {
    let mut command = Command::new(machine::ingestd()?);
    command
        .arg("load")
        .arg(dir)
        .args(["--source", "rows"])
        .args(["--fields", &declared(dir, "rows", FIELDS)])
        .args(arguments)
        .stdin(input);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = format!("received={ROWS} stored={ROWS} refused=0 dropped=0");
    ensure!(
        output.status.success() && said.trim_end().ends_with(&counts),
        "{command:?}: {output:?}"
    );
    Ok(())
}

fn hold(session: &mut Session, dir: &Path) -> Result<()> {
    let columns = "number::BIGINT, small::BIGINT, ratio::DOUBLE, flag::BOOLEAN, word";
    let loom = format!(
        "SELECT {columns} FROM loom_scan('{}', 'rows')",
        dir.display()
    );
    let plain = format!("SELECT {columns} FROM plain");
    for (these, those) in [(&loom, &plain), (&plain, &loom)] {
        let rows = session.query(&format!("FROM (({these}) EXCEPT ALL ({those})) LIMIT 3"))?;
        ensure!(
            rows.is_empty(),
            "{these} has rows that the other does not have: {rows:?}"
        );
    }
    Ok(())
}
