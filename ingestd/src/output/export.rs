//! An export: records of a source in one Parquet file, chunk by chunk in bounded memory.
//!
//! A file of a disk is read back and compared before it takes its name; a pipe gets the rows as they come.

use std::fs;
use std::sync::Arc;

use anyhow::Context;
use loom_engine::query::{Poll, Predicate, ScanSpec, Snapshot};
use loom_engine::schema::{RangeSet, Source};
use loom_engine::{Address, IndexId, Key, TimeRange};

use super::copy::Gaps;
use super::out::Out;
use super::table::{self, Part};

pub struct Export {
    pub source: Arc<Source>,
    pub time: TimeRange,
    /// An index, whose filter applies, and the range of keys unless all are exported.
    pub index: Option<(IndexId, Option<RangeSet<Key>>)>,
}

/// The outcome of an export.
pub struct Exported {
    pub rows: u64,
    /// Names the records that could not be read.
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
    let mut exact = vec![Predicate::time(export.time)];
    if let Some((index, Some(keys))) = &export.index {
        exact.push(Predicate::keys(*index, keys.clone()));
    }
    let spec = ScanSpec {
        source: export.source.id,
        after: Address::ZERO,
        exact: Predicate::and(exact),
        prune: Predicate::All,
        index_filters: export.index.iter().map(|(index, _)| *index).collect(),
    };
    let part = Part {
        snapshot: snapshot.clone(),
        spec,
    };
    let written = table::write(&export.source, vec![part], out, u64::MAX, poll)?;
    if written.rows == 0 {
        table::write_empty(&export.source, out)?;
    }
    let gaps: Gaps = written.gaps.into_iter().collect();
    Ok(Exported {
        rows: written.rows,
        missing: (!gaps.is_empty()).then(|| gaps.to_string()),
    })
}
