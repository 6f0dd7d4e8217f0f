//! Writes `base/`, the directory that whole directories are fuzzed from. Run once for each version of the format:
//! `cargo run --release --example base`.

use std::path::Path;

use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::LogOptions;
use loom_engine::schema::{IndexDef, losses_source, parse_sources};
use loom_engine::{IoContext, Result};
use loom_fuzz::world::SEGMENT_BYTES;

const SOURCES: &str = include_str!("../../src/testkit/sources.toml");

fn main() -> Result<()> {
    let dir = loom_fuzz::home().join("base");
    let _ = std::fs::remove_dir_all(&dir);
    write(&dir)?;
    // Without copies what is damaged is not served by them.
    for name in ["loom.json.copy", "catalog.copy"] {
        std::fs::remove_file(dir.join(name)).at(&dir)?;
    }
    Ok(())
}

fn write(dir: &Path) -> Result<()> {
    let log = LogOptions {
        chunk_bytes: 4 << 10,
        block_bytes: SEGMENT_BYTES,
        segment_bytes: [SEGMENT_BYTES, 1 << 20, 1 << 20].into(),
        ..LogOptions::default()
    };
    let mut writer = Writer::open(
        dir,
        WriterOptions {
            log,
            ..WriterOptions::default()
        },
    )?;
    let mut ids = Vec::new();
    for source in parse_sources(SOURCES)? {
        ids.push(writer.define_source(&source)?);
    }
    let &[metric, event, raw] = ids.as_slice() else {
        return Ok(());
    };
    writer.define_builtin_source(&losses_source())?;
    // Chunks of one long record each stand between busy ones, so that 64 chunks, which make a roll-up, take few summaries of any size.
    let long = vec![0x11; writer.payload_bytes_max()];
    for ordinal in 0..78u64 {
        if ordinal % 16 == 0 {
            // Each unit is written while no other waits, so all are columns.
            writer.sync_durable()?;
        }
        if ordinal % 16 > 1 {
            writer.push(raw, &long)?;
            continue;
        }
        for nth in 0..40u64 {
            let number = (ordinal * 40 + nth).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            writer.push(metric, &metric_of(number))?;
            if nth % 3 == 0 {
                let (ts, level) = (1_000_000 - number as i64 % 900_000, number as i64 % 2000);
                writer.push(event, &[ts.to_le_bytes(), level.to_le_bytes()].concat())?;
            }
        }
        if ordinal == 32 {
            let filtered = IndexDef {
                filter: Some("kind = 2 OR kind = 3".to_owned()),
                ..IndexDef::new("some", Some("size"))
            };
            writer.define_index(metric, &filtered)?;
        }
    }
    writer.close()
}

/// Null bits, kind, size, ratio, the note's length, the note.
fn metric_of(number: u64) -> Vec<u8> {
    let (kind, size) = ((number >> 60) as u8 % 4, (number >> 40) % 3000);
    let ratio = match number % 11 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        _ => (number >> 50) as f64 / 7.0,
    };
    let note: &[u8] = if number.is_multiple_of(5) {
        b"slow"
    } else {
        b""
    };
    let mut payload = vec![u8::from(number.is_multiple_of(7)), kind];
    payload.extend_from_slice(&size.to_le_bytes());
    payload.extend_from_slice(&ratio.to_le_bytes());
    payload.extend_from_slice(&(note.len() as u16).to_le_bytes());
    payload.extend_from_slice(note);
    payload
}
