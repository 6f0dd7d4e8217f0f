//! Writes a Parquet file: batches into row groups, one row group in memory. Exports, pins and archives use it.
//!
//! The file stands for records that may go, so it ends only after it has been read back from the disk and compared.

use std::fs::File;

use anyhow::Context;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::out::Out;
use super::verify::{Contents, require_same};

/// Rows of one row group, unless it grows too large before.
pub(super) const GROUP_ROWS: usize = 1 << 20;
/// The encoded size of one row group in memory.
const GROUP_BYTES: usize = 32 << 20;
/// Columns that grow from row to row: their differences are small.
const ASCENDING: [&str; 3] = ["ts", "ts_ns", "addr"];

pub(super) struct ParquetFile {
    out: Out,
    writer: ArrowWriter<File>,
    contents: Contents,
}

impl ParquetFile {
    pub(super) fn create(out: Out, schema: &SchemaRef) -> anyhow::Result<ParquetFile> {
        let file = out.open().with_context(|| failed(&out))?;
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
            writer: ArrowWriter::try_new(file, schema.clone(), Some(properties.build()))?,
            contents: Contents::new(schema),
            out,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let written = self.writer.write(batch).map_err(cause);
        written.with_context(|| failed(&self.out))?;
        self.contents.add(batch);
        match self.writer.in_progress_size() > GROUP_BYTES {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    /// The size of the file with the rows in memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    pub(super) fn end_group(&mut self) -> anyhow::Result<()> {
        let flushed = self.writer.flush().map_err(cause);
        flushed.with_context(|| failed(&self.out))
    }

    /// Ends the file, and returns its size in bytes. A file of a disk is then durable and verified.
    pub(super) fn finish(self) -> anyhow::Result<u64> {
        let ParquetFile {
            out,
            mut writer,
            contents,
        } = self;
        let kept = out.kept();
        let mut finish = || {
            writer.finish().map_err(cause)?;
            let file = writer.inner();
            if kept.is_some() {
                file.sync_all()?;
            }
            Ok::<_, anyhow::Error>(file.metadata()?.len())
        };
        let bytes = finish().with_context(|| failed(&out))?;
        if let Some(path) = kept {
            require_same(path, &contents)?;
        }
        Ok(bytes)
    }
}

/// The error below Parquet, such as the disk's, without Parquet's words around it.
fn cause(error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(below) => anyhow::Error::from_boxed(below),
        error => error.into(),
    }
}

fn failed(out: &Out) -> String {
    format!("cannot write {out}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    /// Numbers that cannot be compressed.
    fn batch() -> RecordBatch {
        let numbers = (0..40_000_i64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    // case Archive: what stands for the records
    #[test]
    fn a_file_that_the_disk_does_not_have_as_it_was_written_is_not_finished() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.parquet");
        for byte in [None, Some(7)] {
            let out = Out::File(path.clone());
            let mut file = ParquetFile::create(out, &batch().schema()).unwrap();
            file.write(&batch()).unwrap();
            file.end_group().unwrap();
            let written = File::options().write(true).open(&path).unwrap();
            assert!(written.metadata().unwrap().len() > 100_000);
            if let Some(byte) = byte {
                written.write_at(&[byte; 64], 50_000).unwrap();
            }
            let finished = file.finish().map_err(|error| format!("{error:#}"));
            match byte {
                None => assert!(finished.unwrap() > 100_000),
                Some(_) => {
                    let error = finished.unwrap_err();
                    let named = "x.parquet' does not read back as it was written; check the disk";
                    assert!(error.contains(named), "{error}");
                }
            }
        }
    }
}
