//! Which pieces the payloads of a layout consist of, for column segments: how they are taken apart, and which pieces a field needs.

use std::ops::Range;

use super::field::FieldType;
use super::layout::{Layout, Place};
use crate::format::{Piece, PieceKind, Template, Wanted};
use crate::proven::at_mut;
use crate::types::SourceId;

/// The pieces of one layout of a source.
pub struct Pieces {
    template: Template,
    /// Own time and null bits come first.
    first: usize,
    /// The pieces of each field; `None` for those of variable length.
    of_fields: Vec<Option<Range<usize>>>,
}

impl Pieces {
    pub fn of(source: SourceId, layout: &Layout) -> Pieces {
        let mut pieces = Vec::new();
        if layout.has_own_time() {
            pieces.push(piece(8, PieceKind::Signed));
        }
        put_numbers(&mut pieces, layout.null_bytes());
        let first = pieces.len();
        let mut of_fields = Vec::with_capacity(layout.field_count());
        let mut lengths = 0;
        for slot in layout.slots() {
            let (Place::Fixed { .. }, Some(bytes)) = (slot.place, slot.ty.fixed_bytes()) else {
                lengths += 1;
                of_fields.push(None);
                continue;
            };
            let start = pieces.len();
            match kind_of(slot.ty) {
                PieceKind::Number => put_numbers(&mut pieces, bytes),
                kind => pieces.push(piece(bytes, kind)),
            }
            of_fields.push(Some(start..pieces.len()));
        }
        pieces.extend(std::iter::repeat_n(piece(2, PieceKind::Length), lengths));
        Pieces {
            template: Template {
                source,
                pieces,
                has_rest: layout.is_raw(),
            },
            first,
            of_fields,
        }
    }

    /// How payloads are taken apart.
    pub fn template(&self) -> &Template {
        &self.template
    }

    pub fn into_template(self) -> Template {
        self.template
    }

    /// The piece that a field is, if it is one.
    pub fn of_field(&self, field: usize) -> Option<usize> {
        let pieces = self.of_fields.get(field)?.clone()?;
        (pieces.len() == 1).then_some(pieces.start)
    }

    /// What must be there of a payload so that these fields can be read, and the own time; `None`: all of it.
    pub fn wanted(&self, fields: Option<&[usize]>) -> Wanted {
        let mut wanted = Wanted {
            pieces: vec![fields.is_none(); self.template.pieces.len()],
            tails: fields.is_none(),
        };
        at_mut(&mut wanted.pieces, ..self.first).fill(true);
        for field in fields.into_iter().flatten() {
            match self.of_fields.get(*field) {
                Some(Some(pieces)) => at_mut(&mut wanted.pieces, pieces.clone()).fill(true),
                // It is found by the lengths of those before it.
                Some(None) => {
                    wanted.tails = true;
                    for (wanted, piece) in wanted.pieces.iter_mut().zip(&self.template.pieces) {
                        *wanted |= piece.kind == PieceKind::Length;
                    }
                }
                // The layout is older than the field, which is NULL.
                None => {}
            }
        }
        wanted
    }
}

fn piece(bytes: usize, kind: PieceKind) -> Piece {
    Piece {
        bytes: bytes as u8,
        kind,
    }
}

/// Bytes as numbers of 8 bytes, and one of what is left.
fn put_numbers(pieces: &mut Vec<Piece>, bytes: usize) {
    pieces.extend(std::iter::repeat_n(piece(8, PieceKind::Number), bytes / 8));
    if !bytes.is_multiple_of(8) {
        pieces.push(piece(bytes % 8, PieceKind::Number));
    }
}

fn kind_of(ty: FieldType) -> PieceKind {
    match ty {
        FieldType::I8
        | FieldType::I16
        | FieldType::I32
        | FieldType::I64
        | FieldType::TimestampNs => PieceKind::Signed,
        FieldType::F32 | FieldType::F64 => PieceKind::Float,
        _ => PieceKind::Number,
    }
}
