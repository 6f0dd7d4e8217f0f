//! A directory made by a writer from generated operations: three sources of several types, indexes that come and go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::oracle::{Record, read_records};
use super::random::Random;
use super::scene::Scene;
use crate::error::Result;
use crate::ingest::{Batch, Writer};
use crate::log::{LogOptions, LogReader};
use crate::query::caches::Caches;
use crate::query::contrast::frequent::FrequentLimits;
use crate::query::tuning::Tuning;
use crate::query::{Directory, Snapshot};
use crate::schema::{
    FieldDef, FieldType, FieldValue, IndexDef, PayloadEncoder, SourceDef, parse_sources,
};
use crate::types::{IndexId, LogKind, SourceId, Timestamp};

/// Those of the fuzzer, and fields of further kinds.
fn sources() -> Vec<SourceDef> {
    let mut sources = parse_sources(include_str!("sources.toml")).unwrap();
    let metric = &mut sources[0].fields;
    metric.insert(2, FieldDef::new("change", FieldType::I32));
    metric.push(FieldDef {
        nullable: true,
        ..FieldDef::new("tag", FieldType::Char(11))
    });
    sources
}

/// Indexes that are defined in mid-log: source, definition.
fn later_indexes() -> Vec<(&'static str, IndexDef)> {
    let index = |text: &str| toml::from_str::<IndexDef>(text).unwrap();
    vec![
        (
            "metric",
            index(
                "name = 'change'\nvalue = 'change'\nbins = { from = -500, step = 100, count = 10 }",
            ),
        ),
        (
            "metric",
            index("name = 'large'\nvalue = 'size'\nwhere = 'kind = 2 OR kind = 3'"),
        ),
        ("metric", index("name = 'ones'\nwhere = 'kind = 1'")),
        ("event", index("name = 'fine'\nvalue = 'level'")),
    ]
}

pub const TAG: &[u8] = b"abcdefghijk";
/// The lengths of tags: of none, one and both of the words that hold one.
pub const TAG_BYTES: [usize; 5] = [0, 3, 8, 9, 11];

/// The distribution of values.
#[derive(Copy, Clone, Debug)]
pub enum Spread {
    /// A few small numbers, many times.
    Few,
    /// Log-normal, as latencies are.
    Skewed,
    /// Any bits at all: extremes, infinities, NaN.
    Any,
}

#[derive(Clone, Debug)]
pub enum Op {
    Push {
        source: usize,
        records: u16,
        spread: Spread,
        seed: u64,
    },
    Batch {
        source: usize,
        records: u16,
        spread: Spread,
        seed: u64,
    },
    /// Chunks that hold one long record of `raw` each.
    Fill(u16),
    Define(usize),
    Close(usize),
    Publish,
    Reopen,
    /// Every unit that is whole is encoded, and the rest is in the tail.
    Sync,
}

impl Op {
    pub fn push(source: usize, records: u16, spread: Spread, seed: u64) -> Op {
        Op::Push {
            source,
            records,
            spread,
            seed,
        }
    }

    pub fn batch(source: usize, records: u16, spread: Spread, seed: u64) -> Op {
        Op::Batch {
            source,
            records,
            spread,
            seed,
        }
    }
}

pub fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let spread = || prop_oneof![Just(Spread::Few), Just(Spread::Skewed), Just(Spread::Any)];
    let records = || (0usize..3, 1u16..900, spread(), any::<u64>());
    let op = prop_oneof![
        6 => records().prop_map(|(source, records, spread, seed)| Op::push(source, records, spread, seed)),
        3 => records().prop_map(|(source, records, spread, seed)| Op::batch(source, records, spread, seed)),
        1 => (1u16..70).prop_map(Op::Fill),
        1 => (0usize..4).prop_map(Op::Define),
        1 => (0usize..6).prop_map(Op::Close),
        1 => Just(Op::Publish),
        1 => Just(Op::Reopen),
        2 => Just(Op::Sync),
    ];
    prop::collection::vec(op, 1..40)
}

impl Spread {
    /// A non-negative number.
    fn magnitude(self, random: &mut Random) -> u64 {
        match self {
            Spread::Few => random.below(7),
            Spread::Skewed => {
                let octave = (0..5).map(|_| random.below(7)).sum::<u64>();
                (1 << octave) + random.below(1 << octave)
            }
            Spread::Any => random.next() >> random.below(64),
        }
    }
}

/// Questions of a world cut their work into many parts.
pub const TUNING: Tuning = Tuning {
    alone_chunks: 1,
    claim_bytes: 8 << 10,
    bin_bytes_most: 128 << 10,
    keys_most: 200,
    sources_few: 2,
    contrast: FrequentLimits { most: 12, kept: 4 },
};

/// A directory whose questions are cut into many parts.
pub fn open(loom: &Path) -> Result<Arc<Directory>> {
    let reader = LogReader::open(loom)?;
    Ok(Directory::with(reader, Caches::of_process(), TUNING))
}

/// A writer at work, and everything it has published.
pub struct World {
    pub scene: Scene,
    pub directory: Arc<Directory>,
    pub sources: Vec<SourceId>,
    pub writer: Option<Writer>,
}

impl World {
    pub fn new() -> World {
        let mut scene = Scene::new();
        scene.options.accept_clock = true;
        // Large enough that no unit is written raw because others wait.
        scene.options.log.block_bytes = 1 << 20;
        scene.options.log.segment_bytes = [1 << 20; 3].into();
        scene.options.log.durability = LogOptions::default().durability;
        let mut writer = scene.writer();
        let defs = sources();
        let sources = defs.iter().map(|def| writer.define_source(def).unwrap());
        World {
            directory: open(&scene.dir()).unwrap(),
            sources: sources.collect(),
            writer: Some(writer),
            scene,
        }
    }

    pub fn of(ops: &[Op]) -> World {
        let mut world = World::new();
        ops.iter().for_each(|op| world.apply(op));
        world.publish();
        world
    }

    pub fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("the writer is open")
    }

    fn publish(&mut self) {
        self.writer().publish().unwrap();
    }

    /// Has every unit that is whole encoded, and the rest stand in the tail.
    pub fn sync(&mut self) {
        self.writer().sync_durable().unwrap();
    }

    /// The segments of the record log, ascending.
    pub fn files(&self) -> Vec<PathBuf> {
        self.scene.segments(LogKind::Records)
    }

    /// Those of them that are written to their end.
    pub fn finished(&self) -> Vec<PathBuf> {
        let tail = self.scene.reader().tails().unwrap().tail.records;
        let mut files = self.files();
        files.truncate((tail.0 >> 20) as usize);
        files
    }

    /// Stops the writer, so that everything is in segments and the tail.
    pub fn close(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.close().unwrap();
        }
    }

    pub fn reopen(&mut self) {
        self.close();
        self.writer = Some(self.scene.writer());
    }

    /// As a crash of the host.
    pub fn lose_staging(&mut self) {
        self.writer = None;
        self.scene.lose_staging();
    }

    pub fn dir(&self) -> PathBuf {
        self.scene.dir()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.directory.snapshot().unwrap()
    }

    pub fn records(&self) -> Vec<Record> {
        read_records(&self.dir())
    }

    /// Every index of a source, open or closed.
    pub fn indexes(&self, source: SourceId) -> Vec<IndexId> {
        let snapshot = self.snapshot();
        let source = snapshot.source_by_id(source).unwrap();
        source.indexes.iter().map(|index| index.id).collect()
    }

    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push {
                source,
                records,
                spread,
                seed,
            } => {
                let id = self.sources[source];
                for payload in payloads(self.writer(), id, records, spread, seed) {
                    self.writer().push(id, &payload).unwrap();
                }
            }
            Op::Batch {
                source,
                records,
                spread,
                seed,
            } => {
                let id = self.sources[source];
                let mut bytes = Vec::new();
                for payload in payloads(self.writer(), id, records, spread, seed) {
                    bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
                    bytes.extend_from_slice(&payload);
                }
                let pushed = self
                    .writer()
                    .push_batch(id, &Batch::Framed { bytes: &bytes })
                    .unwrap();
                assert_eq!(pushed.stored, u64::from(records));
            }
            Op::Fill(chunks) => {
                let id = self.sources[2];
                for _ in 0..chunks {
                    self.writer().push(id, &[9; 4000]).unwrap();
                }
            }
            Op::Define(which) => {
                let (source, def) = later_indexes().swap_remove(which);
                let id = self.writer().catalog().find(source).unwrap().id;
                self.writer().define_index(id, &def).unwrap();
            }
            Op::Close(which) => {
                let name = ["size", "ratio", "level", "change", "large", "fine"][which];
                let open: Vec<IndexId> = self
                    .writer()
                    .catalog()
                    .sources()
                    .flat_map(|source| source.open_indexes())
                    .filter(|index| index.name == name)
                    .map(|index| index.id)
                    .collect();
                for id in open {
                    self.writer().close_index(id).unwrap();
                }
            }
            Op::Publish => self.publish(),
            Op::Sync => self.sync(),
            Op::Reopen => self.reopen(),
        }
    }
}

fn payloads(
    writer: &Writer,
    id: SourceId,
    records: u16,
    spread: Spread,
    seed: u64,
) -> Vec<Vec<u8>> {
    let source = writer.catalog().source(id).unwrap();
    let mut random = Random(seed);
    let start = random.below(1 << 40) as i64;
    let mut encoder = PayloadEncoder::new(source.time, &source.fields).unwrap();
    (0..records)
        .map(|ordinal| {
            let mut payload = Vec::new();
            match source.name.as_str() {
                "metric" => {
                    let sign = if random.below(3) == 0 { -1.0 } else { 1.0 };
                    let ratio = match (spread, random.below(16)) {
                        (Spread::Any, 0) => f64::NAN,
                        (Spread::Any, 1) => f64::INFINITY,
                        (Spread::Any, 2) => f64::NEG_INFINITY,
                        (Spread::Any, 3) => -0.0,
                        _ => sign * spread.magnitude(&mut random) as f64 / 64.0,
                    };
                    let size = match random.below(9) {
                        0 => FieldValue::Null,
                        _ => FieldValue::U64(spread.magnitude(&mut random)),
                    };
                    let note = vec![b'x'; random.below(30) as usize];
                    let tag = match random.below(TAG_BYTES.len() as u64 + 1) as usize {
                        nth if nth < TAG_BYTES.len() => FieldValue::Bytes(&TAG[..TAG_BYTES[nth]]),
                        _ => FieldValue::Null,
                    };
                    let values = [
                        FieldValue::U64(random.below(4)),
                        size,
                        FieldValue::I64(spread.magnitude(&mut random) as i32 as i64),
                        FieldValue::F64(ratio),
                        FieldValue::Bytes(&note),
                        tag,
                    ];
                    encoder.encode(None, &values, &mut payload).unwrap();
                }
                "event" => {
                    let ts = Timestamp(match spread {
                        Spread::Any => random.next() as i64,
                        _ => start + i64::from(ordinal) * 1000 - random.below(5000) as i64,
                    });
                    let level = spread.magnitude(&mut random) as i64;
                    let level = if random.below(2) == 0 {
                        level
                    } else {
                        level.wrapping_neg()
                    };
                    encoder
                        .encode(Some(ts), &[FieldValue::I64(level)], &mut payload)
                        .unwrap();
                }
                _ => payload.extend((0..random.below(90)).map(|byte| byte as u8)),
            }
            payload
        })
        .collect()
}
