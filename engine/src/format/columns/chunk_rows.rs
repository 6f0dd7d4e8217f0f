//! Rebuilds a chunk from decoded rows: the places of its records, their headers and their payloads.

use std::ops::Range;

use super::codec::Run;
use super::head::Head;
use super::rows::{Rows, StreamRows};
use super::tail::Tail;
use super::template::Template;
use super::words::{TILE_ROWS, WORD_BYTES, Words};
use crate::format::bytes::{FormatError, invalid};
use crate::format::record::{
    ANCHOR_ENTRY_BYTES, ANCHOR_LENGTH, CHUNK_HEADER_BYTES, RECORD_HEADER_BYTES, record_bytes,
};
use crate::memory::NoMemory;
use crate::proven::{at, at_mut};

/// The decoded parts of a chunk.
pub struct ChunkRows<'a> {
    pub head: &'a Head,
    pub decoded: &'a [Rows],
    /// The rows of each stream in its group.
    pub ranges: &'a [Range<usize>],
}

/// One stream's rows of the chunk, for writing headers.
struct Cursor<'a> {
    arrivals: &'a [u64],
    tails: &'a [Tail],
    row: usize,
    next: usize,
    source: u64,
    fixed_bytes: usize,
}

impl Cursor<'_> {
    /// Writes the headers of records of one length that need no further anchor, and notes the places of their payloads. Returns their end; `None` if they
    /// differ or do not fit.
    fn put_equal(
        &self,
        arrivals: &[u64],
        anchor: u64,
        place: usize,
        places: &mut Vec<u32>,
        out: &mut [u8],
    ) -> Option<usize> {
        let is_near = |arrival: &u64| arrival.wrapping_sub(anchor) <= u64::from(u32::MAX);
        let payload_bytes = u16::try_from(self.fixed_bytes).ok()?;
        if !self.tails.is_empty() || !arrivals.iter().all(is_near) {
            return None;
        }
        let stride = record_bytes(self.fixed_bytes);
        let end = place + arrivals.len() * stride;
        let records = out.get_mut(place..end)?.chunks_exact_mut(stride);
        let same = self.source | u64::from(payload_bytes) << 16;
        for (record, arrival) in records.zip(arrivals) {
            let header = same | arrival.wrapping_sub(anchor) << 32;
            at_mut(record, ..RECORD_HEADER_BYTES).copy_from_slice(&header.to_le_bytes());
        }
        let first = place + RECORD_HEADER_BYTES;
        let starts = (0..arrivals.len()).map(|nth| first + nth * stride);
        places.extend(starts.map(|start| start as u32));
        Some(end)
    }
}

/// Consecutive records of one stream with equal lengths.
#[derive(Copy, Clone, Debug)]
pub struct Equal {
    /// Offset of the first record in the chunk.
    place: usize,
    payload_bytes: usize,
    rows: usize,
}

impl Equal {
    fn stride(self) -> usize {
        record_bytes(self.payload_bytes)
    }

    /// Returns the offsets of the records in the chunk.
    pub fn places(self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.rows).map(move |nth| self.place + nth * self.stride())
    }
}

/// The lengths of one stream's payloads in a chunk, in order.
struct Lengths<'a> {
    fixed_bytes: usize,
    tails: &'a [Tail],
    row: usize,
    /// The number of records that the order has yet to name.
    left: usize,
}

impl Lengths<'_> {
    fn next(&mut self) -> usize {
        let tails: usize = self.tails.iter().map(|tail| tail.length(self.row)).sum();
        self.row += 1;
        self.fixed_bytes + tails
    }
}

impl ChunkRows<'_> {
    fn rows(&self, stream: usize) -> &Rows {
        at(self.decoded, self.head.stream(stream).own_slot())
    }

    /// Walks a chunk without later anchors in order and passes the places of each stream's records to `each`.
    pub fn walk(
        &self,
        own: usize,
        nth: usize,
        order: &[Run],
        limit: usize,
        mut each: impl FnMut(Equal),
    ) -> Result<(), FormatError> {
        let streams = self.head.streams().zip(self.ranges).enumerate();
        let mut cursors: Vec<Lengths<'_>> = streams
            .map(|(which, (stream, range))| Lengths {
                fixed_bytes: stream.template.fixed_bytes(),
                tails: match stream.template.tails() {
                    0 => &[],
                    _ if range.is_empty() => &[],
                    _ => &self.rows(which).tails,
                },
                row: range.start,
                left: *at(&stream.counts, nth),
            })
            .collect();
        let mut place = CHUNK_HEADER_BYTES;
        for run in order {
            let which = usize::try_from(run.number).unwrap_or(usize::MAX);
            let of_stream = cursors.get_mut(which);
            let Some(cursor) = of_stream.filter(|cursor| cursor.left >= run.rows) else {
                return invalid("a stream in the order of a chunk", run.number);
            };
            cursor.left -= run.rows;
            let (times, rows) = match cursor.tails {
                [] => (1, run.rows),
                _ => (run.rows, 1),
            };
            for _ in 0..times {
                let records = Equal {
                    place,
                    payload_bytes: cursor.next(),
                    rows,
                };
                if which == own {
                    each(records);
                }
                place += rows * records.stride();
            }
        }
        // Places only grow, so all payloads lie below the last one's end; and the order names as many records as there are.
        if place > limit {
            return invalid("the length of a chunk's records", place as u64);
        }
        Ok(())
    }

    /// Writes anchors and headers, and notes the places of each stream's payloads. Returns the end of the last record.
    pub fn put_headers(
        &self,
        order: &[Run],
        places: &mut [Vec<u32>],
        out: &mut [u8],
    ) -> Result<usize, FormatError> {
        let streams = self.head.streams().zip(self.ranges).enumerate();
        let mut cursors: Vec<Cursor<'_>> = streams
            .map(|(nth, (stream, range))| {
                let held = (!range.is_empty()).then(|| self.rows(nth));
                Cursor {
                    arrivals: held.map_or(&[], |rows| at(&rows.arrivals, range.clone())),
                    tails: held.map_or(&[], |rows| &rows.tails),
                    row: range.start,
                    next: 0,
                    source: stream.template.source.0.into(),
                    fixed_bytes: stream.template.fixed_bytes(),
                }
            })
            .collect();
        places.iter_mut().for_each(Vec::clear);
        let mut place = CHUNK_HEADER_BYTES;
        let mut anchor = None;
        for run in order {
            let (stream, run) = (usize::try_from(run.number).unwrap_or(usize::MAX), run.rows);
            let (Some(cursor), Some(places)) = (cursors.get_mut(stream), places.get_mut(stream))
            else {
                return invalid("a stream in the order of a chunk", stream as u64);
            };
            let Some(arrivals) = cursor.arrivals.get(cursor.next..cursor.next + run) else {
                return invalid(
                    "the records of a stream in the order of a chunk",
                    run as u64,
                );
            };
            let Some(first) = arrivals.first() else {
                continue;
            };
            let anchor = anchor.get_or_insert_with(|| {
                at_mut(out, ..CHUNK_HEADER_BYTES).copy_from_slice(&first.to_le_bytes());
                *first
            });
            if let Some(end) = cursor.put_equal(arrivals, *anchor, place, places, out) {
                place = end;
                cursor.next += run;
                continue;
            }
            for (nth, &arrival) in arrivals.iter().enumerate() {
                let row = cursor.row + cursor.next + nth;
                let tail_bytes: usize = cursor.tails.iter().map(|tail| tail.length(row)).sum();
                let payload_bytes = cursor.fixed_bytes + tail_bytes;
                let mut delta = arrival.wrapping_sub(*anchor);
                if delta > u64::from(u32::MAX) {
                    let Some(entry) = out.get_mut(place..place + ANCHOR_ENTRY_BYTES) else {
                        return invalid("the length of a chunk's records", place as u64);
                    };
                    let (head, time) = entry.split_at_mut(8);
                    head.copy_from_slice(&(ANCHOR_LENGTH << 16).to_le_bytes());
                    time.copy_from_slice(&arrival.to_le_bytes());
                    (*anchor, delta) = (arrival, 0);
                    place += ANCHOR_ENTRY_BYTES;
                }
                let end = place + record_bytes(payload_bytes);
                if end > out.len() || payload_bytes > usize::from(u16::MAX) {
                    return invalid("the length of a chunk's records", end as u64);
                }
                let header = cursor.source | (payload_bytes as u64) << 16 | delta << 32;
                at_mut(out, place..place + RECORD_HEADER_BYTES)
                    .copy_from_slice(&header.to_le_bytes());
                places.push((place + RECORD_HEADER_BYTES) as u32);
                place = end;
            }
            cursor.next += run;
        }
        // A chunk without records has no header either.
        Ok(anchor.map_or(0, |_| place))
    }

    /// Writes the payloads of a stream at their places.
    ///
    /// # Errors
    /// Fails if memory is refused.
    pub fn put_payloads(
        &self,
        stream: usize,
        places: &[u32],
        words: &mut Words,
        out: &mut [u8],
    ) -> Result<(), NoMemory> {
        let range = at(self.ranges, stream).clone();
        if range.is_empty() {
            return Ok(());
        }
        let rows = self.rows(stream);
        let template = &self.head.stream(stream).template;
        words.reserve(template)?;
        for (tile, places) in places.chunks(TILE_ROWS).enumerate() {
            let first = range.start + tile * TILE_ROWS;
            let tile = first..first + places.len();
            words.put(
                template,
                rows.pieces.iter().map(|column| at(column, tile.clone())),
            );
            words.store(places, out);
        }
        for (row, place) in range.zip(places) {
            let mut start = *place as usize + template.fixed_bytes();
            for tail in &rows.tails {
                let bytes = tail.string(row);
                at_mut(out, start..start + bytes.len()).copy_from_slice(bytes);
                start += bytes.len();
            }
            at_mut(out, start..start.next_multiple_of(8)).fill(0);
        }
        Ok(())
    }
}

impl StreamRows<'_> {
    /// Replaces `out` by the adjacent payloads, and `starts` by the start of each and the end of the last.
    ///
    /// # Panics
    /// Panics if a part of them is not decoded.
    pub fn payloads(&self, template: &Template, starts: &mut Vec<u32>, out: &mut Vec<u8>) {
        const DECODED: &str = "payloads are decoded";
        let (count, fixed_bytes) = (self.count(), template.fixed_bytes());
        let tails = 0..template.tails();
        let tails = tails.map(|nth| self.strings(nth).expect(DECODED));
        let mut tails: Vec<_> = tails.collect();
        starts.clear();
        let mut lengths = tails.clone();
        let mut end = 0;
        for _ in 0..count {
            starts.push(end as u32);
            let strings = lengths.iter_mut().filter_map(Iterator::next);
            end += fixed_bytes + strings.map(<[u8]>::len).sum::<usize>();
        }
        out.clear();
        // The result is about as long as the decoded columns.
        out.resize(end + WORD_BYTES, 0);
        let mut words = Words::default();
        for (tile, starts) in starts.chunks(TILE_ROWS).enumerate() {
            let first = tile * TILE_ROWS;
            let pieces = 0..template.pieces.len();
            let pieces = pieces.map(|nth| self.piece(nth).expect(DECODED));
            words.put(
                template,
                pieces.map(|column| at(column, first..first + starts.len())),
            );
            words.store(starts, out);
        }
        if !tails.is_empty() {
            for start in starts.iter() {
                let mut start = *start as usize + fixed_bytes;
                for string in tails.iter_mut().filter_map(Iterator::next) {
                    at_mut(out, start..start + string.len()).copy_from_slice(string);
                    start += string.len();
                }
            }
        }
        starts.push(end as u32);
    }
}
