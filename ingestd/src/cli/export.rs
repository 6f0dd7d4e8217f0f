//! `ingestd export`: writes records to a file, to standard output or to a receiver of OTLP, also while a daemon writes.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ingestd::config::{LOGS_SOURCE, SPANS_SOURCE};
use ingestd::input::parse_timestamp_ns;
use ingestd::output::{Export, Format, Out, export};
use loom_engine::query::{Directory, Poll, Snapshot};
use loom_engine::schema::{
    Constant, FieldDef, FieldType, Filter, Number, Op, RangeSet, Source, is_builtin,
};
use loom_engine::{IndexId, Key, TimeRange, Timestamp};

use super::stdout::{complain, say};

/// Export records as Parquet, as a trace for Perfetto, or as OTLP
///
/// Parquet has the records of one source: `ts` (nanoseconds, UTC) and the fields of the source; labels become text. The rows are in the order of the log.
/// A trace for Perfetto has the records of several sources on one time line. OTLP has the spans and logs that came by it, each line a request; with a URL as --out they are sent to that receiver. The file appears only when it is complete; a Parquet file was then read back and is
/// correct. A daemon may write meanwhile. Damaged records, and those that retention removes meanwhile, are missing in the file and listed on standard
/// error, and the exit status is 1.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd export /var/lib/loom --source trades --out trades.parquet \\
    --from 2026-01-01T00:00:00Z --index price --min 100
  ssh HOST ingestd export /var/lib/loom --source trades --out - > trades.parquet
  ingestd export /var/lib/loom --format perfetto --out stall.pftrace \\
    --from 2026-01-31T12:00:00Z --to 2026-01-31T12:00:10Z
  ingestd export /var/lib/loom --format otlp --out trace.jsonl \\
    --trace-id 0af7651916cd43dd8448eb211c80319c
  ingestd export /var/lib/loom --format otlp --out http://collector:4318 \\
    --trace-id 0af7651916cd43dd8448eb211c80319c

A program that reads Parquet looks at its end first: DuckDB takes a
file, not a pipe. 'ingestd load' takes both.")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,

    /// Form of the file
    #[arg(long, value_name = "FORM", default_value = "parquet")]
    format: Format,

    /// Source to export; except for Parquet, it may be repeated [default, except for Parquet: all that the form can have]
    #[arg(long, value_name = "NAME", required_if_eq("format", "parquet"))]
    source: Vec<String>,

    /// File to write, or with --format otlp the URL of a receiver, without /v1/…; '-' is standard output, and then the count of rows goes to standard error
    #[arg(long, value_name = "FILE")]
    out: Out,

    /// File with a bearer token for the receiver
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Export records from this time on (RFC 3339)
    #[arg(long, value_name = "T", value_parser = time)]
    from: Option<Timestamp>,

    /// Export records before this time (RFC 3339); the time itself is excluded
    #[arg(long, value_name = "T", value_parser = time)]
    to: Option<Timestamp>,

    /// Export only spans and logs of this trace; may be repeated
    #[arg(long, value_name = "ID", value_parser = trace_id)]
    trace_id: Vec<String>,

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
        let is_text = self.format == Format::Otlp;
        if self.out == Out::Stdout && !is_text && std::io::stdout().is_terminal() {
            bail!(
                "cannot write to a terminal: the file is not text; redirect standard output, or give --out a file"
            );
        }
        let snapshot = Directory::open(&self.dir)?.snapshot()?;
        let sources = self.sources(&snapshot)?;
        let index = match (&self.index, &sources[..]) {
            (None, _) => None,
            (Some(name), [source]) => Some(self.index_keys(source, name)?),
            (Some(name), _) => {
                bail!("index '{name}' needs its source; give --source once")
            }
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
        let filters = self.filters(&sources)?;
        let exported = export(
            &snapshot,
            &Export {
                format: self.format,
                sources,
                filters,
                time,
                index,
                token_file: self.token_file,
            },
            &self.out,
            &Poll::never(),
        )?;
        let rows = format!("rows={}", exported.rows);
        match self.out {
            Out::File(_) | Out::Endpoint(_) => say(rows)?,
            Out::Stdout => complain(rows),
        }
        let Some(missing) = exported.missing else {
            return Ok(ExitCode::SUCCESS);
        };
        let there = match self.out {
            Out::Endpoint(_) => "the receiver has the rest",
            Out::File(_) | Out::Stdout => "the file has what can be read",
        };
        complain(format_args!("{there}: {missing}"));
        Ok(ExitCode::FAILURE)
    }

    fn sources(&self, snapshot: &Snapshot) -> anyhow::Result<Vec<Arc<Source>>> {
        if let (Format::Parquet, [_, second, ..]) = (self.format, &self.source[..]) {
            bail!("a Parquet file has one source; export '{second}' to another file");
        }
        if self.source.is_empty() {
            let all = snapshot.catalog().sources();
            let is_fit = |source: &&Arc<Source>| match self.format {
                Format::Otlp => [LOGS_SOURCE, SPANS_SOURCE].contains(&&*source.name),
                _ => !is_builtin(&source.name),
            };
            let all: Vec<_> = all.filter(is_fit).cloned().collect();
            if all.is_empty() {
                bail!("the directory has no source that could be exported so");
            }
            return Ok(all);
        }
        let named = self.source.iter().map(|name| snapshot.source(name));
        Ok(named.collect::<Result<_, _>>()?)
    }

    /// A filter for each source, if traces were named.
    fn filters(&self, sources: &[Arc<Source>]) -> anyhow::Result<Vec<Filter>> {
        if self.trace_id.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = self.trace_id.iter().map(|id| format!("'{id}'")).collect();
        let text = format!("trace_id IN ({})", ids.join(", "));
        let filters = sources.iter().map(|source| {
            let filter = Filter::parse(&text, &source.fields);
            filter.with_context(|| format!("cannot apply --trace-id to source '{}'", source.name))
        });
        filters.collect()
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

fn trace_id(text: &str) -> anyhow::Result<String> {
    let is_digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(
        is_digits,
        "not the id of a trace; give its 32 hexadecimal digits"
    );
    Ok(text.to_ascii_lowercase())
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

pub(super) fn time(text: &str) -> anyhow::Result<Timestamp> {
    let ns = parse_timestamp_ns(text);
    let ns = ns.context("not a time; use for example 2026-01-31T12:00:00Z")?;
    Ok(Timestamp(ns))
}
