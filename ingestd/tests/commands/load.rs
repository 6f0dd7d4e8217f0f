//! `ingestd load`: what it prints, how it ends, and what then stands in the directory.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::check::check;
use loom_engine::query::{Directory, Poll, Snapshot};
use loom_engine::schema::Source;
use loom_engine::testkit::oracle::read_records;
use loom_tests::command::{
    Ended, declared, file, ingestd, piped, run, says, send, table, until, word,
};
use loom_tests::machine;
use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use tempfile::TempDir;

/// A folder for files, and a directory in it that does not exist yet.
struct Place {
    home: TempDir,
    dir: String,
}

impl Place {
    fn new() -> Place {
        let home = tempfile::tempdir().unwrap();
        let dir = word(&home.path().join("loom")).to_owned();
        Place { home, dir }
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        file(self.home.path(), name, content)
    }

    fn path(&self) -> &Path {
        Path::new(&self.dir)
    }

    /// Loads into the source `s`.
    fn load(&self, args: &[&str]) -> Ended {
        load(self.path(), args)
    }

    /// The option that declares the source `s` of these fields.
    fn fields(&self, fields: &str) -> [String; 2] {
        ["--fields".to_owned(), declared(self.path(), "s", fields)]
    }
}

fn load(dir: &Path, args: &[&str]) -> Ended {
    run(&[&["load", word(dir), "--source", "s"], args].concat())
}

/// An Arrow file of integers.
fn arrow_file(path: &str, columns: &[(&str, &[Option<i64>])]) {
    let column = |(name, values): &(&str, &[Option<i64>])| {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        (name.to_string(), values, true)
    };
    let batch = RecordBatch::try_from_iter_with_nullable(columns.iter().map(column)).unwrap();
    let mut writer = FileWriter::try_new(fs::File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn snapshot(dir: &Path) -> Snapshot {
    Directory::open(dir).unwrap().snapshot().unwrap()
}

fn source(dir: &Path, name: &str) -> Option<Arc<Source>> {
    snapshot(dir).catalog().find(name).cloned()
}

/// The fields of every visible record of the source `s`, as hexadecimal little-endian bytes; NULL is `-`.
fn records(dir: &Path) -> Vec<String> {
    let Some(source) = source(dir, "s") else {
        return Vec::new();
    };
    let own = read_records(dir)
        .into_iter()
        .filter(|it| it.source == source.id);
    let shown = own.map(|record| {
        let cells = (0..record.layout.field_count()).map(|field| {
            let bytes = record.layout.bytes(field, &record.payload);
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.map_or("-".to_owned(), hex)
        });
        cells.collect::<Vec<_>>().join(" ")
    });
    shown.collect()
}

/// The losses of a source in a directory's ledger: reasons and numbers of records.
fn lost(dir: &Path, name: &str) -> Vec<(String, Option<u64>)> {
    let losses = snapshot(dir).losses(&Poll::never()).unwrap();
    let of_source = losses.into_iter();
    let of_source = of_source.filter(|loss| loss.source.as_deref() == Some(name));
    of_source.map(|loss| (loss.reason, loss.records)).collect()
}

#[test]
fn a_csv_becomes_a_source_with_an_index() {
    let place = Place::new();
    let csv = place.file("a.csv", "ts,n\n5,1\n3,2\n,7\n4,9\n");
    let [option, fields] = place.fields("n i64?");
    let loaded = place.load(&[&option, &fields, "--ts", "ts", "--index", "n", &csv]);
    assert!(
        !loaded.err.contains('\r'),
        "no progress bar without a terminal"
    );
    let why = format!("row 3 of '{csv}' is refused: its time, column 'ts', is NULL");
    let loaded = loaded.ends(1).says(&why);
    loaded.prints("received=4 stored=3 refused=1 dropped=0\n");
    let source = source(place.path(), "s").unwrap();
    assert!(source.own_time());
    assert_eq!(source.fields.len(), 1);
    assert!(source.index("n").is_some_and(|index| index.is_open()));
    assert_eq!(records(place.path()).len(), 3);
}

#[test]
fn an_index_is_named_by_the_column_or_by_the_field_that_it_became() {
    let place = Place::new();
    let file = place.file("a.arrow", "");
    let value: &[Option<i64>] = &[Some(1)];
    arrow_file(&file, &[("a", value), ("A", value), ("ts", value)]);
    for (column, field) in [("A", "A_1"), ("ts", "ts_"), ("a", "a"), ("A_1", "A_1")] {
        place.load(&["--index", column, &file]).ends(0);
        let source = source(place.path(), "s").unwrap();
        assert!(source.index(field).is_some(), "{column}");
    }
    assert_eq!(source(place.path(), "s").unwrap().indexes.len(), 3);
}

#[test]
fn several_files_of_several_formats_fill_one_source() {
    let place = Place::new();
    let csv = place.file("a.csv", "n,s\n1,x\n");
    let json = place.file("b.jsonl", "{\"s\":\"y\",\"n\":2}\n{\"n\":3}\n");
    let [option, fields] = place.fields("n i64, s utf8?");
    let args = ["--index", "n", &option, &fields, &json];
    let loaded = place.load(&[&[csv.as_str()], &args[..]].concat()).ends(0);
    loaded.prints("received=3 stored=3 refused=0 dropped=0\n");
    let expected = [
        "0100000000000000 78",
        "0200000000000000 79",
        "0300000000000000 -",
    ];
    assert_eq!(records(place.path()), expected);
    place.load(&args).ends(0);
    assert_eq!(records(place.path()).len(), 5);
    assert!(source(place.path(), "s").unwrap().index("n").is_some());
}

#[test]
fn errors_are_one_sentence_and_make_no_directory() {
    let place = Place::new();
    let failed = place.load(&["no/such.csv"]).ends(1);
    assert_eq!(failed.err.lines().count(), 1, "{failed:?}");
    let failed = failed.says("ingestd: cannot open 'no/such.csv': ");
    failed.prints("received=0 stored=0 refused=0 dropped=0\n");
    assert!(!place.path().exists());
    run(&["load", &place.dir, "x.csv"]).ends(2);
    place.load(&[]).ends(2);
    run(&["load", "--help"]).ends(0).says("Examples:");
}

/// A load into the source `s` that goes on while its standard input is open.
fn load_from_pipe(dir: &Path, format: &str) -> (Child, ChildStdin) {
    let fields = declared(dir, "s", "n i64");
    let mut command = ingestd(["load", word(dir), "--source", "s", "--format", format]);
    // The patience is for the next daemon, if one ends.
    piped(command.args(["--patience", "500ms", "--fields", &fields, "-"]))
}

/// Waits until a load without a daemon has stored so many records.
fn until_visible(dir: &Path, count: usize) {
    until(|| dir.join("staging").exists() && records(dir).len() == count);
}

#[test]
fn a_pipe_is_visible_while_it_is_written() {
    let place = Place::new();
    let (child, mut stdin) = load_from_pipe(place.path(), "csv");
    stdin.write_all(b"n\n").unwrap();
    for number in 1..=3_usize {
        writeln!(stdin, "{number}").unwrap();
        until_visible(place.path(), number);
    }
    drop(stdin);
    let loaded = Ended::once(child).ends(0);
    loaded.prints("received=3 stored=3 refused=0 dropped=0\n");
    let staging = place.path().join("staging");
    assert!(!staging.exists(), "a clean stop leaves no staging");
}

#[test]
fn a_signal_or_a_closed_terminal_ends_a_silent_pipe_and_keeps_what_came() {
    // A child ignores what its parent ignores, as under nohup, but not what its parent catches.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new();
        let dir = place.path();
        let (mut child, mut stdin) = load_from_pipe(dir, "json");
        stdin.write_all(b"{\"n\":1}\n").unwrap();
        until_visible(dir, 1);
        // Nobody reads the messages of the load from here on.
        drop(child.stderr.take());
        send(&child, signal);
        let ended = Ended::once(child).ends(1);
        ended.prints("received=1 stored=1 refused=0 dropped=0\n");
        assert_eq!(records(dir), ["0100000000000000"]);
        assert!(!dir.join("staging").exists(), "{signal:?}");
        assert!(check(dir).unwrap().is_sound(), "{signal:?}");
    }
}

#[test]
fn a_daemon_that_is_gone_before_the_first_row_is_named_with_what_to_do() {
    let place = Place::new();
    let daemon = Daemon::start(place.path(), &Config::default(), false).unwrap();
    let (child, mut stdin) = load_from_pipe(place.path(), "json");
    // It reads once it is connected.
    stdin.write_all(b"{\"n\":").unwrap();
    until(|| ioctl_fionread(&stdin).unwrap() == 0);
    daemon.stop().unwrap();
    stdin.write_all(b"1}\n").unwrap();
    drop(stdin);
    let start = format!("; start one with 'ingestd run {}'", place.dir);
    let ended = Ended::once(child).ends(1);
    ended.says(&format!("{start}, and load again, or load without it\n"));
}

#[test]
fn a_running_daemon_takes_the_load() {
    let place = Place::new();
    let dir = place.path();
    let config = "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n";
    let daemon = Daemon::start(dir, &Config::parse(config).unwrap(), false).unwrap();
    let long = "x".repeat(5000);
    let rows = format!("{{\"n\":1,\"s\":\"a\"}}\n{{\"n\":2,\"s\":\"{long}\"}}\n{{\"n\":3}}\n");
    let json = place.file("a.jsonl", rows);
    let [option, fields] = place.fields("n i64?, s utf8?");
    let load = || {
        place
            .load(&[&option, &fields, "--index", "n", &json])
            .ends(1)
    };
    let why = "is refused: the record would have 5011 bytes; the limit is ";
    let loaded = load().says(&format!("row 2 of '{json}' {why}"));
    loaded.prints("received=3 stored=2 refused=1 dropped=0\n");
    let expected = ["0100000000000000 61", "0300000000000000 -"];
    assert_eq!(records(dir), expected);
    assert!(source(dir, "s").unwrap().index("n").is_some());
    load().says("received=3 stored=2 ");
    assert_eq!(records(dir).len(), 4);
    daemon.stop().unwrap();
    assert_eq!(records(dir).len(), 4);
}

/// A directory without a daemon, and one with.
fn direct_and_through(place: &Place) -> ([std::path::PathBuf; 2], Daemon) {
    let dirs = ["direct", "through"].map(|name| place.home.path().join(name));
    let daemon = Daemon::start(&dirs[1], &Config::default(), false).unwrap();
    (dirs, daemon)
}

// G9
// case Network and input: malformed rows and packets
#[test]
fn rows_that_are_refused_stand_in_the_ledger_with_and_without_a_daemon() {
    let place = Place::new();
    let long = "x".repeat(70_000);
    let csv = format!("n,t,s\n1,5,a\n2,never,a\n3,,a\n4,6,{long}\n5,7,a\n");
    let csv = place.file("a.csv", csv);
    let only_refused = place.file("b.csv", "n,t,s\n9,,a\n");
    let (dirs, daemon) = direct_and_through(&place);
    for dir in &dirs {
        let fields = declared(dir, "s", "n i64?, s utf8?");
        let load = |file: &str| load(dir, &["--ts", "t", "--fields", &fields, file]);
        load(&csv).prints("received=5 stored=2 refused=3 dropped=0\n");
        load(&only_refused).says("received=1 stored=0 refused=1 ");
    }
    daemon.stop().unwrap();
    for dir in &dirs {
        let losses = lost(dir, "s");
        let records: u64 = losses.iter().map(|(_, records)| records.unwrap()).sum();
        assert_eq!(records, 4, "{losses:?}");
        assert!(check(dir).unwrap().is_sound());
    }
    assert_eq!(lost(&dirs[0], "another"), []);
}

#[test]
fn a_directory_that_another_load_writes_is_refused() {
    let place = Place::new();
    let csv = place.file("a.csv", "n\n1\n");
    let (first, mut stdin) = load_from_pipe(place.path(), "csv");
    stdin.write_all(b"n\n1\n").unwrap();
    until_visible(place.path(), 1);
    let [option, fields] = place.fields("n i64");
    let second = place.load(&[&option, &fields, &csv]).ends(1);
    let second = second.says("is locked by another writer");
    second.says(&first.id().to_string());
    drop(stdin);
    Ended::once(first).ends(0);
    assert_eq!(records(place.path()).len(), 1);
}

// G9
#[test]
fn an_input_of_which_nothing_is_stored_makes_no_source_and_no_directory() {
    let place = Place::new();
    let [_, fields] = place.fields("a i64?, b i64?");
    let load = |text: &str, args: &str| {
        let text = text.replace("BOM", "\u{feff}").replace("\\r", "\r");
        let csv = place.file("a.csv", text.replace("\\n", "\n"));
        let args = args.replace("FIELDS", &format!("--fields {fields}"));
        place.load(
            &[
                &[csv.as_str()],
                &args.split_whitespace().collect::<Vec<_>>()[..],
            ]
            .concat(),
        )
    };
    let no_rows = "the input has no rows: source 's' is not created";
    // The text, the arguments, the exit code, how many are refused, and what is said.
    for [text, args, code, refused, words] in table(
        r"
         |                     | 0 | 0 |
        BOM\r\n \n | --ts t      | 0 | 0 |
         | --format json       | 0 | 0 |
         | --format parquet    | 0 | 0 |
         | --format arrow      | 0 | 0 |
         | --format pcap       | 0 | 0 |
         | --format json FIELDS | 0 | 0 |
        \n\n | --format json FIELDS | 0 | 0 |
        a,b\n | FIELDS         | 0 | 0 |
        a,b\n | --format csv   | 1 | 0 | CSV does not say the types of its columns; declare them with --fields
        [ | --format json FIELDS | 1 | 0 | its first line is not a whole object; let DuckDB read it: COPY (SELECT
        a,t\n1,\n2,\n | --ts t FIELDS | 1 | 2 | no row was stored: source 's' is not created
        ",
    ) {
        let loaded = load(text, args).ends(code.parse().unwrap());
        says(&loaded.err, if words.is_empty() { no_rows } else { words });
        loaded.prints(&format!(
            "received={refused} stored=0 refused={refused} dropped=0\n"
        ));
        assert!(!place.path().exists(), "{text:?}");
    }
    load("a,b\n1,2\n", "FIELDS").ends(0);
    let refused = load("a,b\n1,2\n\"\n", "");
    refused.prints("received=2 stored=1 refused=1 dropped=0\n");
    // Of a source that exists, refused rows stand in the ledger.
    load("a,b\n3\n", "").prints("received=1 stored=0 refused=1 dropped=0\n");
    let losses = lost(place.path(), "s");
    let records: u64 = losses.iter().filter_map(|(_, records)| *records).sum();
    assert_eq!(records, 2, "{losses:?}");
}

#[test]
fn a_file_that_fails_with_no_row_stored_makes_no_source_and_counts_for_the_one_that_exists() {
    let place = Place::new();
    let cut_short = machine::root().join("tests/inputs/cut_short.csv.gz");
    let first = place.file("a.csv", "n,s\n1,2\n");
    let declared = |name: &str| declared(&place.home.path().join(name), name, "n i64, s i64");
    let (known, fields) = (declared("s"), declared("new"));
    place.load(&["--fields", &known, &first]).ends(0);
    for (source, more) in [("s", &[][..]), ("new", &["--fields", &fields])] {
        let load = ["load", &place.dir, "--source", source, word(&cut_short)];
        let loaded = run(&[&load[..], more].concat()).says("the file is cut short");
        loaded.prints("received=186 stored=0 refused=186 dropped=0\n");
    }
    let losses = lost(place.path(), "s").into_iter();
    let records: Option<u64> = losses.map(|(_, records)| records).sum();
    assert_eq!(records, Some(186));
    assert!(source(place.path(), "new").is_none());
}

#[test]
fn add_fields_adds_none_where_no_row_is_stored() {
    let place = Place::new();
    let file = place.file("a.arrow", "");
    let (dirs, daemon) = direct_and_through(&place);
    let number: &[Option<i64>] = &[Some(7)];
    for dir in &dirs {
        for (columns, code) in [
            (&[("n", number), ("t", number)][..], 0),
            (&[("n", number), ("t", &[None]), ("late", number)], 1),
        ] {
            arrow_file(&file, columns);
            let loaded = load(dir, &["--ts", "t", "--add-fields", &file]).ends(code);
            assert!(!loaded.err.contains("is added"), "{loaded:?}");
        }
    }
    daemon.stop().unwrap();
    for dir in &dirs {
        assert_eq!(source(dir, "s").unwrap().fields.len(), 1);
    }
}

#[test]
fn add_fields_extends_a_source_that_exists_with_and_without_a_daemon() {
    let place = Place::new();
    let [first, second] = ["a.arrow", "b.arrow"].map(|name| place.file(name, ""));
    let third = place.file("c.csv", "s,n,later\n6,7,8\n");
    let one = |value: i64| -> Vec<Option<i64>> { vec![Some(value)] };
    arrow_file(&first, &[("n", &one(1)), ("s", &one(2))]);
    let late = [("n", &one(3)[..]), ("s", &one(4)), ("late", &one(5))];
    arrow_file(&second, &late);
    let (dirs, daemon) = direct_and_through(&place);
    for dir in &dirs {
        let load = |args: &[&str]| load(dir, args).ends(0).err;
        assert_eq!(load(&[&first]), "", "there is nothing to note");
        let note =
            "column 'late' is left out: source 's' has no such field; add it with --add-fields";
        says(&load(&[&second]), note);
        assert_eq!(source(dir, "s").unwrap().fields.len(), 2);
        let added = load(&[&second, "--add-fields"]);
        says(&added, "field 'late' of type i64 is added to source 's'");
        assert!(!added.contains("left out"), "{added}");
        // Of text, the declaration adds them.
        let fields = declared(dir, "s", "n i64?, s i64?, late i64?, later i64?");
        let added = load(&["--fields", &fields, &third]);
        says(&added, "field 'later' of type i64 is added to source 's'");
    }
    daemon.stop().unwrap();
    let row = |numbers: [u8; 4]| {
        let number = |n: u8| match n {
            0 => "-".to_owned(),
            n => format!("{n:02x}00000000000000"),
        };
        numbers.map(number).join(" ")
    };
    let expected = [[1, 2, 0, 0], [3, 4, 0, 0], [3, 4, 5, 0], [7, 6, 0, 8]].map(row);
    for dir in &dirs {
        let source = source(dir, "s").unwrap();
        let names: Vec<_> = source.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["n", "s", "late", "later"]);
        let found = records(dir);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(expected.starts_with(found.as_str()), "{found} {expected}");
        }
        assert!(check(dir).unwrap().is_sound());
    }
}
