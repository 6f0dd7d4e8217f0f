//! Reads the records of one source in batches of bounded size, and writes them as one Parquet file: for an export, or for each source of a pin.

use anyhow::anyhow;
use arrow::array::RecordBatch;
use loom_engine::query::{Batch, Poll, ScanSpec, Snapshot};
use loom_engine::schema::Source;

use super::columns::{BatchMost, Columns, Form};
use super::copy::{Gap, Taker, copy};
use super::out::Out;
use super::parquet::ParquetFile;

const BATCH: BatchMost = BatchMost {
    rows: 16_384,
    bytes: 4 << 20,
};

pub(super) struct Part {
    pub snapshot: Snapshot,
    pub spec: ScanSpec,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub rows: u64,
    /// The size of the file, which exists if it has rows.
    pub bytes: u64,
    pub gaps: Vec<Gap>,
}

/// The file would take more than it may.
#[derive(Debug, thiserror::Error)]
#[error("the file takes more than {0} bytes")]
pub(super) struct TooLarge(u64);

/// Writes the records of some parts, one after the other, into a file of at most so many bytes.
///
/// # Errors
/// [`TooLarge`], a read or a write that failed, an interruption. The file remains as far as it was written.
pub(super) fn write(
    source: &Source,
    parts: Vec<Part>,
    out: &Out,
    bytes_max: u64,
    poll: &Poll<'_>,
) -> anyhow::Result<Table> {
    let require = |bytes: u64| match bytes > bytes_max {
        true => Err(anyhow!(TooLarge(bytes_max))),
        false => Ok(()),
    };
    let mut created: Option<ParquetFile> = None;
    let mut table = batches(source, parts, poll, |batch| {
        let file = match &mut created {
            Some(file) => file,
            None => created.insert(ParquetFile::create(out.clone(), batch.schema_ref())?),
        };
        file.write(batch)?;
        require(file.bytes())
    })?;
    if let Some(file) = created {
        table.bytes = file.finish()?;
        require(table.bytes)?;
    }
    Ok(table)
}

pub(super) fn write_empty(source: &Source, out: &Out) -> anyhow::Result<()> {
    let columns = Columns::new(source, Form::Export);
    ParquetFile::create(out.clone(), columns.schema())?.finish()?;
    Ok(())
}

/// Gives the records of some parts to `each`, in the columns of an export.
///
/// # Errors
/// A read that failed, an interruption, the errors of `each`.
pub(super) fn batches(
    source: &Source,
    parts: Vec<Part>,
    poll: &Poll<'_>,
    each: impl FnMut(&RecordBatch) -> anyhow::Result<()>,
) -> anyhow::Result<Table> {
    let mut batches = Batches {
        columns: Columns::new(source, Form::Export),
        each,
        table: Table::default(),
    };
    for part in parts {
        copy(&part.snapshot, part.spec, poll, &mut batches)?;
    }
    batches.flush()?;
    Ok(batches.table)
}

struct Batches<E> {
    columns: Columns,
    each: E,
    table: Table,
}

impl<E: FnMut(&RecordBatch) -> anyhow::Result<()>> Taker for Batches<E> {
    fn take(&mut self, rows: Batch<'_>) -> anyhow::Result<()> {
        if self.columns.is_full_before(&rows, BATCH) {
            self.flush()?;
        }
        self.table.rows += rows.count() as u64;
        self.columns.append(rows);
        Ok(())
    }

    fn miss(&mut self, gap: Gap) {
        self.table.gaps.push(gap);
    }
}

impl<E: FnMut(&RecordBatch) -> anyhow::Result<()>> Batches<E> {
    fn flush(&mut self) -> anyhow::Result<()> {
        match self.columns.is_empty() {
            true => Ok(()),
            false => (self.each)(&self.columns.finish()?),
        }
    }
}
