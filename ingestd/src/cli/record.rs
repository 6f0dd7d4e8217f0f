//! `ingestd record`: what the kernel, the network and a program emit, into the daemon that runs on the directory, or into one of its own.
//!
//! `ingestd::record` does the recording; here are its arguments, its screen and its last lines.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Parser;
use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use ingestd::client::{Client, ClientError};
use ingestd::config::{ByteSize, Config, Span};
use ingestd::daemon::Daemon;
use ingestd::record::{
    Capture, OutputFormat, Packets, Recorded, Recording, Syscalls, blockio, command, number_of,
    pagecache, syscalls,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::stdout::say;

/// Record what the kernel, the network and a program emit
///
/// Records into the daemon that runs on DIR; without one, record is the daemon until it ends. Several captures, with '+' between them, run at
/// once. Ctrl-C ends the recording.
#[derive(clap::Args)]
#[command(after_help = "\
Captures:
  syscalls   every system call, with its latency
  packets    every packet, with its addresses, by tcpdump
  blockio    every request to a disk, with its latency
  pagecache  pages of files that enter and leave the page cache
  command    what a program writes, by lines or as JSON
'ingestd record DIR CAPTURE --help' shows the options of each.

Example:
  ingestd record live.loom syscalls --comm redis-server + packets -i lo port 6379 --seconds 60")]
pub struct Args {
    /// Loom directory; created if it does not exist
    dir: PathBuf,
    /// Captures with their options, '+' between them
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CAPTURE"
    )]
    captures: Vec<OsString>,
}

/// Options of the recording as a whole; each capture takes them.
#[derive(clap::Args, Clone, Debug, Default)]
struct Whole {
    /// Seconds to record; without it, until Ctrl-C
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,
    /// Most bytes of the directory, such as 2GiB, which is the default of a new one; a daemon that runs already keeps what its configuration says
    #[arg(long, value_name = "SIZE")]
    keep: Option<ByteSize>,
}

/// One capture.
#[derive(Parser, Debug)]
#[command(
    no_binary_name = true,
    bin_name = "ingestd record DIR",
    disable_help_subcommand = true
)]
enum What {
    /// Record system calls, one record at the end of each
    Syscalls {
        /// Process to record, by its id; may be repeated
        #[arg(long = "pid", value_name = "PID")]
        pids: Vec<u32>,
        /// Name of a process or thread to record, all its threads; the kernel keeps 15 bytes of a name. May be repeated
        #[arg(long = "comm", value_name = "NAME")]
        names: Vec<String>,
        /// System call to record, such as 'read'; may be repeated
        #[arg(long = "syscall", value_name = "NAME", value_parser = syscall_number)]
        numbers: Vec<u16>,
        /// Record only calls that took at least this long, such as 1ms
        #[arg(long, value_name = "TIME")]
        min_latency: Option<Span>,
        /// Record the processes too that a recorded process starts
        #[arg(long)]
        follow: bool,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "syscall")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record requests to block devices, one record at the completion of each
    Blockio {
        /// Disk to record, such as /dev/sda; without it, all
        #[arg(long, value_name = "DEVICE")]
        device: Option<PathBuf>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "blockio")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record which pages of files enter and leave the page cache
    Pagecache {
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "pagecache")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record what a program writes; it comes last, after '--'
    Command {
        /// Source to record into
        #[arg(long, value_name = "NAME")]
        source: String,
        /// What the program writes: lines, of standard output and standard error; or json, of standard output
        #[arg(long, value_enum, default_value = "lines")]
        format: Format,
        #[command(flatten)]
        whole: Whole,
        /// Program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
    /// Record packets, with tcpdump
    Packets {
        /// Interface to listen on; without it, the first that tcpdump finds
        #[arg(short, long, value_name = "NAME")]
        interface: Option<String>,
        /// Filter, in the language of tcpdump: 'port 6379'
        filter: Vec<String>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "packet")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
}

#[derive(Copy, Clone, Debug, clap::ValueEnum)]
enum Format {
    Lines,
    Json,
}

fn syscall_number(name: &str) -> Result<u16, String> {
    number_of(name).ok_or_else(|| {
        format!("'{name}' is not a system call of this machine; use a name such as 'read'")
    })
}

impl What {
    fn whole(&self) -> &Whole {
        match self {
            What::Syscalls { whole, .. }
            | What::Blockio { whole, .. }
            | What::Pagecache { whole, .. }
            | What::Packets { whole, .. }
            | What::Command { whole, .. } => whole,
        }
    }

    /// Checks and prepares all that it needs, and changes no directory.
    fn open(self) -> anyhow::Result<Box<dyn Capture>> {
        match self {
            What::Syscalls {
                pids,
                names,
                numbers,
                min_latency,
                follow,
                source,
                ..
            } => {
                let filter = Syscalls {
                    pids,
                    names,
                    numbers,
                    follow,
                    latency_min: min_latency.map_or(Duration::ZERO, |Span(time)| time),
                };
                syscalls(&filter, source)
            }
            What::Blockio { device, source, .. } => blockio(device.as_deref(), source),
            What::Pagecache { source, .. } => pagecache(source),
            What::Command {
                source,
                format,
                program,
                ..
            } => {
                let format = match format {
                    Format::Lines => OutputFormat::Lines,
                    Format::Json => OutputFormat::Json,
                };
                command(&program, format, source)
            }
            What::Packets {
                interface,
                filter,
                source,
                ..
            } => Packets {
                source,
                interface,
                filter,
            }
            .open(),
        }
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_max_level(tracing::Level::WARN)
            .init();
        let whats = parse(self.captures);
        let whole = merged(whats.iter().map(What::whole))?;
        // Signals are caught before anything stands that they must not interrupt.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&interrupted),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .context("cannot catch signals")?;
        }
        let runs = runs_on(&self.dir)?;
        if runs && whole.keep.is_some() {
            bail!(
                "--keep has no effect: a daemon runs on '{}', and its configuration says what it keeps",
                self.dir.display()
            );
        }
        let captures = whats
            .into_iter()
            .map(What::open)
            .collect::<anyhow::Result<Vec<_>>>()?;
        Recording::check(&captures)?;
        let daemon = if runs {
            None
        } else {
            Some(start(&self.dir, whole.keep)?)
        };
        let recorded = record(&self.dir, captures, &whole, &interrupted);
        if let Some(daemon) = daemon {
            daemon.stop()?;
        }
        report(&recorded?)
    }
}

/// Records until it is over.
fn record(
    dir: &Path,
    captures: Vec<Box<dyn Capture>>,
    whole: &Whole,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<Recorded>> {
    let shown = dir.display().to_string();
    let queries: Vec<_> = captures
        .iter()
        .map(|capture| capture.query(&shown))
        .collect();
    let recording = Recording::start(dir, captures)?;
    eprintln!("ingestd: recording into '{shown}'; Ctrl-C ends it. Query it meanwhile:");
    for query in queries {
        eprintln!("  {query};");
    }
    let until = whole
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut screen = Screen::new(&recording);
    recording.wait(interrupted, until, |recording| screen.show(recording));
    screen.clear();
    Ok(recording.stop())
}

/// The captures, with '+' between them. What a program gets after '--' is its own. A usage error ends the process.
fn parse(words: Vec<OsString>) -> Vec<What> {
    let mut parts = vec![Vec::new()];
    let mut is_own = false;
    for word in words {
        is_own |= word == "--";
        match parts.last_mut() {
            Some(part) if is_own || word != "+" => part.push(word),
            _ => parts.push(Vec::new()),
        }
    }
    parts.into_iter().map(What::parse_from).collect()
}

/// The options of the whole, wherever they stand.
fn merged<'a>(wholes: impl Iterator<Item = &'a Whole>) -> anyhow::Result<Whole> {
    let mut merged = Whole::default();
    for Whole { seconds, keep } in wholes {
        if seconds.is_some() && merged.seconds.is_some() || keep.is_some() && merged.keep.is_some()
        {
            bail!("--seconds and --keep are of the whole recording; give each once");
        }
        merged.seconds = merged.seconds.or(*seconds);
        merged.keep = merged.keep.or(*keep);
    }
    Ok(merged)
}

/// Whether a daemon runs on the directory.
fn runs_on(dir: &Path) -> anyhow::Result<bool> {
    match Client::connect(dir) {
        Ok(_) => Ok(true),
        Err(ClientError::NotRunning(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The daemon of this process. A directory that exists keeps all that it has, unless the user says how much.
fn start(dir: &Path, keep: Option<ByteSize>) -> anyhow::Result<Daemon> {
    let is_new = !dir.exists();
    let keep = keep.or(is_new.then_some(ByteSize(2 << 30)));
    let mut text = "[log]\nsegment = '256MiB'\n".to_owned();
    if let Some(ByteSize(bytes)) = keep {
        text.push_str(&format!("[retention]\nmax_bytes = '{bytes}'\n"));
    }
    let config = Config::parse(&text).map_err(|error| anyhow!("--keep: {}", error.message))?;
    Ok(Daemon::start(dir, &config, false)?)
}

/// A line for each source on a terminal, renewed every second.
struct Screen {
    lines: Vec<(ProgressBar, u64)>,
    all: MultiProgress,
    shown: Instant,
}

impl Screen {
    fn new(recording: &Recording) -> Screen {
        let all = MultiProgress::new();
        let line = |_| {
            let bar = all.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("  {msg}") {
                bar.set_style(style);
            }
            (bar, 0)
        };
        let lines = if std::io::stderr().is_terminal() {
            recording.tallies().map(line).collect()
        } else {
            Vec::new()
        };
        Screen {
            lines,
            all,
            shown: Instant::now(),
        }
    }

    fn show(&mut self, recording: &Recording) {
        let elapsed = self.shown.elapsed();
        if elapsed < Duration::from_secs(1) {
            return;
        }
        self.shown = Instant::now();
        for ((source, tally), (bar, before)) in recording.tallies().zip(&mut self.lines) {
            let records = tally.records();
            let rate = (records - *before) as f64 / elapsed.as_secs_f64();
            *before = records;
            bar.set_message(format!(
                "{source:<12} {:>15} records {:>12}/s   lost before Loom {}",
                HumanCount(records).to_string(),
                HumanCount(rate as u64).to_string(),
                HumanCount(tally.lost())
            ));
            bar.tick();
        }
    }

    fn clear(&self) {
        // A terminal that is gone shows nothing anyway.
        let _ = self.all.clear();
    }
}

/// The last lines: what became of the records of each source, and what is to be known about them.
fn report(recorded: &[Recorded]) -> anyhow::Result<ExitCode> {
    let mut failed = false;
    for Recorded {
        source,
        tally,
        ending,
    } in recorded
    {
        match ending {
            Ok(ending) => {
                for note in ending.why.iter().chain(&ending.notes) {
                    eprintln!("ingestd: source '{source}': {note}");
                }
                let counts = ending.counts;
                say(format_args!(
                    "source={source} received={} stored={} refused={} dropped={} kernel_lost={}",
                    counts.received,
                    counts.stored,
                    counts.refused,
                    counts.dropped,
                    tally.lost()
                ))?;
            }
            Err(error) => {
                failed = true;
                eprintln!(
                    "ingestd: source '{source}': {error:#}; what was recorded until then is kept"
                );
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
