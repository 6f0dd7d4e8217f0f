//! Directories that cannot be read, or not all of them: the error names the thing, the rest stays readable, and the session goes on.

use std::fs::{File, read_dir};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use tempfile::TempDir;

const ROWS: u64 = 300_000;
const CHUNK_BYTES: u64 = 64 << 10;

/// A directory with the source `r`, whose field `n` counts the records and has an index.
fn directory() -> Result<(TempDir, PathBuf)> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("r.loom");
    let csv = place.path().join("r.csv");
    let numbers: String = (0..ROWS).map(|n| format!("{n}\n")).collect();
    std::fs::write(&csv, format!("n\n{numbers}"))?;
    let [shown, csv] = [&dir, &csv].map(|path| path.display().to_string());
    ingestd(["load", &shown, "--source", "r", "--index", "n", &csv])?;
    Ok((place, dir))
}

fn error_of(session: &mut Session, sql: &str) -> Result<String> {
    match session.query(sql) {
        Ok(rows) => anyhow::bail!("no error but {} rows from: {sql}", rows.len()),
        Err(error) => Ok(error.to_string()),
    }
}

/// Fails where `text` lacks one of `parts`.
fn holds(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no '{part}' in: {text}");
    }
    Ok(())
}

/// Changes one byte of a file.
fn flip(file: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(file)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&byte.map(|byte| byte ^ 0x40), at)?;
    Ok(())
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = read_dir(folder)?;
    let file = files.next().context("no segment")??.path();
    ensure!(files.next().is_none(), "more than one segment");
    Ok(file)
}

// G7
#[test]
fn a_corrupt_chunk_is_named_and_all_others_are_read() -> Result<()> {
    let (_place, dir) = directory()?;
    let segment = only_file(&dir.join("records"))?;
    let address = 5 * CHUNK_BYTES;
    flip(&segment, address + 1000)?;
    let named = dir.join("records").display().to_string();
    let dir = dir.display().to_string();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let all = format!("SELECT sum(n) FROM loom_scan('{dir}', 'r')");
        let said = error_of(&mut session, &all)?;
        holds(&said, &[&named, &address.to_string(), "ingestd check"])?;
        // Before it and after it, and from summaries.
        let some = |low: u64, high: u64| {
            format!(
                "SELECT sum(n) FROM loom_scan('{dir}', 'r', index := 'n', v_min := {low}, v_max := {high})"
            )
        };
        for (low, high) in [(0, 10_000), (50_000, ROWS - 1)] {
            let expected = (low + high) * (high - low + 1) / 2;
            ensure!(
                session.value(&some(low, high))? == expected.to_string(),
                "{low} to {high}"
            );
        }
        let summed = session.query(&format!(
            "SELECT count, sum, min, max FROM loom_aggregate('{dir}', 'r', 'n')"
        ))?;
        let expected =
            [ROWS, ROWS * (ROWS - 1) / 2, 0, ROWS - 1].map(|value| Some(value.to_string()));
        ensure!(summed == [expected], "{summed:?}");
        ensure!(
            session.value(&format!("SELECT count(*) FROM loom_scan('{dir}', 'r')"))?
                == ROWS.to_string()
        );
        holds(&error_of(&mut session, &all)?, &[&named])?;
    }
    Ok(())
}

// G7
#[test]
fn corrupt_index_logs_change_no_answer_and_make_nothing_incomplete() -> Result<()> {
    for log in ["chunks", "times"] {
        let (_place, dir) = directory()?;
        let segment = only_file(&dir.join(log))?;
        let bytes = segment.metadata()?.len();
        (0..bytes / 40).try_for_each(|at| flip(&segment, at * 40 + 17))?;
        let dir = dir.display().to_string();
        for version in Version::ALL {
            let mut session = Session::open(version)?;
            let asked = |more: &str| {
                format!("SELECT count, sum FROM loom_aggregate('{dir}', 'r', 'n'{more})")
            };
            let expected = [ROWS, ROWS * (ROWS - 1) / 2].map(|value| Some(value.to_string()));
            for more in ["", ", complete := true"] {
                let summed = session.query(&asked(more))?;
                ensure!(summed == [expected.clone()], "{log}{more}: {summed:?}");
            }
            let losses = session.value(&format!("SELECT count(*) FROM loom_losses('{dir}')"))?;
            ensure!(losses == "0", "{log}: {losses}");
            ensure!(session.value("SELECT 42")? == "42");
        }
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
    // Root may read everything, so the script becomes nobody.
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
