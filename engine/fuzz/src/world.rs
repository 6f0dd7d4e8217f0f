//! The small sound directory that the targets of files put their bytes into: `base/`, which the program `base` writes.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use loom_engine::format::{TIME_ENTRY_BYTES, Template, TimeEntry, UNIT_CHUNKS, UnitEncoder};
use loom_engine::query::Directory;
use loom_engine::schema::Pieces;
use loom_engine::{Address, ChunkNo, LogKind, Result, SourceId};

use crate::columns;
use crate::files::Files;

pub const CHUNK_BYTES: usize = 4096;
/// Of a segment of the record log.
pub const SEGMENT_UNITS: usize = (1 << 20) / (UNIT_CHUNKS as usize * CHUNK_BYTES);
/// A slot of `durable`.
pub const SLOT_BYTES: usize = 4096;

/// A node, and the entry that names it.
#[derive(Copy, Clone, Debug)]
pub struct NodePlace {
    pub entry: Address,
    pub node: Address,
    pub node_bytes: usize,
}

/// The directory, and where its parts stand.
#[derive(Debug)]
pub struct World {
    pub files: Files,
    pub uuid: [u8; 16],
    pub nodes: Vec<NodePlace>,
}

impl World {
    /// The one and only, read once.
    pub fn base() -> &'static World {
        static BASE: LazyLock<World> = LazyLock::new(|| {
            World::read(&crate::home().join("base")).unwrap_or_else(|error| panic!("base: {error}"))
        });
        &BASE
    }

    fn read(dir: &Path) -> std::io::Result<World> {
        let files = Files::read(dir)?;
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.join("loom.json"))?)?;
        let hex: String = json
            .get("uuid")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .replace('-', "");
        let uuid = u128::from_str_radix(&hex, 16)
            .map_err(std::io::Error::other)?
            .to_be_bytes();
        let nodes = nodes_of(
            &uuid,
            files.get(&log_path(LogKind::Times)).unwrap_or_default(),
        );
        Ok(World { files, uuid, nodes })
    }
}

/// Every node that the timestamp index names.
fn nodes_of(uuid: &[u8; 16], times: &[u8]) -> Vec<NodePlace> {
    times
        .chunks_exact(TIME_ENTRY_BYTES)
        .zip((0u64..).step_by(TIME_ENTRY_BYTES))
        .map(|(bytes, at)| {
            let entry = TimeEntry::decode(uuid, Address(at), bytes)
                .unwrap_or_else(|error| panic!("base, entry at {at}: {error}"));
            NodePlace {
                entry: Address(at),
                node: entry.node,
                node_bytes: entry.node_bytes as usize,
            }
        })
        .collect()
}

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(name)
}

/// The one segment of a log.
pub fn log_path(log: LogKind) -> PathBuf {
    path(log.dir_name()).join("00000000000000000000.0")
}

/// The one segment of the record log, where it is in columns.
pub fn columns_path() -> PathBuf {
    path(LogKind::Records.dir_name()).join("00000000000000000000.1.columns")
}

/// The record log of the base in columns, as far as its chunks go.
pub fn in_columns() -> &'static [u8] {
    static COLUMNS: LazyLock<Vec<u8>> =
        LazyLock::new(|| encoded(World::base()).unwrap_or_else(|error| panic!("base: {error}")));
    &COLUMNS
}

fn encoded(world: &World) -> Result<Vec<u8>> {
    let snapshot = Directory::open(&crate::home().join("base"))?.snapshot()?;
    let template_of = |source: SourceId, chunk: Address| match snapshot.catalog().source(source) {
        Some(known) => Pieces::of(source, known.layout_at(chunk)).into_template(),
        None => Template {
            source,
            pieces: Vec::new(),
            has_rest: true,
        },
    };
    let unit_bytes = UNIT_CHUNKS as usize * CHUNK_BYTES;
    let mut rows = world
        .files
        .get(&log_path(LogKind::Records))
        .unwrap_or_default()
        .to_vec();
    rows.resize(rows.len().next_multiple_of(unit_bytes), 0);
    let mut encoder = UnitEncoder::new(world.uuid, CHUNK_BYTES as u32);
    let (mut file, mut starts) = (Vec::new(), vec![0]);
    for (unit, first) in rows.chunks_exact(unit_bytes).zip((0..).step_by(unit_bytes)) {
        encoder.encode(Address(first), unit, template_of, &mut file);
        starts.push(file.len() as u64);
    }
    // Of the units above the log's end, which nobody reads, the first leaves room for the others to grow, and the rest take nothing.
    file.resize(file.len() + 2 * unit_bytes, 0);
    starts.resize(SEGMENT_UNITS + 1, file.len() as u64);
    file.extend_from_slice(&columns::directory(&world.uuid, Address::ZERO, &starts));
    Ok(file)
}

/// Of the record log.
pub fn chunk_address(chunk: ChunkNo) -> Address {
    Address(chunk.0 * CHUNK_BYTES as u64)
}
