//! `ingestd serve`: serves a Loom directory to DuckDB on other hosts until a signal; and `confined`, which runs its DuckDB with limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ingestd::config::ByteSize;
use ingestd::serve::{Confined, Host, Listen, Options, State, supervise};
use tracing::Level;

use super::run::{catch_signals, log_to_stderr};
use super::service;

/// Serve a Loom directory to other hosts
///
/// DuckDB on other hosts can then query DIR with the token, and do nothing else. Your DuckDB serves it with its extensions quack and httpfs, under
/// supervision: a server that ends is started again. The command runs in the foreground until SIGTERM or SIGINT, and logs to standard error.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  (umask 077; head -c 24 /dev/urandom | base64 > token)
  ingestd serve /var/lib/loom --listen localhost:9494 --token-file token")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
    /// Address on loopback, and port; use a proxy for TLS
    #[arg(long, value_name = "ADDRESS")]
    listen: Listen,
    /// File whose first line is the token, at least 16 characters; other users must not be able to open it
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// DuckDB's command line, of a version that has Quack [default: 'duckdb' in PATH]
    #[arg(long, value_name = "PATH")]
    duckdb: Option<PathBuf>,
    /// Folder with some of loom.duckdb_extension, quack.duckdb_extension and httpfs.duckdb_extension; may be repeated [default: Loom's from the
    /// package, the others as installed by DuckDB]
    #[arg(long, value_name = "DIR")]
    extensions: Vec<PathBuf>,
    /// Memory for all queries together
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory)]
    memory: ByteSize,
    /// Threads for queries
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// CPU seconds that the server may use without a second of rest; then it is started again
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    cpu_seconds: u64,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        log_to_stderr(Level::INFO);
        let signals = catch_signals()?;
        let host = Host::prepare(Options {
            dir: self.dir,
            listen: self.listen,
            token_file: self.token_file,
            duckdb: self.duckdb,
            extensions: self.extensions,
            memory: self.memory,
            threads: self.threads,
            cpu_busy_max: Duration::from_secs(self.cpu_seconds),
        })?;
        let serving = format!(
            "serving {} at {}",
            host.options().dir.display(),
            host.options().listen.uri()
        );
        supervise(&host, &signals, |state| match state {
            State::Serves => service::ready(&serving),
            State::Restarts => service::ready("starting again"),
        })?;
        service::stopping();
        Ok(ExitCode::SUCCESS)
    }
}

/// With less memory, DuckDB cannot load its extensions.
const MEMORY_MIN: ByteSize = ByteSize(32 << 20);

fn memory(text: &str) -> Result<ByteSize, String> {
    let memory: ByteSize = text.parse()?;
    if memory.0 < MEMORY_MIN.0 {
        return Err("DuckDB needs more; give at least 32MiB".to_owned());
    }
    Ok(memory)
}

/// Run a program with limits; `ingestd serve` starts DuckDB this way
#[derive(clap::Args)]
#[command(hide = true)]
pub struct ConfinedArgs {
    /// Limit of the private memory, in bytes
    #[arg(long, value_name = "BYTES")]
    data: u64,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl ConfinedArgs {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let confined = Confined {
            data_bytes: self.data,
            command: self.command,
        };
        match confined.exec()? {}
    }
}
