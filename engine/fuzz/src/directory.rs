//! A whole directory as a reader sees it: changes to the files of a sound one, whose checksums then are made right again.
//!
//! Input: flags, then changes (`patch.rs`) to these regions: units of the record log, chunk index, timestamp index, catalog, `loom.json`, `durable`,
//! the roll-up, its entry, the first summary, its entry, the last summary, its entry; then with [`STAGED`] those of `staging.rs`, else the tail of
//! the record log.
//!
//! DuckDB looks at the same directories (`duckdb/`).

use std::io;
use std::path::Path;

use loom_engine::LogKind;
use loom_engine::format::TIME_ENTRY_BYTES;

use crate::files::{Files, in_folder};
use crate::patch::{Region, apply};
use crate::signed::{Meta, Note, repaired};
use crate::world::{CHUNK_BYTES, SEGMENT_BYTES, World, log_path, path};
use crate::{UNREPAIRED, columns, durable, flagged, node, questions, staging, tail, time_entry};

/// In the flags: only the checksums of units stay wrong.
const UNITS_UNREPAIRED: u8 = 2;
/// In the flags: the writer was killed, and left staging.
const STAGED: u8 = 4;

pub fn run(input: &[u8]) -> String {
    in_folder(|dir| write(input, dir, &[]), questions::ask)
}

/// The directory that an input says; `staged` is the sound one with staging.
fn damaged(input: &[u8], staged: &Files) -> Files {
    let (flags, changes) = flagged(input);
    let world = World::base();
    let mut regions = regions(world);
    let files = match flags & STAGED {
        0 => {
            regions.push(Region::whole(&world.files, path(tail::NAME)));
            &world.files
        }
        _ => {
            regions.extend(staging::regions());
            staged
        }
    };
    let mut files = files.clone();
    let changed = apply(&mut files, &regions, changes);
    if flags & UNREPAIRED == 0 {
        for path in changed {
            if flags & UNITS_UNREPAIRED == 0 || path != log_path(LogKind::Records) {
                repair(world, &mut files, &path);
            }
        }
    }
    files
}

/// Makes the directory that an input says at a path where there is nothing; the files in `kept` stay sound.
pub fn write(input: &[u8], dir: &Path, kept: &[&str]) -> io::Result<()> {
    staging::write(dir, |live| {
        let mut files = damaged(input, live);
        for path in kept.iter().map(|name| path(name)) {
            files.put(path.clone(), live.get(&path).unwrap_or_default());
        }
        files
    })
}

/// In the order in which the fuzzer names them.
pub fn regions(world: &World) -> Vec<Region> {
    let files = &world.files;
    let mut regions: Vec<Region> = LogKind::ALL
        .map(log_path)
        .into_iter()
        .chain(["catalog", "loom.json", "durable"].map(path))
        .map(|path| Region::whole(files, path))
        .collect();
    let rollup = world.nodes.iter().max_by_key(|place| place.node_bytes);
    let ends = world.nodes.first().into_iter().chain(world.nodes.last());
    for place in rollup.into_iter().chain(ends) {
        regions.push(Region {
            path: log_path(LogKind::Chunks),
            from: place.node.0 as usize,
            bytes: place.node_bytes,
        });
        regions.push(Region {
            path: log_path(LogKind::Times),
            from: place.entry.0 as usize,
            bytes: TIME_ENTRY_BYTES,
        });
    }
    regions
}

/// Makes every checksum of a file right, as far as what it covers is there.
fn repair(world: &World, files: &mut Files, of: &Path) {
    let Some(bytes) = files.get(of) else {
        return;
    };
    let mut bytes = bytes.to_vec();
    let uuid = &world.uuid;
    if of == log_path(LogKind::Records) {
        columns::repair_segment(uuid, CHUNK_BYTES, SEGMENT_BYTES, &mut bytes);
    } else if of == path(tail::NAME) {
        tail::repair(uuid, &mut bytes);
    } else if of == log_path(LogKind::Chunks) {
        for place in &world.nodes {
            let from = place.node.0 as usize;
            if let Some(bytes) = bytes.get_mut(from..) {
                node::repair(uuid, place.node, bytes);
            }
        }
    } else if of == log_path(LogKind::Times) {
        for place in &world.nodes {
            if let Some(bytes) = bytes.get_mut(place.entry.0 as usize..) {
                time_entry::repair(uuid, place.entry, bytes);
            }
        }
    } else if of == path("catalog") {
        bytes = relined(uuid, &bytes);
    } else if of == path("durable") {
        durable::repair(uuid, &mut bytes);
    } else if of == path("loom.json") {
        bytes = repaired::<Meta>(&bytes).unwrap_or(bytes);
    } else if of == path("staging") {
        bytes = repaired::<Note>(&bytes).unwrap_or(bytes);
    }
    files.put(of, bytes);
}

/// The catalog with the checksum of each line made right.
fn relined(uuid: &[u8; 16], file: &[u8]) -> Vec<u8> {
    /// Eight digits and a space.
    const PREFIX_BYTES: usize = 9;
    let lines: Vec<&[u8]> = file
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.get(PREFIX_BYTES..).unwrap_or(line))
        .collect();
    crate::catalog::repaired(uuid, &lines.concat())
}
