//! A unit that was read: its chunks byte for byte.
//!
//! Foreign bytes: every part is verified before it is decoded, and what verifies may still claim anything, which ends in an error.

use std::ops::Range;

use super::bits::accumulate;
use super::encode::TailForm;
use super::head::{Form, Group, Head, Section, Stream, UnitHeader, section_checksum, verify_head};
use super::numbers::Blocks;
use super::template::PieceKind;
use crate::format::CHUNK_TRAILER_BYTES;
use crate::format::bytes::{FormatError, invalid};
use crate::format::chunk::trailer_of;
use crate::format::record::{
    ANCHOR_ENTRY_BYTES, ANCHOR_LENGTH, CHUNK_HEADER_BYTES, RECORD_HEADER_BYTES, record_bytes,
};
use crate::proven::{at, at_mut};
use crate::types::Address;

/// A unit in memory.
#[derive(Debug)]
pub struct Unit {
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    bytes: Vec<u8>,
    header: UnitHeader,
    /// `None`: rows.
    head: Option<Head>,
    /// The latest group that was decoded, of each stream.
    decoded: Vec<Option<(usize, Rows)>>,
    order: Vec<u64>,
    /// Where the payloads stand that the chunk holds of each stream.
    places: Vec<Vec<u32>>,
}

/// The rows of a group.
#[derive(Debug, Default)]
struct Rows {
    arrivals: Vec<u64>,
    pieces: Vec<Vec<u64>>,
    tails: Vec<Tail>,
}

/// Strings of bytes: string `i` ends at `ends[i]` and begins where the one before ends.
#[derive(Debug, Default)]
struct Tail {
    ends: Vec<u64>,
    bytes: Vec<u8>,
}

impl Tail {
    fn of(&self, row: usize) -> &[u8] {
        let start = row
            .checked_sub(1)
            .map_or(0, |before| *at(&self.ends, before));
        at(&self.bytes, start as usize..*at(&self.ends, row) as usize)
    }

    fn length(&self, row: usize) -> usize {
        let start = row
            .checked_sub(1)
            .map_or(0, |before| *at(&self.ends, before));
        (*at(&self.ends, row) - start) as usize
    }
}

impl Unit {
    /// The unit whose first chunk stands at `first`; `bytes` are all of it.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        bytes: Vec<u8>,
    ) -> Result<Unit, FormatError> {
        let header = UnitHeader::decode(&bytes, chunk_bytes)?;
        if bytes.len() != header.unit_bytes {
            return Err(FormatError::Short {
                what: "a unit",
                have: bytes.len(),
                need: header.unit_bytes,
            });
        }
        verify_head(uuid, first, &header, at(&bytes, ..header.head_bytes))?;
        let head = match header.form {
            Form::Rows => None,
            Form::Columns => Some(Head::decode(&header, &bytes, chunk_bytes)?),
        };
        Ok(Unit {
            uuid: *uuid,
            first,
            chunk_bytes,
            bytes,
            header,
            head,
            decoded: (0..header.streams).map(|_| None).collect(),
            order: Vec::new(),
            places: vec![Vec::new(); header.streams],
        })
    }

    /// Its chunks.
    pub fn chunks(&self) -> usize {
        self.header.chunks
    }

    /// Whether its chunks stand in it as they were.
    pub fn is_rows(&self) -> bool {
        self.head.is_none()
    }

    /// Writes chunk `nth`, from 0, to `out`, which is as long as a chunk.
    ///
    /// # Errors
    /// A part of the unit that it needs does not verify, or holds what cannot be.
    ///
    /// # Panics
    /// The unit does not have so many chunks.
    pub fn chunk(&mut self, nth: usize, out: &mut [u8]) -> Result<(), FormatError> {
        assert!(
            nth < self.header.chunks,
            "chunk {nth} of {}",
            self.header.chunks
        );
        let Some(head) = &self.head else {
            let start = self.header.head_bytes + nth * out.len();
            out.copy_from_slice(at(&self.bytes, start..start + out.len()));
            return Ok(());
        };
        let unit = Source {
            uuid: &self.uuid,
            first: self.first,
            bytes: &self.bytes,
        };
        let records: usize = head
            .streams
            .iter()
            .map(|stream| *at(&stream.counts, nth))
            .sum();
        self.order.resize(records, 0);
        if records > 0 {
            let bytes = unit.section(at(&head.orders, nth))?;
            Blocks::new(bytes).decode(None, &mut self.order)?;
        }
        let mut ranges = Vec::with_capacity(head.streams.len());
        for (stream, decoded) in head.streams.iter().zip(&mut self.decoded) {
            ranges.push(rows_in_chunk(
                &unit,
                stream,
                nth,
                decoded,
                self.chunk_bytes,
            )?);
        }
        out.fill(0);
        let limit = out.len() - CHUNK_TRAILER_BYTES;
        let (body, trailer) = out.split_at_mut(limit);
        let chunk = ChunkRows {
            head,
            decoded: &self.decoded,
            ranges: &ranges,
        };
        chunk.put_headers(&self.order, &mut self.places, body)?;
        for (stream, places) in self.places.iter().enumerate() {
            chunk.put_payloads(stream, places, body);
        }
        trailer.copy_from_slice(&trailer_of(*at(&head.checksums, nth)));
        Ok(())
    }
}

/// The bytes of a unit, and what their checksums depend on.
struct Source<'a> {
    uuid: &'a [u8; 16],
    first: Address,
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    fn section(&self, section: &Section) -> Result<&'a [u8], FormatError> {
        let bytes = at(self.bytes, section.start..section.start + section.bytes);
        let computed = section_checksum(self.uuid, self.first, section.ordinal, bytes);
        if computed != section.checksum {
            return Err(FormatError::Checksum {
                what: "a part of a unit",
                stored: section.checksum,
                computed,
            });
        }
        Ok(bytes)
    }
}

/// Decodes the group that holds a stream's rows of a chunk, unless it is decoded, and returns which of its rows they are.
fn rows_in_chunk(
    unit: &Source<'_>,
    stream: &Stream,
    nth: usize,
    decoded: &mut Option<(usize, Rows)>,
    chunk_bytes: u32,
) -> Result<Range<usize>, FormatError> {
    let count = *at(&stream.counts, nth);
    if count == 0 {
        return Ok(0..0);
    }
    let which = stream
        .groups
        .partition_point(|group| group.end_chunk <= nth);
    let group = at(&stream.groups, which);
    if decoded.as_ref().is_none_or(|(held, _)| *held != which) {
        let mut rows = decoded.take().map(|(_, rows)| rows).unwrap_or_default();
        rows.decode(unit, stream, group, chunk_bytes)?;
        *decoded = Some((which, rows));
    }
    let before: usize = at(&stream.counts, group.first_chunk..nth).iter().sum();
    Ok(before..before + count)
}

impl Rows {
    fn decode(
        &mut self,
        unit: &Source<'_>,
        stream: &Stream,
        group: &Group,
        chunk_bytes: u32,
    ) -> Result<(), FormatError> {
        let mut blocks = Blocks::new(unit.section(&group.section)?);
        let template = &stream.template;
        self.arrivals.resize(group.rows, 0);
        blocks.decode(None, &mut self.arrivals)?;
        self.pieces.resize_with(template.pieces.len(), Vec::new);
        self.tails.clear();
        for (piece, column) in template.pieces.iter().zip(&mut self.pieces) {
            column.resize(group.rows, 0);
            blocks.decode(piece.float_bytes(), column)?;
            if piece.kind == PieceKind::Length {
                self.tails.push(Tail {
                    ends: column.clone(),
                    bytes: Vec::new(),
                });
            }
        }
        if template.has_rest {
            let mut ends = vec![0; group.rows];
            blocks.decode(None, &mut ends)?;
            self.tails.push(Tail {
                ends,
                bytes: Vec::new(),
            });
        }
        let most = (group.end_chunk - group.first_chunk) as u64 * u64::from(chunk_bytes);
        for tail in &mut self.tails {
            tail.decode(&mut blocks, most)?;
        }
        Ok(())
    }
}

impl Tail {
    /// Turns lengths into ends, and takes the bytes; no more than `most`.
    fn decode(&mut self, blocks: &mut Blocks<'_>, most: u64) -> Result<(), FormatError> {
        if let Some(length) = self.ends.iter().find(|length| **length > most) {
            return invalid("the length of a field", *length);
        }
        accumulate(0, &mut self.ends);
        let bytes = self.ends.last().copied().unwrap_or(0);
        if bytes > most {
            return invalid("the length of the fields of a row group", bytes);
        }
        let bytes = bytes as usize;
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

/// What a chunk is rebuilt from.
struct ChunkRows<'a> {
    head: &'a Head,
    decoded: &'a [Option<(usize, Rows)>],
    /// Rows of each stream's group.
    ranges: &'a [Range<usize>],
}

/// One stream's rows of the chunk, as headers need them.
struct Cursor<'a> {
    arrivals: &'a [u64],
    tails: &'a [Tail],
    row: usize,
    next: usize,
    source: u64,
    fixed_bytes: usize,
}

impl ChunkRows<'_> {
    fn rows(&self, stream: usize) -> &Rows {
        let decoded = at(self.decoded, stream).as_ref();
        &decoded
            .expect("a stream with records in the chunk was decoded")
            .1
    }

    /// Writes anchors and headers, and notes where each stream's payloads stand.
    fn put_headers(
        &self,
        order: &[u64],
        places: &mut [Vec<u32>],
        out: &mut [u8],
    ) -> Result<(), FormatError> {
        let streams = self.head.streams.iter().zip(self.ranges).enumerate();
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
        let mut order = order;
        while let Some(&stream) = order.first() {
            let run = order.iter().take_while(|other| **other == stream).count();
            order = at(order, run..);
            let stream = usize::try_from(stream).unwrap_or(usize::MAX);
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
            for (nth, &arrival) in arrivals.iter().enumerate() {
                let row = cursor.row + cursor.next + nth;
                let tail_bytes: usize = cursor.tails.iter().map(|tail| tail.length(row)).sum();
                let payload_bytes = cursor.fixed_bytes + tail_bytes;
                let from = *anchor.get_or_insert_with(|| {
                    at_mut(out, ..CHUNK_HEADER_BYTES).copy_from_slice(&arrival.to_le_bytes());
                    arrival
                });
                let mut delta = arrival.wrapping_sub(from);
                if delta > u64::from(u32::MAX) {
                    let Some(entry) = out.get_mut(place..place + ANCHOR_ENTRY_BYTES) else {
                        return invalid("the length of a chunk's records", place as u64);
                    };
                    let (head, time) = entry.split_at_mut(8);
                    head.copy_from_slice(&(ANCHOR_LENGTH << 16).to_le_bytes());
                    time.copy_from_slice(&arrival.to_le_bytes());
                    (anchor, delta) = (Some(arrival), 0);
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
        Ok(())
    }

    /// Writes the payloads of a stream at their places.
    fn put_payloads(&self, stream: usize, places: &[u32], out: &mut [u8]) {
        let range = at(self.ranges, stream).clone();
        if range.is_empty() {
            return;
        }
        let rows = self.rows(stream);
        let template = &at(&self.head.streams, stream).template;
        let mut offset = 0;
        for (piece, column) in template.pieces.iter().zip(&rows.pieces) {
            let column = at(column, range.clone());
            match piece.bytes {
                1 => put_piece::<1>(column, places, offset, out),
                2 => put_piece::<2>(column, places, offset, out),
                3 => put_piece::<3>(column, places, offset, out),
                4 => put_piece::<4>(column, places, offset, out),
                5 => put_piece::<5>(column, places, offset, out),
                6 => put_piece::<6>(column, places, offset, out),
                7 => put_piece::<7>(column, places, offset, out),
                _ => put_piece::<8>(column, places, offset, out),
            }
            offset += usize::from(piece.bytes);
        }
        if rows.tails.is_empty() {
            return;
        }
        for (row, place) in range.zip(places) {
            let mut start = *place as usize + offset;
            for tail in &rows.tails {
                let bytes = tail.of(row);
                at_mut(out, start..start + bytes.len()).copy_from_slice(bytes);
                start += bytes.len();
            }
        }
    }
}

#[inline(always)]
fn put_piece<const BYTES: usize>(column: &[u64], places: &[u32], offset: usize, out: &mut [u8]) {
    for (number, place) in column.iter().zip(places) {
        let start = *place as usize + offset;
        let number = number.to_le_bytes();
        at_mut(out, start..start + BYTES).copy_from_slice(at(&number, ..BYTES));
    }
}
