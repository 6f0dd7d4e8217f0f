//! An export: records in one file, chunk by chunk in bounded memory.
//!
//! A Parquet file of a disk is read back and compared before it takes its name; a pipe gets the rows as they come.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use loom_engine::query::{Poll, Predicate, ScanSpec, Snapshot};
use loom_engine::schema::{Filter, RangeSet, Source};
use loom_engine::{Address, IndexId, Key, TimeRange};

use super::copy::{Gap, Gaps};
use super::otlp;
use super::out::Out;
use super::perfetto;
use super::table::{self, Part};

/// The form of the file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// One source as a table
    #[default]
    Parquet,
    /// Sources on one time line, for the page ui.perfetto.dev
    Perfetto,
    /// Spans and logs as OTLP in JSON, a request for each line, or sent to a receiver
    Otlp,
}

pub struct Export {
    pub format: Format,
    /// One, if the format is Parquet.
    pub sources: Vec<Arc<Source>>,
    pub time: TimeRange,
    /// Filters that the records of the sources match; none for all.
    pub filters: Vec<Filter>,
    /// An index of the only source, whose filter applies, and the range of keys unless all are exported.
    pub index: Option<(IndexId, Option<RangeSet<Key>>)>,
    /// The file with the bearer token for a receiver.
    pub token_file: Option<PathBuf>,
}

/// The outcome of an export.
pub struct Exported {
    pub rows: u64,
    /// Names the records that could not be read, or that the receiver did not take.
    pub missing: Option<String>,
}

/// Writes the records of a snapshot. A file appears when it is whole and was read back.
///
/// # Errors
/// A read or a write that failed, a file that holds something else, an interruption. Nothing of a file is left then.
pub fn export(
    snapshot: &Snapshot,
    export: &Export,
    out: &Out,
    poll: &Poll<'_>,
) -> anyhow::Result<Exported> {
    let Some(path) = out.kept() else {
        return write(snapshot, export, out, poll);
    };
    let partial = path.with_added_extension("partial");
    let written = write(snapshot, export, &Out::File(partial.clone()), poll).and_then(|exported| {
        fs::rename(&partial, path).with_context(|| format!("cannot write {out}"))?;
        Ok(exported)
    });
    if written.is_err() {
        // A part of an export is of no use, and the first error says more than one of the removal.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write(
    snapshot: &Snapshot,
    export: &Export,
    out: &Out,
    poll: &Poll<'_>,
) -> anyhow::Result<Exported> {
    let sources = export.sources.iter();
    let filters = export
        .filters
        .iter()
        .map(Some)
        .chain(std::iter::repeat(None));
    let mut parts = sources
        .zip(filters)
        .map(|(source, filter)| (&**source, export.part(snapshot, source, filter)));
    match export.format {
        Format::Parquet => {}
        Format::Perfetto => return trace(parts.collect(), out, poll),
        Format::Otlp => {
            let token_file = export.token_file.as_deref();
            let written = otlp::write(parts.collect(), out, token_file, poll)?;
            return Ok(Exported {
                rows: written.table.rows,
                missing: together([missing(written.table.gaps), written.refused]),
            });
        }
    }
    let (source, part) = parts.next().context("an export without a source")?;
    let written = table::write(source, vec![part], out, u64::MAX, poll)?;
    if written.rows == 0 {
        table::write_empty(source, out)?;
    }
    Ok(Exported {
        rows: written.rows,
        missing: missing(written.gaps),
    })
}

fn trace(parts: Vec<(&Source, Part)>, out: &Out, poll: &Poll<'_>) -> anyhow::Result<Exported> {
    let written = perfetto::write(parts, out, poll)?;
    let early = match written.early {
        0 => None,
        count => Some(format!(
            "{count} records are from before 1970, which a Perfetto trace cannot hold"
        )),
    };
    Ok(Exported {
        rows: written.rows,
        missing: together([missing(written.gaps), early]),
    })
}

fn together(reasons: [Option<String>; 2]) -> Option<String> {
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn missing(gaps: Vec<Gap>) -> Option<String> {
    let gaps: Gaps = gaps.into_iter().collect();
    (!gaps.is_empty()).then(|| gaps.to_string())
}

impl Export {
    fn part(&self, snapshot: &Snapshot, source: &Source, filter: Option<&Filter>) -> Part {
        let mut exact = vec![Predicate::time(self.time)];
        exact.extend(filter.map(|filter| Predicate::matching(filter, source)));
        if let Some((index, Some(keys))) = &self.index {
            exact.push(Predicate::keys(*index, keys.clone()));
        }
        Part {
            snapshot: snapshot.clone(),
            spec: ScanSpec {
                source: source.id,
                after: Address::ZERO,
                exact: Predicate::and(exact),
                prune: Predicate::All,
                index_filters: self.index.iter().map(|(index, _)| *index).collect(),
            },
        }
    }
}
