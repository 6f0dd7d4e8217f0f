//! A Parquet file from a scan: chunk by chunk into batches, batches into row groups, one row group in memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use loom_engine::query::{Poll, Predicate, Scan, ScanSpec, Snapshot};
use loom_engine::schema::Source;
use loom_engine::{IndexId, TimeRange, ValueRange};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::columns::Columns;

/// Rows of one batch.
const BATCH_ROWS: usize = 16_384;
/// Rows of one row group, unless it grows too large before.
const GROUP_ROWS: usize = 1 << 20;
/// What one row group may take in memory.
const GROUP_BYTES: usize = 128 << 20;

/// Which records to write.
pub struct Export {
    pub source: Arc<Source>,
    pub time: TimeRange,
    /// An index, whose filter applies, and the range of its value where it has one.
    pub index: Option<(IndexId, Option<ValueRange>)>,
}

/// Writes the records of a snapshot to a file, which appears when it is whole. Returns their number.
pub fn export(snapshot: &Snapshot, export: &Export, out: &Path) -> anyhow::Result<u64> {
    let partial = partial_name(out);
    let written = write(snapshot, export, &partial).and_then(|rows| {
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

fn write(snapshot: &Snapshot, export: &Export, out: &Path) -> anyhow::Result<u64> {
    let mut exact = vec![Predicate::time(export.time)];
    if let Some((index, Some(range))) = export.index {
        exact.push(Predicate::value(index, range));
    }
    let spec = ScanSpec {
        source: export.source.id,
        exact: Predicate::and(exact),
        prune: Predicate::All,
        index_filters: export.index.iter().map(|(index, _)| *index).collect(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let mut reader = scan.reader();
    let mut columns = Columns::new(&export.source);
    let failed = || format!("cannot write '{}'", out.display());
    let file = File::create(out).with_context(failed)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(file, Arc::clone(columns.schema()), Some(properties))?;
    let poll = Poll::never();
    let mut written = 0;
    while let Some(chunk) = scan.next(&poll)? {
        let rows = reader.read(chunk)?;
        for row in rows.rows {
            columns.append(row.ts, rows.layout, row.payload(rows.bytes));
        }
        written += rows.rows.len() as u64;
        if columns.rows() >= BATCH_ROWS {
            writer.write(&columns.finish()?).with_context(failed)?;
            if writer.in_progress_size() > GROUP_BYTES {
                writer.flush().with_context(failed)?;
            }
        }
    }
    if columns.rows() > 0 {
        writer.write(&columns.finish()?).with_context(failed)?;
    }
    let file = writer.into_inner().with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(written)
}
