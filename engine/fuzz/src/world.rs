//! The small sound directory that the targets of files put their bytes into: `base/`, which the program `base` writes.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use loom_engine::format::{TIME_ENTRY_BYTES, TimeEntry};
use loom_engine::log::LogReader;
use loom_engine::{Address, LogKind};

use crate::files::Files;

pub const CHUNK_BYTES: usize = 4096;
/// A segment of the record log has four units.
pub const SEGMENT_BYTES: u64 = 256 << 10;
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
    /// All of the record log, as readers see it.
    pub records: Vec<u8>,
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
        Ok(World {
            files,
            uuid,
            records: records_of(dir).map_err(std::io::Error::other)?,
            nodes,
        })
    }
}

fn records_of(dir: &Path) -> loom_engine::Result<Vec<u8>> {
    let reader = LogReader::open(dir)?;
    let tail = reader.tails()?.tail.records;
    let mut records = vec![0; tail.0 as usize];
    reader.read(LogKind::Records, Address::ZERO, &mut records)?;
    Ok(records)
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

/// The first segment of a log: of an index log the only one, of the record log the only one that holds units.
pub fn log_path(log: LogKind) -> PathBuf {
    path(log.dir_name()).join("00000000000000000000.0")
}
