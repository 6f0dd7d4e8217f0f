//! Records of one source in a chunk, of which the wanted columns are extracted: the rows of a batch that comes from no unit.

use std::cell::Cell;
use std::ops::Range;

use crate::format::{
    FormatError, NumberRange, Piece, PieceKind, RECORD_HEADER_BYTES, Run, Template, Wanted,
};
use crate::memory::{self, NoMemory};
use crate::proven::at;
use crate::types::{Address, TimeRange, Timestamp};

/// Offsets in a record's header of the payload length and of the time since the anchor.
const LENGTH_AT: usize = 2;
const DELTA_AT: usize = 4;
/// Records that are split together, so that memory is read once.
const TILE_ROWS: usize = 64;

/// Keeps its memory from chunk to chunk.
#[derive(Default)]
pub(super) struct Records {
    /// Offsets of the records in the chunk, in the order of the rows.
    places: Vec<u32>,
    /// Bits of an `i64`; empty if they are not wanted.
    arrivals: Vec<u64>,
    addresses: Option<Vec<u64>>,
    /// The gathered columns.
    has: Wanted,
    pieces: Vec<Vec<u64>>,
    /// Ranges in the chunk of the strings behind the pieces.
    strings: Vec<Vec<(u32, u32)>>,
    /// The numbers that select records.
    numbers: Vec<u64>,
}

/// Some of the records, with the chunk.
#[derive(Copy, Clone)]
pub(super) struct RecordRows<'a> {
    records: &'a Records,
    chunk: &'a [u8],
    first: usize,
    end: usize,
}

impl Records {
    pub fn clear(&mut self) {
        self.places.clear();
        self.arrivals.clear();
        self.has = Wanted::default();
        self.addresses = None;
    }

    /// Finds the records of some runs, in log order, and their arrivals if wanted.
    ///
    /// # Errors
    /// Fails if a payload is shorter than the pieces of the template.
    pub fn find(
        &mut self,
        template: &Template,
        chunk: &[u8],
        runs: &[Run],
        arrivals: bool,
    ) -> Result<(), FormatError> {
        self.clear();
        let count = runs.iter().map(|run| run.records as usize).sum();
        memory::reserve(&mut self.places, count)?;
        let least = template.fixed_bytes();
        for run in runs {
            if usize::from(run.payload_bytes) < least {
                return misfit(run.payload_bytes.into());
            }
            let step = run.entry_bytes() as u32;
            self.places
                .extend((0..run.records).map(|nth| run.offset + nth * step));
        }
        if arrivals {
            memory::reserve(&mut self.arrivals, count)?;
            for run in runs {
                let deltas = at(chunk, run.offset as usize + DELTA_AT..);
                let arrival = |place: usize| {
                    let delta: [u8; 4] = word(deltas, place);
                    let delta = i64::from(u32::from_le_bytes(delta));
                    run.anchor.0.saturating_add(delta) as u64
                };
                let step = run.entry_bytes();
                let places = (0..run.records as usize).map(|nth| nth * step);
                self.arrivals.extend(places.map(arrival));
            }
        }
        Ok(())
    }

    /// Adds a record at a place, with its own time.
    pub fn push(&mut self, place: u32, ts: Timestamp, address: Address) {
        self.places.push(place);
        self.arrivals.push(ts.0 as u64);
        self.addresses.get_or_insert_default().push(address.0);
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Drops the records below an address of the chunk that begins at `base`. They must be in log order.
    pub fn keep_from(&mut self, base: Address, after: Address) {
        let is_below = |place: &u32| base + u64::from(*place) < after;
        let below = self.places.partition_point(is_below);
        self.keep_range(below..self.places.len());
    }

    /// Drops the records that arrived outside of a range. They must be in log order, with known arrivals.
    pub fn keep_arrived(&mut self, times: TimeRange) {
        self.keep_range(within(&self.arrivals, times));
    }

    fn keep_range(&mut self, range: Range<usize>) {
        self.places.truncate(range.end);
        self.places.drain(..range.start);
        if !self.arrivals.is_empty() {
            self.arrivals.truncate(range.end);
            self.arrivals.drain(..range.start);
        }
    }

    pub fn reverse(&mut self) {
        self.places.reverse();
        self.arrivals.reverse();
    }

    /// Keeps only the records that satisfy `is_kept`. Columns must then be gathered again.
    pub fn keep(&mut self, is_kept: impl Fn(usize) -> bool) {
        keep(&mut self.places, |nth, _| is_kept(nth));
        keep(&mut self.arrivals, |nth, _| is_kept(nth));
        self.has = Wanted::default();
    }

    /// Drops the records without a wanted number in each of some pieces.
    pub fn keep_numbers(
        &mut self,
        template: &Template,
        chunk: &[u8],
        wanted: &[(usize, NumberRange)],
    ) -> Result<(), NoMemory> {
        let mut numbers = std::mem::take(&mut self.numbers);
        for (nth, range) in wanted {
            numbers.clear();
            memory::reserve(&mut numbers, self.places.len())?;
            let pieces = at(&template.pieces, ..=*nth).iter();
            let end = pieces.map(|piece| usize::from(piece.bytes)).sum();
            let piece = *at(&template.pieces, *nth);
            gather_piece(piece, end, chunk, &self.places, &mut numbers);
            let numbers = numbers.as_slice();
            self.keep(|nth| range.contains(*at(numbers, nth)));
        }
        self.numbers = numbers;
        Ok(())
    }

    /// Gathers the wanted columns of the payloads.
    ///
    /// # Errors
    /// Fails if the strings of one do not fit its payload.
    pub fn gather(
        &mut self,
        template: &Template,
        wanted: &Wanted,
        chunk: &[u8],
    ) -> Result<(), FormatError> {
        let count = self.places.len();
        self.has.clone_from(wanted);
        self.pieces.resize_with(template.pieces.len(), Vec::new);
        for (nth, column) in self.pieces.iter_mut().enumerate() {
            column.clear();
            if wanted.piece(nth) {
                memory::reserve(column, count)?;
            }
        }
        for places in self.places.chunks(TILE_ROWS) {
            let mut end = 0;
            let pieces = template.pieces.iter().zip(&mut self.pieces).enumerate();
            for (nth, (piece, column)) in pieces {
                end += usize::from(piece.bytes);
                if wanted.piece(nth) {
                    gather_piece(*piece, end, chunk, places, column);
                }
            }
        }
        match wanted.any_tail() {
            true => self.find_strings(template, chunk),
            false => Ok(()),
        }
    }

    fn find_strings(&mut self, template: &Template, chunk: &[u8]) -> Result<(), FormatError> {
        let lengths = template.pieces.iter();
        let lengths = lengths
            .filter(|piece| piece.kind == PieceKind::Length)
            .count();
        let fixed_bytes = template.fixed_bytes();
        let lengths_at = fixed_bytes - lengths * size_of::<u16>();
        let strings = lengths + usize::from(template.has_rest);
        self.strings.resize_with(strings, Vec::new);
        for column in &mut self.strings {
            column.clear();
            memory::reserve(column, self.places.len())?;
        }
        for place in &self.places {
            let payload = *place as usize + RECORD_HEADER_BYTES;
            let length = u16::from_le_bytes(word(chunk, *place as usize + LENGTH_AT));
            let payload_end = payload + usize::from(length);
            let mut start = payload + fixed_bytes;
            for (nth, column) in self.strings.iter_mut().enumerate() {
                let end = match nth < lengths {
                    true => {
                        let bytes = word(chunk, payload + lengths_at + nth * size_of::<u16>());
                        start + usize::from(u16::from_le_bytes(bytes))
                    }
                    false => payload_end,
                };
                if end > payload_end {
                    return misfit(length.into());
                }
                column.push((start as u32, end as u32));
                start = end;
            }
        }
        Ok(())
    }

    /// Computes the addresses, in a log in which the chunk begins at `base`.
    pub fn find_addresses(&mut self, base: Address) -> Result<(), NoMemory> {
        let mut addresses = Vec::new();
        memory::reserve(&mut addresses, self.places.len())?;
        addresses.extend(self.places.iter().map(|place| base.0 + u64::from(*place)));
        self.addresses = Some(addresses);
        Ok(())
    }

    /// Returns all records; `chunk` must be the one that they were found in.
    pub fn rows<'a>(&'a self, chunk: &'a [u8]) -> RecordRows<'a> {
        RecordRows {
            records: self,
            chunk,
            first: 0,
            end: self.places.len(),
        }
    }
}

impl<'a> RecordRows<'a> {
    pub fn count(&self) -> usize {
        self.end - self.first
    }

    pub fn part(self, range: Range<usize>) -> RecordRows<'a> {
        assert!(range.start <= range.end && range.end <= self.count());
        RecordRows {
            first: self.first + range.start,
            end: self.first + range.end,
            ..self
        }
    }

    /// `None` if they are unknown.
    pub fn addresses(&self) -> Option<&'a [u64]> {
        let addresses = self.records.addresses.as_deref()?;
        Some(at(addresses, self.first..self.end))
    }

    /// `None` if they are unknown.
    pub fn arrivals(&self) -> Option<&'a [u64]> {
        self.records.arrivals.get(self.first..self.end)
    }

    /// `None` if it was not gathered.
    pub fn piece(&self, nth: usize) -> Option<&'a [u64]> {
        let is_there = self.records.has.piece(nth);
        is_there.then(|| at(at(&self.records.pieces, nth), self.first..self.end))
    }

    /// The chunk, and where in it the strings lie; `None` if they were not gathered.
    pub fn string_places(self, nth: usize) -> Option<(&'a [u8], Vec<Range<u32>>)> {
        let strings = self.records.strings.get(nth);
        let strings = strings.filter(|_| self.records.has.tail(nth))?;
        let places = at(strings, self.first..self.end).iter();
        Some((
            self.chunk,
            places.map(|(start, end)| *start..*end).collect(),
        ))
    }

    pub fn payload(&self, row: usize) -> &'a [u8] {
        let place = *at(&self.records.places, self.first + row) as usize;
        let length = u16::from_le_bytes(word(self.chunk, place + LENGTH_AT));
        let start = place + RECORD_HEADER_BYTES;
        at(self.chunk, start..start + usize::from(length))
    }
}

/// Returns the part of ascending arrivals in a range.
pub(super) fn within(arrivals: &[u64], times: TimeRange) -> Range<usize> {
    let time = |arrival: &u64| Timestamp(*arrival as i64);
    let first = arrivals.partition_point(|arrival| time(arrival) < times.first);
    let end = arrivals.partition_point(|arrival| time(arrival) <= times.last);
    first..end.max(first)
}

/// Keeps some elements. There is no branch for each, because they cannot be predicted.
pub(in crate::query) fn keep<T: Copy>(elements: &mut Vec<T>, is_kept: impl Fn(usize, T) -> bool) {
    let cells = Cell::from_mut(elements.as_mut_slice()).as_slice_of_cells();
    let mut kept = 0;
    for (nth, element) in cells.iter().enumerate() {
        at(cells, kept).set(element.get());
        kept += usize::from(is_kept(nth, element.get()));
    }
    elements.truncate(kept);
}

/// Appends a piece of the records at some places. It ends `end` bytes behind the start of the payload.
fn gather_piece(piece: Piece, end: usize, chunk: &[u8], places: &[u32], column: &mut Vec<u64>) {
    // Loads the 8 bytes that end with the piece, which always exist because a record's header precedes the first piece.
    let behind = chunk.get(RECORD_HEADER_BYTES + end - size_of::<u64>()..);
    let behind = behind.unwrap_or_default();
    let unused = 64 - 8 * u32::from(piece.bytes);
    let words = places.iter();
    let words = words.map(|place| u64::from_le_bytes(word(behind, *place as usize)));
    match piece.kind {
        PieceKind::Signed => column.extend(words.map(|word| (word as i64 >> unused) as u64)),
        _ => column.extend(words.map(|word| word >> unused)),
    }
}

#[inline]
fn word<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    let word = at(bytes, place..place + N).first_chunk();
    *word.expect("a part of N bytes")
}

fn misfit<T>(payload_bytes: u64) -> Result<T, FormatError> {
    Err(FormatError::Invalid {
        what: "the length of a payload, which its source's fields do not fit",
        value: payload_bytes,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder, walk_runs};
    use crate::query::scan::batch::{Batch, BatchRows, PayloadRoom};
    use crate::query::tests::rows::{column_value, value};
    use crate::schema::{
        FieldDef, FieldType, FieldValue, Layout, PayloadEncoder, Pieces, TimeKind,
    };
    use crate::types::SourceId;

    const SOURCE: SourceId = SourceId(2);
    const BASE: Address = Address(1 << 20);

    /// Returns fields of each kind of piece, some nullable and some texts, and a record's values in them.
    fn fields() -> Vec<FieldDef> {
        vec![
            FieldDef::new("byte", FieldType::U8),
            FieldDef::nullable("short", FieldType::I16),
            FieldDef::new("ratio", FieldType::F64),
            FieldDef::nullable("text", FieldType::Utf8),
            FieldDef::new("name", FieldType::Char(11)),
            FieldDef::new("note", FieldType::VarBytes),
        ]
    }

    fn values(seed: u64) -> [FieldValue<'static>; 6] {
        let text = |bytes: u64| FieldValue::Bytes(at(b"abcdefghij", ..bytes as usize));
        [
            FieldValue::U64(seed % 256),
            match seed % 3 {
                0 => FieldValue::Null,
                _ => FieldValue::I64((seed as i16).into()),
            },
            FieldValue::F64(seed as f64 / 8.0),
            match seed % 5 {
                0 => FieldValue::Null,
                _ => text(seed % 7),
            },
            text(seed % 11),
            text(seed % 2),
        ]
    }

    /// A chunk of records of two sources, the runs of one, and place, arrival and payload of each of its records.
    type Given = (Vec<u8>, Vec<Run>, Vec<(u32, i64, Vec<u8>)>);

    fn given(encoder: &mut PayloadEncoder, own_time: bool, records: &[(u64, i64, bool)]) -> Given {
        let mut chunk = ChunkBuilder::new(CHUNK_BYTES_MIN);
        let (mut now, mut pushed) = (0, Vec::new());
        for (seed, step, is_own) in records {
            now += step;
            let mut payload = Vec::new();
            let ts = own_time.then_some(Timestamp(*seed as i64));
            encoder.encode(ts, &values(*seed), &mut payload).unwrap();
            match is_own {
                true => {
                    chunk.push(SOURCE, Timestamp(now), &payload);
                    pushed.push((now, payload));
                }
                false => drop(chunk.push(SourceId(1), Timestamp(now), b"other")),
            }
        }
        let bytes = chunk.seal(&[7; 16], BASE).0.to_vec();
        let mut runs = Vec::new();
        walk_runs(&bytes, |run| runs.push(run)).unwrap();
        runs.retain(|run| run.source == SOURCE);
        let places = runs
            .iter()
            .flat_map(|run| (0..run.records).map(|nth| run.offset_of(nth)));
        let of_record = |(place, (now, payload))| (place, now, payload);
        let held = places.zip(pushed).map(of_record).collect();
        (bytes, runs, held)
    }

    proptest! {
        #[test]
        fn split_records_hold_the_values_of_their_payloads(
            records in prop::collection::vec((any::<u64>(), 0i64..6_000_000_000, prop::bool::weighted(0.7)), 0..40),
            own_time: bool,
            reversed: bool,
            [first, length] in any::<[u32; 2]>(),
            few in prop::option::of(0u64..256),
        ) {
            let time = if own_time { TimeKind::Own } else { TimeKind::Arrival };
            let mut encoder = PayloadEncoder::new(time, &fields()).unwrap();
            let layout: Layout = encoder.layout().clone();
            let pieces = Pieces::of(SOURCE, &layout);
            let template = pieces.template();
            let (chunk, runs, mut held) = given(&mut encoder, own_time, &records);
            let mut found = Records::default();
            found.find(template, &chunk, &runs, true).unwrap();
            let times = TimeRange {
                first: Timestamp(i64::from(first) * 8),
                last: Timestamp((i64::from(first) + i64::from(length)) * 40),
            };
            found.keep_arrived(times);
            held.retain(|(_, arrival, _)| times.contains(Timestamp(*arrival)));
            let after = held.get(held.len() / 3).map_or(BASE, |(place, ..)| BASE + u64::from(*place));
            found.keep_from(BASE, after);
            held.retain(|(place, ..)| BASE + u64::from(*place) >= after);
            if reversed {
                found.reverse();
                held.reverse();
            }
            if let Some(most) = few {
                let byte = pieces.of_number(0).unwrap();
                let range = NumberRange { first: 0, more: most };
                found.keep_numbers(template, &chunk, &[(byte, range)]).unwrap();
                held.retain(|(.., payload)| u64::from(layout.fixed(0, payload).unwrap()[0]) <= most);
            }
            found.gather(template, &Wanted::all(template), &chunk).unwrap();
            found.find_addresses(BASE).unwrap();
            let batch = Batch {
                layout: &layout,
                pieces: &pieces,
                rows: BatchRows::Chunk(found.rows(&chunk)),
            };
            prop_assert_eq!(batch.count(), held.len());
            let mut room = PayloadRoom::default();
            let payloads: Vec<&[u8]> = batch.payloads(&mut room).collect();
            for (row, (place, arrival, payload)) in held.iter().enumerate() {
                let ts = layout.own_time(payload).map_or(*arrival, |ts| ts.0);
                prop_assert_eq!(batch.times()[row] as i64, ts);
                prop_assert_eq!(batch.arrivals()[row] as i64, *arrival);
                prop_assert_eq!(batch.addresses()[row], BASE.0 + u64::from(*place));
                prop_assert_eq!(payloads[row], payload.as_slice());
                for field in 0..=layout.field_count() {
                    prop_assert_eq!(column_value(&batch, field, row), value(&layout, field, payload));
                }
            }
        }
    }
}
