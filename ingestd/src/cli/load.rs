//! `ingestd load`: loads files and pipes into a source, through the daemon if one runs, else directly.
//!
//! A separate thread reads the input, so that parsing and storing overlap, and a silent pipe does not delay the writer's heartbeat. `storing`
//! receives the batches.

mod storing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::ensure;
use crossbeam_channel::{Receiver, Sender, bounded};
use loom_engine::schema::{SourceDef, TimeKind};

use ingestd::config::Span;
use ingestd::input::{self, CsvOptions, Format, InputBatch, LoadOptions, TimeForm, TimeUnit};

use ingestd::sink::LastingOptions;

use super::declared::declared;
use super::signals;
use storing::Storing;

/// Load files into a source
///
/// Reads Parquet, Arrow IPC, pcap and pcapng; and CSV and JSON lines into declared fields; also compressed with gzip, zstd, bzip2 or xz. If a daemon
/// runs on DIR, the rows go through it, and through the next one if it ends; otherwise load writes DIR itself. The first stored row creates DIR and
/// the source if they do not exist. The last line of standard output counts the rows. The exit status is 1 if a row was refused or may be missing.
/// Ctrl-C, SIGTERM or a closed terminal ends the load, also while it waits for the next daemon; the rows read so far are stored or counted. A second
/// Ctrl-C ends it at once and without counts, for instance while the daemon is suspended.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd load DIR --source trades --ts time --index price trades.parquet
  ingestd load DIR --source access --fields access.toml --ts when \\
    --ts-format '%d/%b/%Y:%H:%M:%S %z' access.csv.gz
  journalctl -o json |
    ingestd load DIR --source journal --fields journal.toml --format json -

DuckDB finds the types of CSV and JSON, and reads and converts much else:
  duckdb -c \"COPY (SELECT * FROM 'a.csv') TO '/dev/stdout' (FORMAT parquet)\" |
    ingestd load DIR --source a --format parquet -")]
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

    /// Unit of the numbers in the column of --ts, which count from 1970 and may have a fraction
    #[arg(long, value_name = "UNIT", value_enum, requires = "ts")]
    ts_unit: Option<TimeUnit>,

    /// Format of the texts in the column of --ts, as in strptime: '%d.%m.%Y %H:%M:%S%.f'; UTC without %z
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

    /// Format of the files, if their names and first bytes do not show it
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// The first row of CSV has values: columns fill the fields in their order, and --ts column0 is the first
    #[arg(long)]
    no_header: bool,

    /// Character between the columns of CSV, or 'tab' [default: a comma; a tab if the name ends with .tsv]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// TOML file that declares the source as a [[source]]; CSV and JSON lines need it for a new source
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,

    /// Add the input's new columns to an existing source, as nullable fields; otherwise they are left out
    #[arg(long)]
    add_fields: bool,

    /// How long to wait for the next daemon if the current one ends
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: Span,
}

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

/// A load begins again each time that another one changes the source meanwhile, up to this number.
const ATTEMPTS_MAX: usize = 100;

/// A report of the input's thread.
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
        let waiting = LastingOptions {
            name: "load".to_owned(),
            patience: self.patience.0,
            stop: signals::stop()?,
        };
        let mut storing = Storing::new(&self.dir, &self.source, waiting);
        let outcome = self.load(&mut storing);
        storing.finish(outcome)
    }

    /// Loads all files. If another load creates or extends the source before this one has stored anything, this one begins again with the source as
    /// it is then.
    fn load(&self, storing: &mut Storing<'_>) -> anyhow::Result<()> {
        let mut attempts = 0;
        loop {
            let options = self.options(storing)?;
            let events = read_in_background(self.files.clone(), self.format, options);
            attempts += 1;
            match storing.follow(&events) {
                Err(error) if storing.is_overtaken() => {
                    if attempts == ATTEMPTS_MAX
                        || self.files.iter().any(|file| input::is_stream(file))
                    {
                        return Err(error.context(format!(
                            "another program changed source '{}' since this load began; load again",
                            self.source
                        )));
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn options(&self, storing: &mut Storing<'_>) -> anyhow::Result<LoadOptions> {
        let mut options = LoadOptions::new(&self.source);
        options.dir.clone_from(&self.dir);
        options.ts_column.clone_from(&self.ts);
        options.ts_form = match (self.ts_unit, &self.ts_format) {
            (Some(unit), _) => TimeForm::Unit(unit),
            (None, Some(format)) => TimeForm::Format(format.clone()),
            (None, None) => TimeForm::Usual,
        };
        options.csv = CsvOptions {
            delimiter: self.delimiter,
            no_header: self.no_header,
        };
        options.add_fields = self.add_fields;
        options.indexes.clone_from(&self.index);
        options.declared = match &self.fields {
            Some(path) => Some(declared(path, &self.source)?),
            None => None,
        };
        if let (Some(ts), Some(def)) = (&self.ts, &mut options.declared) {
            ensure!(
                !def.fields.iter().any(|field| field.name == *ts),
                "column '{ts}' holds the time (--ts) and cannot be a field too; remove the field from --fields"
            );
            def.time = TimeKind::Own;
        }
        let known = storing.open_existing(&mut options.payload_bytes_max)?;
        options.declared = options.declared.or(known);
        Ok(options)
    }
}

/// Reads the input on another thread, a few batches ahead. The channel ends if the reader panics.
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
