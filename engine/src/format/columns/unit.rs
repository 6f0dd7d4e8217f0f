//! A unit that was read: its chunks byte for byte, or the rows of one source in them.
//!
//! Foreign bytes: every part is verified before it is decoded, and what verifies may still claim anything, which ends in an error.

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
use crate::format::CHUNK_TRAILER_BYTES;
use crate::format::bytes::{FormatError, invalid};
use crate::format::chunk::trailer_of;
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// What is taken of the rows of a source.
#[derive(Copy, Clone, Debug)]
pub struct Take<'a> {
    /// How the payloads were taken apart.
    pub template: &'a Template,
    /// What is decoded.
    pub wanted: &'a Wanted,
    /// Whether the addresses of rows are found that are taken column by column.
    pub addresses: bool,
}

impl Take<'_> {
    /// Where rows that are taken column by column are decoded. Addresses take the lengths of all streams' records.
    fn slot(&self, stream: &Stream) -> usize {
        match self.addresses {
            true => stream.own_slot(),
            false => stream.slot,
        }
    }
}

/// Where no more than one in so many rows is wanted, decoding all is not worth it.
const FEW: usize = 8;

/// A unit in memory, as far as it was read.
#[derive(Debug)]
pub struct Unit {
    pub(super) bytes: Bytes,
    chunk_bytes: u32,
    /// All of it was read.
    pub(super) is_whole: bool,
    /// What was read last of all chunks: the source, the columns, and whether addresses were among them.
    pub(super) complete: Option<(SourceId, Wanted, bool)>,
    pub(super) header: UnitHeader,
    /// `None`: rows.
    pub(super) head: Option<Head>,
    /// What its rows are decoded into.
    buffers: Buffers,
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
        let mut unit = Unit::of_head(uuid, first, chunk_bytes, &bytes, bytes.len())?;
        unit.lend(Buffers::default());
        unit.bytes = Bytes::of(uuid, first, bytes);
        unit.is_whole = true;
        Ok(unit)
    }

    /// The same of its first bytes, which have the head, where the unit takes `unit_bytes`. What is decoded is read first, and buffers are
    /// [lent](Unit::lend) first.
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
            Form::Rows => None,
            Form::Columns | Form::Families => Some(Head::decode(&header, tables, chunk_bytes)?),
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

    /// Forgets which rows were decoded, for a unit that is kept for later. Returns the buffers.
    pub fn take_buffers(&mut self) -> Buffers {
        self.head.iter_mut().for_each(Head::forget_members);
        std::mem::take(&mut self.buffers)
    }

    /// Whether a part of it was found damaged.
    pub fn is_damaged(&self) -> bool {
        self.bytes.is_damaged()
    }

    /// What it takes in memory, about, where no rows are decoded.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.head.as_ref().map_or(0, Head::memory_bytes)
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

    /// Decodes what is wanted of the rows of a source in the first of some chunks and in those behind it, as far as their rows stand in one row group.
    /// Returns the end of these chunks; [`Unit::found`] then has the rows. `None`: the first chunk must be read whole, because it stands as rows, because it was
    /// never written, because the source's payloads were taken apart in another way than `take` says, or because anchors stand between its records and
    /// their addresses are wanted.
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

    /// As [`Unit::columns`], of the rows alone that hold wanted numbers in each of some pieces, of which there is one at least. None of these is a float.
    /// Where they are few, those of several row groups are taken together.
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
        let has_more = take.addresses || take.wanted.lengths || take.wanted.tails;
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
                // Other members are asked for next, perhaps: what decides of all is decoded once.
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

    /// What the wanted numbers of a piece are together, of a source's rows in some chunks, as far as they are found so. Returns the end of these. `None`: the
    /// rows must be asked for.
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

    /// The stream that holds a source's rows in the first of some chunks, if one does, and the end of those whose rows it holds too. `None`: the first chunk
    /// must be read whole.
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
            // Where anchors stand between records, these have other places.
            let anchors = at(&head.has_anchors, chunks.start..end);
            let before = anchors.iter().position(|has| *has);
            end = before.map_or(end, |before| chunks.start + before);
        }
        // Read whole, a chunk that is missing is an error.
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

    /// Leaves some of the rows that [`Unit::columns`] found, counted from 0, in this order.
    ///
    /// # Errors
    /// Memory is refused; then no row is found.
    ///
    /// # Panics
    /// None was found, or one of them was not.
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

    /// The rows that [`Unit::columns`] found last; `None` if there are none.
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

/// Arrivals do not decrease.
fn require_order(arrivals: &[u64]) -> Result<(), FormatError> {
    match arrivals.is_sorted_by_key(|arrival| *arrival as i64) {
        true => Ok(()),
        false => invalid("the arrivals of a row group", arrivals.len() as u64),
    }
}
