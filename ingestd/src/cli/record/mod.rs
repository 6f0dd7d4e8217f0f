//! `ingestd record`: records events of the kernel, the network and a program, into the daemon that runs on the directory or into one of its own.
//!
//! `ingestd::record` records; this file has the arguments, the screen and the last lines.

mod captures;
mod screen;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::CommandFactory;
use ingestd::client::{Client, ClientError, LastingOptions, PATIENCE};
use ingestd::config::{ByteSize, Config, Span};
use ingestd::daemon::Daemon;
use ingestd::quoted;
use ingestd::record::{Capture, Meter, Recorded, Recording, Usage, cgroups};

use super::signals;
use super::stdout::{complain, say};
use captures::{What, Whole, merged, parse};
use screen::{Lines, Screen};

/// Record events of the kernel, the network and a program
///
/// Records into the daemon that runs on DIR, and into the next one if it ends; if none runs, record is the daemon until it ends. Several captures run
/// at once, with '+' between them. Ctrl-C or SIGTERM ends the recording, also while it waits for the next daemon; the records taken so far are stored
/// or counted. A second signal ends the process at once. The exit status is 1 if a record was refused or is unsure, or a capture failed.
///
/// After the line 'recording into' on standard error, everything is recorded.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Args {
    /// Loom directory; created if it does not exist
    dir: PathBuf,
    #[command(flatten)]
    whole: Whole,
    /// Captures with their options, and '+' between them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CAPTURE"
    )]
    captures: Vec<OsString>,
}

const EXAMPLE: &str = "\
Example:
  ingestd record live.loom --seconds 60 \\
    syscalls --comm redis-server + packets -i lo port 6379";

fn after_help() -> String {
    let captures = captures().map(|capture| {
        let about = capture.get_about().map(ToString::to_string);
        format!(
            "  {:<10} {}\n",
            capture.get_name(),
            about.unwrap_or_default()
        )
    });
    format!(
        "Captures:\n{}\n'ingestd record DIR CAPTURE --help' shows the options of each. The options above may also stand behind a capture.\n\n{EXAMPLE}",
        captures.collect::<String>()
    )
}

/// Each capture as a command.
pub(super) fn captures() -> impl Iterator<Item = clap::Command> {
    let captures: Vec<_> = What::command().get_subcommands().cloned().collect();
    captures.into_iter().map(|capture| {
        let name = format!("ingestd record DIR {}", capture.get_name());
        capture.bin_name(name)
    })
}

/// The command with its captures as subcommands, for man pages and completions; `then` changes each capture.
pub(super) fn with_captures(
    record: clap::Command,
    then: impl Fn(clap::Command) -> clap::Command,
) -> clap::Command {
    record
        .mut_arg("captures", |captures| captures.hide(true))
        .after_help(EXAMPLE)
        .subcommand_required(true)
        .subcommand_value_name("CAPTURE")
        .subcommand_help_heading("CAPTURES")
        .disable_help_subcommand(true)
        .subcommands(captures().map(then))
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let lines = Lines::default();
        let above = lines.clone();
        tracing_subscriber::fmt()
            .with_writer(move || above.clone())
            .with_target(false)
            .with_max_level(tracing::Level::WARN)
            .init();
        let whats = parse(&self.dir, self.captures);
        let wholes = whats.iter().map(What::whole);
        let whole = merged(std::iter::once(&self.whole).chain(wholes))?;
        let interrupted = signals::stop()?;
        let runs = runs_on(&self.dir)?;
        if runs && whole.keep.is_some() {
            bail!(
                "cannot apply --keep: a daemon runs on '{}', and its configuration says what it keeps; omit --keep",
                self.dir.display()
            );
        }
        let has_cgroups = whats.iter().any(What::has_cgroups);
        let captures = whats
            .into_iter()
            .map(|what| what.open(&self.dir))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut captures: Vec<_> = captures.into_iter().flatten().collect();
        if has_cgroups {
            let groups = cgroups()?;
            let name = &groups.source().name;
            if captures
                .iter()
                .any(|capture| capture.source().name == *name)
            {
                bail!(
                    "the source '{name}' is for the paths of control groups; give --source another name"
                );
            }
            captures.push(groups);
        }
        Recording::check(&captures)?;
        if whole.budget.is_some() && captures.iter().all(|capture| capture.least().is_none()) {
            bail!(
                "cannot apply --budget: no capture can record less; give one of syscalls, sched, function and profile --off-cpu, or omit --budget"
            );
        }
        let mut meter = Meter::new(whole.budget);
        if meter.is_blind() {
            complain(
                "the budget is of this process alone: to include its programs in the kernel, run it with CAP_SYS_ADMIN or set the sysctl kernel.bpf_stats_enabled to 1",
            );
        }
        let daemon = if runs {
            None
        } else {
            Some(start(&self.dir, whole.keep)?)
        };
        let recorded = record(
            &self.dir,
            daemon.as_ref(),
            captures,
            whole.seconds,
            &mut meter,
            LastingOptions {
                name: String::new(),
                patience: whole.patience.map_or(PATIENCE, |Span(time)| time),
                stop: interrupted,
            },
            &lines,
        );
        let stopped = daemon.map_or(Ok(()), Daemon::stop);
        // The counts are printed even if the daemon failed; its error comes last.
        let (recorded, usage) = recorded?;
        let code = report(&recorded, usage)?;
        stopped?;
        Ok(code)
    }
}

/// Records until the end.
fn record(
    dir: &Path,
    own: Option<&Daemon>,
    captures: Vec<Box<dyn Capture>>,
    seconds: Option<u64>,
    meter: &mut Meter,
    waiting: LastingOptions,
    lines: &Lines,
) -> anyhow::Result<(Vec<Recorded>, Usage)> {
    let shown = dir.display().to_string();
    let queries: Vec<_> = captures
        .iter()
        .map(|capture| capture.query(&quoted(&shown)))
        .collect();
    let choices = captures.iter().filter_map(|capture| {
        let choice = capture.choice()?;
        Some(format!("source '{}': {choice}", capture.source().name))
    });
    let choices: Vec<_> = choices.collect();
    let interrupted = Arc::clone(&waiting.stop);
    let recording = Recording::start(dir, captures, own, waiting)?;
    let role = match own {
        Some(_) => ", and is its daemon: other recordings into it end with this one",
        None => "",
    };
    for choice in choices {
        complain(choice);
    }
    let queries = queries.iter().map(|query| format!("\n  {query};"));
    let queries: String = queries.collect();
    complain(format_args!(
        "recording into '{shown}'{role}; Ctrl-C ends it. Query it meanwhile:{queries}"
    ));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut screen = Screen::new(&recording, lines);
    let is_over =
        || interrupted.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    recording.wait(is_over, |recording| {
        let (latest, _) = meter.look(recording);
        screen.show(recording, latest);
    });
    screen.clear();
    let (_, usage) = meter.look(&recording);
    Ok((recording.stop(), usage))
}

/// Whether a daemon runs on the directory.
fn runs_on(dir: &Path) -> anyhow::Result<bool> {
    match Client::connect(dir) {
        Ok(_) => Ok(true),
        Err(ClientError::NotRunning(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Starts a daemon in this process. An existing directory keeps all records, unless the user limits its size.
fn start(dir: &Path, keep: Option<ByteSize>) -> anyhow::Result<Daemon> {
    let is_new = !dir.exists();
    let keep = keep.or(is_new.then_some(ByteSize(2 << 30)));
    let mut text = "[log]\nsegment = '256MiB'\n".to_owned();
    if let Some(ByteSize(bytes)) = keep {
        let log = Config::parse(&text).map_err(anyhow::Error::msg)?.log;
        let least = log.options().bytes_min()?;
        if bytes < least {
            bail!(
                "--keep is {}, but the files being written take {}; raise it to that",
                ByteSize(bytes),
                ByteSize(least)
            );
        }
        text.push_str(&format!("[retention]\nmax_bytes = '{bytes}'\n"));
    }
    let config = Config::parse(&text).map_err(anyhow::Error::msg)?;
    Ok(Daemon::start(dir, &config, false)?)
}

/// Prints the notes about each source, and then its counts.
fn report(recorded: &[Recorded], usage: Usage) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    complain(format_args!("the recording took {usage}"));
    for Recorded { source, ending, .. } in recorded {
        match ending {
            Ok(ending) => {
                for note in &ending.notes {
                    complain(format_args!("source '{source}': {note}"));
                }
            }
            // The recording has reported why.
            Err(_) => code = ExitCode::FAILURE,
        }
    }
    for recorded in recorded {
        let source = &recorded.source;
        if let Some(outcome) = &recorded.outcome {
            let counts = outcome.counts;
            if counts.refused > 0 || outcome.unsure > 0 {
                code = ExitCode::FAILURE;
            }
            let sampled = match recorded.tally.sampled() {
                0 => String::new(),
                records => format!(" sampled={records}"),
            };
            let unsure = match outcome.unsure {
                0 => String::new(),
                records => format!(" unsure={records}"),
            };
            say(format_args!(
                "source={source} received={} stored={} refused={} dropped={} kernel_lost={}{sampled}{unsure}",
                counts.received,
                counts.stored,
                counts.refused,
                counts.dropped,
                recorded.tally.lost()
            ))?;
        }
    }
    Ok(code)
}
