//! `ingestd check`: verifies a directory, and lists damage.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use ingestd::{counted, sink};
use loom_engine::check::{Report, check_with};
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::{Error, LogKind};

use super::progress::progress_bar;
use super::stdout::say;

/// Verify every checksum and pointer of a Loom directory
///
/// It also compares the index logs with the records, prints a line for each damage, and changes nothing. A daemon may run meanwhile. The exit status
/// is 0 if the directory is sound, and 1 if it is damaged. On a terminal it shows the progress and the remaining time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd check /var/lib/loom
  ingestd check /var/lib/loom --repair")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,

    /// Rebuild damaged index logs from the records, and rewrite damaged files beside the logs and directories of segments; stop the daemon
    /// first. Damaged records stay as they are
    #[arg(long)]
    repair: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut report = self.check()?;
        let rebuilds = report
            .damage
            .iter()
            .any(|damage| damage.log != LogKind::Records);
        if self.repair && (rebuilds || !report.files.is_empty()) {
            show_damage(&report)?;
            self.repair(rebuilds)?;
            if rebuilds {
                say("rebuilt the index logs from the records")?;
            }
            if !report.files.is_empty() {
                say("rewrote the damaged files")?;
            }
            report = self.check()?;
        }
        show_damage(&report)?;
        say(summary(&report))?;
        Ok(if report.is_sound() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn check(&self) -> anyhow::Result<Report> {
        let bar = progress_bar("{bytes} of {total_bytes} checked ({percent} %), {eta} left");
        let report = check_with(&self.dir, &mut |progress| {
            bar.set_length(progress.bytes_in_all);
            bar.set_position(progress.bytes);
        });
        bar.finish_and_clear();
        Ok(report?)
    }

    fn repair(&self, rebuilds: bool) -> anyhow::Result<()> {
        let open = if rebuilds {
            Writer::rebuild
        } else {
            Writer::open
        };
        match open(&self.dir, WriterOptions::default()) {
            Ok(writer) => {
                writer.mend()?;
                Ok(sink::close(writer)?)
            }
            Err(error @ Error::Locked { .. }) => {
                bail!("cannot repair: {error}; stop the daemon or load that writes it")
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn show_damage(report: &Report) -> anyhow::Result<()> {
    // Damaged files come first, because they may cause the damage of the logs.
    for file in &report.files {
        say(format_args!("damaged: {file}"))?;
    }
    for damage in &report.damage {
        say(format_args!("damaged: {damage}"))?;
    }
    let shown = report.damage.len() + report.files.len();
    let more = report.damage_count - shown as u64;
    if more > 0 {
        say(format_args!("damaged: {}", counted(more, "more place")))?;
    }
    Ok(())
}

fn summary(report: &Report) -> String {
    let verdict = match report.damage_count {
        0 => "sound".to_owned(),
        1 => "damaged in 1 place".to_owned(),
        count => format!("damaged in {count} places"),
    };
    let Report {
        chunks,
        records,
        nodes,
        ..
    } = report;
    let mut summary = format!(
        "{verdict}: {} in {}, {} of summaries and roll-ups",
        counted(*records, "record"),
        counted(*chunks, "chunk"),
        counted(*nodes, "node")
    );
    for (count, what) in [
        (
            report.staged_chunks,
            "in staging, read without their checksums",
        ),
        (report.open_chunks, "without a summary yet"),
        (
            report.gap_chunks,
            "lost with staging and listed in loom_losses()",
        ),
    ] {
        if count > 0 {
            summary += &format!("; {} {what}", counted(count, "chunk"));
        }
    }
    if report.pending_losses > 0 {
        let causes = counted(report.pending_losses, "cause");
        summary +=
            &format!("; pending losses of {causes}, which the next start records in loom_losses");
    }
    summary
}
