//! `ingestd pin`: keeps the latest records as a pin, through the running daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ingestd::client::{Client, ClientError};
use ingestd::config::Span;
use ingestd::output::pins::Kept;
use loom_engine::log::LogReader;

use super::stdout::{complain, say};

/// Pin the latest records, so that retention does not remove them
///
/// The daemon writes the records that arrived within the last time to a folder in DIR/pins, with one Parquet file for each source. The oldest pins
/// make room for it if they all take more than pin_max_bytes. Only the user who runs the daemon and root may pin. 'ingestd pins' lists the pins.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ingestd pin /var/lib/loom --last 5m --source redis_request --name stall")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
    /// The time before now whose records are pinned
    #[arg(long, value_name = "DURATION")]
    last: Span,
    /// Source to pin; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// Name of the pin, with which its folder ends
    #[arg(long, value_name = "NAME", default_value = "by_hand")]
    name: String,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        LogReader::open(&self.dir)?;
        let client = match Client::connect(&self.dir) {
            Err(ClientError::NotRunning(dir)) => {
                let dir = dir.display();
                bail!(
                    "no daemon runs on '{dir}', and only a daemon pins; start one with 'ingestd run {dir}', or copy a source with 'ingestd export {dir} --source NAME --out FILE'"
                )
            }
            connected => connected?,
        };
        let json = client.pin(&self.name, self.last.0, &self.source)?;
        let kept: Kept = serde_json::from_str(&json).context("an answer of the daemon")?;
        if !kept.removed.is_empty() {
            complain(format_args!(
                "the oldest pins made room for it: {}",
                kept.removed.join(", ")
            ));
        }
        if let Some(missing) = &kept.missing {
            complain(format_args!("the pin is not whole: {missing}"));
        }
        let Kept {
            records,
            bytes,
            path,
            ..
        } = &kept;
        say(format_args!(
            "records={records} bytes={bytes} path={}",
            path.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
