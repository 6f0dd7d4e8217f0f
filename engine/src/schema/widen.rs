//! Converts payloads from before fields were added to the current layout.
//!
//! A producer that does not know the new fields keeps sending the old layout; its new fields are NULL.

use super::field::FieldDef;
use super::layout::Layout;
use super::layout::TimeKind;
use crate::error::{Error, Result};
use crate::proven;

/// Converts from the layout of a source's first fields to that of all fields.
#[derive(Clone, Debug)]
pub struct Widening {
    old: Layout,
    new: Layout,
    /// The null bits of the added fields, all set, at their place in the new null bytes.
    null_bits: Vec<u8>,
}

impl Widening {
    /// The producer knows the first `known` of the source's `fields`.
    ///
    /// # Errors
    /// An added field is not nullable.
    ///
    /// # Panics
    /// The source has fewer than `known` fields.
    pub fn new(time: TimeKind, fields: &[FieldDef], known: usize) -> Result<Widening> {
        let (before, added) = fields.split_at(known);
        if let Some(field) = added.iter().find(|field| !field.nullable) {
            return Err(Error::schema(format!(
                "the field '{}' was added and cannot be NULL; send a value for each field",
                field.name
            )));
        }
        let (old, new) = (Layout::new(time, before)?, Layout::new(time, fields)?);
        let mut null_bits = vec![0; new.null_bytes()];
        let nullable_before = before.iter().filter(|field| field.nullable).count();
        for bit in nullable_before..nullable_before + added.len() {
            *proven::at_mut(&mut null_bits, bit / 8) |= 1 << (bit % 8);
        }
        Ok(Widening {
            old,
            new,
            null_bits,
        })
    }

    /// Appends the payload in the new layout to `out`. Returns false, with nothing appended, if `payload` does not have the old layout.
    pub fn widen(&self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let Widening {
            old,
            new,
            null_bits,
        } = self;
        if old.validate(payload).is_err() {
            return false;
        }
        let start = out.len();
        let part = |from: usize, to: usize| proven::at(payload, from..to);
        let body = old.body_offset();
        let fixed = body + old.null_bytes();
        let nulls = part(body, fixed);
        out.extend_from_slice(part(0, body));
        // The old layout may have fewer null bytes.
        let before = nulls.iter().chain(std::iter::repeat(&0));
        out.extend(before.zip(null_bits).map(|(before, added)| before | added));
        out.extend_from_slice(part(fixed, old.lengths_offset()));
        out.resize(start + new.lengths_offset(), 0);
        out.extend_from_slice(part(old.lengths_offset(), old.fixed_bytes()));
        out.resize(start + new.fixed_bytes(), 0);
        out.extend_from_slice(part(old.fixed_bytes(), payload.len()));
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{FieldType, FieldValue, PayloadEncoder};
    use super::*;
    use crate::types::Timestamp;

    const TYPES: [FieldType; 5] = [
        FieldType::U8,
        FieldType::I64,
        FieldType::Bytes(3),
        FieldType::Utf8,
        FieldType::Bool,
    ];

    fn field(at: usize, ty: usize, nullable: bool) -> FieldDef {
        FieldDef {
            nullable,
            ..FieldDef::new(format!("f{at}"), TYPES[ty])
        }
    }

    fn value(ty: FieldType, seed: u64) -> FieldValue<'static> {
        match ty {
            FieldType::U8 => FieldValue::U64(seed % 256),
            FieldType::I64 => FieldValue::I64(seed as i64),
            FieldType::Bytes(_) => FieldValue::Bytes(b"abc"),
            FieldType::Bool => FieldValue::Bool(seed % 2 == 1),
            _ => FieldValue::Bytes(&b"some text"[..(seed % 9) as usize]),
        }
    }

    proptest! {
        /// The oracle is the encoder of the new layout, with NULL for the added fields.
        #[test]
        fn a_widened_payload_is_what_the_encoder_makes_with_nulls(
            own: bool,
            before in prop::collection::vec((0usize..5, any::<bool>(), any::<u64>()), 1..20),
            added in prop::collection::vec(0usize..5, 0..20),
        ) {
            let time = if own { TimeKind::Own } else { TimeKind::Arrival };
            let mut fields: Vec<FieldDef> = before.iter().enumerate()
                .map(|(at, (ty, nullable, _))| field(at, *ty, *nullable))
                .collect();
            let mut values: Vec<FieldValue<'_>> = before.iter()
                .map(|(ty, nullable, seed)| match *nullable && seed % 3 == 0 {
                    true => FieldValue::Null,
                    false => value(TYPES[*ty], *seed),
                })
                .collect();
            let ts = own.then_some(Timestamp(-7));
            let mut old = Vec::new();
            PayloadEncoder::new(time, &fields).unwrap().encode(ts, &values, &mut old).unwrap();

            let known = fields.len();
            fields.extend(added.iter().enumerate().map(|(at, ty)| field(known + at, *ty, true)));
            values.resize(fields.len(), FieldValue::Null);
            let mut expected = Vec::new();
            PayloadEncoder::new(time, &fields).unwrap().encode(ts, &values, &mut expected).unwrap();

            let widening = Widening::new(time, &fields, known).unwrap();
            let mut widened = vec![1, 2, 3];
            prop_assert!(widening.widen(&old, &mut widened));
            prop_assert_eq!(&widened[3..], &expected[..]);
            old.push(0);
            prop_assert!(!widening.widen(&old, &mut widened));
        }
    }

    #[test]
    fn a_field_that_cannot_be_null_is_named() {
        let fields = [field(0, 0, false), field(1, 1, true), field(2, 1, false)];
        let error = Widening::new(TimeKind::Arrival, &fields, 1).unwrap_err();
        assert!(error.to_string().contains("'f2'"), "{error}");
        assert!(Widening::new(TimeKind::Arrival, &fields, 3).is_ok());
    }
}
