//! A directory for unit tests. Its files are small, so that a test fills many.

use std::path::{Path, PathBuf};

use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::LogOptions;

/// A directory in `place`, and its writer.
pub(crate) fn small_writer(place: &Path) -> (PathBuf, Writer) {
    let log = LogOptions {
        chunk_bytes: 4 << 10,
        block_bytes: 64 << 10,
        segment_bytes: [64 << 10; 3].into(),
        staging: Some(place.to_owned()),
        ..LogOptions::default()
    };
    let options = WriterOptions {
        log,
        ..WriterOptions::default()
    };
    let dir = place.join("loom");
    let writer = Writer::open(&dir, options).unwrap();
    (dir, writer)
}
