//! Chunks, nodes and time entries.

use loom_engine::format::{ChildStats, ChunkBuilder, NodeSummary, TimeEntry, encode_node};
use loom_engine::{Address, ChunkNo, LogKind, SourceId, Timestamp};

use super::{Seeds, seed, with};
use crate::chunk::RAW;
use crate::world::{World, log_path};
use crate::{UNREPAIRED, UUID, node, time_entry};

const REPAIRED: &[u8] = &[0];

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        ("chunk", chunks()),
        ("node", nodes().into_iter().chain(narrow_nodes()).collect()),
        ("time_entry", time_entries()),
    ]
}

fn chunks() -> Seeds {
    let mut chunk = ChunkBuilder::new(4096);
    let long = 5_000_000_000;
    for (source, arrival, payload) in [
        (1, 100, &b"hello"[..]),
        (1, 100, b"world"),
        (2, 101, b""),
        (1, 105, b"sixteen bytes ok"),
        (1, long, b"later"),
        (9, long, &[7; 70]),
    ] {
        chunk.push(SourceId(source), Timestamp(arrival), payload);
    }
    let sound = chunk.filled().to_vec();
    let record = |source: u16, length: u16, delta: u32| {
        let mut header = source.to_le_bytes().to_vec();
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&delta.to_le_bytes());
        header
    };
    let anchor = 50i64.to_le_bytes();
    let magic = 0x4B48_434Cu32.to_le_bytes();
    vec![
        seed("sound", &[REPAIRED, &sound]),
        seed("filler", &[REPAIRED, &anchor, &record(0, 5, 0)]),
        seed("length", &[REPAIRED, &anchor, &record(1, 60_000, 0)]),
        seed(
            "decreasing",
            &[REPAIRED, &anchor, &record(1, 0, 9), &record(1, 0, 3)],
        ),
        seed(
            "end_of_time",
            &[
                REPAIRED,
                &i64::MAX.to_le_bytes(),
                &record(1, 0, 9),
                &record(1, 0, 7),
            ],
        ),
        seed("mark", &[&[UNREPAIRED], &sound]),
        seed("checksum", &[&[RAW], b"some bytes", &[1, 2, 3, 4], &magic]),
        seed("short", &[&[RAW], b"abc"]),
        seed("empty", &[]),
    ]
}

/// A node of the base, and where the parts of its first index block stand.
struct Parts {
    bytes: Vec<u8>,
    sources: usize,
    index_table: usize,
    block: usize,
}

impl Parts {
    /// The smallest node of a level in which `wanted` holds.
    fn of(rollup: bool, wanted: impl Fn(&Parts) -> bool) -> Parts {
        let world = World::base();
        let log = world
            .files
            .get(&log_path(LogKind::Chunks))
            .unwrap_or_default();
        let found = world
            .nodes
            .iter()
            .filter_map(|place| {
                let from = place.node.0 as usize;
                Some(Parts::parse(log.get(from..from + place.node_bytes)?))
            })
            .filter(|parts| (parts.u8_at(12) > 0) == rollup && wanted(parts))
            .min_by_key(|parts| parts.bytes.len());
        found.unwrap_or_else(|| panic!("the base has no such node"))
    }

    fn parse(bytes: &[u8]) -> Parts {
        let mut parts = Parts {
            bytes: bytes.to_vec(),
            sources: 0,
            index_table: 0,
            block: 0,
        };
        parts.sources = usize::from(parts.u8_at(14));
        parts.index_table = 56 + 88 * parts.sources;
        if parts.u8_at(48) > 0 {
            parts.block = parts.u32_at(parts.index_table + 8) as usize;
        }
        parts
    }

    fn u8_at(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = [at, at + 1, at + 2, at + 3].map(|at| self.u8_at(at));
        u32::from_le_bytes(bytes)
    }

    fn flags(&self) -> u8 {
        self.u8_at(self.block + 40)
    }

    fn tops(&self) -> u8 {
        self.u8_at(self.block + 42)
    }

    /// The last byte pair list begins behind what has a fixed length: its first byte.
    fn first_bin(&self) -> usize {
        let length = self.u32_at(self.index_table + 12) as usize;
        let bins = self.u32_at(self.block + 44) as usize;
        // Halves only: the seeds take a node whose bins have no excess.
        self.block + length - bins.next_multiple_of(8)
    }

    fn changed(&self, name: &str, at: usize, new: &[u8]) -> (String, Vec<u8>) {
        seed(name, &[REPAIRED, &with(&self.bytes, at, new)])
    }
}

fn nodes() -> Seeds {
    let busy = Parts::of(false, |parts| {
        parts.block > 0 && parts.flags() & 1 != 0 && parts.tops() > 1 && parts.sources > 1
    });
    let rollup = Parts::of(true, |parts| parts.block > 0 && parts.flags() & 5 == 5);
    let plain = Parts::of(false, |_| true);
    let block = busy.block;
    let far = u64::MAX.to_le_bytes();
    vec![
        seed("sound_summary", &[REPAIRED, &busy.bytes]),
        seed("sound_rollup", &[REPAIRED, &rollup.bytes]),
        seed("sound_small", &[REPAIRED, &plain.bytes]),
        seed("short", &[REPAIRED, b"LNOD"]),
        seed("checksum", &[&[UNREPAIRED], &busy.bytes]),
        busy.changed("mark", 0, b"x"),
        busy.changed("length", 8, &[57, 0]),
        busy.changed("tables", 48, &[0xFF; 4]),
        busy.changed("source_order", 56 + 88, &[0, 0]),
        busy.changed("many_records", 40, &far),
        busy.changed("many_records_of_a_source", 56 + 8, &far),
        busy.changed("more_values_than_records", 56 + 8, &[1, 0]),
        busy.changed("child_columns", 56 + 64, &[1]),
        rollup.changed(
            "child_total",
            rollup.u32_at(56 + 72) as usize,
            &[0xFE, 0xFF],
        ),
        rollup.changed("no_child_columns", 56 + 64, &[0; 8]),
        busy.changed(
            "chain_to_itself",
            56 + 48,
            busy.bytes.get(16..24).unwrap_or(&far),
        ),
        busy.changed("index_order", busy.index_table + 2, &[1]),
        busy.changed("block_place", busy.index_table + 8, &[0xFF; 4]),
        busy.changed("block_short", busy.index_table + 12, &[16, 0, 0, 0]),
        busy.changed("no_values", block, &[0; 8]),
        busy.changed("extremes", block + 24, &far),
        busy.changed("many_tops", block + 42, &[5, 0]),
        busy.changed("top_outside", block + 56, &far),
        busy.changed(
            "top_order",
            block + 56,
            busy.bytes.get(block + 24..block + 32).unwrap_or(&far),
        ),
        busy.changed("bins_without_flag", block + 40, &[busy.flags() & !1]),
        busy.changed("empty_bin", busy.first_bin(), &[0x01]),
        busy.changed("full_bin", busy.first_bin(), &[0xFF]),
        busy.changed("bins_short", block + 44, &[0xFF, 0, 0, 0]),
        busy.changed("bins_total", block, &[0xFE, 0xFF]),
        rollup.changed("children_total", rollup.block + 56, &[0xFE, 0xFF]),
        rollup.changed("many_bins", rollup.block + 44, &[0xFF; 4]),
    ]
}

/// A node of many sources: each of them has one record in a chunk.
fn narrow(level: u8) -> Vec<u8> {
    let mut summary = NodeSummary::new(level);
    summary.clear(ChunkNo(128));
    for nth in 0..40u16 {
        let source = summary.sources.push();
        source.reset(SourceId(2 * nth + 1), nth % 2 == 0);
        let ms = |ms: i64| Timestamp(1_000_000 * (ms + i64::from(nth)));
        (source.records, source.bytes) = (1 + u64::from(level), 104);
        (source.first_arrival, source.last_arrival) = (ms(0), ms(1));
        (source.first_ts, source.last_ts) = (ms(-5), ms(7));
        source.previous_chunk = (nth % 3 != 0).then_some(ChunkNo(100 + u64::from(nth % 2)));
        (source.first, source.last) = (8 * u32::from(nth), 8 * u32::from(nth) + 8);
        if level > 0 {
            source.child_mask = 1 << (nth % 40) | 1 << 50;
            let child = |child, ms| ChildStats {
                child,
                records: 1,
                first_ts: ms,
                last_ts: ms,
            };
            let children = [child(nth as u8 % 40, ms(-5)), child(50, ms(7))];
            source.children.extend(children);
        }
        summary.records += source.records;
    }
    (summary.first_arrival, summary.last_arrival) = (Timestamp(0), Timestamp(50_000_000));
    let mut bytes = Vec::new();
    encode_node(&UUID, node::AT, &summary, |_, _| true, &mut bytes);
    bytes
}

fn narrow_nodes() -> Seeds {
    let (summary, rollup) = (narrow(0), narrow(1));
    let table = |column: usize| 56 + 24 * column;
    let changed = |name: &str, bytes: &[u8], at: usize, new: &[u8]| {
        seed(name, &[REPAIRED, &with(bytes, at, new)])
    };
    vec![
        seed("narrow_summary", &[REPAIRED, &summary]),
        seed("narrow_rollup", &[REPAIRED, &rollup]),
        changed("narrow_place", &summary, table(0) + 16, &[0xFF; 4]),
        changed("narrow_width", &summary, table(4) + 20, &[60]),
        changed("narrow_cut", &rollup, table(13) + 20, &[57]),
        changed("narrow_source", &summary, table(0), &[0xFF; 3]),
        changed("narrow_order", &summary, table(0) + 8, &[0]),
        changed("narrow_children", &rollup, table(12), &[1]),
        changed("narrow_child_total", &rollup, table(13), &[2]),
        changed("narrow_chain", &summary, table(8), &[0xFF; 8]),
    ]
}

fn time_entries() -> Seeds {
    let entry = TimeEntry {
        level: 2,
        first_chunk: ChunkNo(4096),
        node: Address(81_920),
        node_bytes: 4096,
        damaged: false,
        first_arrival: Timestamp(-5),
        last_arrival: Timestamp(7),
    };
    let sound = entry.encode(&UUID, time_entry::AT);
    vec![
        seed("sound", &[REPAIRED, &sound]),
        seed("far", &[REPAIRED, &with(&sound, 8, &[0xFF; 8])]),
        seed("short", &[REPAIRED, &[1; 47]]),
        seed("checksum", &[&[UNREPAIRED], &with(&sound, 9, &[1])]),
        seed("level", &[REPAIRED, &with(&sound, 4, &[11])]),
    ]
}
