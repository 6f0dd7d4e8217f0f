//! Repairs times of type INT96, which old writers of Parquet use: the library wraps those outside the range of nanoseconds.
//!
//! Columns with INT96 are read a second time in milliseconds, which cover every INT96 day. Where the two readings differ, a column of times becomes
//! one of whole decimals, and rows of nested columns are refused. `parquet` is the only caller.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Context, ensure};
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, TimeUnit, TimestampMillisecondType, TimestampNanosecondType,
};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;

use super::views::with_schema;

const NANOS_A_MILLI: i128 = 1_000_000;

/// The second reading of a file, in milliseconds.
pub(super) struct Millis {
    meta: ArrowReaderMetadata,
    /// The selected columns with INT96, ascending.
    roots: Vec<usize>,
}

impl Millis {
    /// The reading of the selected columns; `None` if they have no INT96.
    pub(super) fn new(
        meta: &ArrowReaderMetadata,
        roots: &[usize],
    ) -> anyhow::Result<Option<Millis>> {
        let schema = meta.parquet_schema();
        let is_int96 = |leaf: usize| {
            leaf < schema.num_columns() && schema.column(leaf).physical_type() == Type::INT96
        };
        let is_read =
            |leaf: &usize| is_int96(*leaf) && roots.contains(&schema.get_column_root_idx(*leaf));
        let leaves = (0..schema.num_columns()).filter(is_read);
        let mut roots: Vec<usize> = leaves
            .map(|leaf| schema.get_column_root_idx(leaf))
            .collect();
        roots.dedup();
        if roots.is_empty() {
            return Ok(None);
        }
        let mut leaf = 0;
        let fields = in_millis(meta.schema().fields(), &mut leaf, &is_int96);
        let meta = with_schema(meta, fields).context("its INT96 columns are of other types too")?;
        Ok(Some(Millis { meta, roots }))
    }

    pub(super) fn reader(
        &self,
        file: File,
        group: usize,
        batch_rows: usize,
    ) -> anyhow::Result<ParquetRecordBatchReader> {
        let mask = ProjectionMask::roots(self.meta.parquet_schema(), self.roots.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.meta.clone());
        let builder = builder.with_row_groups(vec![group]).with_projection(mask);
        Ok(builder.with_batch_size(batch_rows).build()?)
    }

    /// Repairs the columns of a batch by the same rows in milliseconds, and returns the rows to refuse. `roots` are the columns of the batch.
    pub(super) fn mend(
        &self,
        columns: &mut [ArrayRef],
        roots: &[usize],
        millis: &RecordBatch,
    ) -> anyhow::Result<Vec<(usize, String)>> {
        let mut bad = Vec::new();
        for (root, millis) in self.roots.iter().zip(millis.columns()) {
            let place = roots.iter().position(|read| read == root);
            let column = place.and_then(|place| columns.get_mut(place));
            let column = column.context("a column of INT96 is missing")?;
            ensure!(
                column.len() == millis.len(),
                "a column of INT96 has two lengths"
            );
            let wrapped = wrapped(column, millis);
            if !wrapped.contains(&true) {
                continue;
            }
            if matches!(column.data_type(), DataType::Timestamp(_, _)) {
                *column = unwrapped(column, millis);
                continue;
            }
            let schema = self.meta.parquet_schema();
            let name = schema
                .root_schema()
                .get_fields()
                .get(*root)
                .map_or("", |field| field.name());
            let rows = wrapped
                .into_iter()
                .enumerate()
                .filter(|(_, wrapped)| *wrapped);
            bad.extend(rows.map(|(row, _)| {
                (
                    row,
                    format!("a time within column '{name}' is out of the range of nanoseconds"),
                )
            }));
        }
        Ok(bad)
    }
}

fn in_millis(fields: &Fields, leaf: &mut usize, is_int96: &dyn Fn(usize) -> bool) -> Fields {
    let field = |field: &FieldRef| field_in_millis(field, leaf, is_int96);
    fields.iter().map(field).collect()
}

fn field_in_millis(
    field: &FieldRef,
    leaf: &mut usize,
    is_int96: &dyn Fn(usize) -> bool,
) -> FieldRef {
    use DataType as A;
    let ty = match field.data_type() {
        A::Struct(fields) => A::Struct(in_millis(fields, leaf, is_int96)),
        A::List(item) => A::List(field_in_millis(item, leaf, is_int96)),
        A::LargeList(item) => A::LargeList(field_in_millis(item, leaf, is_int96)),
        A::FixedSizeList(item, length) => {
            A::FixedSizeList(field_in_millis(item, leaf, is_int96), *length)
        }
        A::Map(entry, sorted) => A::Map(field_in_millis(entry, leaf, is_int96), *sorted),
        ty => {
            *leaf += 1;
            match ty {
                A::Timestamp(TimeUnit::Nanosecond, zone) if is_int96(*leaf - 1) => {
                    A::Timestamp(TimeUnit::Millisecond, zone.clone())
                }
                ty => ty.clone(),
            }
        }
    };
    Arc::new(Field::clone(field).with_data_type(ty))
}

/// Marks the rows in which the two readings differ.
fn wrapped(nanos: &ArrayRef, millis: &ArrayRef) -> Vec<bool> {
    use DataType as A;
    let mut rows = vec![false; nanos.len()];
    match (nanos.data_type(), millis.data_type()) {
        (A::Timestamp(TimeUnit::Nanosecond, _), A::Timestamp(TimeUnit::Millisecond, _)) => {
            let nanos = nanos.as_primitive::<TimestampNanosecondType>().iter();
            let millis = millis.as_primitive::<TimestampMillisecondType>().iter();
            for (row, pair) in rows.iter_mut().zip(nanos.zip(millis)) {
                *row = matches!(pair, (Some(nanos), Some(millis)) if differ(nanos, millis));
            }
        }
        (A::Struct(_), A::Struct(_)) => {
            let pairs = nanos
                .as_struct()
                .columns()
                .iter()
                .zip(millis.as_struct().columns());
            for (nanos, millis) in pairs {
                for (row, within) in rows.iter_mut().zip(wrapped(nanos, millis)) {
                    *row |= within;
                }
            }
        }
        (A::List(_), A::List(_)) => any_in_lists::<i32>(&mut rows, nanos, millis),
        (A::LargeList(_), A::LargeList(_)) => any_in_lists::<i64>(&mut rows, nanos, millis),
        (A::FixedSizeList(_, _), A::FixedSizeList(_, _)) => {
            let (nanos, millis) = (nanos.as_fixed_size_list(), millis.as_fixed_size_list());
            let each = usize::try_from(nanos.value_length()).unwrap_or(0);
            let within = wrapped(nanos.values(), millis.values());
            let ends: Vec<i64> = (0..=rows.len()).map(|row| (row * each) as i64).collect();
            any_within(&mut rows, &ends, &within);
        }
        (A::Map(_, _), A::Map(_, _)) => {
            let entries = [nanos, millis].map(|map| {
                let entries: ArrayRef = Arc::new(map.as_map().entries().clone());
                entries
            });
            let [nanos_entries, millis_entries] = entries;
            let within = wrapped(&nanos_entries, &millis_entries);
            any_within(&mut rows, nanos.as_map().offsets(), &within);
        }
        _ => {}
    }
    rows
}

fn any_in_lists<O: OffsetSizeTrait>(rows: &mut [bool], nanos: &ArrayRef, millis: &ArrayRef) {
    let (nanos, millis) = (nanos.as_list::<O>(), millis.as_list::<O>());
    let within = wrapped(nanos.values(), millis.values());
    any_within(rows, nanos.offsets(), &within);
}

fn any_within<O: OffsetSizeTrait>(rows: &mut [bool], ends: &[O], within: &[bool]) {
    for (row, (from, to)) in rows.iter_mut().zip(ends.iter().zip(ends.iter().skip(1))) {
        let values = within.get(from.as_usize()..to.as_usize());
        *row = values.is_some_and(|values| values.contains(&true));
    }
}

fn differ(nanos: i64, millis: i64) -> bool {
    let apart = i128::from(nanos) - i128::from(millis) * NANOS_A_MILLI;
    apart.abs() >= NANOS_A_MILLI
}

/// The correct nanoseconds: the time in milliseconds plus the part of a millisecond, which wrapping keeps.
fn unwrapped(nanos: &ArrayRef, millis: &ArrayRef) -> ArrayRef {
    let nanos = nanos.as_primitive::<TimestampNanosecondType>().iter();
    let millis = millis.as_primitive::<TimestampMillisecondType>().iter();
    let whole = |(nanos, millis): (Option<i64>, Option<i64>)| {
        let (nanos, millis) = (nanos?, millis?);
        let part = nanos.wrapping_sub(millis.wrapping_mul(NANOS_A_MILLI as i64));
        Some(i128::from(millis) * NANOS_A_MILLI + i128::from(part))
    };
    let decimals: Decimal128Array = nanos.zip(millis).map(whole).collect();
    Arc::new(decimals.with_data_type(DataType::Decimal128(38, 0)))
}

#[cfg(test)]
mod tests {
    use parquet::data_type::{Int96, Int96Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use crate::input::Format;
    use crate::input::testing::{Loaded, load, options};

    /// Loads a file with these times (Julian days and nanoseconds of the day) in its only leaf, which is optional or repeated.
    fn loaded(schema: &str, repetitions: Option<&[i16]>, times: &[(u32, u64)]) -> Loaded {
        let schema = parse_message_type(schema).unwrap().into();
        let mut file = Vec::new();
        let properties = WriterProperties::builder().build().into();
        let mut writer = SerializedFileWriter::new(&mut file, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let times: Vec<Int96> = times
            .iter()
            .map(|(day, nanos)| Int96::from(vec![*nanos as u32, (*nanos >> 32) as u32, *day]))
            .collect();
        let levels = vec![1; times.len()];
        let typed = column.typed::<Int96Type>();
        typed
            .write_batch(&times, Some(&levels), repetitions)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        load(&file, Format::Parquet, options())
    }

    const EPOCH: u32 = 2_440_588;
    /// 9999-12-31, which wraps to a day of 1816.
    const FAR: u32 = 5_373_484;

    #[test]
    fn a_time_that_nanoseconds_do_not_reach_is_null_and_counted() {
        let times = [(EPOCH, 1), (FAR, 86_399_999_999_999), (EPOCH - 1, 999_999)];
        let loaded = loaded("message m { optional int96 at; }", None, &times);
        assert_eq!(loaded.fields(), ["at timestamp_ns?"]);
        assert_eq!(loaded.lines(), ["1", "-", "-86399999000001"]);
        assert_eq!(loaded.notes.len(), 1);
        assert!(
            loaded.notes[0].starts_with("1 time of field 'at' in '"),
            "{:?}",
            loaded.notes
        );
    }

    #[test]
    fn a_row_of_times_that_nanoseconds_do_not_reach_is_refused() {
        let schema = "message m { repeated int96 at; }";
        let times = [(EPOCH, 0), (EPOCH, 1_000), (FAR, 0), (EPOCH, 2_000)];
        let loaded = loaded(schema, Some(&[0, 1, 0, 0]), &times);
        assert_eq!(
            loaded.lines(),
            [
                r#"["1970-01-01T00:00:00","1970-01-01T00:00:00.000001"]"#,
                r#"["1970-01-01T00:00:00.000002"]"#
            ]
        );
        let [(2, reason)] = loaded.refused.as_slice() else {
            panic!("{:?}", loaded.refused);
        };
        assert!(reason.contains("column 'at'"), "{reason}");
    }
}
