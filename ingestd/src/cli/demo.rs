//! `ingestd demo`: runs a daemon, and a generator that feeds it over its socket for a while.
//!
//! `ingestd::demo` defines the generated sources, the needles and the truth file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ingestd::client::{Client, ClientOptions};
use ingestd::config::{ByteSize, Config};
use ingestd::daemon::Daemon;
use ingestd::demo::{self, DemoOptions, NEEDLES};
use ingestd::quoted;
use signal_hook::consts::{SIGINT, SIGTERM};
use tracing::Level;

use super::run::{catch_signals, log_to_stderr, stop};
use super::stdout::{complain, say};

/// Generate example data with a daemon of its own
///
/// Runs a daemon on DIR that records generated requests, system calls and packets of a Redis host. Among them are six needles: a mangled
/// packet that causes a slow system call and a slow request. They lie in the last 30 seconds of the run. Query DIR meanwhile or later; the
/// demo keeps it.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ingestd demo demo.loom --seconds 60 --rate 2000000 --truth truth.jsonl"
)]
pub struct Args {
    /// Loom directory; created if it does not exist
    dir: PathBuf,
    /// Seconds to run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Records per second, of the three sources together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: u64,
    /// Size of all log files; the oldest records go first
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    keep: ByteSize,
    /// Write the ids and times of the six needles to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Take further settings of the daemon from this file, such as rules
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Only warnings are logged, so that the printed query stays visible.
        log_to_stderr(Level::WARN);
        // A signal during the start of the daemon ends the run too.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .context("cannot catch signals")?;
        }
        let signals = catch_signals()?;
        let daemon = Daemon::start(&self.dir, &self.config()?, false)?;
        let options = ClientOptions {
            name: "demo".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::connect_with(&self.dir, options)?;
        let dir = self.dir.display().to_string();
        complain(format_args!(
            "writing {} records/s into '{dir}' for {} s; Ctrl-C ends it. Query it meanwhile, and later:\n  \
             SELECT count, max, p99_99 FROM loom_aggregate({}, 'redis_request', 'latency', quantiles := [0.9999]);",
            self.rate,
            self.seconds,
            quoted(&dir)
        ));
        let report = demo::run(
            &client,
            &DemoOptions {
                rate: self.rate,
                duration: Duration::from_secs(self.seconds),
                keep_bytes: self.keep.0,
                seed: seed(),
                truth: self.truth,
            },
            &interrupted,
        )?;
        drop(client);
        // The signal that ended the run must not end the stop of the daemon.
        while signals.try_recv().is_ok() {}
        stop(daemon, &signals)?;
        let counts = report.counts;
        say(format_args!(
            "{:.1} s, received={} stored={} refused={} dropped={}, {:.2} M records/s",
            report.elapsed.as_secs_f64(),
            counts.received,
            counts.stored,
            counts.refused,
            counts.dropped,
            counts.stored as f64 / report.elapsed.as_secs_f64() / 1e6
        ))?;
        if report.needles.len() < NEEDLES && !interrupted.load(Ordering::Relaxed) {
            bail!(
                "only {} of {NEEDLES} needles were generated: the time was too short; use a lower --rate or more --seconds",
                report.needles.len()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    fn config(&self) -> anyhow::Result<Config> {
        let (segment, keep) = (ByteSize(demo::SEGMENT_BYTES), self.keep);
        let own = format!("log.segment = '{segment}'\nretention.max_bytes = '{keep}'\n");
        let config = |text: &str| Config::parse(text).map_err(|error| anyhow!(error.message));
        let kept = config(&own).with_context(|| format!("cannot use --keep {keep}"))?;
        let Some(file) = &self.config else {
            return Ok(kept);
        };
        let more = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read '{}'", file.display()))?;
        config(&format!("{own}{more}")).with_context(|| {
            let file = file.display();
            match config(&more) {
                Ok(_) => format!(
                    "cannot use --config '{file}': it sets [log] or [retention], which the demo sets itself; leave them out, and use --keep for the size"
                ),
                Err(_) => format!("cannot use --config '{file}'"),
            }
        })
    }
}

/// A random seed, so that only the truth file has the needles.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
