//! Fields of a fixed width: integers, floats, booleans and timestamps, from packed payloads into flat vectors.

use std::mem::MaybeUninit;

use loom_engine::schema::{FieldType, Slot};

use super::group::{At, Group};
use super::vectors::{Output, Plain, RawVectors};
use crate::error::Result;

/// Fills a number's column. `offset` is that of the field in the payload.
pub fn number<V: RawVectors>(
    out: &mut Output<'_, V>,
    at: At,
    group: Group<'_>,
    slot: Slot,
    offset: usize,
) -> Result<()> {
    match slot.ty {
        FieldType::U8 => copy(out, at, group, offset, u8::from_le_bytes),
        FieldType::I8 => copy(out, at, group, offset, i8::from_le_bytes),
        FieldType::U16 => copy(out, at, group, offset, u16::from_le_bytes),
        FieldType::I16 => copy(out, at, group, offset, i16::from_le_bytes),
        FieldType::U32 => copy(out, at, group, offset, u32::from_le_bytes),
        FieldType::I32 => copy(out, at, group, offset, i32::from_le_bytes),
        FieldType::U64 => copy(out, at, group, offset, u64::from_le_bytes),
        FieldType::I64 | FieldType::TimestampNs => copy(out, at, group, offset, i64::from_le_bytes),
        FieldType::F32 => copy(out, at, group, offset, f32::from_le_bytes),
        FieldType::F64 => copy(out, at, group, offset, f64::from_le_bytes),
        // DuckDB's BOOLEAN is 0 or 1 and nothing else.
        FieldType::Bool => copy(out, at, group, offset, |[byte]: [u8; 1]| {
            u8::from(byte != 0)
        }),
        FieldType::Char(_)
        | FieldType::Bytes(_)
        | FieldType::Utf8
        | FieldType::VarBytes
        | FieldType::Json => Ok(()),
    }
}

fn copy<T: Plain + Default, const N: usize, V: RawVectors>(
    out: &mut Output<'_, V>,
    at: At,
    group: Group<'_>,
    offset: usize,
    value: impl Fn([u8; N]) -> T,
) -> Result<()> {
    let column = out.column::<T>(at.position, at.from, group.rows.len())?;
    if let (Some(stride), Some(first)) = (group.stride, group.rows.first()) {
        let fields = group.bytes.get(first.start as usize + offset..);
        if strided(column, fields.unwrap_or_default(), stride, &value) {
            return Ok(());
        }
    }
    for (entry, row) in column.iter_mut().zip(group.rows) {
        let start = row.start as usize + offset;
        let bytes = group
            .bytes
            .get(start..)
            .and_then(|rest| rest.first_chunk::<N>());
        entry.write(bytes.map_or(T::default(), |bytes| value(*bytes)));
    }
    Ok(())
}

/// Fills a column with what stands in `fields` at every `stride` bytes. False, with nothing written, where it does not reach so far.
fn strided<T: Plain + Default, const N: usize>(
    column: &mut [MaybeUninit<T>],
    fields: &[u8],
    stride: usize,
    value: impl Fn([u8; N]) -> T,
) -> bool {
    let Some((last, before)) = column.split_last_mut() else {
        return true;
    };
    // Behind the last one there may be less than a stride.
    let of_last = fields.get(before.len() * stride..);
    let Some(of_last) = of_last.and_then(|rest| rest.first_chunk::<N>()) else {
        return false;
    };
    last.write(value(*of_last));
    for (entry, field) in before.iter_mut().zip(fields.chunks_exact(stride)) {
        let bytes = field.first_chunk::<N>();
        entry.write(bytes.map_or(T::default(), |bytes| value(*bytes)));
    }
    true
}

/// A number of any type, for labels. None for what is no integer.
pub fn integer(ty: FieldType, bytes: &[u8]) -> Option<i128> {
    let signed = |width: usize| {
        let mut wide = [if bytes.get(width - 1)? & 0x80 == 0 {
            0
        } else {
            0xFF
        }; 16];
        wide.iter_mut()
            .zip(bytes.get(..width)?)
            .for_each(|(to, from)| *to = *from);
        Some(i128::from_le_bytes(wide))
    };
    let unsigned = |width: usize| {
        let mut wide = [0; 16];
        wide.iter_mut()
            .zip(bytes.get(..width)?)
            .for_each(|(to, from)| *to = *from);
        Some(i128::from_le_bytes(wide))
    };
    match ty {
        FieldType::U8 | FieldType::Bool => unsigned(1),
        FieldType::U16 => unsigned(2),
        FieldType::U32 => unsigned(4),
        FieldType::U64 => unsigned(8),
        FieldType::I8 => signed(1),
        FieldType::I16 => signed(2),
        FieldType::I32 => signed(4),
        FieldType::I64 | FieldType::TimestampNs => signed(8),
        FieldType::F32
        | FieldType::F64
        | FieldType::Char(_)
        | FieldType::Bytes(_)
        | FieldType::Utf8
        | FieldType::VarBytes
        | FieldType::Json => None,
    }
}
