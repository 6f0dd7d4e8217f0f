//! The rows of a row group, of which only the wanted parts are decoded.
//!
//! The bytes are foreign: a section is verified before it is decoded, and a false claim that verifies ends in an error.

use std::ops::Range;

use super::bytes::Bytes;
use super::codec::{Block, Cursor, Run, open_block};
use super::groups::Group;
use super::head::Head;
use super::number_range::NumberRange;
use super::stream::Stream;
use super::tail::Tail;
use super::template::{PieceKind, Template};
use crate::format::bytes::FormatError;
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};

/// The decoded parts of the row group of a stream that was decoded last.
#[derive(Debug, Default)]
pub struct Rows {
    /// The group, counted over the whole family; `None` if the rows are invalid.
    group: Option<usize>,
    has: Wanted,
    pub arrivals: Vec<u64>,
    pub pieces: Vec<Vec<u64>>,
    pub tails: Vec<Tail>,
    /// Tails of the group before, whose memory the next ones take over.
    spare: Vec<Tail>,
}

/// The wanted parts of a stream's rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    pub arrivals: bool,
    /// The lengths of the strings behind the pieces.
    pub lengths: bool,
    /// A flag for each piece.
    pub pieces: Vec<bool>,
    /// A flag for each string behind the pieces.
    pub tails: Vec<bool>,
}

impl Wanted {
    pub fn all(template: &Template) -> Wanted {
        Wanted {
            arrivals: true,
            lengths: true,
            pieces: vec![true; template.pieces.len()],
            tails: vec![true; template.tails()],
        }
    }

    pub fn lengths() -> Wanted {
        Wanted {
            lengths: true,
            ..Wanted::default()
        }
    }

    pub fn piece(&self, nth: usize) -> bool {
        has(&self.pieces, nth)
    }

    pub fn tail(&self, nth: usize) -> bool {
        has(&self.tails, nth)
    }

    pub fn any_tail(&self) -> bool {
        self.tails.contains(&true)
    }

    /// Reports whether it needs one of these blocks of a row group.
    pub(super) fn takes(&self, template: &Template, mut blocks: Range<usize>) -> bool {
        let lengths = self.lengths || self.any_tail();
        let pieces = template.pieces.as_slice();
        blocks.any(|block| match block.checked_sub(1) {
            None => self.arrivals,
            Some(nth) => match pieces.get(nth) {
                Some(piece) => self.piece(nth) || lengths && piece.kind == PieceKind::Length,
                None if nth == pieces.len() && template.has_rest => lengths,
                None => self.any_tail(),
            },
        })
    }

    pub fn covers(&self, other: &Wanted) -> bool {
        (self.arrivals || !other.arrivals)
            && (self.lengths || !other.lengths)
            && covers(&self.pieces, &other.pieces)
            && covers(&self.tails, &other.tails)
    }

    /// Returns the union of both.
    pub fn and(&self, other: &Wanted) -> Wanted {
        Wanted {
            arrivals: self.arrivals || other.arrivals,
            lengths: self.lengths || other.lengths,
            pieces: union(&self.pieces, &other.pieces),
            tails: union(&self.tails, &other.tails),
        }
    }
}

fn has(flags: &[bool], nth: usize) -> bool {
    flags.get(nth).copied().unwrap_or(false)
}

fn covers(flags: &[bool], others: &[bool]) -> bool {
    let mut others = others.iter().enumerate();
    others.all(|(nth, other)| !other || has(flags, nth))
}

fn union(flags: &[bool], others: &[bool]) -> Vec<bool> {
    let all = 0..flags.len().max(others.len());
    all.map(|nth| has(flags, nth) || has(others, nth)).collect()
}

/// Some rows of one stream, column by column, as far as they are decoded.
#[derive(Copy, Clone, Debug)]
pub struct StreamRows<'a> {
    rows: &'a Rows,
    /// Number of the first row in the group.
    first: usize,
    end: usize,
    /// `None` if addresses are not wanted.
    addresses: Option<&'a [u64]>,
}

impl<'a> StreamRows<'a> {
    pub(super) fn new(
        rows: &'a Rows,
        range: Range<usize>,
        addresses: Option<&'a [u64]>,
    ) -> StreamRows<'a> {
        StreamRows {
            rows,
            first: range.start,
            end: range.end,
            addresses,
        }
    }

    pub fn count(&self) -> usize {
        self.end - self.first
    }

    /// Restricts them to some rows.
    pub fn part(self, range: Range<usize>) -> StreamRows<'a> {
        assert!(range.start <= range.end && range.end <= self.count());
        StreamRows {
            first: self.first + range.start,
            end: self.first + range.end,
            addresses: self.addresses.map(|addresses| at(addresses, range)),
            ..self
        }
    }

    /// `None` if they are unknown.
    pub fn addresses(&self) -> Option<&'a [u64]> {
        self.addresses
    }

    fn column(&self, column: &'a [u64]) -> &'a [u64] {
        at(column, self.first..self.end)
    }

    /// Arrivals as bits of an `i64`; `None` if they are not decoded.
    pub fn arrivals(&self) -> Option<&'a [u64]> {
        let is_there = self.rows.has.arrivals;
        is_there.then(|| self.column(&self.rows.arrivals))
    }

    /// A piece in the lowest bytes of each number; `None` if it is not decoded.
    pub fn piece(&self, nth: usize) -> Option<&'a [u64]> {
        let is_there = self.rows.has.piece(nth);
        is_there.then(|| self.column(at(&self.rows.pieces, nth)))
    }

    /// The strings with number `nth` behind the pieces; `None` if they are not decoded.
    pub fn strings(self, nth: usize) -> Option<impl ExactSizeIterator<Item = &'a [u8]> + Clone> {
        let tail = self.tail(nth)?;
        Some((self.first..self.end).map(move |row| tail.string(row)))
    }

    /// The strings with number `nth` behind the pieces if rows share them, and the number of each row's string among these; `None` if each row has its own or
    /// if they are not decoded.
    pub fn shared(self, nth: usize) -> Option<(Vec<&'a [u8]>, &'a [u64])> {
        let tail = self.tail(nth)?;
        Some((tail.shared().collect(), self.column(tail.codes()?)))
    }

    /// The strings with number `nth` as bytes, and the place of each row's string among them; `None` if they are not decoded.
    pub fn string_places(self, nth: usize) -> Option<(&'a [u8], Vec<Range<u32>>)> {
        let tail = self.tail(nth)?;
        Some((tail.bytes(), tail.places(self.first..self.end)))
    }

    fn tail(self, nth: usize) -> Option<&'a Tail> {
        let tail = self.rows.tails.get(nth);
        tail.filter(|_| self.rows.has.tail(nth))
    }
}

/// Walks the blocks of a row group of a unit. It passes over unwanted blocks, and whole unwanted parts need not have been read.
pub struct GroupBlocks<'a> {
    bytes: &'a Bytes,
    group: &'a Group,
    template: &'a Template,
    /// The current part, its rest, and the number of the block at the front.
    part: Option<(usize, Cursor<'a>, usize)>,
}

impl<'a> GroupBlocks<'a> {
    pub fn of(bytes: &'a Bytes, group: &'a Group, template: &'a Template) -> GroupBlocks<'a> {
        GroupBlocks {
            bytes,
            group,
            template,
            part: None,
        }
    }

    /// Takes the block of the arrivals, which is the first.
    pub fn arrivals(&mut self) -> Result<Block<'a>, FormatError> {
        self.block(0)
    }

    /// Takes the block of a piece, or of the numbers of bytes behind all pieces. Blocks must be taken in order.
    pub fn piece(&mut self, nth: usize) -> Result<Block<'a>, FormatError> {
        // The arrivals come first.
        self.block(nth + 1)
    }

    /// Takes the strings, which are the last.
    pub fn strings(&mut self) -> Result<&mut Cursor<'a>, FormatError> {
        self.skip_to(self.template.blocks() - 1)
    }

    fn block(&mut self, nth: usize) -> Result<Block<'a>, FormatError> {
        let (group, floats) = (self.group, self.floats(nth));
        open_block(self.skip_to(nth)?, group.rows, floats, group.members())
    }

    /// The float bytes for opening a block.
    fn floats(&self, block: usize) -> Option<u8> {
        let piece = self.template.pieces.get(block.checked_sub(1)?)?;
        piece.float_bytes()
    }

    /// Moves to block `nth`.
    fn skip_to(&mut self, nth: usize) -> Result<&mut Cursor<'a>, FormatError> {
        let (part, first) = self.group.part_of(nth);
        let (mut cursor, next) = match self.part.take() {
            Some((held, cursor, next)) if held == part => (cursor, next),
            _ => {
                let section = &at(&self.group.parts, part).section;
                (Cursor::new(self.bytes.section(section)?), first)
            }
        };
        // Blocks must be taken in order.
        assert!(next <= nth);
        for passed in next..nth {
            let (rows, members) = (self.group.rows, self.group.members());
            open_block(&mut cursor, rows, self.floats(passed), members)?;
        }
        let (_, cursor, _) = self.part.insert((part, cursor, nth + 1));
        Ok(cursor)
    }
}

impl Bytes {
    /// Decodes the order of the streams' records in chunk `nth`.
    pub fn decode_order(
        &self,
        head: &Head,
        nth: usize,
        order: &mut Vec<Run>,
    ) -> Result<(), FormatError> {
        order.clear();
        let counts = head.streams().map(|stream| *at(&stream.counts, nth));
        let records = counts.sum();
        if records == 0 {
            return Ok(());
        }
        let mut section = Cursor::new(self.section(at(&head.orders, nth))?);
        open_block(&mut section, records, None, &[])?.runs(order)
    }

    /// Decodes the lengths of the records of chunk `nth` where they differ, and notes the rows of each stream in its group.
    pub fn decode_lengths(
        &self,
        head: &Head,
        nth: usize,
        decoded: &mut [Rows],
        tail_room: &mut usize,
        ranges: &mut Vec<Range<usize>>,
    ) -> Result<(), FormatError> {
        ranges.clear();
        let lengths = Wanted::lengths();
        for stream in head.streams() {
            let decoded = at_mut(decoded, stream.own_slot());
            ranges.push(match stream.template.tails() {
                0 => 0..0,
                _ => self.rows_in_chunks(stream, nth..nth + 1, &lengths, decoded, tail_room)?,
            });
        }
        Ok(())
    }

    /// Decodes the wanted parts of the group that holds a stream's rows of some chunks, unless they are decoded, and returns the range of these rows. The rows
    /// must be in one group. `tail_room` limits the bytes of further tails.
    pub fn rows_in_chunks(
        &self,
        stream: &Stream,
        chunks: Range<usize>,
        wanted: &Wanted,
        decoded: &mut Rows,
        tail_room: &mut usize,
    ) -> Result<Range<usize>, FormatError> {
        let count: usize = at(&stream.counts, chunks.clone()).iter().sum();
        if count == 0 {
            return Ok(0..0);
        }
        let which = stream.group_at(chunks.start);
        let group = at(&stream.groups, which);
        self.decode_group(stream, which, wanted, decoded, tail_room)?;
        let own = at(&stream.counts, group.first_chunk..chunks.start);
        let before = stream.base + own.iter().sum::<usize>();
        Ok(before..before + count)
    }

    /// Decodes some pieces of all rows of a stream's first group, unless they are decoded.
    pub fn decode_pieces(
        &self,
        stream: &Stream,
        wanted: &[(usize, NumberRange)],
        decoded: &mut Rows,
        tail_room: &mut usize,
    ) -> Result<(), FormatError> {
        let mut pieces = vec![false; stream.template.pieces.len()];
        for (piece, _) in wanted {
            *at_mut(&mut pieces, *piece) = true;
        }
        let wanted = Wanted {
            pieces,
            ..Wanted::default()
        };
        self.decode_group(stream, 0, &wanted, decoded, tail_room)
    }

    /// Decodes the wanted parts of a stream's group, unless they are decoded.
    fn decode_group(
        &self,
        stream: &Stream,
        which: usize,
        wanted: &Wanted,
        decoded: &mut Rows,
        tail_room: &mut usize,
    ) -> Result<(), FormatError> {
        let group = at(&stream.groups, which);
        decoded.enter(stream.first_group + which, tail_room);
        if decoded.has.covers(wanted) {
            return Ok(());
        }
        let blocks = GroupBlocks::of(self, group, &stream.template);
        let result = decoded.decode(blocks, wanted, tail_room);
        if result.is_err() {
            decoded.forget(tail_room);
        }
        result
    }
}

impl Rows {
    /// Assigns the rows to this group, counted over its family. A change of group drops the decoded columns.
    pub fn enter(&mut self, group: usize, tail_room: &mut usize) {
        if self.group != Some(group) {
            self.forget(tail_room);
            self.group = Some(group);
        }
    }

    /// Appends those of some rows that hold wanted numbers in each of some decoded pieces.
    pub fn find(
        &self,
        rows: Range<usize>,
        wanted: &[(usize, NumberRange)],
        found: &mut Vec<u32>,
    ) -> Result<(), FormatError> {
        memory::reserve(found, rows.len())?;
        found.extend(rows.map(|row| row as u32));
        for (piece, range) in wanted {
            let column = at(&self.pieces, *piece).as_slice();
            found.retain(|row| range.contains(*at(column, *row as usize)));
        }
        Ok(())
    }

    /// Replaces the rows by some rows of another group, counted in a range of it.
    pub fn gather(
        &mut self,
        from: &Rows,
        range: Range<usize>,
        rows: &[u32],
    ) -> Result<(), NoMemory> {
        let pick = |column: &[u64], into: &mut Vec<u64>| {
            let column = at(column, range.clone());
            into.clear();
            memory::reserve(into, rows.len())?;
            into.extend(rows.iter().map(|row| *at(column, *row as usize)));
            Ok(())
        };
        self.has.clone_from(&from.has);
        if from.has.arrivals {
            pick(&from.arrivals, &mut self.arrivals)?;
        }
        self.pieces.resize_with(from.pieces.len(), Vec::new);
        for (nth, (into, column)) in self.pieces.iter_mut().zip(&from.pieces).enumerate() {
            if from.has.piece(nth) {
                pick(column, into)?;
            }
        }
        self.tails.clear();
        for (nth, tail) in from.tails.iter().enumerate() {
            let of = |row: &u32| range.start + *row as usize;
            self.tails.push(match from.has.tail(nth) {
                true => Tail::picked(tail, rows.iter().map(of))?,
                false => Tail::default(),
            });
        }
        Ok(())
    }

    /// Drops the rows and prepares for picking the wanted parts.
    pub fn begin_picking(&mut self, wanted: &Wanted) {
        self.has.clone_from(wanted);
        self.arrivals.clear();
        self.pieces.iter_mut().for_each(Vec::clear);
        self.tails.clear();
    }

    /// Appends the wanted arrivals and pieces of some rows of a group.
    pub fn pick(
        &mut self,
        mut blocks: GroupBlocks<'_>,
        wanted: &Wanted,
        rows: &[u32],
    ) -> Result<(), FormatError> {
        if wanted.arrivals {
            blocks.arrivals()?.pick(rows, &mut self.arrivals)?;
        }
        self.pieces
            .resize_with(blocks.template.pieces.len(), Vec::new);
        for (nth, column) in self.pieces.iter_mut().enumerate() {
            if wanted.piece(nth) {
                blocks.piece(nth)?.pick(rows, column)?;
            }
        }
        Ok(())
    }

    /// Drops the rows and returns the room of the tails.
    pub fn forget(&mut self, tail_room: &mut usize) {
        self.group = None;
        self.has = Wanted::default();
        self.forget_tails(tail_room);
    }

    fn forget_tails(&mut self, tail_room: &mut usize) {
        *tail_room += self.tails.iter().map(Tail::all_bytes).sum::<usize>();
        self.spare.clear();
        self.spare.extend(self.tails.drain(..).rev());
        self.spare.retain(Tail::is_small);
    }

    /// Decodes the wanted parts of a group that are not decoded yet.
    fn decode(
        &mut self,
        mut blocks: GroupBlocks<'_>,
        wanted: &Wanted,
        tail_room: &mut usize,
    ) -> Result<(), FormatError> {
        let (template, rows) = (blocks.template, blocks.group.rows);
        let all = self.has.and(wanted);
        let before = std::mem::replace(&mut self.has, all);
        let needs_tails = !covers(&before.tails, &self.has.tails);
        let needs_lengths = needs_tails || self.has.lengths && !before.lengths;
        self.has.lengths |= needs_lengths;
        if self.has.arrivals && !before.arrivals {
            memory::resize(&mut self.arrivals, rows)?;
            blocks.arrivals()?.decode(&mut self.arrivals)?;
        }
        if needs_lengths {
            self.forget_tails(tail_room);
        }
        self.pieces.resize_with(template.pieces.len(), Vec::new);
        for (nth, (piece, column)) in template.pieces.iter().zip(&mut self.pieces).enumerate() {
            let is_length = needs_lengths && piece.kind == PieceKind::Length;
            if wanted.piece(nth) && !before.piece(nth) || is_length {
                memory::resize(column, rows)?;
                blocks.piece(nth)?.decode(column)?;
            }
            if is_length {
                let mut tail = self.spare.pop().unwrap_or_default();
                tail.begin(column)?;
                self.tails.push(tail);
            }
        }
        if !needs_lengths {
            return Ok(());
        }
        if template.has_rest {
            let mut ends = memory::zeroed(rows)?;
            let block = blocks.piece(template.pieces.len())?;
            block.decode(&mut ends)?;
            let mut tail = self.spare.pop().unwrap_or_default();
            tail.begin(&ends)?;
            self.tails.push(tail);
        }
        for tail in &mut self.tails {
            tail.find_ends(tail_room)?;
        }
        let mut from_last = (0..self.tails.len()).rev();
        if let Some(last) = from_last.find(|nth| self.has.tail(*nth)) {
            let strings = blocks.strings()?;
            for (nth, tail) in self.tails.iter_mut().enumerate().take(last + 1) {
                tail.decode(self.has.tail(nth), strings)?;
            }
        }
        Ok(())
    }
}
