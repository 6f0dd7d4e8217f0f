//! Loads through a daemon that ends under them, or whose sources others change meanwhile.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use loom_engine::query::Directory;
use loom_tests::command::{Ended, declared, file, ingestd, piped, until, word};
use rustix::io::ioctl_fionread;

use super::support::{Here, Place, SMALL, daemon, kill, payloads, stop};

/// A load of CSV into the source `s` of declared fields, from a pipe that it reads as long as it is open.
fn load_from_pipe(dir: &Path, fields: &str, args: &[&str]) -> (Child, ChildStdin) {
    let mut load = ingestd(["load", word(dir), "--source", "s", "--format", "csv"]);
    piped(load.args(["--fields", fields]).args(args).arg("-"))
}

/// A load under way that has stored the rows 1, 2, 3 of the source `s`.
fn load_of_three_rows(dir: &Path) -> (Child, ChildStdin) {
    let home = tempfile::tempdir().unwrap();
    let fields = declared(&home.path().join("s"), "s", "n i64?");
    let (child, mut stdin) = load_from_pipe(dir, &fields, &["--patience", "200ms"]);
    stdin.write_all(b"n\n1\n2\n3\n").unwrap();
    until(|| has_source(dir) && payloads(dir, "s").len() == 3);
    (child, stdin)
}

fn has_source(dir: &Path) -> bool {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    snapshot.source("s").is_ok()
}

#[test]
fn a_load_whose_daemon_stops_counts_as_the_daemon_did() {
    let daemon = Here::start(SMALL);
    let dir = daemon.path().to_owned();
    let (child, mut stdin) = load_of_three_rows(&dir);
    let dir = daemon.stop();
    stdin.write_all(b"4\n5\n").unwrap();
    drop(stdin);
    let ended = Ended::once(child).ends(1);
    let ended = ended.says("the daemon stopped; it stored 3");
    ended.prints("received=5 stored=3 refused=0 dropped=2\n");
    assert_eq!(payloads(dir.path(), "s").len(), 3);
}

#[test]
fn rows_that_a_killed_daemon_did_not_confirm_count_neither_as_stored_nor_as_dropped() {
    let place = Place::new();
    let dir = &place.dir;
    let daemon = place.start("");
    let (child, mut stdin) = load_of_three_rows(dir);
    kill(daemon);
    stdin.write_all(b"4\n5\n").unwrap();
    drop(stdin);
    let ended = Ended::once(child).ends(1).says("no daemon has run on");
    // The daemon may have acknowledged the first three before it was killed; the last two were never sent, or never read: a load that waits for an
    // answer reads no further.
    if ended.out != "received=5 stored=3 refused=0 dropped=2\n" {
        let ended = ended.says("3 rows of source 's' unconfirmed: a daemon was killed");
        let unread = "received=3 stored=0 refused=0 dropped=0 unconfirmed=3\n";
        if ended.out != unread {
            ended.prints("received=5 stored=0 refused=0 dropped=2 unconfirmed=3\n");
        }
    }
    let daemon = place.start("");
    assert_eq!(payloads(dir, "s").len(), 3);
    stop(daemon);
}

/// Loads files at the same time, and expects that each is stored whole.
fn load_at_once(dir: &Path, files: &[String], args: &[&str]) {
    let start = |file: &String| {
        let mut load = ingestd(["load", word(dir), "--source", "s", file]);
        piped(load.args(args)).0
    };
    let children: Vec<Child> = files.iter().map(start).collect();
    for child in children {
        Ended::once(child).prints("received=1 stored=1 refused=0 dropped=0\n");
    }
}

#[test]
fn loads_that_create_or_extend_a_source_at_the_same_time_all_succeed() {
    const LOADS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let running = daemon(&dir, SMALL);
    let create = (0..LOADS).map(|load| {
        let row = ["{\"a\":1,\"b\":2}\n", "{\"b\":2,\"a\":1}\n"][load % 2];
        file(home.path(), &format!("create{load}.jsonl"), row)
    });
    let create: Vec<String> = create.collect();
    let fields = declared(&dir, "s", "a i64?, b i64?");
    load_at_once(&dir, &create, &["--fields", &fields]);
    let extend: Vec<String> = (0..LOADS)
        .map(|load| {
            let path = home.path().join(format!("extend{load}.arrow"));
            let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
            let columns = [
                ("a".to_owned(), Arc::clone(&number)),
                (format!("x{load}"), number),
            ];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let file = File::create(&path).unwrap();
            let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            word(&path).to_owned()
        })
        .collect();
    load_at_once(&dir, &extend, &["--add-fields"]);
    assert_eq!(payloads(&dir, "s").len(), 2 * LOADS);
    let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
    assert_eq!(snapshot.source("s").unwrap().fields.len(), 2 + LOADS);
    running.stop().unwrap();
}

#[test]
fn a_pipe_whose_source_another_program_extends_meanwhile_is_one_message_that_says_so() {
    let daemon = Here::start(SMALL);
    let client = daemon.client();
    let home = tempfile::tempdir().unwrap();
    let define = |fields: &str| {
        let toml = declared(&home.path().join("known"), "s", fields);
        let toml = std::fs::read_to_string(toml).unwrap();
        client.define_one(&toml).unwrap();
    };
    define("n i64?");
    let fields = declared(&home.path().join("s"), "s", "n i64?, b i64?");
    let (child, mut stdin) = load_from_pipe(daemon.path(), &fields, &[]);
    stdin.write_all(b"n,b\n").unwrap();
    // It has read what the source is once it reads the pipe.
    until(|| ioctl_fionread(&stdin).unwrap() == 0);
    define("n i64?, c i64?");
    stdin.write_all(b"1,2\n").unwrap();
    drop(stdin);
    let ended = Ended::once(child).ends(1);
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    let words = "another program changed source 's' since this load began; load again: ";
    let ended = ended.says(words);
    ended.prints("received=0 stored=0 refused=0 dropped=0\n");
}
