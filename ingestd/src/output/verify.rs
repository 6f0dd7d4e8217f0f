//! Reads a Parquet file back and compares it with the rows that were written, by a digest of each column, before it stands for records that may go.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use crc_fast::{CrcAlgorithm, Digest};
use loom_engine::proven;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// The most that is read at once: rows, and bytes of usual rows.
const BATCH_ROWS: u64 = 8192;
const BATCH_BYTES: u64 = 4 << 20;

/// The contents of some batches, however their rows are split among batches.
pub(super) struct Contents {
    schema: SchemaRef,
    rows: u64,
    bytes: u64,
    columns: Vec<Column>,
}

struct Column {
    /// The rows that have a value.
    valid: Digest,
    /// The lengths of values of any length.
    lengths: Digest,
    values: Digest,
}

impl Contents {
    pub fn new(schema: &SchemaRef) -> Contents {
        let digest = || Digest::new(CrcAlgorithm::Crc64Nvme);
        let column = || Column {
            valid: digest(),
            lengths: digest(),
            values: digest(),
        };
        Contents {
            schema: SchemaRef::clone(schema),
            rows: 0,
            bytes: 0,
            columns: schema.fields().iter().map(|_| column()).collect(),
        }
    }

    pub fn add(&mut self, batch: &RecordBatch) {
        assert_eq!(self.columns.len(), batch.num_columns());
        self.rows += batch.num_rows() as u64;
        self.bytes += batch.get_array_memory_size() as u64;
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.add(array);
        }
    }

    fn sums(&self) -> (u64, Vec<[u64; 3]>) {
        let columns = self.columns.iter().map(|column| {
            let Column {
                valid,
                lengths,
                values,
            } = column;
            [valid, lengths, values].map(Digest::finalize)
        });
        (self.rows, columns.collect())
    }

    /// True if the columns have the same names and types, in the same order.
    fn has_columns_of(&self, found: &Schema) -> bool {
        let (own, found) = (self.schema.fields(), found.fields());
        let mut pairs = own.iter().zip(found);
        own.len() == found.len()
            && pairs.all(|(own, found)| {
                own.name() == found.name()
                    && own.data_type() == found.data_type()
                    && own.is_nullable() == found.is_nullable()
            })
    }

    fn batch_rows(&self) -> usize {
        let row_bytes = self.bytes / self.rows.max(1);
        (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS) as usize
    }
}

impl Column {
    fn add(&mut self, array: &dyn Array) {
        if array.is_nullable() {
            let valid = (0..array.len()).map(|row| array.is_valid(row).into());
            self.valid.update(&valid.collect::<Vec<u8>>());
        } else {
            self.valid.update(&vec![1; array.len()]);
        }
        match array.data_type() {
            DataType::Boolean => {
                let values = array.as_boolean().iter().flatten();
                let values: Vec<u8> = values.map(u8::from).collect();
                self.values.update(&values);
            }
            DataType::Utf8 => {
                let values = array.as_string::<i32>().iter().flatten();
                values.for_each(|value| self.add_long(value.as_bytes()));
            }
            DataType::Binary => {
                let values = array.as_binary::<i32>().iter().flatten();
                values.for_each(|value| self.add_long(value));
            }
            ty => {
                let width = match ty {
                    DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
                    ty => ty.primitive_width(),
                };
                let width = width.expect("columns are of the types that fields have");
                let data = array.to_data();
                let values = data.buffers().first().expect("such arrays have one buffer");
                let value = |row: usize| {
                    let start = (data.offset() + row) * width;
                    proven::at(values.as_slice(), start..start + width)
                };
                if array.null_count() == 0 {
                    let start = data.offset() * width;
                    let end = start + array.len() * width;
                    self.values
                        .update(proven::at(values.as_slice(), start..end));
                } else {
                    let rows = (0..array.len()).filter(|row| array.is_valid(*row));
                    rows.for_each(|row| self.values.update(value(row)));
                }
            }
        }
    }

    fn add_long(&mut self, value: &[u8]) {
        self.lengths.update(&(value.len() as u64).to_le_bytes());
        self.values.update(value);
    }
}

/// Reads a file from the disk, and fails unless it has the same contents.
///
/// # Errors
/// It cannot be read, or holds something else.
pub(super) fn require_same(path: &Path, contents: &Contents) -> anyhow::Result<()> {
    let read = || {
        let file = File::open(path)?;
        // The cache does not show what the disk took. If a file system keeps it, the comparison is worth less, and nothing else is.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?;
        if !contents.has_columns_of(reader.schema()) {
            bail!("it has other columns");
        }
        let mut found = Contents::new(&contents.schema);
        for batch in reader.with_batch_size(contents.batch_rows()).build()? {
            found.add(&batch?);
        }
        if found.sums() != contents.sums() {
            bail!("it holds other values than were written");
        }
        Ok(())
    };
    read().with_context(|| {
        format!(
            "'{}' does not read back as it was written; check the disk",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Int64Array,
        StringArray, UInt8Array,
    };

    use parquet::arrow::ArrowWriter;

    use super::*;

    fn batch() -> RecordBatch {
        let fixed = (0..40_u8).map(|n| (n % 7 != 0).then(|| [n, n + 1]));
        let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 2).unwrap();
        let decimals: Decimal128Array = (0..40).map(|n| Some(n * 77_i128)).collect();
        let decimals = decimals.with_precision_and_scale(20, 0).unwrap();
        let columns: [(&str, ArrayRef); 7] = [
            ("ts", Arc::new(Int64Array::from_iter_values(0..40))),
            (
                "n",
                Arc::new(
                    (0..40)
                        .map(|n| (n % 3 > 0).then_some(n))
                        .collect::<UInt8Array>(),
                ),
            ),
            (
                "ok",
                Arc::new(
                    (0..40)
                        .map(|n| (n % 5 > 0).then_some(n % 2 == 0))
                        .collect::<BooleanArray>(),
                ),
            ),
            (
                "text",
                Arc::new(
                    (0..40)
                        .map(|n| (n % 4 > 0).then(|| "x".repeat(n)))
                        .collect::<StringArray>(),
                ),
            ),
            (
                "raw",
                Arc::new(BinaryArray::from_iter_values((0..40_u8).map(|n| [n; 3]))),
            ),
            ("fixed", Arc::new(fixed)),
            ("big", Arc::new(decimals)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn write(path: &Path, batch: &RecordBatch) {
        let file = File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }

    fn contents(batches: &[RecordBatch]) -> Contents {
        let mut contents = Contents::new(&batches[0].schema());
        batches.iter().for_each(|batch| contents.add(batch));
        contents
    }

    // case Archive: what stands for the records
    #[test]
    fn contents_are_the_same_however_the_rows_are_split_and_no_other() {
        let whole = batch();
        let sums = contents(std::slice::from_ref(&whole)).sums();
        for cut in 0..40 {
            let parts = [whole.slice(0, cut), whole.slice(cut, 40 - cut)];
            assert_eq!(contents(&parts).sums(), sums, "{cut}");
            let swapped = [whole.slice(cut, 40 - cut), whole.slice(0, cut)];
            assert_eq!(contents(&swapped).sums() == sums, cut == 0, "{cut}");
            assert_ne!(contents(&[whole.slice(0, cut)]).sums(), sums, "{cut}");
        }
    }

    // case Archive: what stands for the records
    #[test]
    fn a_file_with_any_flipped_byte_is_refused_or_has_the_same_values() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.parquet");
        let whole = batch();
        write(&path, &whole);
        let expected = contents(std::slice::from_ref(&whole));
        require_same(&path, &expected).unwrap();
        let sound = fs::read(&path).unwrap();
        let mut refused = 0;
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, flipped).unwrap();
            let verified = std::panic::catch_unwind(|| require_same(&path, &expected));
            if !matches!(verified, Ok(Ok(()))) {
                refused += 1;
                continue;
            }
            // The oracle: the values themselves, one after the other.
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap());
            let found = reader.unwrap().build().unwrap();
            let found: Vec<_> = found.map(Result::unwrap).collect();
            let columns =
                |batch: &RecordBatch| (batch.schema().fields().clone(), batch.columns().to_vec());
            assert_eq!(found.len(), 1, "byte {at}");
            assert_eq!(columns(&found[0]), columns(&whole), "byte {at}");
        }
        assert!(refused > sound.len() / 4, "{refused} of {}", sound.len());
    }
}
