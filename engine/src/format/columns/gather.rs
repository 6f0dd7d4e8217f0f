//! Gathers the columns of a row group from the records that hold them.
//!
//! It splits a few records into all columns before the next ones, so that memory is read once.

use super::template::Template;
use super::words::{TILE_ROWS, Words};
use super::zone::{FieldPlace, Zone, ZoneKind};
use crate::format::bytes::u16_at;
use crate::format::record::RECORD_HEADER_BYTES;
use crate::proven::{at, at_mut};

/// Offset of the payload length in a record's header.
const LENGTH_AT: usize = 2;

/// Keeps its memory from group to group.
#[derive(Default)]
pub struct Columns {
    rows: usize,
    /// One column for each piece, and one for the number of bytes behind the pieces, if any follow. Each is at least as long as there are rows.
    columns: Vec<Vec<u64>>,
    words: Words,
    /// The start of each row's next string.
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Splits the records at some places and replaces the records before.
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

    /// Takes the next string of all rows; column `nth` holds the lengths. Returns `None` if one exceeds the chunks.
    pub fn take_strings(&mut self, chunks: &[u8], nth: usize) -> Option<()> {
        self.bytes.clear();
        let lengths = at(at(&self.columns, nth), ..self.rows);
        for (start, length) in self.starts.iter_mut().zip(lengths) {
            let end = *start + usize::try_from(*length).ok()?;
            self.bytes.extend_from_slice(chunks.get(*start..end)?);
            *start = end;
        }
        Some(())
    }

    /// The strings that were taken last.
    pub fn strings(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the zone of a field whose numbers were gathered or whose strings were taken last. `seen` is the least and the greatest number of its column.
    pub fn zone(&self, template: &Template, field: &FieldPlace, seen: Option<(i64, i64)>) -> Zone {
        let column = self.column(field.piece.into());
        let nulls = field
            .null
            .map(|(piece, bit)| (self.column(piece.into()), bit));
        match template.zone_kind(field) {
            ZoneKind::String => Zone::of_strings(&self.bytes, column, nulls),
            kind => Zone::of_numbers(kind, column, nulls, seen),
        }
    }

    /// Reports whether the strings of each row end where its payload ends.
    pub fn are_whole(&self, chunks: &[u8], places: &[u32]) -> bool {
        let mut strings = self.starts.iter().zip(places);
        strings.all(|(end, place)| *end == end_of(chunks, *place))
    }
}

/// Returns the end of the payload of the record at a place.
fn end_of(chunks: &[u8], place: u32) -> usize {
    let place = place as usize;
    place + RECORD_HEADER_BYTES + usize::from(u16_at(chunks, place + LENGTH_AT))
}
