//! A Parquet file that is being written: batches into row groups, one row group in memory. Exports and archives write through it.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

/// Rows of one row group, unless it grows too large before.
pub(super) const GROUP_ROWS: usize = 1 << 20;
/// What one row group may take in memory, encoded.
const GROUP_BYTES: usize = 32 << 20;
/// Columns that grow from row to row: their differences are small.
const ASCENDING: [&str; 3] = ["ts", "ts_ns", "addr"];

pub(super) struct ParquetFile {
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl ParquetFile {
    /// Creates the file, or begins it again.
    pub(super) fn create(path: &Path, schema: &SchemaRef) -> anyhow::Result<ParquetFile> {
        let file = File::create(path).with_context(|| failed(path))?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_max_row_group_row_count(Some(GROUP_ROWS));
        for name in ASCENDING {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        Ok(ParquetFile {
            path: path.to_owned(),
            writer: ArrowWriter::try_new(file, schema.clone(), Some(properties.build()))?,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        self.writer
            .write(batch)
            .map_err(cause)
            .with_context(|| failed(&self.path))?;
        match self.writer.in_progress_size() > GROUP_BYTES {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    /// What the file takes with what is in memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// What was written so far is a row group, and what follows is another.
    pub(super) fn end_group(&mut self) -> anyhow::Result<()> {
        self.writer
            .flush()
            .map_err(cause)
            .with_context(|| failed(&self.path))
    }

    /// Ends the file, which is durable then. Returns its size in bytes.
    pub(super) fn finish(self) -> anyhow::Result<u64> {
        let ParquetFile { path, writer } = self;
        let finish = || {
            let file = writer.into_inner().map_err(cause)?;
            file.sync_all()?;
            Ok::<_, anyhow::Error>(file.metadata()?.len())
        };
        finish().with_context(|| failed(&path))
    }
}

/// What failed below Parquet, such as the disk, without Parquet's word for it.
fn cause(error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(below) => anyhow::Error::from_boxed(below),
        error => error.into(),
    }
}

fn failed(path: &Path) -> String {
    format!("cannot write '{}'", path.display())
}
