//! Records as Arrow columns: `ts`, then the fields, with the values that SQL shows of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, RecordBatch,
    StringBuilder, TimestampNanosecondBuilder,
};
use arrow::datatypes::{
    self as types, ArrowPrimitiveType, DataType, Field, Schema, SchemaRef, TimeUnit,
};
use loom_engine::schema::{FieldDef, FieldType, Layout, Source};
use loom_engine::{Timestamp, proven};

/// Collects records into batches.
pub(super) struct Columns {
    schema: SchemaRef,
    ts: TimestampNanosecondBuilder,
    fields: Vec<(FieldDef, Box<dyn Column>)>,
    /// The payloads of a source without fields.
    payload: Option<BinaryBuilder>,
    rows: usize,
}

impl Columns {
    pub(super) fn new(source: &Source) -> Columns {
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let mut schema = vec![Field::new("ts", utc.clone(), false)];
        // Records from before a field was added read NULL there.
        let grown = source.layouts.len() > 1;
        for field in &source.fields {
            schema.push(Field::new(
                &field.name,
                data_type(field),
                field.nullable || grown,
            ));
        }
        let is_raw = source.fields.is_empty();
        if is_raw {
            schema.push(Field::new("payload", DataType::Binary, false));
        }
        Columns {
            schema: Arc::new(Schema::new(schema)),
            ts: TimestampNanosecondBuilder::new().with_data_type(utc),
            fields: source
                .fields
                .iter()
                .map(|field| (field.clone(), column(field)))
                .collect(),
            payload: is_raw.then(BinaryBuilder::new),
            rows: 0,
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn append(&mut self, ts: Timestamp, layout: &Layout, payload: &[u8]) {
        self.rows += 1;
        self.ts.append_value(ts.0);
        for (ordinal, (_, column)) in self.fields.iter_mut().enumerate() {
            column.append(layout.bytes(ordinal, payload));
        }
        if let Some(payloads) = &mut self.payload {
            payloads.append_value(layout.body(payload));
        }
    }

    /// What was collected since the last call.
    pub(super) fn finish(&mut self) -> anyhow::Result<RecordBatch> {
        self.rows = 0;
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.ts.finish())];
        columns.extend(self.fields.iter_mut().map(|(_, column)| column.finish()));
        if let Some(payloads) = &mut self.payload {
            columns.push(Arc::new(payloads.finish()));
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

fn data_type(field: &FieldDef) -> DataType {
    match field.ty {
        _ if !field.labels.is_empty() => DataType::Utf8,
        FieldType::U8 => DataType::UInt8,
        FieldType::U16 => DataType::UInt16,
        FieldType::U32 => DataType::UInt32,
        FieldType::U64 => DataType::UInt64,
        FieldType::I8 => DataType::Int8,
        FieldType::I16 => DataType::Int16,
        FieldType::I32 => DataType::Int32,
        FieldType::I64 => DataType::Int64,
        FieldType::F32 => DataType::Float32,
        FieldType::F64 => DataType::Float64,
        FieldType::Bool => DataType::Boolean,
        FieldType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
        FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => DataType::Utf8,
        FieldType::Bytes(width) => DataType::FixedSizeBinary(i32::from(width)),
        FieldType::VarBytes => DataType::Binary,
    }
}

/// The values of one field, from the bytes in payloads.
trait Column {
    fn append(&mut self, bytes: Option<&[u8]>);
    fn finish(&mut self) -> ArrayRef;
}

fn column(field: &FieldDef) -> Box<dyn Column> {
    if !field.labels.is_empty() {
        return Box::new(Labels {
            field: field.clone(),
            texts: StringBuilder::new(),
        });
    }
    match field.ty {
        FieldType::U8 => numbers::<types::UInt8Type, 1>(u8::from_le_bytes),
        FieldType::U16 => numbers::<types::UInt16Type, 2>(u16::from_le_bytes),
        FieldType::U32 => numbers::<types::UInt32Type, 4>(u32::from_le_bytes),
        FieldType::U64 => numbers::<types::UInt64Type, 8>(u64::from_le_bytes),
        FieldType::I8 => numbers::<types::Int8Type, 1>(i8::from_le_bytes),
        FieldType::I16 => numbers::<types::Int16Type, 2>(i16::from_le_bytes),
        FieldType::I32 => numbers::<types::Int32Type, 4>(i32::from_le_bytes),
        FieldType::I64 => numbers::<types::Int64Type, 8>(i64::from_le_bytes),
        FieldType::F32 => numbers::<types::Float32Type, 4>(f32::from_le_bytes),
        FieldType::F64 => numbers::<types::Float64Type, 8>(f64::from_le_bytes),
        FieldType::TimestampNs => numbers::<types::TimestampNanosecondType, 8>(i64::from_le_bytes),
        FieldType::Bool => Box::new(BooleanBuilder::new()),
        FieldType::Char(_) | FieldType::Utf8 | FieldType::Json => Box::new(Texts {
            ty: field.ty,
            texts: StringBuilder::new(),
        }),
        FieldType::Bytes(width) => Box::new(FixedSizeBinaryBuilder::new(i32::from(width))),
        FieldType::VarBytes => Box::new(BinaryBuilder::new()),
    }
}

struct Numbers<T: ArrowPrimitiveType, const W: usize> {
    values: PrimitiveBuilder<T>,
    decode: fn([u8; W]) -> T::Native,
}

fn numbers<T: ArrowPrimitiveType, const W: usize>(
    decode: fn([u8; W]) -> T::Native,
) -> Box<dyn Column> {
    let values = PrimitiveBuilder::<T>::new();
    Box::new(Numbers { values, decode })
}

impl<T: ArrowPrimitiveType, const W: usize> Column for Numbers<T, W> {
    fn append(&mut self, bytes: Option<&[u8]>) {
        self.values.append_option(bytes.map(|bytes| {
            let bytes = bytes.first_chunk();
            (self.decode)(*bytes.expect("the layout gives as many bytes as the type has"))
        }));
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.values.finish())
    }
}

impl Column for BooleanBuilder {
    fn append(&mut self, bytes: Option<&[u8]>) {
        self.append_option(bytes.map(|bytes| bytes != [0]));
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanBuilder::finish(self))
    }
}

impl Column for BinaryBuilder {
    fn append(&mut self, bytes: Option<&[u8]>) {
        self.append_option(bytes);
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BinaryBuilder::finish(self))
    }
}

impl Column for FixedSizeBinaryBuilder {
    fn append(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.append_null(),
            Some(bytes) => {
                let appended = self.append_value(bytes);
                appended.expect("the layout gives as many bytes as the type has");
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(FixedSizeBinaryBuilder::finish(self))
    }
}

/// Texts, with what is not UTF-8 replaced; a `char` ends at its first NUL.
struct Texts {
    ty: FieldType,
    texts: StringBuilder,
}

impl Column for Texts {
    fn append(&mut self, bytes: Option<&[u8]>) {
        let text = bytes.map(|bytes| match self.ty {
            FieldType::Char(_) => {
                memchr::memchr(0, bytes).map_or(bytes, |end| proven::at(bytes, ..end))
            }
            _ => bytes,
        });
        self.texts.append_option(text.map(String::from_utf8_lossy));
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.texts.finish())
    }
}

/// Integers that have names; those that have none are shown as numbers.
struct Labels {
    field: FieldDef,
    texts: StringBuilder,
}

impl Column for Labels {
    fn append(&mut self, bytes: Option<&[u8]>) {
        let Some(bytes) = bytes else {
            return self.texts.append_null();
        };
        let number = integer(self.field.ty, bytes);
        match self.field.labels.get(&number) {
            Some(label) => self.texts.append_value(label),
            None => self.texts.append_value(number.to_string()),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.texts.finish())
    }
}

/// The value of an integer field of up to 8 bytes.
fn integer(ty: FieldType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    proven::at_mut(&mut wide, ..bytes.len()).copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len() as u32;
    match ty {
        FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64 => {
            i128::from((unsigned << unused).cast_signed() >> unused)
        }
        _ => i128::from(unsigned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_keep_their_sign() {
        assert_eq!(integer(FieldType::I8, &[0xff]), -1);
        assert_eq!(integer(FieldType::U8, &[0xff]), 255);
        assert_eq!(integer(FieldType::I64, &[0xff; 8]), -1);
        assert_eq!(integer(FieldType::U64, &[0xff; 8]), i128::from(u64::MAX));
    }
}
