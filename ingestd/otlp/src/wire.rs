//! The fields of one protobuf message. Nothing is copied, and nothing is allocated for a claimed length.

use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// Bytes are not a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Malformed {
    #[error("the request is not OTLP in protobuf: {0}")]
    Protobuf(#[from] DecodeError),
    #[error("the request is not OTLP in protobuf: field {0} claims {1} bytes, and {2} are left")]
    Cut(u32, u64, usize),
    #[error("the request is not OTLP in JSON: {0}")]
    Json(String),
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    Other,
}

pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// The number and value of each field of a message.
pub(crate) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// The messages in one field, in their order.
pub(crate) fn messages(
    message: &[u8],
    field: u32,
) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    fields(message).filter_map(move |found| match found {
        Ok((number, Value::Bytes(bytes))) if number == field => Some(Ok(bytes)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    /// The rest.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let (number, wire_type) = decode_key(&mut self.rest)?;
        let value = match wire_type {
            WireType::Varint => Value::Number(decode_varint(&mut self.rest)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest)?;
                let cut = usize::try_from(length)
                    .ok()
                    .and_then(|length| self.rest.split_at_checked(length));
                let (bytes, rest) = cut.ok_or(Malformed::Cut(number, length, self.rest.len()))?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            _ => {
                skip_field(wire_type, number, &mut self.rest, DecodeContext::default())?;
                Value::Other
            }
        };
        Ok((number, value))
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
    use super::*;

    #[test]
    fn fields_come_as_they_stand() {
        // 1: 150; 2: "testing"; 3: 64 bits; 4: 32 bits; 2: "".
        let message = b"\x08\x96\x01\x12\x07testing\x19ABCDEFGH\x25ABCD\x12\x00";
        let found: Result<Vec<_>, _> = fields(message).collect();
        let wanted = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"testing")),
            (3, Value::Other),
            (4, Value::Other),
            (2, Value::Bytes(b"")),
        ];
        assert_eq!(found.unwrap(), wanted);
        let texts: Result<Vec<_>, _> = messages(message, 2).collect();
        assert_eq!(texts.unwrap(), [&b"testing"[..], b""]);
    }

    // case Metrics: requests that are cut, nested deep, packed bombs, too long, of another format or path
    #[test]
    fn a_message_that_was_cut_ends_with_an_error() {
        let message = b"\x08\x96\x01\x12\x07testing\x19ABCDEFGH";
        for end in 1..message.len() {
            let cut = fields(&message[..end]).collect::<Vec<_>>();
            let is_whole = [3, 12].contains(&end);
            assert_eq!(cut.last().unwrap().is_ok(), is_whole, "{end}");
        }
        let huge = b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
        let error = fields(huge).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("and 0 are left"), "{error}");
    }
}
