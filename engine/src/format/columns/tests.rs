//! Compares units with the chunks that they encode.

mod claims;
mod families;
mod parts;
mod zones;

use proptest::prelude::*;

use super::codec::{ColumnEncoder, TAIL};
use super::families::FamilyTable;
use super::groups::{SectionTable, TailForm, section_checksum};
use super::head::{Form, StreamTable, Tables, encode_head};
use super::*;
use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder};
use crate::types::{Address, SourceId, Timestamp};

const CHUNK: u32 = CHUNK_BYTES_MIN;
const UUID: [u8; 16] = [7; 16];
const FIRST: Address = Address(1 << 30);

/// A record: source, distance from the record before, payload.
type Record = (u16, i64, Vec<u8>);

/// Builds sealed chunks of these records.
fn chunks_of(records: &[Record]) -> Vec<u8> {
    let mut chunks = Vec::new();
    put_chunks(records, &mut chunks);
    chunks
}

/// Appends the records, later than the existing ones.
fn put_chunks(records: &[Record], chunks: &mut Vec<u8>) {
    let mut chunk = ChunkBuilder::new(CHUNK);
    let mut now = 1_700_000_000_000_000_000 + (chunks.len() as i64) * 1_000_000;
    let mut seal = |chunk: &mut ChunkBuilder| {
        let address = FIRST + chunks.len() as u64;
        chunks.extend_from_slice(chunk.seal(&UUID, address).0);
        chunk.clear();
    };
    for (source, step, payload) in records {
        now += step;
        let (source, now) = (SourceId(*source), Timestamp(now));
        if chunk.push(source, now, payload) == crate::format::PushOutcome::NoRoom {
            seal(&mut chunk);
            chunk.push(source, now, payload);
        }
    }
    if !chunk.is_empty() {
        seal(&mut chunk);
    }
}

/// Returns the kind of a source's records, 1 to 3.
fn kind(source: u16) -> u16 {
    1 + (source - 1) % 3
}

/// Kind 1 has two numbers and a float, kind 2 a number, a text and its first half, kind 3 any bytes.
fn template(source: SourceId) -> Template {
    let piece = |bytes, kind| Piece { bytes, kind };
    let pieces = match kind(source.0) {
        1 => vec![
            piece(1, PieceKind::Number),
            piece(4, PieceKind::Signed),
            piece(8, PieceKind::Float),
        ],
        2 => vec![
            piece(8, PieceKind::Number),
            piece(2, PieceKind::Length),
            piece(2, PieceKind::Length),
        ],
        _ => Vec::new(),
    };
    let field = |piece| FieldPlace {
        piece,
        is_text: false,
        null: None,
    };
    let fields = 0..pieces.len() as u16;
    Template {
        source,
        pieces,
        has_rest: kind(source.0) == 3,
        fields: fields.map(field).collect(),
    }
}

fn payload(source: u16, number: u64, text: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    match kind(source) {
        1 => {
            payload.push(number as u8 % 3);
            payload.extend_from_slice(&(number as i32 % 1000 - 500).to_le_bytes());
            payload.extend_from_slice(&((number % 10_000) as f64 / 100.0).to_le_bytes());
        }
        2 => {
            payload.extend_from_slice(&number.to_le_bytes());
            let half = &text[..text.len() / 2];
            payload.extend_from_slice(&(text.len() as u16).to_le_bytes());
            payload.extend_from_slice(&(half.len() as u16).to_le_bytes());
            payload.extend_from_slice(text);
            payload.extend_from_slice(half);
        }
        _ => payload.extend_from_slice(text),
    }
    payload
}

fn encode(chunks: &[u8], template_of: impl Fn(SourceId) -> Template) -> Vec<u8> {
    let mut unit = vec![9];
    UnitEncoder::new(UUID, CHUNK).encode(FIRST, chunks, |source, _| template_of(source), &mut unit);
    unit.split_off(1)
}

fn decode(unit: &[u8]) -> Result<(Vec<u8>, bool), crate::format::FormatError> {
    let mut unit = Unit::of(&UUID, FIRST, CHUNK, unit.to_vec())?;
    let mut chunks = vec![0xEE; unit.chunks() * CHUNK as usize];
    // Goes backwards, so that no chunk relies on the one before.
    for (nth, chunk) in chunks.chunks_exact_mut(CHUNK as usize).enumerate().rev() {
        unit.chunk(nth, chunk)?;
    }
    Ok((chunks, unit.is_raw()))
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let step = prop_oneof![8 => Just(0i64), 8 => 0..2000i64, 1 => Just(5_000_000_000i64)];
    let text = prop_oneof![
        Just(b"GET /index.html".to_vec()),
        prop::collection::vec(any::<u8>(), 0..60)
    ];
    let source = prop_oneof![1..4u16, 1..70u16];
    let record = (source, step, 0..3000u64, text, 1..30usize);
    let few = prop::collection::vec(record.clone(), 1..40);
    let runs = prop_oneof![few, prop::collection::vec(record, 100..200)];
    runs.prop_map(|runs| {
        let mut records = Vec::new();
        for (source, step, number, text, times) in runs {
            for nth in 0..times as u64 {
                records.push((source, step, payload(source, number + nth * 7, &text)));
            }
        }
        records
    })
}

/// Cuts the chunks to the size of a unit.
fn some(mut chunks: Vec<u8>) -> Vec<u8> {
    chunks.truncate(UNIT_CHUNKS as usize * CHUNK as usize);
    chunks
}

proptest! {
    #[test]
    fn every_byte_of_every_chunk_comes_back(records in records()) {
        let chunks = some(chunks_of(&records));
        let (decoded, _) = decode(&encode(&chunks, template)).unwrap();
        prop_assert_eq!(decoded, chunks);
    }

    #[test]
    fn payloads_that_do_not_match_their_template_come_back_too(records in records(), swap in 1..4u16) {
        let chunks = some(chunks_of(&records));
        let wrong = |source: SourceId| Template { source, ..template(SourceId(swap)) };
        let (decoded, _) = decode(&encode(&chunks, wrong)).unwrap();
        prop_assert_eq!(decoded, chunks);
    }

    #[test]
    fn a_changed_byte_is_an_error_or_in_a_chunk_that_does_not_verify(records in records(), place in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let chunks = some(chunks_of(&records));
        let mut unit = encode(&chunks, template);
        *place.get_mut(&mut unit[..]) ^= flip;
        if let Ok((decoded, is_raw)) = decode(&unit) {
            // The byte may be padding. A raw unit may return a changed chunk, because the chunk has a checksum of its own.
            prop_assert!(is_raw || decoded == chunks);
        }
    }
}

/// The values read from a found row.
type FoundRow = (
    Option<u64>,
    Vec<Option<u64>>,
    [Option<Vec<u8>>; 2],
    Option<u64>,
);

fn found_rows(unit: &Unit, pieces: usize) -> Vec<FoundRow> {
    let Some(found) = unit.found() else {
        return Vec::new();
    };
    let row = |nth: usize| {
        let of = |column: Option<&[u64]>| column.map(|column| column[nth]);
        let pieces = (0..pieces).map(|piece| of(found.piece(piece)));
        let string = |of| Some(found.strings(of)?.nth(nth)?.to_vec());
        (
            of(found.arrivals()),
            pieces.collect(),
            [0, 1].map(string),
            of(found.addresses()),
        )
    };
    (0..found.count()).map(row).collect()
}

proptest! {
    #[test]
    fn rows_with_wanted_numbers_are_those_of_all_that_have_them(
        records in records(),
        source in prop_oneof![1..3u16, (0..20u16, 1..3u16).prop_map(|(nth, kind)| 3 * nth + kind)],
        first in prop_oneof![0..600u64, (-500..500i64).prop_map(|first| first as u64)],
        more in prop_oneof![Just(0u64), 0..40u64, 0..3000u64],
        also in 0..4u64,
        chunks in (0..8usize, 0..8usize),
        wanted in (any::<bool>(), any::<bool>(), any::<[bool; 2]>()),
        addresses: bool,
    ) {
        let bytes = encode(&some(chunks_of(&records)), template);
        let template = template(SourceId(source));
        let (arrivals, others, tails) = wanted;
        let wanted = Wanted {
            arrivals,
            tails: tails[..template.tails()].to_vec(),
            ..Wanted::all(&template)
        };
        // Decides by the last number of the source, and sometimes by the one before; both are read for the expectation.
        let is_first_kind = kind(source) == 1;
        let mut ranges = vec![(usize::from(is_first_kind), NumberRange { first, more })];
        if is_first_kind && others {
            ranges.push((0, NumberRange { first: also, more: 1 }));
        }
        let open = || Unit::of(&UUID, FIRST, CHUNK, bytes.clone()).unwrap();
        let (mut all, mut some, mut every) = (open(), open(), open());
        for first in chunks.0.min(all.chunks() - 1)..all.chunks() {
            let chunks = first..first + 1 + chunks.1;
            let take = Take { template: &template, wanted: &wanted, addresses };
            let end = all.columns(chunks.clone(), &take).unwrap();
            let mut expected = found_rows(&all, template.pieces.len());
            expected.retain(|row| {
                let has = |(piece, range): &(usize, NumberRange)| row.1[*piece].is_some_and(|number| range.contains(number));
                ranges.iter().all(has)
            });
            prop_assert_eq!(some.columns_where(chunks.clone(), &take, &ranges).unwrap(), end);
            prop_assert_eq!(found_rows(&some, template.pieces.len()), expected.clone());
            if let [range] = ranges.as_slice()
                && let Some((end, totals)) = some.totals(chunks.clone(), &template, *range).unwrap()
            {
                let wanted = Wanted::all(&template);
                let take = Take { wanted: &wanted, addresses: false, ..take };
                let mut numbers = Vec::new();
                let mut next = chunks.start;
                while next < end {
                    next = every.columns(next..end, &take).unwrap().unwrap();
                    let rows = found_rows(&every, template.pieces.len());
                    numbers.extend(rows.iter().filter_map(|row| row.1[range.0]));
                }
                prop_assert_eq!(totals, RangeTotals::of(numbers.into_iter(), range.1));
            }
            // Reads only the pieces that do not decide.
            let few = Wanted {
                pieces: (0..template.pieces.len()).map(|nth| nth == 2).collect(),
                lengths: false,
                tails: Vec::new(),
                ..wanted.clone()
            };
            let take = Take { wanted: &few, addresses: false, ..take };
            let fewer_end = some.columns_where(chunks, &take, &ranges).unwrap();
            if fewer_end == end {
                let found = found_rows(&some, template.pieces.len());
                let expected: Vec<_> = expected.iter().map(|row| (row.0, row.1.get(2))).collect();
                let found: Vec<_> = found.iter().map(|row| (row.0, row.1.get(2))).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

/// Gauges of 100 sources in turns, like a scrape of many targets.
fn of_many_sources(rounds: i64) -> Vec<Record> {
    let round = |round: i64| {
        (0..100u16).map(move |nth| {
            let number = 5000 + 10 * u64::from(nth) + round as u64 % 3;
            let step = if nth == 0 { 1_000_000_000 } else { 130 };
            (3 * nth + 1, step, payload(1, number, b""))
        })
    };
    (0..rounds).flat_map(round).collect()
}

#[test]
fn records_of_one_kind_take_a_fraction_of_their_rows() {
    let records: Vec<Record> = (0..2000)
        .map(|nth| {
            (
                1 + nth % 2,
                130,
                payload(1 + nth % 2, 1000 + u64::from(nth), b"same text"),
            )
        })
        .collect();
    let chunks = some(chunks_of(&records));
    let unit = encode(&chunks, template);
    let (decoded, is_raw) = decode(&unit).unwrap();
    assert_eq!(decoded, chunks);
    assert!(!is_raw);
    assert!(
        unit.len() * 5 < chunks.len(),
        "{} of {}",
        unit.len(),
        chunks.len()
    );
}

#[test]
fn chunks_that_do_not_verify_stay_as_they_are() {
    let records: Vec<Record> = (0..1000).map(|nth| (1, 5, payload(1, nth, b""))).collect();
    let mut chunks = some(chunks_of(&records));
    chunks[5000] ^= 1;
    let (decoded, is_raw) = decode(&encode(&chunks, template)).unwrap();
    assert_eq!(decoded, chunks);
    assert!(is_raw);
}

/// The last unit of a log ends in such chunks, and a gap may lie between others.
#[test]
fn chunks_that_were_never_written_are_columns_with_the_others() {
    let records: Vec<Record> = (0..1000).map(|nth| (1, 5, payload(1, nth, b""))).collect();
    let written = some(chunks_of(&records));
    let never = |chunks: usize| vec![0; chunks * CHUNK as usize];
    for (before, behind) in [(0, 3), (2, 0), (1, 1)] {
        let chunks = [never(before), written.clone(), never(behind)].concat();
        let mut unit = Vec::new();
        let first = Address(FIRST.0 - before as u64 * u64::from(CHUNK));
        UnitEncoder::new(UUID, CHUNK).encode(
            first,
            &chunks,
            |source, _| template(source),
            &mut unit,
        );
        let mut unit = Unit::of(&UUID, first, CHUNK, unit).unwrap();
        assert!(!unit.is_raw());
        let mut out = vec![0xEE; CHUNK as usize];
        for (nth, chunk) in chunks.chunks_exact(CHUNK as usize).enumerate() {
            unit.chunk(nth, &mut out).unwrap();
            assert_eq!(out, chunk, "{nth}");
        }
    }
}

/// The last unit of a log has them, and so have the units behind it.
#[test]
fn zeroes_at_the_end_of_chunks_that_stay_as_they_are_take_no_room() {
    let records: Vec<Record> = (0..100).map(|nth| (1, 5, payload(1, nth, b""))).collect();
    let mut chunks = some(chunks_of(&records));
    chunks.truncate(2000);
    for bytes in [chunks.len(), 0] {
        let mut chunks = chunks[..bytes].to_vec();
        chunks.resize(3 * CHUNK as usize, 0);
        let unit = encode(&chunks, template);
        assert!(unit.len() <= UNIT_HEADER_BYTES + bytes, "{}", unit.len());
        let (decoded, is_raw) = decode(&unit).unwrap();
        assert_eq!(decoded, chunks);
        assert!(is_raw);
    }
}

/// Heads verify but lie: the test computes their checksum again after each change.
#[test]
fn a_head_that_claims_too_much_is_an_error_within_bounded_memory() {
    let records: Vec<Record> = (0..3000)
        .map(|nth| {
            (
                1 + nth % 3,
                130,
                payload(1 + nth % 3, u64::from(nth), b"text"),
            )
        })
        .collect();
    for records in [records, of_many_sources(3)] {
        forge_head(&encode(&some(chunks_of(&records)), template));
    }
}

fn forge_head(unit: &[u8]) {
    let header = super::head::UnitHeader::decode(unit, CHUNK).unwrap();
    for place in UNIT_HEADER_BYTES..header.head_bytes {
        for byte in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut forged = unit.to_vec();
            forged[place] = byte;
            let (head, body) = forged.split_at_mut(header.head_bytes);
            super::head::seal_head(&UUID, FIRST, head, body.len());
            if let Ok(mut unit) = Unit::of(&UUID, FIRST, CHUNK, forged) {
                for nth in 0..unit.chunks() {
                    let _ = unit.chunk(nth, &mut vec![0; CHUNK as usize]);
                }
            }
        }
    }
}

#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    sections: u64,
}

impl Body {
    fn section(&mut self, bytes: &[u8]) -> SectionTable {
        self.bytes.extend_from_slice(bytes);
        self.sections += 1;
        SectionTable {
            bytes: bytes.len(),
            checksum: section_checksum(&UUID, FIRST, self.sections - 1, bytes),
        }
    }

    fn numbers(&mut self, numbers: &[u64]) -> SectionTable {
        let mut bytes = Vec::new();
        ColumnEncoder::default().put(numbers, None, &[], &mut bytes);
        bytes.extend_from_slice(&TAIL);
        self.section(&bytes)
    }

    /// Builds the unit of these streams and families.
    fn into_unit<'a>(
        mut self,
        orders: Vec<SectionTable>,
        streams: Vec<StreamTable<'a>>,
        families: Vec<FamilyTable<'a>>,
    ) -> Vec<u8> {
        let tables = Tables {
            checksums: &[0; UNIT_CHUNKS as usize],
            has_anchors: &[false; UNIT_CHUNKS as usize],
            orders,
            streams,
            families,
        };
        let body = &mut self.bytes;
        body.resize(body.len().next_multiple_of(8), 0);
        let chunks = UNIT_CHUNKS as usize;
        let mut unit = encode_head(&UUID, FIRST, Form::Columns, chunks, &tables, body.len());
        unit.extend_from_slice(body);
        unit
    }
}

/// A few bytes of Zstandard may claim any length, in each of many streams.
// G8
#[test]
fn texts_that_claim_more_than_the_chunks_of_their_unit_are_an_error_before_they_are_unpacked() {
    const STREAMS: u16 = 40;
    const CLAIMED: usize = 60_000;
    let zeroes = zstd::bulk::compress(&[0; CLAIMED], 1).unwrap();
    let mut body = Body::default();
    let mut orders = vec![body.numbers(&(0..u64::from(STREAMS)).collect::<Vec<_>>())];
    orders.extend((1..UNIT_CHUNKS).map(|_| body.section(&[])));
    let mut group = Vec::new();
    ColumnEncoder::default().put(&[1], None, &[], &mut group);
    ColumnEncoder::default().put(&[CLAIMED as u64], None, &[], &mut group);
    group.push(TailForm::Zstd as u8);
    crate::format::bytes::put_leb128(&mut group, zeroes.len() as u64);
    group.extend_from_slice(&zeroes);
    group.extend_from_slice(&TAIL);
    let template = |source| Template {
        source: SourceId(source),
        pieces: vec![Piece {
            bytes: 2,
            kind: PieceKind::Length,
        }],
        has_rest: false,
        fields: [].into(),
    };
    let templates: Vec<Template> = (4..STREAMS + 4).map(template).collect();
    let mut counts = vec![0; UNIT_CHUNKS as usize];
    counts[0] = 1;
    let streams = templates.iter().map(|template| StreamTable {
        template,
        counts: &counts,
        groups: vec![vec![(3, body.section(&group))]],
        zones: Vec::new(),
    });
    let streams = streams.collect();
    let unit = body.into_unit(orders, streams, Vec::new());
    let mut unit = Unit::of(&UUID, FIRST, CHUNK, unit).unwrap();
    for _ in 0..2 {
        let error = unit.chunk(0, &mut vec![0; CHUNK as usize]).unwrap_err();
        let message = "the length of a field is invalid: 60000";
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn the_directory_of_a_segment_is_read_back_and_a_changed_one_is_refused() {
    let directory = SegmentDirectory::new(vec![0, 1000, 1800]);
    let mut bytes = Vec::new();
    directory.encode(&UUID, FIRST, &mut bytes);
    assert_eq!(bytes.len(), SegmentDirectory::bytes_of(2));
    let file_bytes = 1800 + bytes.len() as u64;
    let decoded = SegmentDirectory::decode(&UUID, FIRST, 2, &bytes, file_bytes).unwrap();
    assert_eq!(decoded, directory);
    assert_eq!(decoded.units(), 2);
    assert_eq!(decoded.into_starts(), [0, 1000, 1800]);
    SegmentDirectory::decode(&UUID, FIRST, 2, &bytes, file_bytes - 1).unwrap_err();
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x40;
        SegmentDirectory::decode(&UUID, FIRST, 2, &changed, file_bytes).unwrap_err();
    }
}

/// Builds a unit whose head names as many streams as it can: a family of sources with one empty record each, and `members_a_group` members in a row group.
fn of_most_streams(members_a_group: u64) -> Vec<u8> {
    const STREAMS: u64 = u16::MAX as u64;
    const IN_CHUNK: u64 = 1 << 12;
    let mut body = Body::default();
    let streams: Vec<u64> = (0..STREAMS).collect();
    let orders = streams.chunks(IN_CHUNK as usize);
    let orders = orders.map(|streams| body.numbers(streams)).collect();
    let template = Template {
        source: SourceId(1),
        pieces: Vec::new(),
        has_rest: false,
        fields: [].into(),
    };
    let groups = streams.chunks(members_a_group as usize);
    let groups = groups.map(|own| (own.len(), vec![(1, body.numbers(&vec![77; own.len()]))]));
    let groups = groups.collect();
    let counts = streams.iter().flat_map(|stream| {
        (0..UNIT_CHUNKS).map(move |chunk| u64::from(chunk == stream / IN_CHUNK))
    });
    let family = FamilyTable {
        template: &template,
        sources: (1..=u16::MAX).map(SourceId).collect(),
        counts: counts.collect(),
        groups,
        zones: Vec::new(),
    };
    body.into_unit(orders, Vec::new(), vec![family])
}

#[test]
fn a_unit_of_as_many_streams_as_there_may_be_is_read_in_time_that_grows_with_them() {
    const LONG: u32 = 1 << 16;
    let row_group = super::families::FAMILY_ROWS as u64;
    let error = Unit::of(&UUID, FIRST, LONG, of_most_streams(row_group + 1)).unwrap_err();
    assert!(error.to_string().contains("members of a row group"));
    let mut unit = Unit::of(&UUID, FIRST, LONG, of_most_streams(row_group)).unwrap();
    let started = std::time::Instant::now();
    for source in 1..=u16::MAX {
        let template = Template {
            source: SourceId(source),
            pieces: Vec::new(),
            has_rest: false,
            fields: [].into(),
        };
        let take = Take {
            template: &template,
            wanted: &Wanted::all(&template),
            addresses: false,
        };
        assert_eq!(
            unit.columns(0..UNIT_CHUNKS as usize, &take).unwrap(),
            Some(16)
        );
        let found = unit.found().unwrap();
        assert_eq!((found.count(), found.arrivals()), (1, Some(&[77][..])));
    }
    for nth in 0..UNIT_CHUNKS as usize {
        unit.chunk(nth, &mut vec![0; LONG as usize]).unwrap();
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
