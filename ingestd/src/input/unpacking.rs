//! Estimates the length of rows before they are copied: dictionaries, runs and views may share one value among any number of rows, and nested values
//! become longer as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, downcast_run_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

use super::InputBatch;
use super::framer::Framer;
use super::rows::Rows;

/// The limit of rows that are framed at a time.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// Longer rows are refused before they are copied; no record is that long.
const ROW_BYTES_MAX: u64 = 1 << 20;

/// An estimate of the length of a number as text.
const NUMBER_BYTES: u64 = 16;

/// Rows that are framed in parts.
pub(super) struct Unpacking {
    rows: Rows,
    /// The estimated length of each row's shared and nested values; empty if there are none.
    lengths: Vec<u64>,
    framed: usize,
    /// The number of the first row.
    first_row: u64,
}

impl Unpacking {
    pub(super) fn new(rows: Rows, first_row: u64) -> Unpacking {
        let columns: Vec<Vec<u64>> = rows.columns.iter().filter_map(lengths).collect();
        let row = |row| {
            let of_columns = columns.iter().filter_map(|column| column.get(row));
            of_columns.fold(0, |sum: u64, length| sum.saturating_add(*length))
        };
        let lengths = match columns.is_empty() {
            true => Vec::new(),
            false => (0..rows.count).map(row).collect(),
        };
        Unpacking {
            rows,
            lengths,
            framed: 0,
            first_row,
        }
    }

    /// The number of the row that `next` begins with.
    pub(super) fn next_row(&self) -> u64 {
        self.first_row + self.framed as u64
    }

    /// The next payloads; `None` after the last row.
    pub(super) fn next(&mut self, framer: &mut Framer) -> anyhow::Result<Option<InputBatch>> {
        let from = self.framed;
        let first_row = self.next_row();
        if from == self.rows.count {
            return Ok(None);
        }
        let lengths = self.lengths.get(from..).unwrap_or_default();
        let long = lengths.iter().take_while(|length| **length > ROW_BYTES_MAX);
        let refused: Vec<(u64, String)> = (first_row..)
            .zip(long)
            .map(|(row, bytes)| {
                let limit = framer.payload_bytes_max;
                let reason =
                    format!("the record would have about {bytes} bytes; the limit is {limit}");
                (row, reason)
            })
            .collect();
        if !refused.is_empty() {
            self.framed += refused.len();
            return Ok(Some(InputBatch {
                refused,
                first_row,
                ..InputBatch::default()
            }));
        }
        let mut unpacked = 0u64;
        let fits = |length: &&u64| {
            unpacked = unpacked.saturating_add(**length);
            **length <= ROW_BYTES_MAX && unpacked <= UNPACKED_BYTES_MAX
        };
        let count = match self.lengths.is_empty() {
            true => self.rows.count,
            false => lengths.iter().take_while(fits).count(),
        };
        self.framed += count;
        framer
            .frame(self.rows.slice(from, count), first_row)
            .map(Some)
    }
}

/// The estimated length of each value, if the column shares or nests values.
fn lengths(column: &ArrayRef) -> Option<Vec<u64>> {
    use DataType as A;
    match column.data_type() {
        A::Utf8View | A::BinaryView | A::Dictionary(_, _) | A::RunEndEncoded(_, _) => {
            Some(all_lengths(column))
        }
        ty if ty.is_nested() => Some(all_lengths(column)),
        _ => None,
    }
}

/// The estimated length of each value as text, within a factor of ten.
fn all_lengths(column: &ArrayRef) -> Vec<u64> {
    use DataType as A;
    match column.data_type() {
        A::Utf8 => of_offsets(column.as_string::<i32>().offsets()),
        A::LargeUtf8 => of_offsets(column.as_string::<i64>().offsets()),
        A::Binary => of_offsets(column.as_binary::<i32>().offsets()),
        A::LargeBinary => of_offsets(column.as_binary::<i64>().offsets()),
        A::Utf8View => column.as_string_view().lengths().map(u64::from).collect(),
        A::BinaryView => column.as_binary_view().lengths().map(u64::from).collect(),
        A::FixedSizeBinary(width) => vec![u64::try_from(*width).unwrap_or(0); column.len()],
        A::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            let values = all_lengths(dictionary.values());
            match values.is_empty() {
                true => vec![NUMBER_BYTES; column.len()],
                false => picked(&values, dictionary.normalized_keys()),
            }
        }
        A::RunEndEncoded(_, _) => downcast_run_array! {
            column => {
                let rows = 0..column.len();
                picked(
                    &all_lengths(column.values()),
                    rows.map(|row| column.get_physical_index(row)),
                )
            }
            _ => Vec::new()
        },
        A::List(_) => sums(
            column.as_list::<i32>().offsets(),
            column.as_list::<i32>().values(),
        ),
        A::LargeList(_) => sums(
            column.as_list::<i64>().offsets(),
            column.as_list::<i64>().values(),
        ),
        A::Map(_, _) => {
            let map = column.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            sums(map.offsets(), &entries)
        }
        A::ListView(_) => {
            let list = column.as_list_view::<i32>();
            ranges(list.offsets(), list.sizes(), list.values())
        }
        A::LargeListView(_) => {
            let list = column.as_list_view::<i64>();
            ranges(list.offsets(), list.sizes(), list.values())
        }
        A::FixedSizeList(_, _) => {
            let list = column.as_fixed_size_list();
            let each = u64::try_from(list.value_length()).unwrap_or(0);
            let ends = (0..=list.len() as u64).map(|row| row * each);
            between(ends, list.values())
        }
        A::Struct(fields) => {
            let mut rows = vec![2; column.len()];
            for (field, values) in fields.iter().zip(column.as_struct().columns()) {
                let name = field.name().len() as u64 + 4;
                for (row, length) in rows.iter_mut().zip(all_lengths(values)) {
                    *row = length.saturating_add(name).saturating_add(*row);
                }
            }
            rows
        }
        A::Union(fields, _) => {
            let union = column.as_union();
            let child = |(id, _)| (id, all_lengths(union.child(id)));
            let children: HashMap<i8, Vec<u64>> = fields.iter().map(child).collect();
            let row = |row| {
                let child = children.get(&union.type_id(row))?;
                child.get(union.value_offset(row)).copied()
            };
            (0..column.len()).map(|at| row(at).unwrap_or(0)).collect()
        }
        _ => vec![NUMBER_BYTES; column.len()],
    }
}

fn of_offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<u64> {
    offsets.lengths().map(|length| length as u64).collect()
}

fn picked(values: &[u64], places: impl IntoIterator<Item = usize>) -> Vec<u64> {
    let places = places.into_iter();
    places
        .map(|place| values.get(place).copied().unwrap_or(0))
        .collect()
}

/// The lengths of consecutive lists.
fn sums<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &ArrayRef) -> Vec<u64> {
    let [first, last] = [offsets.first(), offsets.last()].map(|offset| offset.as_usize());
    let ends = offsets.iter().map(|end| (end.as_usize() - first) as u64);
    between(ends, &values.slice(first, last - first))
}

/// The lengths of lists between consecutive ends.
fn between(ends: impl Iterator<Item = u64>, values: &ArrayRef) -> Vec<u64> {
    let upto = sums_upto(values);
    let at = |end: u64| usize::try_from(end).ok().and_then(|end| upto.get(end));
    let sums: Vec<u64> = ends.map(|end| at(end).copied().unwrap_or(0)).collect();
    let next = sums.iter().skip(1);
    sums.iter()
        .zip(next)
        .map(|(from, to)| to - from + 2)
        .collect()
}

fn ranges<O: OffsetSizeTrait>(offsets: &[O], sizes: &[O], values: &ArrayRef) -> Vec<u64> {
    let upto = sums_upto(values);
    let sum = |end: usize| upto.get(end).copied().unwrap_or(0);
    let list = |(from, size): (&O, &O)| {
        let from = from.as_usize();
        sum(from + size.as_usize()).saturating_sub(sum(from)) + 2
    };
    offsets.iter().zip(sizes).map(list).collect()
}

/// Prefix sums of the lengths of values, with a comma for each.
fn sums_upto(values: &ArrayRef) -> Vec<u64> {
    let mut sum = 0u64;
    let lengths = all_lengths(values).into_iter().map(|length| {
        sum = sum.saturating_add(length).saturating_add(1);
        sum
    });
    std::iter::once(0).chain(lengths).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        DictionaryArray, Int64Array, ListArray, NullArray, RunArray, StringArray, StringViewArray,
    };
    use arrow::datatypes::{Field, Int32Type};
    use loom_engine::schema::{FieldDef, FieldType, SourceDef};

    use super::*;
    use crate::input::framer::FieldSource;

    /// The numbers of framed and refused rows of each batch.
    fn taken(column: ArrayRef, ty: FieldType) -> Vec<(u64, usize)> {
        let field = FieldDef::new("text", ty);
        let def = SourceDef {
            fields: vec![field.clone()],
            ..SourceDef::new("s")
        };
        let source = FieldSource {
            field,
            column: Some(1),
        };
        let mut framer = Framer::new(&def, vec![source], None, 65_512).unwrap();
        let rows = Rows {
            count: column.len(),
            columns: vec![Arc::new(Int64Array::from(vec![0; column.len()])), column],
            bad: Vec::new(),
        };
        let mut unpacking = Unpacking::new(rows, 1);
        let mut taken = Vec::new();
        let mut next_row = 1;
        while let Some(batch) = unpacking.next(&mut framer).unwrap() {
            assert_eq!(batch.first_row, next_row);
            next_row += batch.received();
            taken.push((batch.rows, batch.refused.len()));
        }
        taken
    }

    #[test]
    fn rows_that_share_one_long_value_are_framed_some_at_a_time() {
        let long = "x".repeat(1 << 16);
        let long = &long[..60_000];
        let dictionary: DictionaryArray<Int32Type> = std::iter::repeat_n(long, 3000).collect();
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![long; 3000]));
        let inner: ArrayRef = Arc::new(dictionary.clone());
        let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        let lists = ListArray::new(field, OffsetBuffer::from_lengths([1; 3000]), inner, None);
        for (column, ty) in [
            (Arc::new(dictionary) as ArrayRef, FieldType::Utf8),
            (views, FieldType::Utf8),
            (Arc::new(lists), FieldType::Json),
        ] {
            assert_eq!(taken(column, ty), [(1118, 0), (1118, 0), (764, 0)]);
        }
    }

    // case Network and input: bytes that unpack to far more than they weigh
    #[test]
    fn rows_that_no_record_can_hold_are_refused_as_they_are() {
        let long = "x".repeat(2 << 20);
        let mut texts = vec!["short"; 10];
        texts[3] = &long;
        texts[4] = &long;
        let views: ArrayRef = Arc::new(StringViewArray::from(texts));
        assert_eq!(taken(views, FieldType::Utf8), [(3, 0), (0, 2), (5, 0)]);
    }

    #[test]
    fn a_list_that_takes_no_room_and_becomes_long_json_is_refused() {
        let nulls: ArrayRef = Arc::new(NullArray::new(100_003));
        let field = Arc::new(Field::new_list_field(DataType::Null, true));
        let lengths = OffsetBuffer::from_lengths([2, 100_000, 1]);
        let lists: ArrayRef = Arc::new(ListArray::new(field, lengths, nulls, None));
        assert_eq!(taken(lists, FieldType::Json), [(1, 0), (0, 1), (1, 0)]);
    }

    #[test]
    fn a_long_run_refuses_its_own_rows_alone() {
        let long = "x".repeat(2 << 20);
        let values = StringArray::from(vec!["short", &long, "last"]);
        let ends = arrow::array::Int32Array::from(vec![2, 4, 5]);
        let runs: ArrayRef = Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap());
        assert_eq!(taken(runs, FieldType::Utf8), [(2, 0), (0, 2), (1, 0)]);
    }

    #[test]
    fn light_rows_are_framed_all_at_once() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["one"; 16_384]));
        assert_eq!(taken(texts, FieldType::Utf8), [(16_384, 0)]);
        let none: ArrayRef = Arc::new(StringViewArray::from(Vec::<&str>::new()));
        assert!(taken(none, FieldType::Utf8).is_empty());
    }
}
