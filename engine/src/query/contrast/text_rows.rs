//! The texts of a field in the rows of a batch. Equal texts that lie close together are passed on together.

use super::group_counts::GroupCounts;
use super::grouped_rows::GroupedRows;
use crate::proven::{at, at_mut};
use crate::query::scan::batch::FieldColumn;
use crate::schema::compared;

const SLOTS: usize = 256;
/// The ends of texts up to this length show all their bytes.
const SHORT_BYTES: usize = 16;

/// A text that is counted but not passed on.
#[derive(Copy, Clone, Default)]
struct Recent<'a> {
    ends: [u64; 2],
    text: &'a [u8],
    counts: GroupCounts,
}

/// Calls `each` with all texts that are not NULL, each as often as it is necessary, and with the rows that have it. `room` is a buffer.
pub fn each_text(
    rows: &GroupedRows<'_>,
    field: usize,
    room: &mut Vec<u8>,
    nulls: &mut GroupCounts,
    mut each: impl FnMut(&[u8], GroupCounts),
) {
    let layout = rows.batch.layout();
    let is_null = rows.batch.nulls(field);
    let mut recent = vec![Recent::default(); SLOTS];
    let texts = texts(rows, field, room);
    for (row, (text, is_selected)) in texts.into_iter().zip(rows.is_selected).enumerate() {
        if is_null.as_ref().is_some_and(|is_null| is_null(row)) {
            nulls.add(*is_selected);
            continue;
        }
        let ends = ends(text);
        let held = at_mut(&mut recent, slot(ends, text.len()));
        let is_held = held.ends == ends
            && held.text.len() == text.len()
            && (text.len() <= SHORT_BYTES || held.text == text);
        if !is_held {
            if held.counts.total() > 0 {
                each(compared(layout, field, held.text), held.counts);
            }
            *held = Recent {
                ends,
                text,
                counts: GroupCounts::default(),
            };
        }
        held.counts.add(*is_selected);
    }
    let rest = recent.iter().filter(|held| held.counts.total() > 0);
    rest.for_each(|held| each(compared(layout, field, held.text), held.counts));
}

/// The bytes of each row.
fn texts<'a>(rows: &GroupedRows<'a>, field: usize, room: &'a mut Vec<u8>) -> Vec<&'a [u8]> {
    let words = match rows.batch.field(field) {
        Some(FieldColumn::Strings(strings)) => return strings,
        Some(FieldColumn::Words(words)) => words,
        Some(FieldColumn::Numbers(_)) | None => unreachable!("the field has texts"),
    };
    let slot = rows.batch.layout().slot(field);
    let width = slot.and_then(|slot| slot.ty.fixed_bytes());
    let width = width.expect("a field in words has a fixed width");
    room.clear();
    for row in 0..rows.batch.count() {
        for words in &words {
            room.extend_from_slice(&at(words, row).to_le_bytes());
        }
    }
    let values = room.chunks_exact(words.len().max(1) * 8);
    values.map(|bytes| at(bytes, ..width)).collect()
}

/// The first and the last bytes.
#[inline]
fn ends(text: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [first, last].map(|bytes| u32::from_le_bytes(*bytes).into());
    }
    match text {
        [] => [0; 2],
        [first, .., last] => [*first, *at(text, 1)]
            .map(u64::from)
            .map(|byte| byte << 8 | u64::from(*last)),
        [only] => [u64::from(*only); 2],
    }
}

#[inline]
fn slot(ends: [u64; 2], length: usize) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let [first, last] = ends;
    let mixed = (first ^ length as u64).wrapping_mul(ODD) ^ last;
    (mixed.wrapping_mul(ODD) >> 56) as usize % SLOTS
}
