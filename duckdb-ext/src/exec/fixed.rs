//! Writes fields of fixed width (integers, floats, booleans and timestamps) from packed payloads into flat vectors.

use std::mem::MaybeUninit;

use loom_engine::schema::FieldType;
use loom_engine::{ValueKind, proven};

use super::group::{At, Group};
use super::vectors::{Output, Plain};
use crate::error::Result;

/// The place of a field's numbers.
#[derive(Clone, Copy)]
pub enum Numbers<'a> {
    /// In each payload of a group, at this offset.
    InPayloads(Group<'a>, usize),
    /// One after the other, each in the lowest bytes.
    InColumn(&'a [u64]),
}

/// Fills a number's column.
pub fn number(out: &mut Output<'_>, at: At, ty: FieldType, numbers: Numbers<'_>) -> Result<()> {
    match ty {
        FieldType::U8 => copy(out, at, numbers, u8::from_le_bytes),
        FieldType::I8 => copy(out, at, numbers, i8::from_le_bytes),
        FieldType::U16 => copy(out, at, numbers, u16::from_le_bytes),
        FieldType::I16 => copy(out, at, numbers, i16::from_le_bytes),
        FieldType::U32 => copy(out, at, numbers, u32::from_le_bytes),
        FieldType::I32 => copy(out, at, numbers, i32::from_le_bytes),
        FieldType::U64 => copy(out, at, numbers, u64::from_le_bytes),
        FieldType::I64 | FieldType::TimestampNs => copy(out, at, numbers, i64::from_le_bytes),
        FieldType::F32 => copy(out, at, numbers, f32::from_le_bytes),
        FieldType::F64 => copy(out, at, numbers, f64::from_le_bytes),
        // DuckDB's BOOLEAN may only be 0 or 1.
        FieldType::Bool => copy(out, at, numbers, |[byte]: [u8; 1]| u8::from(byte != 0)),
        FieldType::Char(_)
        | FieldType::Bytes(_)
        | FieldType::Utf8
        | FieldType::VarBytes
        | FieldType::Json => unreachable!("{ty} is not a number"),
    }
}

fn copy<T: Plain + Default, const N: usize>(
    out: &mut Output<'_>,
    at: At,
    numbers: Numbers<'_>,
    value: impl Fn([u8; N]) -> T,
) -> Result<()> {
    let (group, offset) = match numbers {
        Numbers::InPayloads(group, offset) => (group, offset),
        Numbers::InColumn(numbers) => {
            let column = out.column::<T>(at.position, at.from, numbers.len())?;
            for (entry, number) in column.iter_mut().zip(numbers) {
                entry.write(value(*first(&number.to_le_bytes())));
            }
            return Ok(());
        }
    };
    let column = out.column::<T>(at.position, at.from, group.rows.len())?;
    if let (true, Some(stride), Some(first)) = (group.is_whole, group.stride, group.rows.first()) {
        let fields = proven::at(group.bytes, first.start as usize + offset..);
        strided(column, fields, stride, &value);
        return Ok(());
    }
    for (entry, row) in column.iter_mut().zip(group.rows) {
        let start = row.start as usize + offset;
        let bytes = group.bytes.get(start..start + N);
        let bytes = bytes.and_then(|bytes| bytes.first_chunk::<N>());
        // A record that ends before the field is NULL there.
        assert!(
            bytes.is_some() || !group.is_whole,
            "{start} of {}",
            group.bytes.len()
        );
        entry.write(bytes.map_or(T::default(), |bytes| value(*bytes)));
    }
    Ok(())
}

/// Fills a column with the values that start every `stride` bytes in `fields`.
fn strided<T: Plain, const N: usize>(
    column: &mut [MaybeUninit<T>],
    fields: &[u8],
    stride: usize,
    value: impl Fn([u8; N]) -> T,
) {
    let Some((last, before)) = column.split_last_mut() else {
        return;
    };
    // Less than a stride may follow the last value.
    let (fields, of_last) = fields.split_at(before.len() * stride);
    last.write(value(*first(of_last)));
    for (entry, field) in before.iter_mut().zip(fields.chunks_exact(stride)) {
        entry.write(value(*first(field)));
    }
}

fn first<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a stride holds the field")
}

/// Reads an integer of any type from its lowest bytes, for labels.
#[inline]
pub fn whole(ty: FieldType, number: u64) -> i128 {
    let width = ty.fixed_bytes().expect("integers have a width");
    let above = 64 - 8 * width as u32;
    match ty.kind() {
        Some(ValueKind::Signed) => i128::from((number << above) as i64 >> above),
        _ => i128::from(number << above >> above),
    }
}

/// Reads an integer from its bytes.
pub fn integer(ty: FieldType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    proven::at_mut(&mut wide, ..bytes.len()).copy_from_slice(bytes);
    whole(ty, u64::from_le_bytes(wide))
}
