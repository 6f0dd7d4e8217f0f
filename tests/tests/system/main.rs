//! The promises of `engine/TESTING.md` against the whole system: daemons that are killed, disks that fail or lose their power, clocks that
//! jump, readers that are stopped.
//!
//! Each test takes a sample that fits CI, with a printed seed; `LOOM_SEED` repeats it, `LOOM_SECONDS` lasts longer, `LOOM_ALL=1` leaves
//! nothing out.

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

/// A daemon whose blocks and segments are small, so that a short run uses many of them.
const SMALL: &str = "[log]\nchunk = \"4KiB\"\nblock = \"64KiB\"\nsegment = \"1MiB\"\n";

/// A place for a directory and its staging, which goes with it.
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

    /// `config`, which begins with the table `[log]`, with staging in this place.
    fn config(&self, config: &str) -> String {
        let staging = format!("[log]\nstaging = \"{}\"\n", self.staging.path().display());
        config.replacen("[log]\n", &staging, 1)
    }
}

/// What a directory holds, read on a thread of its own: each keeps files open, which would keep a file system from being unmounted.
fn look(dir: &Path) -> Result<Holding> {
    apart(|| Holding::of(dir))
}

fn apart<T: Send>(read: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| joined(scope.spawn(read)))
}

/// What a thread gave, once it ends.
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

/// After whatever befell it, a plain daemon starts on the directory, which then holds what `life` says, and a ledger that says the rest;
/// after its stop the directory is sound. Gives what it holds.
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

/// How long a test that lasts is to last: `LOOM_SECONDS`, or what CI has time for.
fn seconds(otherwise: u64) -> Duration {
    let given = std::env::var("LOOM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(otherwise))
}

/// Whether the whole is asked for, not a sample.
fn all() -> bool {
    std::env::var_os("LOOM_ALL").is_some()
}
