//! Reads the footer of a Parquet file, and repairs known mistakes of other writers.
//!
//! `parquet` is the only caller. Statistics decide about field types; each value is still checked against its type.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Context, ensure};
use arrow::datatypes::{DataType, FieldRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::statistics::Statistics;

use super::super::columns::Column;

/// Reads the footer, with notes about repairs.
pub(super) fn load(file: &File) -> anyhow::Result<(ArrowReaderMetadata, Vec<String>)> {
    let read = ParquetMetaDataReader::new().parse_and_finish(file)?;
    let (meta, notes) = mended(read)?;
    let loaded = ArrowReaderMetadata::try_new(Arc::new(meta), ArrowReaderOptions::new())?;
    Ok((loaded, notes))
}

/// Some writers place a dictionary that does not exist at byte 0, or write a wrong number of rows in the footer.
fn mended(meta: ParquetMetaData) -> anyhow::Result<(ParquetMetaData, Vec<String>)> {
    let groups = meta.row_groups().iter().cloned().map(without_page_zero);
    let groups = groups.collect::<anyhow::Result<Vec<_>>>()?;
    let counts = groups
        .iter()
        .map(|group| u64::try_from(group.num_rows()).ok());
    let rows = counts
        .sum::<Option<u64>>()
        .and_then(|rows| i64::try_from(rows).ok());
    let rows = rows.context("its row groups count less than no rows")?;
    let file = meta.file_metadata();
    let counted = file.num_rows();
    ensure!(
        rows > 0 || counted <= 0,
        "its footer counts {counted} rows, and its row groups none"
    );
    let mut notes = Vec::new();
    if rows != counted {
        notes.push(format!(
            "its footer counts {counted} rows and its row groups {rows}; the rows of all row groups are read"
        ));
    }
    let file = FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    Ok((ParquetMetaData::new(file, groups), notes))
}

fn without_page_zero(group: RowGroupMetaData) -> anyhow::Result<RowGroupMetaData> {
    let is_none =
        |chunk: &ColumnChunkMetaData| chunk.dictionary_page_offset().is_some_and(|at| at <= 0);
    if group.num_rows() == 0 {
        for chunk in group.columns() {
            ensure!(
                chunk.num_values() <= 0,
                "a row group counts no rows, and its column '{}' has {} values",
                chunk.column_path().string(),
                chunk.num_values()
            );
        }
    }
    if !group.columns().iter().any(is_none) {
        return Ok(group);
    }
    let mend = |chunk: &ColumnChunkMetaData| match is_none(chunk) {
        true => {
            let builder = chunk.clone().into_builder();
            builder.set_dictionary_page_offset(None).build()
        }
        false => Ok(chunk.clone()),
    };
    let columns = group.columns().iter().map(mend).collect::<Result<_, _>>()?;
    Ok(group.into_builder().set_column_metadata(columns).build()?)
}

/// The columns. They are nullable if the schema says so, even if this file has no NULL: a later file may have one.
pub(super) fn columns(loaded: &ArrowReaderMetadata) -> Vec<Column> {
    let meta = loaded.metadata();
    let fields = loaded.schema().fields().iter().enumerate();
    let column = |(root, field): (usize, &FieldRef)| {
        let extremes = only_leaf(meta, root).and_then(|leaf| extremes(meta, leaf));
        let digits = extremes.map(|values| values.map(digits).into_iter().max().unwrap_or(0));
        let mut column =
            Column::of_arrow(field.name(), field.data_type(), field.is_nullable(), digits);
        if holds_intervals(field.data_type()) {
            // The library returns either the months or the rest of an INTERVAL.
            column.note = Some(format!(
                "column '{}' becomes json, its values of type INTERVAL without their months; if they have some, convert them with DuckDB first",
                field.name()
            ));
        }
        column
    };
    fields.map(column).collect()
}

fn holds_intervals(ty: &DataType) -> bool {
    use DataType as A;
    match ty {
        A::Interval(_) => true,
        A::List(item) | A::LargeList(item) | A::FixedSizeList(item, _) | A::Map(item, _) => {
            holds_intervals(item.data_type())
        }
        A::Struct(fields) => fields
            .iter()
            .any(|field| holds_intervals(field.data_type())),
        _ => false,
    }
}

/// The only leaf of a column; `None` for nested columns.
fn only_leaf(meta: &ParquetMetaData, root: usize) -> Option<usize> {
    let schema = meta.file_metadata().schema_descr();
    let mut leaves =
        (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    leaves.next().filter(|_| leaves.next().is_none())
}

/// The least and the greatest stored value of a leaf, if every row group has them.
fn extremes(meta: &ParquetMetaData, leaf: usize) -> Option<[i128; 2]> {
    let mut all: Option<[i128; 2]> = None;
    for group in meta.row_groups() {
        let chunk = group.columns().get(leaf)?;
        let statistics = chunk.statistics()?;
        let nulls = statistics
            .null_count_opt()
            .and_then(|nulls| i64::try_from(nulls).ok());
        if nulls == Some(chunk.num_values()) {
            continue;
        }
        let [least, greatest] = extremes_of(chunk, statistics)?;
        let [low, high] = all.unwrap_or([least, greatest]);
        all = Some([low.min(least), high.max(greatest)]);
    }
    all
}

fn extremes_of(chunk: &ColumnChunkMetaData, statistics: &Statistics) -> Option<[i128; 2]> {
    match statistics {
        Statistics::Int32(of) => Some([i128::from(*of.min_opt()?), i128::from(*of.max_opt()?)]),
        Statistics::Int64(of) => Some([i128::from(*of.min_opt()?), i128::from(*of.max_opt()?)]),
        Statistics::FixedLenByteArray(of) if !statistics.is_min_max_deprecated() => {
            let width = usize::try_from(chunk.column_descr().type_length()).ok()?;
            let signed = |bytes: &[u8]| {
                let mut value = [if *bytes.first()? < 0x80 { 0 } else { 0xff }; 16];
                let start = 16_usize.checked_sub(bytes.len())?;
                value.get_mut(start..)?.copy_from_slice(bytes);
                (bytes.len() == width).then_some(i128::from_be_bytes(value))
            };
            Some([signed(of.min_bytes_opt()?)?, signed(of.max_bytes_opt()?)?])
        }
        _ => None,
    }
}

fn digits(value: i128) -> u8 {
    value
        .unsigned_abs()
        .checked_ilog10()
        .map_or(1, |log| log as u8 + 1)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::datatypes::Int32Type;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataWriter;

    use super::*;
    use crate::input::Format;
    use crate::input::testing::{load, options, try_load};

    /// A file with a changed footer.
    fn with_footer(change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
        let lists = [Some(vec![Some(1), Some(2)]), None, Some(vec![])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from(vec![7, 7, 8]))),
            ("text", Arc::new(StringArray::from(vec!["a", "a", "b"]))),
            ("list", Arc::new(lists)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        let meta = change(writer.close().unwrap());
        let footer_bytes = file.last_chunk::<8>().unwrap();
        let footer_bytes = u32::from_le_bytes(*footer_bytes.first_chunk().unwrap());
        file.truncate(file.len() - 8 - footer_bytes as usize);
        ParquetMetaDataWriter::new(&mut file, &meta)
            .finish()
            .unwrap();
        file
    }

    fn with_groups(
        meta: ParquetMetaData,
        change: impl Fn(RowGroupMetaData) -> RowGroupMetaData,
    ) -> ParquetMetaData {
        let groups = meta.row_groups().iter().cloned().map(change).collect();
        ParquetMetaData::new(meta.file_metadata().clone(), groups)
    }

    /// Sets the number of rows in the footer.
    fn counting(mut file: Vec<u8>, rows: u8) -> Vec<u8> {
        // The third field is a zigzag varint before a list of structs.
        let is_count = |bytes: &[u8]| matches!(bytes, [0x16, _, 0x19, 0x0c | 0x1c]);
        let at = file.windows(4).rposition(is_count).unwrap();
        file[at + 1] = 2 * rows;
        file
    }

    const ROWS: [&str; 3] = ["7|a|[1,2]", "7|a|-", "8|b|[]"];

    #[test]
    fn a_dictionary_at_byte_zero_is_none() {
        let file = with_footer(|meta| {
            with_groups(meta, |group| {
                let chunk = |chunk: &ColumnChunkMetaData| {
                    let start = chunk.byte_range().0 as i64;
                    let builder = chunk.clone().into_builder().set_data_page_offset(start);
                    builder.set_dictionary_page_offset(Some(0)).build().unwrap()
                };
                let columns = group.columns().iter().map(chunk).collect();
                group
                    .into_builder()
                    .set_column_metadata(columns)
                    .build()
                    .unwrap()
            })
        });
        assert_eq!(load(&file, Format::Parquet, options()).lines(), ROWS);
    }

    #[test]
    fn the_rows_of_row_groups_come_whatever_the_footer_counts() {
        let file = counting(with_footer(|meta| meta), 0);
        let loaded = load(&file, Format::Parquet, options());
        assert_eq!(loaded.lines(), ROWS);
        let counts = "its footer counts 0 rows and its row groups 3";
        assert!(
            loaded.notes.iter().any(|note| note.contains(counts)),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn rows_that_are_there_and_not_counted_or_counted_and_not_there_are_errors() {
        let grouped = |rows: u8| {
            let count = |group: RowGroupMetaData| {
                group
                    .into_builder()
                    .set_num_rows(rows.into())
                    .build()
                    .unwrap()
            };
            counting(with_footer(|meta| with_groups(meta, count)), rows)
        };
        let none =
            |meta: ParquetMetaData| ParquetMetaData::new(meta.file_metadata().clone(), Vec::new());
        for (file, expected) in [
            (
                grouped(0),
                "a row group counts no rows, and its column 'n' has 3 values",
            ),
            (grouped(9), "ends 6 rows before its count"),
            (
                counting(with_footer(none), 3),
                "its footer counts 3 rows, and its row groups none",
            ),
        ] {
            let error = try_load(&file, Format::Parquet, options()).err().unwrap();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
