//! Fields of a fixed width: integers, floats, booleans and timestamps, from their numbers into flat vectors.

use loom_engine::ValueKind;
use loom_engine::schema::FieldType;

use super::place::At;
use super::vectors::{Output, Plain};
use crate::error::Result;

/// Fills a number's column from its numbers, each in the lowest bytes.
pub fn number(out: &mut Output<'_>, at: At, ty: FieldType, numbers: &[u64]) -> Result<()> {
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

fn copy<T: Plain, const N: usize>(
    out: &mut Output<'_>,
    at: At,
    numbers: &[u64],
    value: impl Fn([u8; N]) -> T,
) -> Result<()> {
    let column = out.column::<T>(at.position, at.from, numbers.len())?;
    for (entry, number) in column.iter_mut().zip(numbers) {
        let bytes = number.to_le_bytes();
        let low = bytes.first_chunk().expect("a number has at most 8 bytes");
        entry.write(value(*low));
    }
    Ok(())
}

/// An integer of any type, from its lowest bytes, for labels.
#[inline]
pub fn whole(ty: FieldType, number: u64) -> i128 {
    let width = ty.fixed_bytes().expect("integers have a width");
    let above = 64 - 8 * width as u32;
    match ty.kind() {
        Some(ValueKind::Signed) => i128::from((number << above) as i64 >> above),
        _ => i128::from(number << above >> above),
    }
}
