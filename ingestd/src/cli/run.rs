//! `ingestd run`: runs the daemon in the foreground; signals stop and reconfigure it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use tracing::Level;

use super::service;

/// The interval of checks of the daemon's threads.
const CHECK: Duration = Duration::from_millis(500);
/// A further signal within this time is the same request: `timeout` and other programs signal both the process and its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Run the daemon on a Loom directory
///
/// It runs in the foreground and logs to standard error. SIGTERM or SIGINT stops it after all records are on disk. On SIGHUP it reads the
/// configuration again.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ingestd run /var/lib/loom --config /etc/loom/loom.toml

'ingestd validate --keys' prints every key of the configuration.")]
pub struct Args {
    /// Loom directory; created if it does not exist
    dir: PathBuf,
    /// Configuration (TOML); if omitted, every key has its default and clients define the sources
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Start even if the newest record is more than a day ahead of the clock
    #[arg(long)]
    accept_clock: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        log_to_stderr(Level::INFO);
        // Signals are caught before anything starts that they must not interrupt.
        let signals = catch_signals()?;
        let config = load_config(self.config.as_deref())?;
        let daemon = Daemon::start(&self.dir, &config, self.accept_clock)?;
        for address in daemon.otlp_addresses() {
            tracing::info!("receiving OTLP on {address}");
        }
        // This is the last line of a start.
        tracing::info!("listening on {}/ingest.sock", self.dir.display());
        let recording = format!("recording into {}", self.dir.display());
        service::ready(&recording);
        loop {
            match signals.recv_timeout(CHECK) {
                Ok(SIGHUP) => {
                    service::reloading();
                    reload(&daemon, self.config.as_deref())?;
                    service::ready(&recording);
                }
                Ok(_) => break,
                Err(RecvTimeoutError::Timeout) if daemon.is_alive() => {
                    service::feed_watchdog(&daemon);
                }
                Err(_) => break,
            }
        }
        service::stopping();
        stop(daemon, &signals)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Logs messages from this level on to standard error.
pub(super) fn log_to_stderr(least: Level) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(least)
        .with_target(false)
        .init();
}

/// Receives the signals from now on.
pub(super) fn catch_signals() -> anyhow::Result<Receiver<i32>> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ]).context("cannot catch signals")?;
    let (sender, receiver) = unbounded();
    std::thread::Builder::new()
        .name("loom-signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                // The flusher handles the failed write when a file has reached its size limit.
                if signal == SIGXFSZ {
                    continue;
                }
                if sender.send(signal).is_err() {
                    return;
                }
            }
        })?;
    Ok(receiver)
}

/// Stops cleanly; a SIGTERM or SIGINT more than a second later ends the process at once, and the next start recovers.
pub(super) fn stop(daemon: Daemon, signals: &Receiver<i32>) -> anyhow::Result<()> {
    tracing::info!("stopping");
    let impatient = signals.clone();
    let first = Instant::now();
    std::thread::Builder::new()
        .name("loom-impatience".to_owned())
        .spawn(move || {
            while let Ok(signal) = impatient.recv() {
                if signal != SIGHUP && first.elapsed() >= SAME_REQUEST {
                    tracing::warn!("a second signal ended the daemon at once; the next start recovers its records");
                    std::process::exit(1);
                }
            }
        })?;
    daemon.stop()?;
    tracing::info!("stopped; all records are durable");
    Ok(())
}

pub(super) fn load_config(path: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = path else {
        return Ok(Config::default());
    };
    match Config::load(path) {
        Ok(config) => Ok(config),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}

/// Applies a changed configuration. An invalid one, or one that the next start would refuse, is reported and changes nothing.
fn reload(daemon: &Daemon, path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else {
        tracing::warn!(
            "SIGHUP has no effect: the daemon was started without --config, so there is no file to read again"
        );
        return Ok(());
    };
    let refused = match Config::load(path) {
        Err(error) => error.to_string(),
        Ok(config) => match daemon.reload(&config) {
            Err(error) if daemon.is_alive() => error.to_string(),
            notes => {
                for note in notes? {
                    tracing::warn!("{note}");
                }
                tracing::info!("the configuration {} is in effect", path.display());
                return Ok(());
            }
        },
    };
    tracing::error!(
        "cannot apply the configuration {}: {refused}; the previous one stays in effect",
        path.display()
    );
    Ok(())
}
