//! The rows of a row group, decoded as far as they are wanted.
//!
//! Foreign bytes: a section is verified before it is decoded, and what verifies may still claim anything, which ends in an error.

use std::ops::Range;

use super::bits::accumulate;
use super::encode::TailForm;
use super::head::{Group, Head, Section, Stream, section_checksum};
use super::numbers::Blocks;
use super::template::{PieceKind, Template};
use crate::format::bytes::{FormatError, invalid};
use crate::proven::at;
use crate::types::Address;

/// The rows of the group of a stream that was decoded last, as far as they are.
#[derive(Debug, Default)]
pub struct Rows {
    /// Which group; `None`: the rows mean nothing.
    group: Option<usize>,
    has: Wanted,
    pub arrivals: Vec<u64>,
    pub pieces: Vec<Vec<u64>>,
    pub tails: Vec<Tail>,
}

/// What of a stream's rows is wanted. Lengths always are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// For each piece.
    pub pieces: Vec<bool>,
    /// The bytes behind the pieces.
    pub tails: bool,
}

impl Wanted {
    pub fn all(template: &Template) -> Wanted {
        Wanted {
            pieces: vec![true; template.pieces.len()],
            tails: true,
        }
    }

    pub fn lengths() -> Wanted {
        Wanted::default()
    }

    pub fn piece(&self, nth: usize) -> bool {
        self.pieces.get(nth).copied().unwrap_or(false)
    }

    fn covers(&self, other: &Wanted) -> bool {
        let mut pieces = (0..other.pieces.len()).filter(|nth| other.piece(*nth));
        (self.tails || !other.tails) && pieces.all(|nth| self.piece(nth))
    }

    fn and(&self, other: &Wanted) -> Wanted {
        let count = self.pieces.len().max(other.pieces.len());
        Wanted {
            pieces: (0..count)
                .map(|nth| self.piece(nth) || other.piece(nth))
                .collect(),
            tails: self.tails || other.tails,
        }
    }
}

/// Strings of bytes: string `i` ends at `ends[i]` and begins where the one before ends.
#[derive(Debug, Default)]
pub struct Tail {
    ends: Vec<u64>,
    bytes: Vec<u8>,
    /// Of all strings, once the ends are known to fit.
    all_bytes: usize,
}

impl Tail {
    pub fn of(&self, row: usize) -> &[u8] {
        at(&self.bytes, self.place(row))
    }

    pub fn length(&self, row: usize) -> usize {
        self.place(row).len()
    }

    fn place(&self, row: usize) -> Range<usize> {
        let start = match row {
            0 => 0,
            _ => *at(&self.ends, row - 1),
        };
        start as usize..*at(&self.ends, row) as usize
    }
}

/// The bytes of a unit, and what their checksums depend on.
#[derive(Debug)]
pub struct Bytes {
    pub uuid: [u8; 16],
    pub first: Address,
    pub bytes: Vec<u8>,
}

impl Bytes {
    fn section(&self, section: &Section) -> Result<&[u8], FormatError> {
        let bytes = at(&self.bytes, section.start..section.start + section.bytes);
        let computed = section_checksum(&self.uuid, self.first, section.ordinal, bytes);
        if computed != section.checksum {
            return Err(FormatError::Checksum {
                what: "a part of a unit",
                stored: section.checksum,
                computed,
            });
        }
        Ok(bytes)
    }

    /// Decodes the order of the streams' records in chunk `nth`.
    pub fn decode_order(
        &self,
        head: &Head,
        nth: usize,
        order: &mut Vec<u64>,
    ) -> Result<(), FormatError> {
        let counts = head.streams.iter().map(|stream| *at(&stream.counts, nth));
        order.resize(counts.sum(), 0);
        if order.is_empty() {
            return Ok(());
        }
        Blocks::new(self.section(at(&head.orders, nth))?).decode(None, order)
    }

    /// Decodes what is wanted of the group that holds a stream's rows of a chunk, unless it is decoded, and returns which of its rows they are.
    /// `tail_room`: bytes that tails may take besides those of the streams that are decoded.
    pub fn rows_in_chunk(
        &self,
        stream: &Stream,
        nth: usize,
        wanted: &Wanted,
        decoded: &mut Rows,
        tail_room: &mut usize,
    ) -> Result<Range<usize>, FormatError> {
        let count = *at(&stream.counts, nth);
        if count == 0 {
            return Ok(0..0);
        }
        let which = stream
            .groups
            .partition_point(|group| group.end_chunk <= nth);
        let group = at(&stream.groups, which);
        if decoded.group != Some(which) || !decoded.has.covers(wanted) {
            // What others want of the same group is decoded with it, so that they do not take turns.
            decoded.has = decoded.has.and(wanted);
            decoded.forget(tail_room);
            if let Err(error) = decoded.decode(self, stream, group, tail_room) {
                decoded.forget(tail_room);
                return Err(error);
            }
            decoded.group = Some(which);
        }
        let before: usize = at(&stream.counts, group.first_chunk..nth).iter().sum();
        Ok(before..before + count)
    }
}

impl Rows {
    /// A piece of all rows of the group; `None` if it is not decoded.
    pub fn piece(&self, nth: usize) -> Option<&[u64]> {
        self.has
            .piece(nth)
            .then(|| at(&self.pieces, nth).as_slice())
    }

    /// Gives back the room of the tails.
    fn forget(&mut self, tail_room: &mut usize) {
        self.group = None;
        *tail_room += self.tails.iter().map(|tail| tail.all_bytes).sum::<usize>();
        self.tails.clear();
    }

    fn decode(
        &mut self,
        unit: &Bytes,
        stream: &Stream,
        group: &Group,
        tail_room: &mut usize,
    ) -> Result<(), FormatError> {
        let mut blocks = Blocks::new(unit.section(&group.section)?);
        let template = &stream.template;
        self.arrivals.resize(group.rows, 0);
        blocks.decode(None, &mut self.arrivals)?;
        self.pieces.resize_with(template.pieces.len(), Vec::new);
        for (nth, (piece, column)) in template.pieces.iter().zip(&mut self.pieces).enumerate() {
            if piece.kind != PieceKind::Length && !self.has.piece(nth) {
                blocks.skip(group.rows)?;
                continue;
            }
            column.resize(group.rows, 0);
            blocks.decode(piece.float_bytes(), column)?;
            if piece.kind == PieceKind::Length {
                self.tails.push(Tail::of_lengths(column.clone()));
            }
        }
        if template.has_rest {
            let mut ends = vec![0; group.rows];
            blocks.decode(None, &mut ends)?;
            self.tails.push(Tail::of_lengths(ends));
        }
        for tail in &mut self.tails {
            tail.find_ends(tail_room)?;
        }
        if self.has.tails {
            for tail in &mut self.tails {
                tail.decode(&mut blocks)?;
            }
        }
        Ok(())
    }
}

impl Tail {
    fn of_lengths(lengths: Vec<u64>) -> Tail {
        Tail {
            ends: lengths,
            ..Tail::default()
        }
    }

    /// Turns lengths into ends, the last no more than `room`, of which it takes as much.
    fn find_ends(&mut self, room: &mut usize) -> Result<(), FormatError> {
        let most = *room as u64;
        if let Some(length) = self.ends.iter().find(|length| **length > most) {
            return invalid("the length of a field", *length);
        }
        accumulate(0, &mut self.ends);
        let all = self.ends.last().copied().unwrap_or(0);
        if all > most {
            return invalid("the length of the fields of a row group", all);
        }
        self.all_bytes = all as usize;
        *room -= self.all_bytes;
        Ok(())
    }

    /// Takes the bytes.
    fn decode(&mut self, blocks: &mut Blocks<'_>) -> Result<(), FormatError> {
        let bytes = self.all_bytes;
        match blocks.byte()? {
            form if form == TailForm::Plain as u8 => self.bytes = blocks.bytes(bytes)?.to_vec(),
            form if form == TailForm::Zstd as u8 => {
                let length = usize::try_from(blocks.number()?).unwrap_or(usize::MAX);
                let compressed = blocks.bytes(length)?;
                match zstd::bulk::decompress(compressed, bytes) {
                    Ok(plain) if plain.len() == bytes => self.bytes = plain,
                    _ => return invalid("the compressed fields of a row group", bytes as u64),
                }
            }
            form => return invalid("the form of the fields of a row group", form.into()),
        }
        Ok(())
    }
}
