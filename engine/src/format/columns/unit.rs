//! A unit that was read: its chunks byte for byte, or the rows of one source in them.
//!
//! Foreign bytes: every part is verified before it is decoded, and what verifies may still claim anything, which ends in an error.

use std::ops::Range;

use super::UNIT_CHUNKS;
use super::chunk_rows::{ChunkRows, UnitRow};
use super::head::{Form, Head, Stream, UNIT_HEADER_BYTES, UnitHeader, verify_head};
use super::rows::{Bytes, Rows, Wanted};
use super::template::Template;
use crate::format::CHUNK_TRAILER_BYTES;
use crate::format::bytes::FormatError;
use crate::format::chunk::trailer_of;
use crate::proven::{at, at_mut};
use crate::types::Address;

/// Where rows of a source are placed that are taken from a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Placing {
    /// Where they stand in the chunk, so that places give addresses.
    AsInChunk,
    /// One behind the other, as if no other source had records in the chunk.
    Dense,
}

/// What is taken of the rows of a source.
#[derive(Copy, Clone, Debug)]
pub struct Take<'a> {
    /// How the payloads were taken apart.
    pub template: &'a Template,
    /// What is decoded.
    pub wanted: &'a Wanted,
    /// What of that is written into payloads.
    pub placed: &'a Wanted,
    pub place: Placing,
}

/// A unit in memory.
#[derive(Debug)]
pub struct Unit {
    bytes: Bytes,
    header: UnitHeader,
    /// `None`: rows.
    head: Option<Head>,
    /// Of each stream.
    decoded: Vec<Rows>,
    order: Vec<u64>,
    /// Where the payloads stand that the chunk holds of each stream.
    places: Vec<Vec<u32>>,
    /// The stream whose rows were found last, and which of its decoded rows they are.
    found: Option<(usize, Range<usize>)>,
    /// Bytes that the tails of streams may take besides those that are decoded: all together are part of its chunks.
    tail_room: usize,
}

impl Unit {
    /// The most bytes that a unit takes.
    pub fn bytes_most(chunk_bytes: u32) -> u64 {
        UNIT_HEADER_BYTES as u64 + UNIT_CHUNKS * u64::from(chunk_bytes)
    }

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
            bytes: Bytes {
                uuid: *uuid,
                first,
                bytes,
            },
            header,
            head,
            decoded: (0..header.streams).map(|_| Rows::default()).collect(),
            order: Vec::new(),
            places: vec![Vec::new(); header.streams],
            found: None,
            tail_room: header.chunks * chunk_bytes as usize,
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
            out.copy_from_slice(at(&self.bytes.bytes, start..start + out.len()));
            return Ok(());
        };
        self.bytes.decode_order(head, nth, &mut self.order)?;
        let mut ranges = Vec::with_capacity(head.streams.len());
        for (stream, decoded) in head.streams.iter().zip(&mut self.decoded) {
            let (bytes, wanted) = (&self.bytes, Wanted::all(&stream.template));
            ranges.push(bytes.rows_in_chunk(stream, nth, &wanted, decoded, &mut self.tail_room)?);
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
        for ((nth, stream), places) in head.streams.iter().enumerate().zip(&self.places) {
            chunk.put_payloads(nth, &Wanted::all(&stream.template), places, body);
        }
        trailer.copy_from_slice(&trailer_of(*at(&head.checksums, nth)));
        Ok(())
    }

    /// Finds the rows of a source in chunk `nth`, decodes what is wanted of them, and writes what is placed of their payloads to `out`; the other bytes of
    /// `out` stay as they are. False, with nothing found: the chunk must be read whole, because it stands as rows, because anchors stand between its
    /// records, or because the source's payloads were taken apart in another way than `take` says.
    ///
    /// # Errors
    /// As [`Unit::chunk`].
    pub fn rows(
        &mut self,
        nth: usize,
        take: &Take<'_>,
        out: &mut [u8],
        rows: &mut Vec<UnitRow>,
    ) -> Result<bool, FormatError> {
        rows.clear();
        self.found = None;
        let Some(head) = &self.head else {
            return Ok(false);
        };
        let holds = |stream: &Stream| {
            stream.template.source == take.template.source && *at(&stream.counts, nth) > 0
        };
        let streams = head.streams.iter().enumerate();
        let mut own = streams.clone().filter(|(_, stream)| holds(stream));
        let Some((own_nth, own_stream)) = own.next() else {
            return Ok(true);
        };
        let is_one = own.next().is_none() && own_stream.template == *take.template;
        if !is_one || *at(&head.has_anchors, nth) {
            return Ok(false);
        }
        let (bytes, room) = (&self.bytes, &mut self.tail_room);
        let mut ranges = vec![0..0; head.streams.len()];
        let decoded = at_mut(&mut self.decoded, own_nth);
        let range = bytes.rows_in_chunk(own_stream, nth, take.wanted, decoded, room)?;
        *at_mut(&mut ranges, own_nth) = range.clone();
        if take.place == Placing::AsInChunk {
            bytes.decode_order(head, nth, &mut self.order)?;
            // Of others only the lengths are needed, where they differ.
            for (other, stream) in streams {
                if other != own_nth && stream.template.tails() > 0 {
                    let decoded = at_mut(&mut self.decoded, other);
                    *at_mut(&mut ranges, other) =
                        bytes.rows_in_chunk(stream, nth, &Wanted::lengths(), decoded, room)?;
                }
            }
        }
        let chunk = ChunkRows {
            head,
            decoded: &self.decoded,
            ranges: &ranges,
        };
        let limit = out.len() - CHUNK_TRAILER_BYTES;
        match take.place {
            Placing::AsInChunk => chunk.find_rows(own_nth, nth, &self.order, limit, rows)?,
            Placing::Dense => chunk.place_rows(own_nth, limit, rows)?,
        }
        let places = at_mut(&mut self.places, own_nth);
        places.clear();
        places.extend(rows.iter().map(|row| row.start));
        chunk.put_payloads(own_nth, take.placed, places, out);
        self.found = Some((own_nth, range));
        Ok(true)
    }

    /// A piece of the rows that were found last, row by row; `None` if it is not decoded.
    pub fn piece(&self, nth: usize) -> Option<&[u64]> {
        let (stream, range) = self.found.as_ref()?;
        let column = at(&self.decoded, *stream).piece(nth)?;
        Some(at(column, range.clone()))
    }
}
