//! Records events of the kernel, the network and a program into the sources of one directory, for `ingestd record`.
//!
//! A capture is opened before anything changes, so that missing prerequisites are known in time. Each capture runs on its own thread with its own
//! connection to the daemon, until it ends or the recording stops; everything that it took is stored.

mod blockio;
mod budget;
mod cgroups;
mod command;
mod devices;
mod drainer;
mod function;
mod kernel_losses;
mod outlet;
mod packet_counts;
mod packets;
mod pagecache;
mod process;
mod profile;
mod rows;
mod sched;
mod syscalls;
mod tally;
mod tcp;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use loom_engine::schema::SourceDef;

use crate::client::{ClientError, LastingClient, LastingOptions, Outcome};
use crate::daemon::Daemon;
use crate::protocol::ErrorCode;
pub use blockio::blockio;
pub use budget::{Meter, Share, Usage};
pub use cgroups::cgroups;
pub use command::{json, lines};
pub use function::function;
pub use loom_probes::{
    ARGS_MAX, Argument, Cgroup, Function, HZ_MAX, NAME_BYTES_MAX, Processes, Profile, Sched,
    Selection, Syscalls, Target, Tcp, ValueType, number_of,
};
use loom_probes::{Capability, drop_all_except};
use outlet::Outlet;
pub use packets::Packets;
pub use pagecache::pagecache;
pub use process::process;
pub use profile::profile;
pub use sched::sched;
pub use syscalls::syscalls;
pub use tally::{Ending, Tally};
pub use tcp::tcp;

/// The interval at which the recording checks its captures.
const TICK: Duration = Duration::from_millis(50);

/// An open capture, which has everything that it needs.
pub trait Capture: Send {
    fn source(&self) -> &SourceDef;

    /// A query for the user to begin with; `dir` is quoted.
    fn query(&self, dir: &str) -> String;

    /// A sentence about a choice that the user left to the capture.
    fn choice(&self) -> Option<String> {
        None
    }

    /// The capabilities that recording needs once everything is open.
    fn capabilities(&self) -> &'static [Capability] {
        &[Capability::Bpf, Capability::SysNice, Capability::Kill]
    }

    /// Whether it only explains the records of other captures, and ends with them.
    fn accompanies(&self) -> bool {
        false
    }

    /// The least time of an event that it records; `None` if events take no time, so that it cannot record less.
    fn least(&self) -> Option<Duration> {
        None
    }

    /// Begins to record: `run` stores everything that happens after this returns.
    fn begin(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Records until `stop` is set or no more events can come.
    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending>;
}

/// The result of one capture.
pub struct Recorded {
    pub source: String,
    pub tally: Arc<Tally>,
    pub ending: anyhow::Result<Ending>,
    /// The fate of the records; `None` if it is unknown.
    pub outcome: Option<Outcome>,
}

/// The end of a capture, and the fate of its records.
type Ended = (anyhow::Result<Ending>, Option<Outcome>);

struct Running {
    source: String,
    tally: Arc<Tally>,
    accompanies: bool,
    thread: JoinHandle<Ended>,
}

/// A running recording.
pub struct Recording {
    captures: Vec<Running>,
    stop: Arc<AtomicBool>,
    /// Where the daemon of this process finds the time of the programs in the kernel.
    programs_ns: Option<Arc<AtomicU64>>,
}

impl Recording {
    /// Fails if the name of a source is invalid or two captures have the same source.
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
                    "two captures cannot fill the source '{name}'; name another one with --source, or with --stacks for the stacks of a profile"
                );
            }
        }
        Ok(())
    }

    /// Defines the sources and starts the captures: everything that happens after it returns is recorded. A daemon must run on `dir`: `own`, if it is
    /// in this process. If another daemon ends, the captures wait for the next one as the options say.
    pub fn start(
        dir: &Path,
        mut captures: Vec<Box<dyn Capture>>,
        own: Option<&Daemon>,
        mut waiting: LastingOptions,
    ) -> anyhow::Result<Recording> {
        // No other daemon succeeds the one of this process.
        if own.is_some() {
            waiting.patience = Duration::ZERO;
        }
        let mut client = connect(dir, "definitions", &waiting)?;
        let asked = captures.iter().filter(|capture| !capture.accompanies());
        let asked: Vec<_> = asked.map(|capture| capture.source()).collect();
        define(&mut client, &asked).map_err(|error| match error {
            ClientError::Daemon {
                code: ErrorCode::Definition,
                message,
            } => anyhow!("{message}; or record into another source with --source NAME"),
            error => error.into(),
        })?;
        captures.retain(|capture| {
            let defined = match capture.accompanies() {
                true => define(&mut client, &[capture.source()]).map(drop),
                false => Ok(()),
            };
            if let Err(why) = &defined {
                let name = &capture.source().name;
                tracing::warn!("source '{name}' is not recorded: {why}");
            }
            defined.is_ok()
        });
        drop(client);
        let stop = Arc::new(AtomicBool::new(false));
        let mut recording = Recording {
            captures: Vec::new(),
            stop: Arc::clone(&stop),
            programs_ns: own.map(|daemon| Arc::clone(daemon.programs_ns())),
        };
        for mut capture in captures {
            let source = capture.source().name.clone();
            let tally = Arc::new(Tally::new(capture.least()));
            let mut client = connect(dir, &source, &waiting)?;
            let def = capture.source();
            let fields = def.fields.len();
            let id = define(&mut client, &[def])?;
            let inlet = own.map(Daemon::inlet).transpose()?;
            // A recording before this one may have had more.
            if let Some(inlet) = &inlet {
                inlet.has_fields(id, fields);
            }
            let outlet = Outlet::new(client, inlet, id, &source, Arc::clone(&tally));
            let stop = Arc::clone(&stop);
            let accompanies = capture.accompanies();
            capture.begin()?;
            let thread = std::thread::Builder::new()
                .name("loom-record".to_owned())
                .spawn(move || run(capture, outlet, &stop))
                .context("cannot start a thread")?;
            recording.captures.push(Running {
                source,
                tally,
                accompanies,
                thread,
            });
        }
        Ok(recording)
    }

    /// Waits until the end of the recording, a failure, or the end of all captures. Calls `look` meanwhile.
    pub fn wait(&self, is_over: impl Fn() -> bool, mut look: impl FnMut(&Self)) {
        let captures = self.captures.iter();
        while !is_over()
            && captures
                .clone()
                .any(|running| !running.accompanies && !running.thread.is_finished())
            && !captures.clone().any(|running| running.tally.has_failed())
        {
            std::thread::sleep(TICK);
            if let Some(kept) = &self.programs_ns {
                let ns = self.program_time().as_nanos();
                kept.store(u64::try_from(ns).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            look(self);
        }
    }

    /// The sources and their tallies.
    pub fn tallies(&self) -> impl Iterator<Item = (&str, &Tally)> {
        let running = self.captures.iter();
        running.map(|running| (running.source.as_str(), &*running.tally))
    }

    /// The processor time of the programs in the kernel.
    pub(super) fn program_time(&self) -> Duration {
        self.tallies().map(|(_, tally)| tally.program_time()).sum()
    }

    /// Doubles the least time of the events that are recorded. Returns the captures that can, with their new times.
    pub(super) fn record_less(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.tallies()
            .filter_map(|(source, tally)| Some((source, tally.double_least()?)))
    }

    /// Takes one doubling back. Returns the captures that had one, with their new times.
    pub(super) fn record_more(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.tallies()
            .filter_map(|(source, tally)| Some((source, tally.halve_least()?)))
    }

    /// Whether a capture records less than the user asked for.
    pub(super) fn is_narrowed(&self) -> bool {
        self.tallies().any(|(_, tally)| tally.is_narrowed())
    }

    /// Ends all captures, and stores the records that they took.
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
    /// Ends the captures of a recording that failed to start completely.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs one capture to its end. If it ends by itself, this is reported at once, because the others go on.
fn run(capture: Box<dyn Capture>, outlet: Outlet, stop: &AtomicBool) -> Ended {
    // The process may have all capabilities or few; only these are needed from here on.
    let _ = drop_all_except(capture.capabilities());
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

/// The names in a folder of the kernel, for messages.
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
) -> Result<loom_engine::SourceId, ClientError> {
    #[derive(serde::Serialize)]
    struct Sources<'a> {
        source: &'a [&'a SourceDef],
    }
    let toml = toml::to_string(&Sources { source: sources });
    client.define_one(&toml.expect("definitions are always TOML"))
}
