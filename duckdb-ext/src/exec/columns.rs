//! Writes the columns of a batch into vectors.

use std::borrow::Cow;

use loom_engine::proven;
use loom_engine::query::{Batch, FieldColumn, PayloadRoom};
use loom_engine::schema::{FieldType, Slot};

use super::fill::Fill;
use super::fixed;
use super::place::{self, At};
use super::text::{self, Labels};
use super::vectors::{INLINE_BYTES, Output, StringEntry};
use crate::error::{Problem, Result};
use crate::plan::time::micros;
use crate::plan::types::SqlType;

/// Writes rows into every column from row `from` on, except columns that are the same in all rows.
pub fn write(out: &mut Output<'_>, from: usize, rows: Batch<'_>, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        let at = At { position, from };
        match fill {
            Fill::Source | Fill::Dir(_) | Fill::Unknown => {}
            Fill::Ts => times(out, at, rows, micros)?,
            Fill::TsNs => times(out, at, rows, |nanos| nanos)?,
            Fill::Field { field, labels } => self::field(out, at, rows, *field, labels.as_ref())?,
            Fill::Null => place::nulls(out, at, rows.count())?,
            Fill::Addr => addresses(out, at, rows)?,
            Fill::Payload => {
                let mut room = PayloadRoom::default();
                let bodies = rows.payloads(&mut room);
                let bodies = bodies.map(|payload| rows.layout().body(payload));
                out.strings(position, from, bodies)?;
            }
        }
    }
    Ok(())
}

fn times(out: &mut Output<'_>, at: At, rows: Batch<'_>, shown: impl Fn(i64) -> i64) -> Result<()> {
    let column = out.column::<i64>(at.position, at.from, rows.count())?;
    for (entry, time) in column.iter_mut().zip(rows.times()) {
        entry.write(shown(*time as i64));
    }
    Ok(())
}

fn addresses(out: &mut Output<'_>, at: At, rows: Batch<'_>) -> Result<()> {
    let column = out.column::<u64>(at.position, at.from, rows.count())?;
    for (entry, address) in column.iter_mut().zip(rows.addresses()) {
        entry.write(*address);
    }
    Ok(())
}

fn field(
    out: &mut Output<'_>,
    at: At,
    rows: Batch<'_>,
    field: usize,
    labels: Option<&Labels>,
) -> Result<()> {
    let (Some(slot), Some(column)) = (rows.layout().slot(field), rows.field(field)) else {
        return place::nulls(out, at, rows.count());
    };
    match (column, labels) {
        (FieldColumn::Numbers(numbers), Some(labels)) => {
            match (
                out.types().get(at.position),
                one_of(numbers.iter().copied()),
            ) {
                (Some(SqlType::Enum(texts)), _) => {
                    let whole = |number: &u64| fixed::whole(slot.ty, *number);
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
            fixed::number(out, at, slot.ty, numbers)?;
        }
        (FieldColumn::Words(words), _) => in_place(out, at, slot, &words, rows.count())?,
        (FieldColumn::Strings(strings), _) => match one_of(strings.iter()) {
            Some(string) => {
                let text = text::shown(slot.ty, string);
                out.repeated(at.position, at.from, rows.count(), &text)?;
            }
            None if text::are_shown(slot.ty, &strings) => {
                out.strings(at.position, at.from, strings.iter())?;
            }
            None => text::strings(out, at, slot.ty, strings.iter())?,
        },
        (FieldColumn::Shared { strings, codes }, _) => match one_of(codes.iter().copied()) {
            Some(code) => {
                let text = text::shown(slot.ty, proven::at(&strings, code as usize));
                out.repeated(at.position, at.from, codes.len(), &text)?;
            }
            // Most of the strings would be copied in vain.
            None if codes.len() < strings.len() => {
                let of_rows = codes
                    .iter()
                    .map(|code| *proven::at(&strings, *code as usize));
                text::strings(out, at, slot.ty, of_rows)?;
            }
            None => {
                let texts = strings
                    .into_iter()
                    .map(|string| text::shown(slot.ty, string));
                let texts: Vec<_> = texts.collect();
                let text = |code| Cow::Borrowed(&**proven::at(&texts, code as usize));
                if !out.keyed(at.position, at.from, codes, text)? {
                    out.shared(at.position, at.from, &texts, codes)?;
                }
            }
        },
    }
    match rows.nulls(field) {
        Some(is_null) => out.nulls(at.position, at.from, rows.count(), is_null),
        None => Ok(()),
    }
}

/// The property that all values of a column share.
fn one_of<T: PartialEq>(mut column: impl Iterator<Item = T>) -> Option<T> {
    let first = column.next()?;
    column.all(|other| other == first).then_some(first)
}

/// Fills the column of a `char` or `bytes` field. The fast path holds while every text is short ASCII.
fn in_place(out: &mut Output<'_>, at: At, slot: Slot, words: &[&[u64]], rows: usize) -> Result<()> {
    let width = slot.ty.fixed_bytes();
    let width = width.expect("a field in one place has a fixed width");
    let same: Option<Vec<u64>> = words
        .iter()
        .map(|column| one_of(column.iter().copied()))
        .collect();
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
                few_texts(out, at, slot, words.clone())? || short_texts(out, at, width, words)?
            }
            [first, second] => {
                let words = first.iter().copied().zip(second.iter().copied());
                few_texts(out, at, slot, words.clone())? || short_texts(out, at, width, words)?
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

/// Writes texts of at most 16 bytes, if they are few. Returns false, and writes nothing, if not. With more texts, finding them costs what DuckDB gains by a dictionary.
fn few_texts(
    out: &mut Output<'_>,
    at: At,
    slot: Slot,
    words: impl ExactSizeIterator<Item = (u64, u64)>,
) -> Result<bool> {
    const TEXTS_MOST: usize = 32;
    const PLACES: usize = 128;
    let mut texts: Vec<(u64, u64)> = Vec::new();
    // The number of a text above 0, at the place of its hash or behind it.
    let mut numbers = [0u8; PLACES];
    let mut keys = Vec::with_capacity(words.len());
    for text in words {
        let hash = (text.0 ^ text.1.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut place = (hash >> 57) as usize;
        let key = loop {
            let number = proven::at_mut(&mut numbers, place % PLACES);
            let Some(key) = number.checked_sub(1) else {
                if texts.len() == TEXTS_MOST {
                    return Ok(false);
                }
                texts.push(text);
                *number = texts.len() as u8;
                break *number - 1;
            };
            if *proven::at(&texts, usize::from(key)) == text {
                break key;
            }
            place += 1;
        };
        keys.push(u64::from(key));
    }
    let width = slot.ty.fixed_bytes().expect("a field of words has a width");
    out.keyed(at.position, at.from, &keys, |key| {
        let (first, second) = *proven::at(&texts, key as usize);
        let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
        Cow::Owned(text::shown(slot.ty, proven::at(&bytes, ..width)).into_owned())
    })
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
    use std::sync::Arc;

    use loom_engine::query::GivenRecords;
    use loom_engine::schema::{FieldDef, FieldValue, Layout, PayloadEncoder, TimeKind};
    use loom_engine::{Address, SourceId, Timestamp};

    use super::*;
    use crate::exec::memory::MemoryVectors;
    use crate::plan::types::{SqlType, of_field};

    /// Records with times of their own, from an address on.
    struct Given {
        records: GivenRecords,
        encoder: PayloadEncoder,
        count: i64,
    }

    impl Given {
        fn new(fields: &[FieldDef], records: &[Vec<FieldValue<'_>>]) -> Given {
            let encoder = PayloadEncoder::new(TimeKind::Own, fields).unwrap();
            let layout = Arc::new(encoder.layout().clone());
            let mut given = Given {
                records: GivenRecords::of(SourceId(1), layout),
                encoder,
                count: 0,
            };
            for values in records {
                let ts = Timestamp(given.count * 1001 - 3000);
                let mut payload = Vec::new();
                (given.encoder)
                    .encode(Some(ts), values, &mut payload)
                    .unwrap();
                let address = Address((1 << 20) + 64 * given.count as u64);
                given.records.push(address, ts, &payload).unwrap();
                given.count += 1;
            }
            given
        }

        /// Fills one vector with a field, from row 3 on.
        fn filled(&mut self, field: usize, def: &FieldDef) -> MemoryVectors {
            let types = [of_field("requests", def)];
            let mut memory = MemoryVectors::new(&types);
            let labels = (!def.labels.is_empty()).then(|| Labels::of(def));
            let fill = Fill::Field { field, labels };
            let mut out = Output::new(&mut memory, &types);
            write(&mut out, 3, self.records.batch(), &[fill]).unwrap();
            memory
        }
    }

    fn nullable(name: &str, ty: FieldType) -> FieldDef {
        FieldDef {
            nullable: true,
            ..FieldDef::new(name, ty)
        }
    }

    #[test]
    fn integers_of_every_width_come_out_as_they_went_in() {
        let unsigned = [
            (FieldType::U8, 8),
            (FieldType::U16, 16),
            (FieldType::U32, 32),
            (FieldType::U64, 64),
        ];
        for (ty, bits) in unsigned {
            let def = nullable("n", ty);
            let greatest = u64::MAX >> (64 - bits);
            let mut given = Given::new(
                std::slice::from_ref(&def),
                &[
                    vec![FieldValue::U64(0)],
                    vec![FieldValue::Null],
                    vec![FieldValue::U64(greatest)],
                ],
            );
            let memory = given.filled(0, &def);
            let mask = u128::from(greatest);
            assert_eq!(memory.integer(0, bits / 8, 3), 0);
            assert_eq!(memory.integer(0, bits / 8, 5) as u128 & mask, mask);
            assert_eq!(
                [3, 4, 5].map(|row| memory.valid(0, row)),
                [true, false, true]
            );
        }
        let signed = [
            (FieldType::I8, 8),
            (FieldType::I16, 16),
            (FieldType::I32, 32),
            (FieldType::I64, 64),
            (FieldType::TimestampNs, 64),
        ];
        for (ty, bits) in signed {
            let def = FieldDef::new("n", ty);
            let least = i64::MIN >> (64 - bits);
            let mut given = Given::new(
                std::slice::from_ref(&def),
                &[vec![FieldValue::I64(least)], vec![FieldValue::I64(-1)]],
            );
            let memory = given.filled(0, &def);
            assert_eq!(memory.integer(0, bits / 8, 3), i128::from(least));
            assert_eq!(memory.integer(0, bits / 8, 4), -1);
        }
    }

    #[test]
    fn floats_and_bools_keep_their_bits() {
        let fields = [
            FieldDef::new("f", FieldType::F32),
            FieldDef::new("d", FieldType::F64),
            FieldDef::new("b", FieldType::Bool),
        ];
        let mut given = Given::new(
            &fields,
            &[vec![
                FieldValue::F64(-0.0),
                FieldValue::F64(f64::NEG_INFINITY),
                FieldValue::Bool(true),
            ]],
        );
        assert_eq!(
            given.filled(0, &fields[0]).integer(0, 4, 3) as u32,
            (-0.0f32).to_bits()
        );
        assert_eq!(
            given.filled(1, &fields[1]).integer(0, 8, 3) as u64,
            f64::NEG_INFINITY.to_bits()
        );
        assert_eq!(given.filled(2, &fields[2]).integer(0, 1, 3), 1);
    }

    #[test]
    fn texts_of_every_kind_are_strings() {
        let fields = [
            FieldDef::new("short", FieldType::Char(6)),
            FieldDef::new("long", FieldType::Char(30)),
            FieldDef::new("raw", FieldType::Bytes(4)),
            nullable("text", FieldType::Utf8),
            FieldDef::new("blob", FieldType::VarBytes),
        ];
        let record = |short, long, text: &'static str, blob| {
            let text = if text == "NULL" {
                FieldValue::Null
            } else {
                FieldValue::Bytes(text.as_bytes())
            };
            vec![
                FieldValue::Bytes(short),
                FieldValue::Bytes(long),
                FieldValue::Bytes(b"\0\xff\0a"),
                text,
                FieldValue::Bytes(blob),
            ]
        };
        let mut given = Given::new(
            &fields,
            &[
                record(
                    b"abc".as_slice(),
                    b"exactly so".as_slice(),
                    "",
                    b"\0".as_slice(),
                ),
                record(b"sixsix", b"thirty bytes of text, as given", "NULL", b""),
                record(
                    b"h\xc3\xa9",
                    "a long one with é".as_bytes(),
                    "longer than what fits into an entry",
                    b"\xff\xfe",
                ),
            ],
        );
        let mut strings = |field: usize| {
            let memory = given.filled(field, &fields[field]);
            [3, 4, 5].map(|row| {
                memory
                    .valid(0, row)
                    .then(|| String::from_utf8_lossy(&memory.string(0, row)).into_owned())
            })
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(strings(0), [some("abc"), some("sixsix"), some("hé")]);
        assert_eq!(
            strings(1),
            [
                some("exactly so"),
                some("thirty bytes of text, as given"),
                some("a long one with é")
            ]
        );
        assert_eq!(
            strings(3),
            [some(""), None, some("longer than what fits into an entry")]
        );
        assert_eq!(given.filled(2, &fields[2]).string(0, 4), b"\0\xff\0a");
        assert_eq!(given.filled(4, &fields[4]).string(0, 5), b"\xff\xfe");
    }

    #[test]
    fn labels_show_and_other_numbers_show_themselves() {
        let mut def = nullable("op", FieldType::I16);
        def.labels.insert(1, "GET".into());
        def.labels
            .insert(-2, "a label that is longer than an entry".into());
        let values = [
            FieldValue::I64(1),
            FieldValue::I64(-2),
            FieldValue::I64(300),
            FieldValue::Null,
        ];
        let mut given = Given::new(std::slice::from_ref(&def), &values.map(|value| vec![value]));
        let memory = given.filled(0, &def);
        assert_eq!(memory.string(0, 3), b"GET");
        assert_eq!(memory.string(0, 4), b"a label that is longer than an entry");
        assert_eq!(memory.string(0, 5), b"300");
        assert!(!memory.valid(0, 6));
    }

    #[test]
    fn a_field_that_records_are_too_old_for_is_null() {
        let field = FieldDef::new("n", FieldType::U32);
        let mut given = Given::new(std::slice::from_ref(&field), &[vec![FieldValue::U64(7)]]);
        let added = given.filled(1, &FieldDef::new("added", FieldType::Utf8));
        assert!(!added.valid(0, 3) && added.string(0, 3).is_empty());
    }

    #[test]
    fn times_addresses_and_bodies_are_those_of_the_record() {
        let layout = Arc::new(Layout::new(TimeKind::Own, &[]).unwrap());
        let mut records = GivenRecords::of(SourceId(1), layout);
        for (nth, body) in [(0, b"one".as_slice()), (1, b"two, and more")] {
            let ts = Timestamp(nth * 1001 - 3000);
            let payload = [ts.0.to_le_bytes().as_slice(), body].concat();
            records
                .push(Address(64 + 8 * nth as u64), ts, &payload)
                .unwrap();
        }
        let types = [
            SqlType::TimestampTz,
            SqlType::I64,
            SqlType::U64,
            SqlType::Blob,
        ];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        let fills = [Fill::Ts, Fill::TsNs, Fill::Addr, Fill::Payload];
        write(&mut out, 0, records.batch(), &fills).unwrap();
        assert_eq!([memory.integer(0, 8, 0), memory.integer(0, 8, 1)], [-3, -2]);
        assert_eq!(
            [memory.integer(1, 8, 0), memory.integer(1, 8, 1)],
            [-3000, -1999]
        );
        assert_eq!([memory.integer(2, 8, 0), memory.integer(2, 8, 1)], [64, 72]);
        assert_eq!(memory.string(3, 1), b"two, and more");
    }

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
