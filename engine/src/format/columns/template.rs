//! The pieces of a source's payloads, which an encoder needs and a unit describes.

use std::sync::Arc;

use super::codec::Cursor;
use super::zone::{FieldPlace, ZoneKind};
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::record::record_bytes;
use crate::types::SourceId;

/// The meaning of a piece for its encoding. It does not change the decoded bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PieceKind {
    /// An unsigned number, bits, text or anything else.
    Number = 0,
    Signed = 1,
    /// 4 or 8 bytes.
    Float = 2,
    /// The length of bytes that follow all pieces, in the order of their lengths.
    Length = 3,
}

/// 1 to 8 bytes of a payload with a column of their own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub bytes: u8,
    pub kind: PieceKind,
}

impl Piece {
    /// The float bytes for the encoding of numbers.
    pub(super) fn float_bytes(&self) -> Option<u8> {
        (self.kind == PieceKind::Float).then_some(self.bytes)
    }
}

/// The payloads of a source: pieces in order, then the bytes that their lengths announce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    pub source: SourceId,
    pub pieces: Vec<Piece>,
    /// The payload continues with any bytes to its end; then no piece is a length.
    pub has_rest: bool,
    /// The fields that have zones in a unit.
    pub fields: Arc<[FieldPlace]>,
}

impl Template {
    /// Bytes of all pieces.
    pub fn fixed_bytes(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| usize::from(piece.bytes))
            .sum()
    }

    /// The number of strings behind the pieces.
    pub fn tails(&self) -> usize {
        let lengths = self.pieces.iter();
        lengths
            .filter(|piece| piece.kind == PieceKind::Length)
            .count()
            + usize::from(self.has_rest)
    }

    /// The number of blocks in a row group: the arrivals come first, and all strings count as one, the last.
    pub(super) fn blocks(&self) -> usize {
        1 + self.pieces.len() + usize::from(self.has_rest) + usize::from(self.tails() > 0)
    }

    /// The least bytes of a record in a chunk.
    pub(super) fn record_bytes_least(&self) -> usize {
        record_bytes(self.fixed_bytes())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_leb128(out, self.source.0.into());
        self.encode_shape(out);
    }

    /// Appends it without the source.
    pub(super) fn encode_shape(&self, out: &mut Vec<u8>) {
        put_leb128(
            out,
            (self.pieces.len() as u64) << 1 | u64::from(self.has_rest),
        );
        let pieces = self.pieces.iter();
        out.extend(pieces.map(|piece| piece.bytes | (piece.kind as u8) << 4));
        let mut fields = Vec::new();
        self.fields
            .iter()
            .for_each(|field| field.encode(&mut fields));
        put_leb128(out, fields.len() as u64);
        out.extend_from_slice(&fields);
    }

    /// Returns the order of a field's values.
    ///
    /// # Panics
    /// Panics if the field is not one of the template's.
    pub(super) fn zone_kind(&self, field: &FieldPlace) -> ZoneKind {
        let kind = self.order_of(field);
        kind.expect("fields stand in the pieces of their template")
    }

    /// Returns the order of a field's values; `None` if no payload of the template can hold the field.
    fn order_of(&self, field: &FieldPlace) -> Option<ZoneKind> {
        let piece = self.pieces.get(usize::from(field.piece))?;
        if let Some((null, _)) = field.null
            && self.pieces.get(usize::from(null))?.kind != PieceKind::Number
        {
            return None;
        }
        Some(match (piece.kind, field.is_text) {
            (PieceKind::Number, true) => ZoneKind::Text,
            (PieceKind::Number, false) => ZoneKind::Unsigned,
            (PieceKind::Signed, false) => ZoneKind::Signed,
            (PieceKind::Float, false) => ZoneKind::Float(piece.bytes),
            (PieceKind::Length, false) => ZoneKind::String,
            (PieceKind::Signed | PieceKind::Float | PieceKind::Length, true) => return None,
        })
    }

    /// Returns the order of each field.
    pub(super) fn zone_kinds(&self) -> Vec<ZoneKind> {
        let fields = self.fields.iter();
        fields.map(|field| self.zone_kind(field)).collect()
    }

    pub(super) fn decode(head: &mut Cursor<'_>) -> Result<Template, FormatError> {
        let source = source_of(head)?;
        Template::decode_shape(head, source)
    }

    /// Decodes the bytes of [`Template::encode_shape`].
    pub(super) fn decode_shape(
        head: &mut Cursor<'_>,
        source: SourceId,
    ) -> Result<Template, FormatError> {
        let described = Described::take(head)?;
        let has_rest = described.has_rest;
        let pieces = described.pieces.iter().map(|byte| piece_of(*byte));
        let mut left = Cursor::new(described.fields);
        let mut fields = Vec::new();
        while !left.rest().is_empty() {
            fields.push(FieldPlace::decode(&mut left)?);
        }
        let template = Template {
            source,
            pieces: pieces.collect::<Result<_, _>>()?,
            has_rest,
            fields: fields.into(),
        };
        let mut places = template.fields.iter();
        if let Some(wrong) = places.find(|field| template.order_of(field).is_none()) {
            return invalid("the piece of a field", wrong.piece.into());
        }
        let fixed_bytes = template.fixed_bytes();
        if fixed_bytes > usize::from(u16::MAX) {
            return invalid("the length of a stream's pieces", fixed_bytes as u64);
        }
        let lengths = template.tails() - usize::from(has_rest);
        if has_rest && lengths > 0 {
            return invalid(
                "the lengths of a stream whose payloads end in anything",
                lengths as u64,
            );
        }
        Ok(template)
    }
}

/// Sizes of the rows of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TemplateSize {
    /// The least bytes of a record in a chunk.
    pub record_bytes_least: usize,
    /// Blocks of a row group.
    pub blocks: usize,
    pub zones: Vec<ZoneKind>,
}

/// A template without its source, as a head stores it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Described<'a> {
    has_rest: bool,
    pieces: &'a [u8],
    fields: &'a [u8],
}

impl<'a> Described<'a> {
    pub fn take(head: &mut Cursor<'a>) -> Result<Described<'a>, FormatError> {
        let bytes = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let count = head.number()?;
        let pieces = head.bytes(bytes(count >> 1))?;
        let fields = head.number()?;
        Ok(Described {
            has_rest: count & 1 == 1,
            pieces,
            fields: head.bytes(bytes(fields))?,
        })
    }
}

/// Checks consecutive templates: most sources of a unit have the pieces of the one before.
#[derive(Default)]
pub(super) struct TemplateCheck<'a> {
    /// The template that was decoded last, and its sizes.
    known: Option<(Described<'a>, TemplateSize)>,
}

impl<'a> TemplateCheck<'a> {
    /// Passes over the next template.
    pub fn pass(
        &mut self,
        head: &mut Cursor<'a>,
    ) -> Result<(SourceId, &TemplateSize), FormatError> {
        let mut ahead = head.clone();
        let source = source_of(&mut ahead)?;
        let described = Described::take(&mut ahead)?;
        let known = self.known.take();
        let known = match known.filter(|(known, _)| *known == described) {
            Some(known) => {
                *head = ahead;
                known
            }
            None => {
                let template = Template::decode(head)?;
                let size = TemplateSize {
                    record_bytes_least: template.record_bytes_least(),
                    blocks: template.blocks(),
                    zones: template.zone_kinds(),
                };
                (described, size)
            }
        };
        let (_, size) = self.known.insert(known);
        Ok((source, size))
    }
}

fn source_of(head: &mut Cursor<'_>) -> Result<SourceId, FormatError> {
    let source = head.number()?;
    match u16::try_from(source) {
        Ok(source) if source > 0 => Ok(SourceId(source)),
        _ => invalid("the source of a unit's stream", source),
    }
}

fn piece_of(byte: u8) -> Result<Piece, FormatError> {
    let (bytes, kind) = (byte & 15, byte >> 4);
    let kind = match (kind, bytes) {
        (0, 1..=8) => PieceKind::Number,
        (1, 1..=8) => PieceKind::Signed,
        (2, 4 | 8) => PieceKind::Float,
        (3, 2) => PieceKind::Length,
        _ => return invalid("a piece of a payload", byte.into()),
    };
    Ok(Piece { bytes, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proven::at;
    use proptest::prelude::*;

    /// Generates bytes that are often a template.
    fn described() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![8 => Just(0x28u8), 2 => Just(8), 1 => Just(0x32), 1 => any::<u8>()];
        let pieces = prop::collection::vec(piece, 0..4);
        let fields = prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => 0..16u8], 0..3);
        (0..4u8, any::<bool>(), pieces, fields).prop_map(|(source, has_rest, pieces, fields)| {
            let count = (pieces.len() as u8) << 1 | u8::from(has_rest);
            let fields_bytes = [fields.len() as u8];
            [[source, count].as_slice(), &pieces, &fields_bytes, &fields].concat()
        })
    }

    proptest! {
        #[test]
        fn a_skipped_template_ends_where_its_decoding_ends(all in prop::collection::vec(described(), 0..6), cut in 0..3usize) {
            let bytes = all.concat();
            let bytes = at(&bytes, ..bytes.len().saturating_sub(cut));
            let (mut passed, mut decoded) = (Cursor::new(bytes), Cursor::new(bytes));
            let mut check = TemplateCheck::default();
            for _ in &all {
                let found = check.pass(&mut passed).ok();
                let wanted = Template::decode(&mut decoded).ok();
                let found = found.map(|(source, size)| (source, size.clone()));
                let wanted = wanted.map(|template| {
                    let size = TemplateSize {
                        record_bytes_least: template.record_bytes_least(),
                        blocks: template.blocks(),
                        zones: template.zone_kinds(),
                    };
                    (template.source, size)
                });
                let is_none = found.is_none();
                prop_assert_eq!(found, wanted);
                if is_none {
                    break;
                }
                prop_assert_eq!(passed.rest(), decoded.rest());
            }
        }
    }
}
