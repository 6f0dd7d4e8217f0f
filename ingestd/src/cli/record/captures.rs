//! The captures in a command line with their options.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use ingestd::config::{ByteSize, Span};
use ingestd::record::{
    ARGS_MAX, Argument, Capture, Cgroup, Function, HZ_MAX, NAME_BYTES_MAX, Packets, Processes,
    Profile, Sched, Selection, Share, Syscalls, Target, Tcp, ValueType, blockio, function, json,
    lines, number_of, pagecache, process, profile, sched, syscalls, tcp,
};

use crate::cli::declared::declared;

/// Options of the whole recording; each capture accepts them.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Whole {
    /// Seconds to record [default: until Ctrl-C]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(super) seconds: Option<u64>,
    /// Size of all log files, such as 10GiB; the oldest records are removed first. A new directory keeps 2GiB. If a daemon runs on DIR, its
    /// configuration decides
    #[arg(long, value_name = "SIZE")]
    pub(super) keep: Option<ByteSize>,
    /// How long to wait for the next daemon if the current one ends [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(super) patience: Option<Span>,
    /// Processor time of the recording, such as 2% of one processor: over it for 5 seconds, events below 1us are left out and counted, then below
    /// 2us, and so on; below half of it for 10 seconds, one step is taken back
    #[arg(long, value_name = "SHARE")]
    pub(super) budget: Option<Share>,
}

/// The threads to record; all if no option is given.
#[derive(clap::Args, Debug)]
pub(super) struct Who {
    /// Process to record, by its id; may be repeated
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// Name of a process or thread to record, with all threads of the process; the kernel keeps 15 bytes of a name. May be repeated
    #[arg(long = "comm", value_name = "NAME", value_parser = name_of_task)]
    names: Vec<String>,
    /// Also record the processes that a recorded process starts
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    group: Group,
}

/// The control group to record.
#[derive(clap::Args, Debug)]
pub(super) struct Group {
    /// Control group to record, with those below it: its folder, or its path as /proc/PID/cgroup shows it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

impl Group {
    fn find(&self) -> anyhow::Result<Option<Cgroup>> {
        let path = self.cgroup.as_deref();
        Ok(path.map(Cgroup::find).transpose()?)
    }
}

impl Who {
    fn selection(self) -> anyhow::Result<Selection> {
        let Who {
            pids,
            names,
            follow,
            group,
        } = self;
        Ok(Selection {
            pids,
            names,
            follow,
            cgroup: group.find()?,
        })
    }
}

/// One capture.
#[derive(Parser, Debug)]
#[command(
    no_binary_name = true,
    bin_name = "ingestd record DIR",
    disable_help_subcommand = true
)]
pub(super) enum What {
    /// Record system calls, one record at the end of each
    #[command(
        after_help = "Example:\n  ingestd record live.loom syscalls --comm redis-server --min-latency 1ms"
    )]
    Syscalls {
        #[command(flatten)]
        who: Who,
        /// System call to record, such as 'read'; may be repeated
        #[arg(long = "syscall", value_name = "NAME", value_parser = syscall_number)]
        numbers: Vec<u16>,
        /// Record only calls that took at least this long, such as 1ms
        #[arg(long, value_name = "TIME")]
        min_latency: Option<Span>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "syscall")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record when threads run and wait for a processor, one record when a run ends
    #[command(after_help = "Example:\n  ingestd record live.loom sched --comm redis-server")]
    Sched {
        #[command(flatten)]
        who: Who,
        /// Record only runs before which the thread was off the processors for at least this long, such as 1ms
        #[arg(long, value_name = "TIME")]
        min: Option<Span>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "sched")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record processes that begin, execute a program or end
    #[command(after_help = "Example:\n  ingestd record live.loom process --seconds 60")]
    Process {
        #[command(flatten)]
        who: Who,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "process")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record changes of TCP connections, segments that are sent again, and resets
    #[command(after_help = "Example:\n  ingestd record live.loom tcp --port 6379")]
    Tcp {
        /// Port of either end; may be repeated
        #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
        ports: Vec<u16>,
        /// Process that connected or listened, by its id; may be repeated
        #[arg(long = "pid", value_name = "PID")]
        pids: Vec<u32>,
        #[command(flatten)]
        group: Group,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "tcp")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record calls of a function of a program or library, one record at the end of each, or hits of a static probe (USDT)
    #[command(
        after_help = "Example:\n  ingestd record live.loom function libssl.so:SSL_write --comm nginx --arg 2:i32:bytes --result i32"
    )]
    Function {
        /// Program or library, by its path or name, and function, by its symbol as it is or demangled, or static probe, as PROVIDER:NAME; with * and ?
        /// several of them
        #[arg(value_name = "BINARY:SYMBOL")]
        target: String,
        #[command(flatten)]
        who: Who,
        /// Argument to record: its place from 0, its type (i8 to i64, u8 to u64, bool, ptr, or str for a text that ends with NUL), and the name of
        /// its field. May be repeated. [default of a static probe: all]
        #[arg(long = "arg", value_name = "N:TYPE[:NAME]", value_parser = argument)]
        args: Vec<(Argument, String)>,
        /// Type of the result to record
        #[arg(long, value_name = "TYPE")]
        result: Option<ValueType>,
        /// Record only calls that took at least this long, such as 1ms
        #[arg(long, value_name = "TIME")]
        min: Option<Span>,
        /// Source to record into [default: SYMBOL; of a static probe NAME, or PROVIDER if that is *]
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record which functions use the processors, one record at each tick of a clock and each distinct stack once
    #[command(
        after_help = "Example:\n  ingestd record live.loom profile --comm redis-server --off-cpu --min 1ms"
    )]
    Profile {
        #[command(flatten)]
        who: Who,
        /// Ticks a second on each processor
        #[arg(long, value_name = "N", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=i64::from(HZ_MAX)))]
        hz: u32,
        /// Also record where threads leave the processors, and for how long, one record when a thread runs again
        #[arg(long)]
        off_cpu: bool,
        /// Record only times off the processors of at least this long, such as 1ms
        #[arg(long, value_name = "TIME", requires = "off_cpu")]
        min: Option<Span>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "profile")]
        source: String,
        /// Source to record the stacks into
        #[arg(long, value_name = "NAME", default_value = "stack")]
        stacks: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record packets, with tcpdump
    #[command(after_help = "Example:\n  ingestd record live.loom packets -i lo port 6379")]
    Packets {
        /// Interface to listen on [default: the first that tcpdump finds]
        #[arg(short, long, value_name = "NAME")]
        interface: Option<String>,
        /// Filter in the language of tcpdump: 'port 6379'
        filter: Vec<String>,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "packet")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record requests to block devices, one record at the completion of each
    #[command(
        after_help = "Example:\n  ingestd record live.loom blockio --device /dev/sda --seconds 60"
    )]
    Blockio {
        /// Disk to record, such as /dev/sda [default: all]
        #[arg(long, value_name = "DEVICE")]
        device: Option<PathBuf>,
        #[command(flatten)]
        group: Group,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "blockio")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record which pages of files enter and leave the page cache
    #[command(after_help = "Example:\n  ingestd record live.loom pagecache --seconds 60")]
    Pagecache {
        #[command(flatten)]
        group: Group,
        /// Source to record into
        #[arg(long, value_name = "NAME", default_value = "pagecache")]
        source: String,
        #[command(flatten)]
        whole: Whole,
    },
    /// Record the output of a program, which comes last, after '--'
    #[command(
        after_help = "Example:\n  ingestd record live.loom command --source log -- journalctl --follow"
    )]
    Command {
        /// Source to record into
        #[arg(long, value_name = "NAME")]
        source: String,
        /// Format of the output: lines, of standard output and standard error; or json, of standard output
        #[arg(long, value_enum, default_value = "lines")]
        format: Format,
        /// TOML file that declares the source as a [[source]]; json needs it for a new source
        #[arg(long, value_name = "FILE")]
        fields: Option<PathBuf>,
        #[command(flatten)]
        whole: Whole,
        /// Program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
}

#[derive(Copy, Clone, Debug, clap::ValueEnum)]
pub(super) enum Format {
    Lines,
    Json,
}

fn syscall_number(name: &str) -> Result<u16, String> {
    number_of(name).ok_or_else(|| {
        format!("'{name}' is not a system call of this machine; use a name such as 'read'")
    })
}

fn name_of_task(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err(
            "it is empty; give the name of a process or thread, as 'ps -eTo comm' shows it"
                .to_owned(),
        );
    }
    if name.len() > NAME_BYTES_MAX {
        let kept = name.floor_char_boundary(NAME_BYTES_MAX);
        let (kept, _) = name.split_at(kept);
        return Err(format!(
            "the kernel keeps {NAME_BYTES_MAX} bytes of a name; give '{kept}'"
        ));
    }
    Ok(name.to_owned())
}

/// An argument, and the name of its field.
fn argument(text: &str) -> Result<(Argument, String), String> {
    let mut parts = text.splitn(3, ':');
    let (place, ty) = (parts.next().unwrap_or_default(), parts.next());
    let number = place.parse().ok();
    let (Some(number), Some(ty)) = (number, ty) else {
        return Err(
            "it is not the place and the type of an argument; give them as in '0:u64'".to_owned(),
        );
    };
    let ty = ty.parse::<ValueType>()?;
    let name = parts.next().map_or(format!("arg{place}"), str::to_owned);
    Ok((Argument { place: number, ty }, name))
}

impl What {
    pub(super) fn whole(&self) -> &Whole {
        match self {
            What::Syscalls { whole, .. }
            | What::Sched { whole, .. }
            | What::Process { whole, .. }
            | What::Tcp { whole, .. }
            | What::Function { whole, .. }
            | What::Profile { whole, .. }
            | What::Blockio { whole, .. }
            | What::Pagecache { whole, .. }
            | What::Packets { whole, .. }
            | What::Command { whole, .. } => whole,
        }
    }

    /// Whether its records have ids of control groups.
    pub(super) fn has_cgroups(&self) -> bool {
        !matches!(self, What::Packets { .. } | What::Command { .. })
    }

    /// Prepares the capture, so that it cannot fail later for a missing prerequisite. Changes no directory. A profile has a second capture for its stacks.
    pub(super) fn open(self, dir: &Path) -> anyhow::Result<Vec<Box<dyn Capture>>> {
        let capture = match self {
            What::Profile {
                who,
                hz,
                off_cpu,
                min,
                source,
                stacks,
                ..
            } => {
                let filter = Profile {
                    selection: who.selection()?,
                    hz,
                    off_min: off_cpu.then(|| min.map_or(Duration::ZERO, |Span(time)| time)),
                };
                return Ok(profile(filter, source, stacks)?.into());
            }
            What::Syscalls {
                who,
                numbers,
                min_latency,
                source,
                ..
            } => {
                let filter = Syscalls {
                    selection: who.selection()?,
                    numbers,
                    latency_min: min_latency.map_or(Duration::ZERO, |Span(time)| time),
                };
                syscalls(&filter, source)
            }
            What::Sched {
                who, min, source, ..
            } => {
                let filter = Sched {
                    selection: who.selection()?,
                    off_min: min.map_or(Duration::ZERO, |Span(time)| time),
                };
                sched(&filter, source)
            }
            What::Process { who, source, .. } => {
                let selection = who.selection()?;
                process(&Processes { selection }, source)
            }
            What::Function {
                target,
                who,
                args,
                result,
                min,
                source,
                ..
            } => {
                let selection = who.selection()?;
                let target = Target::find(&target, &selection.pids)?;
                let (mut args, mut names): (Vec<_>, Vec<_>) = args.into_iter().unzip();
                if args.is_empty() {
                    args = Function::declared(&target);
                    names = (0..args.len()).map(|place| format!("arg{place}")).collect();
                }
                ensure!(
                    args.len() <= ARGS_MAX,
                    "at most {ARGS_MAX} arguments are recorded, and these are {}; give only some with --arg",
                    args.len()
                );
                let filter = Function {
                    target,
                    selection,
                    latency_min: min.map_or(Duration::ZERO, |Span(time)| time),
                    args,
                    result,
                };
                function(&filter, &names, source)
            }
            What::Tcp {
                ports,
                pids,
                group,
                source,
                ..
            } => {
                let selection = Selection {
                    pids,
                    cgroup: group.find()?,
                    ..Selection::default()
                };
                tcp(&Tcp { selection, ports }, source)
            }
            What::Blockio {
                device,
                group,
                source,
                ..
            } => blockio(device.as_deref(), group.find()?, source, dir),
            What::Pagecache { group, source, .. } => pagecache(group.find()?, source, dir),
            What::Command {
                source,
                format,
                fields,
                program,
                ..
            } => {
                let fields = fields
                    .map(|fields| declared(&fields, &source))
                    .transpose()?;
                match format {
                    Format::Lines => {
                        ensure!(
                            fields.is_none(),
                            "lines have fields of their own; omit --fields, or use --format json"
                        );
                        lines(&program, source)
                    }
                    Format::Json => json(&program, source, fields, dir),
                }
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
        };
        Ok(vec![capture?])
    }
}

/// Parses the captures, with '+' between them. The words after '--' belong to a program. A usage error ends the process; `dir` is the word before the
/// captures.
pub(super) fn parse(dir: &Path, words: Vec<OsString>) -> Vec<What> {
    let known = What::command();
    let names: Vec<&str> = known
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let is_capture = |word: &OsStr| names.iter().any(|name| word == *name);
    if is_capture(dir.as_os_str()) && !words.first().is_some_and(|word| is_capture(word)) {
        let capture = dir.display();
        usage(&format!(
            "the Loom directory is missing; give it before the capture: 'ingestd record DIR {capture}'"
        ));
    }
    if words.is_empty() {
        usage(&format!(
            "no capture is given; give one of {}",
            names.join(", ")
        ));
    }
    if let Some(first) = words.first()
        && !is_capture(first)
        && !first.as_encoded_bytes().starts_with(b"-")
        && first != "help"
        && first != "+"
    {
        usage(&format!(
            "'{}' is not a capture; give one of {}",
            first.display(),
            names.join(", ")
        ));
    }
    let mut parts = vec![Vec::new()];
    let mut is_own = false;
    for word in words {
        is_own |= word == "--";
        match parts.last_mut() {
            Some(part) if is_own || word != "+" => part.push(word),
            _ => parts.push(Vec::new()),
        }
    }
    if parts.iter().any(Vec::is_empty) {
        usage("a '+' stands between two captures; name one before it and one after it");
    }
    parts.into_iter().map(What::parse_from).collect()
}

fn usage(message: &str) -> ! {
    What::command()
        .error(ErrorKind::InvalidValue, message)
        .exit()
}

/// Merges the options of the whole recording from all places.
pub(super) fn merged<'a>(wholes: impl Iterator<Item = &'a Whole>) -> anyhow::Result<Whole> {
    let mut merged = Whole::default();
    for Whole {
        seconds,
        keep,
        patience,
        budget,
    } in wholes
    {
        let is_twice = seconds.is_some() && merged.seconds.is_some()
            || keep.is_some() && merged.keep.is_some()
            || patience.is_some() && merged.patience.is_some()
            || budget.is_some() && merged.budget.is_some();
        if is_twice {
            bail!(
                "--seconds, --keep, --patience and --budget are of the whole recording; give each once"
            );
        }
        merged.patience = merged.patience.or(*patience);
        merged.budget = merged.budget.or(*budget);
        merged.seconds = merged.seconds.or(*seconds);
        merged.keep = merged.keep.or(*keep);
    }
    Ok(merged)
}
