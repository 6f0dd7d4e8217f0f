//! The SQL logic tests: every `tests/sql/*.test` runs in each DuckDB of `duckdb-ext/versions.toml`.
//!
//! Each `tests/sql/*.sql` is a `SELECT` that generates data. It is written to a Parquet file and loaded into a Loom directory with the
//! options of its `-- load:` line. The source has the name of its `-- source:` line, or else the file's name. The sources that its `--
//! add:` file declares are added without a record. In a test file, `__TEST_DIR__/NAME.parquet` and `__TEST_DIR__/NAME.loom` are the two, so
//! a test can compare Loom with plain DuckDB over the same rows; `__OWN_DIR__` is a folder for that test alone. Values are compared as
//! text, with `NULL` for NULL and `(empty)` for ''.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{QueryError, Row, Session, Version};
use loom_tests::machine;
use sqllogictest::harness::{Arguments, Failed, Trial, run};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use tempfile::TempDir;

fn main() -> Result<()> {
    let arguments = Arguments::from_args();
    let folder = machine::root().join("tests/sql");
    let data = Arc::new(tempfile::tempdir()?);
    if !arguments.list {
        make_data(&folder, data.path())?;
    }
    let mut trials = Vec::new();
    let versions = Version::every()?;
    for file in files(&folder, "test")? {
        for &version in &versions {
            let (file, data) = (file.clone(), Arc::clone(&data));
            let name = format!("{}::{}", version.name(), stem(&file)?);
            trials.push(Trial::test(name, move || try_file(&file, version, &data)));
        }
    }
    let conclusion = run(&arguments, trials);
    drop(data);
    conclusion.exit()
}

fn try_file(file: &Path, version: Version, data: &Arc<TempDir>) -> Result<(), Failed> {
    let connect = || async {
        let session = Session::open(version)
            .and_then(Session::with_macros)
            .map_err(|error| QueryError(format!("{error:#}")))?;
        Ok(Connection {
            session,
            data: Arc::clone(data),
            own: tempfile::tempdir().map_err(|error| QueryError(error.to_string()))?,
        })
    };
    let mut runner = Runner::new(connect);
    runner.add_label(if version.is_v2() { "v2" } else { "v1" });
    runner
        .run_file(file)
        .map_err(|error| Failed::from(error.display(false).to_string()))
}

/// Writes each Parquet file and loads it into the directory beside it.
fn make_data(folder: &Path, data: &Path) -> Result<()> {
    let mut duckdb = Session::plain(Version::V2)?;
    for file in files(folder, "sql")? {
        let sql = std::fs::read_to_string(&file)?;
        let name = stem(&file)?;
        let parquet = data.join(format!("{name}.parquet"));
        let loom = data.join(format!("{name}.loom"));
        duckdb
            .query(&format!("COPY (\n{sql}\n) TO '{}'", parquet.display()))
            .with_context(|| name.clone())?;
        let options = sql
            .lines()
            .find_map(|line| line.strip_prefix("-- load:"))
            .unwrap_or_default();
        let source = sql
            .lines()
            .find_map(|line| line.strip_prefix("-- source:"))
            .map_or(name, |source| source.trim().to_owned());
        let mut command: Vec<String> = vec![
            "load".into(),
            loom.display().to_string(),
            "--source".into(),
            source,
        ];
        // A file that an option names is beside the data.
        let option = |word: &str| {
            let file = folder.join(word);
            if file.is_file() {
                file.display().to_string()
            } else {
                word.to_owned()
            }
        };
        command.extend(options.split_whitespace().map(option));
        command.push(parquet.display().to_string());
        ingestd(command)?;
        let added = sql.lines().find_map(|line| line.strip_prefix("-- add:"));
        if let Some(file) = added {
            let file = folder.join(file.trim()).display().to_string();
            let loom = loom.display().to_string();
            ingestd(["source", "add", &loom, "--fields", &file])?;
        }
    }
    Ok(())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|given| given == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn stem(file: &Path) -> Result<String> {
    Ok(file
        .file_stem()
        .context("a file without a name")?
        .to_string_lossy()
        .into_owned())
}

struct Connection {
    session: Session,
    data: Arc<TempDir>,
    own: TempDir,
}

impl DB for Connection {
    type Error = QueryError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, QueryError> {
        let sql = sql
            .replace("__TEST_DIR__", &self.data.path().display().to_string())
            .replace("__OWN_DIR__", &self.own.path().display().to_string());
        let rows: Vec<Vec<String>> = self.session.query(&sql)?.into_iter().map(printed).collect();
        let columns = rows.first().map_or(0, Vec::len);
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Text; columns],
            rows,
        })
    }

    fn engine_name(&self) -> &str {
        self.session.version().name()
    }
}

fn printed(row: Row) -> Vec<String> {
    row.into_iter()
        .map(|value| match value {
            None => "NULL".to_owned(),
            Some(text) if text.is_empty() => "(empty)".to_owned(),
            Some(text) => text
                .replace('\n', "\\n")
                .replace('\t', "\\t")
                .replace('\r', "\\r"),
        })
        .collect()
}
