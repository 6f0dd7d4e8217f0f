//! A unit of the record log, and the directory at a segment's end.
//!
//! Input: flags, of which one bit says what the rest is:
//! - [`PATCHED`]: changes (`patch.rs`) to a sound unit, to its head, and to the directory of a segment;
//! - [`FREE`]: the parts of a unit of one chunk and one stream: the length of its order; the number of its pieces, and in the highest bit whether any
//!   bytes follow them; its rows; the pieces; its order; its row group.

use std::ops::Range;
use std::sync::LazyLock;

use loom_engine::format::{
    CHUNK_BYTES_MIN, ChunkBuilder, FieldPlace, FormatError, NumberRange, Piece, PieceKind,
    PushOutcome, RawRecord, RecordIter, SegmentDirectory, Take, Template, UNIT_CHUNKS, Unit,
    UnitEncoder, UnitHeader, Wanted, walk_runs,
};
use loom_engine::proven::at;
use loom_engine::{Address, SourceId, Timestamp};

use crate::columns::{self, Stream};
use crate::files::Files;
use crate::patch::{Region, apply};
use crate::world::path;
use crate::{SOUND, UNREPAIRED, UUID, flagged, label};

/// The meaning of the rest of the input.
const PATCHED: u8 = 0;
const FREE: u8 = 2;

const CHUNK_BYTES: usize = CHUNK_BYTES_MIN as usize;
/// Where the unit stands.
const AT: Address = Address(UNIT_CHUNKS * CHUNK_BYTES as u64);

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let outcome = match flags & FREE {
        PATCHED => patched(given, flags & UNREPAIRED == 0),
        _ => free(given),
    };
    outcome.map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

fn patched(changes: &[u8], is_repaired: bool) -> Result<(), FormatError> {
    const STARTS: [u64; 4] = [0, 1000, 1800, 2048];
    let (unit_path, directory_path) = (path("unit"), path("directory"));
    let mut files = Files::default();
    files.put(unit_path.clone(), sound().to_vec());
    files.put(
        directory_path.clone(),
        columns::directory(&UUID, AT, &STARTS),
    );
    let head_bytes = sound().get(12..).and_then(|rest| rest.first_chunk());
    let regions = [
        Region::whole(&files, unit_path.clone()),
        Region {
            path: unit_path.clone(),
            from: 0,
            bytes: head_bytes.map_or(1, |bytes| u32::from_le_bytes(*bytes) as usize),
        },
        Region::whole(&files, directory_path.clone()),
    ];
    apply(&mut files, &regions, changes);
    let mut unit = files.get(&unit_path).unwrap_or_default().to_vec();
    let mut directory = files.get(&directory_path).unwrap_or_default().to_vec();
    if is_repaired {
        columns::repair_unit(&UUID, AT, &mut unit);
        columns::repair_directory(&UUID, AT, &mut directory);
    }
    let units = STARTS.len() - 1;
    let file_bytes = 2048 + directory.len() as u64;
    let decoded = SegmentDirectory::decode(&UUID, AT, units, &directory, file_bytes)?;
    assert_eq!(decoded.units(), units);
    let starts = decoded.into_starts();
    assert!(
        starts.is_sorted() && starts.last().is_some_and(|end| *end <= file_bytes),
        "{starts:?}"
    );
    if let Ok(header) = UnitHeader::decode(&unit, CHUNK_BYTES_MIN) {
        let most = Unit::bytes_most(CHUNK_BYTES_MIN);
        assert!(
            header.head_bytes <= header.unit_bytes && header.unit_bytes as u64 <= most,
            "{header:?}"
        );
    }
    look_at(&unit, &[1, 2, 3, 4, 10].map(template))
}

fn free(given: &[u8]) -> Result<(), FormatError> {
    let (order_bytes, given) = flagged(given);
    let (shape, given) = flagged(given);
    let (rows, given) = flagged(given);
    let (pieces, given) = given.split_at(given.len().min(usize::from(shape & 0x7F)));
    let (order, group) = given.split_at(given.len().min(usize::from(order_bytes)));
    let mut head = vec![1, (pieces.len() as u8) << 1 | shape >> 7];
    if let Some(last) = head.last().copied().filter(|last| *last >= 0x80) {
        head.pop();
        columns::put_number(&mut head, last.into());
    }
    head.extend_from_slice(pieces);
    // No field.
    head.push(0);
    let stream = Stream {
        head: &head,
        rows,
        group,
    };
    let unit = columns::unit(&UUID, AT, order, &[stream]);
    let template = Template {
        source: SourceId(1),
        pieces: pieces
            .iter()
            .map(|byte| piece_of(byte & 15, byte >> 4))
            .collect(),
        has_rest: shape >> 7 == 1,
        fields: [].into(),
    };
    look_at(&unit, &[template])
}

/// A piece of any two numbers; itself, where it is one.
fn piece_of(bytes: u8, kind: u8) -> Piece {
    let (bytes, kind) = match kind % 4 {
        0 => (bytes, PieceKind::Number),
        1 => (bytes, PieceKind::Signed),
        2 if bytes.is_multiple_of(2) => (if bytes == 4 { 4 } else { 8 }, PieceKind::Float),
        2 => (4, PieceKind::Float),
        _ => (2, PieceKind::Length),
    };
    Piece {
        bytes: bytes.clamp(1, 8),
        kind,
    }
}

/// Reads everything of a unit in every way, and holds one against the other.
fn look_at(bytes: &[u8], templates: &[Template]) -> Result<(), FormatError> {
    let open = || Unit::of(&UUID, AT, CHUNK_BYTES_MIN, bytes.to_vec());
    let mut unit = open()?;
    let count = unit.chunks();
    let mut chunks = Vec::new();
    for nth in 0..count {
        let mut chunk = vec![0xEE; CHUNK_BYTES];
        chunks.push(unit.chunk(nth, &mut chunk).map(|()| chunk));
    }
    let mut other = open()?;
    let mut of_rows = Ok(());
    for (nth, expected) in chunks.iter().enumerate().rev() {
        let mut chunk = vec![0x11; CHUNK_BYTES];
        if let (Ok(()), Ok(expected)) = (other.chunk(nth, &mut chunk), expected) {
            assert!(
                chunk == *expected,
                "chunk {nth} depends on what was read before"
            );
        }
        for template in templates {
            let few = Wanted {
                pieces: vec![true],
                ..Wanted::default()
            };
            for wanted in [Wanted::lengths(), few, Wanted::all(template)] {
                let wanted = Wanted {
                    arrivals: true,
                    lengths: true,
                    ..wanted
                };
                let take = Take {
                    template,
                    wanted: &wanted,
                    addresses: nth.is_multiple_of(2),
                };
                let found = other.columns(nth..nth + 1, &take);
                if let (Ok(Some(_)), Ok(chunk)) = (&found, expected) {
                    hold(&other, nth, chunk, &take);
                    hold_wanted(&mut other, nth..usize::MAX, &take);
                }
                if let Err(error) = found {
                    of_rows = of_rows.and(Err(error));
                }
            }
        }
    }
    chunks
        .into_iter()
        .find_map(Result::err)
        .map_or(of_rows, Err)
}

/// The rows with some numbers in the first piece must be those of all that have them. Leaves all of them found.
fn hold_wanted(unit: &mut Unit, chunks: Range<usize>, take: &Take<'_>) {
    let is_float = |piece: &Piece| piece.kind == PieceKind::Float;
    if take.template.pieces.first().is_none_or(is_float) || !take.wanted.piece(0) {
        return;
    }
    // Chunks behind the first may hold what cannot be.
    let Ok(Some(end)) = unit.columns(chunks.clone(), take) else {
        return;
    };
    // Few rows of further row groups would be taken together with these.
    let chunks = chunks.start..end;
    let numbers = unit.found().and_then(|found| found.piece(0));
    let numbers = numbers.unwrap_or_default().to_vec();
    // Few rows without strings are not decoded but picked.
    let wanted = Wanted {
        lengths: false,
        tails: Vec::new(),
        ..take.wanted.clone()
    };
    let numbered = Take {
        wanted: &wanted,
        ..*take
    };
    let Some(first) = numbers.get(numbers.len() / 2) else {
        return;
    };
    for more in [0, 200, u64::MAX / 2] {
        let range = NumberRange {
            first: *first,
            more,
        };
        let found = unit.columns_where(chunks.clone(), &numbered, &[(0, range)]);
        assert!(found.is_ok(), "all are decoded: {found:?}");
        let found = unit.found().and_then(|found| found.piece(0));
        let wanted = numbers.iter().filter(|number| range.contains(**number));
        assert!(found.unwrap_or_default().iter().eq(wanted));
    }
}

/// The rows that were found of a source in a chunk must be its records.
fn hold(unit: &Unit, nth: usize, chunk: &[u8], take: &Take<'_>) {
    let mut anchors = Vec::new();
    if walk_runs(chunk, |run| anchors.push(run.anchor)).is_err() {
        return;
    }
    anchors.dedup();
    let Template { source, pieces, .. } = take.template;
    let records = RecordIter::new(chunk, CHUNK_BYTES_MIN).filter_map(Result::ok);
    let records: Vec<RawRecord<'_>> = records.filter(|record| record.source == *source).collect();
    let Some(found) = unit.found() else {
        return assert!(records.is_empty(), "rows of source {source:?}");
    };
    assert_eq!(found.count(), records.len(), "rows of source {source:?}");
    let base = AT + (nth * CHUNK_BYTES) as u64;
    assert_eq!(found.addresses().is_some(), take.addresses);
    for (row, record) in records.iter().enumerate() {
        let arrivals = found.arrivals().expect("arrivals are wanted");
        assert_eq!(at(arrivals, row), &(record.arrival.0 as u64));
        // A head may say that there are no anchors; places then are others.
        if let Some(addresses) = found.addresses().filter(|_| anchors.len() < 2) {
            assert_eq!(*at(addresses, row), (base + u64::from(record.offset)).0);
        }
        let mut offset = 0;
        for (which, piece) in pieces.iter().enumerate() {
            let end = offset + usize::from(piece.bytes);
            if let Some(column) = found.piece(which).filter(|_| take.wanted.piece(which)) {
                let number = at(column, row).to_le_bytes();
                assert_eq!(at(&number, ..end - offset), at(record.payload, offset..end));
            }
            offset = end;
        }
        let mut strings = found.strings(0).filter(|_| take.wanted.tail(0));
        if let Some(string) = strings.as_mut().and_then(|strings| strings.nth(row)) {
            assert!(at(record.payload, offset..offset + string.len()) == string);
        }
    }
}

/// Source 1: two numbers and a float; source 2: a number and a text; source 3: any bytes; those from 4 on: a number and a float.
fn template(source: u16) -> Template {
    let pieces: &[(u8, u8)] = match source {
        4.. => &[(4, 0), (8, 2)],
        1 => &[(1, 0), (4, 1), (8, 2)],
        2 => &[(8, 0), (2, 3)],
        _ => &[],
    };
    let fields = (0..pieces.len() as u16).map(|piece| FieldPlace {
        piece,
        is_text: false,
        null: None,
    });
    Template {
        source: SourceId(source),
        pieces: pieces
            .iter()
            .map(|(bytes, kind)| piece_of(*bytes, *kind))
            .collect(),
        has_rest: source == 3,
        fields: fields.collect(),
    }
}

/// A unit in columns with each kind of stream, a family, several row groups, and a chunk with later anchors.
fn sound() -> &'static [u8] {
    static SOUND_UNIT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut chunks = Chunks::new();
        for nth in 0..2600u64 {
            let step = if nth == 700 {
                5_000_000_000
            } else {
                nth % 3 * 100
            };
            let mut payload = vec![nth as u8 % 5];
            payload.extend_from_slice(&(nth as i32 * 7 % 900 - 450).to_le_bytes());
            payload.extend_from_slice(&((nth % 50) as f64 / 4.0).to_le_bytes());
            chunks.push(1, step, &payload);
            if nth % 40 == 0 {
                let text = format!("text of {}", nth % 9);
                let mut payload = (nth * nth).to_le_bytes().to_vec();
                payload.extend_from_slice(&(text.len() as u16).to_le_bytes());
                payload.extend_from_slice(text.as_bytes());
                chunks.push(2, 0, &payload);
                chunks.push(3, 0, text.as_bytes());
                for source in 4..12 {
                    let mut payload = (nth as u32 + u32::from(source)).to_le_bytes().to_vec();
                    payload.extend_from_slice(&((nth % 7) as f64 / 2.0).to_le_bytes());
                    chunks.push(source, 0, &payload);
                }
            }
        }
        let unit = unit_of(&chunks.sealed(), template);
        assert_eq!(unit.get(16), Some(&1), "it is in columns");
        unit
    });
    &SOUND_UNIT
}

fn unit_of(chunks: &[u8], template_of: impl Fn(u16) -> Template) -> Vec<u8> {
    let mut unit = Vec::new();
    UnitEncoder::new(UUID, CHUNK_BYTES_MIN).encode(
        AT,
        chunks,
        |source, _| template_of(source.0),
        &mut unit,
    );
    unit
}

/// Records as sealed chunks, as many as a unit takes.
struct Chunks {
    open: ChunkBuilder,
    bytes: Vec<u8>,
    now: i64,
}

impl Chunks {
    fn new() -> Chunks {
        Chunks {
            open: ChunkBuilder::new(CHUNK_BYTES_MIN),
            bytes: Vec::new(),
            now: 1_700_000_000_000_000_000,
        }
    }

    fn push(&mut self, source: u16, step_ns: u64, payload: &[u8]) {
        self.now = self.now.saturating_add_unsigned(step_ns);
        let (source, now) = (SourceId(source), Timestamp(self.now));
        if self.open.push(source, now, payload) == PushOutcome::NoRoom {
            self.seal();
            self.open.push(source, now, payload);
        }
    }

    fn seal(&mut self) {
        let address = AT + self.bytes.len() as u64;
        self.bytes
            .extend_from_slice(self.open.seal(&UUID, address).0);
        self.open.clear();
    }

    fn sealed(mut self) -> Vec<u8> {
        if !self.open.is_empty() || self.bytes.is_empty() {
            self.seal();
        }
        self.bytes.truncate(UNIT_CHUNKS as usize * CHUNK_BYTES);
        self.bytes
    }
}
