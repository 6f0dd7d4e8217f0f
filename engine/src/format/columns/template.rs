//! Which pieces the payloads of a source consist of, as an encoder needs to know it and a unit describes it.

use super::codec::Cursor;
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::record::record_bytes;
use crate::types::SourceId;

/// What a piece of a payload means for its encoding; the bytes are the same whatever it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PieceKind {
    /// An unsigned number, bits, text: anything.
    Number = 0,
    Signed = 1,
    /// 4 or 8 bytes.
    Float = 2,
    /// The length of bytes that follow all pieces, in the order of their lengths.
    Length = 3,
}

/// 1 to 8 bytes of a payload, which are a column of their own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub bytes: u8,
    pub kind: PieceKind,
}

impl Piece {
    /// As for the encoding of numbers.
    pub(super) fn float_bytes(&self) -> Option<u8> {
        (self.kind == PieceKind::Float).then_some(self.bytes)
    }
}

/// The payloads of a source: pieces in order, then the bytes that their lengths announce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    pub source: SourceId,
    pub pieces: Vec<Piece>,
    /// The payload goes on with any bytes to its end; no piece is a length then.
    pub has_rest: bool,
}

impl Template {
    /// Bytes of the pieces.
    pub fn fixed_bytes(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| usize::from(piece.bytes))
            .sum()
    }

    /// How many strings of bytes follow the pieces.
    pub fn tails(&self) -> usize {
        let lengths = self.pieces.iter();
        lengths
            .filter(|piece| piece.kind == PieceKind::Length)
            .count()
            + usize::from(self.has_rest)
    }

    /// How many blocks a row group has: its arrivals come first, and all strings count as one, the last.
    pub(super) fn blocks(&self) -> usize {
        1 + self.pieces.len() + usize::from(self.has_rest) + usize::from(self.tails() > 0)
    }

    /// The least a record takes of a chunk.
    pub(super) fn record_bytes_least(&self) -> usize {
        record_bytes(self.fixed_bytes())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_leb128(out, self.source.0.into());
        self.encode_pieces(out);
    }

    /// The same without the source.
    pub(super) fn encode_pieces(&self, out: &mut Vec<u8>) {
        put_leb128(
            out,
            (self.pieces.len() as u64) << 1 | u64::from(self.has_rest),
        );
        let pieces = self.pieces.iter();
        out.extend(pieces.map(|piece| piece.bytes | (piece.kind as u8) << 4));
    }

    pub(super) fn decode(head: &mut Cursor<'_>) -> Result<Template, FormatError> {
        let source = source_of(head)?;
        Template::decode_pieces(head, source)
    }

    /// What [`Template::encode_pieces`] wrote.
    pub(super) fn decode_pieces(
        head: &mut Cursor<'_>,
        source: SourceId,
    ) -> Result<Template, FormatError> {
        let (has_rest, pieces) = pieces_of(head)?;
        let pieces = pieces.iter().map(|byte| piece_of(*byte));
        let template = Template {
            source,
            pieces: pieces.collect::<Result<_, _>>()?,
            has_rest,
        };
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

/// What a template means for its rows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct TemplateSize {
    /// The least a record takes of a chunk.
    pub record_bytes_least: usize,
    /// Of a row group.
    pub blocks: usize,
}

/// Checks templates one behind the other: most sources of a unit have the pieces of the one before.
#[derive(Default)]
pub(super) struct TemplateCheck<'a> {
    /// The last one that was decoded: whether it goes on, its pieces, and what is known of it.
    known: Option<(bool, &'a [u8], TemplateSize)>,
}

impl<'a> TemplateCheck<'a> {
    /// Passes over the next template.
    pub fn pass(&mut self, head: &mut Cursor<'a>) -> Result<(SourceId, TemplateSize), FormatError> {
        let mut ahead = head.clone();
        let source = source_of(&mut ahead)?;
        let (has_rest, pieces) = pieces_of(&mut ahead)?;
        match self.known {
            Some((known_rest, known, size)) if (known_rest, known) == (has_rest, pieces) => {
                *head = ahead;
                Ok((source, size))
            }
            _ => {
                let template = Template::decode(head)?;
                let size = TemplateSize {
                    record_bytes_least: template.record_bytes_least(),
                    blocks: template.blocks(),
                };
                self.known = Some((has_rest, pieces, size));
                Ok((source, size))
            }
        }
    }
}

fn source_of(head: &mut Cursor<'_>) -> Result<SourceId, FormatError> {
    let source = head.number()?;
    match u16::try_from(source) {
        Ok(source) if source > 0 => Ok(SourceId(source)),
        _ => invalid("the source of a unit's stream", source),
    }
}

/// Whether a template has a rest, and its pieces.
fn pieces_of<'a>(head: &mut Cursor<'a>) -> Result<(bool, &'a [u8]), FormatError> {
    let count = head.number()?;
    let bytes = usize::try_from(count >> 1).unwrap_or(usize::MAX);
    Ok((count & 1 == 1, head.bytes(bytes)?))
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

    /// Bytes that are often a template.
    fn described() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![8 => Just(0x28u8), 2 => Just(8), 1 => Just(0x32), 1 => any::<u8>()];
        let pieces = prop::collection::vec(piece, 0..4);
        (0..4u8, any::<bool>(), pieces).prop_map(|(source, has_rest, pieces)| {
            let count = (pieces.len() as u8) << 1 | u8::from(has_rest);
            [source, count].into_iter().chain(pieces).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_passed_over_is_what_would_be_decoded(all in prop::collection::vec(described(), 0..6), cut in 0..3usize) {
            let bytes = all.concat();
            let bytes = at(&bytes, ..bytes.len().saturating_sub(cut));
            let (mut passed, mut decoded) = (Cursor::new(bytes), Cursor::new(bytes));
            let mut check = TemplateCheck::default();
            for _ in &all {
                let found = check.pass(&mut passed).ok();
                let wanted = Template::decode(&mut decoded).ok();
                let found = found.map(|(source, size)| (source, size.record_bytes_least, size.blocks));
                prop_assert_eq!(found, wanted.map(|template| (template.source, template.record_bytes_least(), template.blocks())));
                if found.is_none() {
                    break;
                }
                prop_assert_eq!(passed.rest(), decoded.rest());
            }
        }
    }
}
