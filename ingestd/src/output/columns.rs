//! Records as Arrow columns: their time, then the fields, with the values that SQL shows of them.
//!
//! An export has `ts` in nanoseconds and the fields as they are. An archive is for engines without nanoseconds and unsigned numbers:
//! `ts` in microseconds, `ts_ns`, the fields, each time field with its nanoseconds beside it, and `addr`. Its own columns start with `loom_`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder,
    FixedSizeBinaryBuilder, Int64Builder, PrimitiveBuilder, RecordBatch, StringBuilder,
    TimestampMicrosecondBuilder, TimestampNanosecondBuilder,
};
use arrow::datatypes::{
    self as types, ArrowPrimitiveType, DataType, Field, Schema, SchemaRef, TimeUnit,
};
use loom_engine::proven;
use loom_engine::query::{Batch, FieldColumn, PayloadRoom};
use loom_engine::schema::{FieldDef, FieldType, Source};
use serde::{Deserialize, Serialize};

/// The use of the columns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Export,
    Archive(Unsigned),
}

/// The types of unsigned integers in an archive.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Unsigned {
    /// As the next wider signed type, which every engine reads; 64 bits as DECIMAL(20, 0)
    Decimal,
    /// As unsigned types, which Iceberg refuses
    Native,
}

impl fmt::Display for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsigned::Decimal => "decimal",
            Unsigned::Native => "native",
        })
    }
}

/// The digits of the greatest unsigned number of 64 bits.
const U64_DIGITS: u8 = 20;
/// The names of an archive's own columns begin so.
const OWN_PREFIX: &str = "loom_";

/// The rows that are gathered in memory before they are written.
#[derive(Copy, Clone)]
pub(super) struct BatchMost {
    pub rows: usize,
    /// Bytes of payloads in the log.
    pub bytes: usize,
}

pub(super) struct Columns {
    schema: SchemaRef,
    columns: Vec<Box<dyn Column>>,
    rows: usize,
    bytes: usize,
}

impl Columns {
    pub(super) fn new(source: &Source, form: Form) -> Columns {
        let mut made = Made::default();
        let utc = |unit| DataType::Timestamp(unit, Some("UTC".into()));
        if form == Form::Export {
            let ty = utc(TimeUnit::Nanosecond);
            let builder = TimestampNanosecondBuilder::new().with_data_type(ty.clone());
            made.own("ts", ty, builder, |rows| rows.times(), |ts| ts);
        } else {
            let ty = utc(TimeUnit::Microsecond);
            let builder = TimestampMicrosecondBuilder::new().with_data_type(ty.clone());
            made.own("ts", ty, builder, |rows| rows.times(), micros);
            let builder = Int64Builder::new();
            made.own(
                "ts_ns",
                DataType::Int64,
                builder,
                |rows| rows.times(),
                |ts| ts,
            );
        }
        // Records from before a field was added have NULL there.
        let grown = source.layouts.len() > 1;
        for (ordinal, field) in source.fields.iter().enumerate() {
            made.field(ordinal, field, field.nullable || grown, form);
        }
        if source.fields.is_empty() {
            made.payload();
        }
        if form != Form::Export {
            let builder = Int64Builder::new();
            // No log reaches half of all addresses.
            made.own(
                "addr",
                DataType::Int64,
                builder,
                |rows| rows.addresses(),
                |at| at,
            );
        }
        Columns {
            schema: Arc::new(Schema::new(made.schema)),
            columns: made.columns,
            rows: 0,
            bytes: 0,
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether these rows belong to the next batch.
    pub(super) fn is_full_before(&self, rows: &Batch<'_>, most: BatchMost) -> bool {
        let too_many = self.rows + rows.count() > most.rows;
        !self.is_empty() && (too_many || self.bytes + payload_bytes(rows) > most.bytes)
    }

    pub(super) fn append(&mut self, rows: Batch<'_>) {
        self.rows += rows.count();
        self.bytes += payload_bytes(&rows);
        for column in &mut self.columns {
            column.append(&rows);
        }
    }

    /// The rows since the last call.
    pub(super) fn finish(&mut self) -> anyhow::Result<RecordBatch> {
        (self.rows, self.bytes) = (0, 0);
        let columns = self.columns.iter_mut().map(|column| column.finish());
        Ok(RecordBatch::try_new(
            Arc::clone(&self.schema),
            columns.collect(),
        )?)
    }
}

fn payload_bytes(rows: &Batch<'_>) -> usize {
    let layout = rows.layout();
    if layout.is_raw() {
        let mut room = PayloadRoom::default();
        return rows.payloads(&mut room).map(<[u8]>::len).sum();
    }
    let strings = |field| match rows.field(field) {
        Some(FieldColumn::Strings(strings)) => strings.iter().map(|string| string.len()).sum(),
        Some(FieldColumn::Shared { strings, codes }) => {
            let bytes = |code: &u64| proven::at(&strings, *code as usize).len();
            codes.iter().map(bytes).sum()
        }
        _ => 0,
    };
    let strings: usize = (0..layout.field_count()).map(strings).sum();
    rows.count() * layout.fixed_bytes() + strings
}

/// The columns of an archive for a field.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivedField {
    pub field: String,
    pub column: String,
    /// The column of nanoseconds, if the other has microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_ns: Option<String>,
}

impl ArchivedField {
    pub(super) fn of(field: &FieldDef) -> ArchivedField {
        // Keys of Hive and nanoseconds begin with `loom_`, so a field that does gets `field_` before it, and one that begins with that gets another.
        let bare = field.name.trim_start_matches("field_");
        let is_own = bare
            .get(..OWN_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX));
        let column = match is_own {
            true => format!("field_{}", field.name),
            false => field.name.clone(),
        };
        let is_time = field.labels.is_empty() && field.ty == FieldType::TimestampNs;
        ArchivedField {
            exact_ns: is_time.then(|| format!("{OWN_PREFIX}ns_{column}")),
            field: field.name.clone(),
            column,
        }
    }
}

/// Microseconds, rounded down.
fn micros(ns: i64) -> i64 {
    ns.div_euclid(1000)
}

trait Column {
    fn append(&mut self, rows: &Batch<'_>);
    fn finish(&mut self) -> ArrayRef;
}

/// A builder, and the function that appends the values of some rows to it.
struct Built<B, A> {
    builder: B,
    append: A,
}

impl<B: ArrayBuilder, A: Fn(&mut B, &Batch<'_>)> Column for Built<B, A> {
    fn append(&mut self, rows: &Batch<'_>) {
        (self.append)(&mut self.builder, rows);
    }

    fn finish(&mut self) -> ArrayRef {
        ArrayBuilder::finish(&mut self.builder)
    }
}

#[derive(Default)]
struct Made {
    schema: Vec<Field>,
    columns: Vec<Box<dyn Column>>,
}

impl Made {
    fn add<B: ArrayBuilder>(
        &mut self,
        field: Field,
        builder: B,
        append: impl Fn(&mut B, &Batch<'_>) + 'static,
    ) {
        self.schema.push(field);
        self.columns.push(Box::new(Built { builder, append }));
    }

    /// A number of each record that is in no field.
    fn own<T: ArrowPrimitiveType>(
        &mut self,
        name: &str,
        ty: DataType,
        builder: PrimitiveBuilder<T>,
        column: for<'a> fn(&Batch<'a>) -> &'a [u64],
        value: impl Fn(i64) -> T::Native + 'static,
    ) {
        let field = Field::new(name, ty, false);
        self.add(field, builder, move |builder, rows| {
            for number in column(rows) {
                builder.append_value(value(number.cast_signed()));
            }
        });
    }

    fn payload(&mut self) {
        let field = Field::new("payload", DataType::Binary, false);
        self.add(field, BinaryBuilder::new(), |builder, rows| {
            for payload in rows.payloads(&mut PayloadRoom::default()) {
                builder.append_value(rows.layout().body(payload));
            }
        });
    }

    fn field(&mut self, ordinal: usize, field: &FieldDef, nullable: bool, form: Form) {
        let mut column = NewColumn {
            made: self,
            name: &field.name,
            ordinal,
            nullable,
        };
        if !field.labels.is_empty() {
            return column.labels(field);
        }
        let Form::Archive(unsigned) = form else {
            return column.plain(field.ty);
        };
        let archived = ArchivedField::of(field);
        column.name = &archived.column;
        match (field.ty, unsigned, &archived.exact_ns) {
            (FieldType::TimestampNs, _, Some(exact)) => {
                column.numbers::<types::TimestampMicrosecondType, 8>(|bytes| {
                    micros(i64::from_le_bytes(bytes))
                });
                column.name = exact;
                column.numbers::<types::Int64Type, 8>(i64::from_le_bytes);
            }
            (FieldType::U8, Unsigned::Decimal, _) => {
                column.numbers::<types::Int16Type, 1>(|bytes| u8::from_le_bytes(bytes).into());
            }
            (FieldType::U16, Unsigned::Decimal, _) => {
                column.numbers::<types::Int32Type, 2>(|bytes| u16::from_le_bytes(bytes).into());
            }
            (FieldType::U32, Unsigned::Decimal, _) => {
                column.numbers::<types::Int64Type, 4>(|bytes| u32::from_le_bytes(bytes).into());
            }
            (FieldType::U64, Unsigned::Decimal, _) => column.decimals(),
            (ty, ..) => column.plain(ty),
        }
    }
}

/// A column that holds a field, about to be made.
struct NewColumn<'a> {
    made: &'a mut Made,
    name: &'a str,
    ordinal: usize,
    nullable: bool,
}

impl NewColumn<'_> {
    /// A column of the field's own type.
    fn plain(&mut self, ty: FieldType) {
        match ty {
            FieldType::U8 => self.numbers::<types::UInt8Type, 1>(u8::from_le_bytes),
            FieldType::U16 => self.numbers::<types::UInt16Type, 2>(u16::from_le_bytes),
            FieldType::U32 => self.numbers::<types::UInt32Type, 4>(u32::from_le_bytes),
            FieldType::U64 => self.numbers::<types::UInt64Type, 8>(u64::from_le_bytes),
            FieldType::I8 => self.numbers::<types::Int8Type, 1>(i8::from_le_bytes),
            FieldType::I16 => self.numbers::<types::Int16Type, 2>(i16::from_le_bytes),
            FieldType::I32 => self.numbers::<types::Int32Type, 4>(i32::from_le_bytes),
            FieldType::I64 => self.numbers::<types::Int64Type, 8>(i64::from_le_bytes),
            FieldType::F32 => self.numbers::<types::Float32Type, 4>(f32::from_le_bytes),
            FieldType::F64 => self.numbers::<types::Float64Type, 8>(f64::from_le_bytes),
            FieldType::TimestampNs => {
                self.numbers::<types::TimestampNanosecondType, 8>(i64::from_le_bytes);
            }
            FieldType::Bool => {
                let builder = BooleanBuilder::new();
                self.values(DataType::Boolean, builder, |builder, bytes| {
                    builder.append_option(bytes.map(|bytes| bytes != [0]));
                });
            }
            FieldType::Char(_) => self.texts(|bytes| {
                memchr::memchr(0, bytes).map_or(bytes, |end| proven::at(bytes, ..end))
            }),
            FieldType::Utf8 | FieldType::Json => self.texts(|bytes| bytes),
            FieldType::Bytes(width) => {
                let width = i32::from(width);
                let builder = FixedSizeBinaryBuilder::new(width);
                let ty = DataType::FixedSizeBinary(width);
                self.values(ty, builder, |builder, bytes| match bytes {
                    None => builder.append_null(),
                    Some(bytes) => {
                        let appended = builder.append_value(bytes);
                        appended.expect("the layout gives as many bytes as the type has");
                    }
                });
            }
            FieldType::VarBytes => {
                let builder = BinaryBuilder::new();
                self.values(DataType::Binary, builder, |builder, bytes| {
                    builder.append_option(bytes);
                });
            }
        }
    }

    fn values<B: ArrayBuilder>(
        &mut self,
        ty: DataType,
        builder: B,
        append: impl Fn(&mut B, Option<&[u8]>) + 'static,
    ) {
        let ordinal = self.ordinal;
        let field = Field::new(self.name, ty, self.nullable);
        self.made.add(field, builder, move |builder, rows| {
            rows.each_value(ordinal, |bytes| append(builder, bytes));
        });
    }

    fn numbers<T: ArrowPrimitiveType, const W: usize>(
        &mut self,
        decode: impl Fn([u8; W]) -> T::Native + 'static,
    ) {
        let builder = PrimitiveBuilder::<T>::new();
        self.values(T::DATA_TYPE, builder, move |builder, bytes| {
            builder.append_option(bytes.map(|bytes| decode(exactly(bytes))));
        });
    }

    fn decimals(&mut self) {
        let ty = DataType::Decimal128(U64_DIGITS, 0);
        let builder = Decimal128Builder::new().with_data_type(ty.clone());
        self.values(ty, builder, |builder, bytes| {
            let number = |bytes| i128::from(u64::from_le_bytes(exactly(bytes)));
            builder.append_option(bytes.map(number));
        });
    }

    /// Texts, in which bytes that are not UTF-8 are replaced.
    fn texts(&mut self, text: impl Fn(&[u8]) -> &[u8] + 'static) {
        let builder = StringBuilder::new();
        self.values(DataType::Utf8, builder, move |builder, bytes| {
            builder.append_option(bytes.map(|bytes| String::from_utf8_lossy(text(bytes))));
        });
    }

    /// Integers with names; others are shown as numbers.
    fn labels(&mut self, field: &FieldDef) {
        let field = field.clone();
        let builder = StringBuilder::new();
        self.values(DataType::Utf8, builder, move |builder, bytes| {
            let Some(bytes) = bytes else {
                return builder.append_null();
            };
            let number = integer(field.ty, bytes);
            match field.labels.get(&number) {
                Some(label) => builder.append_value(label),
                None => builder.append_value(number.to_string()),
            }
        });
    }
}

fn exactly<const W: usize>(bytes: &[u8]) -> [u8; W] {
    *bytes
        .first_chunk()
        .expect("the layout gives as many bytes as the type has")
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
    fn no_field_of_an_archive_is_called_like_a_column_of_its_own() {
        let column = |name: &str, ty| {
            let archived = ArchivedField::of(&FieldDef::new(name, ty));
            (archived.column, archived.exact_ns)
        };
        let number = |name| column(name, FieldType::U8).0;
        assert_eq!(number("at"), "at");
        assert_eq!(number("LOOM_date"), "field_LOOM_date");
        assert_eq!(number("field_LOOM_date"), "field_field_LOOM_date");
        assert_eq!(number("field_at"), "field_at");
        let time = column("at", FieldType::TimestampNs);
        assert_eq!(time, ("at".to_owned(), Some("loom_ns_at".to_owned())));
    }

    #[test]
    fn integers_of_every_width_keep_their_sign() {
        assert_eq!(integer(FieldType::I8, &[0xff]), -1);
        assert_eq!(integer(FieldType::U8, &[0xff]), 255);
        assert_eq!(integer(FieldType::I64, &[0xff; 8]), -1);
        assert_eq!(integer(FieldType::U64, &[0xff; 8]), i128::from(u64::MAX));
    }
}
