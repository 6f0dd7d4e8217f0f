//! Directories that cannot be read: the error names the cause, and the session goes on.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use loom_tests::command::declared;
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use tempfile::TempDir;

const ROWS: u64 = 3000;

/// A directory with the source `r`, whose field `n` counts the records and has an index.
fn directory() -> Result<(TempDir, PathBuf)> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("r.loom");
    let csv = place.path().join("r.csv");
    let numbers: String = (0..ROWS).map(|n| format!("{n}\n")).collect();
    std::fs::write(&csv, format!("n\n{numbers}"))?;
    let fields = declared(&csv, "r", "n i64?");
    let [shown, csv] = [&dir, &csv].map(|path| path.display().to_string());
    let load = ["load", &shown, "--source", "r", "--fields", &fields];
    ingestd(load.into_iter().chain(["--index", "n", &csv]))?;
    Ok((place, dir))
}

fn error_of(session: &mut Session, sql: &str) -> Result<String> {
    match session.query(sql) {
        Ok(rows) => anyhow::bail!("no error but {} rows from: {sql}", rows.len()),
        Err(error) => Ok(error.to_string()),
    }
}

/// Fails if `text` does not contain all of `parts`.
fn holds(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no '{part}' in: {text}");
    }
    Ok(())
}

// case Corruption: another version
#[test]
fn what_is_no_directory_of_this_version_is_refused() -> Result<()> {
    let (place, dir) = directory()?;
    let text = std::fs::read_to_string(dir.join("loom.json"))?;
    let write = |text: &str| -> Result<()> {
        std::fs::write(dir.join("loom.json"), text)?;
        Ok(std::fs::write(dir.join("loom.json.copy"), text)?)
    };
    let mut another: serde_json::Value = serde_json::from_str(&text)?;
    if let Some(format) = another.get_mut("format") {
        *format = 9999.into();
    }
    let scan = |dir: &Path| format!("FROM loom_scan('{}', 'r')", dir.display());
    let file = place.path().join("r.csv");
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        write(&another.to_string())?;
        holds(
            &error_of(&mut session, &scan(&dir))?,
            &["version", "9999", "loom.json"],
        )?;
        write("{")?;
        holds(&error_of(&mut session, &scan(&dir))?, &["loom.json"])?;
        write(&text)?;
        holds(&error_of(&mut session, &scan(&file))?, &["r.csv"])?;
        holds(
            &error_of(&mut session, &scan(place.path()))?,
            &["loom.json"],
        )?;
        ensure!(session.query(&scan(&dir))?.len() as u64 == ROWS);
    }
    Ok(())
}

#[test]
fn a_directory_that_may_not_be_read_is_named() -> Result<()> {
    // Root may read everything, so the script runs as nobody.
    let script = "
import duckdb, os, sys
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
connection.execute(f\"LOAD '{sys.argv[1]}'\")
sql = f\"SELECT count(n) FROM loom_scan('{sys.argv[2]}', 'r')\"
is_root = os.geteuid() == 0
os.chmod(sys.argv[2], 0)
if is_root:
    os.seteuid(65534)
try:
    print(connection.execute(sql).fetchall())
except Exception as error:
    print(sys.argv[2] in str(error) and 'ermission denied' in str(error), error)
if is_root:
    os.seteuid(0)
os.chmod(sys.argv[2], 0o700)
print(connection.execute(sql).fetchall())
";
    for version in Version::ALL {
        let (_place, dir) = directory()?;
        let output = Command::new(machine::python()?)
            .args(["-c", script])
            .arg(version.extension())
            .arg(&dir)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            said.starts_with("True") && said.trim_end().ends_with(&format!("[({ROWS},)]")),
            "{said}\n{output:?}"
        );
    }
    Ok(())
}
