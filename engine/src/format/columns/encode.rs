//! Some chunks as a unit: their records are taken apart into columns, and put together again to see that every byte comes back.
//!
//! What does not come back (a chunk that does not verify, payloads that are not what their template says) and what saves too little stays rows.

use std::collections::HashMap;

use super::buffers::Buffers;
use super::families::{self, FamilyTable};
use super::groups::{GroupTable, SectionTable, TailForm, section_checksum};
use super::head::{Form, StreamTable, Tables, encode_head};
use super::numbers::{self, TAIL};
use super::saves_enough;
use super::stream::Stream;
use super::template::{PieceKind, Template};
use super::unit::Unit;
use crate::format::bytes::{pad8, put_leb128, u64_at};
use crate::format::record::RECORD_HEADER_BYTES;
use crate::format::{CHUNK_TRAILER_BYTES, Run, verify_chunk, walk_runs};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

const ZSTD_LEVEL: i32 = 1;
/// So many sources with few rows and the same layout are a family.
const FAMILY_MEMBERS_LEAST: usize = 2;
/// Fewer bytes are not compressed.
const COMPRESSED_LEAST: usize = 64;

/// A part of a row group ends with the block that makes it so long: what describes a part takes some 7 bytes.
const PART_BYTES_LEAST: usize = 512;

/// Makes units. Keeps its buffers.
pub struct UnitEncoder {
    uuid: [u8; 16],
    chunk_bytes: u32,
    streams: Vec<StreamRows>,
    /// Those of the unit before, for their buffers.
    spare: HashMap<SourceId, StreamRows>,
    order: Vec<u64>,
    has_anchors: Vec<bool>,
    rebuilt: Rebuilt,
    compressor: zstd::bulk::Compressor<'static>,
}

/// What a unit is read back into.
#[derive(Default)]
struct Rebuilt {
    bytes: Vec<u8>,
    buffers: Buffers,
    chunk: Vec<u8>,
}

/// The rows of a stream, column by column.
struct StreamRows {
    template: Template,
    fixed_bytes: usize,
    counts: Vec<usize>,
    arrivals: Vec<u64>,
    pieces: Vec<Vec<u64>>,
    /// Of tails: their lengths, where no piece holds them, and their bytes.
    rest_lengths: Vec<u64>,
    tails: Vec<Vec<u8>>,
}

impl UnitEncoder {
    pub fn new(uuid: [u8; 16], chunk_bytes: u32) -> UnitEncoder {
        UnitEncoder {
            uuid,
            chunk_bytes,
            streams: Vec::new(),
            spare: HashMap::new(),
            order: Vec::new(),
            has_anchors: Vec::new(),
            rebuilt: Rebuilt::default(),
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("level 1 exists"),
        }
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
        let start = out.len();
        let is_smaller = self
            .take_apart(first, chunks, template_of)
            .is_some_and(|checksums| {
                self.put_columns(first, &checksums, out);
                let bytes = out.len() - start;
                saves_enough(bytes as u64, chunks.len() as u64)
                    && self.is_rebuilt(first, chunks, at(out, start..))
            });
        if !is_smaller {
            out.truncate(start);
            self.put_rows(first, chunks, out);
        }
    }

    fn put_rows(&self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        let count = chunks.len() / self.chunk_bytes as usize;
        let tables = Tables::default();
        let last = chunks.iter().rposition(|byte| *byte != 0);
        let bytes = last.map_or(0, |last| (last + 1).next_multiple_of(8));
        let head = encode_head(&self.uuid, first, Form::Rows, count, &tables, bytes);
        out.extend_from_slice(&head);
        out.extend_from_slice(at(chunks, ..bytes));
    }

    /// Whether the unit gives back exactly these chunks.
    fn is_rebuilt(&mut self, first: Address, chunks: &[u8], unit: &[u8]) -> bool {
        let Rebuilt {
            bytes,
            buffers,
            chunk: rebuilt,
        } = &mut self.rebuilt;
        bytes.clear();
        bytes.extend_from_slice(unit);
        let Ok(mut unit) = Unit::of(&self.uuid, first, self.chunk_bytes, std::mem::take(bytes))
        else {
            return false;
        };
        unit.lend(std::mem::take(buffers));
        rebuilt.resize(self.chunk_bytes as usize, 0);
        let mut chunks = chunks.chunks_exact(rebuilt.len()).enumerate();
        let is_same =
            chunks.all(|(nth, chunk)| unit.chunk(nth, rebuilt).is_ok() && rebuilt == chunk);
        *buffers = unit.take_buffers();
        *bytes = unit.shed();
        is_same
    }

    /// Sorts the records into streams. Returns the stored checksum of each chunk, 0 of one that was never written; `None` where something is not as
    /// templates or the writer have it, and of chunks without records.
    fn take_apart(
        &mut self,
        first: Address,
        chunks: &[u8],
        mut template_of: impl FnMut(SourceId, Address) -> Template,
    ) -> Option<Vec<u32>> {
        self.spare = (self.streams.drain(..))
            .map(|stream| (stream.template.source, stream))
            .collect();
        self.order.clear();
        self.has_anchors.clear();
        let chunk_bytes = self.chunk_bytes as usize;
        let count = chunks.len() / chunk_bytes;
        let mut checksums = Vec::with_capacity(count);
        let mut latest: HashMap<SourceId, usize> = HashMap::new();
        for (nth, chunk) in chunks.chunks_exact(chunk_bytes).enumerate() {
            let address = first + (nth * chunk_bytes) as u64;
            if chunk.iter().all(|byte| *byte == 0) {
                checksums.push(0);
                self.has_anchors.push(false);
                continue;
            }
            verify_chunk(&self.uuid, address, chunk).ok()?;
            checksums.push(u64_at(chunk, chunk_bytes - CHUNK_TRAILER_BYTES) as u32);
            let mut seen: HashMap<SourceId, usize> = HashMap::new();
            let (mut fits, mut has_anchors, mut anchor) = (true, false, None);
            let (streams, spare, order) = (&mut self.streams, &mut self.spare, &mut self.order);
            walk_runs(chunk, |run| {
                has_anchors |= *anchor.get_or_insert(run.anchor) != run.anchor;
                let stream = *seen.entry(run.source).or_insert_with(|| {
                    let template = template_of(run.source, address);
                    let stream =
                        stream_of(streams, spare, latest.get(&run.source), template, count);
                    latest.insert(run.source, stream);
                    stream
                });
                order.extend(std::iter::repeat_n(stream as u64, run.records as usize));
                fits = fits && at_mut(streams, stream).take_run(nth, chunk, &run);
            })
            .ok()?;
            if !fits {
                return None;
            }
            self.has_anchors.push(has_anchors);
        }
        (!self.streams.is_empty()).then_some(checksums)
    }

    /// Puts the streams of families behind the others, and these side by side, ascending by source. Returns how many members each family has.
    fn arrange(&mut self) -> Vec<usize> {
        let mut of_layouts: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (nth, stream) in self.streams.iter().enumerate() {
            if stream.arrivals.len() < families::FAMILY_ROWS {
                let mut layout = Vec::new();
                stream.template.encode_pieces(&mut layout);
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
            members.sort_by_key(|nth| at(&self.streams, *nth).template.source);
        }
        let mut is_member = vec![false; self.streams.len()];
        let members = families.iter().flatten();
        members
            .clone()
            .for_each(|nth| *at_mut(&mut is_member, *nth) = true);
        let alone = (0..is_member.len()).filter(|nth| !at(&is_member, *nth));
        let arranged: Vec<usize> = alone.chain(members.copied()).collect();
        let mut numbers = vec![0; arranged.len()];
        let mut streams: Vec<Option<StreamRows>> = self.streams.drain(..).map(Some).collect();
        for (number, nth) in (0..).zip(arranged) {
            *at_mut(&mut numbers, nth) = number;
            self.streams.extend(at_mut(&mut streams, nth).take());
        }
        for stream in &mut self.order {
            *stream = *at(numbers.as_slice(), *stream as usize);
        }
        families.iter().map(Vec::len).collect()
    }

    fn put_columns(&mut self, first: Address, checksums: &[u32], out: &mut Vec<u8>) {
        let families = self.arrange();
        let mut sections = Sections {
            uuid: &self.uuid,
            first,
            ordinal: 0,
            body: Vec::new(),
            begun: 0,
        };
        let mut order = self.order.as_slice();
        let orders: Vec<SectionTable> = (0..checksums.len())
            .map(|chunk| {
                let records: usize = self
                    .streams
                    .iter()
                    .map(|stream| *at(&stream.counts, chunk))
                    .sum();
                let (of_chunk, rest) = order.split_at(records);
                order = rest;
                if records > 0 {
                    numbers::encode(of_chunk, None, &[], &mut sections.body);
                    sections.body.extend_from_slice(&TAIL);
                }
                sections.end()
            })
            .collect();
        let compressor = &mut self.compressor;
        let members: usize = families.iter().sum();
        let (alone, mut members) = self.streams.split_at(self.streams.len() - members);
        let streams = alone.iter().map(|stream| {
            let mut groups = GroupRows::of(stream);
            let split = Stream::split(&stream.counts);
            let groups = split.map(|(_, _, rows)| groups.put(rows, &[], compressor, &mut sections));
            StreamTable {
                template: &stream.template,
                counts: &stream.counts,
                groups: groups.collect(),
            }
        });
        let streams = streams.collect();
        let mut tables = Tables {
            checksums,
            has_anchors: &self.has_anchors,
            orders,
            streams,
            families: Vec::new(),
        };
        for count in families {
            let (family, others) = members.split_at(count);
            tables
                .families
                .extend(put_family(family, compressor, &mut sections));
            members = others;
        }
        let mut body = sections.body;
        pad8(&mut body);
        let form = match tables.families.as_slice() {
            [] => Form::Columns,
            _ => Form::Families,
        };
        let count = checksums.len();
        let head = encode_head(&self.uuid, first, form, count, &tables, body.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(&body);
    }
}

/// Puts the row groups of a family.
fn put_family<'a>(
    members: &'a [StreamRows],
    compressor: &mut zstd::bulk::Compressor<'_>,
    sections: &mut Sections<'_>,
) -> Option<FamilyTable<'a>> {
    let mut all = StreamRows::new(members.first()?.template.clone(), 0);
    members.iter().for_each(|member| all.append(member));
    let rows: Vec<usize> = members.iter().map(|member| member.arrivals.len()).collect();
    let mut left = rows.as_slice();
    let mut of_all = GroupRows::of(&all);
    let groups = families::split(&rows).into_iter().map(|count| {
        let (own, others) = left.split_at(count);
        left = others;
        let rows = own.iter().sum();
        (count, of_all.put(rows, own, compressor, sections))
    });
    let groups = groups.collect();
    let counts = members.iter().flat_map(|member| &member.counts);
    Some(FamilyTable {
        template: &members.first()?.template,
        sources: members
            .iter()
            .map(|member| member.template.source)
            .collect(),
        counts: counts.map(|count| *count as u64).collect(),
        groups,
    })
}

/// The stream of a source with that template, a new one where there is none. `latest`: the source's latest.
fn stream_of(
    streams: &mut Vec<StreamRows>,
    spare: &mut HashMap<SourceId, StreamRows>,
    latest: Option<&usize>,
    template: Template,
    chunks: usize,
) -> usize {
    if let Some(&stream) = latest
        && at(streams, stream).template == template
    {
        return stream;
    }
    let kept = spare.remove(&template.source);
    streams.push(match kept.filter(|kept| kept.template == template) {
        Some(kept) => kept.emptied(chunks),
        None => StreamRows::new(template, chunks),
    });
    streams.len() - 1
}

impl StreamRows {
    fn new(template: Template, chunks: usize) -> StreamRows {
        StreamRows {
            fixed_bytes: template.fixed_bytes(),
            counts: vec![0; chunks],
            arrivals: Vec::new(),
            pieces: vec![Vec::new(); template.pieces.len()],
            rest_lengths: Vec::new(),
            tails: vec![Vec::new(); template.tails()],
            template,
        }
    }

    /// Without rows, its buffers kept.
    fn emptied(mut self, chunks: usize) -> StreamRows {
        self.counts.clear();
        self.counts.resize(chunks, 0);
        self.arrivals.clear();
        self.rest_lengths.clear();
        self.pieces.iter_mut().for_each(Vec::clear);
        self.tails.iter_mut().for_each(Vec::clear);
        self
    }

    /// Takes the rows of another one of the same pieces.
    fn append(&mut self, other: &StreamRows) {
        self.arrivals.extend_from_slice(&other.arrivals);
        self.rest_lengths.extend_from_slice(&other.rest_lengths);
        for (column, more) in self.pieces.iter_mut().zip(&other.pieces) {
            column.extend_from_slice(more);
        }
        for (tails, more) in self.tails.iter_mut().zip(&other.tails) {
            tails.extend_from_slice(more);
        }
    }

    /// Takes the records of a run. False: they are not what the template says.
    fn take_run(&mut self, nth: usize, chunk: &[u8], run: &Run) -> bool {
        let payload_bytes = usize::from(run.payload_bytes);
        let Some(tail_bytes) = payload_bytes.checked_sub(self.fixed_bytes) else {
            return false;
        };
        let records = run.records as usize;
        *at_mut(&mut self.counts, nth) += records;
        let from = self.arrivals.len();
        self.arrivals
            .extend((0..run.records).map(|record| run.arrival(chunk, record).0 as u64));
        let mut place = run.offset as usize + RECORD_HEADER_BYTES;
        let entry_bytes = run.entry_bytes();
        for (piece, column) in self.template.pieces.iter().zip(&mut self.pieces) {
            let unused = 64 - 8 * u32::from(piece.bytes);
            let is_signed = piece.kind == PieceKind::Signed;
            // Behind a payload stand at least the 8 bytes of the trailer.
            let first = place;
            let shifted = (0..records)
                .map(move |record| u64_at(chunk, first + record * entry_bytes) << unused);
            if is_signed {
                column.extend(shifted.map(move |number| (number as i64 >> unused) as u64));
            } else {
                column.extend(shifted.map(move |number| number >> unused));
            }
            place += usize::from(piece.bytes);
        }
        if self.template.has_rest {
            self.rest_lengths
                .extend(std::iter::repeat_n(tail_bytes as u64, records));
            for tails in &mut self.tails {
                for record in 0..records {
                    let start = place + record * entry_bytes;
                    tails.extend_from_slice(at(chunk, start..start + tail_bytes));
                }
            }
            return true;
        }
        self.take_tails(chunk, from..from + records, place, entry_bytes, tail_bytes)
    }

    /// Takes the bytes whose lengths are pieces of the rows.
    fn take_tails(
        &mut self,
        chunk: &[u8],
        rows: std::ops::Range<usize>,
        place: usize,
        entry_bytes: usize,
        tail_bytes: usize,
    ) -> bool {
        if self.tails.is_empty() {
            return tail_bytes == 0;
        }
        let pieces = self.template.pieces.iter().zip(&self.pieces);
        let lengths: Vec<&Vec<u64>> = pieces
            .filter(|(piece, _)| piece.kind == PieceKind::Length)
            .map(|(_, column)| column)
            .collect();
        for (record, row) in rows.enumerate() {
            let mut rest = at(chunk, place + record * entry_bytes..)
                .split_at(tail_bytes)
                .0;
            for (lengths, tails) in lengths.iter().zip(&mut self.tails) {
                let length = *at(lengths.as_slice(), row) as usize;
                let Some((tail, after)) = rest.split_at_checked(length) else {
                    return false;
                };
                tails.extend_from_slice(tail);
                rest = after;
            }
            if !rest.is_empty() {
                return false;
            }
        }
        true
    }
}

/// The sections of a unit's body as they grow.
struct Sections<'a> {
    uuid: &'a [u8; 16],
    first: Address,
    ordinal: u64,
    body: Vec<u8>,
    begun: usize,
}

impl Sections<'_> {
    /// How much was appended since the last call of [`Sections::end`].
    fn grown(&self) -> usize {
        self.body.len() - self.begun
    }

    /// What was appended since the last call is a section.
    fn end(&mut self) -> SectionTable {
        let bytes = at(&self.body, self.begun..);
        let section = SectionTable {
            bytes: bytes.len(),
            checksum: section_checksum(self.uuid, self.first, self.ordinal, bytes),
        };
        self.ordinal += 1;
        self.begun = self.body.len();
        section
    }
}

/// What is left of a stream's rows, group by group.
struct GroupRows<'a> {
    stream: &'a StreamRows,
    row: usize,
    /// Where the tails of the next group begin.
    tails: Vec<usize>,
}

impl<'a> GroupRows<'a> {
    fn of(stream: &'a StreamRows) -> GroupRows<'a> {
        GroupRows {
            stream,
            row: 0,
            tails: vec![0; stream.tails.len()],
        }
    }

    /// Appends the next group, whose rows some members share, if any are named: so many each.
    fn put(
        &mut self,
        rows: usize,
        members: &[usize],
        compressor: &mut zstd::bulk::Compressor<'_>,
        sections: &mut Sections<'_>,
    ) -> GroupTable {
        let stream = self.stream;
        let rows = self.row..self.row + rows;
        self.row = rows.end;
        let mut parts = GroupTable::new();
        let (mut blocks, mut left) = (0, stream.template.blocks());
        let mut end_block = |sections: &mut Sections<'_>| {
            blocks += 1;
            left -= 1;
            if left == 0 {
                // Numbers are unpacked with a look a little further.
                sections.body.extend_from_slice(&TAIL);
            }
            if left == 0 || sections.grown() >= PART_BYTES_LEAST {
                parts.push((blocks, sections.end()));
                blocks = 0;
            }
        };
        let mut lengths = Vec::new();
        let arrivals = (&stream.arrivals, None, false);
        let pieces = stream.template.pieces.iter().zip(&stream.pieces);
        let pieces = pieces.map(|(piece, column)| {
            let is_length = piece.kind == PieceKind::Length;
            (column, piece.float_bytes(), is_length)
        });
        let rest = stream
            .template
            .has_rest
            .then_some((&stream.rest_lengths, None, true));
        for (column, float_bytes, is_length) in std::iter::once(arrivals).chain(pieces).chain(rest)
        {
            let column = at(column, rows.clone());
            numbers::encode(column, float_bytes, members, &mut sections.body);
            end_block(sections);
            if is_length {
                lengths.push(column);
            }
        }
        for ((lengths, tails), from) in lengths.iter().zip(&stream.tails).zip(&mut self.tails) {
            let bytes = lengths.iter().sum::<u64>() as usize;
            put_tail(
                at(tails, *from..*from + bytes),
                compressor,
                &mut sections.body,
            );
            *from += bytes;
        }
        if !lengths.is_empty() {
            end_block(sections);
        }
        parts
    }
}

fn put_tail(bytes: &[u8], compressor: &mut zstd::bulk::Compressor<'_>, out: &mut Vec<u8>) {
    if bytes.len() >= COMPRESSED_LEAST
        && let Ok(compressed) = compressor.compress(bytes)
        && compressed.len() < bytes.len()
    {
        out.push(TailForm::Zstd as u8);
        put_leb128(out, compressed.len() as u64);
        out.extend_from_slice(&compressed);
        return;
    }
    out.push(TailForm::Plain as u8);
    out.extend_from_slice(bytes);
}
