//! `ingestd status`: shows the state of the daemon and of each source, or the staging files of all writers.

use std::borrow::Cow;
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
use serde::Serialize;

use super::form::Form;
use super::run::load_config;
use super::state::State;
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
  ingestd status /var/lib/loom --json
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

    #[command(flatten)]
    form: Form,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match (&self.dir, &self.staging) {
            (Some(dir), _) => self.directory(dir)?,
            (None, Some(folder)) => staging(folder, self.form)?,
            (None, None) => unreachable!("the command line has one of them"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn directory(&self, dir: &Path) -> anyhow::Result<()> {
        match Client::connect(dir) {
            Ok(client) => {
                let status = DaemonStatus::from_json(&client.status()?)?;
                let oldest = oldest(dir);
                self.form.answer(
                    || State::of_daemon(&status, oldest.clone(), None),
                    || heading(&status, oldest.as_deref()) + &sources(&status),
                )
            }
            Err(ClientError::NotRunning(_)) => self.without_an_answer(dir, Silent::OTHER_WRITER),
            // The group that may read the directory is not always allowed to push.
            Err(ClientError::NotAllowed(_)) => self.without_an_answer(dir, Silent::NOT_PERMITTED),
            Err(error) => Err(error.into()),
        }
    }

    /// Shows the directory if no daemon answers. `alive` is why, if it has a living writer.
    fn without_an_answer(&self, dir: &Path, alive: Silent) -> anyhow::Result<()> {
        let retention = match &self.config {
            None => None,
            Some(config) => Some(load_config(Some(config))?.retention),
        };
        let bytes_max = retention.map(|retention| retention.max_bytes);
        let bytes_max = bytes_max.map(|bytes| bytes.map(|bytes| bytes.get_ref().0));
        let directory = Directory::open(dir)?;
        let snapshot = directory.snapshot()?;
        let silent = match directory.status()?.writer.alive {
            true => alive,
            false => Silent::NOT_RUNNING,
        };
        let state = State::of_directory(&directory, &snapshot, silent.name, bytes_max.flatten())?;
        let limit = bytes_max.map_or(Cow::Borrowed("; --config shows the limit"), limit);
        self.form
            .answer(|| &state, || state.of_files(silent.shown, &limit))
    }
}

/// Why no daemon answers: its name in the document, and its words in the text.
struct Silent {
    name: &'static str,
    shown: &'static str,
}

impl Silent {
    const NOT_RUNNING: Silent = Silent {
        name: "not_running",
        shown: "not running",
    };
    const OTHER_WRITER: Silent = Silent {
        name: "other_writer",
        shown: "none; another process writes the directory",
    };
    const NOT_PERMITTED: Silent = Silent {
        name: "not_permitted",
        shown: "running; this user may not use its socket",
    };
}

impl State {
    /// The lines about the directory, and the records of each source.
    fn of_files(&self, daemon: &str, limit: &str) -> String {
        let mut table = Table::new([
            Text("source"),
            Number("records"),
            Number("in the log"),
            Text("state"),
        ]);
        for source in &self.sources {
            table.row([
                source.name.clone(),
                count(source.records.unwrap_or_default()),
                ByteSize(source.record_bytes.unwrap_or_default()).approximately(),
                match source.closed {
                    Some(true) => "closed",
                    _ => "open",
                }
                .to_owned(),
            ]);
        }
        let [begin, end] = [self.records_begin_bytes, self.records_end_bytes];
        let held = end.unwrap_or_default() - begin.unwrap_or_default();
        let segment_bytes = self.segment_bytes.unwrap_or_default();
        let lines = [
            line("daemon", daemon),
            line("record log", &format!("{} B", count(held))),
            line(
                "on disk",
                &on_disk(segment_bytes, limit, self.oldest_at.as_deref()),
            ),
        ];
        lines.concat() + &table.render()
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
fn limit(bytes_max: Option<u64>) -> Cow<'static, str> {
    match bytes_max {
        Some(bytes) => format!(" of at most {}", ByteSize(bytes).approximately()).into(),
        None => " without a limit (max_bytes)".into(),
    }
}

/// The document of `status --staging --json`.
#[derive(Serialize)]
struct Staging {
    staging_files: Vec<StagingFile>,
}

#[derive(Serialize)]
struct StagingFile {
    path: PathBuf,
    bytes: u64,
    /// `runs`, `none` for an orphan, or `unknown`.
    writer: &'static str,
    dir: Option<PathBuf>,
    /// The remedy for the file, or the reason why its writer is unknown.
    note: Option<String>,
}

/// Lists the staging files in a folder, and what to do about orphans.
fn staging(folder: &Path, form: Form) -> anyhow::Result<()> {
    let files = staging_files(folder)?.into_iter().map(|file| {
        let (writer, note) = match &file.holder {
            Holder::Writer => ("runs", None),
            Holder::Nobody => ("none", Some(remedy(&file))),
            Holder::Unknown(why) => ("unknown", Some(why.to_string())),
        };
        StagingFile {
            writer,
            note,
            path: file.path,
            bytes: file.bytes,
            dir: file.dir,
        }
    });
    let staging = Staging {
        staging_files: files.collect(),
    };
    form.answer(|| &staging, || staging.text(folder))
}

impl Staging {
    fn text(&self, folder: &Path) -> String {
        if self.staging_files.is_empty() {
            return format!("no staging files in {}\n", folder.display());
        }
        let mut table = Table::new([
            Text("staging file"),
            Number("size"),
            Text("writer"),
            Text("directory"),
        ]);
        let mut notes = String::new();
        for file in &self.staging_files {
            let path = file.path.display();
            let writer = match file.writer {
                "none" => "none: orphan",
                writer => writer,
            };
            let dir = file.dir.as_ref().map(|dir| dir.display().to_string());
            table.row([
                path.to_string(),
                ByteSize(file.bytes).approximately(),
                writer.to_owned(),
                dir.unwrap_or_else(|| "unknown".to_owned()),
            ]);
            if let Some(note) = &file.note {
                let colon = if file.writer == "unknown" { ":" } else { "" };
                notes += &format!("{path}{colon} {note}\n");
            }
        }
        table.render() + &notes
    }
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
