//! The columns of a row group, gathered from the records that hold them.
//!
//! A few records are taken apart into all columns before the next ones are: so they are read from memory once.

use super::template::{PieceKind, Template};
use crate::format::bytes::{u16_at, u64_at};
use crate::format::record::RECORD_HEADER_BYTES;
use crate::proven::at;

/// Where a record's header has the length of its payload.
const LENGTH_AT: usize = 2;
/// Records that are taken apart together.
const TILE_ROWS: usize = 64;

/// Keeps its memory from group to group.
#[derive(Default)]
pub struct Columns {
    /// Of each piece, and of how many bytes follow the pieces, if any do.
    columns: Vec<Vec<u64>>,
    /// Where the next string of each row begins.
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Takes the records at some places apart, in place of those before.
    pub fn gather(&mut self, template: &Template, chunks: &[u8], places: &[u32]) {
        let count = template.pieces.len() + usize::from(template.has_rest);
        self.columns
            .resize_with(count.max(self.columns.len()), Vec::new);
        self.columns.iter_mut().for_each(Vec::clear);
        let pieces_end = RECORD_HEADER_BYTES + template.fixed_bytes();
        for places in places.chunks(TILE_ROWS) {
            let mut end = RECORD_HEADER_BYTES;
            let mut columns = self.columns.iter_mut();
            for (piece, column) in template.pieces.iter().zip(&mut columns) {
                end += usize::from(piece.bytes);
                // The 8 bytes that end with the piece: a record's header stands before the first.
                let behind = at(chunks, end - 8..);
                let unused = 64 - 8 * u32::from(piece.bytes);
                let words = places.iter().map(|place| u64_at(behind, *place as usize));
                match piece.kind {
                    PieceKind::Signed => {
                        column.extend(words.map(|word| (word as i64 >> unused) as u64));
                    }
                    _ => column.extend(words.map(|word| word >> unused)),
                }
            }
            if template.has_rest
                && let Some(column) = columns.next()
            {
                let rest = |place: &u32| end_of(chunks, *place) - (*place as usize + pieces_end);
                column.extend(places.iter().map(|place| rest(place) as u64));
            }
        }
        self.starts.clear();
        if template.tails() > 0 {
            let starts = places.iter().map(|place| *place as usize + pieces_end);
            self.starts.extend(starts);
        }
    }

    pub fn column(&self, nth: usize) -> &[u64] {
        at(&self.columns, nth)
    }

    /// The next string of all rows, one behind the other; column `nth` has their lengths. `None`: one does not lie in the chunks.
    pub fn strings(&mut self, chunks: &[u8], nth: usize) -> Option<&[u8]> {
        self.bytes.clear();
        let lengths = at(&self.columns, nth);
        for (start, length) in self.starts.iter_mut().zip(lengths) {
            let end = *start + usize::try_from(*length).ok()?;
            self.bytes.extend_from_slice(chunks.get(*start..end)?);
            *start = end;
        }
        Some(&self.bytes)
    }

    /// Whether the strings of each row end where its payload does.
    pub fn are_whole(&self, chunks: &[u8], places: &[u32]) -> bool {
        let mut strings = self.starts.iter().zip(places);
        strings.all(|(end, place)| *end == end_of(chunks, *place))
    }
}

/// Where the payload of the record at a place ends.
fn end_of(chunks: &[u8], place: u32) -> usize {
    let place = place as usize;
    place + RECORD_HEADER_BYTES + usize::from(u16_at(chunks, place + LENGTH_AT))
}
