//! Families: the sources of one layout that have few rows in a unit. Their rows follow one another source by source, and several members share a row group.
//!
//! Alone, the description of such a source and its columns would take more bytes than its rows.

use std::cell::OnceCell;
use std::sync::Arc;

use super::codec::{ColumnEncoder, Cursor, TAIL, open_block};
use super::groups::{Group, GroupPart, GroupTable, Places, put_group};
use super::stream::Stream;
use super::template::Template;
use super::zone::{Zone, put_zones, zones_of};
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::memory;
use crate::proven::at;
use crate::types::SourceId;

/// Streams with fewer rows may be members, and a row group ends with the member that reaches this number. It is small because a question about one member
/// decodes the whole group.
pub(super) const FAMILY_ROWS: usize = 256;

/// The description of a family in the head.
#[derive(Debug)]
pub(super) struct Family {
    /// The template of each member, except its source.
    template: Template,
    sources: Vec<SourceId>,
    chunks: usize,
    /// Rows in each chunk, member by member: fewer than [`FAMILY_ROWS`] in all.
    counts: Vec<u8>,
    groups: Vec<SharedGroup>,
    zones: Arc<[Zone]>,
    /// The slot that decodes the rows of the first group.
    slot: usize,
    /// The members that a question asked for.
    streams: Vec<OnceCell<Box<Stream>>>,
}

/// Consecutive members whose rows are one row group.
#[derive(Debug)]
struct SharedGroup {
    end_member: usize,
    rows: usize,
    parts: Arc<[GroupPart]>,
    /// The rows of each member.
    members: Arc<[usize]>,
}

/// The encoder's description of a family.
pub(super) struct FamilyTable<'a> {
    pub template: &'a Template,
    /// Ascending.
    pub sources: Vec<SourceId>,
    /// Rows in each chunk, member by member.
    pub counts: Vec<u64>,
    /// The number of members of each group, and its parts.
    pub groups: Vec<(usize, GroupTable)>,
    pub zones: Vec<Zone>,
}

/// Splits members with these numbers of rows into row groups: each takes as few members as reach the least size, or all that remain. Returns the number of
/// members of each.
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
    family.template.encode_shape(head);
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
    put_zones(&family.template.zone_kinds(), &family.zones, head);
}

impl Family {
    /// Takes the next family, of at most `members_most` members. `slot` decodes the rows of its first group.
    pub fn decode(
        head: &mut Cursor<'_>,
        places: &mut Places,
        chunks: usize,
        members_most: usize,
        slot: usize,
    ) -> Result<Family, FormatError> {
        let template = Template::decode_shape(head, SourceId(0))?;
        let count = head.number()?;
        // Each member takes a byte at least.
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
            // Each member has a row at least.
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
        let zones = zones_of(head, &template.zone_kinds())?;
        let mut streams = Vec::new();
        memory::reserve(&mut streams, members)?;
        streams.resize_with(members, OnceCell::new);
        Ok(Family {
            template,
            sources,
            chunks,
            counts,
            groups,
            zones,
            slot,
            streams,
        })
    }

    /// The least bytes of a record in a chunk.
    pub fn record_bytes_least(&self) -> usize {
        self.template.record_bytes_least()
    }

    /// The template of each member, except its source.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The zones of all members together.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// The source of each member.
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// Returns the rows of all members in each chunk.
    pub fn rows(&self) -> Vec<usize> {
        let mut rows = vec![0; self.chunks];
        for own in self.counts.chunks(self.chunks) {
            for (rows, count) in rows.iter_mut().zip(own) {
                *rows += *count as usize;
            }
        }
        rows
    }

    /// Approximate memory without its streams, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let parts: usize = self.groups.iter().map(|group| group.parts.len()).sum();
        let of_member =
            size_of::<SourceId>() + size_of::<usize>() + size_of::<OnceCell<Box<Stream>>>();
        size_of_val(self.counts.as_slice())
            + self.sources.len() * of_member
            + size_of_val(self.groups.as_slice())
            + parts * size_of::<GroupPart>()
    }

    /// Drops the streams that a question asked for, because they take more memory than their description.
    pub fn forget_streams(&mut self) {
        self.streams.fill_with(OnceCell::new);
    }

    pub fn groups(&self) -> usize {
        self.groups.len()
    }

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
            zones: Arc::clone(&self.zones),
            slot: self.slot,
            first_group: which,
            base: at(&group.members, ..nth - first).iter().sum(),
        }
    }
}
