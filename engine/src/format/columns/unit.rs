//! A unit that was read: its chunks byte for byte, or the rows of one source in them.
//!
//! The bytes are foreign: every part is verified before it is decoded, and a false claim that verifies ends in an error.

use std::ops::Range;

use super::UNIT_CHUNKS;
use super::buffers::Buffers;
use super::bytes::{Bytes, UNREAD};
use super::chunk_rows::ChunkRows;
use super::head::{Form, Head, UNIT_HEADER_BYTES, UnitHeader, verify_head};
use super::number_range::{NumberRange, RangeTotals};
use super::rows::{GroupBlocks, StreamRows, Wanted};
use super::stream::Stream;
use super::template::Template;
use super::zone::Zone;
use crate::format::CHUNK_TRAILER_BYTES;
use crate::format::bytes::{FormatError, invalid};
use crate::format::chunk::trailer_of;
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// The source and the columns that a question takes.
#[derive(Copy, Clone, Debug)]
pub struct Take<'a> {
    /// The template of the payloads.
    pub template: &'a Template,
    /// The columns to decode.
    pub wanted: &'a Wanted,
    /// Also finds the addresses of rows that are taken column by column.
    pub addresses: bool,
}

impl Take<'_> {
    /// The slot for rows that are taken column by column. Addresses need the lengths of all streams' records.
    fn slot(&self, stream: &Stream) -> usize {
        match self.addresses {
            true => stream.own_slot(),
            false => stream.slot,
        }
    }
}

/// If at most one row in this many is wanted, decoding all of them is not worth it.
const FEW: usize = 8;

/// A unit in memory, as far as it was read.
#[derive(Debug)]
pub struct Unit {
    pub(super) bytes: Bytes,
    chunk_bytes: u32,
    /// All of it was read.
    pub(super) is_whole: bool,
    /// The last complete read of all chunks: source, columns, and whether addresses were included.
    pub(super) complete: Option<(SourceId, Wanted, bool)>,
    pub(super) header: UnitHeader,
    /// `None` for a raw unit.
    pub(super) head: Option<Head>,
    /// The buffers for its decoded rows.
    buffers: Buffers,
}

impl Unit {
    /// The greatest length of a unit in bytes.
    pub fn bytes_most(chunk_bytes: u32) -> u64 {
        UNIT_HEADER_BYTES as u64 + UNIT_CHUNKS * u64::from(chunk_bytes)
    }

    /// Opens the unit whose first chunk has the address `first`; `bytes` are all of it.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        bytes: Vec<u8>,
    ) -> Result<Unit, FormatError> {
        let mut unit = Unit::of_head(uuid, first, chunk_bytes, &bytes, bytes.len())?;
        unit.lend(Buffers::default());
        unit.bytes = Bytes::of(uuid, first, bytes);
        unit.is_whole = true;
        Ok(unit)
    }

    /// Opens a unit of `unit_bytes` bytes from its first bytes, which contain the head. Callers must read each part, and [lend](Unit::lend) buffers, before
    /// they decode.
    pub fn of_head(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        bytes: &[u8],
        unit_bytes: usize,
    ) -> Result<Unit, FormatError> {
        let header = UnitHeader::decode(bytes, chunk_bytes)?;
        let short = |what, have, need| FormatError::Short { what, have, need };
        if unit_bytes != header.unit_bytes {
            return Err(short("a unit", unit_bytes, header.unit_bytes));
        }
        let Some(tables) = bytes.get(..header.head_bytes) else {
            return Err(short("a unit's head", bytes.len(), header.head_bytes));
        };
        verify_head(uuid, first, &header, tables)?;
        let head = match header.form {
            Form::Raw => None,
            Form::Columns => Some(Head::decode(&header, tables, chunk_bytes)?),
        };
        Ok(Unit {
            bytes: Bytes::of(uuid, first, Vec::new()),
            chunk_bytes,
            is_whole: false,
            complete: None,
            header,
            head,
            buffers: Buffers::default(),
        })
    }

    /// Decodes its rows into these buffers from now on.
    pub fn lend(&mut self, mut buffers: Buffers) {
        let tail_room = self.header.chunks * self.chunk_bytes as usize;
        buffers.reset(self.head.as_ref().map_or(0, Head::slots), tail_room);
        self.buffers = buffers;
    }

    /// Drops the decoded rows of a unit that is kept for later, and returns the buffers.
    pub fn take_buffers(&mut self) -> Buffers {
        self.head.iter_mut().for_each(Head::forget_members);
        std::mem::take(&mut self.buffers)
    }

    /// Reports whether a part of it was found damaged.
    pub fn is_damaged(&self) -> bool {
        self.bytes.is_damaged()
    }

    /// Approximate memory in bytes without decoded rows.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.head.as_ref().map_or(0, Head::memory_bytes)
    }

    /// The number of its chunks.
    pub fn chunks(&self) -> usize {
        self.header.chunks
    }

    /// Reports whether it holds its chunks unchanged.
    pub fn is_raw(&self) -> bool {
        self.head.is_none()
    }

    /// Writes chunk `nth`, counted from 0, to `out`, which must be as long as a chunk.
    ///
    /// # Errors
    /// Fails if a needed part of the unit does not verify or is impossible.
    ///
    /// # Panics
    /// Panics if the unit has fewer chunks.
    pub fn chunk(&mut self, nth: usize, out: &mut [u8]) -> Result<(), FormatError> {
        assert!(
            nth < self.header.chunks,
            "chunk {nth} of {}",
            self.header.chunks
        );
        assert!(self.is_whole, "{UNREAD}");
        self.buffers.found = None;
        let Some(head) = &self.head else {
            let stored = self
                .bytes
                .range(self.header.head_bytes..self.header.unit_bytes);
            // Zeroes at the end are omitted.
            let stored = stored.chunks(out.len()).nth(nth).unwrap_or(&[]);
            let (chunk, zeroes) = out.split_at_mut(stored.len());
            chunk.copy_from_slice(stored);
            zeroes.fill(0);
            return Ok(());
        };
        self.bytes
            .decode_order(head, nth, &mut self.buffers.order)?;
        self.buffers.ranges.clear();
        for stream in head.streams() {
            let decoded = at_mut(&mut self.buffers.decoded, stream.own_slot());
            let (bytes, wanted) = (&self.bytes, Wanted::all(&stream.template));
            let range = bytes.rows_in_chunks(
                stream,
                nth..nth + 1,
                &wanted,
                decoded,
                &mut self.buffers.tail_room,
            )?;
            self.buffers.ranges.push(range);
        }
        self.buffers.places.resize_with(head.count(), Vec::new);
        let limit = out.len() - CHUNK_TRAILER_BYTES;
        let (body, trailer) = out.split_at_mut(limit);
        let chunk = ChunkRows {
            head,
            decoded: &self.buffers.decoded,
            ranges: &self.buffers.ranges,
        };
        let end = chunk.put_headers(&self.buffers.order, &mut self.buffers.places, body)?;
        let words = &mut self.buffers.words;
        for (which, places) in (0..head.count()).zip(&self.buffers.places) {
            chunk.put_payloads(which, places, words, body)?;
        }
        at_mut(body, end..).fill(0);
        match head.is_written(nth) {
            true => trailer.copy_from_slice(&trailer_of(*at(&head.checksums, nth))),
            false => trailer.fill(0),
        }
        Ok(())
    }

    /// Decodes the wanted rows of a source in the first of some chunks, and in the chunks behind it whose rows are in the same row group. Returns the end of
    /// these chunks; [`Unit::found`] then has the rows. `None` means that the first chunk must be read whole: the unit is raw, the chunk was never written, the
    /// payloads have another template than `take`, or addresses are wanted and anchors stand between its records.
    ///
    /// # Errors
    /// As [`Unit::chunk`].
    pub fn columns(
        &mut self,
        chunks: Range<usize>,
        take: &Take<'_>,
    ) -> Result<Option<usize>, FormatError> {
        self.buffers.found = None;
        self.buffers.addresses = take.addresses.then(Vec::new);
        let Some((which, end)) = self.reach(&chunks, take) else {
            return Ok(None);
        };
        let (Some(which), Some(head)) = (which, &self.head) else {
            return Ok(Some(end));
        };
        let stream = head.stream(which);
        let end = stream.group_end(chunks.start).unwrap_or(end).min(end);
        let slot = take.slot(stream);
        let (bytes, room) = (&self.bytes, &mut self.buffers.tail_room);
        let decoded = at_mut(&mut self.buffers.decoded, slot);
        let all = chunks.start..end;
        let range = bytes.rows_in_chunks(stream, all.clone(), take.wanted, decoded, room)?;
        if range.is_empty() {
            return Ok(Some(end));
        }
        if let Some(addresses) = &mut self.buffers.addresses {
            for nth in all.filter(|nth| *at(&stream.counts, *nth) > 0) {
                bytes.decode_order(head, nth, &mut self.buffers.order)?;
                bytes.decode_lengths(
                    head,
                    nth,
                    &mut self.buffers.decoded,
                    room,
                    &mut self.buffers.ranges,
                )?;
                let chunk = ChunkRows {
                    head,
                    decoded: &self.buffers.decoded,
                    ranges: &self.buffers.ranges,
                };
                let limit = self.chunk_bytes as usize - CHUNK_TRAILER_BYTES;
                let base = bytes.first + nth as u64 * u64::from(self.chunk_bytes);
                memory::reserve(addresses, *at(&stream.counts, nth))?;
                chunk.walk(which, nth, &self.buffers.order, limit, |records| {
                    addresses.extend(records.places().map(|place| base.0 + place as u64));
                })?;
            }
        }
        if take.wanted.arrivals {
            let decoded = at(&self.buffers.decoded, slot);
            require_order(at(&decoded.arrivals, range.clone()))?;
        }
        self.buffers.found = Some((Some(slot), range));
        Ok(Some(end))
    }

    /// Works like [`Unit::columns`], but finds only the rows with wanted numbers in each of some pieces, at least one and none a float. Where they are few, it
    /// takes the rows of several row groups together.
    ///
    /// # Errors
    /// As [`Unit::chunk`].
    pub fn columns_where(
        &mut self,
        chunks: Range<usize>,
        take: &Take<'_>,
        wanted: &[(usize, NumberRange)],
    ) -> Result<Option<usize>, FormatError> {
        self.buffers.found = None;
        let Some((which, end)) = self.reach(&chunks, take) else {
            return Ok(None);
        };
        let (Some(which), Some(head)) = (which, &self.head) else {
            return Ok(Some(end));
        };
        let stream = head.stream(which);
        let has_more = take.addresses || take.wanted.lengths || take.wanted.any_tail();
        self.buffers.addresses = None;
        self.buffers.selected.begin_picking(take.wanted);
        let (mut next, mut picked) = (chunks.start, 0);
        let (bytes, room) = (&self.bytes, &mut self.buffers.tail_room);
        while next < end {
            let group_end = stream.group_end(next).unwrap_or(end).min(end);
            let count: usize = at(&stream.counts, next..group_end).iter().sum();
            if count == 0 {
                next = group_end;
                continue;
            }
            let of_group = stream.group_at(next);
            let group = at(&stream.groups, of_group);
            let before = at(&stream.counts, group.first_chunk..next);
            let first = stream.base + before.iter().sum::<usize>();
            let decoded = at_mut(&mut self.buffers.decoded, take.slot(stream));
            let rows = &mut self.buffers.rows;
            rows.clear();
            let is_shared = group.members.is_some();
            if is_shared {
                // Other members are probably asked for next, so the deciding pieces of all are decoded once.
                bytes.decode_pieces(stream, wanted, decoded, room)?;
                decoded.find(first..first + count, wanted, rows)?;
            } else {
                find_rows(
                    || GroupBlocks::of(bytes, group, &stream.template),
                    wanted,
                    rows,
                )?;
                if count < group.rows {
                    rows.retain(|row| (first..first + count).contains(&(*row as usize)));
                }
            }
            if rows.is_empty() {
                next = group_end;
                continue;
            }
            if rows.len() < count / FEW && !has_more && !is_shared {
                let blocks = GroupBlocks::of(bytes, group, &stream.template);
                let selected = &mut self.buffers.selected;
                selected.pick(blocks, take.wanted, rows)?;
                (next, picked) = (group_end, picked + rows.len());
                continue;
            }
            if picked > 0 {
                break;
            }
            let mut rows = std::mem::take(rows);
            self.columns(next..group_end, take)?;
            if rows.len() < count {
                rows.iter_mut().for_each(|row| *row -= first as u32);
                self.select(&rows)?;
            }
            self.buffers.rows = rows;
            return Ok(Some(group_end));
        }
        if take.wanted.arrivals {
            require_order(&self.buffers.selected.arrivals)?;
        }
        self.buffers.found = (picked > 0).then_some((None, 0..picked));
        Ok(Some(next))
    }

    /// Sums up the wanted numbers of a piece over a source's rows in the first of some chunks and those behind it that need no rows. Returns the end of these.
    /// `None` means that the caller must read the rows.
    ///
    /// # Errors
    /// As [`Unit::chunk`].
    pub fn totals(
        &self,
        chunks: Range<usize>,
        template: &Template,
        (piece, wanted): (usize, NumberRange),
    ) -> Result<Option<(usize, RangeTotals)>, FormatError> {
        let take = Take {
            template,
            wanted: &Wanted::default(),
            addresses: false,
        };
        let mut totals = RangeTotals::NONE;
        let Some((which, end)) = self.reach(&chunks, &take) else {
            return Ok(None);
        };
        let (Some(which), Some(head)) = (which, &self.head) else {
            return Ok(Some((end, totals)));
        };
        let stream = head.stream(which);
        let groups = at(&stream.groups, stream.group_at(chunks.start)..);
        for group in groups.iter().take_while(|group| group.first_chunk < end) {
            if group.members.is_some() {
                return Ok(None);
            }
            let rows = |chunks: Range<usize>| at(&stream.counts, chunks).iter().sum::<usize>();
            let first = rows(group.first_chunk..chunks.start.max(group.first_chunk));
            let last = rows(group.first_chunk..end.min(group.end_chunk));
            let block = GroupBlocks::of(&self.bytes, group, &stream.template).piece(piece)?;
            totals.add(block.totals(first..last, wanted)?);
        }
        Ok(Some((end, totals)))
    }

    /// Reports whether a source's rows in some chunks may be wanted, according to `may` of the zones of the template's fields.
    pub fn may_have(
        &self,
        chunks: Range<usize>,
        template: &Template,
        mut may: impl FnMut(&[Zone]) -> bool,
    ) -> bool {
        let Some(head) = &self.head else {
            return true;
        };
        let mut streams = head.streams_of(template.source);
        streams.any(|(_, stream)| {
            let counts = at(&stream.counts, chunks.clone());
            counts.iter().any(|count| *count > 0)
                && (stream.template != *template || may(&stream.zones))
        })
    }

    /// Returns the stream with a source's rows in the first of some chunks, if any, and the end of the chunks whose rows it also holds. `None` means that the
    /// first chunk must be read whole.
    fn reach(&self, chunks: &Range<usize>, take: &Take<'_>) -> Option<(Option<usize>, usize)> {
        let head = self.head.as_ref()?;
        let mut end = chunks.end.min(self.header.chunks);
        let mut own = None;
        for (which, stream) in head.streams_of(take.template.source) {
            let counts = at(&stream.counts, chunks.start..end);
            if stream.template == *take.template && own.is_none() {
                own = Some((which, stream));
            } else if let Some(before) = counts.iter().position(|count| *count > 0) {
                end = chunks.start + before;
            }
        }
        if take.addresses {
            // Anchors between records shift their addresses.
            let anchors = at(&head.has_anchors, chunks.start..end);
            let before = anchors.iter().position(|has| *has);
            end = before.map_or(end, |before| chunks.start + before);
        }
        // A whole read reports a missing chunk as an error.
        let missing = (chunks.start..end).find(|nth| !head.is_written(*nth));
        end = missing.unwrap_or(end);
        if end == chunks.start {
            return None;
        }
        let Some((which, _)) = own else {
            return Some((None, end));
        };
        Some((Some(which), end))
    }

    /// Keeps some of the rows that [`Unit::columns`] found, counted from 0, in this order.
    ///
    /// # Errors
    /// Fails if memory is refused; then no row is found.
    ///
    /// # Panics
    /// Panics if one of the rows was not found.
    pub fn select(&mut self, rows: &[u32]) -> Result<(), NoMemory> {
        let found = self.buffers.found.take();
        let (slot, range) = found.expect("rows are selected of those that were found");
        let slot = slot.expect("rows are selected once");
        self.buffers
            .selected
            .gather(at(&self.buffers.decoded, slot), range, rows)?;
        if let Some(addresses) = &mut self.buffers.addresses {
            let all = std::mem::take(addresses);
            memory::reserve(addresses, rows.len())?;
            addresses.extend(rows.iter().map(|row| *at(&all, *row as usize)));
        }
        self.buffers.found = (!rows.is_empty()).then_some((None, 0..rows.len()));
        Ok(())
    }

    /// Returns the rows that [`Unit::columns`] found last; `None` if there are none.
    pub fn found(&self) -> Option<StreamRows<'_>> {
        let (slot, range) = self.buffers.found.as_ref()?;
        let decoded = slot.map_or(&self.buffers.selected, |slot| {
            at(&self.buffers.decoded, slot)
        });
        let addresses = self.buffers.addresses.as_deref();
        Some(StreamRows::new(decoded, range.clone(), addresses))
    }
}

/// Finds the rows of a group that hold wanted numbers in each of some pieces.
fn find_rows<'a>(
    blocks: impl Fn() -> GroupBlocks<'a>,
    wanted: &[(usize, NumberRange)],
    rows: &mut Vec<u32>,
) -> Result<(), FormatError> {
    let Some(((piece, range), others)) = wanted.split_first() else {
        unreachable!("what is wanted is named");
    };
    blocks().piece(*piece)?.find(*range, rows)?;
    let mut numbers = Vec::new();
    for (piece, range) in others {
        numbers.clear();
        blocks().piece(*piece)?.pick(rows, &mut numbers)?;
        let mut numbers = numbers.iter();
        rows.retain(|_| numbers.next().is_some_and(|number| range.contains(*number)));
    }
    Ok(())
}

/// Checks that arrivals do not decrease.
fn require_order(arrivals: &[u64]) -> Result<(), FormatError> {
    match arrivals.is_sorted_by_key(|arrival| *arrival as i64) {
        true => Ok(()),
        false => invalid("the arrivals of a row group", arrivals.len() as u64),
    }
}
