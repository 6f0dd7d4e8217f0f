//! The page of the format suffices to read a directory: a decoder that was written from it alone finds the records that the engine finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loom_engine::ingest::Writer;
use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, PayloadEncoder, SourceDef, TimeKind, parse_sources,
};
use loom_engine::testkit::options;
use loom_engine::{SourceId, TimeRange, Timestamp};
use loom_tests::daemon::wait_until;
use loom_tests::machine;
use loom_tests::seed::Seed;
use loom_tests::small::CHUNK_BYTES;

const UNIT_BYTES: u64 = 16 * CHUNK_BYTES;
/// A segment of three units.
const SEGMENT_BYTES: u64 = 3 * UNIT_BYTES;
/// Sources of one layout that are a family in each unit.
const SMALL_SOURCES: usize = 100;
/// A record so much later than the anchor of its chunk needs another anchor: more than 2^32 ns.
const LATER: Duration = Duration::from_millis(4_400);

/// `kinds` has a field of each type; `nulls` has its own times and fields that may be NULL; `grows` gains a field; `raw` has none.
const SOURCES: &str = r#"
[[source]]
name = "kinds"
field = [
    { name = "a", type = "u8" }, { name = "b", type = "u16" }, { name = "c", type = "u32" }, { name = "d", type = "u64" },
    { name = "e", type = "i8" }, { name = "f", type = "i16" }, { name = "g", type = "i32" }, { name = "h", type = "i64" },
    { name = "i", type = "f32" }, { name = "j", type = "f64" }, { name = "k", type = "bool" }, { name = "l", type = "utf8" },
    { name = "m", type = "bytes" }, { name = "n", type = "bytes[12]" }, { name = "o", type = "char[5]" },
    { name = "p", type = "timestamp_ns" }, { name = "q", type = "json" }, { name = "r", type = "u16", labels = { 1 = "one", 7 = "seven" } },
]

[[source]]
name = "nulls"
time = "own"
field = [
    { name = "a", type = "u8", nullable = true }, { name = "d", type = "u64", nullable = true },
    { name = "g", type = "i32", nullable = true }, { name = "h", type = "i64", nullable = true },
    { name = "i", type = "f32", nullable = true }, { name = "j", type = "f64", nullable = true },
    { name = "k", type = "bool", nullable = true }, { name = "l", type = "utf8", nullable = true },
    { name = "n", type = "bytes[12]", nullable = true }, { name = "p", type = "timestamp_ns", nullable = true },
]

[[source]]
name = "grows"
field = [{ name = "c", type = "u32" }, { name = "l", type = "utf8" }]

[[source]]
name = "raw"
"#;
const GROWN: &str = r#"
[[source]]
name = "grows"
field = [{ name = "c", type = "u32" }, { name = "l", type = "utf8" }, { name = "j", type = "f64", nullable = true }]
"#;

/// Each must occur in the directory, so that the decoder has met every part of the page.
const MET: [&str; 21] = [
    "anchors",
    "directories",
    "encoding 0",
    "encoding 1",
    "encoding 2",
    "encoding 3",
    "encoding 4",
    "encoding 5",
    "encoding 6",
    "encoding 7",
    "families",
    "pieces of the tail",
    "raw units",
    "row groups",
    "segments with zones",
    "shared strings",
    "streams that stand alone",
    "strings as they are",
    "strings in a frame",
    "units in columns",
    "zones",
];

/// A writer of records of each kind.
struct Author {
    writer: Writer,
    seed: Seed,
    sources: Vec<(SourceDef, SourceId, PayloadEncoder)>,
    pushed: usize,
    /// Where the newest record stands.
    last: u64,
}

impl Author {
    fn new(dir: &Path) -> Result<Author> {
        let mut author = Author {
            writer: Writer::open(dir, options(64 << 10, SEGMENT_BYTES))?,
            seed: Seed::announced("format"),
            sources: Vec::new(),
            pushed: 0,
            last: 0,
        };
        author.define(SOURCES)?;
        for small in 0..SMALL_SOURCES {
            let fields = "[{ name = 'j', type = 'f64' }, { name = 'c', type = 'u32' }]";
            author.define(&format!(
                "[[source]]\nname = 'small {small}'\nfield = {fields}"
            ))?;
        }
        Ok(author)
    }

    /// Defines sources, or gives further fields to one that is there.
    fn define(&mut self, toml: &str) -> Result<()> {
        for source in parse_sources(toml)? {
            let id = self.writer.define_source(&source)?;
            let encoder = PayloadEncoder::new(source.time, &source.fields)?;
            self.sources.retain(|(_, known, _)| *known != id);
            self.sources.push((source, id, encoder));
        }
        Ok(())
    }

    /// Pushes a record of the source of this name.
    fn push(&mut self, name: &str, n: u64) -> Result<()> {
        let known = self.sources.iter_mut().find(|known| known.0.name == name);
        let (source, id, encoder) = known.with_context(|| format!("no source {name}"))?;
        let texts: Vec<Vec<u8>> = (source.fields.iter())
            .map(|field| text_of(field.ty, n, &mut self.seed))
            .collect();
        let line = format!("line {n} ").repeat(n as usize % 4);
        let values: Vec<FieldValue> = match source.fields.as_slice() {
            [] => vec![FieldValue::Bytes(line.as_bytes())],
            fields => (fields.iter().zip(&texts))
                .map(|(field, text)| value_of(field, n, text, &mut self.seed))
                .collect(),
        };
        let own = (source.time == TimeKind::Own).then_some(Timestamp(1_000_000 - n as i64));
        let mut payload = Vec::new();
        encoder.encode(own, &values, &mut payload)?;
        self.last = self.writer.push(*id, &payload)?.0;
        self.pushed += 1;
        Ok(())
    }

    /// Pushes records of the sources that are not small, one after the other. The sync waits for the encoder, so that no unit is written raw.
    fn mix(&mut self, round: u64) -> Result<()> {
        for n in 30 * round..30 * (round + 1) {
            for name in ["kinds", "nulls", "grows", "raw"] {
                self.push(name, n)?;
            }
        }
        Ok(self.writer.sync_durable()?)
    }

    /// Pushes a record of each small source.
    fn small(&mut self, round: u64) -> Result<()> {
        for small in 0..SMALL_SOURCES {
            self.push(&format!("small {small}"), round)?;
        }
        Ok(self.writer.sync_durable()?)
    }

    /// Pushes bytes that no column makes smaller.
    fn noise(&mut self) -> Result<()> {
        let raw = self.sources.iter().find(|known| known.0.name == "raw");
        let (_, id, _) = raw.context("no source raw")?;
        for _ in 0..400 {
            let words: Vec<u64> = (0..60).map(|_| self.seed.draw()).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.last = self.writer.push(*id, &bytes)?.0;
            self.pushed += 1;
        }
        Ok(self.writer.sync_durable()?)
    }
}

/// The bytes of a value that has some.
fn text_of(ty: FieldType, n: u64, seed: &mut Seed) -> Vec<u8> {
    let noise = seed.draw().to_le_bytes();
    match ty {
        FieldType::Bytes(width) => noise.into_iter().cycle().take(width.into()).collect(),
        FieldType::VarBytes => noise.into_iter().take(n as usize % 9).collect(),
        FieldType::Char(_) => seed.pick(&["", "a", "bcdef"]).into(),
        FieldType::Json => format!("{{\"n\":{n}}}").into_bytes(),
        _ => "cart pay ".repeat(n as usize % 3).into_bytes(),
    }
}

fn value_of<'a>(field: &FieldDef, n: u64, text: &'a [u8], seed: &mut Seed) -> FieldValue<'a> {
    if field.nullable && seed.chance(20) {
        return FieldValue::Null;
    }
    let tenths = n as f64 / 10.0;
    match field.ty {
        FieldType::U8 => FieldValue::U64(n / 40 % 256),
        FieldType::U16 => FieldValue::U64(seed.draw() % 65_536),
        FieldType::U32 => FieldValue::U64(3 * n),
        FieldType::U64 => FieldValue::U64((seed.draw() & 0xFF00_0000_0F00_0000) | 5),
        FieldType::I8 => FieldValue::I64(seed.between(-128, 128)),
        FieldType::I16 => FieldValue::I64(-(n as i64 % 1_000)),
        FieldType::I32 => FieldValue::I64(seed.pick(&[i32::MIN.into(), -1, 0, i32::MAX.into()])),
        FieldType::I64 => FieldValue::I64(seed.draw() as i64),
        FieldType::F32 if field.nullable => {
            FieldValue::F64(seed.pick(&[f64::NAN, -0.0, 0.0, 1.5, -2.25, 1e30]))
        }
        FieldType::F64 if n.is_multiple_of(512) => {
            FieldValue::F64(seed.pick(&[f64::NAN, -0.0, f64::INFINITY]))
        }
        FieldType::F32 | FieldType::F64 => FieldValue::F64(tenths),
        FieldType::Bool => FieldValue::Bool(n.is_multiple_of(3)),
        FieldType::TimestampNs => FieldValue::I64(1_700_000_000_000_000_000 + n as i64 * 1_000),
        _ => FieldValue::Bytes(text),
    }
}

/// A record: its source, its arrival if the engine tells it, and its payload in hexadecimal.
type Record = (u16, Option<i64>, String);

/// The records that the engine reads, by address.
fn read(
    dir: &Path,
    sources: &[(SourceDef, SourceId, PayloadEncoder)],
) -> Result<BTreeMap<u64, Record>> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let mut records = BTreeMap::new();
    for (source, id, _) in sources {
        raw_scan(&snapshot, *id, TimeRange::ALL, &Poll::never(), |record| {
            let arrival = (source.time == TimeKind::Arrival).then_some(record.ts.0);
            let mut payload = String::new();
            for byte in record.payload {
                write!(payload, "{byte:02x}").expect("a text takes all that is written");
            }
            records.insert(record.address.0, (id.0, arrival, payload));
            ControlFlow::Continue(())
        })?;
    }
    Ok(records)
}

/// The record and its address in a line of the decoder.
fn parsed(line: &str) -> Option<(u64, u16, i64, &str)> {
    let mut words = line.splitn(4, ' ');
    let (address, source, arrival) = (words.next()?, words.next()?, words.next()?);
    let numbers = (address.parse(), source.parse(), arrival.parse());
    let (Ok(address), Ok(source), Ok(arrival)) = numbers else {
        return None;
    };
    Some((address, source, arrival, words.next()?))
}

#[test]
fn the_page_of_the_format_suffices_to_read_a_directory() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("written");
    let mut author = Author::new(&dir)?;
    for round in 0..16 {
        author.mix(round)?;
    }
    // The record after the pause stands in the chunk of the one before.
    while author.last % CHUNK_BYTES > CHUNK_BYTES / 2 {
        author.push("grows", 0)?;
    }
    let since = Instant::now();
    ensure!(wait_until(|| Ok(since.elapsed() >= LATER))?, "time stands");
    for round in 16..32 {
        author.mix(round)?;
    }
    for round in 0..60 {
        author.small(round)?;
    }
    author.noise()?;
    author.define(GROWN)?;
    for round in 32..40 {
        author.mix(round)?;
        author.small(round)?;
    }
    // The log ends within a unit, so the tail holds chunks.
    while author.last % UNIT_BYTES < 2 * CHUNK_BYTES {
        author.mix(40)?;
    }
    let Author {
        writer,
        sources,
        pushed,
        ..
    } = author;
    writer.close()?;
    let records = read(&dir, &sources)?;
    ensure!(
        records.len() == pushed,
        "the engine reads {} records of {pushed}",
        records.len()
    );

    let output = Command::new(machine::python()?)
        .args(["-c", include_str!("../../src/read_units.py")])
        .arg(&dir)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    let said = String::from_utf8(output.stdout)?;
    let (lines, met) = said.trim_end().rsplit_once('\n').context("no records")?;
    let mut decoded = BTreeSet::new();
    for line in lines.lines() {
        let (address, source, arrival, payload) = parsed(line).with_context(|| line.to_owned())?;
        let record = records
            .get(&address)
            .with_context(|| format!("nobody wrote {line}"))?;
        let arrival = record.1.is_some().then_some(arrival);
        let is_same = *record == (source, arrival, payload.to_owned());
        ensure!(is_same, "the decoder reads {line}, the engine {record:?}");
        decoded.insert(address);
    }
    ensure!(
        decoded.len() == pushed,
        "the decoder reads {} records of {pushed}",
        decoded.len()
    );
    let met: BTreeMap<String, u64> = serde_json::from_str(met)?;
    let missing: Vec<_> = (MET.iter())
        .filter(|what| !met.contains_key(**what))
        .collect();
    ensure!(
        missing.is_empty(),
        "the directory has none of {missing:?}: {met:?}"
    );
    Ok(())
}
