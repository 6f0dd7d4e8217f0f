//! `ingestd validate`: says whether a configuration would be taken, before a daemon is asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::Config;
use ingestd::counted;
use ingestd::daemon::left_in_staging;

use super::stdout::say;

/// What `sysexits.h` calls a configuration error.
const EX_CONFIG: u8 = 78;

const AFTER_HELP: &str = r#"Example:
  ingestd validate --config /etc/loom.toml

Every key, with its default; sources, limits and the group are examples:
  [log]
  chunk = "64KiB"           # unit of indexing; fixed when the directory is made
  block = "64MiB"           # unit of eviction; two are staged
  segment = "1GiB"          # size of a file of the record log, at least two; fixed when the directory is made
  staging = "/dev/shm"      # where everything fits with 10 % to spare, else the Loom directory
  durability = "500ms"      # fsync at most this late; "none", or "batch": acknowledge after fsync

  [retention]
  max_bytes = "50GiB"       # on the disk, all files of the logs; unlimited unless given
  max_age = "24h"           # of a file's last record; unlimited unless given
  min_free = "5%"           # of the disk, or a size; when less is free:
  on_full = "evict"         # the oldest file goes; or "refuse": records are refused, and counted

  [metrics]
  listen = "127.0.0.1:9464" # /metrics, /livez and /readyz, on loopback; not served unless given
  interval = "10s"          # how often the source loom_metrics gets records; "0s": never

  [access]
  group = "telemetry"       # may read the directory and query it; none unless given
  socket = "owner"          # who may push; or "group"

  [[source]]
  name = "redis_request"
  time = "arrival"          # or "own": each record brings its own time
  on_overload = "block"     # or "drop_new"
  [[source.field]]
  name = "latency_ns"
  type = "u64"
  [[source.field]]
  name = "op"
  type = "u8"
  labels = { 1 = "GET", 2 = "SET" }
  [[source.index]]
  name = "set_latency"
  value = "latency_ns"
  where = "op = 'SET'"
  bins = { from = 1000, factor = 2, count = 24 }"#;

/// Check a configuration: exit code 0, or 78 with the line that is wrong
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The configuration (TOML)
    #[arg(long, value_name = "FILE", required_unless_present = "file")]
    config: Option<PathBuf>,
    /// The same
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.or(self.file).unwrap_or_default();
        let path = config.display();
        match Config::load(&config) {
            Ok(config) => {
                let sources = counted(config.sources.len() as u64, "source");
                say(format_args!("{path}: sound, with {sources}"))?;
                if let Some(note) = left_in_staging(config.log.staging.get_ref()) {
                    say(note)?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                match error.line {
                    Some(line) => eprintln!("ingestd: {path}:{line}: {}", error.message),
                    None => eprintln!("ingestd: {path}: {error}"),
                }
                Ok(ExitCode::from(EX_CONFIG))
            }
        }
    }
}
