//! How long the values of arrays are once each row has a copy of its own: dictionaries, runs and views may hold one value for any
//! number of rows.

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, MapArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};

use super::framer::Framer;
use super::rows::{InputBatch, Rows};

/// What the rows that are framed at a time unpack to.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// A row that is longer is refused as it is; no record is.
const ROW_BYTES_MAX: u64 = 1 << 20;

/// Rows that are framed some at a time.
pub(super) struct Unpacking {
    rows: Rows,
    /// Of each row, what is not held as long as it is; empty where all of it is.
    lengths: Vec<u64>,
    framed: usize,
    /// The number of the first of all rows.
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

    /// The number of the first row that `next` gives.
    pub(super) fn next_row(&self) -> u64 {
        self.first_row + self.framed as u64
    }

    /// The next payloads; `None` when all rows were framed or refused.
    pub(super) fn next(&mut self, framer: &Framer) -> anyhow::Result<Option<InputBatch>> {
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
                (
                    row,
                    format!("its values have {bytes} bytes; the limit is {limit}"),
                )
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

/// The length of each value of a column, where it holds less than that.
fn lengths(column: &ArrayRef) -> Option<Vec<u64>> {
    use DataType as A;
    match column.data_type() {
        A::Utf8View => Some(column.as_string_view().lengths().map(u64::from).collect()),
        A::BinaryView => Some(column.as_binary_view().lengths().map(u64::from).collect()),
        A::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            let values = all_lengths(dictionary.values());
            if values.is_empty() {
                return None;
            }
            let keys = dictionary.normalized_keys().into_iter();
            Some(
                keys.map(|key| values.get(key).copied().unwrap_or(0))
                    .collect(),
            )
        }
        A::RunEndEncoded(ends, _) => {
            let values = match ends.data_type() {
                A::Int16 => column.as_run::<Int16Type>().values(),
                A::Int32 => column.as_run::<Int32Type>().values(),
                A::Int64 => column.as_run::<Int64Type>().values(),
                _ => return None,
            };
            let longest = all_lengths(values).into_iter().max().unwrap_or(0);
            Some(vec![longest; column.len()])
        }
        A::List(_) => {
            let list = column.as_list::<i32>();
            Some(sums(list.offsets(), &lengths(list.values())?))
        }
        A::LargeList(_) => {
            let list = column.as_list::<i64>();
            Some(sums(list.offsets(), &lengths(list.values())?))
        }
        A::Map(_, _) => {
            let map: &MapArray = column.as_map();
            let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
            Some(sums(map.offsets(), &lengths(&entries)?))
        }
        A::FixedSizeList(_, _) => {
            let list: &FixedSizeListArray = column.as_fixed_size_list();
            let values = lengths(list.values())?;
            let each = usize::try_from(list.value_length()).unwrap_or(0).max(1);
            Some(
                values
                    .chunks(each)
                    .map(|values| values.iter().sum())
                    .collect(),
            )
        }
        A::Struct(_) => {
            let parts: Vec<Vec<u64>> = column
                .as_struct()
                .columns()
                .iter()
                .filter_map(lengths)
                .collect();
            let row = |row| parts.iter().filter_map(|part| part.get(row)).sum();
            (!parts.is_empty()).then(|| (0..column.len()).map(row).collect())
        }
        _ => None,
    }
}

/// The length of each value, also of those that are held as long as they are.
fn all_lengths(values: &ArrayRef) -> Vec<u64> {
    use DataType as A;
    let held = match values.data_type() {
        A::Utf8 => Some(of_offsets(values.as_string::<i32>().offsets())),
        A::LargeUtf8 => Some(of_offsets(values.as_string::<i64>().offsets())),
        A::Binary => Some(of_offsets(values.as_binary::<i32>().offsets())),
        A::LargeBinary => Some(of_offsets(values.as_binary::<i64>().offsets())),
        A::FixedSizeBinary(width) => Some(vec![u64::try_from(*width).unwrap_or(0); values.len()]),
        _ => lengths(values),
    };
    held.unwrap_or_else(|| {
        // Of what is nested: as if each value were all of it.
        let whole = if values.data_type().is_nested() {
            values.get_array_memory_size()
        } else {
            16
        };
        vec![whole as u64; values.len()]
    })
}

fn of_offsets<O: arrow::array::OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<u64> {
    offsets.lengths().map(|length| length as u64).collect()
}

fn sums<O: arrow::array::OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &[u64]) -> Vec<u64> {
    let ends = offsets.iter().zip(offsets.iter().skip(1));
    let row = |(from, to): (&O, &O)| values.get(from.as_usize()..to.as_usize());
    ends.map(|ends| row(ends).unwrap_or_default().iter().sum())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Field;
    use loom_engine::schema::{FieldDef, FieldType, SourceDef};

    use super::*;
    use crate::input::framer::FieldSource;

    /// How many rows are framed and refused at a time, of a column of this type.
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
        let framer = Framer::new(&def, vec![source], None, 65_512).unwrap();
        let rows = Rows {
            count: column.len(),
            columns: vec![Arc::new(Int64Array::from(vec![0; column.len()])), column],
            bad: Vec::new(),
        };
        let mut unpacking = Unpacking::new(rows, 1);
        let mut taken = Vec::new();
        let mut next_row = 1;
        while let Some(batch) = unpacking.next(&framer).unwrap() {
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
    fn light_rows_are_framed_all_at_once() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["one"; 16_384]));
        assert_eq!(taken(texts, FieldType::Utf8), [(16_384, 0)]);
        let none: ArrayRef = Arc::new(StringViewArray::from(Vec::<&str>::new()));
        assert!(taken(none, FieldType::Utf8).is_empty());
    }
}
