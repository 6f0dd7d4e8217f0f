//! `ingestd export`: records of a source into a Parquet file, read like any query, also while a daemon writes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ingestd::input::parse_timestamp_ns;
use ingestd::output::{Export, export, parse_range};
use loom_engine::query::Directory;
use loom_engine::schema::Source;
use loom_engine::{Error, IndexId, TimeRange, Timestamp, ValueRange};

use super::stdout::say;

/// Write a source's records to a Parquet file
///
/// The columns are `ts` (nanoseconds, UTC) and the source's fields, in log order; labels are written as text.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ingestd export /var/lib/loom --source trades --from 2026-01-01T00:00:00Z --index price --min 100 --out trades.parquet")]
pub struct Args {
    /// The Loom directory
    dir: PathBuf,

    /// The source to export
    #[arg(long, value_name = "NAME")]
    source: String,

    /// Only records from this time on, RFC 3339
    #[arg(long, value_name = "T", value_parser = time)]
    from: Option<Timestamp>,

    /// Only records before this time, RFC 3339
    #[arg(long, value_name = "T", value_parser = time)]
    to: Option<Timestamp>,

    /// Only records that match the filter of this index, and have a value between --min and --max
    #[arg(long, value_name = "NAME")]
    index: Option<String>,

    /// The least value of the index
    #[arg(long, value_name = "V", requires = "index", allow_hyphen_values = true)]
    min: Option<String>,

    /// The greatest value of the index
    #[arg(long, value_name = "V", requires = "index", allow_hyphen_values = true)]
    max: Option<String>,

    /// The Parquet file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let snapshot = Directory::open(&self.dir)?.snapshot()?;
        let source = match snapshot.source(&self.source) {
            Err(error @ Error::UnknownSource { .. }) => {
                let sources = snapshot.catalog().sources();
                bail!(
                    "{error}; {}",
                    known(sources.map(|source| source.name.as_str()))
                )
            }
            source => source?,
        };
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
        let rows = export(
            &snapshot,
            &Export {
                source,
                time,
                index,
            },
            &self.out,
        )?;
        say(format_args!("rows={rows}"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn index_range(
        &self,
        source: &Source,
        name: &str,
    ) -> anyhow::Result<(IndexId, Option<ValueRange>)> {
        let Some(index) = source.index(name) else {
            let error = source.unknown_index(name);
            let indexes = source.indexes.iter();
            bail!(
                "{error}; {}",
                known(indexes.map(|index| index.name.as_str()))
            );
        };
        let field = index
            .value_field()
            .and_then(|field| source.fields.get(field));
        let range = match (field, &self.min, &self.max) {
            (_, None, None) => None,
            (Some(field), min, max) => Some(parse_range(min.as_deref(), max.as_deref(), field)?),
            (None, ..) => bail!(
                "the index '{name}' counts records and has no value; leave --min and --max out"
            ),
        };
        Ok((index.id, range))
    }
}

/// Which names there are.
fn known<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
    if names.is_empty() {
        return "there is none".to_owned();
    }
    format!("there is {}", names.join(", "))
}

fn time(text: &str) -> anyhow::Result<Timestamp> {
    let ns = parse_timestamp_ns(text);
    let ns = ns.context("no time; write it like 2026-01-31T12:00:00Z")?;
    Ok(Timestamp(ns))
}
