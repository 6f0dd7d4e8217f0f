//! `ingestd load`: files and pipes into a source, through the daemon where one runs, else directly.
//!
//! The input runs on a thread of its own: parsing and storing overlap, and a pipe that is silent never keeps the
//! writer from its heartbeat. `storing` takes what it sends.

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
/// Reads Parquet, Arrow IPC, pcap and pcapng, and CSV and JSON lines into declared fields, also compressed with gzip, zstd, bzip2 or xz. The rows
/// go through the daemon that runs on DIR, and if that ends, through the next one; without a daemon, load writes DIR itself. Where DIR and the
/// source do not exist, the first row that is stored creates them. The last line of standard output counts the rows. The exit status is 1 if a
/// row was refused or may be missing. Ctrl-C, SIGTERM or a closed terminal ends the load and a wait for the next daemon, and what was read is
/// stored or counted; a second Ctrl-C ends it at once and without counts, for instance while the daemon is suspended.
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

    /// The first row of CSV holds values: columns fill the fields in their order, and --ts column0 is the first
    #[arg(long)]
    no_header: bool,

    /// Character between the columns of CSV, or 'tab' [default: a comma; a tab if the name ends with .tsv]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// TOML file that declares the source as a [[source]]; CSV and JSON lines need it for a new source
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,

    /// Add the input's new columns to a source that exists, as nullable fields; without it, they are left out
    #[arg(long)]
    add_fields: bool,

    /// How long to wait for the next daemon if the one that takes the rows ends
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: Span,
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

/// A load begins again each time that another one changes the source under it, up to this number.
const ATTEMPTS_MAX: usize = 100;

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
        let waiting = LastingOptions {
            name: "load".to_owned(),
            patience: self.patience.0,
            stop: signals::stop()?,
        };
        let mut storing = Storing::new(&self.dir, &self.source, waiting);
        let outcome = self.load(&mut storing);
        storing.finish(outcome)
    }

    /// Loads all files. Other loads may create or extend the source meanwhile: a load that has stored nothing yet then begins again, with the
    /// source as it is now.
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
