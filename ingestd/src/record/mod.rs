//! `ingestd record`: what the kernel, the network and a program emit, into the sources of one directory.
//!
//! A capture is opened before anything changes, so that what is missing is known in time. Each runs on a thread of its own, with a
//! connection of its own to the daemon, until it ends by itself or the recording stops; what it took by then is stored.

mod blockio;
mod command;
mod devices;
mod drainer;
mod kernel_losses;
mod outlet;
mod packet_counts;
mod packets;
mod pagecache;
mod rows;
mod syscalls;
mod tally;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use loom_engine::schema::SourceDef;

use crate::client::{ClientError, LastingClient, LastingOptions, Outcome};
use crate::daemon::Daemon;
use crate::protocol::ErrorCode;
pub use blockio::blockio;
pub use command::{json, lines};
use loom_probes::{Capability, drop_all_except};
pub use loom_probes::{NAME_BYTES_MAX, Syscalls, number_of};
use outlet::Outlet;
pub use packets::Packets;
pub use pagecache::pagecache;
pub use syscalls::syscalls;
pub use tally::{Ending, Tally};

/// How often the recording looks after its captures.
const TICK: Duration = Duration::from_millis(50);

/// Something to record, open: whatever it needs is there.
pub trait Capture: Send {
    /// The source that it fills.
    fn source(&self) -> &SourceDef;

    /// A query to continue with; `dir` is quoted.
    fn query(&self, dir: &str) -> String;

    /// What the user did not say and the capture chose, in a sentence.
    fn choice(&self) -> Option<String> {
        None
    }

    /// Records from now on: what happens after it returns is taken, at the latest by `run`.
    fn begin(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Records until `stop` is set, or nothing more can come.
    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending>;
}

/// When a recording is over: once `stop` is set, or after a time.
#[derive(Clone, Debug)]
pub struct Until {
    stop: Arc<AtomicBool>,
    at: Option<Instant>,
}

impl Until {
    pub fn new(stop: &Arc<AtomicBool>, seconds: Option<u64>) -> Until {
        Until {
            stop: Arc::clone(stop),
            at: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        }
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.at.is_some_and(|at| Instant::now() >= at)
    }
}

/// What became of one capture.
pub struct Recorded {
    pub source: String,
    pub tally: Arc<Tally>,
    pub ending: anyhow::Result<Ending>,
    /// What the daemons did with the records; `None` if nobody knows.
    pub outcome: Option<Outcome>,
}

/// How a capture ended, and what the daemon did with its records.
type Ended = (anyhow::Result<Ending>, Option<Outcome>);

struct Running {
    source: String,
    tally: Arc<Tally>,
    thread: JoinHandle<Ended>,
}

/// A recording under way.
pub struct Recording {
    captures: Vec<Running>,
    stop: Arc<AtomicBool>,
}

impl Recording {
    /// Fails if a source cannot be called so, or two captures would fill one source.
    pub fn check(captures: &[Box<dyn Capture>]) -> anyhow::Result<()> {
        let names: Vec<_> = captures
            .iter()
            .map(|capture| &capture.source().name)
            .collect();
        for capture in captures {
            capture.source().validate()?;
        }
        for (place, name) in names.iter().enumerate() {
            if names.iter().take(place).any(|other| other == name) {
                bail!(
                    "two captures cannot fill the source '{name}'; name another one with --source"
                );
            }
        }
        Ok(())
    }

    /// Defines the sources and starts the captures: what happens after it returns is recorded. A daemon must run on `dir`: `own`, if it is of
    /// this process. For the successor of another one that ends, the captures wait as the options say.
    pub fn start(
        dir: &Path,
        captures: Vec<Box<dyn Capture>>,
        own: Option<&Daemon>,
        mut waiting: LastingOptions,
    ) -> anyhow::Result<Recording> {
        let sources: Vec<_> = captures.iter().map(|capture| capture.source()).collect();
        // No other daemon takes over from the one of this process.
        if own.is_some() {
            waiting.patience = Duration::ZERO;
        }
        define(&mut connect(dir, "definitions", &waiting)?, &sources)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut recording = Recording {
            captures: Vec::new(),
            stop: Arc::clone(&stop),
        };
        for mut capture in captures {
            let source = capture.source().name.clone();
            let tally = Arc::new(Tally::default());
            let mut client = connect(dir, &source, &waiting)?;
            let id = define(&mut client, &[capture.source()])?;
            let inlet = own.map(Daemon::inlet).transpose()?;
            let outlet = Outlet::new(client, inlet, id, &source, Arc::clone(&tally));
            let stop = Arc::clone(&stop);
            capture.begin()?;
            let thread = std::thread::Builder::new()
                .name("loom-record".to_owned())
                .spawn(move || run(capture, outlet, &stop))
                .context("cannot start a thread")?;
            recording.captures.push(Running {
                source,
                tally,
                thread,
            });
        }
        Ok(recording)
    }

    /// Waits until it is over, a capture fails, or all have ended. `look` is called meanwhile.
    pub fn wait(&self, until: &Until, mut look: impl FnMut(&Self)) {
        while !until.is_over()
            && !self
                .captures
                .iter()
                .all(|running| running.thread.is_finished())
            && !self
                .captures
                .iter()
                .any(|running| running.tally.has_failed())
        {
            std::thread::sleep(TICK);
            look(self);
        }
    }

    /// The sources, and what was recorded of each so far.
    pub fn tallies(&self) -> impl Iterator<Item = (&str, &Tally)> {
        let running = self.captures.iter();
        running.map(|running| (running.source.as_str(), &*running.tally))
    }

    /// Ends all captures, and stores what they took.
    pub fn stop(mut self) -> Vec<Recorded> {
        self.stop.store(true, Ordering::Relaxed);
        let join = |running: Running| {
            let (ending, outcome) = running.thread.join().unwrap_or_else(|_| {
                (
                    Err(anyhow!("the thread that recorded it has panicked")),
                    None,
                )
            });
            Recorded {
                source: running.source,
                tally: running.tally,
                ending,
                outcome,
            }
        };
        std::mem::take(&mut self.captures)
            .into_iter()
            .map(join)
            .collect()
    }
}

impl Drop for Recording {
    /// Captures of a recording that could not be started whole end too.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs one capture to its end, and says at once how it ended, if by itself: the others go on.
fn run(capture: Box<dyn Capture>, outlet: Outlet, stop: &AtomicBool) -> Ended {
    // Whoever records has all capabilities or few; none but these are used from here on.
    let _ = drop_all_except(&[Capability::Bpf, Capability::SysNice, Capability::Kill]);
    let name = outlet.source().to_owned();
    let mut ending = capture.run(&outlet, stop);
    let (finished, outcome) = outlet.finish();
    if let Err(error) = finished {
        ending = ending.and(Err(error));
    }
    match &ending {
        Ok(ending) => {
            if let Some(why) = &ending.why {
                tracing::warn!("source '{name}': {why}");
            }
        }
        Err(error) => {
            tracing::error!("source '{name}': {error:#}; what was recorded until then is kept");
        }
    }
    (ending, outcome)
}

/// What the kernel lists in one of its folders, for messages.
fn names_in(folder: &str) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.join(", ")
}

/// Connects to the daemon of the directory as the recorder of a source.
fn connect(
    dir: &Path,
    source: &str,
    waiting: &LastingOptions,
) -> Result<LastingClient, ClientError> {
    let options = LastingOptions {
        name: format!("record {source}"),
        ..waiting.clone()
    };
    LastingClient::connect_with(dir, options)
}

/// Defines all sources, or none; returns the id of the first.
fn define(
    client: &mut LastingClient,
    sources: &[&SourceDef],
) -> anyhow::Result<loom_engine::SourceId> {
    #[derive(serde::Serialize)]
    struct Sources<'a> {
        source: &'a [&'a SourceDef],
    }
    let toml = toml::to_string(&Sources { source: sources })?;
    match client.define_one(&toml) {
        Ok(source) => Ok(source),
        Err(ClientError::Daemon {
            code: ErrorCode::Definition,
            message,
        }) => bail!("{message}; record into another source with --source NAME"),
        Err(error) => Err(error.into()),
    }
}
