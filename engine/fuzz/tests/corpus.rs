//! The corpus, without a fuzzer: no file of it breaks a promise, and every error that a decoder can answer with is reached by a file.
//!
//! What a decoder can answer with is read from its source, where each message stands as a literal, so a new error without a file fails here.
//! Some messages cannot be reached by a small file, or by none through the decoder: `BEYOND` names them, with the reason.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use loom_fuzz::{Target, corpus, home, label};

/// Decoders, and the targets through which their errors show.
const DECODERS: [(&str, &[&str]); 47] = [
    ("engine/src/format/chunk.rs", &["chunk", "durable"]),
    ("engine/src/format/runs.rs", &["chunk"]),
    ("engine/src/format/node.rs", &["node"]),
    ("engine/src/format/narrow.rs", &["node"]),
    ("engine/src/format/index_block.rs", &["node"]),
    ("engine/src/format/time_entry.rs", &["time_entry"]),
    ("engine/src/format/columns/unit.rs", &["unit"]),
    ("engine/src/format/columns/head.rs", &["unit"]),
    ("engine/src/format/columns/families.rs", &["unit"]),
    ("engine/src/format/columns/template.rs", &["unit"]),
    ("engine/src/format/columns/rows.rs", &["unit"]),
    ("engine/src/format/columns/chunk_rows.rs", &["unit"]),
    ("engine/src/format/columns/bits.rs", &["unit"]),
    ("engine/src/format/columns/codec/block.rs", &["unit"]),
    ("engine/src/format/columns/codec/cursor.rs", &["unit"]),
    ("engine/src/format/columns/codec/dictionary.rs", &["unit"]),
    ("engine/src/format/columns/codec/encoding.rs", &["unit"]),
    ("engine/src/format/columns/codec/runs.rs", &["unit"]),
    ("engine/src/format/columns/codec/scaled.rs", &["unit"]),
    ("engine/src/format/columns/segment.rs", &["unit"]),
    ("engine/src/log/files/column_file.rs", &["directory"]),
    ("engine/src/format/line.rs", &["catalog"]),
    ("engine/src/schema/catalog/line.rs", &["catalog"]),
    (
        "engine/src/schema/catalog/change.rs",
        &["catalog", "definition"],
    ),
    ("engine/src/schema/source.rs", &["definition"]),
    ("engine/src/schema/names.rs", &["definition"]),
    ("engine/src/schema/field.rs", &["definition", "catalog"]),
    ("engine/src/schema/index.rs", &["definition", "catalog"]),
    ("engine/src/schema/bins.rs", &["definition"]),
    ("engine/src/schema/bin_map.rs", &["definition"]),
    ("engine/src/schema/layout.rs", &["definition"]),
    ("engine/src/schema/filter/mod.rs", &["filter"]),
    ("engine/src/schema/filter/grammar.rs", &["filter"]),
    ("engine/src/schema/filter/resolve.rs", &["filter"]),
    ("engine/src/log/files/meta.rs", &["meta", "directory"]),
    ("engine/src/log/staging/control.rs", &["staging"]),
    ("engine/src/log/staging/attachment.rs", &["staging"]),
    ("engine/src/log/staging/note.rs", &["staging"]),
    ("engine/src/log/files/mirrored.rs", &["meta"]),
    ("engine/src/nodes/node_reader.rs", &["directory"]),
    ("ingestd/wire/src/capture/framing.rs", &["capture"]),
    ("ingestd/wire/src/config/mod.rs", &["configuration"]),
    ("ingestd/wire/src/config/units.rs", &["configuration"]),
    ("ingestd/wire/src/config/rule.rs", &["configuration"]),
    ("ingestd/wire/src/config/when.rs", &["configuration"]),
    ("ingestd/wire/src/config/scrape.rs", &["configuration"]),
    ("ingestd/wire/src/exposition.rs", &["exposition"]),
];

/// Messages that no file of the corpus can reach, and why.
const BEYOND: [(&str, &str); 38] = [
    (
        "compare them with a plain number of nanoseconds",
        "of the fields of a source, when a rule is evaluated",
    ),
    (
        "or compare with a plain number",
        "of the fields of a source, when a rule is evaluated",
    ),
    (
        "a rule with a duration is evaluated over a field with a unit",
        "a broken invariant of our own",
    ),
    (
        "counts and windows are below",
        "a broken invariant of our own",
    ),
    (
        "as many streams as its families have members",
        "a broken invariant of our own",
    ),
    (
        "is read before it is decoded",
        "a broken invariant of our own",
    ),
    ("rows are selected", "a broken invariant of our own"),
    (
        "room for a word of rows was made",
        "a broken invariant of our own",
    ),
    ("what is wanted is named", "a broken invariant of our own"),
    (
        "the streams of a head were checked",
        "a broken invariant of our own",
    ),
    (
        "the columns of a node were proven",
        "a broken invariant of our own",
    ),
    (
        "a configuration has chunks of at most",
        "a broken invariant of our own",
    ),
    ("an event is always JSON", "a broken invariant of our own"),
    ("numbers are always JSON", "a broken invariant of our own"),
    (
        "a condition has a comparison",
        "a broken invariant of our own",
    ),
    ("rules; the limit is", "a thousand rules take 70 KB"),
    (
        "was decoded before does not",
        "a broken invariant of our own",
    ),
    (
        "numbers and texts are always JSON",
        "a broken invariant of our own",
    ),
    (
        "has its header in the chunk",
        "a broken invariant of our own",
    ),
    (
        "every field ends in the header",
        "a broken invariant of our own",
    ),
    ("windows of two", "a broken invariant of our own"),
    (
        "a segment that is open to be read is not",
        "a broken invariant of our own",
    ),
    (
        "a directory knows where the units end",
        "a broken invariant of our own",
    ),
    (
        "the number of units of a column segment",
        "two million units take gigabytes; without a directory they are walked",
    ),
    ("it does not exist", "of the path, not of a file"),
    ("it is a file", "of the path, not of what it says"),
    ("it and its copy differ", "the base has no copies"),
    ("it is missing", "of a copy, which the base does not have"),
    ("; the file is written again", "a warning of a start"),
    (
        "its lines end at byte",
        "of what is told elsewhere: the target `catalog` asserts it of every input",
    ),
    (
        "sources, which is the limit",
        "65,000 sources take megabytes",
    ),
    (
        "the catalog would hold more than",
        "8 million fields take megabytes",
    ),
    (
        ", which has no bytes",
        "what has no bytes is not even read as a type",
    ),
    (
        "there are no",
        "of a directory without sources: a definition has fields",
    ),
    ("' has more than", "65,536 labels take a megabyte"),
    (
        "or change [access] group",
        "of the machine's groups, when the daemon starts",
    ),
    (
        "cannot read the configuration:",
        "of the file, not of what it says",
    ),
    (
        " (level, first chunk",
        "every question is answered from the records instead",
    ),
];

/// What else must be reached: labels of errors that are not literals of one file.
const BESIDES: [(&str, &[&str]); 17] = [
    ("chunk", &["a chunk is cut short", "checksum of a chunk"]),
    ("node", &["a node is cut short", "checksum of a node"]),
    (
        "time_entry",
        &["a time entry is cut short", "checksum of a time entry"],
    ),
    (
        "unit",
        &[
            "sound",
            "a unit's head is cut short",
            "a unit is cut short",
            "a column is cut short",
            "checksum of a unit's head",
            "checksum of a section of a unit",
            "the directory of a column segment is cut short",
            "checksum of the directory of a column segment",
        ],
    ),
    ("filter", &["sound", "not UTF-8"]),
    ("definition", &["sound", "not UTF-8", "TOML parse error"]),
    (
        "payload",
        &[
            "sound",
            "at least #",
            "lengths say #",
            "is a bool of value #",
        ],
    ),
    (
        "request",
        &[
            "sound",
            "longer than the",
            "unknown kind",
            "hello frame ends too early",
            "push frame ends too early",
            "sync frame ends too early",
            "define frame ends too early",
            "close source frame ends too early",
            "add index frame ends too early",
            "close index frame ends too early",
            "catalog frame ends too early",
            "status frame ends too early",
            "ring frame ends too early",
            "lost frame ends too early",
            "add rule frame ends too early",
            "close rule frame ends too early",
            "rules frame ends too early",
            "refused frame ends too early",
            "hello frame has # bytes too many",
            "sync frame has # bytes too many",
            "close source frame has # bytes too many",
            "close index frame has # bytes too many",
            "catalog frame has # bytes too many",
            "status frame has # bytes too many",
            "ring frame has # bytes too many",
            "hello frame has text",
            "define frame has text",
            "close source frame has text",
            "add index frame has text",
            "close index frame has text",
            "refused frame has text",
            "unknown frame has a reserved",
            "request frame has a reserved",
            "sync frame has a reserved",
            "push frame has a reserved",
            "LOOMSOCK",
            "request number is #",
            "not a multiple of its",
        ],
    ),
    (
        "reply",
        &[
            "sound",
            "longer than the",
            "unknown kind",
            "welcome frame ends too early",
            "synced frame ends too early",
            "defined frame ends too early",
            "done frame ends too early",
            "index added frame ends too early",
            "catalog frame ends too early",
            "status frame ends too early",
            "ring frame ends too early",
            "rules frame ends too early",
            "goodbye frame ends too early",
            "error frame ends too early",
            "done frame has # bytes too many",
            "error frame has a reserved",
            "welcome frame has a reserved",
            "synced frame has a reserved",
            "goodbye frame has a reserved",
            "error frame has text",
            "catalog frame has text",
            "request number is #",
            "unknown frame has a reserved",
        ],
    ),
    (
        "ring",
        &[
            "sound",
            "not a multiple of #",
            "does not begin a record",
            "are published",
            "counts # dropped records",
        ],
    ),
    ("meta", &["sound", "has format version #", "damaged"]),
    ("capture", &["sound", "neither pcap", "the capture ends"]),
    ("configuration", &["sound", "not UTF-8", "unknown field"]),
    (
        "recovery",
        &["sound", "in no segment, and no crash", "its marks of"],
    ),
    ("durable", &["sound", "in no segment, and no crash"]),
    ("staging", &["sound", "is damaged"]),
    (
        "directory",
        &[
            "sound",
            "the magic number of a chunk",
            "checksum of a chunk",
            "checksum of a node",
            "checksum of a time entry",
            "the segment file is gone",
            "the file ends at byte #",
            "not a regular file",
            "catalog: damaged",
            "it defines no source",
            "check: ",
            "a record's length",
            "leads to a chunk without the source",
            "contradicts the records",
            "not a Loom directory",
        ],
    ),
];

/// What a target answers to each file of its corpus, with the file's name.
fn answers(target: &str) -> Vec<(String, String)> {
    let run = target_of(target);
    let mut files: Vec<_> = std::fs::read_dir(corpus(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    files
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let answer = std::panic::catch_unwind(|| run(&std::fs::read(&path).unwrap()));
            let answer = answer.unwrap_or_else(|_| panic!("{target}: {name} breaks a promise"));
            (name, answer)
        })
        .collect()
}

fn target_of(name: &str) -> Target {
    let found = loom_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target {name}")).1
}

#[test]
fn every_file_keeps_the_promises_and_every_error_is_reached() {
    let mut missing = Vec::new();
    for (target, _) in loom_fuzz::TARGETS {
        let answers = answers(target);
        let mut wanted: BTreeSet<(String, &str)> = BTreeSet::new();
        for (besides, labels) in BESIDES.iter().filter(|(besides, _)| *besides == target) {
            wanted.extend(labels.iter().map(|label| ((*label).to_owned(), *besides)));
        }
        for (message, _) in wanted {
            if !answers.iter().any(|(_, answer)| answer.contains(&message)) {
                missing.push(format!("{target}: no file is answered with '{message}'"));
            }
        }
        println!("{target}: {} files", answers.len());
    }
    for (decoder, targets) in DECODERS {
        let answers: Vec<_> = targets.iter().flat_map(|target| answers(target)).collect();
        for message in messages(&home().join("../..").join(decoder)) {
            let beyond = BEYOND.iter().any(|(known, _)| message.contains(known));
            let reached = answers.iter().any(|(_, answer)| answer.contains(&message));
            if !reached && !beyond {
                missing.push(format!("{decoder}: no file is answered with '{message}'"));
            }
            if reached && beyond {
                missing.push(format!("{decoder}: '{message}' can be reached after all"));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// So that running the program again changes nothing but what was changed in it.
#[test]
fn the_named_files_are_what_the_seeds_say() {
    for (target, seeds) in loom_fuzz::seeds::all() {
        for (name, bytes) in seeds {
            let found = std::fs::read(corpus(target).join(&name)).ok();
            assert!(found == Some(bytes), "{target}/{name}: run 'seeds' again");
        }
    }
}

#[test]
fn every_target_has_its_program_and_its_row_in_the_table_of_decoders() {
    let testing = std::fs::read_to_string(home().join("../TESTING.md")).unwrap();
    let (_, after) = testing.split_once("\n## Decoders\n").unwrap();
    let (table, _) = after.split_once("\n## ").unwrap();
    let names: BTreeSet<&str> = loom_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    for target in names.iter().chain(&["duckdb"]) {
        let row = |line: &str| line.contains(&format!("| `{target}`"));
        assert!(table.lines().any(row), "TESTING.md has no row of {target}");
    }
    for entry in std::fs::read_dir(home().join("fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(names.contains(name.as_str()), "{name} is not in TARGETS");
    }
}

#[test]
fn the_corpus_is_small() {
    let bytes: u64 = loom_fuzz::TARGETS
        .iter()
        .flat_map(|(target, _)| std::fs::read_dir(corpus(target)).unwrap())
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 512 << 10, "{bytes} bytes");
}

/// The messages in a source, tests left out: of each literal that is a sentence, the longest piece without a placeholder, as a label has it.
fn messages(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut messages = Vec::new();
    for literal in literals(code) {
        let piece = literal
            .split(['{', '}'])
            .step_by(2)
            .max_by_key(|piece| piece.len())
            .map(|piece| label(&piece.trim()))
            .unwrap_or_default();
        if piece.len() >= 8 && piece.contains(' ') {
            messages.push(piece);
        }
    }
    messages
}

/// The string literals of code, escapes of line ends resolved; those in comments and attributes left out.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_literal: Option<String> = None;
    for line in code.lines() {
        let plain = line.trim_start();
        if in_literal.is_none()
            && (plain.starts_with("//") || plain.starts_with("#[") || plain.contains("reason = "))
        {
            continue;
        }
        let mut characters = if in_literal.is_some() { plain } else { line }
            .chars()
            .peekable();
        while let Some(character) = characters.next() {
            match (&mut in_literal, character) {
                (None, '/') if characters.peek() == Some(&'/') => break,
                (None, '\'') if characters.peek() == Some(&'"') => {
                    characters.next();
                }
                (None, '"') => in_literal = Some(String::new()),
                (Some(_), '"') => found.extend(in_literal.take()),
                (Some(literal), '\\') => literal.extend(characters.next()),
                (Some(literal), character) => literal.push(character),
                (None, _) => {}
            }
        }
    }
    found
}

#[test]
fn messages_are_found_in_code_and_not_in_comments() {
    let code = "// \"a comment\"\nfail(\"one {value} of all that is there\"); '\"'; g(\"two \\\n    lines\") // \"x\"\n";
    assert_eq!(
        literals(code),
        ["one {value} of all that is there", "two lines"]
    );
}
