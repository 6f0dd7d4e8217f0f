//! Encodes values into a payload, the reverse of `Layout`. A value that a field cannot hold exactly is refused, except that floats round.

use super::field::{FieldDef, FieldType};
use super::layout::TimeKind;
use super::layout::{LENGTH_BYTES, Layout, PAYLOAD_BYTES_MAX, Place};
use crate::error::{Error, Result};
use crate::proven;
use crate::types::Timestamp;

/// A value to encode. Any integer variant fits any numeric field that can hold the value.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum FieldValue<'a> {
    Null,
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    /// Text, bytes or JSON.
    Bytes(&'a [u8]),
}

/// Encodes payloads of one layout.
#[derive(Clone, Debug)]
pub struct PayloadEncoder {
    layout: Layout,
    names: Vec<String>,
}

/// The reason why a value does not fit; the caller adds the field.
type Misfit = String;

impl PayloadEncoder {
    pub fn new(time: TimeKind, fields: &[FieldDef]) -> Result<PayloadEncoder> {
        let names = fields.iter().map(|field| field.name.clone()).collect();
        Ok(PayloadEncoder {
            layout: Layout::new(time, fields)?,
            names,
        })
    }

    /// The layout of the payloads.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Appends one payload to `out`; after an error `out` is unchanged. A source without fields takes one `Bytes` value.
    pub fn encode(
        &mut self,
        own: Option<Timestamp>,
        values: &[FieldValue],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        let encoded = self.append(own, values, out).and_then(|()| {
            let bytes = out.len() - start;
            if bytes > PAYLOAD_BYTES_MAX {
                return Err(Error::TooLong {
                    bytes,
                    limit: PAYLOAD_BYTES_MAX,
                });
            }
            Ok(())
        });
        if encoded.is_err() {
            out.truncate(start);
        }
        encoded
    }

    fn append(
        &mut self,
        own: Option<Timestamp>,
        values: &[FieldValue],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match (self.layout.has_own_time(), own) {
            (true, Some(time)) => out.extend_from_slice(&time.0.to_le_bytes()),
            (false, None) => {}
            (true, None) => {
                return Err(Error::schema(
                    "the record has no own time, and its source needs one",
                ));
            }
            (false, Some(_)) => {
                return Err(Error::schema(
                    "the source uses arrival times; its records cannot have their own",
                ));
            }
        }
        if self.layout.is_raw() {
            let [FieldValue::Bytes(bytes)] = values else {
                return Err(Error::schema(
                    "a source without fields takes one value of bytes",
                ));
            };
            out.extend_from_slice(bytes);
            return Ok(());
        }
        if values.len() != self.layout.field_count() {
            return Err(Error::schema(format!(
                "there are {} values for {} fields",
                values.len(),
                self.layout.field_count()
            )));
        }
        self.append_nulls(values, out)?;
        self.append_fixed(values, out)?;
        self.append_var(values, out)
    }

    fn append_nulls(&self, values: &[FieldValue], out: &mut Vec<u8>) -> Result<()> {
        let (mut bits, mut used) = (0u8, 0);
        for (field, (slot, value)) in self.layout.slots().iter().zip(values).enumerate() {
            let is_null = *value == FieldValue::Null;
            if slot.null_bit.is_none() {
                if is_null {
                    return Err(
                        self.misfit(field, "is NULL and the field is not nullable".to_owned())
                    );
                }
                continue;
            }
            bits |= u8::from(is_null) << used;
            used += 1;
            if used == 8 {
                out.push(bits);
                (bits, used) = (0, 0);
            }
        }
        if used > 0 {
            out.push(bits);
        }
        Ok(())
    }

    fn append_fixed(&self, values: &[FieldValue], out: &mut Vec<u8>) -> Result<()> {
        for (field, (slot, value)) in self.layout.slots().iter().zip(values).enumerate() {
            if let Place::Fixed { .. } = slot.place {
                append_value(slot.ty, value, out).map_err(|misfit| self.misfit(field, misfit))?;
            }
        }
        Ok(())
    }

    fn append_var(&self, values: &[FieldValue], out: &mut Vec<u8>) -> Result<()> {
        let var = || {
            let slots = self.layout.slots().iter().zip(values).enumerate();
            slots.filter(|(_, (slot, _))| matches!(slot.place, Place::Var { .. }))
        };
        for (field, (slot, value)) in var() {
            let bytes = match value {
                FieldValue::Null => 0,
                FieldValue::Bytes(bytes) => bytes.len(),
                other => return Err(self.misfit(field, mismatch(slot.ty, other))),
            };
            let Ok(length) = u16::try_from(bytes) else {
                return Err(Error::TooLong {
                    bytes,
                    limit: PAYLOAD_BYTES_MAX,
                });
            };
            const _: () = assert!(size_of::<u16>() == LENGTH_BYTES);
            out.extend_from_slice(&length.to_le_bytes());
        }
        for (_, (_, value)) in var() {
            if let FieldValue::Bytes(bytes) = value {
                out.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn misfit(&self, field: usize, misfit: Misfit) -> Error {
        let name = proven::at(&self.names, field);
        Error::schema(format!("field '{name}' {misfit}"))
    }
}

fn append_value(ty: FieldType, value: &FieldValue, out: &mut Vec<u8>) -> Result<(), Misfit> {
    /// Appends an integer of this type, if the value fits.
    macro_rules! integer {
        ($int:ty) => {{
            let fitting = match *value {
                FieldValue::U64(value) => <$int>::try_from(value).ok(),
                FieldValue::I64(value) => <$int>::try_from(value).ok(),
                _ => return Err(mismatch(ty, value)),
            };
            let fitting = fitting.ok_or_else(|| out_of_range(ty, value))?;
            out.extend_from_slice(&fitting.to_le_bytes());
        }};
    }
    if *value == FieldValue::Null {
        let bytes = ty
            .fixed_bytes()
            .expect("only fields of fixed width come here");
        out.resize(out.len() + bytes, 0);
        return Ok(());
    }
    match ty {
        FieldType::U8 => integer!(u8),
        FieldType::U16 => integer!(u16),
        FieldType::U32 => integer!(u32),
        FieldType::U64 => integer!(u64),
        FieldType::I8 => integer!(i8),
        FieldType::I16 => integer!(i16),
        FieldType::I32 => integer!(i32),
        FieldType::I64 | FieldType::TimestampNs => integer!(i64),
        FieldType::F64 => out.extend_from_slice(&float_of(ty, value)?.to_le_bytes()),
        FieldType::F32 => {
            let wide = float_of(ty, value)?;
            let narrow = wide as f32;
            if wide.is_finite() && narrow.is_infinite() {
                return Err(out_of_range(ty, value));
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }
        FieldType::Bool => match *value {
            FieldValue::Bool(value) => out.push(u8::from(value)),
            FieldValue::U64(value @ 0..=1) => out.push(value as u8),
            FieldValue::I64(value @ 0..=1) => out.push(value as u8),
            _ => return Err(mismatch(ty, value)),
        },
        FieldType::Char(width) => append_text(width.into(), bytes_of(ty, value)?, out)?,
        FieldType::Bytes(width) => {
            let bytes = bytes_of(ty, value)?;
            if bytes.len() != usize::from(width) {
                return Err(format!(
                    "is {ty} and needs exactly {width} bytes, not {}",
                    bytes.len()
                ));
            }
            out.extend_from_slice(bytes);
        }
        FieldType::Utf8 | FieldType::VarBytes | FieldType::Json => {
            return Err(mismatch(ty, value));
        }
    }
    Ok(())
}

fn append_text(width: usize, text: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
    let Some(padding) = width.checked_sub(text.len()) else {
        return Err(format!(
            "is char[{width}] and cannot hold a text of {} bytes",
            text.len()
        ));
    };
    let end = text
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    if text.iter().take(end).any(|&byte| byte == 0) {
        return Err(format!(
            "is char[{width}], whose text ends at the first NUL byte; the text has one inside"
        ));
    }
    out.extend_from_slice(text);
    out.resize(out.len() + padding, 0);
    Ok(())
}

fn float_of(ty: FieldType, value: &FieldValue) -> Result<f64, Misfit> {
    match *value {
        FieldValue::F64(value) => Ok(value),
        FieldValue::U64(value) => Ok(value as f64),
        FieldValue::I64(value) => Ok(value as f64),
        _ => Err(mismatch(ty, value)),
    }
}

fn bytes_of<'a>(ty: FieldType, value: &FieldValue<'a>) -> Result<&'a [u8], Misfit> {
    match *value {
        FieldValue::Bytes(bytes) => Ok(bytes),
        _ => Err(mismatch(ty, value)),
    }
}

fn out_of_range(ty: FieldType, value: &FieldValue) -> Misfit {
    format!("is {ty} and cannot hold {}", shown(value))
}

fn mismatch(ty: FieldType, value: &FieldValue) -> Misfit {
    format!("is {ty} and does not take {}", shown(value))
}

fn shown(value: &FieldValue) -> String {
    match value {
        FieldValue::Null => "NULL".to_owned(),
        FieldValue::U64(value) => value.to_string(),
        FieldValue::I64(value) => value.to_string(),
        FieldValue::F64(value) => format!("the float {value}"),
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Bytes(bytes) => format!("{} bytes of text", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::tests::any_type;
    use super::*;
    use crate::types::Key;
    use proptest::prelude::*;

    /// A value that a field of the type takes, as its bytes and its key.
    #[derive(Clone, Debug)]
    struct Sample {
        field: FieldDef,
        /// `None` is NULL.
        value: Option<Value>,
    }

    #[derive(Clone, Debug)]
    enum Value {
        U64(u64),
        I64(i64),
        F64(f64),
        Bool(bool),
        Bytes(Vec<u8>),
    }

    impl Value {
        fn of(ty: FieldType, bits: u64, text: &[u8]) -> Value {
            let signed = bits as i64;
            match ty {
                FieldType::U8 => Value::U64(bits & 0xFF),
                FieldType::U16 => Value::U64(bits & 0xFFFF),
                FieldType::U32 => Value::U64(bits & 0xFFFF_FFFF),
                FieldType::U64 => Value::U64(bits),
                FieldType::I8 => Value::I64(signed as i8 as i64),
                FieldType::I16 => Value::I64(signed as i16 as i64),
                FieldType::I32 => Value::I64(signed as i32 as i64),
                FieldType::I64 | FieldType::TimestampNs => Value::I64(signed),
                FieldType::F32 => Value::F64(f32::from_bits(bits as u32).into()),
                FieldType::F64 => Value::F64(f64::from_bits(bits)),
                FieldType::Bool => Value::Bool(bits & 1 == 1),
                FieldType::Char(n) => {
                    let text = text.iter().copied().filter(|&byte| byte != 0);
                    Value::Bytes(text.take(n.into()).collect())
                }
                FieldType::Bytes(n) => {
                    Value::Bytes(text.iter().copied().cycle().take(n.into()).collect())
                }
                _ => Value::Bytes(text.to_vec()),
            }
        }

        fn as_field(&self) -> FieldValue<'_> {
            match self {
                Value::U64(value) => FieldValue::U64(*value),
                Value::I64(value) => FieldValue::I64(*value),
                Value::F64(value) => FieldValue::F64(*value),
                Value::Bool(value) => FieldValue::Bool(*value),
                Value::Bytes(bytes) => FieldValue::Bytes(bytes),
            }
        }

        fn key(&self) -> Option<Key> {
            Some(match self {
                Value::U64(value) => Key::from_u64(*value),
                Value::I64(value) => Key::from_i64(*value),
                Value::F64(value) => Key::from_f64(*value),
                Value::Bool(value) => Key::from_u64(u64::from(*value)),
                Value::Bytes(_) => return None,
            })
        }
    }

    fn any_sample() -> impl Strategy<Value = Sample> {
        let text = prop::collection::vec(any::<u8>(), 1..30);
        (any_type(), any::<u64>(), text, any::<bool>(), any::<bool>()).prop_map(
            |(ty, bits, text, nullable, is_null)| Sample {
                field: FieldDef {
                    nullable,
                    ..FieldDef::new("f", ty)
                },
                value: (!nullable || !is_null).then(|| Value::of(ty, bits, &text)),
            },
        )
    }

    fn encode(time: Option<i64>, samples: &[Sample]) -> (Layout, Vec<u8>) {
        let kind = if time.is_some() {
            TimeKind::Own
        } else {
            TimeKind::Arrival
        };
        let fields: Vec<FieldDef> = samples.iter().map(|sample| sample.field.clone()).collect();
        let mut encoder = PayloadEncoder::new(kind, &fields).unwrap();
        let values: Vec<FieldValue> = samples
            .iter()
            .map(|sample| {
                sample
                    .value
                    .as_ref()
                    .map_or(FieldValue::Null, Value::as_field)
            })
            .collect();
        let mut out = Vec::new();
        encoder
            .encode(time.map(Timestamp), &values, &mut out)
            .unwrap();
        (encoder.layout().clone(), out)
    }

    proptest! {
        #[test]
        fn encoded_values_are_read_back(
            samples in prop::collection::vec(any_sample(), 1..40), time in any::<Option<i64>>(),
        ) {
            let (layout, payload) = encode(time, &samples);
            prop_assert_eq!(layout.validate(&payload), Ok(()));
            prop_assert_eq!(layout.own_time(&payload), time.map(Timestamp));
            for (i, Sample { field, value }) in samples.iter().enumerate() {
                prop_assert_eq!(layout.is_null(i, &payload), value.is_none());
                prop_assert_eq!(layout.key(i, &payload), value.as_ref().and_then(Value::key));
                let bytes = layout.bytes(i, &payload);
                prop_assert_eq!(bytes.is_none(), value.is_none());
                if field.ty.fixed_bytes().is_some() {
                    prop_assert_eq!(layout.fixed(i, &payload), bytes);
                } else {
                    prop_assert_eq!(layout.fixed(i, &payload), None);
                }
                if let (Some(Value::Bytes(written)), Some(read)) = (value, bytes) {
                    prop_assert_eq!(read.get(..written.len()).unwrap(), written.as_slice());
                    prop_assert!(read.iter().skip(written.len()).all(|&byte| byte == 0));
                }
            }
            prop_assert!(layout.slot(samples.len()).is_none());
            prop_assert!(layout.is_null(samples.len(), &payload));
            prop_assert_eq!(layout.key(samples.len(), &payload), None);
        }

        #[test]
        fn payloads_cut_short_or_foreign_never_panic(
            samples in prop::collection::vec(any_sample(), 0..20),
            time in any::<Option<i64>>(),
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let kind = if time.is_some() { TimeKind::Own } else { TimeKind::Arrival };
            let fields: Vec<FieldDef> = samples.iter().map(|sample| sample.field.clone()).collect();
            let layout = Layout::new(kind, &fields).unwrap();
            let _ = layout.validate(&payload);
            let _ = layout.own_time(&payload);
            let _ = layout.body(&payload);
            for i in 0..=fields.len() {
                let _ = (layout.key(i, &payload), layout.bytes(i, &payload), layout.is_null(i, &payload));
            }
            prop_assert!(layout.var_fields(&payload).map(<[u8]>::len).sum::<usize>() <= payload.len());
        }

        #[test]
        fn a_payload_of_another_length_is_refused(
            samples in prop::collection::vec(any_sample(), 1..20), extra in 1usize..9,
        ) {
            let (layout, mut payload) = encode(None, &samples);
            let short = payload.len().saturating_sub(extra);
            prop_assert!(short == payload.len() || layout.validate(&payload[..short]).is_err());
            payload.resize(payload.len() + extra, 0);
            prop_assert!(layout.validate(&payload).is_err());
        }
    }

    fn refused(ty: FieldType, value: FieldValue) -> String {
        let mut out = vec![7];
        let mut encoder =
            PayloadEncoder::new(TimeKind::Arrival, &[FieldDef::new("f", ty)]).unwrap();
        let error = encoder.encode(None, &[value], &mut out).unwrap_err();
        assert_eq!(out, [7], "nothing is left behind");
        error.to_string()
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        assert_eq!(
            refused(FieldType::U8, FieldValue::U64(256)),
            "field 'f' is u8 and cannot hold 256"
        );
        assert!(refused(FieldType::U64, FieldValue::I64(-1)).contains("cannot hold -1"));
        assert!(refused(FieldType::I64, FieldValue::U64(1 << 63)).contains("cannot hold"));
        assert!(refused(FieldType::I8, FieldValue::F64(1.0)).contains("does not take the float 1"));
        assert!(refused(FieldType::F32, FieldValue::F64(1e39)).contains("cannot hold"));
        assert!(refused(FieldType::Bool, FieldValue::U64(2)).contains("does not take 2"));
        assert!(refused(FieldType::Char(3), FieldValue::Bytes(b"four")).contains("4 bytes"));
        assert!(refused(FieldType::Char(3), FieldValue::Bytes(b"a\0b")).contains("NUL"));
        assert!(refused(FieldType::Bytes(3), FieldValue::Bytes(b"ab")).contains("exactly"));
        assert!(refused(FieldType::Utf8, FieldValue::U64(1)).contains("does not take 1"));
        assert!(refused(FieldType::Utf8, FieldValue::Bytes(&[0; 65_536])).contains("too long"));
        assert!(refused(FieldType::Utf8, FieldValue::Bytes(&[0; 65_527])).contains("too long"));
        assert!(refused(FieldType::U8, FieldValue::Null).contains("is NULL"));
    }

    #[test]
    fn text_may_bring_its_padding() {
        let mut out = Vec::new();
        let fields = [FieldDef::new("f", FieldType::Char(5))];
        let mut encoder = PayloadEncoder::new(TimeKind::Arrival, &fields).unwrap();
        encoder
            .encode(None, &[FieldValue::Bytes(b"ab\0\0")], &mut out)
            .unwrap();
        assert_eq!(out, b"ab\0\0\0");
    }

    #[test]
    fn sources_without_fields_take_any_bytes() {
        let mut encoder = PayloadEncoder::new(TimeKind::Own, &[]).unwrap();
        let mut out = Vec::new();
        encoder
            .encode(Some(Timestamp(-1)), &[FieldValue::Bytes(b"raw")], &mut out)
            .unwrap();
        let layout = encoder.layout();
        assert!(layout.is_raw() && !layout.is_fixed());
        assert_eq!(layout.validate(&out), Ok(()));
        assert_eq!(layout.body(&out), b"raw");
        assert_eq!(layout.own_time(&out), Some(Timestamp(-1)));
        assert!(layout.validate(&out[..7]).is_err());
        assert!(
            encoder
                .encode(None, &[FieldValue::Bytes(b"raw")], &mut out)
                .is_err()
        );
    }

    #[test]
    fn a_payload_is_laid_out_as_the_format_says() {
        let fields = [
            FieldDef::new("a", FieldType::U16),
            FieldDef::nullable("b", FieldType::Utf8),
            FieldDef::nullable("c", FieldType::I32),
            FieldDef::new("d", FieldType::VarBytes),
            FieldDef::nullable("e", FieldType::Bool),
        ];
        let mut encoder = PayloadEncoder::new(TimeKind::Own, &fields).unwrap();
        let values = [
            FieldValue::U64(0x0201),
            FieldValue::Bytes(b"xyz"),
            FieldValue::Null,
            FieldValue::Bytes(b"w"),
            FieldValue::Bool(true),
        ];
        let mut out = Vec::new();
        encoder
            .encode(Some(Timestamp(1)), &values, &mut out)
            .unwrap();
        let expected = [
            &1i64.to_le_bytes()[..],
            &[0b010],
            &[1, 2, 0, 0, 0, 0, 1],
            &[3, 0, 1, 0],
            b"xyzw",
        ]
        .concat();
        assert_eq!(out, expected);
        assert_eq!(
            encoder.layout().slot(3).unwrap().place,
            Place::Var { ordinal: 1 }
        );
        assert_eq!(encoder.layout().slot(2).unwrap().null_bit, Some(1));
    }

    #[test]
    fn bools_are_zero_or_one_unless_null() {
        let fields = [FieldDef::nullable("f", FieldType::Bool)];
        let layout = Layout::new(TimeKind::Arrival, &fields).unwrap();
        assert_eq!(layout.validate(&[0, 1]), Ok(()));
        assert_eq!(layout.validate(&[1, 9]), Ok(()));
        let error = crate::error::PayloadError::NotBool { field: 0, value: 2 };
        assert_eq!(layout.validate(&[0, 2]), Err(error));
    }
}
