//! `ingestd load`: files and pipes into a source, through the daemon where one runs, else directly.
//!
//! The input runs on a thread of its own: parsing and storing overlap, and a pipe that is silent never keeps the
//! writer from its heartbeat.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use indicatif::{ProgressBar, ProgressStyle};
use loom_engine::SourceId;
use loom_engine::schema::{SourceDef, TimeKind, parse_sources};

use ingestd::counted;
use ingestd::input::{self, CsvOptions, Format, InputBatch, LoadOptions, TimeForm, TimeUnit};
use ingestd::sink::{self, Finished, Sink};

use super::stdout::say;

/// How often the writer gets its turn while nothing comes.
const TICK: Duration = Duration::from_millis(5);
/// How long a load that is asked to stop waits for its pipe to end.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// How many refused rows are named; the others are only counted.
const NAMED_MAX: u64 = 1000;

/// Load files into a source
///
/// Reads CSV, JSON, Parquet, Arrow IPC, pcap and pcapng, also compressed with gzip, zstd, bzip2 or xz. The rows go through the daemon that
/// runs on DIR; without a daemon, load writes DIR itself. It creates DIR and the source where they do not exist. The last line of standard
/// output counts the rows. The exit status is 1 if a row was refused.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd load DIR --source trades --ts time --index price trades.parquet
  ingestd load DIR --source access --ts when --ts-format '%d/%b/%Y:%H:%M:%S %z' access.csv.gz
  journalctl -o json | ingestd load DIR --source journal --format json -

DuckDB reads what load does not, such as comment lines, other quotes, other texts for NULL, other encodings, and selects and converts:
  duckdb -c \"COPY (SELECT * FROM read_csv('a.csv', comment = '#', nullstr = 'n/a')) TO '/dev/stdout' (FORMAT csv)\" |
    ingestd load DIR --source a --format csv -")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,

    /// Files to load; '-' is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Source to load into
    #[arg(long, value_name = "NAME")]
    source: String,

    /// Column that holds each row's time: a timestamp, a date, or integer nanoseconds; it does not become a field
    #[arg(long, value_name = "COLUMN")]
    ts: Option<String>,

    /// Unit of the numbers in the column of --ts, counted from 1970; they may have a fraction
    #[arg(long, value_name = "UNIT", value_enum, requires = "ts")]
    ts_unit: Option<TimeUnit>,

    /// Format of the texts in the column of --ts, as strptime has it: '%d.%m.%Y %H:%M:%S%.f'; UTC without %z
    #[arg(
        long,
        value_name = "FORMAT",
        requires = "ts",
        conflicts_with = "ts_unit"
    )]
    ts_format: Option<String>,

    /// Add an index with default bins on this column; may be repeated
    #[arg(long, value_name = "COLUMN")]
    index: Vec<String>,

    /// Format of the files, if their names and first bytes do not say
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// The first row of CSV names the columns, whatever it looks like
    #[arg(long, conflicts_with = "no_header")]
    header: bool,

    /// The first row of CSV holds values: columns are named column0, column1, …, or as the fields of the source
    #[arg(long)]
    no_header: bool,

    /// Character between the columns of CSV, or 'tab'; without it, load chooses among comma, tab, ';' and '|'
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// TOML file that declares the source as a [[source]]; without it, load infers the fields
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,

    /// Add the input's new columns to a source that exists, as nullable fields; without it, they are left out
    #[arg(long)]
    add_fields: bool,
}

/// A delimiter of CSV by what the command line says.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err(
            "a delimiter is one ASCII character, neither a quote nor a line break, or 'tab'"
                .to_owned(),
        ),
    }
}

/// What the input's thread reports.
enum Event {
    Opened(SourceDef),
    Batch {
        batch: InputBatch,
        fraction: Option<f64>,
    },
    Ended,
    Failed(anyhow::Error),
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut options = LoadOptions::new(&self.source);
        options.ts_column.clone_from(&self.ts);
        options.ts_form = match (self.ts_unit, &self.ts_format) {
            (Some(unit), _) => TimeForm::Unit(unit),
            (None, Some(format)) => TimeForm::Format(format.clone()),
            (None, None) => TimeForm::Usual,
        };
        options.csv = CsvOptions {
            delimiter: self.delimiter,
            header: match (self.header, self.no_header) {
                (false, false) => None,
                (header, _) => Some(header),
            },
        };
        options.add_fields = self.add_fields;
        options.indexes.clone_from(&self.index);
        options.declared = match &self.fields {
            Some(path) => Some(self.declared(path)?),
            None => None,
        };
        // A new directory is only made once the input is known to be one.
        let mut sink = None;
        let mut existing = None;
        if self.dir.exists() {
            let opened = sink::open(&self.dir)?;
            options.payload_bytes_max = opened.payload_bytes_max();
            existing = opened.existing(&self.source)?;
            sink = Some(opened);
        }
        let exists = existing.is_some();
        options.declared = options.declared.or(existing);
        let stop = stop_signal()?;
        let events = read_in_background(self.files.clone(), self.format, options);
        let mut load = Load {
            dir: &self.dir,
            sink,
            exists,
            wanted: None,
            source: None,
            refused: 0,
            unnoted: (0, String::new()),
            named: 0,
            bar: progress_bar(),
        };
        let outcome = load.follow(&events, &stop);
        load.finish(outcome)
    }

    /// The source of `--fields`.
    fn declared(&self, path: &Path) -> anyhow::Result<SourceDef> {
        let name = path.display();
        let toml =
            std::fs::read_to_string(path).with_context(|| format!("cannot read '{name}'"))?;
        let sources =
            parse_sources(&toml).with_context(|| format!("cannot read the sources in '{name}'"))?;
        let names = sources.iter().map(|source| format!("'{}'", source.name));
        let names: Vec<_> = names.collect();
        let mut sources = sources.into_iter();
        let Some(mut def) = sources.find(|source| source.name == self.source) else {
            bail!(
                "'{name}' does not declare source '{}'; its sources are: {}",
                self.source,
                names.join(", ")
            );
        };
        if let Some(ts) = &self.ts {
            if def.fields.iter().any(|field| field.name == *ts) {
                bail!(
                    "column '{ts}' holds the time (--ts) and cannot be a field too; remove the field from '{name}'"
                );
            }
            def.time = TimeKind::Own;
        }
        Ok(def)
    }
}

/// A load under way.
struct Load<'a> {
    dir: &'a Path,
    sink: Option<Box<dyn Sink>>,
    /// The directory had the source before.
    exists: bool,
    /// The source as the input has it, once the input is open.
    wanted: Option<SourceDef>,
    /// It is defined with the first row, or at the end of an input without rows, so that what is no input leaves nothing behind.
    source: Option<SourceId>,
    /// Rows refused before they became payloads.
    refused: u64,
    /// Of those, the ones that the directory's ledger does not have yet, for there is no source, and why the last of them was.
    unnoted: (u32, String),
    named: u64,
    bar: ProgressBar,
}

impl Load<'_> {
    /// Stores what comes until the input ends.
    fn follow(&mut self, events: &Receiver<Event>, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut stop_at = None;
        loop {
            if stop.load(Ordering::Relaxed) && stop_at.is_none() {
                stop_at = Some(Instant::now() + LAST_WAIT);
            }
            if stop_at.is_some_and(|stop_at| Instant::now() > stop_at) {
                bail!("a signal stopped the load before the end of the input");
            }
            match events.recv_timeout(TICK) {
                Ok(Event::Opened(def)) => self.wanted = Some(def),
                Ok(Event::Batch { batch, fraction }) => self.store(&batch, fraction)?,
                Ok(Event::Ended) => return Ok(()),
                Ok(Event::Failed(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(sink) = &mut self.sink {
                        sink.tick()?;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!(
                        "cannot read the input: its reader failed; the file may be damaged"
                    ));
                }
            }
        }
    }

    /// The source, and the way to it.
    fn defined(&mut self) -> anyhow::Result<(&mut Box<dyn Sink>, SourceId)> {
        if self.sink.is_none() {
            self.sink = Some(sink::open(self.dir)?);
        }
        let (Some(sink), Some(def)) = (&mut self.sink, &self.wanted) else {
            bail!("rows came before the input was open");
        };
        let source = match self.source {
            Some(source) => source,
            None => *self.source.insert(sink.define(def)?),
        };
        Ok((sink, source))
    }

    fn store(&mut self, batch: &InputBatch, fraction: Option<f64>) -> anyhow::Result<()> {
        for note in &batch.notes {
            self.say(note);
        }
        self.refused += batch.refused.len() as u64;
        self.name_refused(batch, &batch.refused);
        if let Some(last) = batch.refused.last() {
            self.unnoted.0 += batch.refused.len() as u32;
            self.unnoted.1 = naming(batch, last);
        }
        if batch.rows == 0 && self.source.is_none() {
            return Ok(());
        }
        self.note_refused()?;
        if batch.rows == 0 {
            return Ok(());
        }
        let (sink, source) = self.defined()?;
        let refused = sink.push(source, batch)?;
        self.name_refused(batch, &refused);
        self.bar.inc(batch.received());
        if let Some(fraction) = fraction {
            self.bar.set_message(format!("{:3.0} %", fraction * 100.0));
        }
        Ok(())
    }

    /// Enters the refused rows in the directory's ledger.
    fn note_refused(&mut self) -> anyhow::Result<()> {
        let (rows, reason) = std::mem::take(&mut self.unnoted);
        if rows > 0 {
            let (sink, source) = self.defined()?;
            sink.note_refused(source, rows, &reason)?;
        }
        Ok(())
    }

    /// The source is there at the end, also of an input of which nothing was stored. An input that failed before its first row makes none.
    fn complete(&mut self, failed: bool) -> anyhow::Result<()> {
        if !failed {
            self.defined()?;
        } else if self.source.is_none() && !self.exists {
            return Ok(());
        }
        self.note_refused()
    }

    fn name_refused(&mut self, batch: &InputBatch, refused: &[(u64, String)]) {
        for row in refused {
            self.named += 1;
            if self.named <= NAMED_MAX {
                self.say(&naming(batch, row));
            } else if self.named == NAMED_MAX + 1 {
                self.say(&format!(
                    "more than {NAMED_MAX} rows are refused; the others are only counted"
                ));
            }
        }
    }

    fn say(&self, message: &str) {
        self.bar.suspend(|| eprintln!("ingestd: {message}"));
    }

    /// Makes durable what was stored, and counts all rows, also where the load failed on the way.
    fn finish(mut self, outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        self.bar.finish_and_clear();
        let completed = self.complete(outcome.is_err());
        let outcome = outcome.and(completed);
        let finished = match (self.sink.take().map(|sink| sink.finish()), &outcome) {
            (None, _) => Finished::default(),
            // What failed first is the reason why the end failed too.
            (Some(Err(_)), Err(_)) => return outcome.map(|()| ExitCode::SUCCESS),
            (Some(finished), _) => finished?,
        };
        if self.wanted.is_none() {
            return outcome.map(|()| ExitCode::SUCCESS);
        }
        let counts = finished.counts;
        if !finished.reason.is_empty() {
            eprintln!(
                "ingestd: the daemon refused {}; the last one: {}",
                counted(counts.refused, "row"),
                finished.reason
            );
        }
        let refused = self.refused + counts.refused;
        say(format_args!(
            "received={} stored={} refused={refused} dropped={}",
            self.refused + counts.received,
            counts.stored,
            counts.dropped
        ))?;
        outcome?;
        Ok(if refused > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// One sentence about a row that is refused.
fn naming(batch: &InputBatch, (row, reason): &(u64, String)) -> String {
    let InputBatch {
        input, row_noun, ..
    } = batch;
    format!("{row_noun} {row} of {input} is refused: {reason}")
}

/// Opens and reads the input on another thread, a few batches ahead. A reader that panics on hostile bytes ends the
/// channel.
fn read_in_background(
    files: Vec<PathBuf>,
    format: Option<Format>,
    options: LoadOptions,
) -> Receiver<Event> {
    let (sender, receiver) = bounded(4);
    thread::spawn(move || {
        let last = match read(&files, format, options, &sender) {
            Ok(()) => Event::Ended,
            Err(error) => Event::Failed(error),
        };
        // The receiver is gone if the load has failed already.
        let _ = sender.send(last);
    });
    receiver
}

fn read(
    files: &[PathBuf],
    format: Option<Format>,
    options: LoadOptions,
    sender: &Sender<Event>,
) -> anyhow::Result<()> {
    let mut input = input::open(files, format, options)?;
    sender.send(Event::Opened(input.source().clone()))?;
    while let Some(batch) = input.next_batch()? {
        let fraction = input.fraction();
        sender.send(Event::Batch { batch, fraction })?;
    }
    Ok(())
}

/// Set by the first SIGINT or SIGTERM; the second ends the process at once.
fn stop_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
