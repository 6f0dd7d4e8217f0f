//! Tests `ingestd load`: its output, its exit status, and the records in the directory.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod fields;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use fields::declared;
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::check::check;
use loom_engine::format::RecordIter;
use loom_engine::log::LogReader;
use loom_engine::query::{Directory, Poll};
use loom_engine::schema::{Source, decode_catalog};
use loom_engine::{Address, LogKind};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

fn ingestd(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    command.args(args);
    command
}

/// An Arrow file of integers.
fn arrow_file(path: &Path, columns: &[(&str, &[Option<i64>])]) {
    let column = |(name, values): &(&str, &[Option<i64>])| {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        (name.to_string(), values, true)
    };
    let batch = RecordBatch::try_from_iter_with_nullable(columns.iter().map(column)).unwrap();
    let mut writer = FileWriter::try_new(fs::File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn run(args: &[&str]) -> Output {
    ingestd(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn source(dir: &Path, name: &str) -> Option<Source> {
    let reader = LogReader::open(dir).unwrap();
    let (catalog, _, _) =
        decode_catalog(&reader.meta().uuid, &reader.catalog_bytes().unwrap()).unwrap();
    catalog
        .find(name)
        .map(|source| Source::clone(source.as_ref()))
}

/// The fields of every visible record of a source, as hexadecimal little-endian bytes; NULL is `-`.
fn records(dir: &Path, name: &str) -> Vec<String> {
    let Some(source) = source(dir, name) else {
        return Vec::new();
    };
    let reader = LogReader::open(dir).unwrap();
    let chunk_bytes = reader.meta().chunk_bytes;
    let end = reader.tails().unwrap().tail.records;
    let mut records = Vec::new();
    let mut at = Address(0);
    while at < end {
        let mut chunk = vec![0; (end.0 - at.0).min(u64::from(chunk_bytes)) as usize];
        reader.read(LogKind::Records, at, &mut chunk).unwrap();
        for record in RecordIter::new(&chunk, chunk_bytes) {
            let record = record.unwrap();
            if record.source != source.id {
                continue;
            }
            let layout = source.layout_at(at);
            let cells = (0..layout.field_count()).map(|field| {
                let bytes = layout.bytes(field, record.payload);
                bytes.map_or("-".to_owned(), |bytes| {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
                })
            });
            records.push(cells.collect::<Vec<_>>().join(" "));
        }
        at += u64::from(chunk_bytes);
    }
    records
}

#[test]
fn a_csv_becomes_a_source_with_an_index() {
    let home = tempfile::tempdir().unwrap();
    let (dir, csv) = (home.path().join("loom"), home.path().join("a.csv"));
    fs::write(&csv, "ts,n\n5,1\n3,2\n,7\n4,9\n").unwrap();
    let dir_arg = dir.to_str().unwrap();
    let fields = declared(&dir, "s", "n i64?");
    let args = ["load", dir_arg, "--source", "s", "--fields", &fields];
    let more = ["--ts", "ts", "--index", "n", csv.to_str().unwrap()];
    let output = run(&[&args[..], &more].concat());
    assert_eq!(
        stdout(&output).lines().last(),
        Some("received=4 stored=3 refused=1 dropped=0"),
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!(
        "row 3 of '{}' is refused: its time, column 'ts', is NULL",
        csv.display()
    )));
    assert!(
        !stderr(&output).contains('\r'),
        "no progress bar without a terminal"
    );
    let source = source(&dir, "s").unwrap();
    assert!(source.own_time());
    assert_eq!(source.fields.len(), 1);
    assert!(source.index("n").is_some_and(|index| index.is_open()));
    assert_eq!(records(&dir, "s").len(), 3);
}

#[test]
fn an_index_is_named_by_the_column_or_by_the_field_that_it_became() {
    let home = tempfile::tempdir().unwrap();
    let (dir, file) = (home.path().join("loom"), home.path().join("a.arrow"));
    let value: &[Option<i64>] = &[Some(1)];
    arrow_file(&file, &[("a", value), ("A", value), ("ts", value)]);
    for (column, field) in [("A", "A_1"), ("ts", "ts_"), ("a", "a"), ("A_1", "A_1")] {
        let [dir_arg, file] = [&dir, &file].map(|path| path.to_str().unwrap());
        let output = run(&["load", dir_arg, "--source", "s", "--index", column, file]);
        assert!(output.status.success(), "{column}: {}", stderr(&output));
        assert!(
            source(&dir, "s").unwrap().index(field).is_some(),
            "{column}"
        );
    }
    assert_eq!(source(&dir, "s").unwrap().indexes.len(), 3);
}

#[test]
fn several_files_of_several_formats_fill_one_source() {
    let home = tempfile::tempdir().unwrap();
    let (dir, csv, json) = (
        home.path().join("loom"),
        home.path().join("a.csv"),
        home.path().join("b.jsonl"),
    );
    fs::write(&csv, "n,s\n1,x\n").unwrap();
    fs::write(&json, "{\"s\":\"y\",\"n\":2}\n{\"n\":3}\n").unwrap();
    let fields = declared(&dir, "s", "n i64, s utf8?");
    let args = ["load", dir.to_str().unwrap(), "--source", "s"];
    let args = [&args[..], &["--index", "n", "--fields", &fields]].concat();
    let files = [csv.to_str().unwrap(), json.to_str().unwrap()];
    let output = run(&[&args[..], &files].concat());
    assert_eq!(
        stdout(&output),
        "received=3 stored=3 refused=0 dropped=0\n",
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        records(&dir, "s"),
        [
            "0100000000000000 78",
            "0200000000000000 79",
            "0300000000000000 -"
        ]
    );
    let again = run(&[&args[..], &files[1..]].concat());
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(records(&dir, "s").len(), 5);
    assert!(source(&dir, "s").unwrap().index("n").is_some());
}

#[test]
fn errors_are_one_sentence_and_make_no_directory() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let dir_arg = dir.to_str().unwrap();
    let output = run(&["load", dir_arg, "--source", "s", "no/such.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("ingestd: cannot open 'no/such.csv': "));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert_eq!(stdout(&output), "received=0 stored=0 refused=0 dropped=0\n");
    assert!(!dir.exists());
    assert_eq!(run(&["load", dir_arg, "x.csv"]).status.code(), Some(2));
    assert_eq!(
        run(&["load", dir_arg, "--source", "s"]).status.code(),
        Some(2)
    );
    let help = run(&["load", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("Examples:"));
}

/// Polls until `done`, for half a minute at most.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A load into the source `s` that runs while its standard input is open.
fn load_from_pipe(dir: &Path, format: &str) -> (Child, ChildStdin) {
    let dir = dir.to_str().unwrap();
    // This applies to the next daemon, if one ends.
    let patience = ["--patience", "500ms"];
    let fields = declared(Path::new(dir), "s", "n i64");
    let fields = ["--fields", &fields];
    let arguments = ["load", dir, "--source", "s", "--format", format, "-"];
    let mut child = ingestd(&[&arguments[..], &patience, &fields].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

#[test]
fn a_pipe_is_visible_while_it_is_written() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let (child, mut stdin) = load_from_pipe(&dir, "csv");
    stdin.write_all(b"n\n").unwrap();
    for number in 1..=3_usize {
        writeln!(stdin, "{number}").unwrap();
        stdin.flush().unwrap();
        eventually("a row is visible", || {
            dir.join("loom.json").exists()
                && dir.join("staging").exists()
                && records(&dir, "s").len() == number
        });
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "received=3 stored=3 refused=0 dropped=0\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        !dir.join("staging").exists(),
        "a clean stop leaves no staging"
    );
}

#[test]
fn a_signal_or_a_closed_terminal_ends_a_silent_pipe_and_keeps_what_came() {
    // A child ignores the signals that its parent ignores, as under nohup, but not those that its parent catches.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("loom");
        let (mut child, mut stdin) = load_from_pipe(&dir, "json");
        stdin.write_all(b"{\"n\":1}\n").unwrap();
        eventually("the row is visible", || {
            dir.join("staging").exists() && records(&dir, "s").len() == 1
        });
        // Nobody reads the load's messages from here on.
        drop(child.stderr.take());
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), "received=1 stored=1 refused=0 dropped=0\n");
        assert_eq!(output.status.code(), Some(1), "{signal:?}");
        assert_eq!(records(&dir, "s"), ["0100000000000000"]);
        assert!(!dir.join("staging").exists(), "{signal:?}");
        assert!(check(&dir).unwrap().is_sound(), "{signal:?}");
    }
}

#[test]
fn a_daemon_that_is_gone_before_the_first_row_is_named_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let daemon = Daemon::start(&dir, &Config::default(), false).unwrap();
    let (child, mut stdin) = load_from_pipe(&dir, "json");
    // The load reads when it is connected.
    stdin.write_all(b"{\"n\":").unwrap();
    eventually("the load reads", || ioctl_fionread(&stdin).unwrap() == 0);
    daemon.stop().unwrap();
    stdin.write_all(b"1}\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let remedy = format!(
        "; start one with 'ingestd run {}', and load again, or load without it\n",
        dir.display()
    );
    assert!(stderr(&output).ends_with(&remedy), "{}", stderr(&output));
}

#[test]
fn a_running_daemon_takes_the_load() {
    let home = tempfile::tempdir().unwrap();
    let (dir, json) = (home.path().join("loom"), home.path().join("a.jsonl"));
    let config =
        Config::parse("[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n").unwrap();
    let daemon = Daemon::start(&dir, &config, false).unwrap();
    let long = "x".repeat(5000);
    fs::write(
        &json,
        format!("{{\"n\":1,\"s\":\"a\"}}\n{{\"n\":2,\"s\":\"{long}\"}}\n{{\"n\":3}}\n"),
    )
    .unwrap();
    let fields = declared(&dir, "s", "n i64?, s utf8?");
    let args = ["load", dir.to_str().unwrap(), "--source", "s"];
    let more = ["--fields", &fields, "--index", "n", json.to_str().unwrap()];
    let args = [&args[..], &more].concat();
    let output = run(&args);
    assert_eq!(
        stdout(&output),
        "received=3 stored=2 refused=1 dropped=0\n",
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains(&format!(
        "row 2 of '{}' is refused: the record would have 5011 bytes; the limit is ",
        json.display()
    )));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        records(&dir, "s"),
        ["0100000000000000 61", "0300000000000000 -"]
    );
    assert!(source(&dir, "s").unwrap().index("n").is_some());
    let again = run(&args);
    assert!(
        stdout(&again).starts_with("received=3 stored=2 "),
        "{}",
        stderr(&again)
    );
    assert_eq!(records(&dir, "s").len(), 4);
    daemon.stop().unwrap();
    assert_eq!(records(&dir, "s").len(), 4);
}

/// The losses of a source in a directory: reasons and numbers of records.
fn lost(dir: &Path, name: &str) -> Vec<(String, Option<u64>)> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let losses = snapshot.losses(&Poll::never()).unwrap();
    let of_source = losses
        .into_iter()
        .filter(|loss| loss.source.as_deref() == Some(name));
    of_source.map(|loss| (loss.reason, loss.records)).collect()
}

// G9
// case Network and input: malformed rows and packets
#[test]
fn rows_that_are_refused_stand_in_the_ledger_with_and_without_a_daemon() {
    let home = tempfile::tempdir().unwrap();
    let csv = home.path().join("a.csv");
    let long = "x".repeat(70_000);
    fs::write(
        &csv,
        format!("n,t,s\n1,5,a\n2,never,a\n3,,a\n4,6,{long}\n5,7,a\n"),
    )
    .unwrap();
    let load = |dir: &Path, file: &Path| {
        let fields = declared(dir, "s", "n i64?, s utf8?");
        let [dir, file] = [dir, file].map(|path| path.to_str().unwrap());
        let load = ["load", dir, "--source", "s", "--ts", "t"];
        run(&[&load[..], &["--fields", &fields, file]].concat())
    };
    let direct = home.path().join("direct");
    let through = home.path().join("through");
    let daemon = Daemon::start(&through, &Config::default(), false).unwrap();
    let only_refused = home.path().join("b.csv");
    fs::write(&only_refused, "n,t,s\n9,,a\n").unwrap();
    for dir in [&direct, &through] {
        let output = load(dir, &csv);
        let said = stdout(&output).lines().last();
        assert_eq!(
            said,
            Some("received=5 stored=2 refused=3 dropped=0"),
            "{}",
            stderr(&output)
        );
        let output = load(dir, &only_refused);
        assert!(
            stdout(&output).starts_with("received=1 stored=0 refused=1 "),
            "{}",
            stderr(&output)
        );
    }
    daemon.stop().unwrap();
    for dir in [&direct, &through] {
        let losses = lost(dir, "s");
        let records: u64 = losses.iter().map(|(_, records)| records.unwrap()).sum();
        assert_eq!(records, 4, "{losses:?}");
        assert!(check(dir).unwrap().is_sound());
    }
    assert_eq!(lost(&direct, "another"), []);
}

#[test]
fn a_directory_that_another_load_writes_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (dir, csv) = (home.path().join("loom"), home.path().join("a.csv"));
    fs::write(&csv, "n\n1\n").unwrap();
    let dir_arg = dir.to_str().unwrap();
    let (first, mut stdin) = load_from_pipe(&dir, "csv");
    stdin.write_all(b"n\n1\n").unwrap();
    eventually("the first load writes", || {
        dir.join("staging").exists() && records(&dir, "s").len() == 1
    });
    let fields = declared(&dir, "s", "n i64");
    let load = ["load", dir_arg, "--source", "s", "--fields", &fields];
    let second = run(&[&load[..], &[csv.to_str().unwrap()]].concat());
    assert_eq!(second.status.code(), Some(1));
    assert!(
        stderr(&second).contains("is locked by another writer"),
        "{}",
        stderr(&second)
    );
    let pid = first.id();
    assert!(
        stderr(&second).contains(&pid.to_string()),
        "{}",
        stderr(&second)
    );
    drop(stdin);
    assert!(first.wait_with_output().unwrap().status.success());
    assert_eq!(records(&dir, "s").len(), 1);
}

// G9
#[test]
fn an_input_of_which_nothing_is_stored_makes_no_source_and_no_directory() {
    let home = tempfile::tempdir().unwrap();
    let (dir, csv) = (home.path().join("loom"), home.path().join("a.csv"));
    let fields = declared(&dir, "s", "a i64?, b i64?");
    let of_json = ["--format", "json", "--fields", &fields];
    let of_csv = ["--fields", fields.as_str()];
    let timed = ["--fields", &fields, "--ts", "t"];
    let load = |text: &str, more: &[&str]| {
        fs::write(&csv, text).unwrap();
        let (dir, csv) = (dir.to_str().unwrap(), csv.to_str().unwrap());
        run(&[&["load", dir, "--source", "s", csv], more].concat())
    };
    let nothing = "received=0 stored=0 refused=0 dropped=0\n";
    let no_rows = "the input has no rows: source 's' is not created";
    for (text, more, code, counts, words) in [
        ("", &[][..], 0, nothing, no_rows),
        ("\u{feff}\r\n \n", &["--ts", "t"], 0, nothing, no_rows),
        ("", &["--format", "json"], 0, nothing, no_rows),
        ("", &["--format", "parquet"], 0, nothing, no_rows),
        ("", &["--format", "arrow"], 0, nothing, no_rows),
        ("", &["--format", "pcap"], 0, nothing, no_rows),
        ("", &of_json, 0, nothing, no_rows),
        (" \n\n", &of_json, 0, nothing, no_rows),
        ("a,b\n", &of_csv, 0, nothing, no_rows),
        (
            "a,b\n",
            &["--format", "csv"],
            1,
            nothing,
            "CSV does not say the types of its columns; declare them with --fields",
        ),
        (
            "[",
            &of_json,
            1,
            nothing,
            "its first line is not a whole object; let DuckDB read it: COPY (SELECT",
        ),
        (
            "a,t\n1,\n2,\n",
            &timed,
            1,
            "received=2 stored=0 refused=2 dropped=0\n",
            "no row was stored: source 's' is not created",
        ),
    ] {
        let output = load(text, more);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{text:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), counts, "{text:?}");
        assert!(
            stderr(&output).contains(words),
            "{text:?}: {}",
            stderr(&output)
        );
        assert!(!dir.exists(), "{text:?}");
    }
    assert!(load("a,b\n1,2\n", &of_csv).status.success());
    let refused = load("a,b\n1,2\n\"\n", &[]);
    assert_eq!(
        stdout(&refused),
        "received=2 stored=1 refused=1 dropped=0\n"
    );
    // The ledger has refused rows of a source that exists.
    assert_eq!(
        stdout(&load("a,b\n3\n", &[])),
        "received=1 stored=0 refused=1 dropped=0\n"
    );
    let losses = lost(&dir, "s");
    let records: u64 = losses.iter().filter_map(|(_, records)| *records).sum();
    assert_eq!(records, 2, "{losses:?}");
}

#[test]
fn a_file_that_fails_with_no_row_stored_makes_no_source_and_counts_for_the_one_that_exists() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let cut_short = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/inputs/cut_short.csv.gz");
    let first = home.path().join("a.csv");
    fs::write(&first, "n,s\n1,2\n").unwrap();
    let numbers = "n i64, s i64";
    let known = declared(&home.path().join("known"), "s", numbers);
    let fields = declared(&home.path().join("new"), "new", numbers);
    let load = |source: &str, file: &Path, more: &[&str]| {
        let args = ["load", dir.to_str().unwrap(), "--source", source];
        run(&[&args[..], &[file.to_str().unwrap()], more].concat())
    };
    assert!(load("s", &first, &["--fields", &known]).status.success());
    for (source, more) in [("s", &[][..]), ("new", &["--fields", &fields])] {
        let output = load(source, &cut_short, more);
        let counts = "received=186 stored=0 refused=186 dropped=0\n";
        assert_eq!(stdout(&output), counts, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("the file is cut short"), "{said}");
    }
    let records = |name: &str| -> Option<u64> {
        let losses = lost(&dir, name);
        losses.into_iter().map(|(_, records)| records).sum()
    };
    assert_eq!(records("s"), Some(186));
    assert!(source(&dir, "new").is_none());
}

#[test]
fn add_fields_adds_none_where_no_row_is_stored() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.arrow");
    let direct = home.path().join("direct");
    let through = home.path().join("through");
    let daemon = Daemon::start(&through, &Config::default(), false).unwrap();
    let number: &[Option<i64>] = &[Some(7)];
    for dir in [&direct, &through] {
        for (columns, code) in [
            (&[("n", number), ("t", number)][..], 0),
            (&[("n", number), ("t", &[None]), ("late", number)], 1),
        ] {
            arrow_file(&file, columns);
            let [dir, file] = [dir, &file].map(|path| path.to_str().unwrap());
            let load = ["load", dir, "--source", "s", "--ts", "t", "--add-fields"];
            let output = run(&[&load[..], &[file]].concat());
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            assert!(!stderr(&output).contains("is added"), "{}", stderr(&output));
        }
    }
    daemon.stop().unwrap();
    for dir in [&direct, &through] {
        assert_eq!(source(dir, "s").unwrap().fields.len(), 1);
    }
}

#[test]
fn add_fields_extends_a_source_that_exists_with_and_without_a_daemon() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let [first, second, third] = ["a.arrow", "b.arrow", "c.csv"].map(path);
    let one = |value: i64| -> Vec<Option<i64>> { vec![Some(value)] };
    arrow_file(&first, &[("n", &one(1)), ("s", &one(2))]);
    arrow_file(
        &second,
        &[("n", &one(3)), ("s", &one(4)), ("late", &one(5))],
    );
    fs::write(&third, "s,n,later\n6,7,8\n").unwrap();
    let load = |dir: &Path, file: &Path, more: &[&str]| {
        let [dir, file] = [dir, file].map(|path| path.to_str().unwrap());
        let output = run(&[&["load", dir, "--source", "s", file], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).to_owned()
    };
    let direct = path("direct");
    let through = path("through");
    let daemon = Daemon::start(&through, &Config::default(), false).unwrap();
    for dir in [&direct, &through] {
        assert_eq!(load(dir, &first, &[]), "", "there is nothing to note");
        let left_out = load(dir, &second, &[]);
        let note =
            "column 'late' is left out: source 's' has no such field; add it with --add-fields";
        assert!(left_out.contains(note), "{left_out}");
        assert_eq!(source(dir, "s").unwrap().fields.len(), 2);
        let added = load(dir, &second, &["--add-fields"]);
        let note = "field 'late' of type i64 is added to source 's'";
        assert!(added.contains(note), "{added}");
        assert!(!added.contains("left out"), "{added}");
        // For text, the declaration adds them.
        let fields = declared(dir, "s", "n i64?, s i64?, late i64?, later i64?");
        let added = load(dir, &third, &["--fields", &fields]);
        let note = "field 'later' of type i64 is added to source 's'";
        assert!(added.contains(note), "{added}");
    }
    daemon.stop().unwrap();
    let number = |number: u8| format!("{number:02x}00000000000000");
    let row = |numbers: [u8; 4]| {
        let number = |n: u8| if n == 0 { "-".to_owned() } else { number(n) };
        numbers.map(number).join(" ")
    };
    for dir in [&direct, &through] {
        let fields = source(dir, "s").unwrap().fields;
        let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["n", "s", "late", "later"]);
        let expected = [[1, 2, 0, 0], [3, 4, 0, 0], [3, 4, 5, 0], [7, 6, 0, 8]];
        let expected = expected.map(row);
        let found = records(dir, "s");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(expected.starts_with(found.as_str()), "{found} {expected}");
        }
        assert!(check(dir).unwrap().is_sound());
    }
}
