//! `ingestd export`: records of a source as Parquet, in a file or on standard output, read like any query, also while a daemon writes.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ingestd::input::parse_timestamp_ns;
use ingestd::output::{Export, Out, export, parse_range};
use loom_engine::query::{Directory, Poll};
use loom_engine::schema::Source;
use loom_engine::{IndexId, TimeRange, Timestamp, ValueRange};

use super::stdout::{complain, say};

/// Export records of a source as Parquet
///
/// The columns are `ts` (nanoseconds, UTC) and the fields of the source; labels become text. The rows have the order of the log. The file
/// appears when it is complete, was read back and holds what was written. A daemon may write meanwhile. Damaged records, and those that retention
/// removes meanwhile, are left out and named on standard error, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd export /var/lib/loom --source trades --out trades.parquet \\
    --from 2026-01-01T00:00:00Z --index price --min 100
  ssh HOST ingestd export /var/lib/loom --source trades --out - > trades.parquet

A program that reads Parquet looks at its end first: DuckDB takes a
file, not a pipe. 'ingestd load' takes both.")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,

    /// Source to export
    #[arg(long, value_name = "NAME")]
    source: String,

    /// Parquet file to write; '-' is standard output, which is not read back, and then the count of rows goes to standard error
    #[arg(long, value_name = "FILE")]
    out: Out,

    /// Export records from this time on (RFC 3339)
    #[arg(long, value_name = "T", value_parser = time)]
    from: Option<Timestamp>,

    /// Export records before this time (RFC 3339); the time itself is excluded
    #[arg(long, value_name = "T", value_parser = time)]
    to: Option<Timestamp>,

    /// Export only records that this index describes: those that its filter matches
    #[arg(long, value_name = "NAME")]
    index: Option<String>,

    /// Least value of the index's field, included
    #[arg(long, value_name = "V", requires = "index", allow_hyphen_values = true)]
    min: Option<String>,

    /// Greatest value of the index's field, included
    #[arg(long, value_name = "V", requires = "index", allow_hyphen_values = true)]
    max: Option<String>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.out == Out::Stdout && std::io::stdout().is_terminal() {
            bail!(
                "cannot write Parquet to a terminal: it is not text; redirect standard output, or give --out a file"
            );
        }
        let snapshot = Directory::open(&self.dir)?.snapshot()?;
        let source = snapshot.source(&self.source)?;
        let index = match &self.index {
            Some(name) => Some(self.index_range(&source, name)?),
            None => None,
        };
        let first = self.from.unwrap_or(Timestamp::MIN);
        let time = match self.to {
            Some(to) => TimeRange::half_open(first, to),
            None => TimeRange {
                first,
                last: Timestamp::MAX,
            },
        };
        if time.is_empty() {
            bail!(
                "no time lies from --from up to --to, which is excluded; give a --to after --from"
            );
        }
        let exported = export(
            &snapshot,
            &Export {
                source,
                time,
                index,
            },
            &self.out,
            &Poll::never(),
        )?;
        let rows = format!("rows={}", exported.rows);
        match self.out {
            Out::File(_) => say(rows)?,
            Out::Stdout => complain(rows),
        }
        let Some(missing) = exported.missing else {
            return Ok(ExitCode::SUCCESS);
        };
        complain(format_args!("the file has what can be read: {missing}"));
        Ok(ExitCode::FAILURE)
    }

    fn index_range(
        &self,
        source: &Source,
        name: &str,
    ) -> anyhow::Result<(IndexId, Option<ValueRange>)> {
        let Some(index) = source.index(name) else {
            bail!(source.unknown_index(name));
        };
        let field = index
            .value_field()
            .and_then(|field| source.fields.get(field));
        let range = match (field, &self.min, &self.max) {
            (_, None, None) => None,
            (Some(field), min, max) => {
                let range = parse_range(min.as_deref(), max.as_deref(), field)?;
                if range.is_empty() {
                    let bounds = [("--min", min), ("--max", max)];
                    let bounds =
                        bounds.map(|(flag, bound)| Some(format!(" {flag} {}", bound.as_ref()?)));
                    bail!(
                        "no value of field '{}' ({}) lies within{}; widen the range",
                        field.name,
                        field.ty,
                        bounds.into_iter().flatten().collect::<String>()
                    );
                }
                Some(range)
            }
            (None, ..) => bail!(
                "cannot apply --min and --max to index '{name}': it counts records and has no value; omit them"
            ),
        };
        Ok((index.id, range))
    }
}

fn time(text: &str) -> anyhow::Result<Timestamp> {
    let ns = parse_timestamp_ns(text);
    let ns = ns.context("not a time; use for example 2026-01-31T12:00:00Z")?;
    Ok(Timestamp(ns))
}
