//! Where the fields of one layout stand in a payload, and direct access to them.
//!
//! A payload is: own time (i64, where the source has one), null bits, fixed-width fields packed in order, a u16
//! length of each variable-length field, and their bytes. Every accessor takes payloads from anywhere: one that is
//! too short for its layout reads as NULL and never panics. `key` and `own_time` are called for every record.

use serde::{Deserialize, Serialize};

use super::field::{FieldDef, FieldType};
use super::payloads::Payloads;
use crate::error::{Error, PayloadError, Result};
use crate::format::NumberRange;
use crate::types::{Key, Timestamp};

/// Which time a record's `ts` is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeKind {
    /// When it arrived.
    #[default]
    Arrival,
    /// The one that it brings before its payload (paper §5.2).
    Own,
}

/// The longest payload that a record's header can express, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 65_528;
/// The most fields of a source.
pub const FIELDS_MAX: usize = 1000;
/// The width of an own time.
const OWN_TIME_BYTES: usize = 8;
/// The width of a variable-length field's length.
pub(super) const LENGTH_BYTES: usize = 2;

/// Where a field stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At so many bytes from the payload's start.
    Fixed { offset: usize },
    /// The so-manieth variable-length field, from 0.
    Var { ordinal: usize },
}

/// One field of a layout.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    pub ty: FieldType,
    pub place: Place,
    /// Its number among the nullable fields; `None` where it is never NULL.
    pub null_bit: Option<u32>,
}

/// How a key is loaded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Load {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// The type has no key.
    None,
}

/// What `key` needs of a field, 12 bytes.
#[derive(Copy, Clone, Debug)]
struct Loader {
    offset: u32,
    null_byte: u32,
    /// 0 where the field is never NULL.
    null_mask: u8,
    load: Load,
}

const _: () = assert!(size_of::<Loader>() == 12);

/// The layout of a source's payloads from some address on.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Box<[Slot]>,
    loaders: Box<[Loader]>,
    /// Bools are the only fixed-width fields with values that are not allowed.
    bools: Box<[usize]>,
    own_time: bool,
    null_bytes: usize,
    var_fields: usize,
    lengths_offset: usize,
    /// The length of payloads that need no closer look; `None` where all need one.
    plain_bytes: Option<usize>,
}

impl Layout {
    /// Lays the fields out. Refused: more than 1000 fields, or fixed parts that no record can hold.
    pub fn new(time: TimeKind, fields: &[FieldDef]) -> Result<Layout> {
        if fields.len() > FIELDS_MAX {
            return Err(Error::schema(format!(
                "there are {} fields; the limit is {FIELDS_MAX}",
                fields.len()
            )));
        }
        let own_time = time == TimeKind::Own;
        let body_offset = if own_time { OWN_TIME_BYTES } else { 0 };
        let null_bytes = fields
            .iter()
            .filter(|field| field.nullable)
            .count()
            .div_ceil(8);
        let mut offset = body_offset + null_bytes;
        let (mut nullables, mut var_fields) = (0u32, 0);
        let mut slots = Vec::with_capacity(fields.len());
        for field in fields {
            let place = match field.ty.fixed_bytes() {
                Some(bytes) => {
                    let place = Place::Fixed { offset };
                    offset += bytes;
                    place
                }
                None => {
                    var_fields += 1;
                    Place::Var {
                        ordinal: var_fields - 1,
                    }
                }
            };
            let null_bit = field.nullable.then_some(nullables);
            nullables += u32::from(field.nullable);
            slots.push(Slot {
                ty: field.ty,
                place,
                null_bit,
            });
        }
        let bools = bools_of(&slots);
        let is_plain = var_fields == 0 && bools.is_empty() && !slots.is_empty();
        let layout = Layout {
            loaders: slots
                .iter()
                .map(|slot| Loader::new(slot, body_offset))
                .collect(),
            bools,
            slots: slots.into(),
            own_time,
            null_bytes,
            var_fields,
            lengths_offset: offset,
            plain_bytes: is_plain.then_some(offset),
        };
        let bytes = layout.fixed_bytes();
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(Error::schema(format!(
                "the fixed-width part of a record would have {bytes} bytes; the limit is \
                 {PAYLOAD_BYTES_MAX}"
            )));
        }
        Ok(layout)
    }

    /// The least length of a payload: own time, null bits, fixed-width fields and the lengths of the others.
    pub fn fixed_bytes(&self) -> usize {
        self.lengths_offset + self.var_fields * LENGTH_BYTES
    }

    /// Whether all payloads have `fixed_bytes()` bytes.
    pub fn is_fixed(&self) -> bool {
        self.var_fields == 0 && !self.is_raw()
    }

    /// Whether the source has no fields, so that any bytes are a payload.
    pub fn is_raw(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn field_count(&self) -> usize {
        self.slots.len()
    }

    /// The length of payloads that `validate` accepts whatever they hold; `None` where there is none.
    pub fn plain_bytes(&self) -> Option<usize> {
        self.plain_bytes
    }

    /// Where the null bits begin: after the own time.
    pub fn body_offset(&self) -> usize {
        if self.own_time { OWN_TIME_BYTES } else { 0 }
    }

    /// How many bytes of null bits there are.
    pub fn null_bytes(&self) -> usize {
        self.null_bytes
    }

    /// Where the lengths of the variable-length fields begin.
    pub fn lengths_offset(&self) -> usize {
        self.lengths_offset
    }

    pub fn has_own_time(&self) -> bool {
        self.own_time
    }

    /// All fields, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// One field; `None` where this layout is older than the field.
    pub fn slot(&self, field: usize) -> Option<Slot> {
        self.slots.get(field).copied()
    }

    /// Whether the payload has this layout: its length is exact, and each bool 0 or 1.
    #[inline]
    pub fn validate(&self, payload: &[u8]) -> Result<(), PayloadError> {
        if self.plain_bytes == Some(payload.len()) {
            return Ok(());
        }
        self.validate_closely(payload)
    }

    fn validate_closely(&self, payload: &[u8]) -> Result<(), PayloadError> {
        let (found, least) = (payload.len(), self.fixed_bytes());
        if found < least {
            return Err(PayloadError::TooShort { found, least });
        }
        if self.is_raw() {
            return Ok(());
        }
        let expected = least + self.var_lengths(payload).sum::<usize>();
        if found != expected {
            return Err(PayloadError::WrongLength { found, expected });
        }
        self.bools
            .iter()
            .try_for_each(|&field| self.validate_bool(field, payload))
    }

    fn validate_bool(&self, field: usize, payload: &[u8]) -> Result<(), PayloadError> {
        match self.key(field, payload) {
            Some(Key(value @ 2..)) => Err(PayloadError::NotBool {
                field,
                value: value as u8,
            }),
            _ => Ok(()),
        }
    }

    /// The time that the record brings; `None` for sources that go by arrival.
    #[inline]
    pub fn own_time(&self, payload: &[u8]) -> Option<Timestamp> {
        if !self.own_time {
            return None;
        }
        payload
            .first_chunk()
            .map(|bytes| Timestamp(i64::from_le_bytes(*bytes)))
    }

    /// The payload without its own time: what SQL shows of a source without fields. Empty where the payload is cut short.
    pub fn body<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        payload.get(self.body_offset()..).unwrap_or(&[])
    }

    /// Whether the field is NULL; also where this layout does not have it.
    #[inline]
    pub fn is_null(&self, field: usize, payload: &[u8]) -> bool {
        self.loaders
            .get(field)
            .is_none_or(|loader| loader.is_null(payload))
            || payload.len() < self.lengths_offset
    }

    /// The bytes of a fixed-width field that is not NULL.
    #[inline]
    pub fn fixed<'a>(&self, field: usize, payload: &'a [u8]) -> Option<&'a [u8]> {
        let slot = self.slots.get(field)?;
        let Place::Fixed { offset } = slot.place else {
            return None;
        };
        if self.is_null(field, payload) {
            return None;
        }
        payload.get(offset..offset + slot.ty.fixed_bytes()?)
    }

    /// The bytes of any field that is not NULL; a `char` with its padding.
    #[inline]
    pub fn bytes<'a>(&self, field: usize, payload: &'a [u8]) -> Option<&'a [u8]> {
        match self.slots.get(field)?.place {
            Place::Fixed { .. } => self.fixed(field, payload),
            Place::Var { .. } if self.is_null(field, payload) => None,
            Place::Var { ordinal } => self.var_fields(payload).nth(ordinal),
        }
    }

    /// The bytes of the variable-length fields in order, NULL ones too; fewer where the payload is cut short.
    #[inline]
    pub fn var_fields<'a>(&self, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = payload.get(self.fixed_bytes()..).unwrap_or(&[]);
        self.var_lengths(payload).map_while(move |bytes| {
            let (field, after) = rest.split_at_checked(bytes)?;
            rest = after;
            Some(field)
        })
    }

    /// The key of a field that is not NULL; `None` for types that have no key.
    #[inline]
    pub fn key(&self, field: usize, payload: &[u8]) -> Option<Key> {
        let loader = self.loaders.get(field)?;
        if loader.is_null(payload) {
            return None;
        }
        loader.key(payload)
    }

    /// Appends what `key` returns for each payload. False, perhaps with some appended, where one may have none.
    pub fn load_keys<'a>(
        &self,
        field: usize,
        payloads: impl Iterator<Item = Payloads<'a>>,
        keys: &mut Vec<Key>,
    ) -> bool {
        self.loaders
            .get(field)
            .is_some_and(|loader| loader.load_keys(payloads, keys))
    }

    /// The same of a field's numbers, each in its lowest bytes.
    pub fn number_keys(&self, field: usize, numbers: &[u64], keys: &mut Vec<Key>) -> bool {
        self.loaders
            .get(field)
            .is_some_and(|loader| loader.number_keys(numbers, keys))
    }

    /// The numbers of a field that have these keys; `None` where they do not lie in a row. A NULL has any number.
    pub fn number_range(&self, field: usize, min: Key, max: Key) -> Option<NumberRange> {
        let loader = self.loaders.get(field)?;
        let first = match loader.load {
            Load::U8 | Load::U16 | Load::U32 | Load::U64 => min.0,
            // A key is the value and 2^63.
            Load::I8 | Load::I16 | Load::I32 | Load::I64 => min.0.wrapping_sub(1 << 63),
            Load::F32 | Load::F64 | Load::None => return None,
        };
        let more = max.0.checked_sub(min.0)?;
        Some(NumberRange { first, more })
    }

    /// None where the payload is cut short.
    #[inline]
    fn var_lengths<'a>(&self, payload: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
        let lengths = payload
            .get(self.lengths_offset..self.fixed_bytes())
            .unwrap_or(&[]);
        lengths
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| usize::from(u16::from_le_bytes(bytes)))
    }
}

impl Loader {
    fn new(slot: &Slot, nulls_offset: usize) -> Loader {
        let (null_byte, null_mask) = match slot.null_bit {
            Some(bit) => (nulls_offset as u32 + bit / 8, 1u8 << (bit % 8)),
            None => (0, 0),
        };
        let (offset, load) = match slot.place {
            Place::Fixed { offset } => (offset as u32, Load::of(slot.ty)),
            Place::Var { .. } => (0, Load::None),
        };
        Loader {
            offset,
            null_byte,
            null_mask,
            load,
        }
    }

    #[inline]
    fn is_null(&self, payload: &[u8]) -> bool {
        self.null_mask != 0
            && payload
                .get(self.null_byte as usize)
                .is_none_or(|bits| bits & self.null_mask != 0)
    }

    /// The field's type is looked at once, not for each payload.
    fn load_keys<'a>(
        &self,
        payloads: impl Iterator<Item = Payloads<'a>>,
        keys: &mut Vec<Key>,
    ) -> bool {
        let at = self.offset as usize;
        if self.null_mask != 0 {
            return false;
        }
        match self.load {
            Load::U8 => Payloads::load_all(payloads, at, keys, |[byte]| Key::from_u64(byte.into())),
            Load::U16 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_u64(u16::from_le_bytes(b).into())
            }),
            Load::U32 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_u64(u32::from_le_bytes(b).into())
            }),
            Load::U64 => {
                Payloads::load_all(payloads, at, keys, |b| Key::from_u64(u64::from_le_bytes(b)))
            }
            Load::I8 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_i64(i8::from_le_bytes(b).into())
            }),
            Load::I16 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_i64(i16::from_le_bytes(b).into())
            }),
            Load::I32 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_i64(i32::from_le_bytes(b).into())
            }),
            Load::I64 => {
                Payloads::load_all(payloads, at, keys, |b| Key::from_i64(i64::from_le_bytes(b)))
            }
            Load::F32 => Payloads::load_all(payloads, at, keys, |b| {
                Key::from_f64(f32::from_le_bytes(b).into())
            }),
            Load::F64 => {
                Payloads::load_all(payloads, at, keys, |b| Key::from_f64(f64::from_le_bytes(b)))
            }
            Load::None => false,
        }
    }

    fn number_keys(&self, numbers: &[u64], keys: &mut Vec<Key>) -> bool {
        fn extend(numbers: &[u64], keys: &mut Vec<Key>, key: impl Fn(u64) -> Key) -> bool {
            keys.extend(numbers.iter().map(|number| key(*number)));
            true
        }
        match self.load {
            Load::U8 => extend(numbers, keys, |n| Key::from_u64(u64::from(n as u8))),
            Load::U16 => extend(numbers, keys, |n| Key::from_u64(u64::from(n as u16))),
            Load::U32 => extend(numbers, keys, |n| Key::from_u64(u64::from(n as u32))),
            Load::U64 => extend(numbers, keys, Key::from_u64),
            Load::I8 => extend(numbers, keys, |n| Key::from_i64(i64::from(n as i8))),
            Load::I16 => extend(numbers, keys, |n| Key::from_i64(i64::from(n as i16))),
            Load::I32 => extend(numbers, keys, |n| Key::from_i64(i64::from(n as i32))),
            Load::I64 => extend(numbers, keys, |n| Key::from_i64(n as i64)),
            Load::F32 => extend(numbers, keys, |n| {
                Key::from_f64(f32::from_bits(n as u32).into())
            }),
            Load::F64 => extend(numbers, keys, |n| Key::from_f64(f64::from_bits(n))),
            Load::None => false,
        }
    }

    #[inline]
    fn key(&self, payload: &[u8]) -> Option<Key> {
        let at = payload.get(self.offset as usize..)?;
        Some(match self.load {
            Load::U8 => Key::from_u64(u64::from(*at.first()?)),
            Load::U16 => Key::from_u64(u64::from(u16::from_le_bytes(*at.first_chunk()?))),
            Load::U32 => Key::from_u64(u64::from(u32::from_le_bytes(*at.first_chunk()?))),
            Load::U64 => Key::from_u64(u64::from_le_bytes(*at.first_chunk()?)),
            Load::I8 => Key::from_i64(i64::from(*at.first()? as i8)),
            Load::I16 => Key::from_i64(i64::from(i16::from_le_bytes(*at.first_chunk()?))),
            Load::I32 => Key::from_i64(i64::from(i32::from_le_bytes(*at.first_chunk()?))),
            Load::I64 => Key::from_i64(i64::from_le_bytes(*at.first_chunk()?)),
            Load::F32 => Key::from_f64(f64::from(f32::from_le_bytes(*at.first_chunk()?))),
            Load::F64 => Key::from_f64(f64::from_le_bytes(*at.first_chunk()?)),
            Load::None => return None,
        })
    }
}

impl Load {
    fn of(ty: FieldType) -> Load {
        match ty {
            FieldType::U8 | FieldType::Bool => Load::U8,
            FieldType::U16 => Load::U16,
            FieldType::U32 => Load::U32,
            FieldType::U64 => Load::U64,
            FieldType::I8 => Load::I8,
            FieldType::I16 => Load::I16,
            FieldType::I32 => Load::I32,
            FieldType::I64 | FieldType::TimestampNs => Load::I64,
            FieldType::F32 => Load::F32,
            FieldType::F64 => Load::F64,
            FieldType::Char(_)
            | FieldType::Bytes(_)
            | FieldType::Utf8
            | FieldType::VarBytes
            | FieldType::Json => Load::None,
        }
    }
}

fn bools_of(slots: &[Slot]) -> Box<[usize]> {
    let is_bool = |(_, slot): &(usize, &Slot)| slot.ty == FieldType::Bool;
    slots
        .iter()
        .enumerate()
        .filter(is_bool)
        .map(|(field, _)| field)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPES: [FieldType; 11] = [
        FieldType::U8,
        FieldType::U16,
        FieldType::U32,
        FieldType::U64,
        FieldType::I8,
        FieldType::I16,
        FieldType::I32,
        FieldType::I64,
        FieldType::F32,
        FieldType::F64,
        FieldType::Char(3),
    ];

    proptest! {
        #[test]
        fn loaded_keys_are_those_of_each_payload(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0usize..60) {
            let fields: Vec<_> = TYPES.iter().map(|ty| FieldDef::new("f", *ty)).collect();
            let layout = Layout::new(TimeKind::Own, &fields).unwrap();
            let payload_bytes = layout.fixed_bytes() - cut.min(layout.fixed_bytes());
            let entry_bytes = 8 + payload_bytes.next_multiple_of(8);
            let records = bytes.len() / entry_bytes;
            let payloads = Payloads {
                entries: &bytes[..records * entry_bytes],
                entry_bytes,
                offset: 8,
                payload_bytes,
                records,
            };
            for field in 0..=TYPES.len() {
                let expected: Vec<_> = payloads.iter().map(|payload| layout.key(field, payload)).collect();
                let mut keys = vec![Key(7)];
                let loaded = layout.load_keys(field, [payloads].into_iter(), &mut keys);
                if loaded {
                    prop_assert_eq!(keys[1..].iter().map(|key| Some(*key)).collect::<Vec<_>>(), expected);
                } else {
                    prop_assert!(keys.len() == 1 && expected.iter().all(Option::is_none));
                }
            }
        }
    }
}
