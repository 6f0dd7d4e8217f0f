//! `ingestd validate`: whether a daemon would take a configuration, before one reads it.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::Config;
use ingestd::counted;
use ingestd::daemon::definitions::rehearse;
use ingestd::daemon::other_staging;
use loom_engine::Error;

use super::stdout::say;

/// The exit status that `sysexits.h` calls a configuration error.
const EX_CONFIG: u8 = 78;

const AFTER_HELP: &str = r#"Example:
  ingestd validate /var/lib/loom --config /etc/loom.toml

Every key, with its default; sources, limits and the group are examples:
  [log]
  chunk = "64KiB"           # size of a chunk; fixed when the directory is created
  block = "64MiB"           # size of a staged block; two are in memory
  segment = "1GiB"          # size of a file of the record log; fixed when the directory is created
  staging = "/dev/shm"      # folder of the staging file; if it does not fit there, the Loom directory
  durability = "500ms"      # how late records are synced at most; "batch": a sync waits for the disk; "none": no syncs

  [retention]
  max_bytes = "50GiB"       # size of all log files; unlimited if omitted
  max_age = "24h"           # age of the newest record of a file; unlimited if omitted
  min_free = "5%"           # share of the disk that stays free, or a size; if less is free:
  on_full = "evict"         # "evict" removes the oldest file, "refuse" refuses and counts new records

  [metrics]
  listen = "127.0.0.1:9464" # serves /metrics, /livez and /readyz on loopback; off if omitted
  interval = "10s"          # period of the records in loom_metrics; "0s": none

  [access]
  group = "telemetry"       # a group that may query the directory; none if omitted
  socket = "owner"          # who may push: "owner" or "group"

  [[source]]
  name = "redis_request"
  time = "arrival"          # or "own": each record carries its own time
  on_overload = "block"     # if the log is full, producers wait; "drop_new" drops and counts new records
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

/// Check a configuration, alone or with a Loom directory
///
/// It reports the line or the source that is wrong. With DIR it also checks that a daemon can use DIR and that the configuration fits its
/// sources. The exit status is 0 if the configuration is sound, 78 if it is not, and 1 if a daemon cannot use DIR.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Loom directory, or a path where a daemon is to create one
    dir: Option<PathBuf>,
    /// Configuration (TOML)
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
