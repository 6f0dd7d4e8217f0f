//! Writes rows that are stored column by column into vectors, without building records.

use loom_engine::proven;
use loom_engine::query::{Columns, FieldColumn};
use loom_engine::schema::{FieldType, Slot};

use super::fill::Fill;
use super::fixed::{self, Numbers};
use super::group::{self, At};
use super::text::{self, Labels};
use super::vectors::{INLINE_BYTES, Output, StringEntry};
use crate::error::{Problem, Result};
use crate::plan::time::micros;
use crate::plan::types::SqlType;

/// Writes rows into every column from row `from` on, except columns that are the same in all rows.
pub fn write(out: &mut Output<'_>, from: usize, rows: Columns<'_>, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        let at = At { position, from };
        match fill {
            Fill::Source | Fill::Dir(_) | Fill::Unknown => {}
            Fill::Ts => times(out, at, rows, micros)?,
            Fill::TsNs => times(out, at, rows, |nanos| nanos)?,
            Fill::Field { field, labels } => self::field(out, at, rows, *field, labels.as_ref())?,
            Fill::Addr => addresses(out, at, rows)?,
            Fill::Payload => unreachable!("whole payloads are read as rows"),
        }
    }
    Ok(())
}

fn times(
    out: &mut Output<'_>,
    at: At,
    rows: Columns<'_>,
    shown: impl Fn(i64) -> i64,
) -> Result<()> {
    let column = out.column::<i64>(at.position, at.from, rows.count())?;
    for (entry, time) in column.iter_mut().zip(rows.times()) {
        entry.write(shown(*time as i64));
    }
    Ok(())
}

fn addresses(out: &mut Output<'_>, at: At, rows: Columns<'_>) -> Result<()> {
    let column = out.column::<u64>(at.position, at.from, rows.count())?;
    for (entry, address) in column.iter_mut().zip(rows.addresses()) {
        entry.write(*address);
    }
    Ok(())
}

fn field(
    out: &mut Output<'_>,
    at: At,
    rows: Columns<'_>,
    field: usize,
    labels: Option<&Labels>,
) -> Result<()> {
    let (Some(slot), Some(column)) = (rows.layout().slot(field), rows.field(field)) else {
        return group::nulls(out, at, rows.count());
    };
    match (column, labels) {
        (FieldColumn::Numbers(numbers), Some(labels)) => {
            match (out.types().get(at.position), one_of(numbers)) {
                (Some(SqlType::Enum(texts)), _) => {
                    let whole = |number: &u64| Some(fixed::whole(slot.ty, *number));
                    text::members(out, at, texts, numbers.iter().map(whole), labels)?;
                }
                (_, Some(number)) => {
                    let text = labels.text(fixed::whole(slot.ty, number));
                    out.repeated(at.position, at.from, numbers.len(), &text)?;
                }
                (_, None) => text::label_column(out, at, slot.ty, numbers, labels)?,
            }
        }
        (FieldColumn::Numbers(numbers), None) => {
            fixed::number(out, at, slot.ty, Numbers::InColumn(numbers))?;
        }
        (FieldColumn::Words(words), _) => in_place(out, at, slot, &words, rows.count())?,
        (FieldColumn::Strings(strings), _) => match one_of(&strings) {
            Some(string) => {
                let text = text::shown(slot.ty, string);
                out.repeated(at.position, at.from, strings.len(), &text)?;
            }
            None => text::strings(out, at, slot.ty, strings.into_iter())?,
        },
    }
    match rows.nulls(field) {
        Some(is_null) => out.nulls(at.position, at.from, rows.count(), is_null),
        None => Ok(()),
    }
}

/// The property that all values of a column share.
fn one_of<T: Copy + PartialEq>(column: &[T]) -> Option<T> {
    let first = *column.first()?;
    column.iter().all(|other| *other == first).then_some(first)
}

/// Fills the column of a `char` or `bytes` field. The fast path holds while every text is short ASCII.
fn in_place(out: &mut Output<'_>, at: At, slot: Slot, words: &[&[u64]], rows: usize) -> Result<()> {
    let width = slot.ty.fixed_bytes();
    let width = width.expect("a field in one place has a fixed width");
    let same: Option<Vec<u64>> = words.iter().map(|column| one_of(column)).collect();
    if let Some(same) = same {
        let mut bytes: Vec<u8> = same.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(width);
        let text = text::shown(slot.ty, &bytes);
        return out.repeated(at.position, at.from, rows, &text);
    }
    if matches!(slot.ty, FieldType::Char(_)) {
        let is_written = match words {
            [first] => {
                let words = first.iter().map(|first| (*first, 0));
                short_texts(out, at, width, words)?
            }
            [first, second] => {
                let words = first.iter().copied().zip(second.iter().copied());
                short_texts(out, at, width, words)?
            }
            _ => false,
        };
        if is_written {
            return Ok(());
        }
    }
    let mut bytes = Vec::new();
    Problem::require(&mut bytes, rows * words.len() * 8)?;
    for row in 0..rows {
        let of_row = words.iter().map(|words| *proven::at(words, row));
        of_row.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
    let whole = bytes
        .chunks_exact(words.len() * 8)
        .map(|bytes| proven::at(bytes, ..width));
    text::strings(out, at, slot.ty, whole)
}

/// Writes texts of at most 16 bytes, which end at the first NUL. Returns false if one is not short ASCII; what is written then does not
/// count.
fn short_texts(
    out: &mut Output<'_>,
    at: At,
    width: usize,
    words: impl ExactSizeIterator<Item = (u64, u64)>,
) -> Result<bool> {
    let entries = out.short_strings(at.position, at.from, words.len())?;
    let masks = (low_bytes(width.min(8)), low_bytes(width.saturating_sub(8)));
    let (mut longest, mut all) = (0, 0);
    for (entry, (first, second)) in entries.iter_mut().zip(words) {
        let (mut first, mut second) = (first & masks.0, second & masks.1);
        // The bytes after the field in its words are zero.
        let length = match (first_nul(first), first_nul(second)) {
            (8, in_second) => 8 + in_second,
            (in_first, _) => in_first,
        };
        first &= low_bytes(length.min(8));
        second &= low_bytes(length.saturating_sub(8));
        longest = longest.max(length);
        all |= first | second;
        entry.write(StringEntry::of_words(
            length.min(INLINE_BYTES),
            first,
            second,
        ));
    }
    Ok(longest <= INLINE_BYTES && all & 0x8080_8080_8080_8080 == 0)
}

/// The position of the first zero byte of a word; 8 if there is none.
fn first_nul(word: u64) -> usize {
    let nul = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
    nul.trailing_zeros() as usize / 8
}

/// The mask of the lowest `bytes` bytes, at most 8.
fn low_bytes(bytes: usize) -> u64 {
    match bytes {
        0 => 0,
        _ => u64::MAX >> (64 - 8 * bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::MemoryVectors;
    use crate::plan::types::SqlType;

    fn words_of(text: &[u8]) -> (u64, u64) {
        let mut bytes = [0; 16];
        proven::at_mut(&mut bytes, ..text.len()).copy_from_slice(text);
        let number = u128::from_le_bytes(bytes);
        (number as u64, (number >> 64) as u64)
    }

    #[test]
    fn short_texts_end_at_the_first_nul_and_long_or_other_ones_are_refused() {
        let types = [SqlType::Text];
        for length in 0..=16 {
            let text = proven::at(b"abcdefghijklmnop", ..length);
            let mut memory = MemoryVectors::new(&types);
            let mut out = Output::new(&mut memory, &types);
            let place = At {
                position: 0,
                from: 2,
            };
            let words = [words_of(text)].into_iter();
            let is_written = short_texts(&mut out, place, 16, words).unwrap();
            assert_eq!(is_written, length <= INLINE_BYTES, "{length}");
            if is_written {
                assert_eq!(memory.string(0, 2), text);
            }
            // Anything may follow a NUL or the end of the field.
            let mut behind = text.to_vec();
            behind.resize(length.min(11), 0);
            let (kept, width) = (behind.len(), behind.len().max(1));
            behind.extend_from_slice(proven::at(b"\0\xFFxy", ..(16 - kept).min(4)));
            for width in [width, 16] {
                let mut memory = MemoryVectors::new(&types);
                let mut out = Output::new(&mut memory, &types);
                let words = [words_of(&behind)].into_iter();
                assert!(short_texts(&mut out, place, width, words).unwrap());
                assert_eq!(memory.string(0, 2), proven::at(&behind, ..kept));
            }
        }
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        let place = At {
            position: 0,
            from: 0,
        };
        let words = [words_of("é".as_bytes())].into_iter();
        assert!(!short_texts(&mut out, place, 8, words).unwrap());
    }
}
