//! A writer that begins in a damaged directory: what it takes over is its affair, and what it acknowledges from then on is there.
//!
//! Input: as that of `directory`, but that `loom.json` stays sound: files as large as it says would be allocated.

use std::ops::ControlFlow;
use std::path::Path;

use loom_engine::check::check;
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::LogOptions;
use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::schema::SourceDef;
use loom_engine::{Result, TimeRange};

use crate::files::in_folder;
use crate::world::{CHUNK_BYTES, SEGMENT_BYTES};
use crate::{SOUND, directory, label};

const NAME: &str = "recovered";
const PUSHED: u64 = 300;

pub fn run(input: &[u8]) -> String {
    let outcome = in_folder(|dir| directory::write(input, dir, &["loom.json"]), begin);
    outcome.map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

fn begin(dir: &Path) -> Result<()> {
    let log = LogOptions {
        chunk_bytes: CHUNK_BYTES as u32,
        block_bytes: 64 << 10,
        segment_bytes: [SEGMENT_BYTES, 1 << 20, 1 << 20].into(),
        staging: Some(dir.to_owned()),
        ..LogOptions::default()
    };
    let options = WriterOptions {
        log,
        accept_clock: true,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(dir, options)?;
    let id = writer.define_source(&SourceDef::new(NAME))?;
    for number in 0..PUSHED {
        writer.push(id, &number.to_le_bytes())?;
    }
    writer.close()?;
    let snapshot = Directory::open(dir)?.snapshot()?;
    let source = snapshot.source(NAME)?.id;
    let mut expected = PUSHED;
    raw_scan(
        &snapshot,
        source,
        TimeRange::ALL,
        &Poll::never(),
        |record| {
            if expected > 0 {
                expected -= 1;
                assert_eq!(record.payload, expected.to_le_bytes());
            }
            ControlFlow::Continue(())
        },
    )?;
    assert_eq!(expected, 0, "records that were acknowledged are not there");
    std::hint::black_box(check(dir)?.is_sound());
    Ok(())
}
