//! The sections of a unit, and the row groups that they are parts of, as a head describes them.

use std::sync::Arc;

use super::COLUMNS_LOG;
use super::codec::Cursor;
use crate::format::bytes::{FormatError, invalid, put_leb128, u32_at};
use crate::format::checksum::checksum_for;
use crate::proven::at;
use crate::types::Address;

/// A part of a unit that has a checksum of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// From the unit's start.
    pub start: usize,
    pub bytes: usize,
    pub checksum: u32,
    /// Which it is, from 0: its place, for the checksum.
    pub ordinal: u64,
}

/// The rows of a stream in some chunks, or of some members of a family in all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub first_chunk: usize,
    pub end_chunk: usize,
    pub rows: usize,
    /// What it consists of, one behind the other; at least one.
    pub parts: Arc<[GroupPart]>,
    /// How many of the rows each member has; `None`: all are one stream's.
    pub members: Option<Arc<[usize]>>,
}

/// Some blocks of a row group, which are read together; strings count as one block, the last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GroupPart {
    pub section: Section,
    pub end_block: usize,
}

/// How the bytes of a tail stand in a row group.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TailForm {
    Plain = 0,
    Zstd = 1,
}

impl Group {
    /// How many of the rows each member has; empty: all are one stream's.
    pub fn members(&self) -> &[usize] {
        match &self.members {
            Some(members) => members,
            None => &[],
        }
    }

    /// Which part holds a block, and the first block of that part.
    pub fn part_of(&self, block: usize) -> (usize, usize) {
        let part = self.parts.partition_point(|part| part.end_block <= block);
        let first = part
            .checked_sub(1)
            .map_or(0, |before| at(&self.parts, before).end_block);
        (part, first)
    }
}

/// What the encoder knows of a section.
pub struct SectionTable {
    pub bytes: usize,
    pub checksum: u32,
}

/// The parts of a row group, and how many blocks each has.
pub type GroupTable = Vec<(usize, SectionTable)>;

pub(super) fn put_group(group: &GroupTable, out: &mut Vec<u8>) {
    for (blocks, section) in group {
        put_leb128(out, *blocks as u64);
        put_section(section, out);
    }
}

pub(super) fn put_section(section: &SectionTable, out: &mut Vec<u8>) {
    put_leb128(out, section.bytes as u64);
    out.extend_from_slice(&section.checksum.to_le_bytes());
}

/// The checksum of a section of the unit at `first`.
pub fn section_checksum(uuid: &[u8; 16], first: Address, ordinal: u64, bytes: &[u8]) -> u32 {
    // Behind the head's own place.
    checksum_for(uuid, COLUMNS_LOG, first.0 + 1 + ordinal, bytes)
}

/// Where sections stand: one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub next: usize,
    pub end: usize,
    pub ordinal: u64,
    pub in_parts: bool,
}

impl Places {
    /// The parts of a row group of so many blocks, one at least.
    pub fn parts(
        &mut self,
        tables: &mut Cursor<'_>,
        blocks: usize,
    ) -> Result<Arc<[GroupPart]>, FormatError> {
        let mut parts = Vec::new();
        self.group(tables, blocks, |part| parts.push(part))?;
        Ok(parts.into())
    }

    /// Gives `each` the parts of a row group.
    pub fn group(
        &mut self,
        tables: &mut Cursor<'_>,
        blocks: usize,
        mut each: impl FnMut(GroupPart),
    ) -> Result<(), FormatError> {
        let mut end_block = 0;
        while end_block < blocks {
            let left = blocks - end_block;
            let own = match self.in_parts {
                true => tables.number()?,
                false => left as u64,
            };
            let Some(own_blocks) = usize::try_from(own)
                .ok()
                .filter(|own| (1..=left).contains(own))
            else {
                return invalid("the blocks of a part of a row group", own);
            };
            end_block += own_blocks;
            let section = self.section(tables)?;
            each(GroupPart { section, end_block });
        }
        Ok(())
    }

    pub fn section(&mut self, tables: &mut Cursor<'_>) -> Result<Section, FormatError> {
        let bytes = tables.number()?;
        let checksum = u32_at(tables.bytes(4)?, 0);
        let start = self.next;
        let end = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| start.checked_add(bytes));
        let Some(end) = end.filter(|end| *end <= self.end) else {
            return invalid("the length of a unit's section", bytes);
        };
        let section = Section {
            start,
            bytes: end - start,
            checksum,
            ordinal: self.ordinal,
        };
        self.next = end;
        self.ordinal += 1;
        Ok(section)
    }
}
