//! Tests `ingestd load` with compressed files: whole, in several members, damaged, cut short, and with further bytes after the data.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use loom_tests::command::{Ended, declared, ingestd, says, word};

use super::place::{ALL, Place};

const CSV: &str = "n,s\n1,a\n2,b\n3,c\n";
const FIELDS: &str = "n i64?, s utf8?";

/// The bytes that a program of this name compresses; `None` if it is missing.
fn packed(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    let pipes = command.arg("-c").stdin(Stdio::piped());
    let mut child = pipes.stdout(Stdio::piped()).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    Some(output.stdout)
}

/// Each program that compresses, with the ending of its files; missing programs are skipped.
fn programs() -> Vec<(&'static str, &'static str)> {
    let mut all = vec![
        ("gzip", "gz"),
        ("zstd", "zst"),
        ("bzip2", "bz2"),
        ("xz", "xz"),
    ];
    all.retain(|(program, _)| {
        let is_here = packed(program, b"").is_some();
        if !is_here {
            println!("skipped because `{program}` is missing");
        }
        is_here
    });
    all
}

#[test]
fn a_compressed_file_and_standard_input_load_as_what_they_hold() {
    for (program, ending) in programs() {
        let place = Place::new();
        let csv = packed(program, CSV.as_bytes()).unwrap();
        let file = place.file(&format!("a.csv.{ending}"), csv);
        place.load_into(FIELDS, &[], &file).gives(ALL, &[]);
        let mut cat = Command::new("cat");
        let mut cat = cat.arg(&file).stdout(Stdio::piped()).spawn().unwrap();
        let pipe = cat.stdout.take().unwrap().into();
        for stdin in [File::open(&file).unwrap().into(), pipe] {
            let csv = ["--format", "csv"];
            let loaded = place.load_into_from(FIELDS, &csv, Path::new("-"), stdin);
            loaded.gives(ALL, &[]);
        }
        cat.wait().unwrap();
        // The first bytes decide it, not the name; the decompressed bytes decide the format.
        let json = packed(program, b"{\"n\":1,\"s\":\"a\"}\n").unwrap();
        let loaded = place.load_into(FIELDS, &[], &place.file("unnamed", json));
        loaded.gives("received=1 stored=1 refused=0 dropped=0", &[]);
    }
}

#[test]
fn a_compressed_arrow_file_is_unpacked_before_it_is_read() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let mut arrow = Vec::new();
    let mut writer = FileWriter::try_new(&mut arrow, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for (program, ending) in programs() {
        let place = Place::new();
        let bytes = packed(program, &arrow).unwrap();
        let named = place.file(&format!("a.arrow.{ending}"), &bytes);
        let unnamed = place.file("a", &bytes);
        for file in [named, unnamed] {
            place.load(&[], &file).gives(ALL, &[]);
        }
    }
}

#[test]
fn every_member_of_a_compressed_file_is_read() {
    for (program, ending) in programs() {
        let place = Place::new();
        let parts = ["n,s\n1,a\n2", ",b\n", "3,c\n"];
        let members = parts.map(|part| packed(program, part.as_bytes()).unwrap());
        let file = place.file(&format!("a.csv.{ending}"), members.concat());
        place.load_into(FIELDS, &[], &file).gives(ALL, &[]);
    }
}

/// Rows that compress badly, so that a damaged byte in the middle has rows before it.
fn many_rows() -> String {
    let mut random = 1_u64;
    let rows = (0..150_000).map(|row| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        format!("{row},{random:016x}\n")
    });
    format!("n,s\n{}", rows.collect::<String>())
}

#[test]
fn zeroes_behind_a_gzip_member_are_none() {
    let Some(member) = packed("gzip", CSV.as_bytes()) else {
        return;
    };
    let place = Place::new();
    let padded = [&member[..], &[0; 70_000]].concat();
    let file = place.file("a.csv.gz", padded);
    place.load_into(FIELDS, &[], &file).gives(ALL, &[]);
}

#[test]
fn what_follows_compressed_data_is_told_from_data_that_is_cut_short() {
    for (program, ending) in programs() {
        let member = packed(program, CSV.as_bytes()).unwrap();
        let (begun, _) = member.split_at(member.len() - 2);
        let follows = format!("something that is not {program} follows its {program} data");
        let cut_short = format!("its {program} data ends too early: the file is cut short");
        for (behind, words) in [
            (&b"x"[..], &follows),
            (b"more than a header", &follows),
            (b"\0\0\0\0x", &follows),
            (begun, &cut_short),
        ] {
            let place = Place::new();
            let file = place.file(&format!("a.csv.{ending}"), [&member[..], behind].concat());
            let loaded = place.load_into(FIELDS, &[], &file);
            loaded.ended.ends(1).says(words);
        }
    }
}

#[test]
fn frames_that_readers_of_zstd_skip_are_skipped_wherever_they_stand() {
    let Some(frame) = packed("zstd", CSV.as_bytes()) else {
        return;
    };
    let skipped = b"\x5E\x2A\x4D\x18\x03\0\0\0abc";
    for parts in [[&skipped[..], &frame], [&frame, skipped]] {
        let place = Place::new();
        let file = place.file("a.csv.zst", parts.concat());
        place.load_into(FIELDS, &[], &file).gives(ALL, &[]);
    }
}

// case Network and input: malformed rows and packets
#[test]
fn the_rows_before_damage_in_compressed_data_are_stored_and_the_file_is_named() {
    let text = many_rows();
    for (program, ending) in programs() {
        let whole = packed(program, text.as_bytes()).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0x55);
        for (bytes, words) in [
            (&whole[..middle], "the file is cut short; get it again"),
            (&damaged[..], "data is damaged: "),
        ] {
            let place = Place::new();
            let file = place.file(&format!("a.csv.{ending}"), bytes);
            let ended = place.load_into(FIELDS, &[], &file).ended.ends(1);
            let at = file.display();
            says(
                &ended.err,
                &format!("cannot read '{at}': its {program} data "),
            );
            // Damage may show up only where a checksum follows it; the row there may be refused for what it holds.
            says(&ended.err, words);
            let counts = ended.out;
            let stored = counts.split("stored=").nth(1).unwrap();
            let stored: u64 = stored.split(' ').next().unwrap().parse().unwrap();
            assert!((100..150_000).contains(&stored), "{program}: {counts}");
        }
    }
}

#[test]
fn a_file_that_is_damaged_before_its_first_row_leaves_nothing_behind() {
    for (program, ending) in programs() {
        let whole = packed(program, CSV.as_bytes()).unwrap();
        let place = Place::new();
        let file = place.file(&format!("a.csv.{ending}"), &whole[..14]);
        let loaded = place.load_into(FIELDS, &[], &file);
        loaded.says(&["the file is cut short"]).leaves_nothing();
    }
}

#[test]
fn a_name_that_promises_compression_is_noted_where_it_is_wrong() {
    let place = Place::new();
    let file = place.file("a.csv.gz", CSV.as_bytes());
    let note = "is not compressed with gzip, whatever its name says";
    place.load_into(FIELDS, &[], &file).gives(ALL, &[note]);
}

#[test]
fn a_file_that_is_compressed_twice_is_named_so_whatever_its_name_and_format() {
    let once = packed("gzip", b"n\n1\n").expect("gzip is a part of every system");
    let twice = packed("gzip", &once).unwrap();
    let place = Place::new();
    let words = "it is compressed twice; unpack it twice, the second time with 'gzip -d'";
    for name in ["a.csv.gz", "a.csv.gz.gz", "a", "a.json.gz", "a.parquet.gz"] {
        let file = place.file(name, &twice);
        let loaded = place.load_into(FIELDS, &[], &file);
        loaded.gives("received=0 stored=0 refused=0 dropped=0", &[words]);
    }
}

// case Network and input: bytes that unpack to far more than they weigh
#[test]
fn what_unpacks_without_end_takes_bounded_memory() {
    let place = Place::new();
    let mut bomb = b"n\n1\n".to_vec();
    bomb.resize(400 << 20, b'x');
    let Some(bomb) = packed("zstd", &bomb) else {
        return;
    };
    let file = place.file("a.csv.zst", bomb);
    let fields = declared(&place.dir(), "s", "n utf8");
    let dir = place.dir();
    let load = ["load", word(&dir), "--source", "s", "--fields", &fields];
    let command = ingestd(load.into_iter().chain([word(&file)]));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 400000 && exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    Ended::of(&mut shell).prints("received=2 stored=1 refused=1 dropped=0\n");
}
