//! The head of a unit, which describes its content and places.
//!
//! The bytes are foreign: each claim of a head is checked against the unit's chunks before anything is allocated.

use std::cell::OnceCell;

use super::codec::Cursor;
use super::families::{Family, FamilyTable, put_family};
use super::groups::{Group, GroupTable, Places, Section, SectionTable, put_group, put_section};
use super::stream::Stream;
use super::template::{Template, TemplateCheck};
use super::zone::{Zone, put_zones, zones_of};
use super::{COLUMNS_LOG, UNIT_CHUNKS};
use crate::format::bytes::{FormatError, invalid, pad8, put_leb128, u32_at};
use crate::format::checksum::checksum_for;
use crate::memory;
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// The fixed part of a head.
pub const UNIT_HEADER_BYTES: usize = 24;
const UNIT_MAGIC: u32 = 0x554D_4F4C;
/// The approximate memory of a stream of a dozen parts.
const STREAM_BYTES: usize = 1024;

/// The form in which a unit holds its chunks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Unchanged chunks: columns would save too little, a chunk does not verify, or there was no time.
    Raw = 0,
    Columns = 1,
}

/// The first bytes of a unit: its lengths and its form.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitHeader {
    pub checksum: u32,
    /// The whole unit, a multiple of 8.
    pub unit_bytes: usize,
    /// The head, this header included.
    pub head_bytes: usize,
    pub form: Form,
    pub chunks: usize,
    pub streams: usize,
}

impl UnitHeader {
    pub fn decode(bytes: &[u8], chunk_bytes: u32) -> Result<UnitHeader, FormatError> {
        let Some(bytes) = bytes.get(..UNIT_HEADER_BYTES) else {
            return Err(FormatError::Short {
                what: "a unit's head",
                have: bytes.len(),
                need: UNIT_HEADER_BYTES,
            });
        };
        if u32_at(bytes, 0) != UNIT_MAGIC {
            return invalid("the magic number of a unit", u32_at(bytes, 0).into());
        }
        let shape = u32_at(bytes, 16);
        let form = match shape & 0xFF {
            0 => Form::Raw,
            1 => Form::Columns,
            form => return invalid("the form of a unit", form.into()),
        };
        let header = UnitHeader {
            checksum: u32_at(bytes, 4),
            unit_bytes: u32_at(bytes, 8) as usize,
            head_bytes: u32_at(bytes, 12) as usize,
            form,
            chunks: (shape >> 8 & 0xFF) as usize,
            streams: (shape >> 16) as usize,
        };
        let rows_bytes = header.chunks * chunk_bytes as usize;
        let may_be = header.chunks >= 1
            && header.chunks as u64 <= super::UNIT_CHUNKS
            && header.head_bytes >= UNIT_HEADER_BYTES
            && header.unit_bytes >= header.head_bytes
            && header.unit_bytes.is_multiple_of(8);
        let length_fits = match form {
            Form::Raw => {
                header.head_bytes == UNIT_HEADER_BYTES
                    && header.unit_bytes <= UNIT_HEADER_BYTES + rows_bytes
            }
            Form::Columns => header.unit_bytes < rows_bytes,
        };
        if !may_be || !length_fits {
            return invalid("the length of a unit", header.unit_bytes as u64);
        }
        Ok(header)
    }
}

/// The head of a unit in columns. All of it was checked, but a stream is decoded only on demand, because a question is about few of a thousand.
#[derive(Debug)]
pub struct Head {
    /// The stored checksum of each chunk.
    pub checksums: Vec<u32>,
    /// For each chunk, whether it holds anchors besides its first.
    pub has_anchors: Vec<bool>,
    /// The order of the streams' records, for each chunk.
    pub orders: Vec<Section>,
    /// The bytes that describe the streams.
    tables: Vec<u8>,
    /// The streams that are alone. The members of families are numbered behind them.
    described: Vec<Described>,
    families: Vec<Family>,
    slots: usize,
    /// The sources, ascending, and the numbers of their streams.
    by_source: Vec<(SourceId, u16)>,
}

/// The place of a stream's description, and the stream once a question asked for it.
#[derive(Debug)]
struct Described {
    source: SourceId,
    /// Offset in the tables.
    start: usize,
    /// The place of its first section.
    places: Places,
    stream: OnceCell<Box<Stream>>,
}

/// The encoder's description of a unit in columns; empty for a raw one.
#[derive(Default)]
pub struct Tables<'a> {
    pub checksums: &'a [u32],
    pub has_anchors: &'a [bool],
    pub orders: Vec<SectionTable>,
    pub streams: Vec<StreamTable<'a>>,
    pub families: Vec<FamilyTable<'a>>,
}

pub struct StreamTable<'a> {
    pub template: &'a Template,
    pub counts: &'a [usize],
    pub groups: Vec<GroupTable>,
    pub zones: Vec<Zone>,
}

/// Encodes the head of a unit at `first`, in front of `body_bytes`.
pub fn encode_head(
    uuid: &[u8; 16],
    first: Address,
    form: Form,
    chunks: usize,
    tables: &Tables<'_>,
    body_bytes: usize,
) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(&UNIT_MAGIC.to_le_bytes());
    head.extend_from_slice(&[0; 12]);
    let families = tables.families.iter();
    let members: usize = families.clone().map(|family| family.sources.len()).sum();
    let streams = tables.streams.len() + members;
    let shape = form as u32 | (chunks as u32) << 8 | (streams as u32) << 16;
    head.extend_from_slice(&shape.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    for checksum in tables.checksums {
        head.extend_from_slice(&checksum.to_le_bytes());
    }
    head.extend(tables.has_anchors.iter().map(|has| u8::from(*has)));
    tables
        .orders
        .iter()
        .for_each(|order| put_section(order, &mut head));
    if form == Form::Columns {
        put_leb128(&mut head, tables.streams.len() as u64);
    }
    for stream in &tables.streams {
        stream.template.encode(&mut head);
        let counts = stream.counts.iter();
        counts.for_each(|count| put_leb128(&mut head, *count as u64));
        let groups = stream.groups.iter();
        groups.for_each(|group| put_group(group, &mut head));
        put_zones(&stream.template.zone_kinds(), &stream.zones, &mut head);
    }
    families.for_each(|family| put_family(family, &mut head));
    pad8(&mut head);
    seal_head(uuid, first, &mut head, body_bytes);
    head
}

/// Writes the lengths and the checksum of a head.
pub(super) fn seal_head(uuid: &[u8; 16], first: Address, head: &mut [u8], body_bytes: usize) {
    let unit_bytes = (head.len() + body_bytes) as u32;
    let head_bytes = head.len() as u32;
    at_mut(head, 8..12).copy_from_slice(&unit_bytes.to_le_bytes());
    at_mut(head, 12..16).copy_from_slice(&head_bytes.to_le_bytes());
    let checksum = checksum_for(uuid, COLUMNS_LOG, first.0, at(head, 8..));
    at_mut(head, 4..8).copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that the head of a unit at `first` is whole. `head` is as long as its header says.
pub fn verify_head(
    uuid: &[u8; 16],
    first: Address,
    header: &UnitHeader,
    head: &[u8],
) -> Result<(), FormatError> {
    let computed = checksum_for(uuid, COLUMNS_LOG, first.0, at(head, 8..));
    if computed != header.checksum {
        return Err(FormatError::Checksum {
            what: "a unit's head",
            stored: header.checksum,
            computed,
        });
    }
    Ok(())
}

impl Head {
    pub fn count(&self) -> usize {
        self.by_source.len()
    }

    pub fn stream(&self, nth: usize) -> &Stream {
        let Some(described) = self.described.get(nth) else {
            let (family, nth) = self.member(nth);
            return family.stream(nth);
        };
        let read = || {
            let mut tables = Cursor::new(at(&self.tables, described.start..));
            let chunks = self.orders.len();
            let stream = stream_of(&mut tables, &mut described.places.clone(), chunks, nth);
            Box::new(stream.expect("the streams of a head were checked"))
        };
        described.stream.get_or_init(read)
    }

    /// Returns the family of a stream that is not alone, and its number among the members.
    fn member(&self, nth: usize) -> (&Family, usize) {
        let mut nth = nth - self.described.len();
        for family in &self.families {
            let members = family.sources().len();
            if nth < members {
                return (family, nth);
            }
            nth -= members;
        }
        unreachable!("a head has as many streams as its families have members");
    }

    /// Approximate memory in bytes before any member of a family is asked for.
    pub fn memory_bytes(&self) -> usize {
        let families = self.families.iter().map(Family::memory_bytes);
        self.tables.len()
            + self.described.len() * (size_of::<Described>() + STREAM_BYTES)
            + size_of_val(self.by_source.as_slice())
            + families.sum::<usize>()
    }

    /// Drops the members of families that were asked for.
    pub fn forget_members(&mut self) {
        self.families.iter_mut().for_each(Family::forget_streams);
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Passes to `each` the template and the zones of each stream that is alone, and of each family with the sources of its members.
    pub fn each_shape(&self, mut each: impl FnMut(Option<&[SourceId]>, &Template, &[Zone])) {
        for nth in 0..self.described.len() {
            let stream = self.stream(nth);
            each(None, &stream.template, &stream.zones);
        }
        for family in &self.families {
            each(Some(family.sources()), family.template(), family.zones());
        }
    }

    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        (0..self.count()).map(|nth| self.stream(nth))
    }

    /// Reports whether a chunk was written. One that never was reads as zeroes.
    pub fn is_written(&self, nth: usize) -> bool {
        // The checksum of one chunk in 2^32 is 0, but its records have an order.
        *at(&self.checksums, nth) != 0 || at(&self.orders, nth).bytes > 0
    }

    /// Returns the streams of a source and their numbers, ascending.
    pub fn streams_of(
        &self,
        source: SourceId,
    ) -> impl DoubleEndedIterator<Item = (usize, &Stream)> + Clone {
        let first = self.by_source.partition_point(|(own, _)| *own < source);
        let end = self.by_source.partition_point(|(own, _)| *own <= source);
        let found = at(&self.by_source, first..end).iter();
        found.map(move |(_, nth)| (usize::from(*nth), self.stream(usize::from(*nth))))
    }

    /// Decodes the head of a unit in columns; `bytes` are all of it, verified or not.
    pub fn decode(
        header: &UnitHeader,
        bytes: &[u8],
        chunk_bytes: u32,
    ) -> Result<Head, FormatError> {
        let mut tables = Cursor::new(at(bytes, UNIT_HEADER_BYTES..));
        let mut places = Places {
            next: header.head_bytes,
            end: header.unit_bytes,
            ordinal: 0,
        };
        let checksums = tables.bytes(4 * header.chunks)?;
        let checksums = (0..header.chunks).map(|nth| u32_at(checksums, 4 * nth));
        let has_anchors = tables.bytes(header.chunks)?.iter().map(|has| *has != 0);
        let orders = (0..header.chunks).map(|_| places.section(&mut tables));
        let orders = orders.collect::<Result<Vec<Section>, FormatError>>()?;
        let count = tables.number()?;
        let alone = usize::try_from(count).ok();
        let Some(alone) = alone.filter(|alone| *alone <= header.streams) else {
            return invalid("the number of streams that stand alone", count);
        };
        let tables = memory::copied(tables.rest())?;
        let mut checked = Checked {
            blocks: Cursor::new(&tables),
            places,
            room: vec![chunk_bytes as usize; header.chunks],
        };
        let described = checked.streams(&tables, alone)?;
        let families = checked.families(alone, header.streams)?;
        let groups = families.iter().map(Family::groups);
        let slots = alone + groups.sum::<usize>();
        let sources = described.iter().map(|described| described.source);
        let members = families.iter().flat_map(Family::sources).copied();
        // The numbers of streams fit in 16 bits.
        let mut by_source: Vec<(SourceId, u16)> = sources.chain(members).zip(0..).collect();
        by_source.sort();
        Ok(Head {
            by_source,
            checksums: checksums.collect(),
            has_anchors: has_anchors.collect(),
            orders,
            described,
            families,
            slots,
            tables,
        })
    }
}

/// Checks the description of the streams up to the start of the blocks.
struct Checked<'a> {
    blocks: Cursor<'a>,
    places: Places,
    /// The room of each chunk for the records of further streams.
    room: Vec<usize>,
}

impl<'a> Checked<'a> {
    /// Subtracts a stream's records from the room; each takes at least `least` bytes.
    fn take(&mut self, counts: &[usize], least: usize) -> Result<(), FormatError> {
        for (room, count) in self.room.iter_mut().zip(counts) {
            let taken = count.checked_mul(least);
            let Some(left) = taken.and_then(|taken| room.checked_sub(taken)) else {
                return invalid("the records of a stream in a chunk", *count as u64);
            };
            *room = left;
        }
        Ok(())
    }

    /// Checks the streams that are alone and finds the place of each.
    fn streams(&mut self, tables: &'a [u8], alone: usize) -> Result<Vec<Described>, FormatError> {
        let mut template = TemplateCheck::default();
        let mut counts = [0; UNIT_CHUNKS as usize];
        let counts = at_mut(&mut counts, ..self.room.len());
        let mut described = Vec::new();
        memory::reserve(&mut described, alone)?;
        for _ in 0..alone {
            let start = tables.len() - self.blocks.rest().len();
            let places = self.places.clone();
            let (source, size) = template.pass(&mut self.blocks)?;
            self.blocks.numbers(counts)?;
            self.take(counts, size.record_bytes_least)?;
            for _ in Stream::split(counts) {
                self.places.group(&mut self.blocks, size.blocks, |_| ())?;
            }
            for kind in &size.zones {
                Zone::decode(&mut self.blocks, *kind)?;
            }
            described.push(Described {
                source,
                start,
                places,
                stream: OnceCell::new(),
            });
        }
        Ok(described)
    }

    /// Decodes the families, whose members are the remaining streams.
    fn families(&mut self, alone: usize, streams: usize) -> Result<Vec<Family>, FormatError> {
        let mut families = Vec::new();
        let (mut slot, mut found) = (alone, alone);
        while found < streams {
            let most = streams - found;
            let chunks = self.room.len();
            let family = Family::decode(&mut self.blocks, &mut self.places, chunks, most, slot)?;
            self.take(&family.rows(), family.record_bytes_least())?;
            slot += family.groups();
            found += family.sources().len();
            families.push(family);
        }
        Ok(families)
    }
}

fn stream_of(
    tables: &mut Cursor<'_>,
    places: &mut Places,
    chunks: usize,
    slot: usize,
) -> Result<Stream, FormatError> {
    let template = Template::decode(tables)?;
    let mut counts = vec![0; chunks];
    tables.numbers(&mut counts)?;
    let groups: Result<Vec<Group>, FormatError> = Stream::split(&counts)
        .map(|(first_chunk, end_chunk, rows)| {
            Ok(Group {
                first_chunk,
                end_chunk,
                rows,
                parts: places.parts(tables, template.blocks())?,
                members: None,
            })
        })
        .collect();
    Ok(Stream {
        groups: groups?,
        zones: zones_of(tables, &template.zone_kinds())?,
        template,
        counts,
        slot,
        first_group: 0,
        base: 0,
    })
}
