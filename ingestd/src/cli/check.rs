//! `ingestd check`: whether a directory is sound, and if not, what is damaged.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use ingestd::{counted, sink};
use loom_engine::check::{Report, check};
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::{Error, LogKind};

use super::stdout::say;

/// Verify every checksum and pointer, and compare the index logs with the records
///
/// Exit 0 where all is sound, 1 where something is damaged, which is named. Works beside a running daemon too.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ingestd check /var/lib/loom
  ingestd check /var/lib/loom --repair")]
pub struct Args {
    /// The Loom directory
    dir: PathBuf,

    /// Make damaged index logs anew from the records, and write the files beside the logs as a start does; not while a daemon runs. Damaged records stay as they are
    #[arg(long)]
    repair: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut report = check(&self.dir)?;
        let rebuilds = report
            .damage
            .iter()
            .any(|damage| damage.log != LogKind::Records);
        if self.repair && (rebuilds || !report.files.is_empty()) {
            tell_damage(&report)?;
            self.write_anew(rebuilds)?;
            if rebuilds {
                say("the index logs were made anew from the records")?;
            }
            if !report.files.is_empty() {
                say("the files beside the logs were written as a start writes them")?;
            }
            report = check(&self.dir)?;
        }
        tell_damage(&report)?;
        say(summary(&report))?;
        Ok(if report.is_sound() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn write_anew(&self, rebuilds: bool) -> anyhow::Result<()> {
        let open = if rebuilds {
            Writer::rebuild
        } else {
            Writer::open
        };
        match open(&self.dir, WriterOptions::default()) {
            Ok(writer) => sink::close(writer),
            Err(error @ Error::Locked { .. }) => {
                bail!("{error}; while a daemon or a load writes it, it cannot be repaired")
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn tell_damage(report: &Report) -> anyhow::Result<()> {
    // First: what is wrong with the logs may follow from them.
    for file in &report.files {
        say(format_args!("damaged: {file}"))?;
    }
    for damage in &report.damage {
        say(format_args!("damaged: {damage}"))?;
    }
    let told = report.damage.len() + report.files.len();
    let untold = report.damage_count - told as u64;
    if untold > 0 {
        say(format_args!("damaged: {} more", counted(untold, "place")))?;
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
        (report.staged_chunks, "in staging, without a checksum yet"),
        (report.open_chunks, "without a summary yet"),
        (report.gap_chunks, "lost with staging, and known to be"),
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
