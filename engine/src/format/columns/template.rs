//! Which pieces the payloads of a source consist of, as an encoder needs to know it and a unit describes it.

use super::numbers::Blocks;
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
    pub(super) fn tails(&self) -> usize {
        let lengths = self.pieces.iter();
        lengths
            .filter(|piece| piece.kind == PieceKind::Length)
            .count()
            + usize::from(self.has_rest)
    }

    /// The least a record takes of a chunk.
    pub(super) fn record_bytes_least(&self) -> usize {
        record_bytes(self.fixed_bytes())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_leb128(out, self.source.0.into());
        put_leb128(
            out,
            (self.pieces.len() as u64) << 1 | u64::from(self.has_rest),
        );
        let pieces = self.pieces.iter();
        out.extend(pieces.map(|piece| piece.bytes | (piece.kind as u8) << 4));
    }

    pub(super) fn decode(head: &mut Blocks<'_>) -> Result<Template, FormatError> {
        let source = head.number()?;
        let Some(source) = u16::try_from(source).ok().filter(|source| *source > 0) else {
            return invalid("the source of a unit's stream", source);
        };
        let count = head.number()?;
        let has_rest = count & 1 == 1;
        let count = usize::try_from(count >> 1).unwrap_or(usize::MAX);
        let pieces: Result<Vec<Piece>, FormatError> = head
            .bytes(count)?
            .iter()
            .map(|byte| piece_of(*byte))
            .collect();
        let template = Template {
            source: SourceId(source),
            pieces: pieces?,
            has_rest,
        };
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
