//! `ingestd archive`: copies the records of a directory into Parquet files for other engines, once or periodically.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use ingestd::config::Span;
use ingestd::output::archive::{Archive, Passed, Unsigned};
use ingestd::wall_clock;
use loom_engine::Timestamp;
use loom_engine::query::{Directory, Poll};

use super::sentence;
use super::signals;
use super::stdout::{complain, say};

/// The time within which a signal ends the wait for the next pass.
const CHECK: Duration = Duration::from_millis(200);

/// Archive records as Parquet files
///
/// Each record is archived exactly once, also if the command is killed and run again. The files are PATH/source=NAME/loom_date=DATE/loom_hour=HOUR/…,
/// sorted by time; PATH/_manifest.jsonl lists them, and says up to which address of the log each source is archived. Each file is read back before it
/// counts; damaged records are skipped, reported, and noted in the manifest. A daemon may write meanwhile; the command runs at the lowest priority.
/// Retention does not wait for it, unless the configuration of the daemon has `[archive] required = true`. Records that retention removed before they
/// were archived are reported, and noted in the manifest.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ingestd archive /var/lib/loom --to /mnt/archive/web-1 --every 1h \\
    --keep-hot 10m")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,

    /// Folder of the archive of this directory alone; created if it does not exist
    #[arg(long, value_name = "PATH")]
    to: PathBuf,

    /// Source to archive; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,

    /// Archive at this interval, until SIGTERM or SIGINT; a pass that fails is reported, and the next one tries again
    #[arg(long, value_name = "T", value_parser = interval)]
    every: Option<Span>,

    /// Leave records that arrived within this time for a later pass
    #[arg(long, value_name = "T")]
    keep_hot: Option<Span>,

    /// How unsigned integers are written
    #[arg(long, value_name = "FORM", default_value = "decimal")]
    unsigned: Unsigned,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let stopped = signals::stop()?;
        // A lower priority is a courtesy, so a refusal is no error.
        let _ = rustix::process::nice(19);
        let directory = Directory::open(&self.dir)?;
        for name in &self.source {
            directory.snapshot()?.source(name)?;
        }
        let mut archive = Some(Archive::open(&directory, &self.to, self.unsigned)?);
        let stop = || stopped.load(Ordering::Relaxed);
        let poll = Poll::new(&stop);
        let mut failed_passes = 0_u64;
        loop {
            let began = Instant::now();
            let passed = self.pass(&directory, &mut archive, &poll);
            let passed = passed.and_then(|passed| {
                report(&passed)?;
                passed.failed.map_or(Ok(passed.is_interrupted), Err)
            });
            match (passed, &self.every) {
                (Ok(true), None) => bail!(
                    "interrupted: only the records that are counted above are archived; run the command again to archive the others"
                ),
                (Ok(_), _) => {}
                (Err(error), Some(_)) => {
                    failed_passes += 1;
                    complain(format_args!(
                        "{}; failed passes: {failed_passes}; the next one tries again",
                        sentence(&error)
                    ));
                    // The next pass goes on after what the folder has.
                    archive = None;
                }
                (Err(error), None) => return Err(error),
            }
            let Some(Span(every)) = self.every else {
                return Ok(ExitCode::SUCCESS);
            };
            while began.elapsed() < every {
                if stop() {
                    return Ok(ExitCode::SUCCESS);
                }
                std::thread::sleep(CHECK.min(every.saturating_sub(began.elapsed())));
            }
        }
    }

    /// Archives the records that are due; opens the archive again if a failed pass closed it.
    fn pass(
        &self,
        directory: &Arc<Directory>,
        archive: &mut Option<Archive>,
        poll: &Poll<'_>,
    ) -> anyhow::Result<Passed> {
        let archive = match archive {
            Some(archive) => archive,
            None => archive.insert(Archive::open(directory, &self.to, self.unsigned)?),
        };
        let until = self.keep_hot.map(|Span(hot)| {
            let hot = i64::try_from(hot.as_nanos()).unwrap_or(i64::MAX);
            Timestamp(wall_clock().0.saturating_sub(hot))
        });
        archive.pass(&self.source, until, poll)
    }
}

fn interval(text: &str) -> Result<Span, String> {
    let every: Span = text.parse()?;
    if every.0.is_zero() {
        return Err("it is zero; give an interval, such as 1h".to_owned());
    }
    Ok(every)
}

fn report(passed: &Passed) -> anyhow::Result<()> {
    for noted in &passed.gaps {
        complain(noted);
    }
    let Passed {
        records,
        files,
        bytes,
        ..
    } = passed;
    say(format_args!(
        "records={records} files={files} bytes={bytes}"
    ))
}
