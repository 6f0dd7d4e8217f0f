//! Reads Parquet files: one row group after the other, in batches of limited weight, with only the selected columns.

mod claims;
mod int96;
mod meta;
mod pages;
mod views;
mod weight;

use std::fs::File;

use anyhow::{Context, ensure};
use arrow::array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::blocks::Blocks;
use super::columns::Column;
use super::rows::Rows;
use super::{Reader, Wanted};
use int96::Millis;
use weight::batch_rows;

pub(crate) struct Parquet {
    name: String,
    columns: Vec<Column>,
    file: File,
    meta: ArrowReaderMetadata,
    /// The selected columns, ascending.
    roots: Vec<usize>,
    /// The position in `roots` of each requested column.
    order: Vec<usize>,
    /// The second reading of INT96.
    millis: Option<Millis>,
    /// The row group after the current one.
    next_group: usize,
    group: Option<Group>,
    rows_read: u64,
    rows_total: u64,
    notes: Vec<String>,
}

/// The current row group.
struct Group {
    reader: ParquetRecordBatchReader,
    millis: Option<ParquetRecordBatchReader>,
    /// The number of rows that were not read yet.
    rows_left: u64,
}

impl Parquet {
    pub(crate) fn open(blocks: Blocks) -> anyhow::Result<Parquet> {
        let name = blocks.name().to_owned();
        let file = blocks.into_seekable()?;
        let (loaded, notes) =
            meta::load(&file).with_context(|| format!("cannot read {name} as a Parquet file"))?;
        let rows_total = loaded.metadata().file_metadata().num_rows();
        Ok(Parquet {
            columns: meta::columns(&loaded),
            rows_read: 0,
            rows_total: u64::try_from(rows_total).unwrap_or(0),
            meta: views::with_views(&loaded),
            file,
            roots: Vec::new(),
            order: Vec::new(),
            millis: None,
            next_group: 0,
            group: None,
            notes: notes.iter().map(|note| format!("{name}: {note}")).collect(),
            name,
        })
    }

    fn next_rows(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            if let Some(group) = &mut self.group {
                if let Some(batch) = group.reader.next().transpose()? {
                    return self.rows(&batch).map(Some);
                }
                ensure!(
                    group.rows_left == 0,
                    "row group {} ends {} rows before its count",
                    self.next_group,
                    group.rows_left
                );
            }
            self.group = self.next_group()?;
            if self.group.is_none() {
                return Ok(None);
            }
        }
    }

    /// The rows of a batch of the current row group.
    fn rows(&mut self, batch: &RecordBatch) -> anyhow::Result<Rows> {
        let mut columns = batch.columns().to_vec();
        let mut bad = Vec::new();
        let group = self.group.as_mut().context("a batch has no row group")?;
        if let (Some(millis), Some(reader)) = (&self.millis, &mut group.millis) {
            let again = reader.next().context("INT96 columns end early")??;
            bad = millis.mend(&mut columns, &self.roots, &again)?;
        }
        let count = batch.num_rows();
        let left = group.rows_left.checked_sub(count as u64);
        group.rows_left = left.context("a row group has more rows than it counts")?;
        self.rows_read += count as u64;
        let column = |place: &usize| columns.get(*place).cloned();
        let columns: Option<_> = self.order.iter().map(column).collect();
        Ok(Rows {
            columns: columns.context("a batch has fewer columns than its schema")?,
            count,
            bad,
        })
    }

    fn next_group(&mut self) -> anyhow::Result<Option<Group>> {
        let Some(group) = self.meta.metadata().row_groups().get(self.next_group) else {
            return Ok(None);
        };
        let descr = self.meta.parquet_schema();
        let is_read = |leaf: &usize| {
            let root = descr.get_column_root_idx(*leaf);
            self.roots.binary_search(&root).is_ok()
        };
        let leaves = (0..descr.num_columns()).filter(is_read);
        let rows = batch_rows(&self.file, group, leaves, self.meta.schema())?;
        let mask = ProjectionMask::roots(descr, self.roots.iter().copied());
        let file = self.file.try_clone()?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.meta.clone())
            .with_row_groups(vec![self.next_group])
            .with_projection(mask)
            .with_batch_size(rows);
        let again = |millis: &Millis| millis.reader(self.file.try_clone()?, self.next_group, rows);
        let rows_left = u64::try_from(group.num_rows())?;
        let group = Group {
            reader: builder.build()?,
            millis: self.millis.as_ref().map(again).transpose()?,
            rows_left,
        };
        self.next_group += 1;
        Ok(Some(group))
    }
}

impl Reader for Parquet {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        let mut roots: Vec<usize> = wanted.iter().map(|wanted| wanted.column).collect();
        roots.sort_unstable();
        roots.dedup();
        let place = |wanted: &Wanted| roots.binary_search(&wanted.column).unwrap_or(0);
        self.order = wanted.iter().map(place).collect();
        self.roots = roots;
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        if self.next_group == 0 {
            self.millis = Millis::new(&self.meta, &self.roots)?;
        }
        let after = self.rows_read;
        let rows = self.next_rows();
        rows.with_context(|| format!("cannot read {} after row {after}", self.name))
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn may_have_rows(&mut self) -> bool {
        self.rows_total > 0
    }

    fn fraction(&self) -> Option<f64> {
        (self.rows_total > 0).then(|| self.rows_read as f64 / self.rows_total as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
        FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array,
        IntervalDayTimeArray, ListArray, NullArray, RecordBatch, StringArray, StringViewArray,
        StructArray, TimestampMicrosecondArray, TimestampSecondArray, UInt64Array,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int32Type, Int64Type, IntervalDayTime};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    use crate::input::testing::{Loaded, declared, load, load_files, options, try_load};
    use crate::input::{Format, LoadOptions, TimeForm, TimeUnit};

    /// A Parquet file of these columns, in row groups of 100 rows.
    fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        );
        let batch = batch.unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(100))
            .build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        file
    }

    fn loaded(columns: Vec<(&str, ArrayRef)>, options: LoadOptions) -> Loaded {
        load(&parquet(columns), Format::Parquet, options)
    }

    #[test]
    fn an_interval_is_a_string_and_a_note_says_what_it_is_without() {
        let day = IntervalDayTime::new(2, 3000);
        let column: ArrayRef = Arc::new(IntervalDayTimeArray::from(vec![day]));
        let loaded = loaded(vec![("iv", Arc::clone(&column))], options());
        assert_eq!(loaded.lines(), ["\"2 days 3.000 secs\""]);
        let note = "column 'iv' becomes json, its values of type INTERVAL without their months; if they have some, convert them with DuckDB first";
        assert_eq!(loaded.notes, [note]);
        let item = Arc::new(Field::new_list_field(column.data_type().clone(), true));
        let list = ListArray::new(item, OffsetBuffer::from_lengths([1]), column, None);
        let listed = super::tests::loaded(vec![("iv", Arc::new(list))], options());
        assert_eq!(listed.lines(), ["[\"2 days 3.000 secs\"]"]);
        assert_eq!(listed.notes, [note]);
    }

    #[test]
    fn every_type_keeps_its_values() {
        let loaded = loaded(
            vec![
                ("i8", Arc::new(Int8Array::from(vec![i8::MIN, i8::MAX]))),
                ("i64", Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX]))),
                (
                    "u64",
                    Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])),
                ),
                ("f32", Arc::new(Float32Array::from(vec![f32::NAN, -0.5]))),
                (
                    "f64",
                    Arc::new(Float64Array::from(vec![f64::INFINITY, f64::MIN])),
                ),
                ("b", Arc::new(BooleanArray::from(vec![true, false]))),
                (
                    "s",
                    Arc::new(StringArray::from(vec![Some("äπ\u{1F600}"), None])),
                ),
                (
                    "v",
                    Arc::new(StringViewArray::from(vec!["", "longer than twelve bytes"])),
                ),
                (
                    "bin",
                    Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""])),
                ),
                (
                    "fix",
                    Arc::new(
                        FixedSizeBinaryArray::try_from_iter([[1_u8, 2, 3], [4, 5, 6]].iter())
                            .unwrap(),
                    ),
                ),
                (
                    "dict",
                    Arc::new(DictionaryArray::<Int32Type>::from_iter(["x", "y"])),
                ),
            ],
            options(),
        );
        assert_eq!(
            loaded.fields(),
            [
                "i8 i8?",
                "i64 i64?",
                "u64 u64?",
                "f32 f32?",
                "f64 f64?",
                "b bool?",
                "s utf8?",
                "v utf8?",
                "bin bytes?",
                "fix bytes[3]?",
                "dict utf8?"
            ]
        );
        assert_eq!(
            loaded.lines(),
            [
                "-128|-9223372036854775808|18446744073709551615|NaN|inf|true|äπ\u{1F600}||00ff|010203|x",
                &format!(
                    "127|9223372036854775807|-|-0.5|{}|false|-|longer than twelve bytes||040506|y",
                    f64::MIN
                ),
            ]
        );
        assert!(loaded.notes.is_empty());
    }

    #[test]
    fn a_float_that_f32_does_not_reach_refuses_its_row() {
        let column = Float64Array::from(vec![1.5, 1e300, -1e300, 1e-300, 0.0, f64::NAN]);
        let fields = "[[source.field]]\nname = \"x\"\ntype = \"f32\"\n";
        let loaded = loaded(vec![("x", Arc::new(column))], declared(fields));
        assert_eq!(loaded.lines(), ["1.5", "0", "NaN"]);
        let reason = |value: &str| {
            format!(
                "'{value}' does not fit field 'x' of type f32; a field of type utf8 keeps it (--fields)"
            )
        };
        let refused = [
            (2, reason("1e300")),
            (3, reason("-1e300")),
            (4, reason("1e-300")),
        ];
        assert_eq!(loaded.refused, refused);
    }

    #[test]
    fn columns_of_two_files_that_differ_in_case_only_fill_one_field() {
        let ints = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let first = parquet(vec![("x", ints(vec![1])), ("y", ints(vec![2]))]);
        let second = parquet(vec![("Y", ints(vec![4])), ("X", ints(vec![3]))]);
        let loaded = load_files(&[first, second], Format::Parquet, options());
        assert_eq!(loaded.fields(), ["x i64?", "y i64?"]);
        assert_eq!(loaded.lines(), ["1|2", "3|4"]);
    }

    #[test]
    fn a_file_without_rows_adds_no_field_beside_one_with_rows() {
        let ints = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let empty = parquet(vec![("x", ints(vec![])), ("more", ints(vec![]))]);
        let full = parquet(vec![("x", ints(vec![1]))]);
        let loaded = load_files(&[empty.clone(), full, empty], Format::Parquet, options());
        assert_eq!(loaded.fields(), ["x i64?"]);
        assert_eq!(loaded.lines(), ["1"]);
    }

    #[test]
    fn bytes_that_a_field_does_not_take_are_named_by_their_type_in_the_file() {
        let column: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]]));
        let fields = "[[source.field]]\nname = \"x\"\ntype = \"utf8\"\n";
        let error = try_load(
            &parquet(vec![("x", column)]),
            Format::Parquet,
            declared(fields),
        );
        let error = format!("{:#}", error.err().unwrap());
        let words = "values of type Binary may not be text; declare the field as bytes";
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn times_of_any_unit_and_zone_are_nanoseconds() {
        let micros = TimestampMicrosecondArray::from(vec![-1, 1]).with_timezone("+05:00");
        let loaded = loaded(
            vec![
                ("us", Arc::new(micros)),
                (
                    "s",
                    Arc::new(TimestampSecondArray::from(vec![Some(-1), None])),
                ),
                ("d", Arc::new(Date32Array::from(vec![-1, 1]))),
            ],
            options(),
        );
        assert_eq!(
            loaded.fields(),
            ["us timestamp_ns?", "s timestamp_ns?", "d timestamp_ns?"]
        );
        assert_eq!(
            loaded.lines(),
            ["-1000|-1000000000|-86400000000000", "1000|-|86400000000000"]
        );
    }

    #[test]
    fn times_out_of_the_range_of_nanoseconds_become_null_or_refuse_their_row() {
        let far = TimestampSecondArray::from(vec![0, 9_300_000_000, i64::MAX]);
        let far: ArrayRef = Arc::new(far.with_timezone("UTC"));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![0, 2_932_896, -1]));
        let columns = vec![("t", Arc::clone(&far)), ("d", days)];
        let nulled = loaded(columns, options());
        assert_eq!(nulled.fields(), ["t timestamp_ns?", "d timestamp_ns?"]);
        assert_eq!(nulled.lines(), ["0|0", "-|-", "-|-86400000000000"]);
        assert!(nulled.refused.is_empty());
        let [of_t, of_d] = nulled.notes.as_slice() else {
            panic!("{:?}", nulled.notes);
        };
        assert!(of_t.starts_with("2 times of field 't' in '"), "{of_t}");
        assert!(of_d.starts_with("1 time of field 'd' in '"), "{of_d}");
        let fields = "[[source.field]]\nname = \"t\"\ntype = \"timestamp_ns\"\n";
        let loaded = loaded(vec![("t", far)], declared(fields));
        assert_eq!(loaded.lines(), ["0"]);
        assert_eq!(loaded.refused.len(), 2);
        assert!(
            loaded.refused[0].1.starts_with("'2264-"),
            "{}",
            loaded.refused[0].1
        );
    }

    #[test]
    fn what_has_no_field_type_becomes_a_number_or_json_and_is_noted() {
        let decimals = Decimal128Array::from(vec![Some(-12_345), None]);
        let whole = Decimal128Array::from(vec![999_999_999_999_999_999, -1]);
        let zoned = TimestampSecondArray::from(vec![0, -1]).with_timezone("Europe/Berlin");
        let nested = StructArray::from(vec![(
            Arc::new(Field::new("t", zoned.data_type().clone(), true)),
            Arc::new(zoned) as ArrayRef,
        )]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(1), None]),
            None,
        ]);
        let loaded = loaded(
            vec![
                (
                    "price",
                    Arc::new(decimals.with_precision_and_scale(10, 2).unwrap()),
                ),
                (
                    "whole",
                    Arc::new(whole.with_precision_and_scale(18, 0).unwrap()),
                ),
                ("list", Arc::new(lists)),
                ("nested", Arc::new(nested)),
            ],
            options(),
        );
        assert_eq!(
            loaded.fields(),
            ["price f64?", "whole i64?", "list json?", "nested json?"]
        );
        assert_eq!(
            loaded.lines(),
            [
                "-123.45|999999999999999999|[1,null]|{\"t\":\"1970-01-01T01:00:00+01:00\"}",
                "-|-1|-|{\"t\":\"1970-01-01T00:59:59+01:00\"}"
            ]
        );
        assert_eq!(loaded.notes.len(), 3);
        assert!(
            loaded.notes[0].starts_with("column 'price' of type Decimal128(10, 2) becomes f64")
        );
    }

    #[test]
    fn an_own_time_is_taken_out_of_the_fields() {
        let ts = Int64Array::from(vec![Some(5), Some(i64::MIN), None]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("addr", Arc::new(Int32Array::from(vec![1, 2, 3]))),
            ("at", Arc::new(ts)),
        ];
        let options = LoadOptions {
            ts_column: Some("at".to_owned()),
            indexes: vec!["addr".to_owned()],
            ..options()
        };
        let loaded = loaded(columns, options);
        assert_eq!(loaded.fields(), ["addr_ i32?"]);
        assert_eq!(loaded.def.indexes[0].name, "addr_");
        assert_eq!(loaded.lines(), ["5|1", "-9223372036854775808|2"]);
        assert_eq!(
            loaded.refused,
            [(3, "its time, column 'at', is NULL".to_owned())]
        );
        assert_eq!(
            loaded.notes,
            ["column 'addr' becomes field 'addr_': the name is reserved"]
        );
    }

    #[test]
    fn numbers_with_a_fraction_are_times_of_the_unit_that_is_named_and_of_no_other() {
        let with = |ts_form| LoadOptions {
            ts_column: Some("at".to_owned()),
            ts_form,
            ..options()
        };
        let file = parquet(vec![
            ("n", Arc::new(Int32Array::from(vec![1]))),
            ("at", Arc::new(Float64Array::from(vec![1_700_000_000.5]))),
        ]);
        let error = try_load(&file, Format::Parquet, with(TimeForm::Usual));
        let error = format!("{:#}", error.err().unwrap());
        assert!(error.ends_with("name it with --ts-unit"), "{error}");
        let loaded = load(&file, Format::Parquet, with(TimeForm::Unit(TimeUnit::S)));
        assert_eq!(loaded.lines(), ["1700000000500000000|1"]);
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn declared_fields_take_what_fits_exactly() {
        let fields = "[[source.field]]\nname = \"a\"\ntype = \"i8\"\n\
                      [[source.field]]\nname = \"new\"\ntype = \"f64\"\nnullable = true\n";
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "a",
                Arc::new(Float64Array::from(vec![1.0, 1.5, 128.0, f64::NAN, -128.0])),
            ),
            ("left", Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]))),
        ];
        let loaded = loaded(columns, declared(fields));
        assert_eq!(loaded.lines(), ["1|-", "-128|-"]);
        let rows: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [2, 3, 4]);
        assert_eq!(
            loaded.notes,
            ["column 'left' is left out: source 's' has no such field; add it with --add-fields"]
        );
    }

    #[test]
    fn a_nullable_field_without_a_column_or_with_nulls_alone_is_null() {
        let types = [
            "i64",
            "u8",
            "bool",
            "timestamp_ns",
            "char[3]",
            "bytes[2]",
            "utf8",
            "bytes",
            "json",
        ];
        let mut fields = String::from("[[source.field]]\nname = \"a\"\ntype = \"i32\"\n");
        for (at, ty) in types.iter().enumerate() {
            for name in [format!("missing{at}"), format!("null{at}")] {
                fields += &format!(
                    "[[source.field]]\nname = \"{name}\"\ntype = \"{ty}\"\nnullable = true\n"
                );
            }
        }
        let names: Vec<String> = (0..types.len()).map(|at| format!("null{at}")).collect();
        let mut columns: Vec<(&str, ArrayRef)> =
            vec![("a", Arc::new(Int32Array::from(vec![7, 8])))];
        columns.extend(
            names
                .iter()
                .map(|name| -> (&str, ArrayRef) { (name, Arc::new(NullArray::new(2))) }),
        );
        let loaded = loaded(columns, declared(&fields));
        assert!(loaded.refused.is_empty(), "{:?}", loaded.refused);
        let nulls = "|-".repeat(2 * types.len());
        assert_eq!(loaded.lines(), [format!("7{nulls}"), format!("8{nulls}")]);
    }

    #[test]
    fn a_record_that_is_too_long_is_refused() {
        let texts = ["x".repeat(65_509), "y".repeat(65_510), "z".repeat(200_000)];
        let loaded = loaded(
            vec![("s", Arc::new(StringArray::from(texts.to_vec())))],
            options(),
        );
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(
            loaded.refused[0],
            (
                2,
                "the record would have 65513 bytes; the limit is 65512".to_owned()
            )
        );
        assert_eq!(loaded.refused.len(), 2);
    }

    #[test]
    fn many_row_groups_keep_their_order() {
        let numbers: Vec<i64> = (0..50_000).collect();
        let column: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
        let loaded = loaded(vec![("n", column)], options());
        let expected: Vec<String> = numbers.iter().map(i64::to_string).collect();
        assert_eq!(loaded.lines(), expected);
    }

    #[test]
    fn empty_and_damaged_files() {
        let none: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        let mut file = parquet(vec![("n", none)]);
        assert!(load(&file, Format::Parquet, options()).rows.is_empty());
        file.truncate(file.len() / 2);
        for bytes in [&file[..], b"PAR1\0\0\0\0"] {
            let error = try_load(bytes, Format::Parquet, options()).err().unwrap();
            let error = format!("{error:#}");
            assert!(error.contains(" as a Parquet file: "), "{error}");
        }
    }

    #[test]
    fn a_type_that_never_fits_is_an_error_that_names_the_field() {
        let fields = "[[source.field]]\nname = \"b\"\ntype = \"u8\"\n";
        let column: ArrayRef = Arc::new(BinaryArray::from(vec![&b"x"[..]]));
        let file = parquet(vec![("b", column)]);
        let error = try_load(&file, Format::Parquet, declared(fields))
            .err()
            .unwrap();
        assert!(
            format!("{error:#}").contains("from row 1 on: field 'b': values of type Binary"),
            "{error:#}"
        );
    }
}
