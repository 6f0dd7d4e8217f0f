//! Limits the rows of a batch, so that the decompressed data of any file stays within a limit.
//!
//! Pages are decompressed as a whole, so the weight of a batch is that of the pages that it touches, of the dictionaries of its columns, and of its
//! rows. Page headers (`pages`) have all of that, except for repeated columns: their values are known for a row group, not for a row.

use std::fs::File;

use anyhow::{Context, bail};
use arrow::datatypes::{DataType, Schema};
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::super::BATCH_ROWS;
use super::claims::check_claims;
use super::pages::{Page, for_each_page};

/// The limit of a batch, unless a single row exceeds it.
const BATCH_WEIGHT: u64 = 256 << 20;
/// The limit of a single row with its pages, and of the repeated values of a row group.
const ROW_WEIGHT_MAX: u64 = 1 << 30;
/// The memory for a value in an array, with its length and levels.
const VALUE_BYTES: u64 = 32;
/// The number of batch sizes: 1, 2, 4, … rows.
const SIZES: usize = BATCH_ROWS.ilog2() as usize + 1;

/// The number of rows of each batch of a row group, for the selected leaves. `schema` has their Arrow types.
pub(super) fn batch_rows(
    file: &File,
    group: &RowGroupMetaData,
    leaves: impl Iterator<Item = usize>,
    schema: &Schema,
) -> anyhow::Result<usize> {
    let leaves: Vec<usize> = leaves.collect();
    let chunks: Option<Vec<_>> = leaves
        .iter()
        .map(|leaf| group.columns().get(*leaf))
        .collect();
    check_claims(
        file,
        &chunks.context("a column is missing")?,
        ROW_WEIGHT_MAX,
    )?;
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    let mut total = [0u64; SIZES];
    let mut repeated = 0u64;
    for leaf in leaves {
        let chunk = group.columns().get(leaf).context("a column is missing")?;
        let read = || format!("column '{}'", chunk.column_path().string());
        let root = group.schema_descr().get_column_root_idx(leaf);
        let shares = schema
            .fields()
            .get(root)
            .is_some_and(|field| shares_values(field.data_type()));
        if chunk.column_descr().max_rep_level() > 0 {
            let weight = repeated_weight(file, chunk, shares).with_context(read)?;
            repeated = repeated.saturating_add(weight);
            continue;
        }
        let column = column_weights(file, chunk, rows, shares).with_context(read)?;
        for (sum, weight) in total.iter_mut().zip(column) {
            *sum = sum.saturating_add(weight);
        }
    }
    let [single, ..] = total;
    if single > ROW_WEIGHT_MAX || repeated > ROW_WEIGHT_MAX {
        bail!(
            "a row group unpacks to {} MiB at once; the limit is {} MiB; write the file with smaller pages and row groups, or load \
             fewer columns with --fields",
            single.max(repeated) >> 20,
            ROW_WEIGHT_MAX >> 20
        );
    }
    // Repeated values are assumed to be spread evenly over the rows.
    let spread = |size: u64| repeated / rows.max(1) * size;
    let fits = |size: &usize| {
        let weight = total.get(*size).copied().unwrap_or(u64::MAX);
        weight.saturating_add(spread(1 << size)) <= BATCH_WEIGHT
    };
    Ok(1 << (0..SIZES).rev().find(fits).unwrap_or(0))
}

/// Whether rows share the bytes of texts instead of copying them.
fn shares_values(ty: &DataType) -> bool {
    use DataType as A;
    match ty {
        A::List(item) | A::LargeList(item) | A::FixedSizeList(item, _) | A::Map(item, _) => {
            shares_values(item.data_type())
        }
        A::Struct(fields) => fields.iter().all(|field| shares_values(field.data_type())),
        A::Utf8View | A::BinaryView => true,
        ty => ty.is_primitive() && !ty.is_decimal() || *ty == A::Boolean,
    }
}

/// The greatest weight of a column in a batch of each size. Batches follow each other from the first row of the row group.
fn column_weights(
    file: &File,
    chunk: &ColumnChunkMetaData,
    rows: u64,
    shares: bool,
) -> anyhow::Result<[u64; SIZES]> {
    let mut windows = [Window::default(); SIZES];
    let (mut from, mut dictionary, mut copied) = (0u64, 0u64, 0u64);
    for_each_page(file, chunk, Some(rows), |page| {
        if page.is_dictionary() {
            dictionary = dictionary.saturating_add(page.bytes);
        } else {
            let to = from.saturating_add(page.values);
            for (window, size) in windows.iter_mut().zip(0..) {
                window.add(from >> size, to.saturating_sub(1) >> size, page.bytes);
            }
            from = to;
        }
        copied = copied.max(copied_bytes(chunk, page, shares));
        Ok(())
    })?;
    let row = VALUE_BYTES
        .saturating_add(width(chunk))
        .saturating_add(copied);
    let mut weights = [0; SIZES];
    for ((weight, window), size) in weights.iter_mut().zip(windows).zip(0..) {
        let of_rows = row.saturating_mul(1 << size);
        *weight = window
            .most
            .saturating_add(dictionary)
            .saturating_add(of_rows);
    }
    Ok(weights)
}

/// The decompressed weight of a repeated column in a row group.
fn repeated_weight(file: &File, chunk: &ColumnChunkMetaData, shares: bool) -> anyhow::Result<u64> {
    let (mut bytes, mut values, mut copied) = (0u64, 0u64, 0u64);
    for_each_page(file, chunk, None, |page| {
        bytes = bytes.saturating_add(page.bytes);
        values = values.saturating_add(page.values);
        copied = copied.max(copied_bytes(chunk, page, shares));
        Ok(())
    })?;
    let value = VALUE_BYTES
        .saturating_add(width(chunk))
        .saturating_add(copied);
    Ok(bytes.saturating_add(values.saturating_mul(value)))
}

/// The greatest length of a value's copy: no value is longer than its page.
fn copied_bytes(chunk: &ColumnChunkMetaData, page: Page, shares: bool) -> u64 {
    let is_text = chunk.column_type() == Type::BYTE_ARRAY;
    let is_copied = page.is_delta() || page.is_dictionary() && !shares;
    if is_text && is_copied { page.bytes } else { 0 }
}

/// The length of fixed-width values, else 0.
fn width(chunk: &ColumnChunkMetaData) -> u64 {
    u64::try_from(chunk.column_descr().type_length()).unwrap_or(0)
}

/// The weight of the pages that each batch touches, and the greatest so far.
#[derive(Copy, Clone, Default)]
struct Window {
    batch: u64,
    bytes: u64,
    most: u64,
}

impl Window {
    /// Adds a page that batches `first` to `last` touch. No earlier page touches a later batch.
    fn add(&mut self, first: u64, last: u64, page_bytes: u64) {
        if first > self.batch {
            (self.batch, self.bytes) = (first, 0);
        }
        self.bytes = self.bytes.saturating_add(page_bytes);
        self.most = self.most.max(self.bytes);
        if last > self.batch {
            (self.batch, self.bytes) = (last, page_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
    use parquet::basic::{Compression, Encoding};
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

    use super::*;

    /// The writer gives up longer dictionaries.
    const DICTIONARY_BYTES: usize = 900_000;

    /// The batch size for a file with one column, with views and with texts.
    fn batches(
        column: ArrayRef,
        properties: WriterPropertiesBuilder,
    ) -> [anyhow::Result<usize>; 2] {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        let properties = properties.set_compression(Compression::SNAPPY).build();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let meta = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).unwrap();
        let views = Schema::new(super::super::views::views(meta.schema().fields()));
        let group = meta.metadata().row_group(0);
        [&views, meta.schema()].map(|schema| batch_rows(&file, group, 0..1, schema))
    }

    fn texts(long: &str, rows: usize) -> ArrayRef {
        Arc::new(StringArray::from(vec![long; rows]))
    }

    #[test]
    fn light_rows_come_in_the_largest_batches() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let light = batches(numbers, WriterProperties::builder());
        assert!(light.into_iter().all(|rows| rows.unwrap() == BATCH_ROWS));
    }

    #[test]
    fn a_value_that_a_dictionary_repeats_weighs_as_often_as_it_is_copied() {
        let long = "x".repeat(DICTIONARY_BYTES);
        let [views, copies] = batches(texts(&long, 1000), WriterProperties::builder());
        assert_eq!(views.unwrap(), BATCH_ROWS);
        assert_eq!(copies.unwrap(), 256);
    }

    #[test]
    fn values_that_are_stored_as_differences_weigh_as_much_as_their_page() {
        let delta = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY);
        let long = "x".repeat(1 << 20);
        let [views, copies] = batches(texts(&long, 100), delta);
        assert!(views.unwrap() <= 128 && copies.unwrap() <= 128);
    }

    #[test]
    fn pages_weigh_what_they_unpack_to() {
        let plain = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1 << 20)
            .set_write_batch_size(1);
        let long = "x".repeat(1 << 20);
        let [views, _] = batches(texts(&long, 600), plain);
        let rows = views.unwrap();
        assert!((64..=256).contains(&rows), "{rows} rows of a MiB each");
    }

    // case Network and input: bytes that unpack to far more than they weigh
    #[test]
    fn lists_that_unpack_to_too_much_are_refused_with_a_remedy() {
        let long = "x".repeat(DICTIONARY_BYTES);
        let item = Arc::new(Field::new_list_field(DataType::Utf8, false));
        let one_row = OffsetBuffer::from_lengths([2000]);
        let lists = ListArray::new(item, one_row, texts(&long, 2000), None);
        let [views, copies] = batches(Arc::new(lists), WriterProperties::builder());
        // All rows are assumed to be like this one, of a MiB.
        assert_eq!(views.unwrap(), 256);
        let refused = format!("{:#}", copies.unwrap_err());
        assert!(refused.contains("smaller pages"), "{refused}");
    }

    #[test]
    fn a_batch_weighs_each_page_that_it_touches() {
        let mut window = Window::default();
        window.add(0, 0, 10);
        window.add(0, 2, 20);
        assert_eq!((window.batch, window.bytes, window.most), (2, 20, 30));
        window.add(2, 2, 5);
        window.add(3, 3, 1);
        assert_eq!((window.batch, window.bytes, window.most), (3, 1, 30));
    }
}
