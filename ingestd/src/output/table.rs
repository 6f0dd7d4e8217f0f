//! Writes one Parquet file of one source, in batches of bounded size: for an export, or for each source of a pin.

use anyhow::bail;
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
    let mut writing = Writing {
        out,
        bytes_max,
        columns: Columns::new(source, Form::Export),
        file: None,
        table: Table::default(),
    };
    for part in parts {
        copy(&part.snapshot, part.spec, poll, &mut writing)?;
    }
    writing.finish()
}

pub(super) fn write_empty(source: &Source, out: &Out) -> anyhow::Result<()> {
    let columns = Columns::new(source, Form::Export);
    ParquetFile::create(out.clone(), columns.schema())?.finish()?;
    Ok(())
}

struct Writing<'a> {
    out: &'a Out,
    bytes_max: u64,
    columns: Columns,
    /// Created with the first batch.
    file: Option<ParquetFile>,
    table: Table,
}

impl Taker for Writing<'_> {
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

impl Writing<'_> {
    fn flush(&mut self) -> anyhow::Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = ParquetFile::create(self.out.clone(), self.columns.schema())?;
                self.file.insert(file)
            }
        };
        file.write(&self.columns.finish()?)?;
        let bytes = file.bytes();
        self.require(bytes)
    }

    fn require(&self, bytes: u64) -> anyhow::Result<()> {
        if bytes > self.bytes_max {
            bail!(TooLarge(self.bytes_max));
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Table> {
        self.flush()?;
        if let Some(file) = self.file.take() {
            self.table.bytes = file.finish()?;
            self.require(self.table.bytes)?;
        }
        Ok(self.table)
    }
}
