//! Families: the sources of one layout that have few rows in a unit. Their rows stand one source behind the other, and row groups are of several members.
//!
//! Alone, such a source would be described by more bytes than its rows take, and each of its columns too.

use std::cell::OnceCell;
use std::sync::Arc;

use super::codec::{ColumnEncoder, Cursor, TAIL, open_block};
use super::groups::{Group, GroupPart, GroupTable, Places, put_group};
use super::stream::Stream;
use super::template::Template;
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::memory;
use crate::proven::at;
use crate::types::SourceId;

/// Streams with fewer rows may be members, and a row group ends with the member that makes it so many: a question about one member decodes those
/// that share its group too.
pub(super) const FAMILY_ROWS: usize = 256;

/// What the head says of a family.
#[derive(Debug)]
pub(super) struct Family {
    /// Of each member, but for its source.
    template: Template,
    sources: Vec<SourceId>,
    chunks: usize,
    /// Rows in each chunk, member by member: fewer than [`FAMILY_ROWS`] in all.
    counts: Vec<u8>,
    groups: Vec<SharedGroup>,
    /// Where the rows of the first group are decoded.
    slot: usize,
    /// The members that were asked for.
    streams: Vec<OnceCell<Box<Stream>>>,
}

/// Some members, one behind the other, whose rows are one row group.
#[derive(Debug)]
struct SharedGroup {
    end_member: usize,
    rows: usize,
    parts: Arc<[GroupPart]>,
    /// The rows of each member.
    members: Arc<[usize]>,
}

/// What the encoder knows of a family.
pub(super) struct FamilyTable<'a> {
    pub template: &'a Template,
    /// Ascending.
    pub sources: Vec<SourceId>,
    /// Rows in each chunk, member by member.
    pub counts: Vec<u64>,
    /// How many members each group has, and its parts.
    pub groups: Vec<(usize, GroupTable)>,
}

/// How many of the next members make a row group, each of which has so many rows: as few as have enough rows together, or all that are left.
pub(super) fn split(rows: &[usize]) -> Vec<usize> {
    let mut groups = Vec::new();
    let (mut members, mut sum) = (0, 0);
    for own in rows {
        members += 1;
        sum += own;
        if sum >= FAMILY_ROWS {
            groups.push(members);
            (members, sum) = (0, 0);
        }
    }
    groups.extend(Some(members).filter(|members| *members > 0));
    groups
}

pub(super) fn put_family(family: &FamilyTable<'_>, head: &mut Vec<u8>) {
    family.template.encode_pieces(head);
    put_leb128(head, family.sources.len() as u64);
    let mut before = 0;
    for source in &family.sources {
        put_leb128(head, u64::from(source.0 - before));
        before = source.0;
    }
    let mut counts = Vec::new();
    ColumnEncoder::default().put(&family.counts, None, &[], &mut counts);
    counts.extend_from_slice(&TAIL);
    put_leb128(head, counts.len() as u64);
    head.extend_from_slice(&counts);
    for (members, group) in &family.groups {
        put_leb128(head, *members as u64);
        put_group(group, head);
    }
}

impl Family {
    /// The next family, of at most so many members. `slot`: where the rows of its first group are decoded.
    pub fn decode(
        head: &mut Cursor<'_>,
        places: &mut Places,
        chunks: usize,
        members_most: usize,
        slot: usize,
    ) -> Result<Family, FormatError> {
        let template = Template::decode_pieces(head, SourceId(0))?;
        let count = head.number()?;
        // Each takes a byte at least.
        let most = members_most.min(head.rest().len());
        let members = usize::try_from(count).unwrap_or(usize::MAX);
        if !(1..=most).contains(&members) {
            return invalid("the number of members of a family", count);
        }
        let mut sources = Vec::new();
        memory::reserve(&mut sources, members)?;
        let mut source = 0u64;
        for _ in 0..members {
            source = source.saturating_add(head.number()?);
            match u16::try_from(source) {
                Ok(source) if source > 0 => sources.push(SourceId(source)),
                _ => return invalid("the source of a member of a family", source),
            }
        }
        let bytes = head.number()?;
        let mut counted = Cursor::new(head.bytes(usize::try_from(bytes).unwrap_or(usize::MAX))?);
        let mut numbers = memory::zeroed(members * chunks)?;
        open_block(&mut counted, numbers.len(), None, &[])?.decode(&mut numbers)?;
        if let Some(count) = numbers.iter().find(|count| **count >= FAMILY_ROWS as u64) {
            return invalid("the records of a stream in a chunk", *count);
        }
        let counts: Vec<u8> = numbers.iter().map(|count| *count as u8).collect();
        let rows = counts.chunks(chunks);
        let rows = rows.map(|own| own.iter().map(|count| *count as usize).sum());
        let rows: Vec<usize> = rows.collect();
        let mut groups = Vec::new();
        let mut left = rows.as_slice();
        while !left.is_empty() {
            let count = head.number()?;
            let own = usize::try_from(count).unwrap_or(usize::MAX);
            // Each has a row at least.
            let Some((own, others)) = left
                .split_at_checked(own)
                .filter(|(own, _)| (1..=FAMILY_ROWS).contains(&own.len()))
            else {
                return invalid("the number of members of a row group", count);
            };
            left = others;
            if own.contains(&0) {
                return invalid("the records of a member of a family", 0);
            }
            groups.push(SharedGroup {
                end_member: rows.len() - left.len(),
                rows: own.iter().sum(),
                parts: places.parts(head, template.blocks())?,
                members: own.into(),
            });
        }
        let mut streams = Vec::new();
        memory::reserve(&mut streams, members)?;
        streams.resize_with(members, OnceCell::new);
        Ok(Family {
            template,
            sources,
            chunks,
            counts,
            groups,
            slot,
            streams,
        })
    }

    /// The least a record takes of a chunk.
    pub fn record_bytes_least(&self) -> usize {
        self.template.record_bytes_least()
    }

    /// The source of each member.
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// How many rows all of them have in each chunk.
    pub fn rows(&self) -> Vec<usize> {
        let mut rows = vec![0; self.chunks];
        for own in self.counts.chunks(self.chunks) {
            for (rows, count) in rows.iter_mut().zip(own) {
                *rows += *count as usize;
            }
        }
        rows
    }

    /// What it takes in memory without its streams, about.
    pub fn memory_bytes(&self) -> usize {
        let parts: usize = self.groups.iter().map(|group| group.parts.len()).sum();
        let of_member =
            size_of::<SourceId>() + size_of::<usize>() + size_of::<OnceCell<Box<Stream>>>();
        size_of_val(self.counts.as_slice())
            + self.sources.len() * of_member
            + size_of_val(self.groups.as_slice())
            + parts * size_of::<GroupPart>()
    }

    /// Forgets the streams that were asked for: they take more than what they are made of.
    pub fn forget_streams(&mut self) {
        self.streams.fill_with(OnceCell::new);
    }

    /// How many row groups it has.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Member `nth`.
    pub fn stream(&self, nth: usize) -> &Stream {
        at(&self.streams, nth).get_or_init(|| Box::new(self.stream_of(nth)))
    }

    fn stream_of(&self, nth: usize) -> Stream {
        let which = self.groups.partition_point(|group| group.end_member <= nth);
        let group = at(&self.groups, which);
        let first = group.end_member - group.members.len();
        let counts = at(&self.counts, nth * self.chunks..).iter();
        let counts = counts.take(self.chunks);
        Stream {
            template: Template {
                source: *at(&self.sources, nth),
                ..self.template.clone()
            },
            counts: counts.map(|count| *count as usize).collect(),
            groups: vec![Group {
                first_chunk: 0,
                end_chunk: self.chunks,
                rows: group.rows,
                parts: Arc::clone(&group.parts),
                members: Some(Arc::clone(&group.members)),
            }],
            slot: self.slot,
            first_group: which,
            base: at(&group.members, ..nth - first).iter().sum(),
        }
    }
}
