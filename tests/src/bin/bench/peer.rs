//! Another system in a Python process of its own, asked in JSON. `bench_peer.py` lists the requests.
//!
//! The process measures only the work itself, so no figure includes its start or this pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use loom_tests::duckdb::Version;
use loom_tests::machine;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

/// A system that is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum System {
    /// Loom's extension in DuckDB 2.
    Loom,
    /// Loom's extension in DuckDB 1.
    LoomInV1,
    DuckDb,
    ClickHouse,
    /// A server at an address.
    Prometheus,
    Sqlite,
    Lmdb,
    /// Looks for a text in a file of lines.
    Grep,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            System::Loom => "Loom",
            System::LoomInV1 => "Loom in DuckDB 1",
            System::DuckDb => "DuckDB 2",
            System::ClickHouse => "ClickHouse (chdb)",
            System::Prometheus => "Prometheus",
            System::Sqlite => "SQLite",
            System::Lmdb => "LMDB",
            System::Grep => "grep",
        }
    }

    fn word(self) -> &'static str {
        match self {
            System::Loom | System::LoomInV1 => "loom",
            System::DuckDb => "duckdb",
            System::ClickHouse => "clickhouse",
            System::Prometheus => "prometheus",
            System::Sqlite => "sqlite",
            System::Lmdb => "lmdb",
            System::Grep => "grep",
        }
    }
}

/// A system's answer, and its times in seconds.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// A query's rows as text. If there are many, their number and the sums of their columns.
    #[serde(default)]
    pub rows: Vec<Vec<String>>,
    pub wall: f64,
    /// CPU time of all threads of the process.
    pub cpu: f64,
}

pub struct Peer {
    system: System,
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Peer {
    /// Starts a system that keeps its data at `path`.
    pub fn start(system: System, path: &Path) -> Result<Peer> {
        let (version, environment) = match system {
            System::LoomInV1 => (Version::V1, ".clients-venv-v1"),
            _ => (Version::V2, ".bench-venv"),
        };
        let python = machine::root().join(environment).join("bin/python");
        ensure!(
            python.exists(),
            "{} is missing; 'make bench' makes it",
            python.display()
        );
        let errors = NamedTempFile::new()?;
        let mut process = Command::new(&python)
            .arg(machine::root().join("tests/src/bench_peer.py"))
            .arg(system.word())
            .arg(path)
            .arg(version.extension())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.reopen()?)
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let mut peer = Peer {
            system,
            process,
            input,
            output,
            errors: errors.reopen()?,
        };
        peer.ask(&json!({"do": "start"}))?;
        Ok(peer)
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub fn system(&self) -> System {
        self.system
    }

    pub fn query(&mut self, sql: &str) -> Result<Answer> {
        self.ask(&json!({"do": "query", "sql": sql}))
            .with_context(|| sql.to_owned())
    }

    pub fn ask(&mut self, request: &Value) -> Result<Answer> {
        let name = self.system.name();
        let mut line = request.to_string();
        line.push('\n');
        let mut text = String::new();
        let asked = self.input.write_all(line.as_bytes());
        let read = asked.and_then(|()| self.output.read_line(&mut text));
        if !matches!(read, Ok(1..)) {
            return Err(anyhow!("the process of {name} ended: {}", self.said()?));
        }
        match serde_json::from_str(&text).with_context(|| format!("{name} answered {text}"))? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Error { error } => bail!("{name}: {error}"),
        }
    }

    fn said(&mut self) -> Result<String> {
        let mut text = String::new();
        self.errors.read_to_string(&mut text)?;
        let status = self.process.wait()?;
        Ok(format!("{status}: {}", text.trim()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Reply {
    Error { error: String },
    Answer(Answer),
}
