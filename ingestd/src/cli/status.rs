//! `ingestd status`: shows the state of the daemon and of each source, or the staging files of all writers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ingestd::client::{Client, ClientError};
use ingestd::config::ByteSize;
use ingestd::counted;
use ingestd::daemon::{DaemonStatus, remedy};
use ingestd::rfc3339;
use loom_engine::log::{Holder, staging_files};
use loom_engine::query::Directory;

use super::run::load_config;
use super::stdout::show;
use super::table::Column::{Number, Text};
use super::table::{Table, count};

/// Show the state of the daemon and the counts of each source
///
/// The counts are since the start of the daemon. If none runs, it shows the records of each source. With --staging it lists staging files instead:
/// their directories, whether their writers run, and what to do about files whose writer was killed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd status /var/lib/loom
  ingestd status --staging")]
pub struct Args {
    /// Loom directory
    #[arg(required_unless_present = "staging")]
    dir: Option<PathBuf>,

    /// Configuration of the daemon (TOML), for the size limit of the directory; a running daemon reports it itself
    #[arg(long, value_name = "FILE", requires = "dir")]
    config: Option<PathBuf>,

    /// List the staging files in this folder [default: /dev/shm]
    #[arg(
        long,
        value_name = "FOLDER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/dev/shm",
        conflicts_with_all = ["dir", "config"]
    )]
    staging: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        show(match (&self.dir, &self.staging) {
            (Some(dir), _) => self.directory(dir)?,
            (None, Some(folder)) => staging(folder)?,
            (None, None) => unreachable!("the command line has one of them"),
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn directory(&self, dir: &Path) -> anyhow::Result<String> {
        match Client::connect(dir) {
            Ok(client) => {
                let status = DaemonStatus::from_json(&client.status()?)?;
                Ok(heading(&status, oldest(dir).as_deref()) + &sources(&status))
            }
            Err(ClientError::NotRunning(_)) => {
                self.as_the_directory_says(dir, "none; another process writes the directory")
            }
            // The group that may read the directory is not always allowed to push.
            Err(ClientError::NotAllowed(_)) => {
                self.as_the_directory_says(dir, "running; this user may not use its socket")
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The state of the directory if no daemon answers: the records of each source. A living writer is shown as `alive`.
    fn as_the_directory_says(&self, dir: &Path, alive: &str) -> anyhow::Result<String> {
        let limit = match &self.config {
            None => "; --config shows the limit".to_owned(),
            Some(config) => {
                let retention = load_config(Some(config))?.retention;
                limit(retention.max_bytes.map(|bytes| bytes.get_ref().0))
            }
        };
        let directory = Directory::open(dir)?;
        let snapshot = directory.snapshot()?;
        let writer = match directory.status()?.writer.alive {
            true => alive,
            false => "not running",
        };
        let mut table = Table::new([
            Text("source"),
            Number("records"),
            Number("in the log"),
            Text("state"),
        ]);
        let totals = snapshot.totals()?;
        for source in snapshot.catalog().sources() {
            let totals = totals.get(&source.id).copied().unwrap_or_default();
            table.row([
                source.name.clone(),
                count(totals.records),
                ByteSize(totals.bytes).approximately(),
                if source.is_open() { "open" } else { "closed" }.to_owned(),
            ]);
        }
        let held = count(snapshot.position().saturating_sub(snapshot.begin().0));
        let oldest = snapshot.oldest_ts()?.map(rfc3339);
        let on_disk = on_disk(directory.segment_bytes()?, &limit, oldest.as_deref());
        let lines = [
            line("daemon", writer),
            line("record log", &format!("{held} B")),
            line("on disk", &on_disk),
        ];
        Ok(lines.concat() + &table.render())
    }
}

fn line(key: &str, value: &str) -> String {
    format!("{key:<12} {value}\n")
}

/// The size of the directory, its limit and its oldest record.
fn on_disk(bytes: u64, limit: &str, oldest: Option<&str>) -> String {
    let held = ByteSize(bytes).approximately();
    let oldest = oldest.map_or_else(String::new, |time| {
        format!("; the oldest record arrived at {time}")
    });
    format!("{held}{limit}{oldest}")
}

/// Text that follows the size.
fn limit(bytes_max: Option<u64>) -> String {
    match bytes_max {
        Some(bytes) => format!(" of at most {}", ByteSize(bytes).approximately()),
        None => " without a limit (max_bytes)".to_owned(),
    }
}

/// Lists the staging files in a folder, and what to do about orphans.
fn staging(folder: &Path) -> anyhow::Result<String> {
    let files = staging_files(folder)?;
    if files.is_empty() {
        return Ok(format!("no staging files in {}\n", folder.display()));
    }
    let mut table = Table::new([
        Text("staging file"),
        Number("size"),
        Text("writer"),
        Text("directory"),
    ]);
    let mut notes = String::new();
    for file in &files {
        let path = file.path.display();
        let writer = match &file.holder {
            Holder::Writer => "runs",
            Holder::Nobody => "none: orphan",
            Holder::Unknown(_) => "unknown",
        };
        match &file.holder {
            Holder::Writer => {}
            Holder::Nobody => notes += &format!("{path} {}\n", remedy(file)),
            Holder::Unknown(why) => notes += &format!("{path}: {why}\n"),
        }
        let dir = file.dir.as_ref().map(|dir| dir.display().to_string());
        table.row([
            path.to_string(),
            ByteSize(file.bytes).approximately(),
            writer.to_owned(),
            dir.unwrap_or_else(|| "unknown".to_owned()),
        ]);
    }
    Ok(table.render() + &notes)
}

/// The time of the oldest record in the directory; `None` if this user may not read the directory. The daemon does not report it.
pub(super) fn oldest(dir: &Path) -> Option<String> {
    let snapshot = Directory::open(dir).and_then(|dir| dir.snapshot()).ok()?;
    snapshot.oldest_ts().ok()?.map(rfc3339)
}

/// The lines about the daemon itself.
pub(super) fn heading(status: &DaemonStatus, oldest: Option<&str>) -> String {
    let mut text = String::new();
    let up = Duration::from_secs(Duration::from_nanos(status.uptime_ns).as_secs());
    let mut line = |key: &str, value: String| text += &line(key, &value);
    line(
        "daemon",
        format!(
            "running as process {} for {}, with {}",
            status.pid,
            clock(up),
            counted(status.connections, "connection")
        ),
    );
    let behind = status.records_end.saturating_sub(status.records_durable);
    line(
        "record log",
        format!(
            "{} B, of which {} B are not durable yet (durability {})",
            count(status.records_end),
            count(behind),
            status.durability
        ),
    );
    let limit = limit(status.bytes_max);
    line("on disk", on_disk(status.segment_bytes, &limit, oldest));
    if status.records_encoded_bytes > 0 {
        let [encoded, disk] = [status.records_encoded_bytes, status.records_disk_bytes]
            .map(|bytes| ByteSize(bytes).approximately());
        line("units", format!("{encoded} of records take {disk}"));
    }
    let stalls = match status.log_stalls {
        0 => "the writer never waited for the disk".to_owned(),
        stalls => format!(
            "the writer waited for the disk {}, {:.1} s in total",
            counted(stalls, "time"),
            Duration::from_nanos(status.log_stall_ns).as_secs_f64()
        ),
    };
    line("stalls", stalls);
    if status.rings > 0 || status.ring_dropped > 0 {
        let rings = counted(status.rings, "ring");
        let bytes = ByteSize(status.ring_bytes).approximately();
        let dropped = counted(status.ring_dropped, "record");
        line(
            "rings",
            format!("{rings} of {bytes} in all; their clients dropped {dropped}"),
        );
    }
    if status.waiting_connections > 0 {
        let waiting = counted(status.waiting_connections, "connection");
        line("waiting", format!("{waiting}, because the log is full"));
    }
    if status.pending_losses > 0 {
        let lost = counted(status.pending_losses, "lost record");
        line("losses", format!("{lost} not in loom_losses yet"));
    }
    if let Some(trouble) = &status.trouble {
        line("trouble", trouble.clone());
    }
    text
}

fn sources(status: &DaemonStatus) -> String {
    let mut table = Table::new([
        Text("source"),
        Number("received"),
        Number("stored"),
        Number("refused"),
        Number("dropped"),
        Number("payload"),
    ]);
    for source in &status.sources {
        table.row([
            source.name.clone(),
            count(source.received),
            count(source.stored),
            count(source.refused),
            count(source.dropped),
            ByteSize(source.bytes).approximately(),
        ]);
    }
    table.render()
}

/// Hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}
