//! The corpus, without a fuzzer: no file of it breaks a promise.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;

use loom_fuzz::{TARGETS, Target};

// With coverage, as `run` builds it, the fuzzer's library is linked, which wants a target.
#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = bytes;
});

/// Name and content of each file of a target's corpus.
fn files(target: &Target) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(target.corpus()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let file = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read(path).unwrap())
    };
    paths.map(file).collect()
}

// G8
#[test]
fn every_file_keeps_the_promises() {
    for target in TARGETS {
        let mut answers = BTreeSet::new();
        for (name, input) in files(&target) {
            let answer = std::panic::catch_unwind(|| target.run(&input));
            let answer =
                answer.unwrap_or_else(|_| panic!("{}: {name} breaks a promise", target.name));
            let decoder = input.first().filter(|_| target.decoders.len() > 1);
            answers.insert((decoder.copied(), answer));
        }
        println!("{}: {} answers", target.name, answers.len());
        for decoder in 0..target.decoders.len() {
            let decoder = (target.decoders.len() > 1).then_some(decoder as u8);
            let of = answers.iter().filter(|(found, _)| *found == decoder);
            assert!(
                of.count() > 1,
                "{}: the files of decoder {decoder:?} all get one answer",
                target.name
            );
        }
    }
}

/// Each word of the heads and source tables of a roll-up and of the last summary says nothing, everything, and far ahead: lengths of 0 and 2^64-1, and
/// chains that lead forward and into other sources' chunks.
// G8
// case Corruption: lengths of 0 and 2^64-1
// case Corruption: chain links astray
#[test]
fn lengths_and_links_that_lead_astray_do_no_harm() {
    const ROLLUP: u8 = 6;
    const LAST_SUMMARY: u8 = 10;
    const NUMBER: u8 = 5;
    for region in [ROLLUP, LAST_SUMMARY] {
        for at in (8u8..232).step_by(8) {
            // 0, 1, 2^64-1 and 2^62, as `patch.rs` lists them.
            for telling in [0, 1, 2, 6] {
                let input = [0, region << 4 | NUMBER, at, 0, 0, telling];
                assert!(!loom_fuzz::directory::run(&input).is_empty());
            }
        }
    }
}

#[test]
fn the_corpus_is_small() {
    let files = TARGETS.iter().flat_map(files);
    let bytes: usize = files.map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 512 << 10, "{bytes} bytes");
}
