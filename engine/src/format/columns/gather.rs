//! The columns of a row group, gathered from the records that hold them.
//!
//! A few records are taken apart into all columns before the next ones are: so they are read from memory once.

use super::template::Template;
use super::words::{TILE_ROWS, Words};
use crate::format::bytes::u16_at;
use crate::format::record::RECORD_HEADER_BYTES;
use crate::proven::{at, at_mut};

/// Where a record's header has the length of its payload.
const LENGTH_AT: usize = 2;

/// Keeps its memory from group to group.
#[derive(Default)]
pub struct Columns {
    rows: usize,
    /// Of each piece, and of how many bytes follow the pieces, if any do: at least as long as there are rows.
    columns: Vec<Vec<u64>>,
    words: Words,
    /// Where the next string of each row begins.
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Takes the records at some places apart, in place of those before.
    pub fn gather(&mut self, template: &Template, chunks: &[u8], places: &[u32]) {
        let (pieces, count) = (template.pieces.len(), places.len());
        self.rows = count;
        let columns = pieces + usize::from(template.has_rest);
        self.columns
            .resize_with(columns.max(self.columns.len()), Vec::new);
        for column in at_mut(&mut self.columns, ..columns) {
            column.resize(count.max(column.len()), 0);
        }
        for (nth, places) in places.chunks(TILE_ROWS).enumerate() {
            let rows = nth * TILE_ROWS..nth * TILE_ROWS + places.len();
            (self.words).load(template, chunks, places, RECORD_HEADER_BYTES);
            self.words.take(template, &mut self.columns, rows);
        }
        let pieces_end = RECORD_HEADER_BYTES + template.fixed_bytes();
        if template.has_rest {
            let rest = |place: &u32| end_of(chunks, *place) - (*place as usize + pieces_end);
            let column = at_mut(&mut self.columns, pieces);
            for (number, place) in column.iter_mut().zip(places) {
                *number = rest(place) as u64;
            }
        }
        self.starts.clear();
        if template.tails() > 0 {
            let starts = places.iter().map(|place| *place as usize + pieces_end);
            self.starts.extend(starts);
        }
    }

    pub fn column(&self, nth: usize) -> &[u64] {
        at(at(&self.columns, nth), ..self.rows)
    }

    /// The next string of all rows, one behind the other; column `nth` has their lengths. `None`: one does not lie in the chunks.
    pub fn strings(&mut self, chunks: &[u8], nth: usize) -> Option<&[u8]> {
        self.bytes.clear();
        let lengths = at(at(&self.columns, nth), ..self.rows);
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
