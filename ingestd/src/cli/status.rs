//! `ingestd status`: the state of the daemon and of each source, once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ingestd::client::{Client, ClientError};
use ingestd::config::ByteSize;
use ingestd::counted;
use ingestd::daemon::DaemonStatus;
use ingestd::rfc3339;
use loom_engine::query::Directory;

use super::stdout::show;
use super::table::Column::{Number, Text};
use super::table::{Table, count};

/// Show the state of the daemon and the counts of each source
///
/// The counts are since the daemon started. If none runs, it shows what each source holds.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd status /var/lib/loom")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let client = match Client::connect(&self.dir) {
            Ok(client) => client,
            Err(ClientError::NotRunning(_)) => {
                show(from_the_directory(
                    &self.dir,
                    "none; another process writes the directory",
                )?)?;
                return Ok(ExitCode::SUCCESS);
            }
            // The directory's group may read it and need not be allowed to push.
            Err(ClientError::NotAllowed(_)) => {
                show(from_the_directory(
                    &self.dir,
                    "running; this user may not use its socket",
                )?)?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error.into()),
        };
        let status = DaemonStatus::from_json(&client.status()?)?;
        show(heading(&status, oldest(&self.dir).as_deref()) + &sources(&status))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The state that the directory itself shows if no daemon answers: what each source holds. A living writer is shown as `alive`.
fn from_the_directory(dir: &Path, alive: &str) -> anyhow::Result<String> {
    let directory = Directory::open(dir)?;
    let snapshot = directory.snapshot()?;
    let writer = if directory.status()?.writer.alive {
        alive
    } else {
        "not running"
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
    Ok(format!(
        "{:<12} {writer}\n{:<12} {held} B\n{}",
        "daemon",
        "record log",
        table.render()
    ))
}

/// The time of the oldest record that the directory holds. It is no part of the daemon's answer, and this user may not read the directory.
pub(super) fn oldest(dir: &Path) -> Option<String> {
    let snapshot = Directory::open(dir).and_then(|dir| dir.snapshot()).ok()?;
    snapshot.oldest_ts().ok()?.map(rfc3339)
}

/// The daemon's own lines.
pub(super) fn heading(status: &DaemonStatus, oldest: Option<&str>) -> String {
    let mut text = String::new();
    let up = Duration::from_secs(Duration::from_nanos(status.uptime_ns).as_secs());
    let mut line = |key: &str, value: String| {
        text += &format!("{key:<12} {value}\n");
    };
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
    let limit = match status.bytes_max {
        Some(bytes) => format!("of at most {}", ByteSize(bytes).approximately()),
        None => "without a limit (max_bytes)".to_owned(),
    };
    let oldest = oldest.map_or_else(String::new, |time| {
        format!("; the oldest record arrived at {time}")
    });
    let held = ByteSize(status.segment_bytes).approximately();
    line("on disk", format!("{held} {limit}{oldest}"));
    if status.column_segments > 0 {
        let segments = counted(status.column_segments, "segment");
        let [rows, columns] = [status.column_rows_bytes, status.column_bytes]
            .map(|bytes| ByteSize(bytes).approximately());
        line("columns", format!("{segments} of {rows} take {columns}"));
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
