//! Turns columns into framed payloads: all rows of a batch at once, column by column.
//!
//! The fixed-width parts of all rows are in one buffer with equal strides, so each column is one loop of small copies. A second copy is needed only
//! for variable-length fields and batches with refused rows.

use std::collections::BTreeMap;

use anyhow::Context;
use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use loom_engine::schema::{FieldDef, FieldType, Layout, Place, Slot, SourceDef};

use super::InputBatch;
use super::cells::{Cells, Change, Values, convert, missing};
use super::own_time::OwnTime;
use super::rows::Rows;
use super::time_unit::TimeUnit;
use super::unlikely::Unlikely;
use crate::counted::{counted, singular_or};

/// The width of the length before each payload.
const FRAME_BYTES: usize = 2;

/// A field and its column.
pub(crate) struct FieldSource {
    pub field: FieldDef,
    /// The position in the columns of `Rows`; `None` if the input does not have the column, so that the field is NULL.
    pub column: Option<usize>,
}

/// Counts of a field's values for the notes at the end.
#[derive(Clone, Default)]
struct Changes {
    out_of_range: u64,
    not_finite: u64,
    unlikely: Unlikely,
}

impl Changes {
    fn count(&mut self, change: Change) {
        match change {
            Change::OutOfRange => self.out_of_range += 1,
            Change::NotFinite => self.not_finite += 1,
        }
    }
}

/// Makes payloads of one source.
pub(crate) struct Framer {
    layout: Layout,
    fields: Vec<FieldSource>,
    pub own_time: Option<OwnTime>,
    pub payload_bytes_max: usize,
    /// The changes in stored rows, for each field.
    changes: Vec<Changes>,
}

impl Framer {
    pub(crate) fn new(
        def: &SourceDef,
        fields: Vec<FieldSource>,
        own_time: Option<OwnTime>,
        payload_bytes_max: usize,
    ) -> anyhow::Result<Framer> {
        Ok(Framer {
            layout: Layout::new(def.time, &def.fields)?,
            changes: vec![Changes::default(); fields.len()],
            fields,
            own_time,
            payload_bytes_max,
        })
    }

    /// Returns notes about changed values, and resets the counts.
    pub(crate) fn take_changes(&mut self, input: &str) -> Vec<String> {
        let changes = self.changes.iter_mut().map(std::mem::take);
        let mut notes = Vec::new();
        for (source, changes) in self.fields.iter().zip(changes) {
            let name = &source.field.name;
            let Changes {
                out_of_range,
                not_finite,
                unlikely,
            } = changes;
            if out_of_range > 0 {
                notes.push(format!(
                    "{} of field '{name}' in {input} became NULL: nanoseconds reach from 1677-09-21 to 2262-04-11; a field of type utf8 keeps them (--fields)",
                    counted(out_of_range, "time")
                ));
            }
            if not_finite > 0 {
                notes.push(format!(
                    "{} of field '{name}' in {input} {} NaN or an infinity as a string: JSON has no such numbers",
                    counted(not_finite, "value"),
                    singular_or(not_finite, "has", "have")
                ));
            }
            notes.extend(unlikely.notes(
                &format!("field '{name}'"),
                input,
                "convert them to nanoseconds",
            ));
        }
        if let Some(own_time) = &mut self.own_time {
            notes.extend(own_time.take_unlikely(input));
        }
        notes
    }

    /// Makes a payload of each valid row.
    pub(crate) fn frame(&mut self, rows: Rows, first_row: u64) -> anyhow::Result<InputBatch> {
        let mut refused: BTreeMap<usize, String> = BTreeMap::new();
        for (row, reason) in rows.bad.iter().cloned() {
            refused.entry(row).or_insert(reason);
        }
        let fixed_bytes = self.layout.fixed_bytes();
        let mut strides = Strides {
            stride: FRAME_BYTES + fixed_bytes,
            bytes: vec![0; (FRAME_BYTES + fixed_bytes) * rows.count],
        };
        if let Some(own_time) = &mut self.own_time {
            let column = rows
                .columns
                .get(own_time.column)
                .context("the column of times is missing")?;
            write_own_time(own_time, column, &mut strides, &mut refused)?;
        }
        let mut variable = Vec::new();
        let mut changes = Vec::new();
        for (field, (source, slot)) in self.fields.iter().zip(self.layout.slots()).enumerate() {
            let column = match source.column.and_then(|column| rows.columns.get(column)) {
                Some(column) => column,
                None => &missing(rows.count),
            };
            let cells = convert(column, &source.field)
                .with_context(|| format!("field '{}'", source.field.name))?;
            if source.field.ty == FieldType::TimestampNs
                && let Some(of_field) = self.changes.get_mut(field)
            {
                of_field.unlikely.watch(TimeUnit::Ns, column, &cells);
            }
            let of_field = cells.changes.iter();
            changes.extend(of_field.map(|(row, change)| (*row, field, *change)));
            variable.extend(self.write_field(source, slot, cells, &mut strides, &mut refused));
        }
        let bytes = if variable.is_empty() && refused.is_empty() {
            strides.fill(0, &(fixed_bytes as u16).to_le_bytes());
            strides.bytes
        } else {
            self.assemble(&strides, &variable, &mut refused)
        };
        for (row, field, change) in changes {
            if let Some(of_field) = self.changes.get_mut(field)
                && !refused.contains_key(&row)
            {
                of_field.count(change);
            }
        }
        let numbered = |(row, reason)| (first_row + row as u64, reason);
        Ok(InputBatch {
            bytes,
            rows: (rows.count - refused.len()) as u64,
            first_row,
            refused: refused.into_iter().map(numbered).collect(),
            ..InputBatch::default()
        })
    }

    /// Writes a fixed-width field, or the lengths of a variable-length field, whose values it returns.
    fn write_field(
        &self,
        source: &FieldSource,
        slot: &Slot,
        cells: Cells,
        strides: &mut Strides,
        refused: &mut BTreeMap<usize, String>,
    ) -> Option<Values> {
        let name = &source.field.name;
        for (row, reason) in cells.failed {
            refused.entry(row).or_insert(reason);
        }
        let width = slot.ty.fixed_bytes();
        let offset = match slot.place {
            Place::Fixed { offset } => FRAME_BYTES + offset,
            Place::Var { ordinal } => FRAME_BYTES + self.layout.lengths_offset() + 2 * ordinal,
        };
        match &cells.values {
            Values::Fixed(values) => strides.scatter_width(offset, width.unwrap_or(0), values),
            Values::Var(values) => {
                let lengths = values.offsets().lengths();
                // A length that exceeds u16 also exceeds a record, and the row is refused later.
                let lengths = lengths.flat_map(|bytes| (bytes.min(0xFFFF) as u16).to_le_bytes());
                strides.scatter::<2>(offset, &lengths.collect::<Vec<_>>());
            }
        }
        for row in null_rows(cells.nulls.as_ref()) {
            let Some(bit) = slot.null_bit else {
                let reason = || {
                    format!(
                        "field '{name}' is NULL and not nullable; load into a source whose field has `nullable = true` (--fields)"
                    )
                };
                refused.entry(row).or_insert_with(reason);
                continue;
            };
            let null_byte = FRAME_BYTES + self.layout.body_offset() + bit as usize / 8;
            strides.set_bit(row, null_byte, bit % 8);
            strides.zero(row, offset, width.unwrap_or(2));
        }
        matches!(cells.values, Values::Var(_)).then_some(cells.values)
    }

    /// Joins fixed and variable parts, without the refused rows.
    fn assemble(
        &self,
        strides: &Strides,
        variable: &[Values],
        refused: &mut BTreeMap<usize, String>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(strides.bytes.len());
        for (row, fixed) in strides.rows().enumerate() {
            if refused.contains_key(&row) {
                continue;
            }
            let values = variable.iter().filter_map(|values| match values {
                Values::Var(values) if !values.is_null(row) => Some(values.value(row)),
                _ => None,
            });
            let fixed = fixed.get(FRAME_BYTES..).unwrap_or_default();
            let bytes = fixed.len() + values.clone().map(<[u8]>::len).sum::<usize>();
            let limit = self.payload_bytes_max;
            if bytes > limit {
                let reason = format!("the record would have {bytes} bytes; the limit is {limit}");
                refused.insert(row, reason);
                continue;
            }
            out.extend_from_slice(&(bytes as u16).to_le_bytes());
            out.extend_from_slice(fixed);
            values.for_each(|value| out.extend_from_slice(value));
        }
        out
    }
}

fn write_own_time(
    own_time: &mut OwnTime,
    column: &ArrayRef,
    strides: &mut Strides,
    refused: &mut BTreeMap<usize, String>,
) -> anyhow::Result<()> {
    let cells = own_time.convert(column)?;
    own_time.watch(column, &cells);
    let name = &own_time.name;
    for (row, reason) in cells.failed {
        refused.entry(row).or_insert(reason);
    }
    for row in null_rows(cells.nulls.as_ref()) {
        refused
            .entry(row)
            .or_insert_with(|| format!("its time, column '{name}', is NULL"));
    }
    if let Values::Fixed(values) = cells.values {
        strides.scatter::<8>(FRAME_BYTES, &values);
    }
    Ok(())
}

fn null_rows(nulls: Option<&NullBuffer>) -> impl Iterator<Item = usize> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    nulls
        .into_iter()
        .flat_map(|nulls| (0..nulls.len()).filter(|row| nulls.is_null(*row)))
}

/// Rows of equal length: the length of the payload and its fixed part.
struct Strides {
    stride: usize,
    bytes: Vec<u8>,
}

impl Strides {
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.stride)
    }

    /// Writes one value of `W` bytes into each row.
    fn scatter<const W: usize>(&mut self, offset: usize, values: &[u8]) {
        let cells = self
            .bytes
            .get_mut(offset..)
            .unwrap_or_default()
            .chunks_mut(self.stride);
        for (cell, value) in cells.zip(values.as_chunks::<W>().0) {
            if let Some(cell) = cell.first_chunk_mut() {
                *cell = *value;
            }
        }
    }

    fn scatter_width(&mut self, offset: usize, width: usize, values: &[u8]) {
        match width {
            0 => {}
            1 => self.scatter::<1>(offset, values),
            2 => self.scatter::<2>(offset, values),
            4 => self.scatter::<4>(offset, values),
            8 => self.scatter::<8>(offset, values),
            _ => {
                let cells = self.bytes.get_mut(offset..).unwrap_or_default();
                let cells = cells.chunks_mut(self.stride);
                for (cell, value) in cells.zip(values.chunks_exact(width)) {
                    if let Some(cell) = cell.get_mut(..width) {
                        cell.copy_from_slice(value);
                    }
                }
            }
        }
    }

    /// Writes the same two bytes into each row.
    fn fill(&mut self, offset: usize, value: &[u8; 2]) {
        for row in self.bytes.chunks_exact_mut(self.stride) {
            if let Some(cell) = row.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
                *cell = *value;
            }
        }
    }

    fn set_bit(&mut self, row: usize, offset: usize, bit: u32) {
        if let Some(byte) = self.bytes.get_mut(row * self.stride + offset) {
            *byte |= 1 << bit;
        }
    }

    fn zero(&mut self, row: usize, offset: usize, width: usize) {
        let start = row * self.stride + offset;
        if let Some(cell) = self.bytes.get_mut(start..start + width) {
            cell.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BooleanArray, Float32Array, Float64Array, Int16Array, Int64Array, StringArray,
        TimestampNanosecondArray, UInt8Array, UInt64Array,
    };
    use loom_engine::Timestamp;
    use loom_engine::schema::{FieldType, FieldValue, PayloadEncoder, TimeKind};
    use proptest::prelude::*;

    use super::*;
    use crate::input::TimeForm;

    const TYPES: [FieldType; 12] = [
        FieldType::U8,
        FieldType::U64,
        FieldType::I16,
        FieldType::I64,
        FieldType::F32,
        FieldType::F64,
        FieldType::Bool,
        FieldType::TimestampNs,
        FieldType::Char(5),
        FieldType::Bytes(3),
        FieldType::Utf8,
        FieldType::VarBytes,
    ];

    /// A column with values made from the seeds; `None` is NULL.
    fn column(ty: FieldType, seeds: &[Option<i64>]) -> ArrayRef {
        macro_rules! numbers {
            ($array:ty, $number:ty) => {
                Arc::new(
                    seeds
                        .iter()
                        .map(|seed| seed.map(|seed| seed as $number))
                        .collect::<$array>(),
                )
            };
        }
        let texts = || seeds.iter().map(|seed| seed.map(text));
        match ty {
            FieldType::U8 => numbers!(UInt8Array, u8),
            FieldType::U64 => numbers!(UInt64Array, u64),
            FieldType::I16 => numbers!(Int16Array, i16),
            FieldType::I64 => numbers!(Int64Array, i64),
            FieldType::F32 => numbers!(Float32Array, f32),
            FieldType::F64 => numbers!(Float64Array, f64),
            FieldType::TimestampNs => numbers!(TimestampNanosecondArray, i64),
            FieldType::Bool => Arc::new(
                seeds
                    .iter()
                    .map(|seed| seed.map(|seed| seed > 0))
                    .collect::<BooleanArray>(),
            ),
            FieldType::Bytes(_) => Arc::new(
                seeds
                    .iter()
                    .map(|seed| seed.map(bytes))
                    .collect::<BinaryArray>(),
            ),
            FieldType::VarBytes => Arc::new(
                texts()
                    .map(|text| text.map(String::into_bytes))
                    .collect::<BinaryArray>(),
            ),
            _ => Arc::new(texts().collect::<StringArray>()),
        }
    }

    fn text(seed: i64) -> String {
        seed.to_string().chars().take(5).collect()
    }

    fn bytes(seed: i64) -> [u8; 3] {
        let [a, b, c, ..] = seed.to_le_bytes();
        [a, b, c]
    }

    /// Encodes one row value by value.
    fn encoded(
        encoder: &mut PayloadEncoder,
        types: &[FieldType],
        own: Option<i64>,
        seeds: &[Option<i64>],
    ) -> Option<Vec<u8>> {
        let texts: Vec<_> = seeds.iter().map(|seed| text(seed.unwrap_or(0))).collect();
        let fixed: Vec<_> = seeds.iter().map(|seed| bytes(seed.unwrap_or(0))).collect();
        let values =
            types
                .iter()
                .zip(seeds)
                .enumerate()
                .map(|(at, (ty, seed))| match (ty, *seed) {
                    (_, None) => FieldValue::Null,
                    (FieldType::U8, Some(seed)) => FieldValue::U64(u64::from(seed as u8)),
                    (FieldType::U64, Some(seed)) => FieldValue::U64(seed as u64),
                    (FieldType::I16, Some(seed)) => FieldValue::I64(i64::from(seed as i16)),
                    (FieldType::F32, Some(seed)) => FieldValue::F64(f64::from(seed as f32)),
                    (FieldType::F64, Some(seed)) => FieldValue::F64(seed as f64),
                    (FieldType::Bool, Some(seed)) => FieldValue::Bool(seed > 0),
                    (FieldType::I64 | FieldType::TimestampNs, Some(seed)) => FieldValue::I64(seed),
                    (FieldType::Bytes(_), Some(_)) => FieldValue::Bytes(&fixed[at]),
                    _ => FieldValue::Bytes(texts[at].as_bytes()),
                });
        let values: Vec<_> = values.collect();
        let mut out = Vec::new();
        encoder.encode(own.map(Timestamp), &values, &mut out).ok()?;
        Some(out)
    }

    proptest! {
        #[test]
        fn framing_by_columns_is_encoding_by_rows(
            fields in prop::collection::vec((prop::sample::select(TYPES.to_vec()), any::<bool>()), 1..12),
            rows in prop::collection::vec(prop::collection::vec(prop::option::weighted(0.9, any::<i64>()), 13), 0..20),
            own: bool,
        ) {
            let types: Vec<_> = fields.iter().map(|(ty, _)| *ty).collect();
            let mut def = SourceDef::new("s");
            def.time = if own { TimeKind::Own } else { TimeKind::Arrival };
            def.fields = fields.iter().enumerate().map(|(at, (ty, nullable))| FieldDef {
                nullable: *nullable,
                ..FieldDef::new(format!("f{at}"), *ty)
            }).collect();
            let seeds = |column: usize| rows.iter().map(|row| row[column]).collect::<Vec<_>>();
            let mut columns: Vec<_> =
                types.iter().enumerate().map(|(at, ty)| column(*ty, &seeds(at))).collect();
            columns.push(column(FieldType::I64, &seeds(12)));
            let sources = def.fields.iter().enumerate().map(|(at, field)| FieldSource {
                field: field.clone(),
                column: Some(at),
            });
            let time = own.then(|| OwnTime::new(types.len(), "time", TimeForm::Usual));
            let mut framer = Framer::new(&def, sources.collect(), time, 65_512).unwrap();
            let given = Rows { columns, count: rows.len(), bad: Vec::new() };
            let batch = framer.frame(given, 1).unwrap();

            let mut encoder = PayloadEncoder::new(def.time, &def.fields).unwrap();
            let mut expected = Vec::new();
            let mut kept = Vec::new();
            for (at, row) in rows.iter().enumerate() {
                let own_time = if own { row[12] } else { None };
                let payload = encoded(&mut encoder, &types, own_time, &row[..types.len()]);
                if let Some(payload) = payload {
                    expected.extend((payload.len() as u16).to_le_bytes());
                    expected.extend(payload);
                    kept.push(at as u64 + 1);
                }
            }
            prop_assert_eq!(batch.bytes.clone(), expected);
            prop_assert_eq!(batch.rows, kept.len() as u64);
            prop_assert_eq!(batch.received(), rows.len() as u64);
            let found: Vec<u64> = (0..batch.rows).map(|ordinal| batch.row_of(ordinal)).collect();
            prop_assert_eq!(found, kept);
        }
    }
}
