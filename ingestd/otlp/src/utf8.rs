//! Repairs texts in protobuf that are not UTF-8, such as a text that its sender cut within a character. A decoder would refuse the whole message.
//! U+FFFD replaces each wrong part.

use std::borrow::Cow;
use std::cell::Cell;

use prost::{DecodeError, Message};
use prost_types::field_descriptor_proto::Type;

use crate::schema;
use crate::wire::{Malformed, Value, fields, put};

/// The remark for a sender whose texts were repaired.
pub const REPAIRED: &str = "some texts are not UTF-8: U+FFFD replaces the wrong parts; let the sender cut texts between characters";

/// The limit of nested messages; decoders have the same.
const DEPTH_MAX: usize = 100;

/// Decodes a message with a name of the schema, and repairs it if needed; `is_repaired` is then set.
pub(crate) fn decoded<M: Message + Default>(
    message: &[u8],
    name: &str,
    is_repaired: &Cell<bool>,
) -> Result<M, DecodeError> {
    M::decode(message).or_else(|error| {
        let schema = schema::Message::named(name);
        let mut repaired = Vec::with_capacity(message.len());
        if !repair(message, schema, DEPTH_MAX, &mut repaired).is_ok_and(|wrong| wrong) {
            return Err(error);
        }
        let message = M::decode(repaired.as_slice())?;
        is_repaired.set(true);
        Ok(message)
    })
}

/// Copies a message and repairs its texts. Returns whether one was wrong.
fn repair(
    message: &[u8],
    schema: &schema::Message,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let mut is_wrong = false;
    let mut all = fields(message);
    loop {
        let before = all.rest();
        let Some(field) = all.next() else {
            return Ok(is_wrong);
        };
        let (number, value) = field?;
        let whole = before.len() - all.rest().len();
        let known = schema.fields.iter().find(|field| field.number == number);
        match (value, known.map(|field| (field.ty, field.message()))) {
            (Value::Bytes(text), Some((Type::String, _))) => {
                let repaired = String::from_utf8_lossy(text);
                is_wrong |= matches!(repaired, Cow::Owned(_));
                put(number, repaired.as_bytes(), out);
            }
            (Value::Bytes(message), Some((_, Some(schema)))) if depth > 0 => {
                let mut repaired = Vec::with_capacity(message.len());
                is_wrong |= repair(message, schema, depth - 1, &mut repaired)?;
                put(number, &repaired, out);
            }
            _ => out.extend(before.iter().take(whole)),
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::trace::v1::{Span, Status, span};

    use super::*;

    /// The mark is in a text, and in bytes, where it must stay.
    const MARK: &str = "mark";
    const WRONG: &[u8] = b"m\xffrk";

    fn text() -> AnyValue {
        let value = Some(any_value::Value::StringValue(MARK.to_owned()));
        AnyValue { value }
    }

    /// There is a mark in a key, and one in a text in a list, beside bytes that are not a text.
    fn attributes() -> Vec<KeyValue> {
        let bytes = Some(any_value::Value::BytesValue(vec![1, 0xFF]));
        let values = vec![text(), AnyValue { value: bytes }];
        let list = any_value::Value::ArrayValue(ArrayValue { values });
        vec![KeyValue {
            key: MARK.to_owned(),
            value: Some(AnyValue { value: Some(list) }),
            ..KeyValue::default()
        }]
    }

    #[test]
    fn every_text_of_a_message_is_repaired_and_no_byte_of_others_changes() {
        let span = Span {
            trace_id: vec![0xFF; 16],
            trace_state: MARK.to_owned(),
            name: MARK.to_owned(),
            attributes: attributes(),
            events: vec![span::Event {
                name: MARK.to_owned(),
                attributes: attributes(),
                ..span::Event::default()
            }],
            status: Some(Status {
                message: MARK.to_owned(),
                code: 2,
            }),
            start_time_unix_nano: 1,
            ..Span::default()
        };
        let mut wrong = span.encode_to_vec();
        let mut marks = 0;
        for at in 0..wrong.len() - 3 {
            if wrong[at..].starts_with(MARK.as_bytes()) {
                wrong[at..at + 4].copy_from_slice(WRONG);
                marks += 1;
            }
        }
        assert_eq!(marks, 8);
        assert!(Span::decode(wrong.as_slice()).is_err());
        let is_repaired = Cell::new(false);
        let repaired: Span = decoded(&wrong, "trace.v1.Span", &is_repaired).unwrap();
        assert!(is_repaired.get());
        // U+FFFD has three bytes instead of one, so the lengths differ. The comparison puts the letter back.
        let shown = format!("{repaired:?}").replace('\u{FFFD}', "a");
        assert_eq!(shown, format!("{span:?}"));
        is_repaired.set(false);
        let sound: Span = decoded(&span.encode_to_vec(), "trace.v1.Span", &is_repaired).unwrap();
        assert!(sound == span && !is_repaired.get());
    }

    #[test]
    fn what_is_wrong_in_another_way_stays_an_error() {
        let whole = Span {
            name: MARK.to_owned(),
            ..Span::default()
        };
        let whole = whole.encode_to_vec();
        let is_repaired = Cell::new(false);
        assert!(decoded::<Span>(&whole[..3], "trace.v1.Span", &is_repaired).is_err());
        assert!(!is_repaired.get());
    }
}
