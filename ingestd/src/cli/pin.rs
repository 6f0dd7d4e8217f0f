//! `ingestd pin`: keeps records as a pin, through the running daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ingestd::client::{Client, ClientError};
use ingestd::config::Span;
use ingestd::output::pins::Kept;
use ingestd::protocol::Within;
use ingestd::wall_clock;
use loom_engine::log::LogReader;
use loom_engine::{TimeRange, Timestamp};

use super::export::time;
use super::stdout::{complain, say};

/// Pin the latest records or those of a span, so that retention does not remove them
///
/// The daemon writes the records that arrived within the time to a folder in DIR/pins, with one Parquet file for each source; of a source with its own
/// time, also those whose own time lies in it. The oldest pins make room for it if they all take more than pin_max_bytes. Only the user who runs the
/// daemon and root may pin. 'ingestd pins' lists the pins.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd pin /var/lib/loom --last 5m --source redis_request --name stall
  ingestd pin /var/lib/loom --from 2026-01-31T12:00:00Z \\
    --to 2026-01-31T12:00:10Z")]
#[command(group = clap::ArgGroup::new("span").required(true))]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
    /// The time before now whose records are pinned
    #[arg(long, value_name = "DURATION", group = "span")]
    last: Option<Span>,
    /// Pin records from this time on (RFC 3339)
    #[arg(long, value_name = "T", value_parser = time, group = "span")]
    from: Option<Timestamp>,
    /// Pin records before this time (RFC 3339); the time itself is excluded [default: now]
    #[arg(long, value_name = "T", value_parser = time, requires = "from")]
    to: Option<Timestamp>,
    /// Source to pin; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// Name of the pin, with which its folder ends
    #[arg(long, value_name = "NAME", default_value = "by_hand")]
    name: String,
}

impl Args {
    fn within(&self) -> anyhow::Result<Within> {
        let Some(from) = self.from else {
            let last = self.last.context("neither --last nor --from")?.0;
            return Ok(Within::Last(
                u64::try_from(last.as_nanos()).unwrap_or(u64::MAX),
            ));
        };
        let span = TimeRange::half_open(from, self.to.unwrap_or_else(wall_clock));
        if span.is_empty() {
            bail!(
                "no time lies from --from up to --to, which is excluded; give a --to after --from"
            );
        }
        Ok(Within::Span(span))
    }

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
        let json = client.pin(&self.name, self.within()?, &self.source)?;
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
