//! The head of a unit: what it holds and where, as it stands in front of it.
//!
//! Foreign bytes: what a head claims is bounded by the chunks that its unit stands for before anything is allocated.

use super::numbers::Blocks;
use super::template::Template;
use super::{COLUMNS_LOG, GROUP_ROWS_LEAST};
use crate::format::bytes::{FormatError, invalid, pad8, put_leb128, u32_at};
use crate::format::checksum::checksum_for;
use crate::proven::{at, at_mut};
use crate::types::Address;

/// The fixed part of a head.
pub const UNIT_HEADER_BYTES: usize = 24;
const UNIT_MAGIC: u32 = 0x554D_4F4C;

/// What a unit holds its chunks as.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// As they were: columns would save too little, or a chunk does not verify.
    Rows = 0,
    Columns = 1,
}

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

/// The rows of a stream in some chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub first_chunk: usize,
    pub end_chunk: usize,
    pub rows: usize,
    pub section: Section,
}

/// The records of one source and one layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    pub template: Template,
    /// Rows in each chunk.
    pub counts: Vec<usize>,
    pub groups: Vec<Group>,
}

impl Stream {
    /// Splits its rows into groups: the first and the end of their chunks, and their rows.
    pub fn split(counts: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut groups = Vec::new();
        let (mut first, mut rows) = (0, 0);
        for (chunk, count) in counts.iter().enumerate() {
            rows += count;
            if rows >= GROUP_ROWS_LEAST {
                groups.push((first, chunk + 1, rows));
                (first, rows) = (chunk + 1, 0);
            }
        }
        if rows > 0 {
            groups.push((first, counts.len(), rows));
        }
        groups
    }
}

/// The first bytes of a unit: how long it is and what it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitHeader {
    pub checksum: u32,
    /// Of all of it, a multiple of 8.
    pub unit_bytes: usize,
    /// Of the head, this header included.
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
            0 => Form::Rows,
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
            Form::Rows => {
                header.head_bytes == UNIT_HEADER_BYTES
                    && header.unit_bytes == UNIT_HEADER_BYTES + rows_bytes
            }
            Form::Columns => header.unit_bytes < rows_bytes,
        };
        if !may_be || !length_fits {
            return invalid("the length of a unit", header.unit_bytes as u64);
        }
        Ok(header)
    }
}

/// The head of a unit in columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The stored checksum of each chunk.
    pub checksums: Vec<u32>,
    /// Whether later anchors than a chunk's own stand in it.
    pub has_anchors: Vec<bool>,
    /// The order of the streams' records, for each chunk.
    pub orders: Vec<Section>,
    pub streams: Vec<Stream>,
}

/// What the encoder knows of a section: its length and its checksum.
pub struct Part {
    pub bytes: usize,
    pub checksum: u32,
}

/// What the encoder knows of a unit in columns; empty for rows.
#[derive(Default)]
pub struct Tables<'a> {
    pub checksums: &'a [u32],
    pub has_anchors: &'a [bool],
    pub orders: Vec<Part>,
    pub streams: Vec<StreamTable<'a>>,
}

pub struct StreamTable<'a> {
    pub template: &'a Template,
    pub counts: &'a [usize],
    pub groups: Vec<Part>,
}

/// The head of a unit at `first`, in front of `body_bytes`.
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
    let shape = form as u32 | (chunks as u32) << 8 | (tables.streams.len() as u32) << 16;
    head.extend_from_slice(&shape.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    for checksum in tables.checksums {
        head.extend_from_slice(&checksum.to_le_bytes());
    }
    head.extend(tables.has_anchors.iter().map(|has| u8::from(*has)));
    tables
        .orders
        .iter()
        .for_each(|order| put_part(order, &mut head));
    for stream in &tables.streams {
        stream.template.encode(&mut head);
        let counts = stream.counts.iter();
        counts.for_each(|count| put_leb128(&mut head, *count as u64));
        let groups = stream.groups.iter();
        groups.for_each(|group| put_part(group, &mut head));
    }
    pad8(&mut head);
    seal_head(uuid, first, &mut head, body_bytes);
    head
}

fn put_part(part: &Part, out: &mut Vec<u8>) {
    put_leb128(out, part.bytes as u64);
    out.extend_from_slice(&part.checksum.to_le_bytes());
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

/// The checksum of a section of the unit at `first`.
pub fn section_checksum(uuid: &[u8; 16], first: Address, ordinal: u64, bytes: &[u8]) -> u32 {
    // Behind the head's own place.
    checksum_for(uuid, COLUMNS_LOG, first.0 + 1 + ordinal, bytes)
}

impl Head {
    /// The head of a unit in columns; `bytes` are all of it, verified or not.
    pub fn decode(
        header: &UnitHeader,
        bytes: &[u8],
        chunk_bytes: u32,
    ) -> Result<Head, FormatError> {
        let Some(tables) = bytes.get(UNIT_HEADER_BYTES..header.head_bytes) else {
            return Err(FormatError::Short {
                what: "a unit's head",
                have: bytes.len(),
                need: header.head_bytes,
            });
        };
        let mut tables = Blocks::new(tables);
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
        let mut streams = Vec::new();
        // What is left of each chunk for the records of further streams.
        let mut room = vec![chunk_bytes as usize; header.chunks];
        for _ in 0..header.streams {
            streams.push(stream_of(&mut tables, &mut places, &mut room)?);
        }
        Ok(Head {
            checksums: checksums.collect(),
            has_anchors: has_anchors.collect(),
            orders,
            streams,
        })
    }
}

fn stream_of(
    tables: &mut Blocks<'_>,
    places: &mut Places,
    room: &mut [usize],
) -> Result<Stream, FormatError> {
    let template = Template::decode(tables)?;
    let least = template.record_bytes_least();
    let mut counts = Vec::with_capacity(room.len());
    for room in room {
        let count = tables.number()?;
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(least));
        let Some(left) = taken.and_then(|taken| room.checked_sub(taken)) else {
            return invalid("the records of a stream in a chunk", count);
        };
        *room = left;
        counts.push(count as usize);
    }
    let groups: Result<Vec<Group>, FormatError> = Stream::split(&counts)
        .into_iter()
        .map(|(first_chunk, end_chunk, rows)| {
            Ok(Group {
                first_chunk,
                end_chunk,
                rows,
                section: places.section(tables)?,
            })
        })
        .collect();
    Ok(Stream {
        template,
        counts,
        groups: groups?,
    })
}

/// Where sections stand: one behind the other.
struct Places {
    next: usize,
    end: usize,
    ordinal: u64,
}

impl Places {
    fn section(&mut self, tables: &mut Blocks<'_>) -> Result<Section, FormatError> {
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
