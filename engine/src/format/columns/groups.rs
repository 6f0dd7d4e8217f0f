//! The sections of a unit and its row groups, as a head describes them.

use std::sync::Arc;

use super::COLUMNS_LOG;
use super::codec::Cursor;
use crate::format::bytes::{FormatError, invalid, put_leb128, u32_at};
use crate::format::checksum::checksum_for;
use crate::proven::at;
use crate::types::Address;

/// A part of a unit with a checksum of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Offset from the unit's start.
    pub start: usize,
    pub bytes: usize,
    pub checksum: u32,
    /// The number of the section from 0, which its checksum covers as a place.
    pub ordinal: u64,
}

/// The rows of a stream in some chunks, or of some members of a family in all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub first_chunk: usize,
    pub end_chunk: usize,
    pub rows: usize,
    /// Its parts in order, at least one.
    pub parts: Arc<[GroupPart]>,
    /// The rows of each member; `None` if one stream has all rows.
    pub members: Option<Arc<[usize]>>,
}

/// Some blocks of a row group that are read together; all strings count as one block, the last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GroupPart {
    pub section: Section,
    pub end_block: usize,
}

/// The form of a tail's bytes in a row group.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TailForm {
    Plain = 0,
    Zstd = 1,
    /// Each different string once, in one of the other forms, and which of them each row has.
    Shared = 2,
}

impl Group {
    /// The rows of each member; empty if one stream has all rows.
    pub fn members(&self) -> &[usize] {
        match &self.members {
            Some(members) => members,
            None => &[],
        }
    }

    /// Returns the part that holds a block, and the first block of that part.
    pub fn part_of(&self, block: usize) -> (usize, usize) {
        let part = self.parts.partition_point(|part| part.end_block <= block);
        let first = part
            .checked_sub(1)
            .map_or(0, |before| at(&self.parts, before).end_block);
        (part, first)
    }
}

/// The encoder's description of a section.
pub struct SectionTable {
    pub bytes: usize,
    pub checksum: u32,
}

/// The parts of a row group with their numbers of blocks.
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
    // The head has the first place.
    checksum_for(uuid, COLUMNS_LOG, first.0 + 1 + ordinal, bytes)
}

/// Assigns places to consecutive sections.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub next: usize,
    pub end: usize,
    pub ordinal: u64,
}

impl Places {
    /// Takes the parts of a row group of `blocks` blocks, at least one.
    pub fn parts(
        &mut self,
        tables: &mut Cursor<'_>,
        blocks: usize,
    ) -> Result<Arc<[GroupPart]>, FormatError> {
        let mut parts = Vec::new();
        self.group(tables, blocks, |part| parts.push(part))?;
        Ok(parts.into())
    }

    /// Passes the parts of a row group to `each`.
    pub fn group(
        &mut self,
        tables: &mut Cursor<'_>,
        blocks: usize,
        mut each: impl FnMut(GroupPart),
    ) -> Result<(), FormatError> {
        let mut end_block = 0;
        while end_block < blocks {
            let left = blocks - end_block;
            let own = tables.number()?;
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
