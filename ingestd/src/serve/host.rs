//! A host: everything that its servers need, checked once.
//!
//! Its macros stand in a database in a temporary folder, because a server opens it for reading only.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use loom_engine::query::Directory;
use tempfile::TempDir;

use super::confined::Confined;
use super::listen::{ClaimedPort, Listen};
use super::program::{find, loads};
use super::server::{Server, in_one_line};
use super::token::Token;
use crate::child::Program;
use crate::config::ByteSize;
use crate::quoted;

/// The macros that a host answers, and the guard.
const MACROS: &str = include_str!("../../../sql/host.sql");
/// The settings that lock a server down, and its start.
const SERVE: &str = include_str!("../../../sql/serve.sql");
/// Memory of the process beside `memory`: DuckDB does not count all of its own, and Quack's 128 threads have stacks of 1 GiB mapped.
const OTHER_BYTES: u64 = 3 << 30;

/// The terms on which a directory is served.
pub struct Options {
    pub dir: PathBuf,
    pub listen: Listen,
    pub token_file: PathBuf,
    /// Without it, `duckdb` of PATH.
    pub duckdb: Option<PathBuf>,
    /// Folders with files of extensions.
    pub extensions: Vec<PathBuf>,
    /// The memory of all questions together.
    pub memory: ByteSize,
    pub threads: u32,
    /// CPU time that a server may take without a second of rest.
    pub cpu_busy_max: Duration,
}

/// A directory that can be served at a port, which no other host has.
pub struct Host {
    options: Options,
    program: PathBuf,
    loads: String,
    port: ClaimedPort,
    place: TempDir,
    /// The directory without links, to which the extension is confined.
    served: PathBuf,
}

impl Host {
    /// Checks everything that a server needs before one starts.
    pub fn prepare(options: Options) -> anyhow::Result<Host> {
        Token::read(&options.token_file)?;
        Directory::open(&options.dir)?;
        let served = served(&options.dir)?;
        let port = ClaimedPort::claim(options.listen.clone())?;
        port.require_free()?;
        let program = find(options.duckdb.as_deref())?;
        let loads = loads(&options.extensions)?;
        // A user with write access to it could replace the guard.
        let place = tempfile::Builder::new()
            .prefix("loom-serve-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .context("cannot create a temporary folder")?;
        let host = Host {
            options,
            program,
            loads,
            port,
            place,
            served,
        };
        host.write_database()?;
        Ok(host)
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Starts a server. A line of it reports when it listens.
    pub(super) fn start(&self) -> anyhow::Result<Server> {
        self.port.require_free()?;
        let Options {
            listen,
            token_file,
            memory,
            threads,
            ..
        } = &self.options;
        let token = Token::read(token_file)?;
        let script = format!(
            "{}SET memory_limit = '{}B';\nSET threads = {threads};\nSET VARIABLE host_listen = {};\nSET VARIABLE host_token = {};\n{SERVE}",
            self.loads,
            memory.0,
            quoted(&listen.uri()),
            quoted(token.text()),
        );
        let mut program = self.duckdb(&["-readonly"])?;
        let mut input = program.input();
        send(&mut input, &script)?;
        Server::new(program, input)
    }

    /// Runs the macros once, in a database that they are kept in.
    fn write_database(&self) -> anyhow::Result<()> {
        let mut program = self.duckdb(&[])?;
        send(&mut program.input(), &format!("{}{MACROS}", self.loads))?;
        let mut errors = String::new();
        program
            .errors()
            .read_to_string(&mut errors)
            .context("cannot read what DuckDB reports")?;
        let status = program.wait()?;
        if !status.success() || !errors.is_empty() {
            bail!(
                "cannot load Loom and Quack ({status}): {}",
                in_one_line(errors.lines())
            );
        }
        Ok(())
    }

    /// DuckDB's command line on the host's database, which takes statements from its standard input. Its environment has the necessary variables
    /// alone.
    fn duckdb(&self, options: &[&str]) -> anyhow::Result<Program> {
        let mut words: Vec<OsString> = vec![self.program.clone().into()];
        words.extend(["-no-init", "-unsigned", "-bail"].map(OsString::from));
        words.extend(options.iter().map(OsString::from));
        words.push(self.place.path().join("host.duckdb").into());
        let confined = Confined {
            data_bytes: self.options.memory.0.saturating_add(OTHER_BYTES),
            command: words,
        };
        let mut command: Command = confined.as_child();
        command
            .env_clear()
            .envs(std::env::var_os("HOME").map(|home| ("HOME", home)))
            .env("LOOM_DIR", &self.options.dir)
            .env("LOOM_SERVED", &self.served)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Program::start(&mut command, "")
    }
}

fn served(dir: &Path) -> anyhow::Result<PathBuf> {
    let served = fs::canonicalize(dir)
        .with_context(|| format!("cannot resolve the path '{}'", dir.display()))?;
    if served.as_os_str().as_bytes().contains(&b'\n') {
        bail!(
            "cannot serve '{}': its path holds a line break; rename the directory",
            dir.display()
        );
    }
    Ok(served)
}

/// Sends statements; a program that has ended does not take them, and its errors say why.
fn send(input: &mut impl Write, statements: &str) -> anyhow::Result<()> {
    match input.write_all(statements.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot send statements to DuckDB")
        }
        _ => Ok(()),
    }
}
