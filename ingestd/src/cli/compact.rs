//! `ingestd compact`: what is old of a directory, column by column.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use ingestd::config::ByteSize;
use ingestd::{counted, sink};
use loom_engine::Error;
use loom_engine::compact::{Compacted, Compactor};
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::storage::OsStorage;

use super::progress::progress_bar;
use super::signals;
use super::stdout::say;

/// Rewrite the record log of a Loom directory column by column
///
/// Column segments take a fraction of the space, and every answer stays as it is. Segments that are full are rewritten, one by one; the one that records
/// go on in stays as it is. Stop the daemon first. Ctrl-C ends it after what is done; the next run goes on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd compact /var/lib/loom")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupted = signals::stop()?;
        // Fails where there is no directory, which a writer would make.
        let compactor = Compactor::open(&self.dir, OsStorage::default())?;
        // Holds the lock, and has made durable what the last writer left.
        let writer = match Writer::open(&self.dir, WriterOptions::default()) {
            Ok(writer) => writer,
            Err(error @ Error::Locked { .. }) => {
                bail!("cannot compact: {error}; stop the daemon or load that writes it")
            }
            Err(error) => return Err(error.into()),
        };
        let done = compact(compactor, &interrupted);
        sink::close(writer)?;
        done
    }
}

fn compact(mut compactor: Compactor, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    let bar = progress_bar("{spinner} {pos} of {len} segments, {elapsed}");
    bar.set_length(compactor.waiting()?);
    let (mut segments, mut rows, mut columns, mut left) = (0, 0, 0, 0);
    while let Some(compacted) = compactor.step(|| !is_interrupted())? {
        match compacted {
            Compacted::Columns {
                rows_bytes,
                column_bytes,
            } => {
                segments += 1;
                rows += rows_bytes;
                columns += column_bytes;
            }
            Compacted::StaysRows => left += 1,
            Compacted::Stopped => break,
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut line = format!("compacted {}", counted(segments, "segment"));
    if segments > 0 {
        let [rows, columns] = [rows, columns].map(|bytes| ByteSize(bytes).approximately());
        line += &format!(": {rows} take {columns} now");
    }
    if left > 0 {
        let stay = counted(left, "segment");
        line += &format!("; {stay} would shrink by less than a quarter and stayed as before");
    }
    say(line)?;
    if is_interrupted() {
        say("interrupted; run it again to go on")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
