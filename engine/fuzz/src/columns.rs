//! Segments of the record log by FORMAT.md alone: units put together of any parts, and their checksums made right after a change.
//!
//! The engine's decoder trusts nothing that does not verify; this one takes places from bytes of any kind, and stops where they lead nowhere.

use loom_engine::Address;
use loom_engine::format::{UNIT_CHUNKS, UNIT_HEADER_BYTES, checksum_for};

/// The log number of all checksums in segments of the record log.
const COLUMNS_LOG: u8 = 5;
const UNIT_MAGIC: u32 = 0x554D_4F4C;
const SEGMENT_MAGIC: u64 = 0x534E_4D43_4D4F_4F4C;
const FOOTER_BYTES: usize = 16;
/// A row group holds the rows of as few chunks as have so many.
const GROUP_ROWS: u64 = 1024;

/// A stream of a unit of one chunk.
pub struct Stream<'a> {
    /// The source and the shape, which has no fields, as they stand in a head.
    pub head: &'a [u8],
    pub rows: u8,
    pub group: &'a [u8],
}

/// A unit of one chunk, each of whose parts is what the caller says; the lengths and checksums are right.
pub fn unit(uuid: &[u8; 16], first: Address, order: &[u8], streams: &[Stream<'_>]) -> Vec<u8> {
    let mut head = UNIT_MAGIC.to_le_bytes().to_vec();
    head.resize(16, 0);
    head.extend_from_slice(&[1, 1]);
    head.extend_from_slice(&(streams.len() as u16).to_le_bytes());
    // Its first word, and the checksum and the anchors of the chunk.
    head.extend_from_slice(&[0; 4 + 4 + 1]);
    put_section(&mut head, order);
    put_number(&mut head, streams.len() as u64);
    let mut body = order.to_vec();
    for stream in streams {
        head.extend_from_slice(stream.head);
        put_number(&mut head, stream.rows.into());
        if stream.rows > 0 {
            // The row group is one part.
            put_number(&mut head, blocks_of(stream.head).unwrap_or(1));
            put_section(&mut head, stream.group);
            body.extend_from_slice(stream.group);
        }
    }
    head.resize(head.len().next_multiple_of(8), 0);
    body.resize(body.len().next_multiple_of(8), 0);
    let lengths = [head.len() + body.len(), head.len()].map(|bytes| (bytes as u32).to_le_bytes());
    if let Some(place) = head.get_mut(8..16) {
        place.copy_from_slice(&lengths.concat());
    }
    head.extend_from_slice(&body);
    repair_unit(uuid, first, &mut head);
    head
}

/// The number of blocks in a row group of a stream.
fn blocks_of(stream: &[u8]) -> Option<u64> {
    let mut head = Head {
        unit: stream,
        at: 0,
        next: 0,
    };
    head.number()?;
    head.shape().map(|(blocks, _)| blocks)
}

fn put_section(head: &mut Vec<u8>, bytes: &[u8]) {
    put_number(head, bytes.len() as u64);
    head.extend_from_slice(&[0; 4]);
}

pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Makes the checksums of a unit's sections and of its head right, as far as they are found.
pub fn repair_unit(uuid: &[u8; 16], first: Address, unit: &mut [u8]) {
    let head_bytes = u32_at(unit, 12) as usize;
    for (nth, section) in (1..).zip(sections(unit)) {
        let Some(bytes) = unit.get(section.start..section.end) else {
            break;
        };
        let sum = checksum_for(uuid, COLUMNS_LOG, first.0 + nth, bytes);
        put_sum(unit, section.checksum_at, sum);
    }
    if let Some(head) = unit.get(8..head_bytes) {
        let sum = checksum_for(uuid, COLUMNS_LOG, first.0, head);
        put_sum(unit, 4, sum);
    }
}

/// Makes every checksum of a finished segment right. The units are found by their directory, as far as it can be read.
pub fn repair_segment(uuid: &[u8; 16], chunk_bytes: usize, segment_bytes: u64, file: &mut [u8]) {
    let unit_bytes = UNIT_CHUNKS * chunk_bytes as u64;
    let units = (segment_bytes / unit_bytes) as usize;
    let directory = file.len().saturating_sub((units + 1) * 8 + FOOTER_BYTES);
    let starts: Vec<usize> = (0..=units)
        .map(|nth| u64_at(file, directory + nth * 8) as usize)
        .collect();
    for (nth, place) in starts.windows(2).enumerate() {
        let &[start, end] = place else { continue };
        let first = Address(nth as u64 * unit_bytes);
        if let Some(unit) = file.get_mut(start..end) {
            repair_unit(uuid, first, unit);
        }
    }
    let zones = starts.last().copied().unwrap_or(directory);
    repair_zones(
        uuid,
        Address::ZERO,
        file.get_mut(zones..directory).unwrap_or_default(),
    );
    repair_directory(
        uuid,
        Address::ZERO,
        file.get_mut(directory..).unwrap_or_default(),
    );
}

/// Makes the checksum of a segment's zones right, if there are any.
fn repair_zones(uuid: &[u8; 16], first: Address, zones: &mut [u8]) {
    if let Some(content) = zones.get(8..) {
        let sum = checksum_for(uuid, COLUMNS_LOG, first.0, content);
        put_sum(zones, 4, sum);
    }
}

/// Makes the checksum of a segment's directory right, if there is room for one.
pub fn repair_directory(uuid: &[u8; 16], first: Address, directory: &mut [u8]) {
    let Some(table) = directory.len().checked_sub(FOOTER_BYTES) else {
        return;
    };
    let sum = checksum_for(
        uuid,
        COLUMNS_LOG,
        first.0,
        directory.get(..table).unwrap_or_default(),
    );
    put_sum(directory, table, sum);
}

/// The directory of units that begin there, and the last of which ends there.
pub fn directory(uuid: &[u8; 16], first: Address, starts: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = starts
        .iter()
        .flat_map(|start| start.to_le_bytes())
        .collect();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(starts.len() as u32).saturating_sub(1).to_le_bytes());
    bytes.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    repair_directory(uuid, first, &mut bytes);
    bytes
}

/// Where a section stands in its unit, and where its checksum.
struct Section {
    checksum_at: usize,
    start: usize,
    end: usize,
}

/// The sections that a head names, in order.
fn sections(unit: &[u8]) -> Vec<Section> {
    let mut found = Vec::new();
    if unit.get(16) == Some(&1) {
        let _ = find_sections(unit, &mut found);
    }
    found
}

fn find_sections(unit: &[u8], found: &mut Vec<Section>) -> Option<()> {
    let chunks = usize::from(*unit.get(17)?);
    let streams = u16::from_le_bytes(*unit.get(18..)?.first_chunk()?);
    let mut head = Head {
        unit,
        at: UNIT_HEADER_BYTES + 5 * chunks,
        next: u32_at(unit, 12) as usize,
    };
    for _ in 0..chunks {
        found.push(head.section()?);
    }
    let alone = head.number()?.min(streams.into());
    let mut members = u64::from(streams) - alone;
    for _ in 0..alone {
        head.number()?;
        let (blocks, fields) = head.shape()?;
        let mut rows = 0u64;
        let mut groups = 0;
        for _ in 0..chunks {
            rows = rows.saturating_add(head.number()?);
            if rows >= GROUP_ROWS {
                (rows, groups) = (0, groups + 1);
            }
        }
        for _ in 0..groups + u32::from(rows > 0) {
            head.group(blocks, found)?;
        }
        head.zones(fields)?;
    }
    while members > 0 {
        let (blocks, fields) = head.shape()?;
        let own = head.number()?.min(members);
        for _ in 0..own {
            head.number()?;
        }
        // The block of how many records they have.
        let counts = usize::try_from(head.number()?).ok()?;
        head.at = head.at.checked_add(counts)?;
        let mut grouped = 0;
        while grouped < own {
            grouped += head.number()?.clamp(1, own - grouped);
            head.group(blocks, found)?;
        }
        head.zones(fields)?;
        members -= own.max(1);
    }
    Some(())
}

struct Head<'a> {
    unit: &'a [u8],
    at: usize,
    /// Where the next section begins.
    next: usize,
}

impl Head<'_> {
    /// Passes over the shape of a stream; returns how many blocks its row groups have, of which the strings are one, and how many fields have zones.
    fn shape(&mut self) -> Option<(u64, u64)> {
        let count = self.number()?;
        let bytes = usize::try_from(count >> 1).ok()?;
        let pieces = self.unit.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        let has_rest = count & 1;
        let has_strings = has_rest == 1 || pieces.iter().any(|piece| piece >> 4 == 3);
        let fields_bytes = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(fields_bytes)?;
        let mut fields = 0;
        while self.at < end {
            if self.number()? & 1 == 1 {
                self.number()?;
            }
            fields += 1;
        }
        let blocks = 1 + (count >> 1) + has_rest + u64::from(has_strings);
        Some((blocks, fields))
    }

    fn zones(&mut self, fields: u64) -> Option<()> {
        for _ in 0..fields {
            let shape = usize::from(*self.unit.get(self.at)?);
            self.at += match shape & 0x80 {
                0 => 1,
                _ => 1 + (shape & 7) + 1 + (shape >> 3 & 7) + 1,
            };
        }
        Some(())
    }

    /// The sections of a row group.
    fn group(&mut self, blocks: u64, found: &mut Vec<Section>) -> Option<()> {
        let mut left = blocks;
        while left > 0 {
            let own = self.number()?;
            left -= own.clamp(1, left);
            found.push(self.section()?);
        }
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.unit.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn section(&mut self) -> Option<Section> {
        let bytes = usize::try_from(self.number()?).ok()?;
        let section = Section {
            checksum_at: self.at,
            start: self.next,
            end: self.next.checked_add(bytes)?,
        };
        self.at += 4;
        self.next = section.end;
        Some(section)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn put_sum(bytes: &mut [u8], at: usize, sum: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}
