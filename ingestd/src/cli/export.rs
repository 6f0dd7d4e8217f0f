//! `ingestd export`: writes records of a source as Parquet to a file or to standard output, also while a daemon writes.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ingestd::input::parse_timestamp_ns;
use ingestd::output::{Export, Out, export};
use loom_engine::query::{Directory, Poll};
use loom_engine::schema::{Constant, FieldDef, FieldType, Number, Op, RangeSet, Source};
use loom_engine::{IndexId, Key, TimeRange, Timestamp};

use super::stdout::{complain, say};

/// Export records of a source as Parquet
///
/// The columns are `ts` (nanoseconds, UTC) and the fields of the source; labels become text. The rows are in the order of the log. The file appears
/// only when it is complete, was read back and is correct. A daemon may write meanwhile. Damaged records, and those that retention removes meanwhile,
/// are missing in the file and listed on standard error, and the exit status is 1.
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

    /// Export only records that match the filter of this index
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
        let index = self.index.as_ref();
        let index = index.map(|name| self.index_keys(&source, name));
        let index = index.transpose()?;
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

    fn index_keys(
        &self,
        source: &Source,
        name: &str,
    ) -> anyhow::Result<(IndexId, Option<RangeSet<Key>>)> {
        let Some(index) = source.index(name) else {
            bail!(source.unknown_index(name));
        };
        let bounds = [("--min", Op::Ge, &self.min), ("--max", Op::Le, &self.max)];
        let bounds = bounds.map(|(flag, op, bound)| Some((flag, op, bound.as_deref()?)));
        let bounds: Vec<(&str, Op, &str)> = bounds.into_iter().flatten().collect();
        if bounds.is_empty() {
            return Ok((index.id, None));
        }
        let Some(field) = source.value_of(index) else {
            bail!(
                "cannot apply --min and --max to index '{name}': it counts records and has no value; omit them"
            );
        };
        let within = bounds.iter().map(|(_, op, bound)| keys(field, *op, bound));
        let within = RangeSet::intersection(within.collect::<anyhow::Result<Vec<_>>>()?);
        if within.is_empty() {
            let bounds = bounds
                .iter()
                .map(|(flag, _, bound)| format!(" {flag} {bound}"));
            bail!(
                "no value of field '{}' ({}) lies within{}; widen the range",
                field.name,
                field.ty,
                bounds.collect::<String>()
            );
        }
        Ok((index.id, Some(within)))
    }
}

/// Converts a bound from the command line to a range of keys.
fn keys(field: &FieldDef, op: Op, bound: &str) -> anyhow::Result<RangeSet<Key>> {
    let constant = match field.ty {
        FieldType::TimestampNs => {
            parse_timestamp_ns(bound).map(|ns| Constant::Number(Number::from(ns)))
        }
        _ => Some(Constant::Typed(bound)),
    };
    let keys = constant.and_then(|constant| field.keys(op, constant));
    keys.with_context(|| {
        format!(
            "'{}' is not a value of field '{}' ({})",
            bound.trim(),
            field.name,
            field.ty
        )
    })
}

fn time(text: &str) -> anyhow::Result<Timestamp> {
    let ns = parse_timestamp_ns(text);
    let ns = ns.context("not a time; use for example 2026-01-31T12:00:00Z")?;
    Ok(Timestamp(ns))
}
