//! Zones: the least and greatest key of a field's values in a unit, and whether it is NULL there.
//!
//! They let a question pass over a unit without matching rows. The bytes are foreign: a head's claims about a zone are checked as they are read.

use std::sync::Arc;

use super::bits::wide;
use super::codec::Cursor;
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::proven::at;
use crate::types::Key;

const SIGN: u64 = 1 << 63;

/// The place of a field's values in payloads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FieldPlace {
    /// The piece that holds its number, the first bytes of its text, or its length behind the pieces.
    pub piece: u16,
    /// The piece holds text, which is compared byte by byte.
    pub is_text: bool,
    /// The piece and its bit that mark NULL; `None` if it is never NULL.
    pub null: Option<(u16, u8)>,
}

/// The values of a field in some rows, at least one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    pub has_null: bool,
    /// The least and the greatest key of the values that are not NULL; `None` if all are NULL. The key of a text is its first 8 bytes, padded with zeroes, as a
    /// number whose highest byte is the first.
    pub keys: Option<(Key, Key)>,
}

/// The order of a field's values.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ZoneKind {
    Unsigned,
    Signed,
    /// A float of 4 or 8 bytes.
    Float(u8),
    /// A text whose first bytes are a piece.
    Text,
    /// A string whose length is a piece.
    String,
}

impl ZoneKind {
    /// The float bytes for the encoding of numbers.
    pub fn floats(self) -> Option<u8> {
        matches!(self, ZoneKind::Float(_)).then_some(8)
    }

    /// Returns the value of a key in its bits; every float has those of an f64.
    pub fn number(self, key: Key) -> u64 {
        match self {
            ZoneKind::Signed => key.0 ^ SIGN,
            ZoneKind::Float(_) => double_order(key.0 ^ SIGN),
            ZoneKind::Unsigned | ZoneKind::Text | ZoneKind::String => key.0,
        }
    }

    pub fn key(self, number: u64) -> Key {
        match self {
            ZoneKind::Signed => Key(number ^ SIGN),
            ZoneKind::Float(_) => Key::from_f64(f64::from_bits(number)),
            ZoneKind::Unsigned | ZoneKind::Text | ZoneKind::String => Key(number),
        }
    }
}

impl FieldPlace {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flags = u64::from(self.is_text) << 1 | u64::from(self.null.is_some());
        put_leb128(out, u64::from(self.piece) << 2 | flags);
        if let Some((piece, bit)) = self.null {
            put_leb128(out, u64::from(piece) << 6 | u64::from(bit));
        }
    }

    pub(super) fn decode(head: &mut Cursor<'_>) -> Result<FieldPlace, FormatError> {
        let piece_of = |number: u64| match u16::try_from(number) {
            Ok(piece) => Ok(piece),
            Err(_) => invalid("the piece of a field", number),
        };
        let number = head.number()?;
        let null = match number & 1 {
            0 => None,
            _ => {
                let null = head.number()?;
                Some((piece_of(null >> 6)?, (null & 63) as u8))
            }
        };
        Ok(FieldPlace {
            piece: piece_of(number >> 2)?,
            is_text: number & 2 != 0,
            null,
        })
    }
}

impl Zone {
    /// The zone of no rows.
    pub(super) const NONE: Zone = Zone {
        has_null: false,
        keys: None,
    };

    pub(super) fn add(&mut self, other: Zone) {
        self.has_null |= other.has_null;
        self.keys = match (self.keys, other.keys) {
            (Some(own), Some(other)) => Some((own.0.min(other.0), own.1.max(other.1))),
            (own, other) => own.or(other),
        };
    }

    /// Computes the zone of a column of numbers; a bit of the words in `nulls` marks NULL. `seen` is the least and the greatest of all, as signed ones.
    pub(super) fn of_numbers(
        kind: ZoneKind,
        numbers: &[u64],
        nulls: Option<(&[u64], u8)>,
        seen: Option<(i64, i64)>,
    ) -> Zone {
        let Some((words, bit)) = nulls else {
            return Zone {
                has_null: false,
                keys: known(kind, seen).or_else(|| keys_of(kind, numbers.iter().copied())),
            };
        };
        let is_null = |word: &u64| word >> bit & 1 == 1;
        let any = words.iter().fold(0, |any, word| any | word);
        if !is_null(&any) {
            return Zone::of_numbers(kind, numbers, None, seen);
        }
        // A value that is not NULL replaces those that are, so no branch depends on a row.
        let first = words.iter().position(|word| !is_null(word));
        let keys = first.and_then(|first| {
            let held = *at(numbers, first);
            let rows = numbers.iter().zip(words);
            let rows = rows.map(|(number, word)| if is_null(word) { held } else { *number });
            keys_of(kind, rows)
        });
        Zone {
            has_null: true,
            keys,
        }
    }

    /// Computes the zone of adjacent strings with these lengths.
    pub(super) fn of_strings(strings: &[u8], lengths: &[u64], nulls: Option<(&[u64], u8)>) -> Zone {
        let mut rest = strings;
        let first_bytes = lengths.iter().map(|length| {
            let word = match rest.first_chunk() {
                Some(word) => u64::from_be_bytes(*word),
                None => text_key(rest).0,
            };
            let length = *length as usize;
            rest = rest.get(length..).unwrap_or(&[]);
            word & !u64::MAX.checked_shr(8 * length as u32).unwrap_or(0)
        });
        let keys: Vec<u64> = first_bytes.collect();
        Zone::of_numbers(ZoneKind::Unsigned, &keys, nulls, None)
    }

    pub(super) fn encode(&self, kind: ZoneKind, out: &mut Vec<u8>) {
        let has_null = u8::from(self.has_null) << 6;
        let Some((least, greatest)) = self.keys else {
            return out.push(has_null);
        };
        let (first, second) = match kind {
            ZoneKind::Unsigned => (least.0, greatest.0.wrapping_sub(least.0)),
            ZoneKind::Signed => {
                let value = (least.0 ^ SIGN) as i64;
                let first = (value << 1 ^ value >> 63) as u64;
                (first, greatest.0.wrapping_sub(least.0))
            }
            // Most keys end in zeroes.
            ZoneKind::Float(_) | ZoneKind::Text | ZoneKind::String => {
                (least.0.swap_bytes(), (least.0 ^ greatest.0).swap_bytes())
            }
        };
        let bytes = |number: u64| (8 - number.leading_zeros() as usize / 8).max(1);
        let lengths = (bytes(first), bytes(second));
        out.push(0x80 | has_null | (lengths.1 as u8 - 1) << 3 | (lengths.0 as u8 - 1));
        out.extend_from_slice(at(&first.to_le_bytes(), ..lengths.0));
        out.extend_from_slice(at(&second.to_le_bytes(), ..lengths.1));
    }

    pub(super) fn decode(head: &mut Cursor<'_>, kind: ZoneKind) -> Result<Zone, FormatError> {
        let shape = head.byte()?;
        let has_null = shape & 0x40 != 0;
        if shape & 0x80 == 0 {
            return Ok(Zone {
                has_null,
                keys: None,
            });
        }
        let mut number = |bytes: u8| {
            let mut number = [0; 8];
            let bytes = head.bytes(usize::from(bytes & 7) + 1)?;
            for (to, byte) in number.iter_mut().zip(bytes) {
                *to = *byte;
            }
            Ok::<u64, FormatError>(u64::from_le_bytes(number))
        };
        let (first, second) = (number(shape)?, number(shape >> 3)?);
        let (least, greatest) = match kind {
            ZoneKind::Unsigned => (first, first.checked_add(second)),
            ZoneKind::Signed => {
                let least = first >> 1 ^ (first & 1).wrapping_neg() ^ SIGN;
                (least, least.checked_add(second))
            }
            ZoneKind::Float(_) | ZoneKind::Text | ZoneKind::String => {
                let least = first.swap_bytes();
                (least, Some(least ^ second.swap_bytes()))
            }
        };
        match greatest.filter(|greatest| *greatest >= least) {
            Some(greatest) => Ok(Zone {
                has_null,
                keys: Some((Key(least), Key(greatest))),
            }),
            None => invalid("the greatest key of a zone", second),
        }
    }
}

/// Appends the zone of each field.
pub(super) fn put_zones(kinds: &[ZoneKind], zones: &[Zone], head: &mut Vec<u8>) {
    let of_fields = zones.iter().zip(kinds);
    of_fields.for_each(|(zone, kind)| zone.encode(*kind, head));
}

pub(super) fn zones_of(
    head: &mut Cursor<'_>,
    kinds: &[ZoneKind],
) -> Result<Arc<[Zone]>, FormatError> {
    kinds.iter().map(|kind| Zone::decode(head, *kind)).collect()
}

/// Returns the key of a text. A lesser text never has a greater key.
pub fn text_key(text: &[u8]) -> Key {
    let mut key = [0; 8];
    for (to, byte) in key.iter_mut().zip(text) {
        *to = *byte;
    }
    Key(u64::from_be_bytes(key))
}

/// Returns the least and the greatest key, where the least and the greatest number determine them.
fn known(kind: ZoneKind, seen: Option<(i64, i64)>) -> Option<(Key, Key)> {
    let (least, greatest) = seen?;
    match kind {
        ZoneKind::Signed => Some((Key::from_i64(least), Key::from_i64(greatest))),
        ZoneKind::Unsigned if (least < 0) == (greatest < 0) => {
            Some((Key(least as u64), Key(greatest as u64)))
        }
        _ => None,
    }
}

/// Returns the least and the greatest key of some numbers.
fn keys_of(kind: ZoneKind, numbers: impl Iterator<Item = u64> + Clone) -> Option<(Key, Key)> {
    match kind {
        ZoneKind::Signed => extremes(numbers, |number| number),
        ZoneKind::Float(4) => floats(numbers, single_order, |float| {
            Key::from_f64(f32::from_bits(float as u32).into())
        }),
        ZoneKind::Float(_) => floats(numbers, double_order, |float| {
            Key::from_f64(f64::from_bits(float))
        }),
        ZoneKind::Text => extremes(numbers, |number| number.swap_bytes() ^ SIGN),
        ZoneKind::Unsigned | ZoneKind::String => extremes(numbers, |number| number ^ SIGN),
    }
}

/// Finds them where the keys have a signed order.
fn extremes(
    mut numbers: impl Iterator<Item = u64>,
    order: impl Fn(u64) -> u64,
) -> Option<(Key, Key)> {
    let first = order(numbers.next()?) as i64;
    let (least, greatest) = wide(|| {
        numbers.fold((first, first), |(least, greatest), number| {
            let key = order(number) as i64;
            (least.min(key), greatest.max(key))
        })
    });
    Some((Key(least as u64 ^ SIGN), Key(greatest as u64 ^ SIGN)))
}

/// Finds them for floats, whose bits are in order except for zeroes and NaN.
fn floats(
    numbers: impl Iterator<Item = u64> + Clone,
    order: impl Fn(u64) -> u64,
    key: impl Fn(u64) -> Key,
) -> Option<(Key, Key)> {
    let (least, greatest) = extremes(numbers.clone(), &order)?;
    let of = |found: Key| key(order(found.0 ^ SIGN));
    let (least, greatest) = (of(least), of(greatest));
    // A NaN with the lowest bits still sorts above all other values.
    if least == Key::from_f64(f64::NAN) {
        let keys = || numbers.clone().map(&key);
        return keys().min().zip(keys().max());
    }
    Some((least, greatest))
}

/// Maps the bits of an f64 to a number in the order of the values, and back.
fn double_order(bits: u64) -> u64 {
    bits ^ ((bits as i64 >> 63) as u64 >> 1)
}

/// Does the same for an f32.
fn single_order(bits: u64) -> u64 {
    let bits = bits as u32;
    let order = bits ^ ((bits as i32 >> 31) as u32 >> 1);
    i64::from(order as i32) as u64
}
