//! Bytes from anywhere, through every decoder of Loom: the targets of the fuzzer and of the test that runs the corpus.
//!
//! A decoder's function takes bytes and returns a label: `sound`, or the error that the decoder answered with, its numbers left out. It panics
//! where the decoder breaks a promise that holds for all bytes, so a crash is always a finding. Most inputs begin with a byte of flags;
//! unless it says otherwise the function first repairs the checksum, or the fuzzer would never get past it.
//!
//! `catalog`, `chunk`, `node`, `payload` and `time_entry` decode their bytes alone. `durable`, `meta`, `staging`, `directory` and `recovery` put theirs
//! into a small sound directory ([`world`]), write it to a folder ([`files`]) and ask it everything that a reader can be asked ([`questions`]).
//! DuckDB looks at the directories of `directory` too (`duckdb/`). CSV, JSON, Parquet and Arrow files are not fuzzed, because Arrow takes minutes to
//! build: `ingestd/src/input/damaged_input.rs` damages them.

#[path = "../../../ingestd/src/exposition.rs"]
pub mod answers;
pub mod capture;
pub mod catalog;
pub mod chunk;
pub mod columns;
pub mod configuration;
pub mod definition;
pub mod directory;
pub mod durable;
pub mod exposition;
pub mod files;
pub mod filter;
pub mod frames;
pub mod meta;
pub mod node;
pub mod patch;
pub mod payload;
pub mod questions;
pub mod recovery;
pub mod ring;
pub mod signed;
pub mod staging;
pub mod tail;
pub mod time_entry;
pub mod unit;
pub mod world;

use std::path::{Path, PathBuf};

/// One decoder with what holds for it.
pub type Decoder = fn(&[u8]) -> String;

/// The target of one program: one decoder, or several of a kind, from which the first byte of an input chooses.
#[derive(Copy, Clone, Debug)]
pub struct Target {
    /// The name of its folder in `corpus/`.
    pub name: &'static str,
    pub decoders: &'static [Decoder],
}

/// Every target. A new decoder goes to the end of its list, so that the files of the corpus keep theirs.
pub const TARGETS: [Target; 7] = [
    target("bytes", BYTES),
    target("columns", &[unit::run]),
    target("directory", &[directory::run]),
    target("files", &[durable::run, meta::run, staging::run]),
    target("protocol", &[frames::replies, frames::requests, ring::run]),
    target("recovery", &[recovery::run]),
    target("text", TEXT),
];

const BYTES: &[Decoder] = &[
    catalog::run,
    chunk::run,
    node::run,
    payload::run,
    time_entry::run,
];

const TEXT: &[Decoder] = &[
    capture::run,
    configuration::run,
    definition::run,
    exposition::run,
    filter::run,
];

const fn target(name: &'static str, decoders: &'static [Decoder]) -> Target {
    Target { name, decoders }
}

impl Target {
    /// The target that `LOOM_TARGET` names.
    pub fn chosen() -> Target {
        let name = std::env::var("LOOM_TARGET").unwrap_or_default();
        let found = TARGETS.into_iter().find(|target| target.name == name);
        let known = TARGETS.map(|target| target.name);
        found.unwrap_or_else(|| panic!("LOOM_TARGET is '{name}'; set it to one of {known:?}"))
    }

    pub fn run(&self, input: &[u8]) -> String {
        let (which, rest) = match self.decoders {
            [_] => (0, input),
            _ => flagged(input),
        };
        let mut decoders = self.decoders.iter().cycle();
        let decoder = decoders.nth(which.into());
        decoder.map_or_else(String::new, |decoder| decoder(rest))
    }

    pub fn corpus(&self) -> PathBuf {
        home().join("corpus").join(self.name)
    }
}

/// The answer to bytes that a decoder accepts.
pub const SOUND: &str = "sound";

/// In the byte of flags: the checksum stays as it is.
pub const UNREPAIRED: u8 = 1;

/// The directory that the checksums of single decoders are of.
pub const UUID: [u8; 16] = [7; 16];

/// The first byte and the rest; no bytes are flags of 0.
pub fn flagged(input: &[u8]) -> (u8, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(flags, rest)| (*flags, rest))
}

/// An error without its numbers, by which inputs are distinguished.
pub fn label(error: &impl ToString) -> String {
    let text = error.to_string();
    let pieces = text.split(|character: char| character.is_ascii_digit());
    let mut label = String::new();
    for (nth, piece) in pieces.enumerate() {
        if nth > 0 && !label.ends_with('#') {
            label.push('#');
        }
        label.push_str(piece);
    }
    label
}

/// The folder of this crate.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
