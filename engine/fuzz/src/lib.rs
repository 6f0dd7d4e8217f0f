//! Bytes from anywhere, through every decoder of Loom: the targets of the fuzzer and of the test that runs the corpus.
//!
//! A target is a function from bytes to a label: `sound`, or the error that the decoder answered with, its numbers left out. It panics
//! where the decoder breaks a promise that holds for all bytes, so a crash is always a finding. Most inputs begin with a byte of flags;
//! unless it says otherwise the target first repairs the checksum, or the fuzzer would never get past it.
//!
//! The targets of files (`meta`, `durable`, `staging`, `directory`) put their bytes into a small sound directory in memory
//! ([`world`]) and ask it everything that a reader can be asked ([`questions`]).

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
pub mod filter;
pub mod memory;
pub mod meta;
pub mod node;
pub mod patch;
pub mod payload;
pub mod questions;
pub mod recovery;
pub mod reply;
pub mod request;
pub mod ring;
pub mod seeds;
pub mod signed;
pub mod staging;
pub mod time_entry;
pub mod unit;
pub mod world;

use std::path::{Path, PathBuf};

/// What a target makes of bytes.
pub type Target = fn(&[u8]) -> String;

/// Every target, by the name of its program and of its folder in `corpus/`.
pub const TARGETS: [(&str, Target); 19] = [
    ("capture", capture::run),
    ("catalog", catalog::run),
    ("chunk", chunk::run),
    ("configuration", configuration::run),
    ("definition", definition::run),
    ("directory", directory::run),
    ("durable", durable::run),
    ("exposition", exposition::run),
    ("filter", filter::run),
    ("meta", meta::run),
    ("node", node::run),
    ("payload", payload::run),
    ("recovery", recovery::run),
    ("reply", reply::run),
    ("request", request::run),
    ("ring", ring::run),
    ("staging", staging::run),
    ("time_entry", time_entry::run),
    ("unit", unit::run),
];

/// What a target answers to bytes that it has nothing to say against.
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
    let mut label = String::new();
    let mut in_number = false;
    for character in error.to_string().chars() {
        if !character.is_ascii_digit() {
            label.push(character);
        } else if !in_number {
            label.push('#');
        }
        in_number = character.is_ascii_digit();
    }
    label
}

/// The folder of this crate.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The corpus of a target.
pub fn corpus(target: &str) -> PathBuf {
    home().join("corpus").join(target)
}

/// Runs a target over the files that the command line names, as a program that was not built for fuzzing does.
pub fn replay(target: Target) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let path = PathBuf::from(path);
        println!("{}: {}", path.display(), target(&std::fs::read(&path)?));
    }
    Ok(())
}

/// The program of a target.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            std::hint::black_box($crate::$name::run(bytes));
        });

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay($crate::$name::run)
        }
    };
}
