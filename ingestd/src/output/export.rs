//! An export: records of a source in one Parquet file, chunk by chunk in bounded memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use loom_engine::query::{Poll, Predicate, Scan, ScanSpec, Snapshot};
use loom_engine::schema::Source;
use loom_engine::{Address, IndexId, TimeRange, ValueRange};

use super::columns::{Columns, Form};
use super::parquet::ParquetFile;

/// Rows of one batch.
const BATCH_ROWS: usize = 16_384;

/// Which records to write.
pub struct Export {
    pub source: Arc<Source>,
    pub time: TimeRange,
    /// An index, whose filter applies, and the range of its value where it has one.
    pub index: Option<(IndexId, Option<ValueRange>)>,
}

/// Writes the records of a snapshot to a file, which appears when it is whole. Returns their number.
pub fn export(
    snapshot: &Snapshot,
    export: &Export,
    out: &Path,
    poll: &Poll<'_>,
) -> anyhow::Result<u64> {
    let partial = partial_name(out);
    let written = write(snapshot, export, &partial, poll).and_then(|rows| {
        fs::rename(&partial, out).with_context(|| format!("cannot write '{}'", out.display()))?;
        Ok(rows)
    });
    if written.is_err() {
        // A part of an export is of no use; the error says more than failing to remove it would.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn partial_name(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

fn write(snapshot: &Snapshot, export: &Export, out: &Path, poll: &Poll<'_>) -> anyhow::Result<u64> {
    let mut exact = vec![Predicate::time(export.time)];
    if let Some((index, Some(range))) = export.index {
        exact.push(Predicate::value(index, range));
    }
    let spec = ScanSpec {
        source: export.source.id,
        after: Address::ZERO,
        exact: Predicate::and(exact),
        prune: Predicate::All,
        index_filters: export.index.iter().map(|(index, _)| *index).collect(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let mut reader = scan.reader();
    let mut columns = Columns::new(&export.source, Form::Export);
    let mut file = ParquetFile::create(out, columns.schema())?;
    let mut written = 0;
    while let Some(chunk) = scan.next(poll)? {
        let rows = reader.read(chunk)?;
        written += rows.rows.len() as u64;
        columns.append(rows);
        if columns.rows() >= BATCH_ROWS {
            file.write(&columns.finish()?)?;
        }
    }
    if columns.rows() > 0 {
        file.write(&columns.finish()?)?;
    }
    file.finish()?;
    Ok(written)
}
