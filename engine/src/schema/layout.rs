//! The places of a layout's fields in a payload, and direct access to them.
//!
//! A payload consists of the own time (i64, if the source has one), null bits, fixed-width fields packed in order, a u16 length of each
//! variable-length field, and their bytes. Every accessor takes untrusted payloads: one that is too short for its layout reads as NULL and
//! never panics. `key` and `own_time` are called for every record.

use serde::{Deserialize, Serialize};

use super::field::{FieldDef, FieldType};
use super::payloads::Payloads;
use crate::error::{Error, PayloadError, Result};
use crate::format::NumberRange;
use crate::types::{Key, Timestamp};

/// The meaning of a record's `ts`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeKind {
    /// The arrival of the record.
    #[default]
    Arrival,
    /// The time that the record carries before its payload (paper §5.2).
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

/// The place of a field.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this offset from the start of the payload.
    Fixed { offset: usize },
    /// The n-th variable-length field, from 0.
    Var { ordinal: usize },
}

/// One field of a layout.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    pub ty: FieldType,
    pub place: Place,
    /// Its number among the nullable fields; `None` if it is never NULL.
    pub null_bit: Option<u32>,
}

/// The way in which a key is loaded.
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

/// The data that `key` needs about a field, 12 bytes.
#[derive(Copy, Clone, Debug)]
struct Loader {
    offset: u32,
    null_byte: u32,
    /// 0 if the field is never NULL.
    null_mask: u8,
    load: Load,
}

const _: () = assert!(size_of::<Loader>() == 12);

/// The layout of a source's payloads from some address on.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Box<[Slot]>,
    loaders: Box<[Loader]>,
    /// The bool fields, the only fixed-width fields with values that are not allowed.
    bools: Box<[usize]>,
    own_time: bool,
    null_bytes: usize,
    var_fields: usize,
    lengths_offset: usize,
    /// The length of payloads that need no further check; `None` if all need one.
    plain_bytes: Option<usize>,
}

impl Layout {
    /// Lays the fields out. Refuses more than 1000 fields, and fixed parts that no record can hold.
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
        let fields = slots.iter().enumerate();
        let bools = fields.filter(|(_, slot)| slot.ty == FieldType::Bool);
        let bools: Box<[usize]> = bools.map(|(field, _)| field).collect();
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

    /// The length of payloads that `validate` accepts whatever they hold; `None` if there is no such length.
    pub fn plain_bytes(&self) -> Option<usize> {
        self.plain_bytes
    }

    /// The offset of the null bits, which follow the own time.
    pub fn body_offset(&self) -> usize {
        if self.own_time { OWN_TIME_BYTES } else { 0 }
    }

    /// The number of bytes of null bits.
    pub fn null_bytes(&self) -> usize {
        self.null_bytes
    }

    /// The offset of the lengths of the variable-length fields.
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

    /// One field; `None` if this layout is older than the field.
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

    /// The record's own time; `None` for sources with arrival times.
    #[inline]
    pub fn own_time(&self, payload: &[u8]) -> Option<Timestamp> {
        if !self.own_time {
            return None;
        }
        payload
            .first_chunk()
            .map(|bytes| Timestamp(i64::from_le_bytes(*bytes)))
    }

    /// The payload without its own time, as SQL shows it for a source without fields. Empty if the payload is cut short.
    pub fn body<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        payload.get(self.body_offset()..).unwrap_or(&[])
    }

    /// Whether the field is NULL, or missing in this layout.
    #[inline]
    pub fn is_null(&self, field: usize, payload: &[u8]) -> bool {
        self.loaders
            .get(field)
            .is_none_or(|loader| loader.is_null(payload))
            || payload.len() < self.lengths_offset
    }

    /// The bytes of a fixed-width field; `None` if it is NULL.
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

    /// The bytes of any field, a `char` with its padding; `None` if it is NULL.
    #[inline]
    pub fn bytes<'a>(&self, field: usize, payload: &'a [u8]) -> Option<&'a [u8]> {
        match self.slots.get(field)?.place {
            Place::Fixed { .. } => self.fixed(field, payload),
            Place::Var { .. } if self.is_null(field, payload) => None,
            Place::Var { ordinal } => self.var_fields(payload).nth(ordinal),
        }
    }

    /// The bytes of the variable-length fields in order, including NULL ones; fewer if the payload is cut short.
    #[inline]
    pub fn var_fields<'a>(&self, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = payload.get(self.fixed_bytes()..).unwrap_or(&[]);
        self.var_lengths(payload).map_while(move |bytes| {
            let (field, after) = rest.split_at_checked(bytes)?;
            rest = after;
            Some(field)
        })
    }

    /// The key of a field; `None` for NULL and for types without keys.
    #[inline]
    pub fn key(&self, field: usize, payload: &[u8]) -> Option<Key> {
        let loader = self.loaders.get(field)?;
        if loader.is_null(payload) {
            return None;
        }
        loader.key(payload)
    }

    /// Appends the result of `key` for each payload. Returns false, perhaps with some appended, if a payload may have no key.
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

    /// The same, from a field's numbers, each in its lowest bytes.
    pub fn number_keys(&self, field: usize, numbers: &[u64], keys: &mut Vec<Key>) -> bool {
        self.loaders
            .get(field)
            .is_some_and(|loader| loader.number_keys(numbers, keys))
    }

    /// The numbers of a field that have these keys; `None` if they are not consecutive. A NULL has any number.
    pub fn number_range(&self, field: usize, min: Key, max: Key) -> Option<NumberRange> {
        let loader = self.loaders.get(field)?;
        let first = match loader.load {
            Load::U8 | Load::U16 | Load::U32 | Load::U64 => min.0,
            // A key is the value plus 2^63.
            Load::I8 | Load::I16 | Load::I32 | Load::I64 => min.0.wrapping_sub(1 << 63),
            Load::F32 | Load::F64 | Load::None => return None,
        };
        let more = max.0.checked_sub(min.0)?;
        Some(NumberRange { first, more })
    }

    /// Empty if the payload is cut short.
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

    /// Appends the keys; the field's type is checked once instead of for each payload.
    fn load_keys<'a>(
        &self,
        payloads: impl Iterator<Item = Payloads<'a>>,
        keys: &mut Vec<Key>,
    ) -> bool {
        let at = self.offset as usize;
        if self.null_mask != 0 {
            return false;
        }
        /// Loads values of a type with the key that they have.
        macro_rules! load {
            ($type:ty, $key:ident) => {
                Payloads::load_all(payloads, at, keys, |bytes| {
                    Key::$key(<$type>::from_le_bytes(bytes).into())
                })
            };
        }
        match self.load {
            Load::U8 => load!(u8, from_u64),
            Load::U16 => load!(u16, from_u64),
            Load::U32 => load!(u32, from_u64),
            Load::U64 => load!(u64, from_u64),
            Load::I8 => load!(i8, from_i64),
            Load::I16 => load!(i16, from_i64),
            Load::I32 => load!(i32, from_i64),
            Load::I64 => load!(i64, from_i64),
            Load::F32 => load!(f32, from_f64),
            Load::F64 => load!(f64, from_f64),
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
