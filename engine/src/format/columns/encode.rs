//! Encodes some chunks as a unit: splits their records into columns and rebuilds them to check that every byte comes back.
//!
//! A unit stays raw if that fails (a chunk does not verify, payloads do not match their template) or if columns save too little.

use std::collections::HashMap;

use super::buffers::Buffers;
use super::codec::{ColumnEncoder, TAIL};
use super::families::{self, FamilyTable};
use super::gather::Columns;
use super::groups::{GroupTable, SectionTable, section_checksum};
use super::head::{Form, StreamTable, Tables, encode_head};
use super::raw::put_raw_unit;
use super::saves_enough;
use super::split::{Records, Split};
use super::stream::Stream;
use super::tail_writer::TailWriter;
use super::template::{PieceKind, Template};
use super::unit::Unit;
use super::zone::Zone;
use crate::format::bytes::pad8;
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// This many sources with few rows and the same layout form a family.
const FAMILY_MEMBERS_LEAST: usize = 2;

/// A part of a row group ends with the block that reaches this length, because the description of a part takes some 7 bytes.
const PART_BYTES_LEAST: usize = 512;
/// A block of this length is in no part with shorter ones before it: null bits and constants are read for many questions.
const BLOCK_BYTES_ALONE: usize = 2048;

/// Makes units and keeps its buffers.
pub struct UnitEncoder {
    uuid: [u8; 16],
    chunk_bytes: u32,
    split: Split,
    writer: GroupWriter,
    body: Vec<u8>,
    /// The unit, until it was read back.
    unit: Vec<u8>,
    rebuilt: Rebuilt,
}

/// The buffers into which a unit is read back.
#[derive(Default)]
struct Rebuilt {
    buffers: Buffers,
    chunk: Vec<u8>,
}

/// Writes row groups and keeps its buffers.
struct GroupWriter {
    columns: Columns,
    encoder: ColumnEncoder,
    tails: TailWriter,
}

impl UnitEncoder {
    pub fn new(uuid: [u8; 16], chunk_bytes: u32) -> UnitEncoder {
        UnitEncoder::of(uuid, chunk_bytes, true)
    }

    /// An encoder for a directory whose format has no form for shared strings.
    pub fn without_shared_strings(uuid: [u8; 16], chunk_bytes: u32) -> UnitEncoder {
        UnitEncoder::of(uuid, chunk_bytes, false)
    }

    fn of(uuid: [u8; 16], chunk_bytes: u32, shares_strings: bool) -> UnitEncoder {
        UnitEncoder {
            uuid,
            chunk_bytes,
            split: Split::default(),
            writer: GroupWriter {
                columns: Columns::default(),
                encoder: ColumnEncoder::default(),
                tails: TailWriter::new(shares_strings),
            },
            body: Vec::new(),
            unit: Vec::new(),
            rebuilt: Rebuilt::default(),
        }
    }

    /// An encoder of the same directory's units.
    pub fn another(&self) -> UnitEncoder {
        UnitEncoder::of(
            self.uuid,
            self.chunk_bytes,
            self.writer.tails.shares_strings(),
        )
    }

    /// Appends the unit of whole chunks, the first of which stands at `first`. `template_of` says how a source's payloads are taken apart in the chunk
    /// at an address.
    pub fn encode(
        &mut self,
        first: Address,
        chunks: &[u8],
        template_of: impl FnMut(SourceId, Address) -> Template,
        out: &mut Vec<u8>,
    ) {
        let chunk_bytes = self.chunk_bytes as usize;
        let is_split = (self.split).fill(&self.uuid, first, chunks, chunk_bytes, template_of);
        let is_smaller = is_split
            && self.put_columns(first, chunks)
            && saves_enough(self.unit.len() as u64, chunks.len() as u64)
            && self.is_rebuilt(first, chunks);
        match is_smaller {
            true => out.extend_from_slice(&self.unit),
            false => put_raw_unit(&self.uuid, first, self.chunk_bytes, chunks, out),
        }
    }

    /// Reports whether the unit restores exactly these chunks.
    fn is_rebuilt(&mut self, first: Address, chunks: &[u8]) -> bool {
        let bytes = std::mem::take(&mut self.unit);
        let Ok(mut unit) = Unit::of(&self.uuid, first, self.chunk_bytes, bytes) else {
            return false;
        };
        let Rebuilt { buffers, chunk } = &mut self.rebuilt;
        unit.lend(std::mem::take(buffers));
        chunk.resize(self.chunk_bytes as usize, 0);
        let mut chunks = chunks.chunks_exact(chunk.len()).enumerate();
        let is_same = chunks.all(|(nth, held)| unit.chunk(nth, chunk).is_ok() && chunk == held);
        *buffers = unit.take_buffers();
        self.unit = unit.shed();
        is_same
    }

    /// Moves the streams of families behind the others, side by side and ascending by source. Returns the number of members of each family.
    fn arrange(&mut self) -> Vec<usize> {
        let mut of_layouts: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (nth, stream) in self.split.streams.iter().enumerate() {
            if stream.count() < families::FAMILY_ROWS {
                let mut layout = Vec::new();
                stream.template.encode_shape(&mut layout);
                of_layouts.entry(layout).or_default().push(nth);
            }
        }
        let mut families: Vec<Vec<usize>> = of_layouts.into_values().collect();
        families.retain(|members| members.len() >= FAMILY_MEMBERS_LEAST);
        if families.is_empty() {
            return Vec::new();
        }
        families.sort_unstable();
        for members in &mut families {
            members.sort_by_key(|nth| at(&self.split.streams, *nth).template.source);
        }
        let mut is_member = vec![false; self.split.streams.len()];
        let members = families.iter().flatten();
        members
            .clone()
            .for_each(|nth| *at_mut(&mut is_member, *nth) = true);
        let alone = (0..is_member.len()).filter(|nth| !at(&is_member, *nth));
        let arranged: Vec<usize> = alone.chain(members.copied()).collect();
        let mut numbers = vec![0; arranged.len()];
        let mut streams: Vec<Option<Records>> = self.split.streams.drain(..).map(Some).collect();
        for (number, nth) in (0..).zip(arranged) {
            *at_mut(&mut numbers, nth) = number;
            self.split.streams.extend(at_mut(&mut streams, nth).take());
        }
        for stream in &mut self.split.order {
            *stream = *at(numbers.as_slice(), *stream as usize);
        }
        families.iter().map(Vec::len).collect()
    }

    /// Builds the unit. Returns false if some payloads do not match their template.
    fn put_columns(&mut self, first: Address, chunks: &[u8]) -> bool {
        let families = self.arrange();
        self.body.clear();
        let mut sections = Sections {
            uuid: &self.uuid,
            first,
            ordinal: 0,
            body: &mut self.body,
            begun: 0,
        };
        let (split, writer) = (&self.split, &mut self.writer);
        let mut order = split.order.as_slice();
        let count = split.checksums.len();
        let mut tables = Tables {
            checksums: &split.checksums,
            has_anchors: &split.has_anchors,
            ..Tables::default()
        };
        for chunk in 0..count {
            let counts = split
                .streams
                .iter()
                .map(|stream| *at(&stream.counts, chunk));
            let (of_chunk, rest) = order.split_at(counts.sum());
            order = rest;
            if !of_chunk.is_empty() {
                writer.encoder.put(of_chunk, None, &[], sections.body);
                sections.body.extend_from_slice(&TAIL);
            }
            tables.orders.push(sections.end(sections.body.len()));
        }
        let members: usize = families.iter().sum();
        let (alone, mut members) = split.streams.split_at(split.streams.len() - members);
        for stream in alone {
            let mut rest = GroupRows::of(stream, chunks);
            let mut groups = Vec::new();
            let mut zones = vec![Zone::NONE; stream.template.fields.len()];
            for (_, _, rows) in Stream::split(&stream.counts) {
                let rows = rest.take(rows);
                let Some(group) = writer.put(rows, &[], &mut zones, &mut sections) else {
                    return false;
                };
                groups.push(group);
            }
            tables.streams.push(StreamTable {
                template: &stream.template,
                counts: &stream.counts,
                groups,
                zones,
            });
        }
        for count in families {
            let (family, others) = members.split_at(count);
            members = others;
            let Some(family) = put_family(family, chunks, writer, &mut sections) else {
                return false;
            };
            tables.families.push(family);
        }
        let body = sections.body;
        pad8(body);
        let head = encode_head(&self.uuid, first, Form::Columns, count, &tables, body.len());
        self.unit.clear();
        self.unit.extend_from_slice(&head);
        self.unit.extend_from_slice(body);
        true
    }
}

/// Appends the row groups of a family.
fn put_family<'a>(
    members: &'a [Records],
    chunks: &[u8],
    writer: &mut GroupWriter,
    sections: &mut Sections<'_>,
) -> Option<FamilyTable<'a>> {
    let template = &members.first()?.template;
    let mut all = Records::of(template.clone(), 0);
    members.iter().for_each(|member| all.append(member));
    let rows: Vec<usize> = members.iter().map(Records::count).collect();
    let mut left = rows.as_slice();
    let mut rest = GroupRows::of(&all, chunks);
    let mut zones = vec![Zone::NONE; template.fields.len()];
    let groups = families::split(&rows).into_iter().map(|count| {
        let (own, others) = left.split_at(count);
        left = others;
        let rows = rest.take(own.iter().sum());
        let group = writer.put(rows, own, &mut zones, sections)?;
        Some((count, group))
    });
    let groups = groups.collect::<Option<Vec<(usize, GroupTable)>>>()?;
    let counts = members.iter().flat_map(|member| &member.counts);
    let sources = members.iter().map(|member| member.template.source);
    Some(FamilyTable {
        template,
        sources: sources.collect(),
        counts: counts.map(|count| *count as u64).collect(),
        groups,
        zones,
    })
}

/// The rows of a stream that become a row group, or the rest of them.
#[derive(Copy, Clone)]
struct GroupRows<'a> {
    template: &'a Template,
    chunks: &'a [u8],
    places: &'a [u32],
    arrivals: &'a [u64],
}

impl<'a> GroupRows<'a> {
    fn of(stream: &'a Records, chunks: &'a [u8]) -> GroupRows<'a> {
        GroupRows {
            template: &stream.template,
            chunks,
            places: &stream.places,
            arrivals: &stream.arrivals,
        }
    }

    /// Takes `rows` rows from the front.
    fn take(&mut self, rows: usize) -> GroupRows<'a> {
        let (places, places_left) = self.places.split_at(rows);
        let (arrivals, arrivals_left) = self.arrivals.split_at(rows);
        (self.places, self.arrivals) = (places_left, arrivals_left);
        GroupRows {
            places,
            arrivals,
            ..*self
        }
    }
}

impl GroupWriter {
    /// Appends a row group and adds its values to the zones of the fields. `members` holds the rows of each member, if several share it. Returns `None` if some
    /// payloads do not match the template.
    fn put(
        &mut self,
        rows: GroupRows<'_>,
        members: &[usize],
        zones: &mut [Zone],
        sections: &mut Sections<'_>,
    ) -> Option<GroupTable> {
        let GroupRows {
            template,
            chunks,
            places,
            arrivals,
        } = rows;
        let mut parts = Parts {
            table: GroupTable::new(),
            blocks: 0,
            blocks_end: sections.body.len(),
            left: template.blocks(),
        };
        let GroupWriter {
            columns,
            encoder,
            tails,
        } = self;
        columns.gather(template, chunks, places);
        encoder.put(arrivals, None, members, sections.body);
        parts.end_block(sections);
        let (mut lengths, mut seen) = (Vec::new(), Vec::new());
        for (nth, piece) in template.pieces.iter().enumerate() {
            let (column, floats) = (columns.column(nth), piece.float_bytes());
            seen.push(encoder.put(column, floats, members, sections.body));
            parts.end_block(sections);
            lengths.extend((piece.kind == PieceKind::Length).then_some(nth));
        }
        if template.has_rest {
            let nth = template.pieces.len();
            let column = columns.column(nth);
            encoder.put(column, None, members, sections.body);
            parts.end_block(sections);
            lengths.push(nth);
        }
        let mut add_zones = |columns: &Columns, is_meant: &dyn Fn(usize) -> bool| {
            let fields = template.fields.iter().zip(&mut *zones);
            for (field, zone) in fields.filter(|(field, _)| is_meant(field.piece.into())) {
                let seen = *at(seen.as_slice(), usize::from(field.piece));
                zone.add(columns.zone(template, field, seen));
            }
        };
        add_zones(columns, &|piece| !lengths.contains(&piece));
        for nth in &lengths {
            columns.take_strings(chunks, *nth)?;
            add_zones(columns, &|piece| piece == *nth);
            let lengths = columns.column(*nth);
            tails.put(columns.strings(), lengths, encoder, sections.body);
        }
        if !lengths.is_empty() {
            parts.end_block(sections);
        }
        columns.are_whole(chunks, places).then_some(parts.table)
    }
}

/// Splits a row group into parts while its blocks are appended.
struct Parts {
    table: GroupTable,
    /// Blocks since the last part.
    blocks: usize,
    /// The end of the last block in the body.
    blocks_end: usize,
    left: usize,
}

impl Parts {
    fn end_block(&mut self, sections: &mut Sections<'_>) {
        let block_bytes = sections.body.len() - self.blocks_end;
        if self.blocks > 0 && block_bytes >= BLOCK_BYTES_ALONE {
            self.table
                .push((self.blocks, sections.end(self.blocks_end)));
            self.blocks = 0;
        }
        self.blocks += 1;
        self.left -= 1;
        if self.left == 0 {
            // Unpacking reads a little past the end.
            sections.body.extend_from_slice(&TAIL);
        }
        if self.left == 0 || sections.grown() >= PART_BYTES_LEAST {
            self.table
                .push((self.blocks, sections.end(sections.body.len())));
            self.blocks = 0;
        }
        self.blocks_end = sections.body.len();
    }
}

/// The sections of a unit's body as they grow.
struct Sections<'a> {
    uuid: &'a [u8; 16],
    first: Address,
    ordinal: u64,
    body: &'a mut Vec<u8>,
    begun: usize,
}

impl Sections<'_> {
    /// Bytes appended since the last call of [`Sections::end`].
    fn grown(&self) -> usize {
        self.body.len() - self.begun
    }

    /// Ends the section that began at the last call, at a place of the body.
    fn end(&mut self, end: usize) -> SectionTable {
        let bytes = at(self.body, self.begun..end);
        let section = SectionTable {
            bytes: bytes.len(),
            checksum: section_checksum(self.uuid, self.first, self.ordinal, bytes),
        };
        self.ordinal += 1;
        self.begun = end;
        section
    }
}
