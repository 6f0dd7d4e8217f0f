//! `ingestd explore`: starts the explorer of the Python package `loom_duckdb`, which shows directories in a browser.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};

const PYTHON: &str = "python3";
const MODULE: &str = "loom_duckdb.explore";
/// The exit status of [`IS_INSTALLED`] if the package is missing.
const MISSING: i32 = 3;
const IS_INSTALLED: &str =
    "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('loom_duckdb') else 3)";

/// Show Loom directories live in a browser
///
/// The explorer is part of the Python package loom_duckdb, which the python3 of PATH must have.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd explore /var/lib/loom --port 8686")]
pub struct Args {
    /// Loom directories; the page reads no other
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8686)]
    port: u16,
    /// Address to listen on; an address that is not loopback requires a token, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: String,
    /// Longest time of a query, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    timeout: f64,
    /// Let everyone who sees the page pin records, which can make older pins go; on loopback this is the default
    #[arg(long, conflicts_with = "no_allow_pins")]
    allow_pins: bool,
    /// Let no one pin records on the page
    #[arg(long)]
    no_allow_pins: bool,
    /// Only print the address
    #[arg(long)]
    no_browser: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let found = Command::new(PYTHON)
            .args(["-c", IS_INSTALLED])
            .stdin(Stdio::null())
            .status();
        match found {
            Ok(status) if status.code() == Some(MISSING) => bail!(
                "cannot start the explorer: {PYTHON} has no package loom_duckdb; install Loom's wheel there, with its extra 'explore'"
            ),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(
                    "cannot start the explorer: there is no {PYTHON}; install Python 3.11 or later"
                )
            }
            Err(error) => return Err(error).context(format!("cannot run {PYTHON}")),
        }
        let error = Command::new(PYTHON)
            .args(["-m", MODULE])
            .args(self.options())
            .exec();
        Err(error).context(format!("cannot run {PYTHON}"))
    }

    /// The arguments of `python3 -m loom_duckdb.explore`.
    fn options(self) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec![
            format!("--port={}", self.port).into(),
            format!("--address={}", self.address).into(),
            format!("--timeout={}", self.timeout).into(),
        ];
        let flags = [
            ("--allow-pins", self.allow_pins),
            ("--no-allow-pins", self.no_allow_pins),
            ("--no-browser", self.no_browser),
        ];
        let flags = flags.iter().filter(|(_, is_given)| *is_given);
        options.extend(flags.map(|(flag, _)| (*flag).into()));
        options.push("--".into());
        options.extend(self.dirs.into_iter().map(PathBuf::into_os_string));
        options
    }
}
