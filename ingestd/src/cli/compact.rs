//! `ingestd compact`: rewrites the record log of a directory as columns.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, bail};
use ingestd::config::ByteSize;
use ingestd::{counted, sink};
use loom_engine::Error;
use loom_engine::compact::{Compacted, Compactor};
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::storage::OsStorage;
use loom_engine::log::{LogOptions, Opening, Recovered};

use super::progress::progress_bar;
use super::signals;
use super::stdout::say;

/// Rewrite the record log of a Loom directory column by column
///
/// Column segments take a fraction of the space, and no answer changes. Segments are rewritten one by one; meanwhile the columns of one segment need
/// additional space. Stop the daemon first; when it starts again, it rewrites the last segment as rows, where it continues. Ctrl-C ends the command;
/// the next run goes on.
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
        // This fails if there is no directory; a writer would create one.
        let compactor = Compactor::open(&self.dir, OsStorage::default())?;
        let lock = self.lock()?;
        lock.tidy()?;
        compact(compactor, &interrupted)
    }

    /// Takes the writer's lock. It allocates nothing, so that a directory on a full disk can be compacted.
    fn lock(&self) -> anyhow::Result<Opening> {
        let open = || Opening::open(&self.dir, &LogOptions::default()).map_err(refused);
        let opening = open()?;
        if opening.how() == Recovered::Clean {
            return Ok(opening);
        }
        // A writer makes durable what the last one left.
        drop(opening);
        let writer = Writer::open(&self.dir, WriterOptions::default()).map_err(refused)?;
        sink::close(writer)?;
        open()
    }
}

fn refused(error: Error) -> anyhow::Error {
    match error {
        error @ Error::Locked { .. } => {
            anyhow!("cannot compact: {error}; stop the daemon or load that writes it")
        }
        error => error.into(),
    }
}

fn compact(mut compactor: Compactor, interrupted: &AtomicBool) -> anyhow::Result<ExitCode> {
    let is_interrupted = || interrupted.load(Ordering::Relaxed);
    let bar = progress_bar("{spinner} {pos} of {len} segments, {elapsed}");
    let durable = compactor.durable()?;
    bar.set_length(compactor.waiting(durable)?.len() as u64);
    let mut done = Done::default();
    loop {
        match compactor.step(durable, || !is_interrupted()) {
            Ok(Some(Compacted::Stopped)) | Ok(None) => break,
            Ok(Some(compacted)) => done.add(compacted),
            Err(error) => {
                done.failures.push(error);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    say(&done)?;
    if let Some((error, others)) = done.failures.split_first() {
        let others = match others.len() {
            0 => String::new(),
            others => format!(" (and {others} more like it)"),
        };
        bail!(
            "{error}{others}; what is not compacted stays as before: mend this, and run it again to go on"
        );
    }
    if is_interrupted() {
        say("interrupted; run it again to go on")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The results so far.
#[derive(Default)]
struct Done {
    segments: u64,
    rows_bytes: u64,
    column_bytes: u64,
    left: u64,
    failures: Vec<Error>,
}

impl Done {
    fn add(&mut self, compacted: Compacted) {
        match compacted {
            Compacted::Columns {
                rows_bytes,
                column_bytes,
            } => {
                self.segments += 1;
                self.rows_bytes += rows_bytes;
                self.column_bytes += column_bytes;
            }
            Compacted::StaysRows => self.left += 1,
            Compacted::Failed(error) => self.failures.push(error),
            Compacted::Stopped => {}
        }
    }
}

impl Display for Done {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "compacted {}", counted(self.segments, "segment"))?;
        if self.segments > 0 {
            let [rows, columns] =
                [self.rows_bytes, self.column_bytes].map(|bytes| ByteSize(bytes).approximately());
            write!(f, ": {rows} take {columns} now")?;
        }
        if self.left > 0 {
            let stay = counted(self.left, "segment");
            write!(
                f,
                "; {stay} would shrink by less than a quarter and stayed as before"
            )?;
        }
        Ok(())
    }
}
