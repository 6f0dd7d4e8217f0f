//! DuckDB sessions, each in a process of its own: releases of DuckDB 2 through Python, DuckDB 1 through its command line.
//!
//! Both answer in the same form: every value as DuckDB's own text of it (`::VARCHAR`), NULL as `None`, in UTC. So one test runs against
//! both, and a difference between clients' printing never looks like a difference between answers.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::Pid;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use tempfile::NamedTempFile;

use crate::machine;
use crate::script::statements;

/// A version of DuckDB, with the extension file that was built for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Version {
    /// The newest release of DuckDB 2 in `duckdb-ext/versions.toml`.
    V2,
    /// An earlier release of DuckDB 2.
    Earlier(&'static str),
    V1,
}

impl Version {
    /// The newest version of each C API.
    pub const ALL: [Version; 2] = [Version::V2, Version::V1];

    /// All versions, with the earlier releases.
    pub fn every() -> Result<Vec<Version>> {
        #[derive(Deserialize)]
        struct Versions {
            v2: toml::Table,
        }
        let file = machine::root().join("duckdb-ext/versions.toml");
        let versions: Versions = toml::from_str(&std::fs::read_to_string(file)?)?;
        let mut releases: Vec<String> = versions.v2.into_iter().map(|(name, _)| name).collect();
        releases.sort_by_key(|name| {
            let numbers = name.split('.').map(|number| number.parse::<u64>().ok());
            numbers.collect::<Vec<_>>()
        });
        releases.pop().context("no release of DuckDB 2")?;
        let earlier = releases
            .into_iter()
            .map(|release| Version::Earlier(release.leak()));
        Ok(Version::ALL.into_iter().chain(earlier).collect())
    }

    pub fn name(self) -> &'static str {
        match self {
            Version::V2 => "v2",
            Version::Earlier(release) => release,
            Version::V1 => "v1",
        }
    }

    /// Whether it has the second C API.
    pub fn is_v2(self) -> bool {
        self != Version::V1
    }

    /// The extension file for this version, built by `make build`.
    pub fn extension(self) -> PathBuf {
        let folder = match self {
            Version::V2 => "duckdb-v2".to_owned(),
            Version::Earlier(release) => format!("duckdb-v{release}"),
            Version::V1 => "duckdb-v1".to_owned(),
        };
        machine::root()
            .join("dist")
            .join(folder)
            .join("loom.duckdb_extension")
    }
}

/// The database of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Database<'a> {
    Memory,
    File(&'a Path),
    ReadOnly(&'a Path),
}

pub type Row = Vec<Option<String>>;

/// DuckDB's error message.
#[derive(Debug)]
pub struct QueryError(pub String);

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for QueryError {}

/// One connection in a process of its own. The process ends with the session.
pub struct Session {
    version: Version,
    process: Child,
    pid: Pid,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: File,
    statements: u64,
}

impl Session {
    /// A session with the extension loaded.
    pub fn open(version: Version) -> Result<Session> {
        Session::open_in(version, Path::new("."), Database::Memory)
    }

    /// A session of each version.
    pub fn all() -> Result<Vec<Session>> {
        Version::ALL.into_iter().map(Session::open).collect()
    }

    /// As `open`, with relative paths resolved in `folder`.
    pub fn open_in(version: Version, folder: &Path, database: Database<'_>) -> Result<Session> {
        let mut session = Session::start(version, folder, database)?;
        let extension = version.extension();
        session
            .query(&format!("LOAD '{}'", extension.display()))
            .with_context(|| format!("loading {}; has 'make build' run?", extension.display()))?;
        Ok(session)
    }

    /// A session of DuckDB without the extension.
    pub fn plain(version: Version) -> Result<Session> {
        Session::start(version, Path::new("."), Database::Memory)
    }

    fn start(version: Version, folder: &Path, database: Database<'_>) -> Result<Session> {
        let errors = NamedTempFile::new()?;
        let mut command = match version {
            Version::V2 | Version::Earlier(_) => {
                let mut command = Command::new(machine::python()?);
                command.arg(machine::root().join("tests/src/session.py"));
                if let Version::Earlier(release) = version {
                    command.env("PYTHONPATH", machine::earlier_duckdb(release)?);
                }
                command
            }
            Version::V1 => {
                let mut command = Command::new(machine::duckdb_cli()?);
                command.args(["-unsigned", "-batch", "-no-init", "-jsonlines"]);
                command
            }
        };
        match database {
            Database::Memory => command.arg(":memory:"),
            Database::File(file) => command.arg(file),
            Database::ReadOnly(file) => command.arg("-readonly").arg(file),
        };
        let mut process = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.reopen()?)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let errors = errors.reopen()?;
        let mut session = Session {
            version,
            pid: Pid::from_child(&process),
            process,
            input,
            output,
            errors,
            statements: 0,
        };
        session.query("SET TimeZone = 'UTC'")?;
        // The command line is started by a script, which stays as its parent.
        if let Some(started) = first_child(session.pid)? {
            session.pid = started;
        }
        Ok(session)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The process of the connection.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Runs one statement. A query returns its values as text; any other statement runs unchanged.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, QueryError> {
        self.statements += 1;
        let asked = if selects(sql) {
            format!("SELECT COLUMNS(*)::VARCHAR FROM (\n{}\n)", bare(sql))
        } else {
            bare(sql).to_owned()
        };
        let answer = match self.version {
            Version::V2 | Version::Earlier(_) => self.ask_python(&asked),
            Version::V1 => self.ask_cli(&asked),
        };
        answer.unwrap_or_else(|error| {
            Err(QueryError(format!(
                "the session of DuckDB {} broke: {error:#}",
                self.version.name()
            )))
        })
    }

    /// Runs the statements of a script and returns the last one's rows.
    pub fn script(&mut self, sql: &str) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for statement in statements(sql) {
            rows = self
                .query(statement)
                .with_context(|| statement.to_owned())?;
        }
        Ok(rows)
    }

    /// Defines the macros of `sql/macros.sql` in DuckDB 1, where the extension cannot define them.
    pub fn with_macros(mut self) -> Result<Session> {
        if self.version == Version::V1 {
            self.script(&std::fs::read_to_string(
                machine::root().join("sql/macros.sql"),
            )?)?;
        }
        Ok(self)
    }

    /// Attaches a Loom directory, in DuckDB 1 by running the statements that a query returns.
    pub fn attach(&mut self, dir: &Path, name: Option<&str>) -> Result<Vec<Row>, QueryError> {
        let name = name.map(|name| format!("'{name}'"));
        match (self.version.is_v2(), name) {
            (true, Some(name)) => self.attach_by(dir, &name),
            (true, None) => self.query(&format!("PRAGMA loom_attach('{}')", dir.display())),
            (false, name) => self.attach_by(
                dir,
                &format!("name := {}", name.unwrap_or("NULL".to_owned())),
            ),
        }
    }

    /// Attaches a Loom directory together with its archive, as a catalog of this name.
    pub fn attach_with(
        &mut self,
        dir: &Path,
        archive: &Path,
        name: &str,
    ) -> Result<Vec<Row>, QueryError> {
        let archive = archive.display();
        let arguments = match self.version.is_v2() {
            true => format!("'{name}', archive = '{archive}'"),
            false => format!("name := '{name}', archive := '{archive}'"),
        };
        self.attach_by(dir, &arguments)
    }

    /// Attaches a Loom directory with these further arguments, in the version's syntax.
    pub fn attach_by(&mut self, dir: &Path, arguments: &str) -> Result<Vec<Row>, QueryError> {
        let dir = dir.display();
        if self.version.is_v2() {
            return self.query(&format!("PRAGMA loom_attach('{dir}', {arguments})"));
        }
        let rows = self.query(&format!("FROM loom_attach('{dir}', {arguments})"))?;
        for statement in rows.into_iter().flatten().flatten() {
            self.query(&statement)?;
        }
        Ok(Vec::new())
    }

    /// All values of an answer except NULLs, row by row.
    pub fn cells(&mut self, sql: &str) -> Result<Vec<String>> {
        let rows = self.query(sql).with_context(|| sql.to_owned())?;
        Ok(rows.into_iter().flatten().flatten().collect())
    }

    /// As `cells`, for whole numbers.
    pub fn numbers(&mut self, sql: &str) -> Result<Vec<u64>> {
        let cells = self.cells(sql)?.into_iter();
        let number = |cell: String| cell.parse().with_context(|| format!("{cell}: {sql}"));
        cells.map(number).collect()
    }

    /// The value of a query that returns exactly one.
    pub fn value(&mut self, sql: &str) -> Result<String> {
        let rows = self.query(sql).with_context(|| sql.to_owned())?;
        let value = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next())
            .flatten();
        value.with_context(|| format!("no value from: {sql}"))
    }

    fn ask_python(&mut self, sql: &str) -> Result<Result<Vec<Row>, QueryError>> {
        let mut line = serde_json::to_string(sql)?;
        line.push('\n');
        self.input.write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.output.read_line(&mut answer)? == 0 {
            return Ok(Err(QueryError(format!("DuckDB ended: {}", self.said()?))));
        }
        Ok(match serde_json::from_str(&answer)? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Error(message) => Err(QueryError(message)),
        })
    }

    fn ask_cli(&mut self, sql: &str) -> Result<Result<Vec<Row>, QueryError>> {
        let mark = format!("-- end of statement {}", self.statements);
        self.input
            .write_all(format!("{sql}\n;\n.print {mark}\n").as_bytes())?;
        let mut rows = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Ok(Err(QueryError(format!("DuckDB ended: {}", self.said()?))));
            }
            if line.trim_end() == mark {
                break;
            }
            if line.starts_with('{') {
                rows.push(serde_json::from_str::<JsonRow>(&line)?.0);
            }
        }
        let said = self.said()?;
        Ok(if said.is_empty() {
            Ok(rows)
        } else {
            Err(QueryError(said))
        })
    }

    /// The text that the process has written to its standard error since the last call.
    fn said(&mut self) -> Result<String> {
        let mut text = Vec::new();
        self.errors.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Rows(Vec<Row>),
    Error(String),
}

/// The values of a JSON object in their order. Names may repeat, like the columns of a result.
struct JsonRow(Row);

impl<'de> Deserialize<'de> for JsonRow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JsonRow, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = JsonRow;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRow, A::Error> {
                let mut row = Vec::new();
                while let Some((_, value)) = map.next_entry::<String, serde_json::Value>()? {
                    row.push(match value {
                        serde_json::Value::Null => None,
                        serde_json::Value::String(text) => Some(text),
                        other => Some(other.to_string()),
                    });
                }
                Ok(JsonRow(row))
            }
        }
        from.deserialize_map(InOrder)
    }
}

fn first_child(process: Pid) -> Result<Option<Pid>> {
    let id = process.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let first = children.split_whitespace().next();
    Ok(first.map(str::parse).transpose()?.and_then(Pid::from_raw))
}

fn bare(sql: &str) -> &str {
    sql.trim().trim_end_matches(';')
}

/// True for statements that can be used as a subquery.
fn selects(sql: &str) -> bool {
    let first = sql
        .lines()
        .find(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"))
        .unwrap_or_default()
        .trim_start()
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    [
        "select",
        "from",
        "with",
        "values",
        "table",
        "describe",
        "show",
        "summarize",
        "pivot",
        "unpivot",
    ]
    .iter()
    .any(|word| first.eq_ignore_ascii_case(word))
}
