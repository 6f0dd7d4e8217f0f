//! The promises of `engine/TESTING.md` for the whole system: daemons that are killed, disks that fail or lose their power, clocks that
//! jump, readers that are stopped.
//!
//! Each test takes a sample that fits CI, with a printed seed. `LOOM_SEED` repeats it, `LOOM_SECONDS` makes it run longer, and `LOOM_ALL=1`
//! tries everything.

mod clocks;
mod containers;
mod faults;
mod kills;
mod overload;
mod pace;
mod power;
mod readers;

use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use loom_engine::check::check;
use loom_tests::daemon::Daemon;
use loom_tests::producer::{Holding, Life, losses_recorded};
use tempfile::TempDir;

/// Small blocks and segments, so that a short run uses many of them.
const SMALL: &str = "[log]\nchunk = \"4KiB\"\nblock = \"64KiB\"\nsegment = \"1MiB\"\n";

/// A place for a directory and its staging, which is removed with it.
struct Place {
    dir: PathBuf,
    staging: TempDir,
    _root: TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let root = tempfile::tempdir()?;
        Place::at(root.path().to_owned(), root)
    }

    /// A directory within `within`.
    fn at(within: PathBuf, root: TempDir) -> Result<Place> {
        Ok(Place {
            dir: within.join("system.loom"),
            staging: TempDir::new_in("/dev/shm")?,
            _root: root,
        })
    }

    /// Adds staging in this place to `config`, which begins with the table `[log]`.
    fn config(&self, config: &str) -> String {
        let staging = format!("[log]\nstaging = \"{}\"\n", self.staging.path().display());
        config.replacen("[log]\n", &staging, 1)
    }
}

/// Reads a directory's records on a thread of its own, because each thread keeps files open, which would keep a file system from being
/// unmounted.
fn look(dir: &Path) -> Result<Holding> {
    apart(|| Holding::of(dir))
}

fn apart<T: Send>(read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| joined(scope.spawn(read)))
}

/// Waits for a thread and returns its result.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    let outcome = thread.join();
    outcome.map_err(|_| anyhow::anyhow!("a thread panicked"))?
}

/// Fails unless `ingestd check` would call the directory sound.
fn sound(dir: &Path) -> Result<()> {
    let report = apart(|| Ok(check(dir)?))?;
    ensure!(report.is_sound(), "{report:?}");
    Ok(())
}

/// Starts a plain daemon on a directory after any event. The directory must then hold the records of `life`, and the ledger the rest; after
/// the stop it must be sound. Returns the records.
fn settle(dir: &Path, config: &str, life: &Life, refused_before: u64) -> Result<Holding> {
    let daemon = Daemon::start(dir, config)?;
    losses_recorded(dir)?;
    let holding = look(dir)?;
    life.hold(holding.end)?;
    let refused = holding.refused - refused_before;
    let expected = life.refused(&holding);
    ensure!(
        expected.contains(&refused),
        "{refused} misfits are in the ledger, not {expected:?}"
    );
    daemon.stop()?;
    let stopped = look(dir)?;
    ensure!(
        stopped == holding,
        "the stop changed what is there from {holding:?} to {stopped:?}"
    );
    sound(dir)?;
    Ok(holding)
}

/// How long a test runs: `LOOM_SECONDS`, or the time that CI has.
fn seconds(otherwise: u64) -> Duration {
    let given = std::env::var("LOOM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(otherwise))
}

/// Whether to try everything instead of a sample.
fn all() -> bool {
    std::env::var_os("LOOM_ALL").is_some()
}
