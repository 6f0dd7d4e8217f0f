//! Texts in protobuf that are not UTF-8, such as a text that its sender cut within a character: a decoder refuses the whole message for them. Here
//! they are repaired: U+FFFD replaces what is wrong.

use std::cell::Cell;

use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message};

use crate::wire::{Malformed, Value, fields};

/// What a sender learns whose texts were repaired.
pub const REPAIRED: &str = "some texts are not UTF-8: U+FFFD stands for what is wrong; let the sender cut texts between characters";

/// How deep messages may stand in each other: decoders go no deeper either.
const DEPTH_MAX: usize = 100;

/// Which fields of a message are texts, and which are messages that may hold some.
pub(crate) struct Shape {
    texts: &'static [u32],
    messages: &'static [(u32, &'static Shape)],
}

static ANY_VALUE: Shape = Shape {
    texts: &[1],
    messages: &[(5, &ARRAY), (6, &ATTRIBUTES)],
};
static ARRAY: Shape = Shape {
    texts: &[],
    messages: &[(1, &ANY_VALUE)],
};
static KEY_VALUE: Shape = Shape {
    texts: &[1],
    messages: &[(2, &ANY_VALUE)],
};
static ATTRIBUTES: Shape = Shape {
    texts: &[],
    messages: &[(1, &KEY_VALUE)],
};
pub(crate) static SCOPE: Shape = Shape {
    texts: &[1, 2],
    messages: &[(3, &KEY_VALUE)],
};
pub(crate) static LOG: Shape = Shape {
    texts: &[3, 12],
    messages: &[(5, &ANY_VALUE), (6, &KEY_VALUE)],
};
pub(crate) static SPAN: Shape = Shape {
    texts: &[3, 5],
    messages: &[(9, &KEY_VALUE), (11, &EVENT), (13, &LINK), (15, &STATUS)],
};
static EVENT: Shape = Shape {
    texts: &[2],
    messages: &[(3, &KEY_VALUE)],
};
static LINK: Shape = Shape {
    texts: &[3],
    messages: &[(4, &KEY_VALUE)],
};
static STATUS: Shape = Shape {
    texts: &[2],
    messages: &[],
};
pub(crate) static RESOURCE: Shape = Shape {
    texts: &[],
    messages: &[(1, &KEY_VALUE), (3, &ENTITY)],
};
static ENTITY: Shape = Shape {
    texts: &[1, 2, 3, 4],
    messages: &[],
};
/// A data point that is a number or a summary.
pub(crate) static POINT: Shape = Shape {
    texts: &[],
    messages: &[(5, &EXEMPLAR), (7, &KEY_VALUE)],
};
pub(crate) static HISTOGRAM: Shape = Shape {
    texts: &[],
    messages: &[(8, &EXEMPLAR), (9, &KEY_VALUE)],
};
static EXEMPLAR: Shape = Shape {
    texts: &[],
    messages: &[(7, &KEY_VALUE)],
};

/// Decodes a message, repaired where it must be, which `is_repaired` then says.
pub(crate) fn decoded<M: Message + Default>(
    message: &[u8],
    shape: &Shape,
    is_repaired: &Cell<bool>,
) -> Result<M, DecodeError> {
    M::decode(message).or_else(|error| {
        let mut repaired = Vec::with_capacity(message.len());
        if !repair(message, shape, DEPTH_MAX, &mut repaired).is_ok_and(|wrong| wrong) {
            return Err(error);
        }
        let message = M::decode(repaired.as_slice())?;
        is_repaired.set(true);
        Ok(message)
    })
}

/// Copies a message and repairs its texts. True if one was wrong.
fn repair(
    message: &[u8],
    shape: &Shape,
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
        let inner = shape.messages.iter().find(|(inner, _)| *inner == number);
        match (value, inner) {
            (Value::Bytes(text), None) if shape.texts.contains(&number) => {
                let repaired = String::from_utf8_lossy(text);
                is_wrong |= matches!(repaired, std::borrow::Cow::Owned(_));
                put(number, repaired.as_bytes(), out);
            }
            (Value::Bytes(message), Some((_, shape))) if depth > 0 => {
                let mut repaired = Vec::with_capacity(message.len());
                is_wrong |= repair(message, shape, depth - 1, &mut repaired)?;
                put(number, &repaired, out);
            }
            _ => out.extend(before.iter().take(whole)),
        }
    }
}

/// Adds a text, bytes or a message as a field.
pub(crate) fn put(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{
        AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
    };
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::{
        Exemplar, HistogramDataPoint, NumberDataPoint, SummaryDataPoint,
    };
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{Span, Status, span};

    use super::*;

    /// Stands in a text, and in bytes, where it must stay.
    const MARK: &str = "mark";
    const WRONG: &[u8] = b"m\xffrk";

    fn any(value: any_value::Value) -> Option<AnyValue> {
        Some(AnyValue { value: Some(value) })
    }

    /// Attributes with the mark in a key, a text, a list within a list, and bytes that are none.
    fn attributes() -> Vec<KeyValue> {
        let text = || AnyValue {
            value: Some(any_value::Value::StringValue(MARK.to_owned())),
        };
        let values = vec![text()];
        let inner = any_value::Value::ArrayValue(ArrayValue { values });
        let list = any_value::Value::ArrayValue(ArrayValue {
            values: vec![AnyValue { value: Some(inner) }],
        });
        [
            text().value,
            Some(list),
            Some(any_value::Value::BytesValue(vec![1, 0xFF])),
        ]
        .into_iter()
        .flatten()
        .map(|value| KeyValue {
            key: MARK.to_owned(),
            value: any(value),
            ..KeyValue::default()
        })
        .collect()
    }

    /// Makes the texts of a message wrong, repairs it, and compares it with the message whose texts have U+FFFD.
    fn check<M: Message + Default + PartialEq + std::fmt::Debug>(
        message: &M,
        shape: &Shape,
        texts: usize,
    ) {
        let replace = |with: &[u8]| {
            let mut bytes = message.encode_to_vec();
            let mut count = 0;
            for at in 0..bytes.len().saturating_sub(3) {
                if bytes[at..].starts_with(MARK.as_bytes()) {
                    bytes[at..at + 4].copy_from_slice(with);
                    count += 1;
                }
            }
            (bytes, count)
        };
        let (wrong, count) = replace(WRONG);
        assert_eq!(count, texts);
        assert!(M::decode(wrong.as_slice()).is_err());
        let is_repaired = Cell::new(false);
        let repaired: M = decoded(&wrong, shape, &is_repaired).unwrap();
        assert!(is_repaired.get());
        // U+FFFD has three bytes in place of one, so the lengths differ: compare by putting the letter back.
        let shown = format!("{repaired:?}").replace('\u{FFFD}', "a");
        assert_eq!(shown, format!("{message:?}"));
        is_repaired.set(false);
        assert!(decoded::<M>(&message.encode_to_vec(), shape, &is_repaired).unwrap() == *message);
        assert!(!is_repaired.get());
    }

    #[test]
    fn every_text_of_every_message_is_repaired_and_no_byte_of_others_changes() {
        let text = || MARK.to_owned();
        let body = any(any_value::Value::StringValue(text()));
        let ids = (vec![0xFF; 16], vec![0xFE; 8]);
        let log = LogRecord {
            severity_text: text(),
            event_name: text(),
            body,
            attributes: attributes(),
            trace_id: ids.0.clone(),
            time_unix_nano: 7,
            ..LogRecord::default()
        };
        check(&log, &LOG, 8);
        let span = Span {
            trace_id: ids.0.clone(),
            span_id: ids.1,
            trace_state: text(),
            name: text(),
            attributes: attributes(),
            events: vec![span::Event {
                name: text(),
                attributes: attributes(),
                ..span::Event::default()
            }],
            links: vec![span::Link {
                trace_id: ids.0,
                trace_state: text(),
                attributes: attributes(),
                ..span::Link::default()
            }],
            status: Some(Status {
                message: text(),
                code: 2,
            }),
            start_time_unix_nano: 1,
            ..Span::default()
        };
        check(&span, &SPAN, 20);
        let scope = InstrumentationScope {
            name: text(),
            version: text(),
            attributes: attributes(),
            ..InstrumentationScope::default()
        };
        check(&scope, &SCOPE, 7);
        let resource = Resource {
            attributes: attributes(),
            ..Resource::default()
        };
        check(&resource, &RESOURCE, 5);
        let number = NumberDataPoint {
            attributes: attributes(),
            exemplars: vec![Exemplar {
                filtered_attributes: attributes(),
                ..Exemplar::default()
            }],
            time_unix_nano: 3,
            ..NumberDataPoint::default()
        };
        check(&number, &POINT, 10);
        let histogram = HistogramDataPoint {
            attributes: attributes(),
            bucket_counts: vec![1, 2],
            explicit_bounds: vec![0.5],
            ..HistogramDataPoint::default()
        };
        check(&histogram, &HISTOGRAM, 5);
        let summary = SummaryDataPoint {
            attributes: attributes(),
            count: 3,
            ..SummaryDataPoint::default()
        };
        check(&summary, &POINT, 5);
    }

    #[test]
    fn what_is_wrong_in_another_way_stays_an_error() {
        let cut = &LogRecord {
            severity_text: MARK.to_owned(),
            ..LogRecord::default()
        }
        .encode_to_vec()[..3];
        let is_repaired = Cell::new(false);
        assert!(decoded::<LogRecord>(cut, &LOG, &is_repaired).is_err());
        assert!(!is_repaired.get());
    }
}
