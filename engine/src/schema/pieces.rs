//! The pieces of a layout's payloads in units: how payloads are split, and which pieces a field needs.

use std::ops::Range;

use super::field::FieldType;
use super::layout::{Layout, Place};
use crate::format::{FieldPlace, Piece, PieceKind, Template, Wanted};
use crate::proven::at_mut;
use crate::types::SourceId;

/// The pieces of one layout of a source.
pub struct Pieces {
    template: Template,
    /// The number of pieces for own time and null bits, which come first.
    first: usize,
    has_own_time: bool,
    of_fields: Vec<FieldPieces>,
}

/// The pieces that hold a field's values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldPieces {
    /// Pieces of 8 bytes each; the last one has the rest.
    Fixed(Range<usize>),
    /// The n-th string after the pieces, from 0.
    Strings(usize),
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
                of_fields.push(FieldPieces::Strings(lengths));
                lengths += 1;
                continue;
            };
            let start = pieces.len();
            match kind_of(slot.ty) {
                PieceKind::Number => put_numbers(&mut pieces, bytes),
                kind => pieces.push(piece(bytes, kind)),
            }
            of_fields.push(FieldPieces::Fixed(start..pieces.len()));
        }
        let first_length = pieces.len();
        pieces.extend(std::iter::repeat_n(piece(2, PieceKind::Length), lengths));
        let fields = layout.slots().iter().zip(&of_fields);
        let fields = fields.map(|(slot, of_field)| FieldPlace {
            piece: match of_field {
                FieldPieces::Fixed(pieces) => pieces.start,
                FieldPieces::Strings(nth) => first_length + nth,
            } as u16,
            is_text: matches!(slot.ty, FieldType::Char(_) | FieldType::Bytes(_)),
            null: slot.null_bit.map(|bit| {
                let (piece, bit) = null_place(layout.has_own_time(), bit);
                (piece as u16, bit as u8)
            }),
        });
        Pieces {
            template: Template {
                source,
                pieces,
                has_rest: layout.is_raw(),
                fields: fields.collect(),
            },
            first,
            has_own_time: layout.has_own_time(),
            of_fields,
        }
    }

    /// The template by which payloads are split.
    pub fn template(&self) -> &Template {
        &self.template
    }

    pub fn into_template(self) -> Template {
        self.template
    }

    /// The pieces that hold a field's values; `None` if the layout is older than the field.
    pub fn of_field(&self, field: usize) -> Option<&FieldPieces> {
        self.of_fields.get(field)
    }

    /// The piece that holds a field's numbers, if a single one does.
    pub fn of_number(&self, field: usize) -> Option<usize> {
        match self.of_field(field)? {
            FieldPieces::Fixed(pieces) if pieces.len() == 1 => Some(pieces.start),
            _ => None,
        }
    }

    /// The piece with the records' own time.
    pub fn of_time(&self) -> Option<usize> {
        self.has_own_time.then_some(0)
    }

    /// The piece that holds a null bit, and the number of the bit in it.
    pub fn of_null_bit(&self, bit: u32) -> (usize, u32) {
        null_place(self.has_own_time, bit)
    }

    /// The columns that must be read for the values of these fields, and for the times.
    pub fn wanted_columns(&self, fields: &[usize], times: bool) -> Wanted {
        let mut wanted = Wanted {
            arrivals: times && !self.has_own_time,
            lengths: false,
            pieces: vec![false; self.template.pieces.len()],
            tails: vec![false; self.template.tails()],
        };
        at_mut(&mut wanted.pieces, ..usize::from(self.has_own_time)).fill(times);
        for field in fields {
            self.want_nulls(&mut wanted);
            match self.of_field(*field) {
                Some(FieldPieces::Fixed(pieces)) => {
                    at_mut(&mut wanted.pieces, pieces.clone()).fill(true);
                }
                Some(FieldPieces::Strings(nth)) => *at_mut(&mut wanted.tails, *nth) = true,
                // The field is NULL, and needs nothing.
                None => {}
            }
        }
        wanted
    }

    /// Adds the columns that hold the null bits.
    pub fn want_nulls(&self, wanted: &mut Wanted) {
        let nulls = usize::from(self.has_own_time)..self.first;
        at_mut(&mut wanted.pieces, nulls).fill(true);
    }
}

/// The piece that holds a null bit, and the number of the bit in it.
fn null_place(has_own_time: bool, bit: u32) -> (usize, u32) {
    (usize::from(has_own_time) + bit as usize / 64, bit % 64)
}

fn piece(bytes: usize, kind: PieceKind) -> Piece {
    Piece {
        bytes: bytes as u8,
        kind,
    }
}

/// Adds numbers of 8 bytes, and one for the rest.
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
