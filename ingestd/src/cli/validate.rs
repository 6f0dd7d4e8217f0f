//! `ingestd validate`: whether a daemon would take a configuration, before one reads it.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::Config;
use ingestd::counted;
use ingestd::daemon::definitions::rehearse;
use ingestd::daemon::other_staging;
use loom_engine::Error;

use super::stdout::say;

/// What `sysexits.h` calls a configuration error.
const EX_CONFIG: u8 = 78;

const AFTER_HELP: &str = r#"Example:
  ingestd validate /var/lib/loom --config /etc/loom.toml

Every key, with its default; sources, limits and the group are examples:
  [log]
  chunk = "64KiB"           # unit of indexing; fixed when the directory is created
  block = "64MiB"           # unit of eviction; two are staged
  segment = "1GiB"          # size of a file of the record log, which has at least two; fixed when the directory is created
  staging = "/dev/shm"      # if everything fits there with 10 % to spare, else the Loom directory
  durability = "500ms"      # fsync at most this late; or "batch" (acknowledge after fsync), or "none"

  [retention]
  max_bytes = "50GiB"       # of all log files on the disk; unlimited unless given
  max_age = "24h"           # of the newest record in a file; unlimited unless given
  min_free = "5%"           # of the disk, or a size; when less is free,
  on_full = "evict"         # "evict" removes the oldest file, "refuse" refuses and counts new records

  [metrics]
  listen = "127.0.0.1:9464" # serves /metrics, /livez and /readyz on loopback; off unless given
  interval = "10s"          # how often the source loom_metrics gets records; "0s" for never

  [access]
  group = "telemetry"       # may read and query the directory; none unless given
  socket = "owner"          # who may push; or "group"

  [[source]]
  name = "redis_request"
  time = "arrival"          # or "own": each record carries its own time
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

/// Check a configuration, and with DIR whether the daemon of that directory would take it
///
/// Exit 0 when it is sound, 78 when it is not, with the line or the source that is wrong.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A Loom directory: compare the configuration with its catalog
    dir: Option<PathBuf>,
    /// The configuration (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.config.display();
        let config = match Config::load(&self.config) {
            Ok(config) => config,
            Err(error) => {
                match error.line {
                    Some(line) => eprintln!("ingestd: {path}:{line}: {}", error.message),
                    None => eprintln!("ingestd: {path}: {error}"),
                }
                return Ok(ExitCode::from(EX_CONFIG));
            }
        };
        let rehearsed = self.dir.as_ref().map(|dir| (dir, rehearse(dir, &config)));
        let mut notes = match rehearsed {
            None => Vec::new(),
            Some((dir, Err(error @ Error::Schema(_)))) => {
                let dir = dir.display();
                eprintln!("ingestd: {path} does not fit the Loom directory {dir}: {error}");
                return Ok(ExitCode::from(EX_CONFIG));
            }
            Some((_, notes)) => notes?,
        };
        let sources = counted(config.sources.len() as u64, "source");
        say(format_args!("{path}: sound, with {sources}"))?;
        notes.extend(other_staging(config.log.staging.get_ref(), None));
        for note in notes {
            say(note)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
